use std::fs::File;
use std::io::Read as _;

use http_body_util::BodyExt as _;
use jiff::Timestamp;

use super::*;
use crate::compression::Encoding;
use crate::store::Filter;

fn open(root: &Path) -> Arc<Store> {
    Arc::new(Store::open(root, StoreLimits::default()).unwrap())
}

fn commit(second: i64) -> Commit {
    let now = Timestamp::from_second(second).unwrap();
    Commit {
        origin: Origin::default(),
        findings: Findings::default(),
        modified: now,
        now,
    }
}

/// Blobs of three packages, some large.
fn write(store: &Arc<Store>, catalog: &str, second: i64) -> Arc<Snapshot> {
    let mut writer = store.begin(catalog).unwrap();
    for package in ["foo", "bar", "baz"] {
        let line = format!("{{\"name\":\"{package}\",\"schema\":\"olm.package\",\"second\":{second}}}\n");
        writer.push("olm.package", "", package, line.as_bytes()).unwrap();
        for version in 0..10 {
            let name = format!("{package}.v{version}");
            let line = format!("{{\"name\":\"{name}\",\"filler\":\"{}\"}}", name.repeat(200));
            writer
                .push("olm.bundle", package, &name, line.as_bytes())
                .unwrap();
        }
    }
    writer.push("", "", "", b"").unwrap();
    writer.commit(commit(second)).unwrap()
}

fn content(snapshot: &Snapshot) -> Vec<u8> {
    snapshot.read(0..snapshot.record().bytes).unwrap()
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

#[test]
fn what_was_committed_is_served_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    assert!(matches!(store.get("cat"), Lookup::Unknown));
    let written = write(&store, "cat", 100);
    written.prepare(|| true).unwrap();
    assert_eq!(written.record().blobs, 33);
    assert_eq!(
        written.record().schemas,
        BTreeMap::from([("olm.bundle".to_owned(), 30), ("olm.package".to_owned(), 3)])
    );
    drop(store);

    let store = open(root.path());
    let snapshot = store.snapshot("cat").unwrap();
    assert_eq!(snapshot.record(), written.record());
    assert_eq!(content(&snapshot), content(&written));
    assert!(snapshot.variant(Encoding::Gzip).is_some());
    snapshot.verify(|| true).unwrap();
}

#[test]
fn new_content_replaces_the_old_without_disturbing_its_readers() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let old = write(&store, "cat", 100);
    let before = content(&old);
    let new = write(&store, "cat", 200);
    assert_eq!(entries(&root.path().join("cat")), 1);
    assert_eq!(content(&old), before);
    assert_ne!(new.record().digest, old.record().digest);
    assert_eq!(new.record().modified, Timestamp::from_second(200).unwrap());
}

#[test]
fn the_same_content_keeps_its_time() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for second in [100, 200] {
        let mut writer = store.begin("cat").unwrap();
        writer.push("a", "", "", b"{}").unwrap();
        let snapshot = writer.commit(commit(second)).unwrap();
        assert_eq!(snapshot.record().modified, Timestamp::from_second(100).unwrap());
        assert_eq!(snapshot.record().stored, Timestamp::from_second(second).unwrap());
    }
}

#[test]
fn what_was_not_committed_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    write(&store, "cat", 100);
    let mut writer = store.begin("cat").unwrap();
    writer.push("a", "", "", b"{}").unwrap();
    assert_eq!(entries(&root.path().join("cat")), 2);
    drop(writer);
    assert_eq!(entries(&root.path().join("cat")), 1);

    // A process that is killed cannot clean up; the next one does.
    let mut writer = store.begin("cat").unwrap();
    writer.push("a", "", "", b"{}").unwrap();
    std::mem::forget(writer);
    fs::create_dir(root.path().join("empty")).unwrap();
    fs::write(root.path().join("UPPER"), "").unwrap();
    let store = open(root.path());
    assert_eq!(entries(&root.path().join("cat")), 1);
    assert_eq!(entries(root.path()), 1);
    assert_eq!(store.snapshots().len(), 1);
}

#[test]
fn damaged_content_is_not_served_after_a_restart() {
    type Damage = fn(&Path) -> std::io::Result<()>;
    let damages: [(&str, Damage); 5] = [
        ("a shorter file", |d| {
            File::options().write(true).open(d.join("all.jsonl"))?.set_len(10)
        }),
        ("no index", |d| fs::remove_file(d.join("index"))),
        ("another index", |d| fs::write(d.join("index"), "something else")),
        ("no record", |d| fs::remove_file(d.join("catalog.json"))),
        ("a record of nothing", |d| fs::write(d.join("catalog.json"), "{}")),
    ];
    for (what, damage) in damages {
        let root = tempfile::tempdir().unwrap();
        let snapshot = write(&open(root.path()), "cat", 100);
        damage(snapshot.directory()).unwrap();
        let store = open(root.path());
        assert!(store.snapshot("cat").is_none(), "{what}");
        assert!(!snapshot.directory().exists(), "{what}");
    }
}

