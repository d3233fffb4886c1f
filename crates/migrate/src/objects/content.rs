//! The Secrets with the objects of a revision. They keep confidential content out of the ClusterObjectSet.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch};
use olm_api::ClusterObjectSet;
use olm_plan::pack::{ContentSecret, ownership};
use olm_rollout::content::{self, SecretContent, secrets_of};
use serde_json::Value;

use crate::check::Request;
use crate::context::MoveContext;
use crate::hint::Hint;

/// Creates the Secrets of a revision. One that exists already is of an earlier run: its name follows from its content.
pub async fn store(
    context: &MoveContext<'_>,
    set: &ClusterObjectSet,
    secrets: &[ContentSecret],
) -> anyhow::Result<()> {
    let system_namespace = context.system_namespace;
    let api: Api<Secret> = Api::namespaced(context.own.clone(), system_namespace);
    for secret in secrets {
        match api.create(&context.creating(), &secret.object(set)).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            created => {
                created
                    .with_context(|| format!("cannot create Secret {system_namespace}/{}", secret.name))
                    .context(Hint(of_namespace(context.request)))?;
            }
        }
    }
    Ok(())
}

/// What to do if the Secrets cannot be created: the namespace may be another one.
fn of_namespace(request: Request) -> String {
    let hint = match request {
        Request::Command => {
            "--system-namespace names the namespace of the managers; run the command again to continue"
        }
        Request::Annotation => {
            "--managers-namespace of catalog-operator must name the namespace of the managers, and \
             manifests/classic/migration must give it the rights there"
        }
    };
    hint.to_owned()
}

/// Makes a revision the owner of its Secrets, so that they are deleted together.
pub async fn own(context: &MoveContext<'_>, set: &ClusterObjectSet) -> anyhow::Result<()> {
    let patch = Patch::Merge(ownership(set));
    for secret in secrets_of(&set.spec, context.system_namespace).into_keys() {
        let api: Api<Secret> = Api::namespaced(context.own.clone(), &secret.namespace);
        let owned = api
            .patch_metadata(&secret.name, &context.changing(), &patch)
            .await;
        owned.with_context(|| format!("cannot give Secret {secret} to ClusterObjectSet {:?}", set.name()))?;
    }
    Ok(())
}

/// The objects of a revision.
pub async fn objects(
    client: &Client,
    set: &ClusterObjectSet,
    system_namespace: &str,
) -> anyhow::Result<Vec<Value>> {
    let mut secrets = BTreeMap::new();
    for name in secrets_of(&set.spec, system_namespace).into_keys() {
        let api: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
        let found = api.get_opt(&name.name).await;
        let found = found
            .with_context(|| format!("cannot read Secret {name}, which holds objects of {}", set.name()))?;
        if let Some(secret) = found {
            let data = secret.data.unwrap_or_default();
            let secret = SecretContent {
                immutable: secret.immutable == Some(true),
                data: data.into_iter().map(|(key, value)| (key, value.0)).collect(),
            };
            secrets.insert(name, secret);
        }
    }
    let content = content::resolve(&set.spec, &secrets, system_namespace)
        .with_context(|| format!("cannot read the objects of {}", set.name()))?;
    let phases = content.phases.into_iter();
    Ok(phases
        .flat_map(|phase| phase.objects)
        .map(|object| object.object)
        .collect())
}
