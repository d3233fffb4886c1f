//! Rendered catalogs: the same text for the same catalog, whatever files it came from.
//!
//! Packages come in the order of their names; inside each its `olm.package` blob, channels and bundles by name,
//! other blobs by schema, deprecations. Blobs that belong to no package come last.

use std::collections::BTreeMap;

use olm_fbc::base64_text;
use olm_fbc::canonical::{canonical, write_string};
use olm_fbc::catalog::Catalog;
use olm_fbc::decode::List;
use olm_fbc::{
    Bundle, Channel, ChannelEntry, DeprecationEntry, Deprecations, Meta, Package, Property, RelatedImage,
    SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE,
};

/// The catalog as a stream of JSON objects, indented by four blanks.
pub fn json(catalog: &Catalog) -> String {
    let mut out = String::new();
    for text in blobs(catalog) {
        indent(&text, &mut out);
        out.push('\n');
    }
    out
}

/// The catalog as YAML documents, each led by `---`, keys in alphabetical order.
pub fn yaml(catalog: &Catalog) -> String {
    let mut out = String::new();
    for text in blobs(catalog) {
        out.push_str("---\n");
        // A value that is nested too deeply stays JSON, which is also YAML.
        if let Ok(value) = serde_json::from_str(&canonical(&text)) {
            out.push_str(&olm_yaml::to_yaml(&value));
        } else {
            out.push_str(&text);
            out.push('\n');
        }
    }
    out
}

/// The catalog as lines of canonical JSON, one blob each.
pub fn json_lines(catalog: &Catalog) -> String {
    blobs(catalog).fold(String::new(), |mut out, text| {
        out.push_str(&canonical(&text));
        out.push('\n');
        out
    })
}

/// The blobs of one package.
#[derive(Default)]
struct Group<'a> {
    packages: Vec<&'a Package>,
    channels: Vec<&'a Channel>,
    bundles: Vec<&'a Bundle>,
    others: Vec<&'a Meta>,
    deprecations: Vec<&'a Deprecations>,
}

/// The blobs as JSON texts in the order of the rendered catalog.
fn blobs(catalog: &Catalog) -> impl Iterator<Item = String> {
    texts(catalog, bundle)
}

/// The blobs as JSON texts in the order of the rendered catalog, bundles as `bundle` writes them.
pub(crate) fn objects(catalog: &Catalog, bundle: impl Fn(&Bundle) -> String) -> Vec<String> {
    texts(catalog, bundle).collect()
}

fn texts<'a>(
    catalog: &'a Catalog,
    bundle: impl Fn(&Bundle) -> String + 'a,
) -> impl Iterator<Item = String> + 'a {
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for package in &catalog.packages {
        groups.entry(&package.name).or_default().packages.push(package);
    }
    for channel in &catalog.channels {
        groups.entry(&channel.package).or_default().channels.push(channel);
    }
    for bundle in &catalog.bundles {
        groups.entry(&bundle.package).or_default().bundles.push(bundle);
    }
    for other in &catalog.others {
        groups.entry(&other.package).or_default().others.push(other);
    }
    for deprecations in &catalog.deprecations {
        groups
            .entry(&deprecations.package)
            .or_default()
            .deprecations
            .push(deprecations);
    }
    let without_package = groups.remove("");
    let groups = groups.into_values().map(|mut group| {
        group.others.sort_by(|left, right| left.schema.cmp(&right.schema));
        group
    });
    groups.chain(without_package).flat_map(move |mut group| {
        group.channels.sort_by(|left, right| left.name.cmp(&right.name));
        group.bundles.sort_by(|left, right| left.name.cmp(&right.name));
        // Blobs without a package keep their order and come last.
        let packages = group.packages.into_iter().map(package);
        let channels = group.channels.into_iter().map(channel);
        let bundles: Vec<String> = group.bundles.into_iter().map(&bundle).collect();
        let others = group.others.into_iter().map(|other| other.json().to_owned());
        let deprecations = group.deprecations.into_iter().map(self::deprecations);
        packages
            .chain(channels)
            .chain(bundles)
            .chain(others)
            .chain(deprecations)
    })
}

/// A JSON object under construction.
struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    fn new() -> Self {
        Self {
            text: String::from("{"),
        }
    }

    fn raw(mut self, key: &str, value: &str) -> Self {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        write_string(key, &mut self.text);
        self.text.push(':');
        self.text.push_str(value);
        self
    }

    fn string(self, key: &str, value: &str) -> Self {
        let mut text = String::new();
        write_string(value, &mut text);
        self.raw(key, &text)
    }

    fn string_if_any(self, key: &str, value: &str) -> Self {
        if value.is_empty() {
            self
        } else {
            self.string(key, value)
        }
    }

    fn list<T>(self, key: &str, elements: &[T], element: impl Fn(&T) -> String) -> Self {
        let elements: Vec<String> = elements.iter().map(element).collect();
        self.raw(key, &format!("[{}]", elements.join(",")))
    }

    fn list_if_any<T>(self, key: &str, elements: &[T], element: impl Fn(&T) -> String) -> Self {
        if elements.is_empty() {
            self
        } else {
            self.list(key, elements, element)
        }
    }

    fn list_or_null<T>(self, key: &str, elements: &List<T>, element: impl Fn(&T) -> String) -> Self {
        if elements.is_given() {
            self.list(key, elements, element)
        } else {
            self.raw(key, "null")
        }
    }

    fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

