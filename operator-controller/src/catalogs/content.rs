//! Reads what a catalog says about a package.

use olm_fbc::Blob;
use olm_resolve::{Package, ReleaseField};
use serde::Deserialize;

/// A line of an answer cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the answer is not a blob of a catalog: {reason}")]
pub struct ContentError {
    line: usize,
    reason: String,
}

/// Reads an answer line by line.
#[derive(Debug)]
pub struct Reader<'a> {
    package: &'a str,
    line: usize,
    blobs: Vec<Blob>,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    schema: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    package: std::borrow::Cow<'a, str>,
}

impl<'a> Reader<'a> {
    /// Keeps what belongs to `package`.
    pub fn new(package: &'a str) -> Self {
        Self {
            package,
            line: 0,
            blobs: Vec::new(),
        }
    }

    /// Reads a line.
    pub fn line(&mut self, line: &[u8]) -> Result<(), ContentError> {
        self.line += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let number = self.line;
        let wrong = |reason: String| ContentError { line: number, reason };
        let text = std::str::from_utf8(line).map_err(|e| wrong(e.to_string()))?;
        let head: Head<'_> = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if head.package != self.package {
            return Ok(());
        }
        self.blobs
            .push(Blob::from_json(&head.schema, text).map_err(|e| wrong(e.to_string()))?);
        Ok(())
    }

    /// What was read, prepared for resolution; nothing when the catalog does not have the package.
    pub fn finish(self, releases: ReleaseField) -> Option<Package> {
        (!self.blobs.is_empty()).then(|| Package::new(self.blobs, releases))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<Option<Package>, ContentError> {
        let mut reader = Reader::new("p");
        lines.iter().try_for_each(|line| reader.line(line.as_bytes()))?;
        Ok(reader.finish(ReleaseField::Counts))
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
    fn a_broken_line_is_named() {
        let error = read(&["", "{"]).unwrap_err().to_string();
        assert!(error.starts_with("line 2 "), "{error}");
        assert!(read(&[r#"{"schema":"olm.bundle","package":"p","name":1}"#]).is_err());
    }
}
