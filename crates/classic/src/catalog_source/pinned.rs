//! The image of a catalog by digest, for registry Pods of a source whose image must satisfy a signature policy.

use super::pod::{images, is_dead};
use super::{Source, serving, update};

/// The image of a catalog by digest, as registry Pods run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedCatalog {
    /// The image of the Pod that serves.
    pub(super) serving: String,
    /// The image of the Pod that looks for a newer catalog.
    pub(super) newest: String,
}

impl PinnedCatalog {
    /// The image that the reference of a source leads to now. `earlier` is another one that was accepted before. If a Pod
    /// serves that and the source is polled, it serves on until a Pod of the newest one is ready.
    pub fn new(source: &Source<'_>, newest: String, earlier: Option<String>) -> Self {
        let runs = |image: &str| serving(source).any(|pod| !is_dead(pod) && images(pod).contains(&image));
        let stays = |earlier: &String| update::is_polled(source) && runs(earlier) && !runs(&newest);
        Self {
            serving: earlier.filter(stays).unwrap_or_else(|| newest.clone()),
            newest,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::super::{Images, ensure, refused};
    use super::*;
    use crate::cluster::{Cluster, label, text};
    use crate::names;

    const OLD: &str = "r.example/c@sha256:1";
    const NEW: &str = "r.example/c@sha256:2";

    fn object(interval: Option<&str>) -> Value {
        let mut object = json!({
            "metadata": {"name": "cat", "namespace": "n", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"sourceType": "grpc", "image": "r.example/c:latest"},
        });
        if let Some(interval) = interval {
            object["spec"]["updateStrategy"] = json!({"registryPoll": {"interval": interval}});
        }
        object
    }

    /// What is written and deleted after `time` where a Pod serves the earlier image.
    fn changes(object: &Value, newest: &str, time: &str) -> (Vec<(String, String)>, Vec<String>) {
        let pass = |cluster: &Cluster, newest: &str| {
            let source = Source { object, cluster };
            let images = Images {
                catalog: Some(PinnedCatalog::new(
                    &source,
                    newest.to_owned(),
                    Some(OLD.to_owned()),
                )),
                config_map_server: String::new(),
                opm: String::new(),
                utilities: String::new(),
                run_as_user: None,
            };
            ensure(&source, &images, time.parse().unwrap())
        };
        let is_pod = |found: &&Value| found["kind"] == "Pod";
        let first = pass(&Cluster::default(), OLD).written;
        let mut pod = first.iter().find(is_pod).unwrap().clone();
        pod["metadata"]["name"] = json!("old");
        let cluster: Cluster = [pod].into_iter().collect();
        let ensured = pass(&cluster, newest);
        let pods = ensured.written.iter().filter(is_pod).map(|pod| {
            let looks = label(pod, names::UPDATE_LABEL);
            let image = text(pod, "/spec/containers/0/image");
            (looks.to_owned(), image.to_owned())
        });
        (pods.collect(), ensured.deleted)
    }

    #[test]
    fn a_pod_of_the_earlier_image_serves_until_one_of_the_newest_is_ready() {
        let polled = object(Some("10m"));
        let pod = |looks: &str, image: &str| vec![(looks.to_owned(), image.to_owned())];
        let status = |mut object: Value| {
            object["status"]["registryService"] = json!({
                "serviceName": "cat", "serviceNamespace": "n", "port": "50051", "protocol": "grpc",
            });
            object
        };
        let (polled, other) = (status(polled), status(object(None)));
        // The look is not due yet.
        assert_eq!(changes(&polled, NEW, "1970-01-01T00:05:00Z"), (vec![], vec![]));
        assert_eq!(
            changes(&polled, NEW, "1970-01-01T00:15:00Z"),
            (pod("cat", NEW), vec![])
        );
        // Without polling it moves at once.
        assert_eq!(
            changes(&other, NEW, "1970-01-01T00:05:00Z"),
            (pod("", NEW), vec!["old".to_owned()])
        );
        assert_eq!(changes(&other, OLD, "1970-01-01T00:05:00Z"), (vec![], vec![]));
    }

    #[test]
    fn a_refused_image_leaves_the_registry_as_it_is() {
        let mut object = object(None);
        let told = |object: &Value| {
            let source = Source {
                object,
                cluster: &Cluster::default(),
            };
            let status = refused(&source, "no signature", "READY", Timestamp::UNIX_EPOCH);
            assert_eq!(status["reason"], "RegistryServerError");
            assert_eq!(status["message"], "no signature");
            status["connectionState"]["lastObservedState"].clone()
        };
        assert_eq!(told(&object), Value::Null);
        object["status"]["registryService"] = json!({"serviceName": "cat"});
        assert_eq!(told(&object), "READY");
    }
}
