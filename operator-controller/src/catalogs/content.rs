//! Reads the content of a package from a catalog's answer.

use olm_fbc::meta::{MAX_BLOB_VALUES, has_too_many_values};
use olm_fbc::{Blob, SCHEMA_BUNDLE};
use olm_resolve::{Package, PackageBuilder, PackageTooLarge, ReleaseField};
use serde::Deserialize;

/// The longest blob that is not a bundle, in bytes. Many small entries take twenty times their text after parsing.
const MAX_OTHER_BLOB_BYTES: usize = 2 << 20;

/// An answer that resolution cannot use. It affects this package of this catalog alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContentError {
    /// A line is not a blob.
    #[error("line {line} of the answer is not a blob of a catalog: {reason}")]
    Blob {
        /// The number of the line, from 1.
        line: usize,
        reason: String,
    },
    #[error("line {line} of the answer is longer than {} MiB", MAX_OTHER_BLOB_BYTES >> 20)]
    BlobTooLarge {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A blob has too many values.
    #[error("line {line} of the answer has more than {MAX_BLOB_VALUES} values")]
    TooManyValues {
        /// The number of the line, from 1.
        line: usize,
    },
    #[error(transparent)]
    PackageTooLarge(#[from] PackageTooLarge),
}

/// Reads an answer by lines.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    package: &'a str,
    line: usize,
    builder: PackageBuilder,
}

#[derive(Deserialize)]
struct PackageBlobHead<'a> {
    #[serde(borrow, default)]
    schema: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    package: std::borrow::Cow<'a, str>,
}

impl<'a> Reader<'a> {
    /// A reader for `package`. Blobs of other packages are dropped.
    pub(crate) fn new(package: &'a str, releases: ReleaseField) -> Self {
        Self {
            package,
            line: 0,
            builder: PackageBuilder::new(releases),
        }
    }

    /// Reads a line.
    pub(crate) fn line(&mut self, line: &[u8]) -> Result<(), ContentError> {
        self.line += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let number = self.line;
        let wrong = |reason: String| ContentError::Blob { line: number, reason };
        let text = std::str::from_utf8(line).map_err(|e| wrong(e.to_string()))?;
        let head: PackageBlobHead<'_> = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if head.package != self.package {
            return Ok(());
        }
        if head.schema != SCHEMA_BUNDLE && line.len() > MAX_OTHER_BLOB_BYTES {
            return Err(ContentError::BlobTooLarge { line: number });
        }
        if has_too_many_values(line) {
            return Err(ContentError::TooManyValues { line: number });
        }
        let blob = Blob::from_json(&head.schema, text).map_err(|e| wrong(e.to_string()))?;
        Ok(self.builder.add(blob)?)
    }

    /// The package, prepared for resolution; `None` if the catalog does not have it.
    pub(crate) fn finish(self) -> Option<Package> {
        self.builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<Option<Package>, ContentError> {
        let mut reader = Reader::new("p", ReleaseField::Counts);
        lines.iter().try_for_each(|line| reader.line(line.as_bytes()))?;
        Ok(reader.finish())
    }

    #[test]
    fn only_the_package_is_kept() {
        let package = read(&[
            r#"{"schema":"olm.package","name":"p"}"#,
            r#"{"schema":"olm.channel","package":"p","name":"stable","entries":[{"name":"p.v1"}]}"#,
            r#"{"schema":"olm.channel","package":"q","name":"other","entries":[]}"#,
            r#"{"schema":"olm.bundle","package":"p","name":"p.v1","image":"i","relatedImages":[{"name":"a","image":"b"}],
                "properties":[{"type":"olm.package","value":{"packageName":"p","version":"1.0.0"}}]}"#,
            "",
            r#"{"schema":"custom.schema","package":"p","x":1}"#,
            r#"{"schema":"olm.deprecations","package":"p","entries":[{"reference":{"schema":"olm.package"},"message":"m"}]}"#,
        ])
        .unwrap()
        .unwrap();
        assert_eq!(package.channels().collect::<Vec<_>>(), ["stable"]);
        assert_eq!(package.candidates().len(), 1);
        assert!(package.deprecations().is_some());
        assert!(
            read(&[r#"{"schema":"olm.package","name":"p"}"#])
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_channel_of_many_tiny_entries_is_refused_before_it_is_parsed() {
        let entries = vec![r#"{"name":""}"#; MAX_OTHER_BLOB_BYTES / 12 + 1].join(",");
        let line = format!(r#"{{"schema":"olm.channel","package":"p","name":"c","entries":[{entries}]}}"#);
        assert!(matches!(
            read(&[&line]),
            Err(ContentError::BlobTooLarge { line: 1 })
        ));
        let elsewhere = line.replace("\"p\"", "\"q\"");
        assert!(
            read(&[&elsewhere]).unwrap().is_none(),
            "other packages do not count"
        );
    }

    #[test]
    fn a_blob_of_too_many_values_is_refused_before_it_is_parsed() {
        let read_with = |values: usize| {
            let properties = vec!["{}"; values / 2].join(",");
            read(&[&format!(
                r#"{{"schema":"olm.bundle","package":"p","name":"b","properties":[{properties}]}}"#
            )])
        };
        assert!(read_with(MAX_BLOB_VALUES - 10).is_ok());
        assert!(matches!(
            read_with(MAX_BLOB_VALUES + 10),
            Err(ContentError::TooManyValues { line: 1 })
        ));
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = read(&["", "{"]).unwrap_err().to_string();
        assert!(error.starts_with("line 2 "), "{error}");
        assert!(read(&[r#"{"schema":"olm.bundle","package":"p","name":1}"#]).is_err());
    }
}
