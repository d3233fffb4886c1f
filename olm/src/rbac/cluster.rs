//! The roles for the extensions and sets of a cluster.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::command::SET_PREFIX;
use olm_api::conditions::{PROGRESSING, find, reason};
use olm_api::names::{annotation, label};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::Request as Installation;
use olm_cluster::discover::Discovery;
use olm_cluster::identity::AccountName;
use olm_cluster::permissions::{Reviews, Viewer};
use olm_cluster::rights::{lacking, needed_here};
use olm_migrate::objects::content::objects as applied;
use olm_plan::BundleIdentity;
use olm_plan::bundle::roles_named_after;
use olm_preflight::crd_upgrade::definition_name;
use olm_preflight::crd_upgrade::migration::{Migration, migration};
use olm_preflight::permissions::{AccountRights, Missing, Right};
use olm_resolve::{Installed, Request, Selector};
use olm_rollout::object::ObjectId;
use serde_json::Value;

use super::bundle::{ChosenBundles, choose, objects, with_secrets};
use super::{Arguments, Purpose, Subject, print_roles};
use crate::extension::choose::{Origin, ResolutionInput};
use crate::extension::cluster::catalogs::sources_of;
use crate::extension::cluster::{Cluster, newest_active, note_unread, recorded};
use crate::extension::lookup::revisions;
use crate::extension::rollback::account::{account, act_as};
use crate::hint::Hint;
use crate::output::{Status, note};
use crate::source::open_bundle;

/// The roles for a ClusterExtension or a ClusterObjectSet; `None` if there is no extension of that name.
pub(super) fn run(
    arguments: &Arguments,
    cluster: &RoleRequest,
    name: &str,
) -> anyhow::Result<Option<Status>> {
    let subjects = match name.strip_prefix(SET_PREFIX) {
        Some(set) => vec![cluster.set(arguments, set)?],
        None if cluster.find(name)?.is_none() => return Ok(None),
        None => {
            is_for_installed(arguments, name)?;
            cluster.extension(arguments, name)?
        }
    };
    if subjects.is_empty() {
        return Ok(Some(Status::Failure));
    }
    let asks = !arguments.all;
    let with_missing = |subject: Subject| {
        let missing = lacked(cluster, &subject.account, &subject.objects, asks)?;
        let missing = match subject.purpose {
            Purpose::Remove => missing.for_removal(),
            Purpose::Apply => missing.with_rights(cluster.migrations(&subject, asks)?),
        };
        Ok((subject, missing))
    };
    let subjects: anyhow::Result<Vec<_>> = subjects.into_iter().map(with_missing).collect();
    print_roles(&subjects?, arguments.output).map(Some)
}

/// Fails if options for a package that is not installed are set: the spec of the extension has these.
fn is_for_installed(arguments: &Arguments, name: &str) -> anyhow::Result<()> {
    let is_for_package = arguments.version.is_some()
        || !arguments.channels.is_empty()
        || !arguments.config.is_empty()
        || arguments.extension.is_some();
    if !is_for_package {
        return Ok(());
    }
    let error = anyhow!(
        "ClusterExtension {name:?} exists; --version, --channel, --config, --watch-namespace and --extension are for packages \
         that are not installed"
    );
    Err(error.context(Hint(
        "leave them out, or set --namespace and --service-account for another installation".to_owned(),
    )))
}

/// Determines the account and the objects for the roles.
pub(super) struct RoleRequest(Cluster);

impl std::ops::Deref for RoleRequest {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl RoleRequest {
    /// A request to the cluster of the arguments.
    pub(super) fn reach(arguments: &Arguments) -> anyhow::Result<Self> {
        Ok(Self(Cluster::reach(&arguments.cluster)?))
    }