#[test]
fn changed_content_is_found_out_and_rejected() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let snapshot = write(&store, "cat", 100);
    let mut bytes = content(&snapshot);
    *bytes.last_mut().unwrap() = b' ';
    fs::write(snapshot.directory().join("all.jsonl"), bytes).unwrap();
    assert!(matches!(snapshot.verify(|| true), Err(StoreError::Damaged(_))));
    store.reject(&snapshot);
    assert!(matches!(store.get("cat"), Lookup::Expected));
    assert!(!snapshot.directory().exists());
}

#[test]
fn a_coded_variant_that_is_incomplete_is_not_used() {
    let root = tempfile::tempdir().unwrap();
    let snapshot = write(&open(root.path()), "cat", 100);
    snapshot.prepare(|| true).unwrap();
    let gzip = snapshot.directory().join("all.jsonl.gz");
    File::options()
        .write(true)
        .open(gzip)
        .unwrap()
        .set_len(100)
        .unwrap();
    let snapshot = open(root.path()).snapshot("cat").unwrap();
    assert!(snapshot.variant(Encoding::Gzip).is_none());
    snapshot.prepare(|| true).unwrap();
    assert!(snapshot.variant(Encoding::Gzip).is_some());
}

#[test]
fn a_coded_variant_that_has_changed_is_not_used_and_made_anew() {
    for (format, name) in [
        (Encoding::Gzip, "all.jsonl.gz"),
        (Encoding::Zstd, "all.jsonl.zst"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let snapshot = write(&open(root.path()), "cat", 100);
        snapshot.prepare(|| true).unwrap();
        let file = snapshot.directory().join(name);
        let whole = fs::read(&file).unwrap();
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        fs::write(&file, damaged).unwrap();
        let snapshot = open(root.path()).snapshot("cat").unwrap();
        snapshot.verify(|| true).unwrap();
        assert!(snapshot.variant(format).is_none() && !file.exists(), "{name}");
        snapshot.prepare(|| true).unwrap();
        assert!(snapshot.variant(format).is_some(), "{name}");
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
}

#[test]
fn a_variant_that_cannot_be_written_takes_no_room_and_is_tried_again() {
    let root = tempfile::tempdir().unwrap();
    let snapshot = write(&open(root.path()), "cat", 100);
    let obstacle = snapshot.directory().join("all.jsonl.gz.json.new");
    fs::create_dir(&obstacle).unwrap();
    assert!(snapshot.prepare(|| true).is_err());
    assert!(!snapshot.directory().join("all.jsonl.gz").exists());
    fs::remove_dir(&obstacle).unwrap();
    snapshot.prepare(|| true).unwrap();
    assert!(snapshot.variant(Encoding::Gzip).is_some() && snapshot.variant(Encoding::Zstd).is_some());
}

#[test]
fn a_variant_leaves_room_for_content_that_comes() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let mut writer = store.begin("cat").unwrap();
    for package in 0..30 {
        let line = format!("{{\"name\":\"{}\"}}", "x".repeat(100 << 10));
        writer
            .push("olm.bundle", &format!("p{package}"), "b", line.as_bytes())
            .unwrap();
    }
    let snapshot = writer.commit(commit(100)).unwrap();
    let there = || snapshot.directory().join("all.jsonl.gz").exists();
    let quarter = snapshot.record().bytes / 4;
    let full = snapshot
        .prepare_where(&|| true, &|_| Ok(quarter - 1))
        .unwrap_err();
    assert!(
        matches!(full, StoreError::NoRoom { left, .. } if left == quarter),
        "{full}"
    );
    assert!(!there());
    // The free space is checked on the way, too, because other processes also write.
    let looks = std::cell::Cell::new(0);
    let filling = |_: &Path| {
        looks.set(looks.get() + 1);
        Ok(if looks.get() < 3 { quarter } else { 0 })
    };
    assert!(snapshot.prepare_where(&|| true, &filling).is_err());
    assert!(looks.get() == 3 && !there());
    snapshot.prepare_where(&|| true, &|_| Ok(quarter)).unwrap();
    assert!(there());
}

#[test]
fn what_the_disk_refused_once_can_be_asked_when_it_takes_it() {
    let root = tempfile::tempdir().unwrap();
    let snapshot = write(&open(root.path()), "cat", 100);
    let obstacle = snapshot.directory().join("shapes.json.new");
    fs::create_dir(&obstacle).unwrap();
    assert!(snapshot.graph().is_err() && snapshot.packages().is_err());
    fs::remove_dir(&obstacle).unwrap();
    assert!(snapshot.graph().is_ok() && snapshot.packages().is_ok());
}

#[test]
fn what_was_found_in_a_catalog_is_looked_for_anew_when_it_is_damaged() {
    let count = |snapshot: &Snapshot| snapshot.packages().unwrap().flatten().count();
    for name in ["shapes.json", "packages.jsonl", "derived.json"] {
        for damage in [
            |_: &[u8]| b"no JSON\n".to_vec(),
            // Still JSON, but with other content.
            |whole: &[u8]| {
                let mut damaged = whole.to_vec();
                let place = damaged.iter().position(|byte| *byte == b'a').unwrap();
                damaged[place] = b'b';
                damaged
            },
        ] {
            let root = tempfile::tempdir().unwrap();
            let snapshot = write(&open(root.path()), "cat", 100);
            snapshot.prepare(|| true).unwrap();
            let file = snapshot.directory().join(name);
            let whole = fs::read(&file).unwrap();
            let damaged = damage(&whole);
            fs::write(&file, &damaged).unwrap();
            // A request for unreadable content creates it again at once.
            if name == "shapes.json" && damaged.starts_with(b"no JSON") {
                let asked = open(root.path()).snapshot("cat").unwrap();
                assert!(asked.graph().is_ok());
                assert_eq!(fs::read(&file).unwrap(), whole);
                fs::write(&file, &damaged).unwrap();
            }
            let verified = open(root.path()).snapshot("cat").unwrap();
            verified.verify(|| true).unwrap();
            assert!(verified.graph().is_ok(), "{name}");
            assert_eq!(count(&verified), 3, "{name}");
            assert_eq!(fs::read(&file).unwrap(), whole, "{name}");
        }
    }
}

#[test]
fn limits_stop_a_catalog_that_never_ends() {
    let root = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        bytes: 100,
        blobs: 3,
        ..StoreLimits::default()
    };
    let store = Arc::new(Store::open(root.path(), limits).unwrap());
    let mut writer = store.begin("cat").unwrap();
    assert!(matches!(
        writer.push("", "", "", &[b'x'; 100]),
        Err(StoreError::TooLarge(100))
    ));
    let mut writer = store.begin("cat").unwrap();
    for _ in 0..3 {
        writer.push("", "", "", b"{}").unwrap();
    }
    assert!(matches!(
        writer.push("", "", "", b"{}"),
        Err(StoreError::TooMany(3))
    ));
    let limits = StoreLimits {
        index: 10_000,
        ..StoreLimits::default()
    };
    let store = Arc::new(Store::open(root.path(), limits).unwrap());
    let mut writer = store.begin("cat").unwrap();
    let mut names = (0..1000).map(|number| number.to_string());
    let pushed = names.try_for_each(|name| writer.push("x", "", &name, b"{}"));
    assert!(matches!(pushed, Err(StoreError::IndexTooLarge(10_000))));
    let mut writer = store.begin("cat").unwrap();
    for _ in 0..100 {
        writer.push("x", "", "the same", b"{}").unwrap();
    }
}

