//! Catalogs that are designed to use as much memory as possible: each is near one limit.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

/// The most bytes of a blob that are used: the bound is 8 MiB.
const BLOB: usize = 8_300_000;
/// The most values of a blob that are used: the bound is 100,000.
const VALUES: usize = 99_000;
/// Requested packages, one for each worker of operator-controller.
const PACKAGES: usize = 8;

/// Clients of GraphQL.
const CLIENTS: usize = 16;

/// A catalog, and the packages that extensions ask it for.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) packages: Vec<String>,
    /// The GraphQL queries, which clients repeat concurrently.
    pub(super) queries: Vec<String>,
}

impl Attack {
    fn of_blobs(name: &'static str, what: &'static str, blobs: String, packages: Vec<String>) -> Self {
        Self {
            name,
            what,
            files: BTreeMap::from([("configs/catalog.json".to_owned(), blobs.into_bytes())]),
            packages,
            queries: Vec::new(),
        }
    }
}

/// Makes an attack.
type Make = fn() -> Attack;

/// Each one is created when it is used, because together they need more memory than the attacked program.
pub(super) const ALL: [(&str, Make); 13] = [
    ("properties", properties),
    ("entries", entries),
    ("text", text),
    ("values", values),
    ("yaml", yaml),
    ("names", names),
    ("edges", edges),
    ("faults", faults),
    ("summaries", summaries),
    ("kept", kept),
    ("ranges", ranges),
    ("files", files),
    ("queries", queries),
];

/// Text that a layer holds at less than a 200th, like any other.
fn filler(bytes: usize) -> String {
    const BLOCK: usize = 8192;
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut block = String::with_capacity(BLOCK);
    while block.len() < BLOCK {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Writing to a string does not fail.
        let _ = write!(block, "{:08x}", state >> 32);
    }
    let mut text = block.repeat(bytes / BLOCK + 1);
    text.truncate(bytes);
    text
}

