//! Advice about valid catalogs.

use olm_author::lint::CatalogLint;
use olm_fbc::meta::{limits, metas};

/// Checks one file and compares the warnings; there must be no other findings.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let mut checks = CatalogLint::new();
    for meta in metas(text.as_bytes(), &limits()) {
        match meta {
            Ok(meta) => checks.add("catalog.yaml", &meta),
            Err(error) => checks.add_failure("catalog.yaml", &error),
        }
    }
    let report = checks.finish();
    assert!(report.is_valid(), "{text}\n{report:#?}");
    let found: Vec<String> = report
        .findings
        .iter()
        .map(|finding| {
            let line = finding.place.as_ref().map_or(0, |place| place.line);
            format!("{line} {} {}", finding.rule.id(), finding.message)
        })
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn unknown_fields_are_reported_with_the_likely_name() {
    check(
        "{\"schema\": \"olm.package\", \"name\": \"foo\", \"DefaultChannel\": \"stable\", \"descripton\": \"x\", \"maturity\": 1,\n\
         \"properties\": [{\"type\": \"x\", \"value\": {\"anything\": 1}}]}\n\
         {\"schema\": \"olm.channel\", \"package\": \"foo\", \"name\": \"stable\",\n\
         \"entries\": [{\"name\": \"foo.v1\", \"skiprange\": \"<1.0.0\"}, {\"name\": \"foo.v0\"}, {\"name\": \"foo.v2\", \"replace\": \"foo.v0\", \"skips\": [\"foo.v0\", \"foo.v1\"]}]}\n\
         {\"schema\": \"olm.bundle\", \"package\": \"foo\", \"name\": \"foo.v0\", \"image\": \"r.example/foo:0\", \"relatedImages\": [{\"nam\": \"x\", \"image\": \"r.example/x\"}],\n\
         \"properties\": [{\"type\": \"olm.package\", \"value\": {\"packageName\": \"foo\", \"version\": \"0.1.0\"}}]}\n\
         {\"schema\": \"olm.bundle\", \"package\": \"foo\", \"name\": \"foo.v1\", \"image\": \"r.example/foo:1\",\n\
         \"properties\": [{\"type\": \"olm.package\", \"value\": {\"packageName\": \"foo\", \"version\": \"1.0.0\"}}]}\n\
         {\"schema\": \"olm.bundle\", \"package\": \"foo\", \"name\": \"foo.v2\", \"image\": \"r.example/foo:2\",\n\
         \"properties\": [{\"type\": \"olm.package\", \"value\": {\"packageName\": \"foo\", \"version\": \"2.0.0\"}}]}\n",
        &[
            r#"1 field-unknown unknown field "descripton"; did you mean "description"?"#,
            r#"1 field-unknown unknown field "maturity""#,
            r#"3 field-unknown unknown field "entries[2].replace"; did you mean "replaces"?"#,
            r#"5 field-unknown unknown field "relatedImages[0].nam"; did you mean "name"?"#,
        ],
    );
}

#[test]
fn unknown_schemas_are_reported_unless_they_have_their_own_prefix() {
    check(
        "schema: olm.bundel\n---\nschema: Channel\n---\nschema: olm.other\n---\nschema: olm.semver\n---\nschema: example.com.v1\nname: x\n",
        &[
            r#"1 schema-unknown unknown schema "olm.bundel"; did you mean "olm.bundle"?"#,
            r#"3 schema-unknown unknown schema "Channel"; did you mean "olm.channel"?"#,
            r#"5 schema-unknown unknown schema "olm.other": the prefix olm. is reserved; use a prefix of your own"#,
            r#"7 schema-unknown "olm.semver" is a template, not part of a catalog; render it with `olm catalog template`"#,
        ],
    );
}

#[test]
fn duplicate_keys_are_reported() {
    check(
        "{\"schema\":\"example.com.v1\",\"name\":\"a\",\"name\":\"b\"}\n{\"schema\":\"example.com.v1\",\"v\":[{\"k\":1,\"K\":2},{\"k\":1,\"k\":1}]}\n",
        &[
            r#"1 key-repeated duplicate key "name": the last value counts"#,
            r#"2 key-repeated duplicate key "k": the last value counts"#,
        ],
    );
}

#[test]
fn a_catalog_without_content_is_reported() {
    check(
        "",
        &["0 catalog-empty the catalog is empty: no file has an object"],
    );
}
