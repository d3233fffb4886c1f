//! Dependents protect a bundle.

use super::*;

#[test]
fn bundles_that_others_depend_on_are_kept() {
    let a = book("a").bundle("1.0.0", &[requires("B", "v1")]).package();
    let b = book("b")
        .bundle("1.0.0", &[provides("B", "v1")])
        .bundle("2.0.0", &[provides("C", "v1")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    let served = HashSet::from([gvk("B", "v1")]);
    let cluster = Cluster {
        served,
        ..Cluster::default()
    };
    let cluster = cluster
        .with(installed(&a, "a", "1.0.0"))
        .owning(installed(&b, "b", "1.0.0"));
    cluster.gives(&b, "b", Some("1.0.0"), "b.v1.0.0");
    cluster.resolution(&b, "b", Some("1.0.0"), |found| {
        let text = found.unwrap().blocked[0].blockers[0].to_string();
        assert_eq!(
            text,
            "ClusterExtension my-a would be broken: API example.com/v1 B is not provided"
        );
    });
    let broken = broken_by_removal(&cluster.facts());
    assert_eq!(broken.len(), 1, "{broken:?}");
    // The user may override it.
    let overridden = Cluster {
        dependents: Dependents::MayBreak,
        ..cluster
    };
    overridden.gives(&b, "b", Some("1.0.0"), "b.v2.0.0");
    assert!(broken_by_removal(&overridden.facts()).is_empty());
}

#[test]
fn dependents_that_are_broken_or_have_another_provider_hold_nothing_back() {
    let a = book("a")
        .bundle("1.0.0", &[requires("B", "v1"), requires("X", "v1")])
        .package();
    let b = book("b").bundle("1.0.0", &[provides("B", "v1")]).package();
    let other = book("other").bundle("1.0.0", &[provides("B", "v1")]).package();
    let cluster = Cluster::default()
        .with(installed(&a, "a", "1.0.0"))
        .with(installed(&other, "other", "1.0.0"))
        .owning(installed(&b, "b", "1.0.0"));
    assert!(broken_by_removal(&cluster.facts()).is_empty());
}

#[test]
fn a_new_bundle_that_another_one_excludes_is_refused() {
    let none = json!({"not": {"constraints": [{"gvk": api("Green", "v1")}]}});
    let red = book("red").bundle("1.0.0", &[constraint(&none)]).package();
    let green = book("green")
        .bundle("1.0.0", &[provides("Green", "v1")])
        .package();
    Cluster::default().with(installed(&red, "red", "1.0.0")).refused(
        &green,
        "green",
        &["ClusterExtension my-red would be broken", "must not be there"],
    );
}
