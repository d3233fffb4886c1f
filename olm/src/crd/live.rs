//! The definitions of a cluster and the objects of their kinds.

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Error};
use olm_preflight::crd_upgrade::Finding;
use olm_preflight::crd_upgrade::existing::schema_checks;
use serde_json::Value;

use super::definitions::Definitions;
use crate::extension::access::ClusterArguments;

/// The number of objects on a page.
const PAGE: u32 = 100;

/// A connection to a cluster.
pub(crate) struct Cluster {
    client: Client,
    /// The address of its API server.
    server: String,
}

/// The parts of existing objects that a definition refuses, and notes about objects that could not be checked.
#[derive(Debug, Default)]
pub(crate) struct ObjectFindings {
    pub(crate) findings: Vec<Finding>,
    pub(crate) notes: Vec<String>,
}

impl Cluster {
    /// Reaches the cluster that is meant.
    pub(crate) async fn reach(access: &ClusterArguments) -> anyhow::Result<Self> {
        let config = access.config().await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config)?;
        Ok(Self { client, server })
    }

    /// The wanted definitions that the cluster has.
    pub(crate) async fn definitions(&self, wanted: &Definitions) -> anyhow::Result<Definitions> {
        // With all fields of the cluster, including fields that this program does not know.
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut found = Definitions::new();
        for name in wanted.keys() {
            let live = api.get_opt(name).await;
            let live =
                live.with_context(|| format!("cannot read the definition {name:?} from {}", self.server))?;
            if let Some(live) = live {
                found.insert(name.clone(), serde_json::to_value(live)?);
            }
        }
        Ok(found)
    }

    /// Holds the existing objects of a definition against the new one.
    pub(crate) async fn check_objects(&self, old: &Value, new: &Value) -> anyhow::Result<ObjectFindings> {
        let text = |pointer: &str| {
            let value = old.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let mut checks = schema_checks(old, new);
        let mut live = ObjectFindings::default();
        for version in checks.versions() {
            let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
            let resource = ApiResource {
                api_version: format!("{group}/{version}"),
                version: version.clone(),
                kind: text("/spec/names/kind"),
                group,
                plural,
            };
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let mut page = ListParams::default().limit(PAGE);
            loop {
                let list = match api.list(&page).await {
                    Ok(list) => list,
                    Err(Error::Api(status)) => {
                        let what = format!("{}.{}", resource.plural, resource.group);
                        live.notes
                            .push(format!("cannot check all existing {what}: {}", status.message));
                        break;
                    }
                    Err(error) => return Err(error.into()),
                };
                for object in list.items {
                    let object = serde_json::to_value(object)?;
                    checks.check(&version, &object);
                }
                match list.metadata.continue_.filter(|next| !next.is_empty()) {
                    Some(next) => page = page.continue_token(&next),
                    None => break,
                }
            }
        }
        live.findings = checks.findings();
        live.notes.extend(checks.unchecked());
        Ok(live)
    }
}
