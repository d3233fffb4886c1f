//! Every template of a catalog is read as what it says it is.
//!
//! Rendering a template takes its bundle images; here only its own text is looked at: which kind it is, and whether it
//! has that kind's structure.

use std::fmt;
use std::path::Path;

use olm_fbc::{Blob, SCHEMA_BUNDLE, SCHEMA_DEPRECATIONS, meta, metas};
use serde_json::{Map, Value};

use super::{Kind, guarded, walk};

/// Why a text is no template that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is neither YAML nor JSON.
    Syntax(String),
    /// It does not say what it is.
    NoSchema,
    /// It is something else.
    UnknownSchema(String),
    /// A bundle, the one at this place in its list, is named without its image.
    NoImage(usize),
    /// It is not built like its kind.
    Shape(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(why) => write!(formatter, "not YAML: {why}"),
            Self::NoSchema => formatter.write_str("template input missing required 'schema' field"),
            Self::UnknownSchema(schema) => write!(formatter, "unknown template schema: {schema}"),
            Self::NoImage(at) => write!(formatter, "entry {at}: a bundle without an image"),
            Self::Shape(why) => formatter.write_str(why),
        }
    }
}

impl Refusal {
    /// What to count it as, when it is a fault of the text that can be seen without knowing more.
    fn true_reason(&self) -> Option<&'static str> {
        match self {
            Self::Syntax(_) => Some("not YAML"),
            Self::NoSchema => Some("no schema"),
            Self::UnknownSchema(_) => Some("not a template's schema in its first document"),
            Self::NoImage(_) => Some("a bundle without an image"),
            Self::Shape(_) => None,
        }
    }
}

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
        let outcome = guarded(|| {
            let text = std::fs::read(root.join(&path)).map_err(|error| error.to_string())?;
            match parse(&text) {
                Ok(schema) => Ok(schema.to_owned()),
                Err(refusal) => match refusal.true_reason() {
                    Some(reason) => Ok(format!("refused: {reason}")),
                    None => Err(refusal.to_string()),
                },
            }
        });
        kind.cases.push((format!("templates/{path}"), outcome));
    }
    kind
}

const BASIC: &str = "olm.template.basic";
const SEMVER: &str = "olm.semver";

/// Reads a template and returns its schema. As with all of a catalog's formats, the case of keys does not matter; the
/// first document of the text is the template.
///
/// # Errors
/// When it is none, or not one that could be rendered.
pub fn parse(text: &[u8]) -> Result<&'static str, Refusal> {
    let mut template = Value::Null;
    for document in olm_yaml::documents(text, &meta::limits()) {
        template = document
            .and_then(olm_yaml::Document::into_value)
            .map_err(|error| Refusal::Syntax(error.to_string()))?;
        if !template.is_null() {
            break;
        }
    }
    let template = fields(&template, "the template")?;
    match get(template, "schema").and_then(Value::as_str) {
        None | Some("") => Err(Refusal::NoSchema),
        Some(BASIC) => basic(template).map(|()| BASIC),
        Some(SEMVER) => semver(template).map(|()| SEMVER),
        Some(SCHEMA_DEPRECATIONS) => deprecations(template).map(|()| SCHEMA_DEPRECATIONS),
        Some(other) => Err(Refusal::UnknownSchema(other.to_owned())),
    }
}

/// Blobs of a catalog, of which bundles have nothing but their image.
fn basic(template: &Map<String, Value>) -> Result<(), Refusal> {
    let entries = list(template, "entries")?;
    if entries.is_empty() {
        return Err(Refusal::Shape("entries: there are none".to_owned()));
    }
    for (at, entry) in entries.iter().enumerate() {
        let text = entry.to_string();
        for blob in metas(text.as_bytes(), &meta::limits()) {
            let shape = |error: &dyn std::fmt::Display| Refusal::Shape(format!("entries[{at}]: {error}"));
            let blob = blob.map_err(|error| shape(&error))?;
            Blob::from_json(&blob.schema, blob.json()).map_err(|error| shape(&error))?;
            if blob.schema == SCHEMA_BUNDLE {
                bundle(entry, at)?;
            }
        }
    }
    Ok(())
}

fn bundle(entry: &Value, at: usize) -> Result<(), Refusal> {
    let entry = fields(entry, "a bundle")?;
    if let Some(key) = unknown(entry, &["schema", "image", "name"]) {
        return Err(Refusal::Shape(format!(
            "entries[{at}]: unexpected field {key} in a bundle"
        )));
    }
    match get(entry, "image").and_then(Value::as_str) {
        None | Some("") => Err(Refusal::NoImage(at)),
        Some(_) => Ok(()),
    }
}

/// Bundle images by how mature they are, of which channels are made.
fn semver(template: &Map<String, Value>) -> Result<(), Refusal> {
    const STREAMS: &[&str] = &["candidate", "fast", "stable"];
    const OTHERS: &[&str] = &[
        "schema",
        "generateMajorChannels",
        "generateMinorChannels",
        "defaultChannelTypePreference",
    ];
    if let Some(key) = unknown(template, &[STREAMS, OTHERS].concat()) {
        return Err(Refusal::Shape(format!("unknown field {key}")));
    }
    let [major, minor] =
        ["generateMajorChannels", "generateMinorChannels"].map(|key| match get(template, key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(set)) => Ok(*set),
            Some(_) => Err(Refusal::Shape(format!("{key}: not a boolean"))),
        });
    let (major, minor) = (major?, minor?);
    let fits = match get(template, "defaultChannelTypePreference").map(|value| value.as_str()) {
        None | Some(Some("")) => true,
        Some(Some("major")) => major,
        // Neither asked for means minor.
        Some(Some("minor")) => minor || !major,
        Some(_) => false,
    };
    if !fits {
        return Err(Refusal::Shape(
            "defaultChannelTypePreference: not one of the channels that are generated".to_owned(),
        ));
    }
    let mut bundles = 0;
    for stream in STREAMS {
        let Some(found) = get(template, stream).filter(|found| !found.is_null()) else {
            continue;
        };
        for (at, entry) in list(fields(found, stream)?, "bundles")?.iter().enumerate() {
            let image = get(fields(entry, "a bundle")?, "image").and_then(Value::as_str);
            if image.is_none_or(str::is_empty) {
                return Err(Refusal::NoImage(at));
            }
            bundles += 1;
        }
    }
    if bundles == 0 {
        return Err(Refusal::Shape("no bundles".to_owned()));
    }
    Ok(())
}

