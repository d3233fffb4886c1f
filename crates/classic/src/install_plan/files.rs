//! The objects in the files of a bundle's image.

use serde_json::Value;

use super::steps::BundleContent;
use crate::cluster::text;
use crate::names;

/// The directory of the objects.
const MANIFESTS: &str = "manifests/";
/// Objects of one bundle beyond which it is refused.
const MAX_OBJECTS: usize = 10_000;

/// A bundle cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// A manifest is neither YAML nor JSON.
    #[error("cannot read {path:?}: {error}")]
    Manifest {
        /// The file.
        path: String,
        /// The fault of the manifest.
        error: String,
    },
    /// There is no ClusterServiceVersion.
    #[error("the bundle has no ClusterServiceVersion below {MANIFESTS:?}")]
    NoVersion,
    /// There are more objects than any operator has.
    #[error("the bundle has more than {MAX_OBJECTS} objects")]
    TooMany,
}

/// The objects of a bundle with these files, by their paths in the image.
///
/// # Errors
/// When a manifest cannot be read, or there is no ClusterServiceVersion.
pub fn read_bundle<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<BundleContent, FilesError> {
    let mut content = BundleContent::default();
    for (path, file) in files {
        let Some(name) = path.strip_prefix(MANIFESTS) else {
            continue;
        };
        if name.contains('/') {
            continue;
        }
        let unreadable = |error: olm_yaml::Error| FilesError::Manifest {
            path: path.to_owned(),
            error: error.to_string(),
        };
        for document in olm_yaml::documents(file, &olm_yaml::Limits::default()) {
            let object: Value = document
                .and_then(olm_yaml::Document::into_value)
                .map_err(unreadable)?;
            // Text between two separators may be nothing but comments.
            if object.is_null() {
                continue;
            }
            let json = object.to_string();
            if text(&object, "/kind") == names::CSV_KIND {
                content.csv.clone_from(&json);
            }
            content.objects.push(json);
            if content.objects.len() > MAX_OBJECTS {
                return Err(FilesError::TooMany);
            }
        }
    }
    if content.csv.is_empty() {
        return Err(FilesError::NoVersion);
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_documents_of_manifests_are_objects() {
        let csv: &[u8] = b"kind: ClusterServiceVersion\n---\n# nothing\n---\nkind: Service\n";
        let files = [
            ("manifests/csv.yaml", csv),
            ("metadata/annotations.yaml", b"{".as_slice()),
        ];
        let content = read_bundle(files).unwrap();
        assert_eq!(content.csv, r#"{"kind":"ClusterServiceVersion"}"#);
        assert_eq!(content.objects, [content.csv, r#"{"kind":"Service"}"#.to_owned()]);
    }

    #[test]
    fn what_is_wrong_with_a_bundle_is_said() {
        let fault = |file: &'static str| {
            let error = read_bundle([("manifests/a.yaml", file.as_bytes())]).unwrap_err();
            error.to_string()
        };
        assert!(fault("a: {").starts_with("cannot read \"manifests/a.yaml\": "));
        assert_eq!(
            fault("kind: Service"),
            "the bundle has no ClusterServiceVersion below \"manifests/\""
        );
    }
}