fn package(package: &Package) -> String {
    let object = ObjectWriter::new()
        .string("schema", SCHEMA_PACKAGE)
        .string("name", &package.name)
        .string("defaultChannel", &package.default_channel);
    let object = match &package.icon {
        Some(icon) => {
            let written = match &icon.base64_data {
                // A text without data and no text differ, as in the reference.
                None => ObjectWriter::new().raw("base64data", "null"),
                Some(given) => {
                    let data = icon.data().map(|data| base64_text::encode(&data));
                    ObjectWriter::new().string("base64data", data.as_ref().unwrap_or(given))
                }
            };
            object.raw("icon", &written.string("mediatype", &icon.media_type).finish())
        }
        None => object,
    };
    object
        .string_if_any("description", &package.description)
        .list_if_any("properties", &package.properties, property)
        .finish()
}

fn channel(channel: &Channel) -> String {
    ObjectWriter::new()
        .string("schema", SCHEMA_CHANNEL)
        .string("name", &channel.name)
        .string("package", &channel.package)
        .list_or_null("entries", &channel.entries, entry)
        .list_if_any("properties", &channel.properties, property)
        .finish()
}

fn entry(entry: &ChannelEntry) -> String {
    ObjectWriter::new()
        .string("name", &entry.name)
        .string_if_any("replaces", entry.replaces().unwrap_or_default())
        .list_if_any("skips", &entry.skips, |name| {
            let mut text = String::new();
            write_string(name, &mut text);
            text
        })
        .string_if_any("skipRange", entry.skip_range().unwrap_or_default())
        .finish()
}

pub(crate) fn bundle(bundle: &Bundle) -> String {
    ObjectWriter::new()
        .string("schema", SCHEMA_BUNDLE)
        .string_if_any("name", &bundle.name)
        .string_if_any("package", &bundle.package)
        .string("image", &bundle.image)
        .list_if_any("properties", &bundle.properties, property)
        .list_if_any("relatedImages", &bundle.related_images, related_image)
        .finish()
}

pub(crate) fn property(property: &Property) -> String {
    let value = if property.well_formed().is_ok() {
        canonical(&property.value)
    } else {
        "null".to_owned()
    };
    ObjectWriter::new()
        .string("type", &property.kind)
        .raw("value", &value)
        .finish()
}

fn related_image(related: &RelatedImage) -> String {
    ObjectWriter::new()
        .string("name", &related.name)
        .string("image", &related.image)
        .finish()
}

fn deprecations(deprecations: &Deprecations) -> String {
    ObjectWriter::new()
        .string("schema", SCHEMA_DEPRECATIONS)
        .string("package", &deprecations.package)
        .list_or_null("entries", &deprecations.entries, deprecation)
        .finish()
}

fn deprecation(entry: &DeprecationEntry) -> String {
    let reference = ObjectWriter::new()
        .string("schema", &entry.reference.schema)
        .string_if_any("name", &entry.reference.name)
        .finish();
    ObjectWriter::new()
        .raw("reference", &reference)
        .string("message", &entry.message)
        .finish()
}

/// Appends `text`, JSON without blanks, with a line for each member and element.
fn indent(text: &str, out: &mut String) {
    let mut depth = 0;
    let mut in_string = false;
    let mut escaped = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if in_string {
            out.push(letter);
            match letter {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match letter {
            '"' => {
                in_string = true;
                out.push(letter);
            }
            '{' | '[' => {
                out.push(letter);
                if let Some(closing) = letters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(closing);
                } else {
                    depth += 1;
                    line(depth, out);
                }
            }
            '}' | ']' => {
                depth -= 1;
                line(depth, out);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                line(depth, out);
            }
            ':' => out.push_str(": "),
            letter => out.push(letter),
        }
    }
}

fn line(depth: usize, out: &mut String) {
    out.push('\n');
    for _ in 0..depth {
        out.push_str("    ");
    }
}

#[cfg(test)]
mod tests {
    use olm_fbc::catalog::Catalog;
    use olm_fbc::meta::limits;

    fn catalog(text: &str) -> Catalog {
        let mut catalog = Catalog::default();
        catalog
            .load(text.as_bytes(), &limits())
            .expect("the catalog loads");
        catalog
    }

