//! The bundles that a refusal proposes.

use super::*;

/// The providers of `example.com/v1 Green`, as `CATALOG PACKAGE CHANNEL BUNDLE`, best first.
fn proposed(candidates: &[ProviderCandidate<'_>], own_catalog: &str) -> Vec<String> {
    let green = Requirement::of_dependency("olm.gvk", &api("Green", "v1").to_string()).unwrap();
    let served = HashSet::new();
    let nothing = olm_constraint::Present::new([], &served, Budget::default());
    let explanation = green.explain(&nothing).unwrap();
    providers(
        explanation.wanted[0],
        candidates,
        Some(own_catalog),
        &Cluster::default().facts(),
        &mut Budget::default(),
    )
    .into_iter()
    .map(|found| {
        let newest = if found.is_newest { "" } else { " not newest" };
        format!(
            "{} {} {} {}{newest}",
            found.catalog, found.package, found.channel, found.bundle.name
        )
    })
    .collect()
}

fn candidate<'a>(
    catalog: &'a str,
    priority: i32,
    name: &'a str,
    package: &'a Package,
) -> ProviderCandidate<'a> {
    ProviderCandidate {
        catalog,
        priority,
        name,
        package,
        default_channel: Some("stable"),
    }
}

#[test]
fn priority_counts_after_the_dependents_own_catalog() {
    let green = book("green")
        .bundle("1.0.0", &[provides("Green", "v1")])
        .channel("stable", &["1.0.0"])
        .package();
    let candidates = [
        candidate("other", 0, "green", &green),
        candidate("my-operators", 100, "green", &green),
    ];
    assert_eq!(
        proposed(&candidates, "third")[0],
        "my-operators green stable green.v1.0.0"
    );
    assert_eq!(
        proposed(&candidates, "other")[0],
        "other green stable green.v1.0.0"
    );
}

#[test]
fn the_default_channel_comes_first_then_the_alphabet() {
    let all = ["1.0.0"];
    let bundle = |book: TestPackage| book.bundle("1.0.0", &[provides("Green", "v1")]);
    let everywhere = bundle(book("green"))
        .channel("fast", &all)
        .channel("alpha", &all)
        .channel("stable", &all);
    let everywhere = everywhere.package();
    assert_eq!(
        proposed(&[candidate("c", 0, "green", &everywhere)], "c"),
        ["c green stable green.v1.0.0"]
    );
    let elsewhere = bundle(book("green"))
        .bundle("0.1.0", &[])
        .channel("stable", &["0.1.0"])
        .channel("fast", &all)
        .channel("alpha", &all)
        .package();
    assert_eq!(
        proposed(&[candidate("c", 0, "green", &elsewhere)], "c"),
        ["c green alpha green.v1.0.0"]
    );
    let fast = bundle(book("green"))
        .bundle("0.1.0", &[])
        .channel("alpha", &["0.1.0"])
        .channel("fast", &all)
        .package();
    assert_eq!(
        proposed(&[candidate("c", 0, "green", &fast)], "c"),
        ["c green fast green.v1.0.0"]
    );
}

#[test]
fn the_head_comes_first_and_a_bundle_counts_once() {
    let green = book("green")
        .bundle("1.2.0", &[provides("Green", "v1")])
        .bundle("1.3.0", &[provides("Green", "v1")])
        .channel("stable", &["1.3.0", "1.2.0"])
        .channel("fast", &["1.3.0", "1.2.0"])
        .package();
    assert_eq!(
        proposed(&[candidate("c", 0, "green", &green)], "c"),
        ["c green stable green.v1.3.0"]
    );
    let retired = book("green")
        .bundle("1.2.0", &[provides("Green", "v1")])
        .bundle("1.3.0", &[provides("Green", "v2")])
        .channel("stable", &["1.3.0", "1.2.0"])
        .package();
    let found = proposed(&[candidate("c", 0, "green", &retired)], "c");
    assert_eq!(found, ["c green stable green.v1.2.0 not newest"]);
}