#[test]
fn names_that_are_no_names_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for name in ["", "..", "../other", "a/b", "A"] {
        assert!(matches!(store.begin(name), Err(StoreError::Name(_))), "{name}");
        assert!(matches!(store.remove(name), Err(StoreError::Name(_))), "{name}");
    }
}

#[test]
fn only_wanted_catalogs_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for catalog in ["a", "b", "c"] {
        write(&store, catalog, 100);
    }
    store.announce("d");
    assert!(matches!(store.get("d"), Lookup::Expected));
    store.announce("a");
    fs::create_dir(root.path().join(".junk")).unwrap();
    fs::write(root.path().join("UPPER"), "").unwrap();
    assert_eq!(store.retain(|name| name == "b"), ["a", "c", "d"]);
    assert_eq!(entries(root.path()), 1);
    assert!(matches!(store.get("a"), Lookup::Unknown));
    assert!(store.snapshot("b").is_some());
}

#[tokio::test]
async fn any_selection_can_be_sent_as_gzip() {
    let root = tempfile::tempdir().unwrap();
    let snapshot = write(&open(root.path()), "cat", 100);
    let whole = snapshot.select(&Filter::default());
    assert!(snapshot.variant_covering(Encoding::Gzip, &whole).is_none());
    snapshot.prepare(|| true).unwrap();
    let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
    for (schema, package, name) in [
        ("", "", ""),
        ("olm.bundle", "", ""),
        ("", "bar", ""),
        ("", "", "foo.v3"),
        ("olm.package", "", ""),
    ] {
        let selected = snapshot.select(&Filter {
            schema: text(schema),
            package: text(package),
            name: text(name),
        });
        assert!(!selected.is_empty());
        let variant = snapshot
            .variant_covering(Encoding::Gzip, &selected)
            .unwrap()
            .variant;
        let sent = snapshot
            .compressed(&variant, &selected)
            .unwrap()
            .collect()
            .await
            .unwrap()
            .to_bytes();
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*sent)
            .read_to_end(&mut plain)
            .unwrap();
        let expected: Vec<u8> = selected
            .iter()
            .flat_map(|r| snapshot.read(r.clone()).unwrap())
            .collect();
        assert_eq!(plain, expected, "{schema} {package} {name}");
    }
}