/// A package, and a channel with these entries in addition to that of its bundle.
fn package(out: &mut String, name: &str, entries: &str) {
    let package = json!({ "schema": "olm.package", "name": name, "defaultChannel": "stable" });
    let _ = writeln!(out, "{package}");
    channel(
        out,
        name,
        "stable",
        &format!(r#"{{"name":"{name}.v1.0.0"}}{entries}"#),
    );
}

fn channel(out: &mut String, package: &str, name: &str, entries: &str) {
    let _ = writeln!(
        out,
        r#"{{"schema":"olm.channel","package":"{package}","name":"{name}","entries":[{entries}]}}"#
    );
}

/// A bundle with these properties in addition to its own.
fn bundle(out: &mut String, package: &str, version: &str, properties: &str) {
    let own = json!({ "type": "olm.package", "value": { "packageName": package, "version": version } });
    let _ = writeln!(
        out,
        r#"{{"schema":"olm.bundle","package":"{package}","name":"{package}.v{version}","image":"registry.invalid/{package}:v1","properties":[{own}{properties}]}}"#
    );
}

fn wanted(name: &str) -> Vec<String> {
    (0..PACKAGES).map(|number| format!("{name}-{number}")).collect()
}

/// Entries of a channel as short as they can be.
fn tiny_entries(bytes: usize) -> String {
    let mut entries = String::with_capacity(bytes);
    let mut number = 0;
    while entries.len() + 24 < bytes {
        let _ = write!(entries, r#",{{"name":"{number}"}}"#);
        number += 1;
    }
    entries
}

fn properties() -> Attack {
    let value = "x".repeat(2_000_000);
    let properties = format!(r#",{{"type":"unknown","value":"{value}"}}"#).repeat(30);
    let mut blobs = String::new();
    package(&mut blobs, "properties", "");
    bundle(&mut blobs, "properties", "1.0.0", &properties);
    let what = "30 properties of 60 MB in all";
    Attack::of_blobs("properties", what, blobs, vec!["properties".to_owned()])
}

fn entries() -> Attack {
    let mut blobs = String::new();
    package(&mut blobs, "entries", &tiny_entries(197_000_000));
    let what = "197 MB of tiny channel entries";
    Attack::of_blobs("entries", what, blobs, vec!["entries".to_owned()])
}

fn text() -> Attack {
    let text = filler(BLOB);
    let mut blobs = String::new();
    let packages = wanted("text");
    let icon = json!({ "schema": "olm.package", "name": "icon", "icon": { "mediatype": "image/png", "base64data": text } });
    let _ = writeln!(blobs, "{icon}");
    for name in &packages {
        package(&mut blobs, name, "");
        let described = json!({ "type": "olm.csv.metadata", "value": { "description": text } });
        bundle(&mut blobs, name, "1.0.0", &format!(",{described}"));
        let object = json!({ "type": "olm.bundle.object", "value": { "data": text } });
        bundle(&mut blobs, name, "1.0.1", &format!(",{object}"));
        // Each letter takes twice the bytes in a message.
        let image = "\u{200b}".repeat(BLOB / 3);
        let named = json!({ "schema": "olm.bundle", "package": name, "name": "image", "image": image });
        let _ = writeln!(blobs, "{named}");
    }
    let what = "texts of 8 MB: icons, descriptions, manifests, images";
    Attack::of_blobs("text", what, blobs, packages)
}

fn values() -> Attack {
    let mut blobs = String::new();
    let packages = wanted("values");
    // As a parsed value, an object with one member needs hundreds of times the memory of its text.
    let objects = vec![r#"{"":0}"#; VALUES / 2].join(",");
    let tiny = tiny_entries(VALUES / 2 * 15);
    for name in &packages {
        package(&mut blobs, name, "");
        for number in 0..4 {
            channel(
                &mut blobs,
                name,
                &number.to_string(),
                tiny.trim_start_matches(','),
            );
        }
        let described = format!(r#",{{"type":"olm.csv.metadata","value":{{"unknown":[{objects}]}}}}"#);
        bundle(&mut blobs, name, "1.0.0", &described);
        bundle(&mut blobs, name, "1.0.1", &",{}".repeat(VALUES / 2 - 10));
        let _ = writeln!(
            blobs,
            r#"{{"schema":"custom","package":"{name}","values":[{objects}]}}"#
        );
        let lists = "[0],".repeat(VALUES / 2 - 10);
        let _ = writeln!(
            blobs,
            r#"{{"schema":"custom","package":"{name}","values":[{lists}0]}}"#
        );
    }
    let what = "blobs of 99,000 values: entries, properties, objects, lists";
    Attack::of_blobs("values", what, blobs, packages)
}

fn yaml() -> Attack {
    let mut blobs = String::new();
    let maps = "{a: 0},".repeat(VALUES / 3 - 10);
    // Each enclosing anchor stores it again.
    let anchored: String = (0..400).map(|number| format!("&a{number} [")).collect();
    let text = filler(20_000);
    for number in 0..6 {
        let _ = writeln!(blobs, "---\nschema: custom\nname: maps-{number}\nv: [{maps}]");
        let closed = "]".repeat(400);
        let _ = writeln!(
            blobs,
            "---\nschema: custom\nname: anchors-{number}\nv: {anchored}\"{text}\"{closed}"
        );
        let long = filler(BLOB);
        let _ = writeln!(blobs, "---\nschema: custom\nname: text-{number}\nv: \"{long}\"");
    }
    let what = "YAML of 99,000 values, of 400 anchors around 20 kB, and of 8 MB";
    Attack::of_blobs("yaml", what, blobs, Vec::new())
}

fn names() -> Attack {
    let mut blobs = String::new();
    for number in 0..250_000 {
        let _ = writeln!(blobs, r#"{{"schema":"x","name":"{number}"}}"#);
    }
    Attack::of_blobs(
        "names",
        "250,000 blobs with names of their own",
        blobs,
        Vec::new(),
    )
}

fn edges() -> Attack {
    let mut blobs = String::new();
    let packages: Vec<String> = (0..4).map(|number| format!("edges-{number}")).collect();
    for name in &packages {
        let _ = writeln!(
            blobs,
            r#"{{"schema":"olm.package","name":"{name}","defaultChannel":"stable"}}"#
        );
        let entries: Vec<String> = (0..26_000)
            .map(|number| format!(r#"{{"name":"{name}.v1.0.{number}"}}"#))
            .collect();
        channel(&mut blobs, name, "stable", &entries.join(","));
        for number in 0..26_000 {
            bundle(&mut blobs, name, &format!("1.0.{number}"), "");
        }
    }
    let what = "104,000 bundles, each with an entry";
    Attack::of_blobs("edges", what, blobs, packages)
}

fn faults() -> Attack {
    let mut blobs = String::new();
    let package = filler(4000);
    let text = filler(4000);
    for number in 0..5000 {
        let name = format!("{number:04}{text}");
        let _ = writeln!(
            blobs,
            r#"{{"schema":"olm.bundle","package":"{package}","name":"{name}","image":"A"}}"#
        );
    }
    let what = "5,000 bundles with long names and four faults each";
    Attack::of_blobs("faults", what, blobs, Vec::new())
}

fn summaries() -> Attack {
    let mut blobs = String::new();
    let text = filler(490);
    for number in 0..100 {
        let name = format!("summaries-{number}");
        package(&mut blobs, &name, "");
        let mut properties = String::new();
        for api in 0..500 {
            let _ = write!(
                properties,
                r#",{{"type":"olm.gvk","value":{{"group":"{api:03}{text}","version":"{api:03}{text}","kind":"{api:03}{text}"}}}}"#
            );
        }
        bundle(&mut blobs, &name, "1.0.0", &properties);
    }
    let what = "100 packages with 500 APIs of the longest names";
    Attack::of_blobs("summaries", what, blobs, Vec::new())
}

fn kept() -> Attack {
    let mut blobs = String::new();
    let packages = wanted("kept");
    let value = filler(65_000);
    let property = format!(r#",{{"type":"unknown","value":"{value}"}}"#);
    for name in &packages {
        package(&mut blobs, name, "");
        for patch in 0..4 {
            bundle(&mut blobs, name, &format!("1.0.{patch}"), &property.repeat(126));
        }
    }
    let what = "8 packages of nearly 32 MiB each to clients of resolution";
    Attack::of_blobs("kept", what, blobs, packages)
}

fn ranges() -> Attack {
    let mut blobs = String::new();
    let packages = wanted("ranges");
    let range = "1.x||".repeat(180) + "1.x";
    for name in &packages {
        let entries: String = (0..1000)
            .map(|number| format!(r#",{{"name":"{number}","skipRange":"{range}"}}"#))
            .collect();
        package(&mut blobs, name, &entries);
        bundle(&mut blobs, name, "1.0.0", "");
    }
    let what = "8 packages with 1 MB of ranges each";
    Attack::of_blobs("ranges", what, blobs, packages)
}

fn queries() -> Attack {
    let mut blobs = String::new();
    package(&mut blobs, "queries", "");
    let text = filler(BLOB);
    let object = json!({ "type": "olm.bundle.object", "value": { "data": text } });
    bundle(&mut blobs, "queries", "1.0.0", &format!(",{object}"));
    bundle(&mut blobs, "queries", "1.0.1", &",{}".repeat(VALUES / 2 - 10));
    // A control character takes six bytes in JSON and one in memory.
    let control = "\\u0001".repeat(BLOB / 6);
    let _ = writeln!(
        blobs,
        r#"{{"schema":"control","name":"control","text":"{control}"}}"#
    );
    let objects = vec![r#"{"":0}"#; VALUES / 2].join(",");
    let _ = writeln!(
        blobs,
        r#"{{"schema":"values","name":"values","objects":[{objects}]}}"#
    );
    let aliases = |field: &str| -> String { (0..49).map(|number| format!("a{number}: {field} ")).collect() };
    let queries = [
        "{ olmbundles { name image properties { type value } } }".to_owned(),
        format!("{{ controls {{ {} }} }}", aliases("text")),
        format!("{{ olmbundles {{ {} }} }}", aliases("properties { type }")),
        "{ values { name objects { __typename } } }".to_owned(),
    ];
    Attack {
        queries: queries.into_iter().cycle().take(CLIENTS).collect(),
        ..Attack::of_blobs("queries", "16 clients of GraphQL at once", blobs, Vec::new())
    }
}

fn files() -> Attack {
    let files = (0..300_000).map(|number| {
        let path = format!("configs/{:03}/{:064}.json", number / 1000, number);
        (path, br#"{"schema":"x"}"#.to_vec())
    });
    Attack {
        name: "files",
        what: "300,000 files with paths of 24 MB in all",
        files: files.collect(),
        packages: Vec::new(),
        queries: Vec::new(),
    }
}
