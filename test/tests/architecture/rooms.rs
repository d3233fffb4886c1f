//! The number of sources in a folder is limited.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::root;

/// The maximum number of sources in one folder. Move others to a subfolder.
const MOST: usize = 15;

/// The number of Rust files in each folder, without its subfolders.
fn counted<'a>(files: impl Iterator<Item = &'a str>) -> BTreeMap<PathBuf, usize> {
    let mut found = BTreeMap::new();
    for file in files.map(Path::new) {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let folder = file.parent().unwrap_or(Path::new(""));
            *found.entry(folder.to_path_buf()).or_default() += 1;
        }
    }
    found
}

#[test]
fn no_folder_holds_more_than_15_sources() {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    let files = String::from_utf8(listed.stdout).unwrap();
    let mut found = counted(files.lines().filter(|file| root().join(file).exists()));
    assert!(found.len() > 50, "git lists sources in {} folders", found.len());
    found.retain(|_, count| *count > MOST);
    assert!(
        found.is_empty(),
        "these hold more than {MOST} sources: {found:#?}"
    );
}

#[test]
fn sources_are_counted_by_folder() {
    let files = [
        "a/b/one.rs",
        "a/b/two.rs",
        "a/b/c/three.rs",
        "a/README.md",
        "a/four.rs",
    ];
    let expected = [("a", 1), ("a/b", 2), ("a/b/c", 1)].map(|(folder, count)| (folder.into(), count));
    assert_eq!(counted(files.into_iter()), expected.into());
}
