//! The selection of real bundles that can be installed on a bare cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use kube::core::GroupVersionKind;
use kube::discovery::Discovery;
use olm_bundle::{BundleFiles, InstallMode, Prepared, Request, prepare};
use olm_preflight::crd_upgrade::{Policy, check_all, definition_name, weigh};
use olm_version::{BuildMetadata, Version, VersionRelease};
use serde_json::{Value, json};

use super::watched;
use crate::realdata::bundles::{directories, read};
use crate::world::{World, kubectl};

/// A bundle that renders.
pub(super) struct Bundle {
    pub(super) name: String,
    pub(super) version: Version,
    pub(super) files: BundleFiles,
    pub(super) objects: Vec<Value>,
    mode: InstallMode,
    minimum: Option<String>,
}

/// A package with the bundles to install one after the other.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) bundles: Vec<Bundle>,
}

/// The selected packages, and the number of bundles that are left out by reason.
pub(super) struct Chosen {
    pub(super) packages: Vec<Package>,
    pub(super) left_out: BTreeMap<String, usize>,
}

impl Package {
    pub(super) fn namespace(&self) -> String {
        namespace(&self.name)
    }

    pub(super) fn watched_namespace(&self) -> Option<String> {
        let mode = self.bundles.first()?.mode;
        watched(mode, &self.namespace()).map(str::to_owned)
    }

    /// The package in a catalog: one channel in which each version replaces the one before.
    pub(super) fn blobs(&self, images: &[String]) -> Vec<Value> {
        let mut entries = Vec::new();
        let mut before: Option<&str> = None;
        for bundle in &self.bundles {
            entries.push(match before {
                Some(replaced) => json!({ "name": bundle.name, "replaces": replaced }),
                None => json!({ "name": bundle.name }),
            });
            before = Some(&bundle.name);
        }
        let mut blobs = vec![
            json!({ "schema": "olm.package", "name": self.name, "defaultChannel": "all" }),
            json!({ "schema": "olm.channel", "package": self.name, "name": "all", "entries": entries }),
        ];
        blobs.extend(self.bundles.iter().zip(images).map(|(bundle, image)| {
            json!({
                "schema": "olm.bundle",
                "package": self.name,
                "name": bundle.name,
                "image": image,
                "properties": [{
                    "type": "olm.package",
                    "value": { "packageName": self.name, "version": bundle.version.to_string() },
                }],
            })
        }));
        blobs
    }
}

fn namespace(package: &str) -> String {
    format!("real-{package}")
}

/// Group, kind, namespace and name.
pub(in crate::realdata) fn key(object: &Value) -> [String; 4] {
    let text = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let version = text("/apiVersion");
    let group = version
        .split_once('/')
        .map(|(group, _)| group.to_owned())
        .unwrap_or_default();
    [
        group,
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    ]
}

/// The bundles in a folder, and the reasons why others are left out.
pub(super) struct Candidates {
    packages: BTreeMap<String, Vec<Bundle>>,
    left_out: BTreeMap<String, usize>,
}

/// Renders every bundle below `dir/bundles`, or only those of the given packages; bundles without further requirements
/// are candidates.
pub(super) fn candidates(dir: &Path, packages: &[String]) -> Result<Candidates> {
    let mut found = Candidates {
        packages: BTreeMap::new(),
        left_out: BTreeMap::new(),
    };
    let root = dir.join("bundles");
    for package in directories(&root)
        .into_iter()
        .filter(|package| packages.is_empty() || packages.contains(package))
    {
        for version in directories(&root.join(&package)) {
            let files = read(&root.join(&package).join(&version))?;
            match candidate(files) {
                Ok((package, bundle)) => found.packages.entry(package).or_default().push(bundle),
                Err(reason) => *found.left_out.entry(reason).or_default() += 1,
            }
        }
    }
    for bundles in found.packages.values_mut() {
        bundles.sort_by(|left, right| left.version.cmp_precedence(&right.version));
    }
    Ok(found)
}

