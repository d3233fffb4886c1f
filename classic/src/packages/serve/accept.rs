//! The form of an answer, from the header `Accept`.

use http::HeaderMap;
use http::header::ACCEPT;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The object as it is.
    Object,
    /// Its metadata alone.
    Partial,
    /// A table for people.
    Table,
    /// All groups with their resources at once.
    Discovery,
}

/// The media types of answers, as errors list them.
pub(super) const TYPES: &str = "application/json, application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

/// The first form that the client accepts and that `offers` has; nothing when there is none.
pub(super) fn form(headers: &HeaderMap, offers: &[Form]) -> Option<Form> {
    let mut accepted = headers.get_all(ACCEPT).iter().peekable();
    if accepted.peek().is_none() {
        return Some(Form::Object);
    }
    let texts = accepted.filter_map(|value| value.to_str().ok());
    let mut clauses = texts.flat_map(|text| text.split(','));
    clauses.find_map(|clause| read(clause).filter(|form| offers.contains(form)))
}

fn read(clause: &str) -> Option<Form> {
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
        (true, "", ..) => Some(Form::Object),
        (true, "Table", "meta.k8s.io", "v1") => Some(Form::Table),
        (true, "PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
            Some(Form::Partial)
        }
        (true, "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Form::Discovery),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_offered_is_taken() {
        let check = |accept: &str, expected: Option<Form>| {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            let offers = [Form::Object, Form::Partial, Form::Table];
            assert_eq!(form(&headers, &offers), expected, "{accept}");
        };
        check(
            "application/vnd.kubernetes.protobuf, application/json",
            Some(Form::Object),
        );
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some(Form::Table),
        );
        check(
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Some(Form::Object),
        );
        check(
            "application/json; as=PartialObjectMetadataList; v=v1; g=meta.k8s.io",
            Some(Form::Partial),
        );
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,*/*",
            Some(Form::Object),
        );
        check("application/vnd.kubernetes.protobuf", None);
        check("text/html", None);
        assert_eq!(form(&HeaderMap::new(), &[Form::Object]), Some(Form::Object));
    }
}
