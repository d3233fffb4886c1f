//! Any input is read without panics and with proportional time and memory.

use std::time::{Duration, Instant};

use olm_fbc::check::Rule;
use olm_fbc::meta::{MAX_BLOB_VALUES, limits, metas};
use olm_fbc::{Blob, Bundle, Channel, Checker, Deprecations, Ignore, Index, Package, canonical, graph};
use proptest::prelude::*;

/// Text that looks enough like JSON and YAML to get far.
fn almost_a_catalog() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just(",".to_owned()),
        Just(":".to_owned()),
        Just("\n---\n".to_owned()),
        Just("\"\\ud800\"".to_owned()),
        Just("\"schema\":\"olm.bundle\"".to_owned()),
        Just("schema: olm.channel\n".to_owned()),
        Just("\"entries\":[{\"name\":\"a\",\"replaces\":\"a\"}]".to_owned()),
        Just("\"properties\":[{\"type\":\"olm.package\",\"value\":{\"version\":\"1\"}}]".to_owned()),
        "[a-z\\\\\"{}\\[\\]:, \n0-9.é]{0,12}",
    ];
    prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(text in almost_a_catalog()) {
        let mut checker = Checker::new();
        for meta in metas(text.as_bytes(), &limits()) {
            match meta {
                Ok(meta) => {
                    checker.add("file", &meta);
                    if !meta.line.is_empty() {
                        prop_assert_eq!(&canonical(meta.json()), meta.json());
                    }
                    let _ = Blob::from_json(&meta.schema, meta.json());
                }
                Err(error) => checker.add_failure("file", &error),
            }
        }
        checker.finish();
        canonical(&text);
        for decoded in [
            Package::from_json(&text).is_ok(),
            Bundle::from_json(&text).is_ok(),
            Deprecations::from_json(&text).is_ok(),
        ] {
            prop_assert!(!decoded || text.trim() == "null" || serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
        if let Ok(channel) = Channel::from_json(&text) {
            let _ = graph::replaces_chain(&channel.entries);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(metas(&bytes[..], &limits()).count() <= bytes.len() + 1);
        let _ = Index::decode(&bytes);
        let _ = Index::decode(&[b"olmfbcx1", &bytes[..]].concat());
    }

    #[test]
    fn no_pattern_makes_the_matcher_panic(text in "[a-c*?!/\\\\\\[\\]\\-^# \n]{0,40}", path in "[a-c/.]{0,20}") {
        let mut ignore = Ignore::new();
        ignore.add("a/.indexignore", &text);
        ignore.add(".indexignore", &text);
        ignore.is_ignored(&path);
    }
}

#[track_caller]
fn in_good_time(what: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    // The limit is seconds for work of milliseconds: only disproportionate growth exceeds it.
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{what} took {:?}",
        start.elapsed()
    );
}

#[test]
fn nesting_is_limited_and_cheap() {
    let nested = |depth: usize| {
        format!(
            "{{\"schema\":\"x\",\"v\":{}{}}}",
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    let read = |text: &str| {
        metas(text.as_bytes(), &limits())
            .next()
            .is_some_and(|meta| meta.is_ok())
    };
    assert!(read(&nested(900)));
    in_good_time("deep nesting", || assert!(!read(&nested(1_000_000))));
}

#[test]
fn a_channel_of_many_entries_is_checked_in_good_time() {
    let entries: Vec<String> = (0..30_000)
        .map(|number: u32| {
            format!(
                "{{\"name\":\"b{number}\",\"replaces\":\"b{}\"}}",
                number.saturating_sub(1)
            )
        })
        .collect();
    let text = format!(
        "{{\"schema\":\"olm.channel\",\"package\":\"p\",\"name\":\"c\",\"entries\":[{}]}}",
        entries.join(",")
    );
    in_good_time("a long channel", || {
        let mut checker = Checker::new();
        for meta in metas(text.as_bytes(), &limits()) {
            checker.add("file", &meta.expect("the channel can be read"));
        }
        assert!(!checker.finish().is_valid());
    });
}

#[test]
fn many_objects_on_one_line_are_read_one_at_a_time() {
    let text = "{\"schema\":\"x\",\"name\":\"y\"}".repeat(200_000);
    in_good_time("one long line", || {
        assert_eq!(metas(text.as_bytes(), &limits()).count(), 200_000);
    });
}

#[test]
fn a_blob_of_more_values_or_a_longer_name_than_any_is_refused() {
    let read = |text: &str| {
        metas(text.as_bytes(), &limits())
            .next()
            .map(|meta| meta.map(drop).map_err(|error| error.to_string()))
            .expect("there is a blob")
    };
    let json = |values: usize| format!("{{\"schema\":\"x\",\"v\":[{}0]}}", "0,".repeat(values));
    assert_eq!(read(&json(MAX_BLOB_VALUES - 10)), Ok(()));
    assert!(read(&json(MAX_BLOB_VALUES)).is_err_and(|error| error.ends_with("more than 100000 values")));
    let yaml = format!("schema: x\nv: [{}0]\n", "0, ".repeat(MAX_BLOB_VALUES));
    assert!(read(&yaml).is_err_and(|error| error.ends_with("more than 100000 values")));
    for key in ["schema", "package", "Name"] {
        let named = |length: usize| format!("{{\"{key}\":\"{}\"}}", "n".repeat(length));
        assert_eq!(read(&named(4096)), Ok(()));
        assert_eq!(
            read(&named(4097)),
            Err(format!("the value of key {key:?} is longer than 4096 bytes"))
        );
    }
}

#[test]
fn a_catalog_that_takes_more_memory_than_it_may_is_not_compared_and_says_so() {
    let bundles = "{\"schema\":\"olm.bundle\",\"package\":\"unknown\",\"name\":\"b\"}\n".repeat(100);
    let rules = |checker: Checker| {
        let mut checker = checker;
        for meta in metas(bundles.as_bytes(), &limits()) {
            checker.add("file", &meta.expect("the bundle can be read"));
        }
        let report = checker.finish();
        let rules = report.findings.iter().map(|finding| finding.rule);
        rules.collect::<std::collections::HashSet<Rule>>()
    };
    let all = rules(Checker::new());
    assert!(all.contains(&Rule::BundlePackageUnknown) && !all.contains(&Rule::CatalogSize));
    assert_eq!(rules(Checker::new().within(1 << 20)), all);
    let alone = rules(Checker::new().within(10_000));
    assert!(!alone.contains(&Rule::BundlePackageUnknown) && alone.contains(&Rule::CatalogSize));
    assert!(
        alone.contains(&Rule::BundleImage),
        "rules for a blob alone hold on"
    );
}

#[test]
fn findings_take_bounded_memory() {
    let long = "x".repeat(100_000);
    let mut checker = Checker::new();
    for meta in metas(
        format!("{{\"schema\":\"olm.bundle\",\"package\":\"p\",\"name\":\"b\",\"image\":\"A{long}\"}}\n")
            .repeat(500)
            .as_bytes(),
        &limits(),
    ) {
        checker.add("file", &meta.expect("the bundle can be read"));
    }
    let report = checker.finish();
    let messages = report.findings.iter().map(|finding| finding.message.len());
    assert!(messages.clone().max() < Some(20_000));
    assert!(messages.sum::<usize>() <= 4 << 20 && report.omitted > 0 && !report.is_valid());
}

#[test]
fn a_document_larger_than_the_limit_is_refused() {
    let limits = olm_fbc::meta::Limits {
        bytes: 1000,
        ..limits()
    };
    let text = format!("{{\"schema\":\"x\"}}{{\"schema\":\"{}\"}}", "y".repeat(2000));
    let read: Vec<bool> = metas(text.as_bytes(), &limits).map(|meta| meta.is_ok()).collect();
    assert_eq!(read, [true, false]);
}
