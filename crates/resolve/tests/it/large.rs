//! One package over five thousand bundles. `make bench` measures the duration.

use crate::common::{TestCatalog, catalogs, shelf};
use olm_constraint::Subject;
use olm_fbc::Property;
use olm_resolve::{
    ClusterPlatform, ClusterState, Installed, InstalledExtension, ReleaseField, Request, resolve, resolve_in,
};
use semver::Version;
use serde_json::json;

fn large() -> TestCatalog {
    let versions: Vec<String> = (0..50)
        .flat_map(|major| (0..100).map(move |minor| format!("{major}.{minor}.0")))
        .collect();
    let entries: Vec<_> = versions
        .iter()
        .enumerate()
        .map(|(index, version)| {
            let before = index.checked_sub(1).map(|before| format!("foo.v{}", versions[before]));
            json!({"name": format!("foo.v{version}"), "replaces": before, "skipRange": format!(">=0.1.0 <{version}")})
        })
        .collect();
    let names: Vec<&str> = versions.iter().map(String::as_str).collect();
    shelf("a")
        .bundles(&names)
        .channel("stable", &entries)
        .channel("candidate", &entries)
}

#[test]
fn the_newest_of_five_thousand_bundles_that_follows_is_chosen() {
    let shelves = [large()];
    let packages = [shelves[0].package(ReleaseField::Counts)];
    assert_eq!(packages[0].candidates().len(), 5000);
    let catalogs = catalogs(&shelves, &packages);
    let channels = ["stable".to_owned(), "candidate".to_owned()];
    let request = Request {
        package: "foo",
        version: Some(">=1.0.0, <49"),
        channels: &channels,
        ..Request::default()
    };
    let installed = Installed {
        name: "foo.v3.7.0",
        version: "3.7.0",
        release: None,
    };
    let resolution = resolve(&catalogs, &request, Some(&installed));
    let chosen = resolution.map(|resolution| resolution.bundle.name.as_str());
    assert_eq!(chosen.unwrap_or_default(), "foo.v48.99.0");
}

/// Every version requires one of a hundred APIs, a package or one of ten rules; only the requirement of the oldest can
/// be met.
fn demanding() -> TestCatalog {
    let mut shelf = shelf("a");
    for number in 0..5000 {
        let options: Vec<_> = (0..3)
            .map(|option| json!({"gvk": {"group": "example.com", "version": format!("v{}", number % 100), "kind": format!("K{option}")}}))
            .collect();
        let rule = format!(
            "properties.exists(p, p.type == 'certified' && p.value == {})",
            number % 10
        );
        let any = json!({"any": {"constraints": [options[0], options[1], options[2],
            {"package": {"packageName": format!("p{number}"), "versionRange": ">=1.0.0 <2.0.0"}}, {"cel": {"rule": rule}}]}});
        let mut properties = vec![
            json!({"type": "olm.package", "value": {"packageName": "foo", "version": format!("1.0.{number}")}}),
        ];
        if number > 0 {
            properties.push(json!({"type": "olm.constraint", "value": any}));
        }
        shelf = shelf.bundle(&format!("foo.v1.0.{number}"), &json!(properties));
    }
    shelf
}

/// Installed extensions that meet none of the requirements.
fn crowd() -> Vec<InstalledExtension> {
    (0..50)
        .map(|number| {
            let mut properties: Vec<Property> = (0..20)
                .map(|index| Property::new(format!("example.{index}"), number.to_string()))
                .collect();
            let api = json!({"group": "crowd.example.com", "version": "v1", "kind": format!("K{number}")});
            properties.push(Property::new("olm.gvk", api.to_string()));
            let name = format!("crowd-{number}");
            InstalledExtension {
                subject: Subject::new(name.clone(), name, Some(Version::new(1, 0, 0)), properties),
                requirements: Vec::new(),
            }
        })
        .collect()
}

#[test]
fn the_search_over_five_thousand_constraints_ends_at_the_one_that_holds() {
    let shelves = [demanding()];
    let served = std::collections::HashSet::new();
    let others = crowd();
    let facts = ClusterState {
        others: &others,
        own: None,
        served: &served,
        platform: ClusterPlatform::default(),
        dependents: olm_resolve::Dependents::Protected,
    };
    let request = Request {
        package: "foo",
        ..Request::default()
    };
    let packages = [shelves[0].package(ReleaseField::Counts)];
    let catalogs = catalogs(&shelves, &packages);
    // The second search finds the constraints read.
    for _ in 0..2 {
        let resolution = resolve_in(&catalogs, &request, None, &facts);
        assert_eq!(resolution.unwrap().bundle.name, "foo.v1.0.0");
    }
}
