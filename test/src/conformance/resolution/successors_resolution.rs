//! `successors-resolution.json`: a bundle for catalogs, a request and an installed bundle.

use std::collections::{BTreeMap, HashSet};

use olm_fbc::{Blob, Bundle, Deprecations, Property, SCHEMA_BUNDLE, SCHEMA_CHANNEL};
use olm_resolve::{
    Availability, Catalog, ClusterPlatform, ClusterState, Dependents, Installed, Package, PackageAnswer,
    Reason, ReleaseField, Request, Resolution, Selector, UpgradeConstraintPolicy, resolve, resolve_in,
    successors,
};
use serde_json::{Value, json};

use crate::conformance::{Outcome, compare_version, expect};

/// The label by which a selector names a catalog.
const NAME_LABEL: &str = "olm.operatorframework.io/metadata.name";
/// The gate that makes the field `release` of a bundle's package property count.
const RELEASE_GATE: &str = "BundleReleaseSupport";

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    let found = match text(case, "kind") {
        "resolve" => return run_resolve(case),
        "successors" => run_successors(case),
        "bundle_version" => return run_bundle_version(case),
        "order_highest_first" => run_order(case),
        "no_dependency_validation" => run_dependencies(case),
        other => Err(format!("unknown kind {other:?}")),
    };
    match found {
        Ok(outcome) => outcome,
        Err(fault) => Outcome::Fail(fault),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn optional<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The case names the gate, or the name of its original test does.
fn releases(case: &Value) -> ReleaseField {
    let is_listed = list(case, "featureGates").iter().any(|gate| gate == RELEASE_GATE);
    if is_listed || text(case, "id").contains("gate-enabled") {
        ReleaseField::Counts
    } else {
        ReleaseField::Ignored
    }
}

/// A bundle whose property values may be text that is not JSON.
fn bundle(object: &Value) -> Bundle {
    let properties = list(object, "properties").iter().map(|property| {
        let value = match (optional(property, "valueText"), property.get("value")) {
            (Some(text), _) => text.to_owned(),
            (None, Some(value)) => value.to_string(),
            (None, None) => String::new(),
        };
        Property::new(text(property, "type"), value)
    });
    Bundle {
        name: text(object, "name").to_owned(),
        package: text(object, "package").to_owned(),
        image: text(object, "image").to_owned(),
        properties: properties.collect::<Vec<_>>().into(),
        ..Bundle::default()
    }
}

fn blob(object: &Value) -> Result<Blob, String> {
    match text(object, "schema") {
        SCHEMA_BUNDLE => Ok(Blob::Bundle(bundle(object))),
        schema => Blob::from_json(schema, &object.to_string()).map_err(|fault| fault.to_string()),
    }
}

fn installed(case: &Value) -> Option<Installed<'_>> {
    let installed = case.get("installed").filter(|installed| !installed.is_null())?;
    Some(Installed {
        name: text(installed, "name"),
        version: text(installed, "version"),
        release: optional(installed, "release"),
    })
}

/// A catalog of a case: its labels, and its content prepared.
struct Prepared<'a> {
    name: &'a str,
    priority: i32,
    labels: BTreeMap<String, String>,
    availability: Availability,
    package: Option<Package>,
    fault: Option<&'a str>,
}

fn prepare(catalog: &Value, releases: ReleaseField) -> Result<Prepared<'_>, String> {
    let name = text(catalog, "name");
    let mut labels: BTreeMap<String, String> = catalog
        .get("labels")
        .cloned()
        .and_then(|labels| serde_json::from_value(labels).ok())
        .unwrap_or_default();
    labels.insert(NAME_LABEL.to_owned(), name.to_owned());
    let blobs = list(catalog, "fbc")
        .iter()
        .map(blob)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Prepared {
        name,
        priority: catalog
            .get("priority")
            .and_then(Value::as_i64)
            .and_then(|priority| i32::try_from(priority).ok())
            .unwrap_or_default(),
        labels,
        availability: match text(catalog, "availabilityMode") {
            "Unavailable" => Availability::Unavailable,
            _ => Availability::Available,
        },
        package: if blobs.is_empty() {
            None
        } else {
            Some(Package::new(blobs, releases).map_err(|error| error.to_string())?)
        },
        fault: optional(catalog, "getPackageError"),
    })
}