fn candidate(files: BundleFiles) -> Result<(String, Bundle), String> {
    let bundle =
        olm_bundle::parse(&files, &BTreeMap::new()).map_err(|error| format!("refused: {}", error.kind()))?;
    let package = bundle.package().to_owned();
    let version = VersionRelease::parse(&bundle.csv().spec.version, BuildMetadata::Release)
        .map_err(|_| "its version cannot be read".to_owned())?
        .folded();
    let mode = [
        InstallMode::AllNamespaces,
        InstallMode::OwnNamespace,
        InstallMode::SingleNamespace,
    ]
    .into_iter()
    .find(|mode| bundle.csv().install_modes().contains(*mode))
    .unwrap_or(InstallMode::AllNamespaces);
    let namespace = namespace(&package);
    let prepared = render(&files, mode, &namespace, None)?;
    Ok((
        package,
        Bundle {
            name: bundle.name().to_owned(),
            version,
            objects: prepared.rendered.into_objects(),
            mode,
            minimum: minimum_version(&files),
            files,
        },
    ))
}

/// Renders the upgrades as they are installed: with the role names of the first version, so that grants go on holding.
fn keep_role_names(bundles: &mut [Bundle], namespace: &str) {
    let Some((first, upgrades)) = bundles.split_first_mut() else {
        return;
    };
    for bundle in upgrades {
        if let Ok(prepared) = render(&bundle.files, bundle.mode, namespace, Some(&first.name)) {
            bundle.objects = prepared.rendered.into_objects();
        }
    }
}

fn render(
    files: &BundleFiles,
    mode: InstallMode,
    namespace: &str,
    roles_named_after: Option<&str>,
) -> Result<Prepared, String> {
    let config = watched(mode, namespace).map(|watched| json!({ "watchNamespace": watched }));
    let request = Request {
        config: config.as_ref(),
        roles_named_after,
        ..Request::new(namespace)
    };
    prepare(files, &BTreeMap::new(), &request).map_err(|refusal| format!("refused: {}", refusal.kind()))
}

/// The minimum version of Kubernetes that the bundle declares.
fn minimum_version(files: &BundleFiles) -> Option<String> {
    let documents = files
        .iter()
        .filter(|(path, _)| path.starts_with("manifests/"))
        .filter_map(|(_, content)| olm_yaml::to_json(content).ok());
    documents
        .filter(|document| document["kind"] == "ClusterServiceVersion")
        .find_map(|document| Some(document.pointer("/spec/minKubeVersion")?.as_str()?.to_owned()))
}

