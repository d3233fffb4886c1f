//! The Secrets with the objects of the first revision. They keep confidential content out of the ClusterObjectSet.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use olm_api::ClusterObjectSet;
use olm_plan::pack::{ContentSecret, ownership};
use olm_rollout::content::secrets_of;

use crate::extension::change::MANAGER;
use crate::hint::Hint;

/// Parameters of a creation by us.
pub(super) fn creating() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Creates the Secrets of a revision. One that exists already is of an earlier run: its name follows from its content.
pub(crate) async fn store(
    client: &Client,
    system_namespace: &str,
    set: &ClusterObjectSet,
    secrets: &[ContentSecret],
) -> anyhow::Result<()> {
    let api: Api<Secret> = Api::namespaced(client.clone(), system_namespace);
    for secret in secrets {
        match api.create(&creating(), &secret.object(set)).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            created => {
                created
                    .with_context(|| format!("cannot create Secret {system_namespace}/{}", secret.name))
                    .context(Hint(
                        "--system-namespace names the namespace of the managers; run the command again to continue"
                            .to_owned(),
                    ))?;
            }
        }
    }
    Ok(())
}

/// Makes a revision the owner of its Secrets, so that they are deleted together.
pub(crate) async fn own(
    client: &Client,
    system_namespace: &str,
    set: &ClusterObjectSet,
) -> anyhow::Result<()> {
    let patch = Patch::Merge(ownership(set));
    let parameters = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    for secret in secrets_of(&set.spec, system_namespace).into_keys() {
        let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace);
        let owned = api.patch_metadata(&secret.name, &parameters, &patch).await;
        owned.with_context(|| format!("cannot give Secret {secret} to ClusterObjectSet {:?}", set.name()))?;
    }
    Ok(())
}
