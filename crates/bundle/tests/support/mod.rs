//! The bundles below `tests/fixtures`, as maps of files.

use std::path::Path;

use olm_bundle::BundleFiles;

/// The files of a bundle.
pub(crate) fn fixture(name: &str) -> BundleFiles {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    let mut files = BundleFiles::new();
    for directory in ["manifests", "metadata"] {
        for entry in std::fs::read_dir(root.join(directory)).expect("a fixture has both directories") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            files.insert(
                format!("{directory}/{name}"),
                std::fs::read(&path).expect("a file"),
            );
        }
    }
    files
}

/// The files with `from` replaced by `to` in one of them, which must contain it.
pub(crate) fn with(mut files: BundleFiles, path: &str, from: &str, to: &str) -> BundleFiles {
    let text = String::from_utf8(files[path].clone()).expect("text");
    assert!(text.contains(from), "{path} does not contain {from}");
    files.insert(path.to_owned(), text.replace(from, to).into_bytes());
    files
}
