//! Templates and the catalogs they stand for.
#![expect(
    clippy::expect_used,
    reason = "outside of the test functions too, a test fails where it stands"
)]

use std::fmt::Write as _;

use olm_author::template::{Bundles, Kind, Template, convert};
use olm_author::write;
use olm_fbc::meta::limits;
use olm_fbc::{Bundle, Catalog};

fn bundle(package: &str, version: &str) -> Bundle {
    let csv = format!(
        "kind: ClusterServiceVersion\nmetadata: {{name: {package}.v{version}}}\nspec:\n  description: About {version}\n  \
         icon: [{{base64data: aGk=, mediatype: image/png}}]\n"
    );
    let object = olm_fbc::Property::for_object(csv.as_bytes()).value;
    Bundle::from_json(&format!(
        r#"{{"name":"{package}.v{version}","package":"{package}","image":"reg/{package}:{version}","properties":[
        {{"type":"olm.package","value":{{"packageName":"{package}","version":"{version}"}}}},
        {{"type":"olm.bundle.object","value":{object}}}]}}"#
    ))
    .expect("the bundle has the shape of one")
}

fn known(bundles: &[(&str, &str)]) -> Bundles {
    bundles
        .iter()
        .map(|(package, version)| {
            (
                format!("reg/{package}:{version}"),
                Ok(vec![bundle(package, version)]),
            )
        })
        .collect()
}

/// Channels as `name: entry<replaced!skipped`, after the default channel.
fn summary(catalog: &Catalog) -> Vec<String> {
    let mut lines: Vec<String> = catalog
        .packages
        .iter()
        .map(|package| {
            let icon = package.icon.as_ref().map_or("", |icon| icon.media_type.as_str());
            format!(
                "{}={} {} {icon}",
                package.name, package.default_channel, package.description
            )
        })
        .collect();
    for channel in &catalog.channels {
        let entries: Vec<String> = channel
            .entries
            .iter()
            .map(|entry| {
                let mut text = entry.name.clone();
                if let Some(replaced) = entry.replaces() {
                    let _ = write!(text, "<{replaced}");
                }
                if !entry.skips.is_empty() {
                    let _ = write!(text, "!{}", entry.skips.join("!"));
                }
                text
            })
            .collect();
        lines.push(format!("{}: {}", channel.name, entries.join(" ")));
    }
    lines
}

fn check(template: &str, bundles: &Bundles, expected: Result<&[&str], &str>) {
    let found = Template::parse(template.as_bytes())
        .and_then(|template| template.render(bundles))
        .map(|catalog| summary(&catalog))
        .map_err(|error| error.to_string());
    let expected = expected
        .map(|lines| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
        .map_err(str::to_owned);
    assert_eq!(found, expected, "{template}");
}

const SEMVER: &str = "schema: olm.semver\nstable:\n  bundles:\n  - image: reg/a:1.0.0\n  - image: reg/a:1.0.1\n  \
                      - image: reg/a:1.1.0\ncandidate:\n  bundles:\n  - image: reg/a:2.0.0\n  - image: reg/a:1.0.1\n";

#[test]
fn versions_make_channels_and_edges() {
    let bundles = known(&[("a", "1.0.0"), ("a", "1.0.1"), ("a", "1.1.0"), ("a", "2.0.0")]);
    check(
        SEMVER,
        &bundles,
        Ok(&[
            "a=stable-v1.1 About 1.1.0 image/png",
            "candidate-v1.0: a.v1.0.1",
            "candidate-v2.0: a.v2.0.0",
            "stable-v1.0: a.v1.0.0 a.v1.0.1!a.v1.0.0",
            "stable-v1.1: a.v1.1.0<a.v1.0.1!a.v1.0.0",
        ]),
    );
    check(
        &SEMVER.replace("stable:", "generateMajorChannels: true\nstable:"),
        &bundles,
        Ok(&[
            "a=stable-v1 About 1.1.0 image/png",
            "candidate-v1: a.v1.0.1",
            "candidate-v2: a.v2.0.0",
            "stable-v1: a.v1.0.0 a.v1.0.1!a.v1.0.0 a.v1.1.0<a.v1.0.1!a.v1.0.0",
        ]),
    );
}

#[test]
fn bundles_of_a_semver_template_fit_together() {
    let two = "schema: olm.semver\nfast: {bundles: [{image: reg/a:1.0.0}, {image: reg/b:1.0.0}]}\n";
    check(
        two,
        &known(&[("a", "1.0.0"), ("b", "1.0.0")]),
        Err(
            "render: unable to post-process bundle info: bundle \"b.v1.0.0\" belongs to package \"b\", not to \"a\" as the bundles before it",
        ),
    );
    check(
        "schema: olm.semver\nfast: {bundles: [{image: reg/a:1.0.0}, {image: reg/a:1.0.0}]}\n",
        &known(&[("a", "1.0.0")]),
        Err("render: unable to post-process bundle info: duplicate bundle name \"a.v1.0.0\""),
    );
    check(
        "schema: olm.semver\nfast: {bundles: [{image: reg/a:1.0.0}]}\n",
        &Bundles::new(),
        Err("failed to render bundle image reference \"reg/a:1.0.0\": the image is not known"),
    );
    check(
        "schema: olm.semver\n",
        &Bundles::new(),
        Err("render: no bundles specified or no bundles could be rendered"),
    );
}

#[test]
fn fields_that_a_semver_template_does_not_have_are_refused() {
    check(
        "schema: olm.semver\nalpha: {}\n",
        &Bundles::new(),
        Err("unmarshalling template: `alpha` is not a field here (unknown field \"alpha\")"),
    );
    check(
        "schema: olm.semver\nstable: {bundles: [{img: x}]}\n",
        &Bundles::new(),
        Err("unmarshalling template: `stable.bundles[0].img` is not a field here (unknown field \"img\")"),
    );
}

const BASIC: &str = "schema: olm.template.basic\nentries:\n- {schema: olm.package, name: a, defaultChannel: c}\n\
                     - {schema: olm.channel, package: a, name: c, entries: [{name: a.v1.0.0}]}\n\
                     - {schema: olm.bundle, name: a.v1.0.0, image: 'reg/a:1.0.0'}\n";

#[test]
fn a_bundle_of_a_basic_template_equals_the_content_of_its_image() {
    let bundles = known(&[("a", "1.0.0")]);
    check(BASIC, &bundles, Ok(&["a=c  ", "c: a.v1.0.0"]));
    let template = Template::parse(BASIC.as_bytes()).expect("the template is one");
    assert_eq!(template.images(), ["reg/a:1.0.0"]);
    let catalog = template.render(&bundles).expect("the template renders");
    assert_eq!(catalog.bundles, [bundle("a", "1.0.0")]);
    check(
        &BASIC.replace("image: 'reg", "package: a, image: 'reg"),
        &bundles,
        Err(
            "unexpected fields present in basic template bundle: entries may only hold schema and image (bundle \"a.v1.0.0\")",
        ),
    );
}

#[test]
fn a_catalog_turns_into_templates_that_render_to_it() {
    let bundles = known(&[("a", "1.0.0")]);
    let template = Template::parse(BASIC.as_bytes()).expect("the template is one");
    let catalog = template.render(&bundles).expect("the template renders");
    for (text, kind) in [
        (convert::basic(&catalog), Kind::Basic),
        (convert::substitutes(&catalog), Kind::Substitutes),
    ] {
        let template = Template::parse(text.as_bytes()).expect("the template is one");
        assert_eq!(template.kind(), kind);
        let again = template.render(&bundles).expect("the template renders");
        assert_eq!(write::json_lines(&again), write::json_lines(&catalog));
    }
}

fn substitutes(substitutions: &str) -> String {
    let mut catalog = Catalog::default();
    let blobs = "{schema: olm.package, name: a, defaultChannel: c}\n---\n{schema: olm.channel, package: a, name: c, entries: \
                 [{name: a.v1.0.0}, {name: a.v1.1.0, replaces: a.v1.0.0}, {name: a.v1.2.0, replaces: a.v1.1.0}, \
                 {name: a.v1.3.0, replaces: a.v1.2.0, skips: [a.v1.0.0, a.v1.1.0]}]}\n";
    catalog
        .load(format!("---\n{blobs}").as_bytes(), &limits())
        .expect("the catalog loads");
    catalog.bundles = ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]
        .map(|version| bundle("a", version))
        .into();
    convert::substitutes(&catalog).replace(
        "\"substitutions\":[]",
        &format!("\"substitutions\":[{substitutions}]"),
    )
}

