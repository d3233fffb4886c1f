//! Conversion of a catalog to a template.

use olm_fbc::canonical::write_string;
use olm_fbc::catalog::Catalog;
use olm_fbc::{Bundle, SCHEMA_BUNDLE};

use super::Kind;
use crate::write;

/// The JSON text of a basic template that renders to `catalog`, provided that the images of its bundles still contain
/// them.
pub fn basic(catalog: &Catalog) -> String {
    let entries = write::objects(catalog, |bundle: &Bundle| {
        let mut text = String::from("{\"schema\":");
        write_string(SCHEMA_BUNDLE, &mut text);
        text.push_str(",\"image\":");
        write_string(&bundle.image, &mut text);
        text.push('}');
        text
    });
    document(Kind::Basic, &entries, "")
}

/// The JSON text of a template that contains `catalog` without substitutions.
pub fn substitutes(catalog: &Catalog) -> String {
    let entries = write::objects(catalog, write::bundle);
    document(Kind::Substitutes, &entries, ",\"substitutions\":[]")
}

fn document(kind: Kind, entries: &[String], rest: &str) -> String {
    format!(
        "{{\"schema\":\"{}\",\"entries\":[{}]{rest}}}",
        kind.schema(),
        entries.join(",")
    )
}
