//! The representation of an object in a response, from the header `Accept`.

use http::HeaderMap;
use http::header::ACCEPT;

/// The representation of an object in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Representation {
    /// The object as it is.
    Object,
    /// Its metadata alone.
    Partial,
    /// A table for people.
    Table,
    /// All groups with their resources at once.
    Discovery,
}

/// The media types of responses, as errors list them.
pub(super) const TYPES: &str = "application/json, application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

/// The first representation that the client accepts and that `offers` has; nothing when there is none.
pub(super) fn negotiate(headers: &HeaderMap, offers: &[Representation]) -> Option<Representation> {
    let mut accepted = headers.get_all(ACCEPT).iter().peekable();
    if accepted.peek().is_none() {
        return Some(Representation::Object);
    }
    let texts = accepted.filter_map(|value| value.to_str().ok());
    let mut clauses = texts.flat_map(|text| text.split(','));
    clauses.find_map(|clause| read(clause).filter(|representation| offers.contains(representation)))
}

fn read(clause: &str) -> Option<Representation> {
    let mut parts = clause.split(';').map(str::trim);
    let is_json = matches!(parts.next(), Some("application/json" | "application/*" | "*/*"));
    let (mut kind, mut group, mut version) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => kind = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            _ => {}
        }
    }
    match (is_json, kind, group, version) {
        (true, "", ..) => Some(Representation::Object),
        (true, "Table", "meta.k8s.io", "v1") => Some(Representation::Table),
        (true, "PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
            Some(Representation::Partial)
        }
        (true, "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Representation::Discovery),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_offered_is_taken() {
        let check = |accept: &str, expected: Option<Representation>| {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            let offers = [
                Representation::Object,
                Representation::Partial,
                Representation::Table,
            ];
            assert_eq!(negotiate(&headers, &offers), expected, "{accept}");
        };
        check(
            "application/vnd.kubernetes.protobuf, application/json",
            Some(Representation::Object),
        );
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some(Representation::Table),
        );
        check(
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Some(Representation::Object),
        );
        check(
            "application/json; as=PartialObjectMetadataList; v=v1; g=meta.k8s.io",
            Some(Representation::Partial),
        );
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,*/*",
            Some(Representation::Object),
        );
        check("application/vnd.kubernetes.protobuf", None);
        check("text/html", None);
        assert_eq!(
            negotiate(&HeaderMap::new(), &[Representation::Object]),
            Some(Representation::Object)
        );
    }
}
