//! Changes in etcd without the API server, to create objects of older API servers. The present one reads them although
//! it would refuse them.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use serde_json::{Value, json};

use super::Cluster;

/// The kubeconfig with which etcd is reached, in the folder of identities.
pub(super) const KUBECONFIG: &str = "etcd.kubeconfig";
/// The stored form of the field `sideEffects` of a webhook: number and type of the field, length, text.
const NO_SIDE_EFFECTS: &[u8] = b"\x32\x04None";
/// The same with a value of the same length.
const SIDE_EFFECTS: &[u8] = b"\x32\x04Some";

impl Cluster {
    /// Changes the webhooks of a ValidatingWebhookConfiguration without side effects to some, so that they do not
    /// support dry runs. `v1` of their API refuses such a configuration, but respects one that an earlier version
    /// stored.
    ///
    /// # Errors
    /// When there is no such configuration, or etcd cannot be reached.
    pub async fn give_side_effects(&self, configuration: &str) -> Result<()> {
        let etcd = super::client(&self.info.state.join("pki").join(KUBECONFIG)).await?;
        let ask = async |method: &str, body: Value| -> Result<Value> {
            let request = Request::post(format!("/v3/kv/{method}"))
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body.to_string().into_bytes())?;
            etcd.request(request).await.context("etcd does not answer")
        };
        let key = format!("/registry/validatingwebhookconfigurations/{configuration}");
        let key = STANDARD.encode(key);
        let found = ask("range", json!({ "key": key })).await?;
        let value = found.pointer("/kvs/0/value").and_then(Value::as_str);
        let value = STANDARD.decode(value.context("there is no such configuration in etcd")?)?;
        let changed = replace(&value, NO_SIDE_EFFECTS, SIDE_EFFECTS);
        ensure!(changed != value, "no webhook of it is without side effects");
        ask("put", json!({ "key": key, "value": STANDARD.encode(changed) }))
            .await
            .map(drop)
    }
}

/// Bytes with every occurrence of some replaced.
fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let (mut replaced, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(from) {
            replaced.extend_from_slice(to);
            rest = after;
        } else {
            replaced.push(*first);
            rest = after;
        }
    }
    replaced
}