fn run_resolve(case: &Value) -> Outcome {
    let catalogs: Result<Vec<_>, _> = list(case, "catalogs")
        .iter()
        .map(|catalog| prepare(catalog, releases(case)))
        .collect();
    let catalogs = match catalogs {
        Ok(catalogs) => catalogs,
        Err(fault) => return Outcome::Fail(fault),
    };
    let asked = case.get("request").unwrap_or(&Value::Null);
    let channels: Vec<String> = list(asked, "channels")
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let selector: Option<Selector> = asked
        .get("selector")
        .cloned()
        .and_then(|selector| serde_json::from_value(selector).ok());
    let request = Request {
        package: text(asked, "packageName"),
        version: optional(asked, "version").filter(|version| !version.is_empty()),
        channels: &channels,
        selector: selector.as_ref(),
        policy: match text(asked, "upgradeConstraintPolicy") {
            "SelfCertified" => UpgradeConstraintPolicy::SelfCertified,
            _ => UpgradeConstraintPolicy::CatalogProvided,
        },
    };
    let inputs: Vec<Catalog<'_>> = catalogs
        .iter()
        .map(|catalog| Catalog {
            name: catalog.name,
            priority: catalog.priority,
            labels: &catalog.labels,
            availability: catalog.availability,
            answer: match (catalog.fault, &catalog.package) {
                (Some(fault), _) => PackageAnswer::Failed(fault),
                (None, Some(package)) => PackageAnswer::Package(package),
                (None, None) => PackageAnswer::Absent,
            },
        })
        .collect();
    if refuses_dependencies(case) && expect(case, "dependencies") == "evaluated" {
        return evaluated(case, &inputs, &request);
    }
    match resolve(&inputs, &request, installed(case).as_ref()) {
        Ok(resolution) => resolved(case, &resolution),
        Err(refusal) => {
            let found = refusal.to_string();
            let found = found.lines().next().unwrap_or_default().to_owned();
            Outcome::compare("error", &expected_error(case), &Some(found))
        }
    }
}

/// Whether the recorded outcome is a refusal because the reference implementation evaluates no dependencies.
fn refuses_dependencies(case: &Value) -> bool {
    let error = expect(case, "error").as_str().unwrap_or_default();
    error.contains("has a dependency declared via property")
}

