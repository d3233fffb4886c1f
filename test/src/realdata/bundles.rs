//! Every real bundle renders, or is refused for a true reason.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::Context as _;
use olm_bundle::{
    Bundle, BundleFiles, CertificateProvider, InstallMode, PrepareError, Prepared, Request, prepare,
};
use serde_json::{Value, json};

/// The namespace that bundles are rendered for.
pub(super) const NAMESPACE: &str = "operators";
/// The namespace that operators watch when they watch one that is not their own.
const WATCHED: &str = "watched";

/// Faults of bundles, not of our parser, with the maximum number of bundles for each, and the explanation. Any other or
/// further refusal is a fault of ours.
const TRUE_REASONS: [(&str, usize, &str); 4] = [
    (
        "definition-version",
        13,
        "its definitions are of apiextensions.k8s.io/v1beta1, which no cluster serves any more",
    ),
    (
        "dependencies-unreadable",
        1,
        "its metadata/dependencies.yaml holds no list",
    ),
    (
        "dependency",
        28,
        "it needs other bundles, and nothing here checks whether they are installed",
    ),
    ("manifest-unreadable", 1, "one of its manifests is no YAML"),
];

/// Renders every bundle below `dir/bundles/PACKAGE/VERSION`, in every way that it supports.
///
/// Returns the name of each bundle and `rendered`, or the name of the reason for the refusal. A bundle fails if it
/// causes a panic, is refused for an invalid reason, renders differently the second time, or renders an object twice. A
/// bundle that needs certificates is rendered a second time with those of cert-manager instead of our own.
pub fn run(dir: &Path) -> Vec<(String, Result<String, String>)> {
    let mut outcomes = Vec::new();
    let root = dir.join("bundles");
    for package in directories(&root) {
        for version in directories(&root.join(&package)) {
            let case = format!("bundles/{package}/{version}");
            let path = root.join(&package).join(&version);
            let without = guarded(&path, None);
            let certified =
                matches!(&without, Ok(reason) if reason == "webhooks" || reason == "api-services");
            outcomes.push((
                case.clone(),
                guarded(&path, Some(CertificateProvider::SelfSigned)),
            ));
            if certified {
                let outcome = guarded(&path, Some(CertificateProvider::CertManager));
                outcomes.push((format!("{case} with cert-manager"), outcome));
            }
        }
    }
    let refused = |reason: &str| {
        let named = |outcome: &Result<String, String>| {
            outcome
                .as_ref()
                .is_ok_and(|outcome| outcome.split(", ").any(|one| one == reason))
        };
        outcomes.iter().filter(|(_, outcome)| named(outcome)).count()
    };
    let beyond: Vec<_> = TRUE_REASONS
        .iter()
        .map(|(reason, most, why)| (*reason, *most, *why, refused(reason)))
        .filter(|(_, most, _, count)| count > most)
        .collect();
    outcomes.extend(beyond.into_iter().map(|(reason, most, why, count)| {
        let case = format!("bundles: refused as {reason}");
        (case, Err(format!("{count} are, at most {most} may be ({why})")))
    }));
    outcomes
}

pub(super) fn directories(path: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn guarded(path: &Path, certificates: Option<CertificateProvider>) -> Result<String, String> {
    catch_unwind(AssertUnwindSafe(|| examine(path, certificates)))
        .unwrap_or_else(|_| Err("panicked".to_owned()))
}

fn examine(path: &Path, certificates: Option<CertificateProvider>) -> Result<String, String> {
    let files = read(path).map_err(|error| format!("{error:#}"))?;
    let modes = match olm_bundle::parse(&files, &BTreeMap::new()) {
        Ok(bundle) => supported_modes(&bundle),
        Err(_) => vec![InstallMode::AllNamespaces],
    };
    let mut reasons = BTreeSet::new();
    for mode in modes {
        let (first, second) = (
            attempt(&files, mode, certificates),
            attempt(&files, mode, certificates),
        );
        match (first, second) {
            (Ok(first), Ok(second)) => {
                if first.rendered != second.rendered {
                    return Err(format!("{mode}: renders differently the second time"));
                }
                if let Some(twice) = repeated(first.rendered.objects()) {
                    return Err(format!("{mode}: renders {twice} twice"));
                }
                reasons.insert("rendered");
            }
            (Err(refusal), Err(_)) => {
                let uncertified =
                    certificates.is_none() && matches!(refusal.kind(), "webhooks" | "api-services");
                if !uncertified && !TRUE_REASONS.iter().any(|(reason, ..)| *reason == refusal.kind()) {
                    return Err(format!("{mode}: refused as {}: {refusal}", refusal.kind()));
                }
                reasons.insert(refusal.kind());
            }
            _ => return Err(format!("{mode}: refused once, rendered once")),
        }
    }
    Ok(reasons.into_iter().collect::<Vec<_>>().join(", "))
}

/// The modes an installation can use; all namespaces when there are none, so that the refusal shows.
pub(super) fn supported_modes(bundle: &Bundle) -> Vec<InstallMode> {
    let supported = bundle.csv().install_modes();
    let usable = [
        InstallMode::AllNamespaces,
        InstallMode::OwnNamespace,
        InstallMode::SingleNamespace,
    ];
    let modes: Vec<InstallMode> = usable
        .into_iter()
        .filter(|mode| supported.contains(*mode))
        .collect();
    if modes.is_empty() {
        vec![InstallMode::AllNamespaces]
    } else {
        modes
    }
}

pub(super) fn attempt(
    files: &BundleFiles,
    mode: InstallMode,
    certificates: Option<CertificateProvider>,
) -> Result<Prepared, PrepareError> {
    let config = match mode {
        InstallMode::OwnNamespace => Some(json!({"watchNamespace": NAMESPACE})),
        InstallMode::SingleNamespace => Some(json!({"watchNamespace": WATCHED})),
        InstallMode::AllNamespaces | InstallMode::MultiNamespace => None,
    };
    let request = Request {
        config: config.as_ref(),
        certificates,
        ..Request::new(NAMESPACE)
    };
    prepare(files, &BTreeMap::new(), &request)
}

fn repeated(objects: &[Value]) -> Option<String> {
    let field = |object: &Value, pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let mut seen = BTreeSet::new();
    objects
        .iter()
        .map(|object| {
            ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"].map(|p| field(object, p))
        })
        .find_map(|key| {
            if seen.insert(key.clone()) {
                None
            } else {
                Some(key.join(" "))
            }
        })
}

/// The files of the bundle in this folder.
pub(super) fn read(bundle: &Path) -> anyhow::Result<BundleFiles> {
    let mut files = BundleFiles::new();
    let mut open = vec![bundle.to_path_buf()];
    while let Some(directory) = open.pop() {
        let entries =
            std::fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(bundle)?.to_string_lossy().into_owned();
            files.insert(name, content);
        }
    }
    Ok(files)
}
