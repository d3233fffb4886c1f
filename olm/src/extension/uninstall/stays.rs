//! What a deletion leaves besides the objects of the extension: the account with its rights, and the namespace.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::{Client, Error, Resource};
use olm_api::names::{self, annotation, label};
use olm_api::{ClusterExtension, ClusterObjectSet};
use serde::Serialize;

use crate::extension::cluster::Cluster;
use crate::extension::rollback::account::account;

/// What stays on the cluster besides the objects of an extension.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remains {
    /// The install namespace.
    pub(super) namespace: String,
    /// The service account with whose rights OLM removes the objects, and its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) account: Option<AccountPlace>,
    /// The roles and bindings that `olm` proposed for the extension.
    pub(super) roles: Vec<RoleName>,
    /// The other bindings of the account.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) bindings: Vec<Binding>,
    /// The other extensions in the namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) neighbours: Vec<String>,
    /// Whether it is known which other extensions share the namespace or the account.
    #[serde(skip)]
    pub(super) are_others_known: bool,
    /// Facts that could not be read, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unread: Vec<String>,
}

/// A service account, and the other extensions that use it.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AccountPlace {
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) used_by: Vec<String>,
}

/// A role or a binding.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct RoleName {
    pub(super) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
}

/// A binding that names the account.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Binding {
    #[serde(flatten)]
    pub(super) object: RoleName,
    /// Kind and name of its role, which other bindings may use too.
    pub(super) role: String,
    /// Whether it binds nobody else.
    pub(super) is_alone: bool,
}

impl Remains {
    /// Reads what stays of an extension; `newest` is its newest active revision.
    pub(super) fn read(
        cluster: &Cluster,
        extension: &ClusterExtension,
        newest: Option<&ClusterObjectSet>,
    ) -> Self {
        let mut remains = Self {
            namespace: extension.spec.namespace.clone(),
            account: account(extension, newest).map(|(namespace, name)| AccountPlace {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                used_by: Vec::new(),
            }),
            ..Self::default()
        };
        cluster.runtime.block_on(async {
            remains.read_others(&cluster.client, extension.name()).await;
            if let Some(selector) = label::selector(label::RIGHTS_OF, extension.name()) {
                let client = &cluster.client;
                remains.add(labelled::<ClusterRole>(client, &selector).await);
                remains.add(labelled::<ClusterRoleBinding>(client, &selector).await);
                remains.add(labelled::<Role>(client, &selector).await);
                remains.add(labelled::<RoleBinding>(client, &selector).await);
            }
            remains.add_bindings(&cluster.client).await;
        });
        remains
    }

    /// Adds the other extensions, with the accounts that stand in their revisions alone.
    async fn read_others(&mut self, client: &Client, own: &str) {
        let extensions: Api<ClusterExtension> = Api::all(client.clone());
        let extensions = match extensions.list(&ListParams::default()).await {
            Ok(listed) => listed.items,
            Err(error) => return self.add_unread("ClusterExtensions", &error),
        };
        let revisions: Api<ClusterObjectSet> = Api::all(client.clone());
        let revisions = match revisions.list_metadata(&ListParams::default()).await {
            Ok(listed) => listed.items.into_iter().map(|one| one.metadata).collect(),
            Err(error) => {
                self.add_unread("ClusterObjectSets", &error);
                return;
            }
        };
        self.add_others(own, &extensions, revisions);
    }

    /// Adds the bindings of the account that `olm` did not propose.
    async fn add_bindings(&mut self, client: &Client) {
        let everywhere: Api<ClusterRoleBinding> = Api::all(client.clone());
        let everywhere = everywhere.list(&ListParams::default()).await;
        match everywhere.map(|list| list.items) {
            Ok(found) => found.iter().for_each(|one| {
                self.add_binding(
                    "ClusterRoleBinding",
                    &one.metadata,
                    &one.role_ref,
                    one.subjects.as_deref(),
                );
            }),
            Err(error) => self.add_unread("ClusterRoleBindings", &error),
        }
        let namespaced: Api<RoleBinding> = Api::all(client.clone());
        let namespaced = namespaced.list(&ListParams::default()).await;
        match namespaced.map(|list| list.items) {
            Ok(found) => found.iter().for_each(|one| {
                self.add_binding(
                    "RoleBinding",
                    &one.metadata,
                    &one.role_ref,
                    one.subjects.as_deref(),
                );
            }),
            Err(error) => self.add_unread("RoleBindings", &error),
        }
    }

