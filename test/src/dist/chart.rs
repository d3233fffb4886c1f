//! The Helm chart: the files in `charts/olm`, with the definitions and the manifests that kustomize renders.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::archive::{self, Entry};
use super::manifests::{folders, render, select};

/// The folder of the chart in the repository.
const SOURCE: &str = "charts/olm";
/// The files of the chart in the repository.
const FILES: [&str; 8] = [
    "Chart.yaml",
    "README.md",
    ".helmignore",
    "values.yaml",
    "values.schema.json",
    "templates/NOTES.txt",
    "templates/_deployment.tpl",
    "templates/objects.yaml",
];
/// The kind of the objects in the chart's folder `crds`.
const DEFINITION: &str = "CustomResourceDefinition";
/// Helm makes the namespace of a release.
const NAMESPACE: &str = "Namespace";

/// Writes the chart as `olm-VERSION.tgz` and returns the name of the file.
///
/// # Errors
/// When a file cannot be read or written, or the manifests cannot be rendered.
pub(super) fn write(root: &Path, out: &Path, kubectl: &Path) -> Result<String> {
    let mut entries = Vec::new();
    for file in FILES {
        let path = root.join(SOURCE).join(file);
        let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        entries.push(entry(file, content));
    }
    entries.push(entry("LICENSE", std::fs::read(root.join("LICENSE"))?));
    for (name, folder) in folders(root)? {
        let text = render(kubectl, &root.join(folder))?;
        // The overlays have those of the base.
        if name == "base" {
            let definitions = select(&text, |kind| kind == DEFINITION);
            entries.push(entry(
                "crds/olm.operatorframework.io.yaml",
                definitions.into_bytes(),
            ));
        }
        let text = select(&text, |kind| ![DEFINITION, NAMESPACE].contains(&kind));
        entries.push(entry(&format!("manifests/{name}.yaml"), text.into_bytes()));
    }
    let name = format!("olm-{}.tgz", env!("CARGO_PKG_VERSION"));
    archive::write(&out.join(&name), &entries)?;
    Ok(name)
}

fn entry(path: &str, content: Vec<u8>) -> Entry {
    (format!("olm/{path}"), 0o644, content)
}
