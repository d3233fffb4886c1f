//! Bundles that OLM classic can install on a bare cluster, and their content.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_classic::cluster::{items, text};
use olm_classic::install_plan::{BundleContent, is_supported, read_bundle};
use olm_version::{BuildMetadata, Version, VersionRelease};
use serde_json::{Value, json};

use crate::realdata::bundles::{directories, read};

/// Install mode of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::realdata) enum Mode {
    OwnNamespace,
    SingleNamespace,
    MultiNamespace,
    AllNamespaces,
}

impl Mode {
    pub(in crate::realdata) const ALL: [Self; 4] = [
        Self::OwnNamespace,
        Self::SingleNamespace,
        Self::MultiNamespace,
        Self::AllNamespaces,
    ];
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// A bundle.
pub(in crate::realdata) struct Bundle {
    pub(in crate::realdata) name: String,
    pub(in crate::realdata) content: BundleContent,
    pub(in crate::realdata) csv: Value,
    pub(in crate::realdata) modes: BTreeSet<Mode>,
    pub(in crate::realdata) version: Version,
    /// The folder with its files.
    pub(in crate::realdata) folder: PathBuf,
}

/// A package with its bundles, oldest first.
pub(in crate::realdata) struct Package {
    pub(in crate::realdata) name: String,
    pub(in crate::realdata) versions: Vec<Bundle>,
    /// The objects at cluster scope, as `KIND/NAME`.
    pub(in crate::realdata) names: BTreeSet<String>,
    /// Whether it has webhooks that refuse objects of other packages while no Pod answers.
    pub(in crate::realdata) holds_up_others: bool,
}

/// Content of a folder.
pub(in crate::realdata) struct Found {
    pub(in crate::realdata) packages: Vec<Package>,
    /// The number of bundles that are left out, by reason.
    pub(in crate::realdata) left_out: BTreeMap<String, usize>,
}

/// Reads every bundle below `dir/bundles`, or of these packages only when some are named.
pub(in crate::realdata) fn packages(dir: &Path, wanted: &[String]) -> Result<Found> {
    let mut found = Found {
        packages: Vec::new(),
        left_out: BTreeMap::new(),
    };
    let root = dir.join("bundles");
    for name in directories(&root)
        .into_iter()
        .filter(|name| wanted.is_empty() || wanted.contains(name))
    {
        let mut versions = Vec::new();
        for version in directories(&root.join(&name)) {
            let folder = root.join(&name).join(&version);
            let files = read(&folder)?;
            let content = read_bundle(files.iter().map(|(path, file)| (path.as_str(), file.as_slice())));
            let outcome = content
                .map_err(|_| "cannot be read".to_owned())
                .and_then(|content| bundle(content, folder));
            let is_other = |bundle: &Bundle| versions.iter().all(|known: &Bundle| known.name != bundle.name);
            let outcome = outcome.and_then(|bundle| {
                if is_other(&bundle) {
                    Ok(bundle)
                } else {
                    Err("has the name of another bundle".to_owned())
                }
            });
            match outcome {
                Ok(bundle) => versions.push(bundle),
                Err(reason) => *found.left_out.entry(reason).or_default() += 1,
            }
        }
        versions.sort_by(|left, right| left.version.cmp_precedence(&right.version));
        if !versions.is_empty() {
            found.packages.push(Package {
                names: versions.iter().flat_map(names).collect(),
                holds_up_others: versions.iter().any(|version| holds_up_others(&version.csv)),
                name,
                versions,
            });
        }
    }
    Ok(found)
}

fn bundle(content: BundleContent, folder: PathBuf) -> Result<Bundle, String> {
    let csv: Value = serde_json::from_str(&content.csv).map_err(|_| "cannot be read".to_owned())?;
    let version = VersionRelease::parse(text(&csv, "/spec/version"), BuildMetadata::Release)
        .map_err(|_| "its version cannot be read".to_owned())?
        .folded();
    for object in objects(&content) {
        let (api_version, kind) = (text(&object, "/apiVersion"), text(&object, "/kind"));
        if let Some(reason) = refusal(api_version, kind) {
            return Err(reason);
        }
        // The API server refuses the change to it, as it does in an upgrade by hand.
        let authority = text(&object, "/spec/conversion/webhook/clientConfig/caBundle");
        let authority = STANDARD.decode(authority).unwrap_or_default();
        if !authority.is_empty() && !String::from_utf8_lossy(&authority).contains("CERTIFICATE") {
            return Err("holds a conversion with a caBundle that is no certificate".to_owned());
        }
    }
    let modes: BTreeSet<Mode> = Mode::ALL
        .into_iter()
        .filter(|mode| {
            items(&csv, "/spec/installModes")
                .any(|known| text(known, "/type") == mode.to_string() && known["supported"] == true)
        })
        .collect();
    if modes.is_empty() {
        return Err("supports no install mode".to_owned());
    }
    Ok(Bundle {
        name: text(&csv, "/metadata/name").to_owned(),
        content,
        csv,
        modes,
        version,
        folder,
    })
}

/// Reason why an object can be in no InstallPlan of this cluster.
fn refusal(api_version: &str, kind: &str) -> Option<String> {
    const KNOWN: &[&str] = &[
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterServiceVersion",
        "ConfigMap",
        "CustomResourceDefinition",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
    ];
    if api_version.ends_with("/v1beta1") {
        return Some(format!(
            "holds a {kind} of {api_version}, which no cluster serves any more"
        ));
    }
    (!KNOWN.contains(&kind) && !is_supported(kind))
        .then(|| format!("holds a {kind}, which no InstallPlan brings"))
}

/// The objects of a bundle.
fn objects(content: &BundleContent) -> impl Iterator<Item = Value> {
    content
        .objects
        .iter()
        .filter_map(|text| serde_json::from_str(text).ok())
}

fn names(bundle: &Bundle) -> BTreeSet<String> {
    const NAMESPACED: &[&str] = &[
        "ClusterServiceVersion",
        "ConfigMap",
        "PrometheusRule",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    ];
    let brought = objects(&bundle.content)
        .filter(|object| !NAMESPACED.contains(&text(object, "/kind")))
        .map(|object| format!("{}/{}", text(&object, "/kind"), text(&object, "/metadata/name")));
    let apis = apis(&bundle.csv).map(|api| format!("CustomResourceDefinition/{}", text(api, "/name")));
    let natives = items(&bundle.csv, "/spec/nativeAPIs")
        .map(|api| format!("{}/{}", text(api, "/group"), text(api, "/kind")));
    brought.chain(apis).chain(natives).collect()
}

/// The kinds that a ClusterServiceVersion owns and requires.
pub(in crate::realdata) fn apis(csv: &Value) -> impl Iterator<Item = &Value> {
    let owned = items(csv, "/spec/customresourcedefinitions/owned");
    owned.chain(items(csv, "/spec/customresourcedefinitions/required"))
}

/// Whether a webhook is about objects that no operator brings with it.
fn holds_up_others(csv: &Value) -> bool {
    let is_of_kubernetes = |group: &Value| {
        let group = group.as_str().unwrap_or_default();
        !group.contains('.') || group.ends_with(".k8s.io")
    };
    items(csv, "/spec/webhookdefinitions")
        .filter(|webhook| text(webhook, "/failurePolicy") != "Ignore")
        .flat_map(|webhook| items(webhook, "/rules"))
        .any(|rule| items(rule, "/apiGroups").any(is_of_kubernetes))
}

/// A definition of a kind, as others bring it.
pub(in crate::realdata) fn definition(
    group: &str,
    plural: &str,
    kind: &str,
    version: &str,
    scope: &str,
) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope,
            "names": {"plural": plural, "kind": kind, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [
                {"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    })
}