    fn add_binding(
        &mut self,
        kind: &str,
        metadata: &ObjectMeta,
        role: &RoleRef,
        subjects: Option<&[Subject]>,
    ) {
        let Some(account) = &self.account else { return };
        let subjects = subjects.unwrap_or_default();
        let is_account = |subject: &Subject| {
            subject.kind == "ServiceAccount"
                && subject.name == account.name
                && subject.namespace.as_deref() == Some(account.namespace.as_str())
        };
        let binding = RoleName {
            kind: kind.to_owned(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        if subjects.iter().any(is_account) && !self.roles.contains(&binding) {
            self.bindings.push(Binding {
                object: binding,
                role: format!("{} {}", role.kind, role.name),
                is_alone: subjects.len() == 1,
            });
        }
    }

    /// Adds the extensions that share the namespace or the account. Of an extension that names no account, those of all
    /// its revisions count.
    fn add_others(&mut self, own: &str, extensions: &[ClusterExtension], revisions: Vec<ObjectMeta>) {
        let accounts: BTreeSet<(String, String)> = revisions
            .into_iter()
            .filter_map(|revision| {
                let owner = revision.labels?.remove(label::OWNER_NAME)?;
                Some((owner, revision.annotations?.remove(annotation::SERVICE_ACCOUNT)?))
            })
            .collect();
        for other in extensions.iter().filter(|other| other.name() != own) {
            let name = || other.name().to_owned();
            if other.spec.namespace == self.namespace {
                self.neighbours.push(name());
            }
            if let Some(own) = &mut self.account {
                let is_used = match account(other, None) {
                    Some(used) => used == (own.namespace.as_str(), own.name.as_str()),
                    None => accounts.contains(&(name(), format!("{}/{}", own.namespace, own.name))),
                };
                own.used_by.extend(is_used.then(name));
            }
        }
        self.are_others_known = true;
    }

    fn add(&mut self, roles: Result<Vec<RoleName>, (String, Error)>) {
        match roles {
            Ok(roles) => self.roles.extend(roles),
            Err((kinds, error)) => self.add_unread(&kinds, &error),
        }
    }

    fn add_unread(&mut self, kinds: &str, error: &Error) {
        self.unread.push(format!("cannot list the {kinds}: {error}"));
    }

    /// The commands that remove what nothing else uses, for a shell. Where it is not known what other extensions use,
    /// there are only those for the roles that `olm` proposed.
    pub(super) fn commands(&self, extension: &str) -> Vec<String> {
        let mut commands = Vec::new();
        if !self.roles.is_empty() {
            commands.push(format!(
                "kubectl delete clusterroles,clusterrolebindings,roles,rolebindings -A -l {}={extension}",
                label::RIGHTS_OF
            ));
        }
        let is_unused = self.account.as_ref().is_some_and(|account| {
            self.are_others_known && account.used_by.is_empty() && account.name != "default"
        });
        let bindings = self
            .bindings
            .iter()
            .filter(|binding| is_unused && binding.is_alone);
        commands.extend(bindings.map(|binding| {
            let RoleName {
                kind,
                namespace,
                name,
            } = &binding.object;
            let place = if namespace.is_empty() {
                String::new()
            } else {
                format!(" -n {namespace}")
            };
            format!("kubectl delete {} {name}{place}", kind.to_lowercase())
        }));
        if let Some(account) = self.account.as_ref().filter(|_| is_unused) {
            let AccountPlace { namespace, name, .. } = account;
            commands.push(format!("kubectl delete serviceaccount {name} -n {namespace}"));
        }
        if self.are_others_known && self.neighbours.is_empty() && !is_shared(&self.namespace) {
            commands.push(format!(
                "kubectl delete namespace {}  # if nothing else is in it",
                self.namespace
            ));
        }
        commands
    }
}

/// Whether a namespace is not one of a user's own, but of Kubernetes, OpenShift or OLM.
fn is_shared(namespace: &str) -> bool {
    let is_named = ["", "default", "operators", "olm", names::SYSTEM_NAMESPACE].contains(&namespace);
    is_named || namespace.starts_with("kube-") || namespace.starts_with("openshift")
}

/// The objects of a kind with a label, or the kind and the error.
async fn labelled<K>(client: &Client, selector: &str) -> Result<Vec<RoleName>, (String, Error)>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let kind = K::kind(&()).into_owned();
    let api: Api<K> = Api::all(client.clone());
    let listed = api.list_metadata(&ListParams::default().labels(selector)).await;
    let listed = listed.map_err(|error| (format!("{kind}s"), error))?;
    let names = listed.items.into_iter().map(|one| RoleName {
        kind: kind.clone(),
        namespace: one.metadata.namespace.unwrap_or_default(),
        name: one.metadata.name.unwrap_or_default(),
    });
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::{ClusterExtensionSpec, ServiceAccountReference};

    use super::*;

    fn extension(name: &str, namespace: &str, account: &str) -> ClusterExtension {
        let spec = ClusterExtensionSpec {
            namespace: namespace.to_owned(),
            service_account: Some(ServiceAccountReference {
                name: account.to_owned(),
            }),
            ..ClusterExtensionSpec::default()
        };
        ClusterExtension::new(name, spec)
    }

    fn remains(others: &[ClusterExtension]) -> Remains {
        let mut remains = unknown();
        remains.add_others("greeter", others, Vec::new());
        remains
    }

    fn unknown() -> Remains {
        Remains {
            namespace: "greeter".to_owned(),
            account: Some(AccountPlace {
                namespace: "greeter".to_owned(),
                name: "installer".to_owned(),
                used_by: Vec::new(),
            }),
            ..Remains::default()
        }
    }

    #[test]
    fn what_others_use_has_no_command_that_removes_it() {
        let account = "kubectl delete serviceaccount installer -n greeter";
        let namespace = "kubectl delete namespace greeter  # if nothing else is in it";
        let own = extension("greeter", "greeter", "installer");
        assert_eq!(remains(&[own]).commands("greeter"), [account, namespace]);
        let neighbour = extension("other", "greeter", "its-own");
        assert_eq!(remains(&[neighbour]).commands("greeter"), [account]);
        let user = extension("other", "greeter", "installer");
        let shared = remains(&[user]);
        assert_eq!(shared.commands("greeter"), [""; 0]);
        assert_eq!(shared.neighbours, ["other"]);
        assert_eq!(unknown().commands("greeter"), [""; 0]);
        // An account that only the revision names.
        let revision = ObjectMeta {
            labels: Some([(label::OWNER_NAME.to_owned(), "other".to_owned())].into()),
            annotations: Some(
                [(
                    annotation::SERVICE_ACCOUNT.to_owned(),
                    "greeter/installer".to_owned(),
                )]
                .into(),
            ),
            ..ObjectMeta::default()
        };
        let mut by_revision = unknown();
        let other = extension("other", "elsewhere", "");
        by_revision.add_others("greeter", &[other], vec![revision]);
        assert_eq!(by_revision.commands("greeter"), [namespace]);
    }

    #[test]
    fn a_binding_of_the_account_alone_has_a_command_that_removes_it() {
        let subject = |name: &str| Subject {
            kind: "ServiceAccount".to_owned(),
            name: name.to_owned(),
            namespace: Some("greeter".to_owned()),
            ..Subject::default()
        };
        let role = RoleRef {
            kind: "ClusterRole".to_owned(),
            name: "admin".to_owned(),
            ..RoleRef::default()
        };
        let mut remains = remains(&[]);
        for (name, subjects) in [
            ("alone", vec![subject("installer")]),
            ("shared", vec![subject("installer"), subject("other")]),
            ("foreign", vec![subject("other")]),
        ] {
            let metadata = ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("n".to_owned()),
                ..ObjectMeta::default()
            };
            remains.add_binding("RoleBinding", &metadata, &role, Some(&subjects));
        }
        let names: Vec<&str> = remains
            .bindings
            .iter()
            .map(|one| one.object.name.as_str())
            .collect();
        assert_eq!(names, ["alone", "shared"]);
        assert_eq!(remains.bindings[0].role, "ClusterRole admin");
        assert_eq!(
            remains.commands("greeter")[0],
            "kubectl delete rolebinding alone -n n"
        );
        assert!(!remains.commands("greeter").concat().contains("shared"));
    }

    #[test]
    fn what_comes_with_a_cluster_is_never_deleted() {
        for namespace in [
            "default",
            "kube-system",
            "openshift-operators",
            "olmv1-system",
            "operators",
        ] {
            let mut remains = remains(&[]);
            remains.namespace = namespace.to_owned();
            if let Some(account) = &mut remains.account {
                account.name = "default".to_owned();
            }
            assert_eq!(remains.commands("greeter"), [""; 0], "{namespace}");
        }
    }
}
