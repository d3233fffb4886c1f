//! Every template of a catalog is parsed as its declared kind.
//!
//! Rendering a template needs its bundle images; here only its own text is parsed.

use std::path::Path;

use olm_author::template::{Template, TemplateError};
use olm_fbc::{Blob, SCHEMA_DEPRECATIONS, meta, metas};

use super::{Kind, guarded, walk};

/// Runs the templates below `dir/templates`.
pub fn run(dir: &Path) -> Kind {
    let root = dir.join("templates");
    let mut kind = Kind {
        name: "templates",
        ..Kind::default()
    };
    let files = if root.is_dir() {
        walk(&root).unwrap_or_default()
    } else {
        Vec::new()
    };
    for path in files {
        let outcome = guarded(|| read(&std::fs::read(root.join(&path)).map_err(|error| error.to_string())?));
        kind.cases.push((format!("templates/{path}"), outcome));
    }
    kind
}

/// The kind of the text, or the valid reason for its refusal; an error is a refusal without a visible reason.
fn read(text: &[u8]) -> Result<String, String> {
    let reason = match Template::parse(text) {
        Ok(template) => return Ok(template.kind().schema().to_owned()),
        Err(TemplateError::UnknownSchema(schema)) if schema == SCHEMA_DEPRECATIONS => {
            return deprecations(text).map(|()| schema);
        }
        Err(TemplateError::Syntax(_)) => "not YAML",
        Err(TemplateError::NoSchema) => "no schema",
        Err(TemplateError::UnknownSchema(_)) => "not a template's schema in its first document",
        Err(TemplateError::BundleFields(_)) => "a bundle that is not named by its image alone",
        Err(error) => return Err(error.to_string()),
    };
    Ok(format!("refused: {reason}"))
}

/// A blob of deprecations that accompanies a package.
fn deprecations(text: &[u8]) -> Result<(), String> {
    let blob = metas(text, &meta::limits()).next().ok_or("there is nothing")?;
    let blob = blob.map_err(|error| error.to_string())?;
    match Blob::from_json(SCHEMA_DEPRECATIONS, blob.json()) {
        Ok(Blob::Deprecations(found)) if !found.entries.is_empty() && !found.package.is_empty() => Ok(()),
        Ok(_) => Err("no package, or nothing is deprecated".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn templates_are_rendered_or_refused_with_the_reason() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = read(text.as_bytes());
            let found = found.as_ref().map(String::as_str).map_err(String::as_str);
            assert_eq!(found, expected, "{text}");
        };
        check(
            "---\nschema: olm.template.basic\nentries:\n- schema: olm.bundle\n  image: i:1\n",
            Ok("olm.template.basic"),
        );
        check(
            "Schema: olm.semver\nStable: {Bundles: [{Image: 'i:1'}]}\n",
            Ok("olm.semver"),
        );
        check("a: b: c\n", Ok("refused: not YAML"));
        check("base64data: e30=\n", Ok("refused: no schema"));
        check(
            "schema: olm.deprecations\npackage: p\nentries:\n- reference: {schema: olm.package}\n  message: old\n",
            Ok("olm.deprecations"),
        );
        check(
            "schema: olm.deprecations\npackage: p\n",
            Err("no package, or nothing is deprecated"),
        );
    }
}
