//! Address of the registry of a CatalogSource.

use olm_classic::catalog_source::{Source, SourceKind};
use olm_classic::cluster::{Cluster, annotation, items, label, text};
use olm_classic::names;
use serde_json::Value;

/// The address, `HOST:PORT` or `https://HOST:PORT`, that the registry of a source is dialled at: the one that the
/// source names, else that of a ready endpoint of its Service, else the name of the Service. `None` for a source
/// without a registry.
pub fn find(cluster: &Cluster, source: &Value) -> Option<String> {
    let source = Source {
        object: source,
        cluster,
    };
    if source.source_kind().is_err() {
        return None;
    }
    let address = source.address();
    if text(source.object, "/spec/address") == address {
        return Some(source.target());
    }
    let found = slices(&source).find_map(endpoint);
    Some(found.unwrap_or(address))
}

/// The name of the content that catalog-operator serves for a source; `None` for a registry elsewhere.
pub fn content<'a>(cluster: &'a Cluster, source: &'a Value) -> Option<&'a str> {
    let source = Source {
        object: source,
        cluster,
    };
    if source.source_kind().ok()? == SourceKind::Address {
        return None;
    }
    let mut slices =
        slices(&source).filter(|slice| label(slice, names::SLICE_MANAGER_LABEL) == names::SLICE_MANAGER);
    let content = annotation(slices.next()?, names::CATALOG_CONTENT_ANNOTATION);
    (!content.is_empty()).then_some(content)
}

/// The slices of the Service of a source.
fn slices<'a>(source: &Source<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    let (namespace, service) = (text(source.object, "/metadata/namespace"), source.service_name());
    let slices = source.cluster.in_namespace("EndpointSlice", namespace);
    slices.filter(move |slice| label(slice, names::SERVICE_NAME_LABEL) == service)
}

/// The first ready endpoint of a slice.
fn endpoint(slice: &Value) -> Option<String> {
    let port = items(slice, "/ports")
        .find_map(|port| port.get("port").and_then(Value::as_u64).filter(|_| is_grpc(port)))?;
    let is_ready = |endpoint: &&Value| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false));
    let endpoint = items(slice, "/endpoints").find(is_ready)?;
    let address = items(endpoint, "/addresses").find_map(Value::as_str)?;
    Some(if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    })
}

fn is_grpc(port: &Value) -> bool {
    matches!(text(port, "/name"), "grpc" | "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(is_ready: bool, address: &str) -> Value {
        json!({
            "kind": "EndpointSlice",
            "metadata": {"namespace": "n", "name": "s", "labels": {"kubernetes.io/service-name": "my-cat"}},
            "endpoints": [{"addresses": [address], "conditions": {"ready": is_ready}}],
            "ports": [{"name": "grpc", "port": 4711}],
        })
    }

    #[test]
    fn an_endpoint_of_the_service_comes_before_its_name() {
        let check = |spec: Value, slices: Vec<Value>, expected: Option<&str>| {
            let source = json!({"metadata": {"namespace": "n", "name": "my.cat"}, "spec": spec});
            let cluster: Cluster = slices.into_iter().collect();
            assert_eq!(find(&cluster, &source).as_deref(), expected);
        };
        let image = || json!({"sourceType": "grpc", "image": "i"});
        check(image(), vec![], Some("my-cat.n.svc:50051"));
        check(image(), vec![slice(true, "10.0.0.1")], Some("10.0.0.1:4711"));
        check(image(), vec![slice(true, "fd00::1")], Some("[fd00::1]:4711"));
        check(
            image(),
            vec![slice(false, "10.0.0.1")],
            Some("my-cat.n.svc:50051"),
        );
        let address = json!({"sourceType": "grpc", "address": "10.9.9.9:1"});
        check(address, vec![slice(true, "10.0.0.1")], Some("10.9.9.9:1"));
        check(json!({"sourceType": ""}), vec![slice(true, "10.0.0.1")], None);
    }
}