/// Chooses packages, those with several versions first, until there are `most`; at most the newest `versions` of each.
pub(super) async fn choose(
    world: &World,
    candidates: Candidates,
    most: usize,
    versions: usize,
) -> Result<Chosen> {
    let server = world.client.apiserver_version().await?.git_version;
    let server = Version::parse(server.trim_start_matches('v'))?;
    let discovery = Discovery::new(world.client.clone()).run().await?;
    let mut chosen = Chosen {
        packages: Vec::new(),
        left_out: candidates.left_out,
    };
    let mut taken: BTreeSet<[String; 4]> = BTreeSet::new();
    let mut packages: Vec<(String, Vec<Bundle>)> = candidates.packages.into_iter().collect();
    packages.sort_by_key(|(_, bundles)| bundles.len() < 2);
    for (name, bundles) in packages {
        if chosen.packages.len() == most {
            *chosen.left_out.entry("there are enough".to_owned()).or_default() += bundles.len();
            continue;
        }
        let scratch = namespace(&name);
        world
            .apply(&[json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": scratch } })])?;
        let mut fit: Vec<Bundle> = Vec::new();
        for bundle in bundles {
            let mode_differs = fit.first().is_some_and(|first| first.mode != bundle.mode);
            let reason = if mode_differs {
                Some("needs another configuration than the version before".to_owned())
            } else if fit
                .last()
                .is_some_and(|last| last.version.cmp_precedence(&bundle.version).is_eq())
            {
                Some("has the version of another bundle".to_owned())
            } else if fit.last().is_some_and(|last| drops_stored_version(last, &bundle)) {
                Some("drops a version of a CRD that the one before stores".to_owned())
            } else {
                unfit(world, &discovery, &server, &bundle, &taken)?
            };
            match reason {
                None => fit.push(bundle),
                Some(reason) => *chosen.left_out.entry(reason).or_default() += 1,
            }
        }
        let older = fit.len().saturating_sub(versions);
        if older > 0 {
            *chosen
                .left_out
                .entry("there are enough newer ones".to_owned())
                .or_default() += older;
        }
        let mut bundles: Vec<Bundle> = fit.into_iter().skip(older).collect();
        keep_role_names(&mut bundles, &scratch);
        if !bundles.is_empty() {
            taken.extend(bundles.iter().flat_map(|bundle| bundle.objects.iter().map(key)));
            chosen.packages.push(Package { name, bundles });
        }
    }
    Ok(chosen)
}

/// Whether the check of CRD upgrades refuses the change from one bundle to the other.
pub(super) fn is_refused(before: &Bundle, bundle: &Bundle) -> bool {
    let policy = Policy::default();
    let found = check_all(&bundle.objects, &policy, |name| {
        let named = |object: &&Value| definition_name(object) == Some(name);
        Ok(before.objects.iter().find(named))
    });
    !weigh(found, &policy).0.is_empty()
}

/// Whether a custom resource definition loses its storage version, which every API server refuses.
fn drops_stored_version(before: &Bundle, bundle: &Bundle) -> bool {
    let versions = |definition: &Value| -> Vec<Value> {
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        versions.cloned().unwrap_or_default()
    };
    let definitions = before
        .objects
        .iter()
        .filter(|object| object["kind"] == "CustomResourceDefinition");
    definitions
        .filter_map(|old| Some((old, bundle.objects.iter().find(|new| key(new) == key(old))?)))
        .any(|(old, new)| {
            let offered = versions(new);
            versions(old)
                .iter()
                .filter(|version| version["storage"] == true)
                .any(|stored| !offered.iter().any(|version| version["name"] == stored["name"]))
        })
}

/// Whether a workload cannot run beside its successor on the same node.
fn takes_node_ports(object: &Value) -> bool {
    let Some(pod) = object.pointer("/spec/template/spec") else {
        return false;
    };
    let containers = pod.get("containers").and_then(Value::as_array);
    let ports = containers
        .into_iter()
        .flatten()
        .filter_map(|container| container.get("ports")?.as_array());
    let mut ports = ports.flatten();
    if pod.get("hostNetwork") == Some(&Value::Bool(true)) {
        ports.next().is_some()
    } else {
        ports.any(|port| port.get("hostPort").is_some())
    }
}

/// The reason why a bundle that renders cannot be installed on this cluster, if any.
fn unfit(
    world: &World,
    discovery: &Discovery,
    server: &Version,
    bundle: &Bundle,
    taken: &BTreeSet<[String; 4]>,
) -> Result<Option<String>> {
    if let Some(minimum) = &bundle.minimum
        && Version::parse(minimum).map_or(true, |minimum| minimum.cmp_precedence(server).is_gt())
    {
        return Ok(Some("wants a newer Kubernetes".to_owned()));
    }
    if bundle.objects.is_empty() {
        return Ok(Some("has no objects".to_owned()));
    }
    if bundle
        .objects
        .iter()
        .any(|object| object.pointer("/spec/conversion/strategy") == Some(&json!("Webhook")))
    {
        return Ok(Some("converts custom resources by a webhook".to_owned()));
    }
    if bundle.objects.iter().any(takes_node_ports) {
        return Ok(Some("takes ports of the node, of which there is one".to_owned()));
    }
    if bundle.objects.iter().any(|object| taken.contains(&key(object))) {
        return Ok(Some("shares an object with another package".to_owned()));
    }
    let own: BTreeSet<(&str, &str)> = bundle
        .objects
        .iter()
        .filter(|object| object["kind"] == "CustomResourceDefinition")
        .filter_map(|object| {
            let group = object.pointer("/spec/group")?.as_str()?;
            Some((group, object.pointer("/spec/names/kind")?.as_str()?))
        })
        .collect();
    let mut known = String::new();
    for object in &bundle.objects {
        let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let (version, kind) = (version.unwrap_or_default(), kind.unwrap_or_default());
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        if discovery
            .resolve_gvk(&GroupVersionKind::gvk(group, version, kind))
            .is_some()
        {
            known.push_str(&format!("{object}\n"));
        } else if !own.contains(&(group, kind)) {
            return Ok(Some("has objects of kinds that are not served".to_owned()));
        }
    }
    let arguments = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
    match kubectl(&world.cluster, &arguments, Some(&known)) {
        Ok(_) => Ok(None),
        Err(error) => {
            tracing::info!("{} is refused by the API server: {error:#}", bundle.name);
            Ok(Some("is refused by the API server itself".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(version: &str, objects: Vec<Value>) -> Bundle {
        Bundle {
            name: format!("p.v{version}"),
            version: Version::parse(version).unwrap(),
            files: BundleFiles::new(),
            objects,
            mode: InstallMode::OwnNamespace,
            minimum: None,
        }
    }

    #[test]
    fn a_definition_that_loses_its_stored_version_is_noticed() {
        let definition = |versions: &[(&str, bool)]| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(name, storage)| json!({ "name": name, "storage": storage }))
                .collect();
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": { "name": "things.example.org" }, "spec": { "versions": versions },
            })
        };
        let old = bundle("1.0.0", vec![definition(&[("v1", true), ("v0", false)])]);
        for (versions, expected) in [
            (&[("v1", true)][..], false),
            (&[("v1", false), ("v2", true)], false),
            (&[("v0", false), ("v2", true)], true),
        ] {
            let new = bundle("1.1.0", vec![definition(versions)]);
            assert_eq!(drops_stored_version(&old, &new), expected, "{versions:?}");
        }
        assert!(!drops_stored_version(&old, &bundle("1.1.0", Vec::new())));
    }

    #[test]
    fn a_workload_that_takes_ports_of_its_node_is_noticed() {
        let workload = |host_network: bool, port: Value| {
            let containers = json!([{ "name": "c", "ports": [port] }]);
            json!({ "spec": { "template": { "spec": { "hostNetwork": host_network, "containers": containers } } } })
        };
        let port = json!({ "containerPort": 80 });
        assert!(takes_node_ports(&workload(true, port.clone())));
        assert!(!takes_node_ports(&workload(false, port)));
        assert!(takes_node_ports(&workload(
            false,
            json!({ "containerPort": 80, "hostPort": 80 })
        )));
        assert!(!takes_node_ports(&json!({ "kind": "ConfigMap" })));
    }

    #[test]
    fn each_version_of_a_package_replaces_the_one_before() {
        let package = Package {
            name: "p".to_owned(),
            bundles: vec![bundle("1.0.0", Vec::new()), bundle("1.1.0", Vec::new())],
        };
        let blobs = package.blobs(&["i:1".to_owned(), "i:2".to_owned()]);
        assert_eq!(blobs.len(), 4);
        assert_eq!(
            blobs.iter().find_map(|blob| blob.get("entries")),
            Some(&json!([{ "name": "p.v1.0.0" }, { "name": "p.v1.1.0", "replaces": "p.v1.0.0" }]))
        );
        assert_eq!(package.watched_namespace().as_deref(), Some("real-p"));
    }
}
