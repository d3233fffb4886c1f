//! The search for the newest bundle whose requirements hold.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use anyhow::{Context as _, Result};
use olm_fbc::Blob;
use olm_resolve::{
    Availability, Catalog, ClusterPlatform, ClusterState, Content, Dependents, Package, ReleaseField,
    Request, resolve_in,
};
use serde_json::json;

use super::Figures;

/// How many bundles the package has.
const BUNDLES: usize = 5000;

/// Every version but the oldest asks for one of three APIs, a package or a rule, and has none of them.
fn package() -> Result<Package> {
    let mut blobs = Vec::new();
    for number in 0..BUNDLES {
        let api = |option: usize| json!({"gvk": {"group": "example.com", "version": format!("v{}", number % 100), "kind": format!("K{option}")}});
        let range =
            json!({"package": {"packageName": format!("p{number}"), "versionRange": ">=1.0.0 <2.0.0"}});
        let rule = format!("properties.exists(p, p.type == 'certified' && p.value == {number})");
        let any = json!({"any": {"constraints": [api(0), api(1), api(2), range, {"cel": {"rule": rule}}]}});
        let mut properties = vec![
            json!({"type": "olm.package", "value": {"packageName": "p", "version": format!("1.0.{number}")}}),
        ];
        if number > 0 {
            properties.push(json!({"type": "olm.constraint", "value": any}));
        }
        let bundle = json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v1.0.{number}"), "image": "i",
            "properties": properties});
        blobs.push(Blob::from_json("olm.bundle", &bundle.to_string())?);
    }
    Ok(Package::new(blobs, ReleaseField::Counts)?)
}

/// Measures the first search, in which the constraints are read, and the best of the following.
pub(super) fn measure(figures: &mut Figures) -> Result<()> {
    let (package, labels, served) = (package()?, BTreeMap::new(), HashSet::new());
    let catalog = Catalog {
        name: "c",
        priority: 0,
        labels: &labels,
        availability: Availability::Available,
        content: Content::Package(&package),
    };
    let facts = ClusterState {
        neighbours: &[],
        own: None,
        served: &served,
        platform: ClusterPlatform::default(),
        dependents: Dependents::Protected,
    };
    let request = Request {
        package: "p",
        ..Request::default()
    };
    let search = || {
        let begin = Instant::now();
        let found = resolve_in(&[catalog], &request, None, &facts);
        let took = begin.elapsed();
        found.map(|_| took)
    };
    let first = search()?;
    let best = (0..20)
        .filter_map(|_| search().ok())
        .min()
        .context("no search ended")?;
    let milliseconds = |took: std::time::Duration| format!("{:.1} ms", took.as_secs_f64() * 1000.0);
    figures.add(
        &format!("search over {BUNDLES} bundles with constraints: first, then"),
        &format!("{}, {}", milliseconds(first), milliseconds(best)),
    );
    Ok(())
}