    /// A ClusterObjectSet alone.
    fn set(&self, arguments: &Arguments, name: &str) -> anyhow::Result<Subject> {
        let sets: Api<ClusterObjectSet> = Api::all(self.client.clone());
        let set = self.runtime.block_on(sets.get(name));
        let set = set.with_context(|| format!("cannot read ClusterObjectSet {name:?}"))?;
        let account = applies_as(&set).or_else(|| arguments.default_service_account.clone());
        let account =
            account.with_context(|| format!("ClusterObjectSet {name:?} names no service account"))?;
        let mut objects = self.applied(arguments, &set)?;
        let purpose = if set.is_deleting() || set.spec.lifecycle_state == LifecycleState::Archived {
            self.retain_removable(&mut objects, &account)?;
            Purpose::Remove
        } else {
            Purpose::Apply
        };
        Ok(Subject {
            extension: set.label(label::OWNER_NAME).unwrap_or(name).to_owned(),
            account,
            objects,
            purpose,
        })
    }

    /// Leaves out objects whose namespace is gone. That of the account exists again when the account does.
    fn retain_removable(&self, objects: &mut Vec<Value>, account: &AccountName) -> anyhow::Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let mut known = BTreeMap::from([(String::new(), true), (account.namespace.clone(), true)]);
        for namespace in objects.iter().map(|object| ObjectId::of(object).namespace) {
            if let Entry::Vacant(unknown) = known.entry(namespace) {
                let found = self.runtime.block_on(api.get_metadata_opt(unknown.key()));
                let found = found.with_context(|| format!("cannot read Namespace {:?}", unknown.key()))?;
                unknown.insert(found.is_some());
            }
        }
        objects.retain(|object| known.get(&ObjectId::of(object).namespace) == Some(&true));
        Ok(())
    }

    /// The rights that the account lacks to migrate objects out of versions that definitions among the objects drop.
    fn migrations(&self, subject: &Subject, asks: bool) -> anyhow::Result<BTreeSet<Right>> {
        let mut rights = BTreeSet::new();
        for new in &subject.objects {
            let Some(name) = definition_name(new) else {
                continue;
            };
            let Some(live) = self.definition(name)? else {
                continue;
            };
            if let Migration::Possible(rewrite) = migration(&live, new) {
                rights.extend(rewrite.rights());
            }
        }
        if rights.is_empty() || !asks {
            return Ok(rights);
        }
        let AccountName { namespace, name } = &subject.account;
        self.runtime.block_on(async {
            // Without an answer all of them are printed, as `lacked` says.
            let Ok(client) = act_as(&self.config, &self.client, namespace, name).await else {
                return Ok(rights);
            };
            let (reviews, viewer) = (Reviews::default(), Viewer::Account(subject.account.clone()));
            let mut missing = BTreeSet::new();
            for right in rights {
                if !reviews.may(&client, &viewer, &right).await? {
                    missing.insert(right);
                }
            }
            Ok(missing)
        })
    }

    /// A ClusterExtension that is being deleted: each revision is removed under the account that applied it, by default
    /// under the extension's.
    fn deletion(
        &self,
        arguments: &Arguments,
        name: &str,
        sets: &[ClusterObjectSet],
        default: AccountName,
    ) -> anyhow::Result<Vec<Subject>> {
        let subjects = by_account(sets, default).into_iter().map(|(account, sets)| {
            let mut objects = Vec::new();
            for set in sets {
                objects.extend(self.applied(arguments, set)?);
            }
            self.retain_removable(&mut objects, &account)?;
            Ok(Subject {
                extension: name.to_owned(),
                account,
                objects,
                purpose: Purpose::Remove,
            })
        });
        subjects.collect()
    }