/// On an empty cluster, a bundle with requirements is blocked, and the error names it; another one may be chosen.
fn evaluated(case: &Value, catalogs: &[Catalog<'_>], request: &Request<'_>) -> Outcome {
    let served = HashSet::new();
    let facts = ClusterState {
        others: &[],
        own: None,
        served: &served,
        platform: ClusterPlatform::default(),
        dependents: Dependents::Protected,
    };
    let named = |bundle: &str| {
        let error = expect(case, "error").as_str().unwrap_or_default();
        error.contains(&format!("{bundle:?}"))
    };
    match resolve_in(catalogs, request, installed(case).as_ref(), &facts) {
        Ok(found)
            if found.bundle.requirements.is_empty()
                && found.blocked.iter().any(|blocked| named(&blocked.bundle.name)) =>
        {
            Outcome::Pass
        }
        Ok(found) => Outcome::Fail(format!("{} is chosen", found.bundle.name)),
        Err(refusal) => match refusal.reason() {
            Reason::Blocked { bundle, .. } if named(bundle) => Outcome::Pass,
            other => Outcome::Fail(format!("refused because of {other}")),
        },
    }
}

/// The recorded error. If only the catalogs that share the highest priority must be named, the others are removed from
/// its list.
fn expected_error(case: &Value) -> Option<String> {
    let error = expect(case, "error").as_str()?;
    let unreadable = "failed to get version and release of installed bundle: ";
    if let Some((before, fault)) = error.split_once(unreadable)
        && expect(case, "installed_version") == "named"
    {
        let version = case.get("installed").map(|installed| text(installed, "version"));
        let version = version.unwrap_or_default();
        return Some(format!(
            "{before}{unreadable}error parsing version {version:?}: {fault}"
        ));
    }
    let only_tied = expect(case, "names_only_tied_catalogs")
        .as_bool()
        .unwrap_or_default();
    let mark = "in multiple catalogs with the same priority [";
    let Some((before, names)) = error.split_once(mark).filter(|_| only_tied) else {
        return Some(error.to_owned());
    };
    let priority = |name: &str| {
        let catalog = list(case, "catalogs")
            .iter()
            .find(|catalog| text(catalog, "name") == name)?;
        Some(
            catalog
                .get("priority")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
        )
    };
    let names: Vec<&str> = names.trim_end_matches(']').split(' ').collect();
    let highest = names.iter().filter_map(|name| priority(name)).max();
    let tied: Vec<&str> = names
        .into_iter()
        .filter(|name| priority(name) == highest)
        .collect();
    Some(format!("{before}{mark}{}]", tied.join(" ")))
}

fn resolved(case: &Value, resolution: &Resolution<'_>) -> Outcome {
    let version = match &resolution.bundle.version {
        Ok(version) => version,
        Err(fault) => return Outcome::Fail(format!("chosen without a version: {fault}")),
    };
    let release = version
        .release
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let deprecation = if expect(case, "deprecation_is_of_the_winner")
        .as_bool()
        .unwrap_or_default()
    {
        deprecation_in(case, resolution.catalog)
    } else {
        expect(case, "deprecation").clone()
    };
    Outcome::compare("ok", &expect(case, "ok"), &&json!(true))
        .and(|| Outcome::compare("bundle", &expect(case, "bundle"), &&json!(resolution.bundle.name)))
        .and(|| {
            Outcome::compare(
                "version",
                &expect(case, "version"),
                &&json!(version.version.to_string()),
            )
        })
        .and(|| Outcome::compare("release", &expect(case, "release"), &&json!(release)))
        .and(|| {
            Outcome::compare(
                "deprecation",
                &deprecation,
                &deprecations(resolution.package.deprecations()),
            )
        })
}

/// The deprecations in a catalog of the case.
fn deprecation_in(case: &Value, name: &str) -> Value {
    list(case, "catalogs")
        .iter()
        .filter(|catalog| text(catalog, "name") == name)
        .flat_map(|catalog| list(catalog, "fbc"))
        .find(|object| text(object, "schema") == "olm.deprecations")
        .cloned()
        .unwrap_or(Value::Null)
}

fn deprecations(deprecations: Option<&Deprecations>) -> Value {
    let Some(deprecations) = deprecations else {
        return Value::Null;
    };
    let entries = deprecations.entries.iter().map(|entry| {
        let mut reference = json!({"schema": entry.reference.schema});
        if !entry.reference.name.is_empty() {
            reference["name"] = json!(entry.reference.name);
        }
        json!({"reference": reference, "message": entry.message})
    });
    let entries: Vec<Value> = entries.collect();
    json!({"schema": "olm.deprecations", "package": deprecations.package, "entries": entries})
}

fn run_successors(case: &Value) -> Result<Outcome, String> {
    let channels = list(case, "channels").iter().map(|channel| {
        Blob::from_json(SCHEMA_CHANNEL, &channel.to_string()).map_err(|fault| fault.to_string())
    });
    let bundles = list(case, "bundles")
        .iter()
        .map(|object| Ok(Blob::Bundle(bundle(object))));
    let blobs = channels.chain(bundles).collect::<Result<Vec<_>, String>>()?;
    let package = Package::new(blobs, releases(case)).map_err(|error| error.to_string())?;
    let installed = installed(case).ok_or("nothing is installed")?;
    match successors(&package, &Request::default(), &installed) {
        Ok(found) => {
            let mut found: Vec<&str> = found
                .iter()
                .map(|(candidate, _)| candidate.name.as_str())
                .collect();
            let mut allowed: Vec<&str> = expect(case, "allowed")
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            found.sort_unstable();
            allowed.sort_unstable();
            Ok(Outcome::compare("allowed", &allowed, &found))
        }
        Err(refusal) => {
            let found = refusal.to_string();
            let expected = expect(case, "error").as_str().unwrap_or("(success)");
            // The texts of the steps before the version is read differ.
            Ok(
                if found.ends_with(expected.rsplit(": ").next().unwrap_or_default()) {
                    Outcome::Pass
                } else {
                    Outcome::Fail(format!("expected {expected:?}, got {found:?}"))
                },
            )
        }
    }
}

fn run_bundle_version(case: &Value) -> Outcome {
    let package = Package::new([Blob::Bundle(bundle(case))], releases(case)).unwrap_or_default();
    let Some(candidate) = package.candidates().first() else {
        return Outcome::Fail("no bundle".to_owned());
    };
    match &candidate.version {
        Ok(found) => compare_version(case, found),
        Err(fault) => match expect(case, "error").as_str() {
            // The rest is the text of another JSON parser.
            Some(expected) if expected.starts_with("error unmarshalling package property: ") => {
                Outcome::compare(
                    "error",
                    &true,
                    &fault
                        .to_string()
                        .starts_with("error unmarshalling package property: "),
                )
            }
            expected => Outcome::compare("error", &expected, &Some(fault.to_string().as_str())),
        },
    }
}

fn run_order(case: &Value) -> Result<Outcome, String> {
    let blobs = list(case, "bundles")
        .iter()
        .map(|object| Blob::Bundle(bundle(object)));
    let package = Package::new(blobs, releases(case)).map_err(|error| error.to_string())?;
    let found: Vec<&str> = package
        .newest_first()
        .iter()
        .map(|candidate| candidate.name.as_str())
        .collect();
    let expected = case.get("expect").ok_or("no expectation")?;
    Ok(Outcome::compare("order", expected, &json!(found)))
}

fn run_dependencies(case: &Value) -> Result<Outcome, String> {
    let object = case.get("bundle").ok_or("no bundle")?;
    let package =
        Package::new([Blob::Bundle(bundle(object))], releases(case)).map_err(|error| error.to_string())?;
    let candidate = package.candidates().first().ok_or("no bundle")?;
    // Ours evaluates dependencies that the reference implementation refuses; both must find the declarations.
    Ok(Outcome::compare(
        "declares dependencies",
        &refuses_dependencies(case),
        &!candidate.requirements.is_empty(),
    ))
}