    fn check_lines(text: &str, expected: &str) {
        let rendered = super::json_lines(&catalog(text));
        assert_eq!(rendered, expected, "{text}");
        let again = super::json_lines(&catalog(&super::json(&catalog(text))));
        assert_eq!(
            again, expected,
            "the rendered catalog renders differently: {text}"
        );
        let again = super::json_lines(&catalog(&super::yaml(&catalog(text))));
        assert_eq!(
            again, expected,
            "the catalog rendered as YAML renders differently: {text}"
        );
    }

    #[test]
    fn a_bundle_without_a_name_stays_one() {
        check_lines(
            r#"{"schema":"olm.bundle","package":"b","image":"i"}"#,
            "{\"image\":\"i\",\"package\":\"b\",\"schema\":\"olm.bundle\"}\n",
        );
    }

    #[test]
    fn blobs_are_ordered_by_package_then_type_then_name() {
        check_lines(
            r#"{"schema":"free"}{"schema":"olm.deprecations","package":"b","entries":[]}{"schema":"x","package":"b"}
               {"schema":"olm.bundle","package":"b","name":"b.2"}{"schema":"olm.bundle","package":"b","name":"b.1"}
               {"schema":"olm.channel","package":"b","name":"c"}{"schema":"olm.package","name":"b"}
               {"schema":"olm.package","name":"a"}{"schema":"a","package":"b"}{"schema":"bare"}"#,
            concat!(
                "{\"defaultChannel\":\"\",\"name\":\"a\",\"schema\":\"olm.package\"}\n",
                "{\"defaultChannel\":\"\",\"name\":\"b\",\"schema\":\"olm.package\"}\n",
                "{\"entries\":null,\"name\":\"c\",\"package\":\"b\",\"schema\":\"olm.channel\"}\n",
                "{\"image\":\"\",\"name\":\"b.1\",\"package\":\"b\",\"schema\":\"olm.bundle\"}\n",
                "{\"image\":\"\",\"name\":\"b.2\",\"package\":\"b\",\"schema\":\"olm.bundle\"}\n",
                "{\"package\":\"b\",\"schema\":\"a\"}\n",
                "{\"package\":\"b\",\"schema\":\"x\"}\n",
                "{\"entries\":[],\"package\":\"b\",\"schema\":\"olm.deprecations\"}\n",
                "{\"schema\":\"free\"}\n",
                "{\"schema\":\"bare\"}\n",
            ),
        );
    }

    #[test]
    fn fields_unknown_to_the_schema_are_left_out() {
        check_lines(
            r#"{"schema":"olm.channel","package":"p","name":"c","x":1,
               "entries":[{"name":"e","x":1,"skips":["s"],"replaces":"r","skipRange":"<1.0.0"},{"name":"f","skips":[]}]}"#,
            "{\"entries\":[{\"name\":\"e\",\"replaces\":\"r\",\"skipRange\":\"<1.0.0\",\"skips\":[\"s\"]},\
             {\"name\":\"f\"}],\"name\":\"c\",\"package\":\"p\",\"schema\":\"olm.channel\"}\n",
        );
    }

    #[test]
    fn json_is_indented_by_four_blanks() {
        let text = r#"{"schema":"a","v":[{},[],{"k":"{,:\"}"}]}"#;
        assert_eq!(
            super::json(&catalog(text)),
            "{\n    \"schema\": \"a\",\n    \"v\": [\n        {},\n        [],\n        {\n            \
             \"k\": \"{,:\\\"}\"\n        }\n    ]\n}\n",
        );
    }

    #[test]
    fn an_icon_without_data_differs_from_one_of_no_bytes() {
        let check = |icon: &str, expected: &str| {
            let text = format!(r#"{{"schema":"olm.package","name":"p","defaultChannel":"c","icon":{icon}}}"#);
            let written = super::json_lines(&catalog(&text));
            assert!(written.contains(&format!("\"icon\":{expected}")), "{written}");
        };
        check("{}", r#"{"base64data":null,"mediatype":""}"#);
        check(
            r#"{"base64data":null,"mediatype":"image/png"}"#,
            r#"{"base64data":null,"mediatype":"image/png"}"#,
        );
        check(r#"{"base64data":""}"#, r#"{"base64data":"","mediatype":""}"#);
    }

    #[test]
    fn yaml_documents_have_their_keys_in_order() {
        let text = r#"{"schema":"olm.package","name":"p","defaultChannel":"c","icon":{"base64data":"aGk="}}"#;
        assert_eq!(
            super::yaml(&catalog(text)),
            "---\ndefaultChannel: c\nicon:\n  base64data: aGk=\n  mediatype: \"\"\nname: p\nschema: olm.package\n",
        );
    }
}