#[test]
fn a_substitute_takes_the_edges_of_its_base() {
    check(
        &substitutes(r#"{"name":"reg/a:1.1.1","base":"a.v1.1.0"}"#),
        &known(&[("a", "1.1.1")]),
        Ok(&[
            "a=c  ",
            "c: a.v1.0.0 a.v1.1.0 a.v1.2.0<a.v1.1.1!a.v1.1.0 a.v1.3.0<a.v1.2.0!a.v1.0.0!a.v1.1.1 a.v1.1.1<a.v1.0.0!a.v1.1.0",
        ]),
    );
}

#[test]
fn substitutions_that_make_no_sense_say_why() {
    let bundles = known(&[("a", "1.1.1"), ("a", "1.0.0")]);
    for (substitutions, expected) in [
        (
            r#"{"name":"reg/a:1.0.0","base":"a.v1.1.0"}"#,
            "render: error processing substitution \"a.v1.1.0\" -> \"reg/a:1.0.0\": base bundle \"a.v1.1.0\" is not less than substitute bundle \"reg/a:1.0.0\"",
        ),
        (
            r#"{"name":"","base":"a.v1.1.0"}"#,
            "render: error processing substitution \"a.v1.1.0\" -> \"\": substitution name cannot be empty",
        ),
        (
            r#"{"name":"reg/a:1.1.1","base":"a.v1.1.0"},{"name":"reg/a:1.0.0","base":"a.v1.1.0"}"#,
            "render: cannot reuse the same substitution base \"a.v1.1.0\"",
        ),
        (
            r#"{"name":"reg/a:9","base":"a.v1.1.0"}"#,
            "render: error processing substitution \"a.v1.1.0\" -> \"reg/a:9\": failed to render bundle image reference \"reg/a:9\": the image is not known",
        ),
    ] {
        check(&substitutes(substitutions), &bundles, Err(expected));
    }
}

#[test]
fn a_text_that_is_no_template_says_why() {
    for (text, expected) in [
        ("", "template input missing required 'schema' field"),
        (
            "# nothing\n---\nname: x\n",
            "template input missing required 'schema' field",
        ),
        (
            "schema: olm.composite\n",
            "unknown template schema: olm.composite",
        ),
        (
            "schema: 1\n",
            "unmarshalling template: `schema` must be a string, not a number",
        ),
    ] {
        check(text, &Bundles::new(), Err(expected));
    }
}