/// A blob of deprecations, to be put beside a package.
fn deprecations(template: &Map<String, Value>) -> Result<(), Refusal> {
    let text = Value::Object(template.clone()).to_string();
    match Blob::from_json(SCHEMA_DEPRECATIONS, &text) {
        Ok(Blob::Deprecations(found)) if !found.entries.is_empty() && !found.package.is_empty() => Ok(()),
        Ok(_) => Err(Refusal::Shape("no package, or nothing is deprecated".to_owned())),
        Err(error) => Err(Refusal::Shape(error.to_string())),
    }
}

fn fields<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, Refusal> {
    value
        .as_object()
        .ok_or_else(|| Refusal::Shape(format!("{what}: not an object")))
}

fn list<'a>(of: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], Refusal> {
    match get(of, key) {
        Some(Value::Array(values)) => Ok(values),
        None | Some(Value::Null) => Ok(&[]),
        Some(_) => Err(Refusal::Shape(format!("{key}: not a list"))),
    }
}

fn get<'a>(of: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    of.iter()
        .find(|(found, _)| found.eq_ignore_ascii_case(key))
        .map(|(_, value)| value)
}

fn unknown<'a>(of: &'a Map<String, Value>, known: &[&str]) -> Option<&'a str> {
    of.keys()
        .find(|key| !known.iter().any(|known| known.eq_ignore_ascii_case(key)))
        .map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, Refusal>) {
        assert_eq!(parse(text.as_bytes()), expected, "{text}");
    }

    fn shape(text: &str) -> Result<&'static str, Refusal> {
        Err(Refusal::Shape(text.to_owned()))
    }

    #[test]
    fn a_basic_template_holds_blobs_and_bundle_images() {
        check(
            "---\nschema: olm.template.basic\nentries:\n- schema: olm.package\n  name: p\n- schema: olm.bundle\n  image: i:1\n",
            Ok(BASIC),
        );
        check(
            r#"{"Schema":"olm.template.basic","Entries":[{"schema":"olm.bundle","image":"i:1","name":"p.v1"}]}"#,
            Ok(BASIC),
        );
        check("schema: olm.template.basic\n", shape("entries: there are none"));
        check(
            "schema: olm.template.basic\nentries:\n- schema: olm.bundle\n  image: i:1\n  package: p\n",
            shape("entries[0]: unexpected field package in a bundle"),
        );
        check(
            "schema: olm.template.basic\nentries:\n- schema: olm.package\n- schema: olm.bundle\n",
            Err(Refusal::NoImage(1)),
        );
        check(
            "schema: olm.template.basic\nentries:\n- name: p\n",
            shape("entries[0]: object '{\"name\":\"p\"}' is missing root schema field"),
        );
    }

    #[test]
    fn a_semver_template_holds_bundle_images_by_stream() {
        let stable = "Stable:\n  Bundles:\n  - Image: i:1\n";
        check(
            &format!("Schema: olm.semver\nGenerateMinorChannels: true\n{stable}"),
            Ok(SEMVER),
        );
        check(
            &format!("schema: olm.semver\ndefaultChannelTypePreference: minor\n{stable}"),
            Ok(SEMVER),
        );
        let preference = shape("defaultChannelTypePreference: not one of the channels that are generated");
        check(
            &format!("schema: olm.semver\ndefaultChannelTypePreference: major\n{stable}"),
            preference.clone(),
        );
        check(
            &format!("schema: olm.semver\ndefaultChannelTypePreference: patch\n{stable}"),
            preference,
        );
        check(
            &format!("schema: olm.semver\nbeta: {{}}\n{stable}"),
            shape("unknown field beta"),
        );
        check("schema: olm.semver\nstable: {bundles: []}\n", shape("no bundles"));
        check(
            "schema: olm.semver\nfast: {bundles: [{image: ''}]}\n",
            Err(Refusal::NoImage(0)),
        );
    }

    #[test]
    fn deprecations_can_stand_alone() {
        check(
            "schema: olm.deprecations\npackage: p\nentries:\n- reference: {schema: olm.package}\n  message: old\n",
            Ok(SCHEMA_DEPRECATIONS),
        );
        check(
            "schema: olm.deprecations\npackage: p\n",
            shape("no package, or nothing is deprecated"),
        );
    }

    #[test]
    fn what_is_no_template_is_refused() {
        check(
            "base64data: e30=\nmediatype: image/svg+xml\n",
            Err(Refusal::NoSchema),
        );
        check(
            "schema: olm.channel\nname: c\n---\nschema: olm.template.basic\n",
            Err(Refusal::UnknownSchema("olm.channel".to_owned())),
        );
        assert!(matches!(parse(b"a: b: c\n"), Err(Refusal::Syntax(_))));
        check("- a\n", shape("the template: not an object"));
    }
}
