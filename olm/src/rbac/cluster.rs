//! The roles for what is on a cluster.

use anyhow::{Context as _, anyhow};
use kube::api::{Api, ListParams};
use kube::{Client, Config};
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::cluster_extension::UpgradeConstraintPolicy;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::{PROGRESSING, find, reason};
use olm_api::names::{annotation, cert_manager, label};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_bundle::CertificateProvider;
use olm_cluster::discover::Discovery;
use olm_cluster::identity::AccountName;
use olm_cluster::permissions::Reviews;
use olm_cluster::rights::{lacking, needed_here};
use olm_preflight::permissions::{AccountRights, Missing};
use olm_resolve::{Installed, Request, Selector, SelectorRequirement};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::bundle::{catalog, choose, objects, sources, with_secrets};
use super::{Arguments, Subject, name, print_roles};
use crate::hint::Hint;
use crate::output::{Outcome, Status, note};
use crate::resolve::Source;
use crate::rollback::account::{account, act_as};
use crate::rollback::{objects as applied, others, revisions};
use crate::source::open_bundle;

/// What a set is called on the command line.
const SET: &str = "clusterobjectset/";

/// A cluster, and the runtime in which it is asked.
struct Cluster {
    runtime: Runtime,
    config: Config,
    client: Client,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let config = runtime.block_on(olm_platform::client::config(
        arguments.kubeconfig.as_deref(),
        "olm",
    ))?;
    let client = {
        let _inside = runtime.enter();
        Client::try_from(config.clone())?
    };
    let cluster = Cluster {
        runtime,
        config,
        client,
    };
    let name = name(arguments)?;
    let subject = match name.strip_prefix(SET) {
        Some(set) => Some(cluster.set(arguments, set)?),
        None => cluster.extension(arguments, name)?,
    };
    let Some(subject) = subject else {
        return Ok(Status::Failure);
    };
    let missing = cluster.missing(arguments, &subject)?;
    print_roles(&subject, &missing)
}

impl Cluster {
    /// A ClusterObjectSet by itself.
    fn set(&self, arguments: &Arguments, name: &str) -> anyhow::Result<Subject> {
        let sets: Api<ClusterObjectSet> = Api::all(self.client.clone());
        let set = self.runtime.block_on(sets.get(name));
        let set = set.with_context(|| format!("cannot read ClusterObjectSet {name:?}"))?;
        let account = set.annotation(annotation::SERVICE_ACCOUNT).unwrap_or_default();
        let account = account
            .parse::<AccountName>()
            .with_context(|| format!("ClusterObjectSet {name:?} names no service account"))?;
        Ok(Subject {
            extension: set.label(label::OWNER_NAME).unwrap_or(name).to_owned(),
            account,
            objects: self.applied(arguments, &set)?,
        })
    }

    /// A ClusterExtension: what it is to be; nothing where no bundle fits, which is reported.
    fn extension(&self, arguments: &Arguments, name: &str) -> anyhow::Result<Option<Subject>> {
        let extensions: Api<ClusterExtension> = Api::all(self.client.clone());
        let found = self.runtime.block_on(extensions.get_opt(name));
        let Some(extension) = found.with_context(|| format!("cannot read ClusterExtension {name:?}"))? else {
            let error = anyhow!("ClusterExtension {name:?} not found");
            return Err(error.context(self.runtime.block_on(others(&extensions, name))));
        };
        let sets = self.runtime.block_on(revisions(&self.client, &extension))?;
        let active = sets.iter().filter(|set| {
            set.spec.lifecycle_state == LifecycleState::Active && set.metadata.deletion_timestamp.is_none()
        });
        let newest = active.max_by_key(|set| set.spec.revision);
        let Some((namespace, account)) = account(&extension, newest) else {
            let error = anyhow!("ClusterExtension {name:?} names no service account");
            return Err(error.context(Hint("set spec.serviceAccount.name".to_owned())));
        };
        let account = AccountName {
            namespace: namespace.to_owned(),
            name: account.to_owned(),
        };
        let subject = |objects| Subject {
            extension: name.to_owned(),
            account,
            objects,
        };
        let source = if let Some(source) = &arguments.bundle {
            source.clone()
        } else {
            if let Some(newest) = newest.filter(|_| is_on_course(&extension)) {
                return Ok(Some(subject(self.applied(arguments, newest)?)));
            }
            let Some(image) = self.proposed(arguments, &extension, newest)? else {
                return Ok(None);
            };
            let is_of = |set: &&ClusterObjectSet| {
                set.annotation(annotation::BUNDLE_REFERENCE) == Some(image.as_str())
            };
            if let Some(newest) = newest.filter(is_of) {
                return Ok(Some(subject(self.applied(arguments, newest)?)));
            }
            image
        };
        let bundle = open_bundle(&source, &arguments.registry)?;
        let config = extension
            .spec
            .config
            .as_ref()
            .and_then(|config| config.inline.clone());
        let config = config.map(Value::Object);
        let provider = self.provider(newest)?;
        let namespace = &extension.spec.namespace;
        let (_, objects) = objects(&bundle, &source, namespace, config.as_ref(), provider)?;
        Ok(Some(subject(objects)))
    }

