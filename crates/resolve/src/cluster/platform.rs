//! Requirements of a bundle on the cluster itself: version, APIs, architectures.

use std::collections::{HashMap, HashSet};

use olm_constraint::{Gvk, api_text};
use olm_version::blang::parse_tolerant;
use olm_version::quoted;
use semver::Version;
use serde::Deserialize;

use crate::blocker::Blocker;

/// The prefix of the labels with the processor architectures of a bundle, such as `amd64`. Their value is `supported`.
const ARCHITECTURE_LABEL: &str = "operatorframework.io/arch.";
/// Descriptive metadata without these words has no requirements.
const WORDS: [&str; 3] = ["minKubeVersion", "nativeAPIs", ARCHITECTURE_LABEL];

/// The requirements of a bundle on the cluster itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// The oldest version of Kubernetes that it runs on, as written.
    pub kubernetes: Option<String>,
    /// APIs that the cluster must serve natively.
    pub apis: Vec<Gvk>,
    /// The supported architectures; empty if the bundle does not name any.
    pub architectures: Vec<String>,
}

/// The known state of the cluster itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterPlatform<'a> {
    /// The version of Kubernetes.
    pub kubernetes: Option<&'a Version>,
    /// The architectures of the nodes; empty if unknown.
    pub architectures: &'a [String],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Metadata {
    min_kube_version: Option<String>,
    #[serde(rename = "nativeAPIs")]
    native_apis: Option<Vec<NativeApi>>,
    labels: Option<HashMap<String, Option<String>>>,
}

#[derive(Deserialize)]
struct NativeApi {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
}

impl Platform {
    /// The requirements in `minKubeVersion`, `nativeAPIs` and the labels of a `ClusterServiceVersion`; `None` if there
    /// are none.
    pub fn new<'a>(
        kubernetes: Option<&str>,
        apis: Vec<Gvk>,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Option<Self> {
        let mut architectures: Vec<String> = labels
            .into_iter()
            .filter(|(_, value)| *value == "supported")
            .filter_map(|(key, _)| key.strip_prefix(ARCHITECTURE_LABEL).map(str::to_owned))
            .collect();
        architectures.sort_unstable();
        let platform = Self {
            kubernetes: kubernetes.filter(|text| !text.is_empty()).map(str::to_owned),
            apis,
            architectures,
        };
        (platform != Self::default()).then_some(platform)
    }

    /// The requirements in an `olm.csv.metadata` property. An invalid one has none, because it only describes.
    pub(crate) fn of_metadata(text: &str) -> Option<Self> {
        if !WORDS.iter().any(|word| text.contains(word)) {
            return None;
        }
        let metadata: Metadata = serde_json::from_str(text).ok()?;
        let apis = metadata
            .native_apis
            .unwrap_or_default()
            .into_iter()
            .map(|api| Gvk {
                group: api.group,
                version: api.version,
                kind: api.kind,
            });
        let labels = metadata.labels.unwrap_or_default();
        let labels = labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref().unwrap_or_default()));
        Self::new(metadata.min_kube_version.as_deref(), apis.collect(), labels)
    }

    /// Whether the cluster is too old for the bundle, which forbids it.
    pub(crate) fn is_forbidden(&self, cluster: ClusterPlatform<'_>, served: &HashSet<Gvk>) -> bool {
        self.blockers(cluster, served).iter().any(Blocker::forbids)
    }

    /// The requirements that the cluster does not meet. Unknown facts count as met.
    pub fn blockers(&self, cluster: ClusterPlatform<'_>, served: &HashSet<Gvk>) -> Vec<Blocker> {
        let mut found = Vec::new();
        if let (Some(needs), Some(has)) = (&self.kubernetes, cluster.kubernetes) {
            match parse_tolerant(needs) {
                Err(_) => found.push(Blocker::UnreadableKubernetes(needs.clone())),
                Ok(least) => {
                    // Distributions append their own suffixes to the version.
                    let numbers = |version: &Version| (version.major, version.minor, version.patch);
                    if numbers(has) < numbers(&least) {
                        found.push(Blocker::Kubernetes {
                            needs: needs.clone(),
                            has: has.to_string(),
                        });
                    }
                }
            }
        }
        let runs = |architecture: &String| cluster.architectures.contains(architecture);
        let is_known = !self.architectures.is_empty() && !cluster.architectures.is_empty();
        if is_known && !self.architectures.iter().any(runs) {
            found.push(Blocker::Architecture {
                runs_on: self.architectures.join(", "),
                nodes: cluster.architectures.join(", "),
            });
        }
        let missing = self.apis.iter().filter(|api| !served.contains(*api));
        found.extend(missing.map(|api| Blocker::NativeApi(quoted(&api_text(api)))));
        found
    }
}