    /// A ClusterExtension: the bundle that its spec selects; empty if no bundle fits, which is reported.
    fn extension(&self, arguments: &Arguments, name: &str) -> anyhow::Result<Vec<Subject>> {
        let extension = self.0.extension(name)?;
        let sets = self.runtime.block_on(revisions(&self.client, &extension))?;
        let newest = newest_active(&sets);
        let account = account(&extension, newest)
            .map(|(namespace, account)| AccountName {
                namespace: namespace.to_owned(),
                name: account.to_owned(),
            })
            .or_else(|| arguments.default_service_account.clone());
        let Some(account) = account else {
            let error = anyhow!("ClusterExtension {name:?} names no service account");
            return Err(error.context(Hint(
                "set spec.serviceAccount.name, or --default-service-account as operator-controller has it"
                    .to_owned(),
            )));
        };
        if extension.is_deleting() {
            return self.deletion(arguments, name, &sets, account);
        }
        let subject = |objects| {
            vec![Subject {
                extension: name.to_owned(),
                account,
                objects,
                purpose: Purpose::Apply,
            }]
        };
        let chosen = if let Some(source) = &arguments.bundle {
            ChosenBundles::only(source.clone())
        } else {
            let is_installed = newest.filter(|_| !arguments.every_version && is_on_course(&extension));
            if let Some(newest) = is_installed {
                return Ok(subject(self.applied(arguments, newest)?));
            }
            let Some(chosen) = self.proposed(arguments, &extension, newest)? else {
                return Ok(Vec::new());
            };
            let is_of = |set: &&ClusterObjectSet| {
                let reference = set.annotation(annotation::BUNDLE_REFERENCE);
                chosen.sources.iter().map(String::as_str).eq(reference)
            };
            if let Some(newest) = newest.filter(is_of) {
                return Ok(subject(self.applied(arguments, newest)?));
            }
            chosen
        };
        let config = extension
            .spec
            .config
            .as_ref()
            .and_then(|config| config.inline.clone());
        let config = config.map(Value::Object);
        let provider = self.provider(newest)?;
        let filter = extension.spec.source.catalog.as_ref();
        let wanted = BundleIdentity {
            package: filter.map_or_else(String::new, |filter| filter.package_name.clone()),
            ..BundleIdentity::default()
        };
        let latest = sets.iter().max_by_key(|set| set.spec.revision);
        let request = Installation {
            config: config.as_ref(),
            roles_named_after: roles_named_after(latest, &wanted).or(chosen.first.as_deref()),
            ..Installation::new(&extension.spec.namespace)
        };
        let policies = self.image_rules(&extension)?;
        note_unread(&policies);
        let registry = arguments.registry.with_rules(policies.rules);
        let mut all = Vec::new();
        for source in &chosen.sources {
            let bundle = open_bundle(source, &registry)?;
            all.extend(objects(&bundle, source, request, provider)?);
        }
        Ok(subject(all))
    }

    /// The bundles in the catalogs; `None` if none fits, which is reported.
    pub(super) fn proposed(
        &self,
        arguments: &Arguments,
        extension: &ClusterExtension,
        newest: Option<&ClusterObjectSet>,
    ) -> anyhow::Result<Option<ChosenBundles>> {
        let Some(filter) = &extension.spec.source.catalog else {
            return Err(anyhow!(
                "spec.source.catalog is missing: there is nothing to install"
            ));
        };
        if !arguments.every_version {
            let origin = Origin {
                catalogs: &arguments.catalogs,
                registry: &arguments.registry,
                access: &arguments.cluster,
            };
            let input = ResolutionInput::gather(&self.0, origin, extension, newest);
            if let Some(chosen) = input.ok().and_then(|input| input.resolve().ok()) {
                return Ok(Some(ChosenBundles::only(chosen.bundle.image)));
            }
        }
        // A bundle that the cluster does not allow yet needs its rights later.
        let package = filter.package_name.as_str();
        let sources = if arguments.catalogs.is_empty() {
            let home = newest.and_then(|set| set.annotation(annotation::CATALOG));
            let selector = Selector::admitted(filter.selector.as_ref(), home.map(Some), &[]);
            self.catalogs(&arguments.registry, package, selector.as_ref())?
        } else {
            sources_of(
                &arguments.catalogs,
                &arguments.registry,
                &arguments.cluster,
                package,
            )?
        };
        let request = Request::of(filter, None);
        let status = extension.status.as_ref();
        let installed = status.and_then(|status| status.install.as_ref());
        let installed = installed.map(|install| Installed {
            name: &install.bundle.name,
            version: &install.bundle.version,
            release: install.bundle.release.as_deref(),
        });
        Ok(choose(
            &sources,
            &request,
            installed.as_ref(),
            arguments.every_version,
        ))
    }

