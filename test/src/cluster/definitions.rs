//! `CustomResourceDefinitions` on a cluster.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::Value;

/// Applies definitions and waits until the API server serves every one of their versions.
///
/// # Errors
/// When one is refused, or is not served within 30 s.
pub async fn apply_definitions(client: &kube::Client, definitions: &[Value]) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let parameters = PatchParams::apply("olm-test").force();
    let end = Instant::now() + Duration::from_secs(30);
    for definition in definitions {
        let name = definition.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.context("a definition without a name")?;
        let applied = api
            .patch(name, &parameters, &Patch::Apply(definition))
            .await
            .with_context(|| format!("{name} is refused"))?;
        for version in applied.spec.versions.iter().filter(|version| version.served) {
            let path = format!(
                "/apis/{}/{}/{}?limit=1",
                applied.spec.group, version.name, applied.spec.names.plural
            );
            // Established comes first, and a moment later the path.
            while let Err(e) = client
                .request_text(http::Request::get(&path).body(Vec::new())?)
                .await
            {
                if Instant::now() > end {
                    bail!("{} is not served: {e}", applied.name_any());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    Ok(())
}
