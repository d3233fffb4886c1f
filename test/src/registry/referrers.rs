//! The list of referrers, which the real registry does not have: manifests by the subject that they name.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use olm_image::Digest;
use serde_json::{Value, json};

/// Repository and digest of a subject.
type Subject = (String, String);

/// The manifests that were put and name a subject.
#[derive(Debug, Default)]
pub(super) struct Referrers(Mutex<BTreeMap<Subject, Vec<Value>>>);

impl Referrers {
    /// Notes a manifest that was put at a path; gives the digest of its subject, if it names one.
    pub(super) fn note(&self, path: &str, manifest: &[u8]) -> Option<String> {
        let (repository, _) = path.strip_prefix("/v2/")?.split_once("/manifests/")?;
        let parsed: Value = serde_json::from_slice(manifest).ok()?;
        let subject = parsed.pointer("/subject/digest")?.as_str()?.to_owned();
        let mut descriptor = json!({
            "mediaType": parsed["mediaType"],
            "digest": Digest::of(manifest).to_string(),
            "size": manifest.len(),
        });
        let kind = parsed
            .get("artifactType")
            .or_else(|| parsed.pointer("/config/mediaType"));
        for (field, value) in [("artifactType", kind), ("annotations", parsed.get("annotations"))] {
            if let Some(value) = value {
                descriptor[field] = value.clone();
            }
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = all.entry((repository.to_owned(), subject.clone())).or_default();
        if !list.contains(&descriptor) {
            list.push(descriptor);
        }
        Some(subject)
    }

    /// Forgets the manifest that is deleted at a path; says whether it was listed.
    pub(super) fn forget(&self, path: &str) -> bool {
        let place = path
            .strip_prefix("/v2/")
            .and_then(|rest| rest.split_once("/manifests/"));
        let Some((repository, digest)) = place else {
            return false;
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut was_listed = false;
        for (_, list) in all.iter_mut().filter(|((place, _), _)| place == repository) {
            let before = list.len();
            list.retain(|entry| entry["digest"] != digest);
            was_listed |= list.len() < before;
        }
        was_listed
    }

    /// The index at a path `/v2/REPOSITORY/referrers/DIGEST[?after=COUNT]` with at most `size` manifests, and the path
    /// of the next page.
    pub(super) fn page(&self, path: &str, size: usize) -> Option<(String, Option<String>)> {
        let (place, query) = path.split_once('?').unwrap_or((path, ""));
        let (repository, digest) = place.strip_prefix("/v2/")?.split_once("/referrers/")?;
        let start: usize = query
            .strip_prefix("after=")
            .map_or(Some(0), |count| count.parse().ok())?;
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = all.get(&(repository.to_owned(), digest.to_owned()));
        let list = list.map_or(&[][..], Vec::as_slice);
        let shown: Vec<&Value> = list.iter().skip(start).take(size).collect();
        let end = start + shown.len();
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": shown,
        });
        let next = (end < list.len()).then(|| format!("{place}?after={end}"));
        Some((index.to_string(), next))
    }
}
