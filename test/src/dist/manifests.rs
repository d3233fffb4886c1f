//! The shipped manifests as kustomize renders them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::archive;

/// The separator of objects.
const SEPARATOR: &str = "\n---\n";

/// OLM classic: file and folder, in the order in which they are applied. Its namespaces have fixed names, so no chart
/// has it.
pub const CLASSIC: [(&str, &str); 2] = [
    ("olm-classic-crds.yaml", "manifests/classic/crds"),
    ("olm-classic.yaml", "manifests/classic"),
];

/// The manifests that can be installed: the base first, then the overlays. Each has its folder below `manifests`.
pub fn folders(root: &Path) -> Result<Vec<(String, String)>> {
    let mut found = vec![("base".to_owned(), "manifests/base".to_owned())];
    let overlays = root.join("manifests/overlays");
    let entries =
        std::fs::read_dir(&overlays).with_context(|| format!("cannot read {}", overlays.display()))?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<String>>>()?;
    names.sort();
    found.extend(names.into_iter().map(|name| {
        let folder = format!("manifests/overlays/{name}");
        (name, folder)
    }));
    Ok(found)
}

/// The output of `kubectl kustomize` for a folder; `kubectl` is the program.
pub(super) fn render(kubectl: &Path, folder: &Path) -> Result<String> {
    let output = Command::new(kubectl)
        .arg("kustomize")
        .arg(folder)
        .output()
        .with_context(|| {
            format!(
                "cannot run {}; install kubectl, or name it with --kubectl",
                kubectl.display()
            )
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("kubectl kustomize {}: {}", folder.display(), said.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// All files below `manifests`, by their path from the root, for users who follow the how-to pages without a checkout.
pub(super) fn all(root: &Path) -> Result<Vec<archive::Entry>> {
    let mut folders = vec![PathBuf::from("manifests")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root.join(&folder))
            .with_context(|| format!("cannot read {}", root.join(&folder).display()))?;
        for entry in entries {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                found.push((path.display().to_string(), 0o644, std::fs::read(entry.path())?));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The objects whose kind `keep` accepts.
pub(super) fn select(text: &str, keep: impl Fn(&str) -> bool) -> String {
    let kind = |object: &str| -> String {
        let found = object.lines().find_map(|line| line.strip_prefix("kind: "));
        found.unwrap_or_default().to_owned()
    };
    let objects = text.trim_end().split(SEPARATOR);
    let kept: Vec<&str> = objects.filter(|object| keep(&kind(object))).collect();
    kept.join(SEPARATOR) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_selected_by_their_kind() {
        let text = "kind: A\nspec:\n  kind: B\n---\nkind: B\n---\nkind: C\n";
        assert_eq!(
            select(text, |kind| kind != "B"),
            "kind: A\nspec:\n  kind: B\n---\nkind: C\n"
        );
        assert_eq!(select(text, |kind| kind == "C"), "kind: C\n");
        assert_eq!(select(text, |_| true), text);
    }
}
