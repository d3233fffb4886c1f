//! Extensions that only move together.

use std::collections::BTreeMap;

use olm_resolve::cluster::joint_update::{BudgetExceeded, Participant, SearchBudget, joint_update, options};
use olm_resolve::cluster::related::Relations;
use olm_resolve::{Installed, Package, Request};
use serde_json::{Value, json};

use crate::dependencies::{
    Cluster, book, catalog, constraint, gvk, installed, provides, requires, requires_package,
};

/// Packages, each with the version that ClusterExtension `my-NAME` has installed, if any.
type World<'a> = &'a [(&'static str, &'a Package, Option<&'a str>)];

/// The cluster as the extension of one of the packages sees it.
fn cluster(world: World<'_>, own: &str) -> Cluster {
    let mut cluster = Cluster::default();
    for (name, package, version) in world {
        let Some(version) = version else { continue };
        let there = installed(package, name, version);
        cluster = if *name == own {
            cluster.owning(there)
        } else {
            cluster.with(there)
        };
    }
    cluster
}

/// The update of the extension of a package and of its companions, as `NAME VERSION` each; empty if it stays.
fn plan(world: World<'_>, own: &str, served: &[(&str, &str)]) -> Vec<String> {
    plan_within(world, own, served, &mut SearchBudget::default()).unwrap()
}

/// The same with a given budget.
fn plan_within(
    world: World<'_>,
    own: &str,
    served: &[(&str, &str)],
    budget: &mut SearchBudget,
) -> Result<Vec<String>, BudgetExceeded> {
    let mut cluster = cluster(world, own);
    cluster
        .served
        .extend(served.iter().map(|(kind, version)| gvk(kind, version)));
    let labels = BTreeMap::new();
    let names: BTreeMap<&str, String> = world
        .iter()
        .map(|(name, ..)| (*name, format!("my-{name}")))
        .collect();
    let participants: Vec<Participant<'_>> = world
        .iter()
        .map(|(name, package, version)| {
            let bundle = version.map(|version| format!("{name}.v{version}"));
            let installed = version.zip(bundle.as_deref()).map(|(version, name)| Installed {
                name,
                version,
                release: None,
            });
            let request = Request {
                package: name,
                ..Request::default()
            };
            Participant {
                extension: &names[name],
                options: options(
                    &[catalog(package, &labels)],
                    &request,
                    installed.as_ref(),
                    &cluster.facts(),
                )
                .unwrap(),
            }
        })
        .collect();
    let (mine, others): (Vec<_>, Vec<_>) = participants
        .into_iter()
        .partition(|participant| participant.extension == names[own]);
    let Some((found, along)) = joint_update(&mine[0], &others, &cluster.facts(), budget)? else {
        return Ok(Vec::new());
    };
    let mut plan: Vec<String> = along.values().map(|bundle| bundle.name.clone()).collect();
    plan.push(found.bundle.name.clone());
    plan.sort();
    Ok(plan)
}

/// The bundle that each participant ends up with.
#[track_caller]
fn check(world: World<'_>, expected: &[(&str, &[&str])]) {
    for (own, moves) in expected {
        assert_eq!(plan(world, own, &[]), *moves, "seen from {own}");
    }
}

/// A package whose versions need the same versions of others.
fn tied(name: &'static str, others: &[&str]) -> Package {
    let properties = |version: &str| {
        let mut all = vec![provides(name, version)];
        all.extend(others.iter().map(|other| requires(other, version)));
        all
    };
    book(name)
        .bundle("1.0.0", &properties("v1"))
        .bundle("2.0.0", &properties("v2"))
        .channel("stable", &["2.0.0", "1.0.0"])
        .package()
}

#[test]
fn two_extensions_that_must_move_together_do() {
    let (a, b) = (tied("a", &["b"]), tied("b", &["a"]));
    let at = Some("1.0.0");
    for own in ["a", "b"] {
        let package = if own == "a" { &a } else { &b };
        // Alone neither can move, nor when the other may not.
        let cluster = cluster(&[("a", &a, at), ("b", &b, at)], own);
        cluster.gives(package, own, at, &format!("{own}.v1.0.0"));
        assert_eq!(plan(&[(own, package, at)], own, &[]), [""; 0]);
    }
    let both: &[&str] = &["a.v2.0.0", "b.v2.0.0"];
    check(&[("a", &a, at), ("b", &b, at)], &[("a", both), ("b", both)]);
}

#[test]
fn extensions_that_need_each_other_are_installed_together() {
    let (a, b) = (tied("a", &["b"]), tied("b", &["a"]));
    let both: &[&str] = &["a.v2.0.0", "b.v2.0.0"];
    check(&[("a", &a, None), ("b", &b, None)], &[("a", both), ("b", both)]);
}

#[test]
fn any_number_of_extensions_may_go_round_in_a_circle() {
    let (a, b, c, d) = (
        tied("a", &["b"]),
        tied("b", &["c"]),
        tied("c", &["d"]),
        tied("d", &["a"]),
    );
    let all: &[&str] = &["a.v2.0.0", "b.v2.0.0", "c.v2.0.0", "d.v2.0.0"];
    for at in [Some("1.0.0"), None] {
        let world = [("a", &a, at), ("b", &b, at), ("c", &c, at), ("d", &d, at)];
        check(&world, &[("a", all), ("b", all), ("c", all), ("d", all)]);
        // One extension that may not be updated blocks all.
        check(&world[..3], &[("a", &[]), ("b", &[]), ("c", &[])]);
    }
}

#[test]
fn one_that_would_be_broken_may_need_a_third_one() {
    // The new a requires nothing and breaks b, whose new version needs the new c.
    let a = book("a")
        .bundle("1.0.0", &[provides("a", "v1")])
        .bundle("2.0.0", &[provides("a", "v2")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    let (b, c) = (tied("b", &["a", "c"]), tied("c", &["b"]));
    let at = Some("1.0.0");
    let all: &[&str] = &["a.v2.0.0", "b.v2.0.0", "c.v2.0.0"];
    check(
        &[("a", &a, at), ("b", &b, at), ("c", &c, at)],
        &[("a", all), ("b", all), ("c", all)],
    );
}

#[test]
fn all_come_to_the_same_answer_where_there_are_several() {
    // The newest a fits an older b and the newest b an older a.
    let package = |name: &'static str, other: &'static str| {
        book(name)
            .bundle("1.0.0", &[requires_package(other, "1.0.0")])
            .bundle("2.0.0", &[requires_package(other, "3.0.0")])
            .bundle("3.0.0", &[requires_package(other, "2.0.0")])
            .channel("stable", &["3.0.0", "2.0.0", "1.0.0"])
            .channel("leap", &["3.0.0", "1.0.0"])
            .package()
    };
    let (a, b) = (package("a", "b"), package("b", "a"));
    let at = Some("1.0.0");
    let both: &[&str] = &["a.v3.0.0", "b.v2.0.0"];
    check(&[("a", &a, at), ("b", &b, at)], &[("a", both), ("b", both)]);
}

#[test]
fn a_choice_that_leads_nowhere_is_given_up_for_another() {
    // Both versions of b provide what the new a needs; the newer one needs a package that no catalog has.
    let a = book("a")
        .bundle("1.0.0", &[requires("b", "v1")])
        .bundle("2.0.0", &[requires("b", "v2")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    let b = book("b")
        .bundle("1.0.0", &[provides("b", "v1")])
        .bundle("2.0.0", &[provides("b", "v2")])
        .bundle("3.0.0", &[provides("b", "v2"), requires("c", "v9")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .channel("next", &["3.0.0", "1.0.0"])
        .package();
    let at = Some("1.0.0");
    let both: &[&str] = &["a.v2.0.0", "b.v2.0.0"];
    check(&[("a", &a, at), ("b", &b, at)], &[("a", both), ("b", both)]);
}

#[test]
fn requirements_of_others_on_the_cluster_count() {
    let a = tied("a", &["b"]);
    let b = book("b")
        .bundle("1.0.0", &[provides("b", "v1"), requires("a", "v1")])
        .bundle(
            "2.0.0",
            &[provides("b", "v2"), requires("a", "v2"), requires("native", "v1")],
        )
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    let world = [("a", &a, Some("1.0.0")), ("b", &b, Some("1.0.0"))];
    assert_eq!(plan(&world, "a", &[("native", "v1")]), ["a.v2.0.0", "b.v2.0.0"]);
    assert_eq!(plan(&world, "a", &[]), [""; 0]);
}

#[test]
fn who_is_tied_by_requirements_is_found_over_others() {
    // a needs b, b needs c; d needs the package a; nothing is related to e.
    let on_a = book("d")
        .bundle("1.0.0", &[requires_package("a", "1.0.0")])
        .package();
    let world = [
        ("a", &tied("a", &["b"])),
        ("b", &tied("b", &["c"])),
        ("c", &tied("c", &[])),
        ("d", &on_a),
        ("e", &tied("e", &[])),
    ];
    let reached = |relations: &Relations| -> Vec<&str> {
        let there = world
            .iter()
            .map(|(name, package)| (*name, installed(package, name, "1.0.0")));
        let reached = there.filter(|(name, there)| relations.reach(name, Some(there)));
        reached.map(|(name, _)| name).collect()
    };
    let mut relations = Relations::default();
    assert_eq!(reached(&relations), [""; 0]);
    relations.add_package(world[0].1);
    assert_eq!(reached(&relations), ["b", "d"]);
    relations.add(&installed(world[1].1, "b", "1.0.0"));
    assert_eq!(reached(&relations), ["a", "b", "c", "d"]);
    // A required package is reached before any of its APIs exist.
    relations.add(&installed(&on_a, "d", "1.0.0"));
    assert!(relations.reach("a", None) && !relations.reach("e", None));
}

/// Names of packages.
const NAMES: [&str; 20] = [
    "p00", "p01", "p02", "p03", "p04", "p05", "p06", "p07", "p08", "p09", "p10", "p11", "p12", "p13", "p14",
    "p15", "p16", "p17", "p18", "p19",
];

#[test]
fn the_largest_circle_of_extensions_is_far_within_the_budget() {
    let packages: Vec<Package> = NAMES
        .iter()
        .zip(NAMES.iter().cycle().skip(1))
        .map(|(name, next)| tied(name, &[next]))
        .collect();
    let world: Vec<_> = NAMES
        .iter()
        .zip(&packages)
        .map(|(name, package)| (*name, package, Some("1.0.0")))
        .collect();
    for own in ["p00", "p19"] {
        let plan = plan_within(&world, own, &[], &mut SearchBudget::new(5_000_000)).unwrap();
        assert_eq!(plan.len(), NAMES.len(), "{plan:?}");
    }
}

/// A package of five versions. Each version excludes all but one version of all others, by a rule with the maximum
/// number of steps.
fn hostile(name: &'static str) -> Package {
    let slow = "properties.all(a, properties.all(b, properties.all(c, a.type != 'x' || b.type != 'y' || c.type != 'z')))";
    let rule = constraint(&json!({"not": {"constraints": [{"cel": {"rule": format!("{slow} && false")}}]}}));
    let lack = constraint(&json!({"cel": {"rule": format!("{slow} && false")}}));
    let filler = (0..90).map(|number| json!({"type": format!("filler.{number}"), "value": number}));
    let filler: Vec<Value> = filler.collect();
    let versions = ["1.0.0", "1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.0.5"];
    let mut book = book(name);
    for version in versions {
        let mut properties = vec![provides(name, version), rule.clone()];
        properties.extend(
            NAMES
                .iter()
                .filter(|other| **other != name)
                .map(|other| requires(other, version)),
        );
        properties.extend(filler.iter().cloned());
        if version != "1.0.0" {
            properties.push(lack.clone());
        }
        book = book.bundle(version, &properties);
    }
    book.channel("stable", &["1.0.5", "1.0.4", "1.0.3", "1.0.2", "1.0.1", "1.0.0"])
        .package()
}

/// Without one budget for all of it this would take hours: dozens of rules for each of thousands of sets.
#[test]
fn catalogs_that_make_the_search_hard_end_it() {
    let packages: Vec<Package> = NAMES.iter().map(|name| hostile(name)).collect();
    for at in [None, Some("1.0.0")] {
        let world: Vec<_> = NAMES
            .iter()
            .zip(&packages)
            .map(|(name, package)| (*name, package, at))
            .collect();
        let mut budget = SearchBudget::new(3_000_000);
        assert_eq!(plan_within(&world, "p10", &[], &mut budget), Err(BudgetExceeded));
        assert!(budget.is_spent());
        // The next attempt has no budget of its own.
        assert_eq!(plan_within(&world, "p10", &[], &mut budget), Err(BudgetExceeded));
    }
}
