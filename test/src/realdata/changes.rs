//! Plans of changes match the applied objects: for each two versions of a real package that render, the added, changed
//! and removed objects of the plan lead from the objects of one version to those of the other, in both directions.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use olm_api::cluster_extension::BundleMetadata;
use olm_api::cluster_object_set::CollisionProtection;
use olm_bundle::{CertificateProvider, InstallMode, Prepared};
use olm_plan::change::all_comparable;
use olm_plan::phases::{CommonMetadata, phases};
use olm_plan::{BundleIdentity, Change, ChangePlan};
use olm_rollout::canonical;
use olm_rollout::policy::Uninstall;
use serde_json::Value;

use super::bundles::{NAMESPACE, attempt, directories, read, supported_modes};
use super::{Case, guarded};

/// A version of a package, rendered in every way that it supports.
struct Version {
    name: String,
    rendered: BTreeMap<InstallMode, Prepared>,
}

/// Plans the change between each two versions of a package in `dir/bundles/PACKAGE/VERSION`, in every way that both
/// support.
pub fn run(dir: &Path) -> Vec<Case> {
    let root = dir.join("bundles");
    let mut cases = Vec::new();
    for package in directories(&root) {
        let versions: Vec<Version> = directories(&root.join(&package))
            .into_iter()
            .filter_map(|name| version(&root.join(&package).join(&name), &name))
            .collect();
        for from in &versions {
            for to in versions.iter().filter(|to| to.name != from.name) {
                let outcome = guarded(|| examine(&package, from, to).map_err(|error| format!("{error:#}")));
                let case = format!("changes/{package}/{}..{}", from.name, to.name);
                match outcome {
                    Ok(0) => {}
                    outcome => cases.push((case, outcome.map(|_| "planned as applied".to_owned()))),
                }
            }
        }
    }
    cases
}

/// `None` if the bundle cannot be read: [`super::bundles`] checks the reasons.
fn version(path: &Path, name: &str) -> Option<Version> {
    let files = read(path).ok()?;
    let bundle = olm_bundle::parse(&files, &BTreeMap::new()).ok()?;
    let rendered = supported_modes(&bundle).into_iter().filter_map(|mode| {
        let prepared = attempt(&files, mode, Some(CertificateProvider::SelfSigned)).ok()?;
        Some((mode, prepared))
    });
    Some(Version {
        name: name.to_owned(),
        rendered: rendered.collect(),
    })
}

/// The number of install modes for which the change was planned.
fn examine(package: &str, from: &Version, to: &Version) -> Result<usize> {
    let mut count = 0;
    for (mode, old) in &from.rendered {
        if let Some(new) = to.rendered.get(mode) {
            plan(package, (from, old), (to, new))?;
            count += 1;
        }
    }
    Ok(count)
}

fn plan(package: &str, from: (&Version, &Prepared), to: (&Version, &Prepared)) -> Result<()> {
    let objects = |prepared: &Prepared| -> Result<Vec<Value>> {
        let marks = CommonMetadata {
            extension: "extension",
            package,
            version: &prepared.bundle.csv().spec.version,
        };
        let groups = phases(prepared.rendered.objects().to_vec(), marks)?;
        Ok(groups.into_iter().flat_map(|group| group.objects).collect())
    };
    let (rendered, after) = (objects(from.1)?, objects(to.1)?);
    // The old revision is read in its stored form.
    let stored = rendered
        .iter()
        .map(|object| serde_json::from_slice(&canonical::to_vec(object)));
    let before = stored.collect::<Result<Vec<Value>, _>>()?;
    let identity = |version: &Version, prepared: &Prepared| BundleIdentity {
        package: package.to_owned(),
        metadata: BundleMetadata {
            name: prepared.bundle.name().to_owned(),
            version: version.name.clone(),
            release: None,
        },
        image: format!("registry.example/{package}:{}", version.name),
    };
    let (installed, wanted) = (identity(from.0, from.1), identity(to.0, to.1));
    let account = format!("{NAMESPACE}/installer");
    let planned = |wanted: &BundleIdentity, before: &[&Value], after: &[&Value]| {
        ChangePlan::new(&Change {
            extension: "extension",
            account: &account,
            installed_account: Some(&account),
            installed: Some(&installed),
            wanted,
            catalog: "catalog",
            passed: &[],
            uninstall: Uninstall::Delete,
            adopt: CollisionProtection::Prevent,
            before,
            after,
            needs: None,
        })
    };
    let (mut old, mut new): (Vec<&Value>, Vec<&Value>) = (before.iter().collect(), after.iter().collect());
    let plan = planned(&wanted, &old, &new);
    ensure!(!plan.is_empty(), "another version changes nothing");
    let (applied, expected) = (plan.apply(&old), all_comparable(&new));
    if applied != expected {
        let differs = expected
            .iter()
            .find(|(id, object)| applied.get(*id) != Some(*object));
        anyhow::bail!("the plan leads to other objects: {differs:?}");
    }
    let rendered: Vec<&Value> = rendered.iter().collect();
    ensure!(
        planned(&wanted, &rendered, &new) == plan,
        "what is stored is planned differently"
    );
    ensure!(
        planned(&installed, &old, &rendered).is_empty(),
        "the same version changes something"
    );
    old.reverse();
    new.reverse();
    ensure!(
        planned(&wanted, &old, &new).digest == plan.digest,
        "the digest depends on the order"
    );
    Ok(())
}