    /// The objects of a revision.
    fn applied(&self, arguments: &Arguments, set: &ClusterObjectSet) -> anyhow::Result<Vec<Value>> {
        let found = applied(&self.client, set, &arguments.system_namespace);
        let mut objects = self.runtime.block_on(found)?;
        if let Some(provider) = recorded(Some(set)) {
            with_secrets(&mut objects, provider);
        }
        Ok(objects)
    }
}

/// The rights that an account lacks to apply objects; all needed rights if the question is not requested or not
/// allowed.
pub(crate) fn lacked(
    cluster: &Cluster,
    account: &AccountName,
    objects: &[Value],
    asks: bool,
) -> anyhow::Result<Missing> {
    let objects: Vec<&Value> = objects.iter().collect();
    let discovery = {
        let _inside = cluster.runtime.enter();
        Discovery::new(cluster.client.clone())
    };
    let asked = cluster.runtime.block_on(async {
        if asks {
            match act_as(
                &cluster.config,
                &cluster.client,
                &account.namespace,
                &account.name,
            )
            .await
            {
                Ok(client) => {
                    let reviews = Reviews::default();
                    return lacking(&discovery, &reviews, account, &client, &objects).await;
                }
                Err(why) => note(&format!(
                    "note: the output lists all permissions, not only the missing ones: {why}"
                )),
            }
        }
        let needs = needed_here(&discovery, &cluster.client, &objects).await?;
        Ok(needs.missing(&AccountRights::new()))
    });
    asked.with_context(|| format!("cannot check the rights of service account {account}"))
}

/// Revisions by the account that applied them; `default` where they name none, or where there are none.
fn by_account(
    sets: &[ClusterObjectSet],
    default: AccountName,
) -> BTreeMap<AccountName, Vec<&ClusterObjectSet>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for set in sets {
        let account = applies_as(set).unwrap_or_else(|| default.clone());
        all.entry(account).or_default().push(set);
    }
    if all.is_empty() {
        all.insert(default, Vec::new());
    }
    all
}

/// The account that a revision names.
fn applies_as(set: &ClusterObjectSet) -> Option<AccountName> {
    set.annotation(annotation::SERVICE_ACCOUNT)?.parse().ok()
}

/// Whether an extension matches its spec, or rolls out to match it.
fn is_on_course(extension: &ClusterExtension) -> bool {
    find(extension.conditions(), PROGRESSING).is_some_and(|progressing| {
        matches!(
            progressing.reason.as_str(),
            reason::SUCCEEDED | reason::ROLLING_OUT
        )
    })
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_object_set::ClusterObjectSetSpec;

    use super::*;

    fn revision(name: &str, account: Option<&str>) -> ClusterObjectSet {
        let mut set = ClusterObjectSet::new(name, ClusterObjectSetSpec::default());
        set.metadata.annotations =
            account.map(|account| [(annotation::SERVICE_ACCOUNT.to_owned(), account.to_owned())].into());
        set
    }

    #[test]
    fn each_revision_is_removed_under_the_account_that_applied_it() {
        let sets = [
            revision("vase-1", Some("shop/old")),
            revision("vase-2", Some("shop/new")),
            revision("vase-3", None),
        ];
        let account = |name: &str| AccountName {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        let of = |sets: &[ClusterObjectSet]| -> Vec<(String, Vec<String>)> {
            let all = by_account(sets, account("new")).into_iter();
            all.map(|(account, sets)| {
                let names = sets.iter().map(|set| set.name().to_owned());
                (account.to_string(), names.collect())
            })
            .collect()
        };
        let expected = [
            (
                "shop/new".to_owned(),
                vec!["vase-2".to_owned(), "vase-3".to_owned()],
            ),
            ("shop/old".to_owned(), vec!["vase-1".to_owned()]),
        ];
        assert_eq!(of(&sets), expected);
        assert_eq!(of(&[]), [("shop/new".to_owned(), Vec::new())]);
    }
}