    /// The image of the bundle that the catalogs offer; nothing when none fits, which is reported.
    fn proposed(
        &self,
        arguments: &Arguments,
        extension: &ClusterExtension,
        newest: Option<&ClusterObjectSet>,
    ) -> anyhow::Result<Option<String>> {
        let Some(filter) = &extension.spec.source.catalog else {
            return Err(anyhow!(
                "spec.source.catalog is missing: there is nothing to install"
            ));
        };
        let package = filter.package_name.as_str();
        let sources = if arguments.catalogs.is_empty() {
            let home = newest.and_then(|set| set.annotation(annotation::CATALOG));
            self.catalogs(arguments, extension, home)?
        } else {
            sources(arguments, package)?
        };
        let request = Request {
            package,
            version: filter.version.as_deref().filter(|version| !version.is_empty()),
            channels: &filter.channels,
            selector: None,
            policy: match filter.upgrade_constraint_policy {
                UpgradeConstraintPolicy::CatalogProvided => {
                    olm_resolve::UpgradeConstraintPolicy::CatalogProvided
                }
                UpgradeConstraintPolicy::SelfCertified => olm_resolve::UpgradeConstraintPolicy::SelfCertified,
            },
        };
        let status = extension.status.as_ref();
        let installed = status.and_then(|status| status.install.as_ref());
        let installed = installed.map(|install| Installed {
            name: &install.bundle.name,
            version: &install.bundle.version,
            release: install.bundle.release.as_deref(),
        });
        Ok(choose(&sources, &request, installed.as_ref()))
    }

    /// What the selected catalogs of the cluster say of the package, read from their images. What is installed stays with the
    /// catalog that it came from.
    fn catalogs(
        &self,
        arguments: &Arguments,
        extension: &ClusterExtension,
        home: Option<&str>,
    ) -> anyhow::Result<Vec<Source>> {
        let filter = extension.spec.source.catalog.as_ref();
        let package = filter
            .map(|filter| filter.package_name.as_str())
            .unwrap_or_default();
        let selector = filter
            .and_then(|filter| filter.selector.as_ref())
            .map(|given| Selector {
                match_labels: given.match_labels.clone().unwrap_or_default(),
                match_expressions: given
                    .match_expressions
                    .iter()
                    .flatten()
                    .map(|one| SelectorRequirement {
                        key: one.key.clone(),
                        operator: one.operator.clone(),
                        values: one.values.clone().unwrap_or_default(),
                    })
                    .collect(),
            });
        let selector = selector.filter(|selector| *selector != Selector::default());
        let api: Api<ClusterCatalog> = Api::all(self.client.clone());
        let listed = self.runtime.block_on(api.list(&ListParams::default()));
        let mut found = Vec::new();
        for listed in listed.context("cannot list the ClusterCatalogs")? {
            let mut labels = listed.metadata.labels.clone().unwrap_or_default();
            labels.insert(label::METADATA_NAME.to_owned(), listed.name().to_owned());
            let is_selected = match &selector {
                Some(selector) => selector.matches(&labels),
                None => home.is_none_or(|home| home == listed.name()),
            };
            if !is_selected || listed.spec.availability_mode == AvailabilityMode::Unavailable {
                continue;
            }
            let status = listed.status.as_ref();
            let resolved = status.and_then(|status| status.resolved_source.as_ref());
            let Some(image) = resolved.and_then(|resolved| resolved.image.as_ref()) else {
                note(&format!(
                    "warning: ClusterCatalog {:?} is not served",
                    listed.name()
                ));
                continue;
            };
            let (name, priority) = (listed.name().to_owned(), listed.spec.priority);
            let source = catalog(&arguments.registry, name, priority, &image.reference, package);
            found.push(source.map_err(|error| {
                error.context(Hint(
                    "set --catalog to another place of that catalog, or --bundle to the bundle".to_owned(),
                ))
            })?);
        }
        Ok(found)
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

    /// Who provides certificates, as operator-controller chooses it.
    fn provider(&self, newest: Option<&ClusterObjectSet>) -> anyhow::Result<CertificateProvider> {
        if let Some(provider) = recorded(newest) {
            return Ok(provider);
        }
        let groups = self.runtime.block_on(self.client.list_api_groups());
        let groups = groups
            .context("cannot list the API groups of the cluster")?
            .groups;
        let has = |name: &str| groups.iter().any(|group| group.name == name);
        Ok(if has(cert_manager::GROUP) {
            CertificateProvider::CertManager
        } else if has("config.openshift.io") {
            CertificateProvider::OpenShiftServiceCa
        } else {
            CertificateProvider::SelfSigned
        })
    }

    /// What the account lacks, or needs.
    fn missing(&self, arguments: &Arguments, subject: &Subject) -> anyhow::Result<Missing> {
        let objects: Vec<&Value> = subject.objects.iter().collect();
        let account = &subject.account;
        let discovery = {
            let _inside = self.runtime.enter();
            Discovery::new(self.client.clone())
        };
        let asked = self.runtime.block_on(async {
            if !arguments.all {
                match act_as(&self.config, &self.client, &account.namespace, &account.name).await {
                    Ok(client) => {
                        let reviews = Reviews::default();
                        return lacking(&discovery, &reviews, account, &client, &objects).await;
                    }
                    Err(why) => note(&format!(
                        "note: the output lists all permissions, not only the missing ones: {why}"
                    )),
                }
            }
            let needs = needed_here(&discovery, &self.client, &objects).await?;
            Ok(needs.missing(&AccountRights::new()))
        });
        asked.with_context(|| format!("cannot find out what service account {account} may do"))
    }
}

/// Whether an extension is where it is to be, or on its way there.
fn is_on_course(extension: &ClusterExtension) -> bool {
    find(extension.conditions(), PROGRESSING).is_some_and(|progressing| {
        matches!(
            progressing.reason.as_str(),
            reason::SUCCEEDED | reason::ROLLING_OUT
        )
    })
}

fn recorded(set: Option<&ClusterObjectSet>) -> Option<CertificateProvider> {
    set?.annotation(annotation::CERTIFICATE_PROVIDER)?.parse().ok()
}
