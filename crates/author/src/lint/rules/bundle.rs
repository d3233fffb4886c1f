//! The references between the objects of a bundle.

use std::collections::BTreeSet;

use olm_bundle::object::object_name;
use olm_bundle::object::{list, text};
use olm_fbc::check::Severity;
use olm_fbc::check::image_reference;
use serde_json::Value;

use crate::lint::manifests::{Manifests, csvs, of_kind};
use crate::lint::rule_finding::{Options, RuleFinding};

/// The largest bundle in compressed bytes that fitted into the earlier storage of bundles.
const MAX_SIZE: usize = 1 << 20;

pub(super) fn lint(manifests: &Manifests, _: &Options) -> Vec<RuleFinding> {
    let Some((at, csv)) = csvs(manifests).next() else {
        return Vec::new();
    };
    let mut findings = definitions(manifests, csv);
    findings.extend(service_accounts(manifests, csv));
    findings.extend(size(manifests));
    let mut of_csv = Vec::new();
    of_csv.extend(name(manifests, csv));
    of_csv.extend(related_images(csv));
    findings.extend(of_csv.into_iter().map(|finding| finding.at(at)));
    findings
}

/// Group, version, kind.
type Api<'a> = (&'a str, &'a str, &'a str);

fn shown((group, version, kind): Api<'_>) -> String {
    format!("{group}/{version}, Kind={kind}")
}

fn definitions(manifests: &Manifests, csv: &Value) -> Vec<RuleFinding> {
    let bundle = &manifests.name;
    let error = |api: Api<'_>, detail: String| RuleFinding::bundle(Severity::Error, &shown(api), detail);
    let mut findings = Vec::new();
    let mut present: BTreeSet<Api<'_>> = BTreeSet::new();
    let mut places = Vec::new();
    for (at, definition) in of_kind(manifests, "CustomResourceDefinition") {
        let versions = list(definition, "/spec/versions").iter();
        let mut versions: Vec<&str> = versions.map(|version| text(version, "/name")).collect();
        // Only definitions of v1beta1 have their own version field.
        if versions.is_empty() && text(definition, "/apiVersion").ends_with("/v1beta1") {
            versions.push(text(definition, "/spec/version"));
        }
        for version in versions {
            let api = (
                text(definition, "/spec/group"),
                version,
                text(definition, "/spec/names/kind"),
            );
            places.push((api, at));
            if !present.insert(api) {
                let detail = format!("duplicate CRD {:?} in bundle {bundle:?}", shown(api));
                findings.push(error(api, detail).at(at));
            }
        }
    }
    let mut owned_kinds = BTreeSet::new();
    let mut left = present.clone();
    for owned in list(csv, "/spec/customresourcedefinitions/owned") {
        let name = text(owned, "/name");
        let group = name.split_once('.').map_or(name, |(_, group)| group);
        let api = (group, text(owned, "/version"), text(owned, "/kind"));
        if present.contains(&api) {
            left.remove(&api);
            owned_kinds.insert((api.0, api.2));
        } else {
            let detail = format!("owned CRD {:?} not found in bundle {bundle:?}", shown(api));
            findings
                .push(error(api, detail).hinted("add the definition to manifests/, or remove it from owned"));
        }
    }
    // Further versions of an owned definition need not be named.
    for api in left
        .into_iter()
        .filter(|api| !owned_kinds.contains(&(api.0, api.2)))
    {
        let detail = format!(
            "CRD {:?} is present in bundle {bundle:?} but not defined in CSV",
            shown(api)
        );
        let place = places.iter().find(|(found, _)| *found == api);
        let finding = error(api, detail)
            .hinted("list the API under spec.customresourcedefinitions.owned, or remove the file");
        findings.push(match place {
            Some((_, at)) => finding.at(*at),
            None => finding,
        });
    }
    findings
}

fn service_accounts(manifests: &Manifests, csv: &Value) -> Vec<RuleFinding> {
    let deployments = list(csv, "/spec/install/spec/deployments").iter();
    let used: BTreeSet<&str> = deployments
        .map(|deployment| text(deployment, "/spec/template/spec/serviceAccountName"))
        .collect();
    of_kind(manifests, "ServiceAccount")
        .filter(|(_, account)| text(account, "/apiVersion") == "v1")
        .map(|(at, account)| (at, object_name(account)))
        .filter(|(_, name)| used.contains(name))
        .map(|(at, name)| {
            let detail = format!(
                "invalid service account found in bundle. This service account {name} in your bundle is not valid, \
                 because a service account with the same name was already specified in your CSV. If this was \
                 unintentional, please remove the service account manifest from your bundle. If it was intentional to \
                 specify a separate service account, please rename the SA in either the bundle manifest or the CSV."
            );
            RuleFinding::bundle(Severity::Error, name, detail).at(at)
        })
        .collect()
}

fn size(manifests: &Manifests) -> Option<RuleFinding> {
    let sizes = || {
        format!(
            "size=~{} , max={}. Bundle uncompressed size is {}",
            bytes(manifests.compressed_size),
            bytes(MAX_SIZE),
            bytes(manifests.size)
        )
    };
    let name = &manifests.name;
    if manifests.compressed_size > MAX_SIZE {
        let detail = format!(
            "maximum bundle compressed size with gzip size exceeded: {}",
            sizes()
        );
        Some(RuleFinding::bundle(Severity::Error, name, detail))
    } else if manifests.compressed_size * 100 > MAX_SIZE * 85 {
        let detail = format!("nearing maximum bundle compressed size with gzip: {}", sizes());
        Some(RuleFinding::bundle(Severity::Warning, name, detail))
    } else {
        None
    }
}

/// A size in units of a thousand, with one decimal.
fn bytes(size: usize) -> String {
    let mut unit = 1;
    let mut letter = None;
    for next in ["k", "M", "G", "T"] {
        if size / unit >= 1000 {
            unit *= 1000;
            letter = Some(next);
        }
    }
    match letter {
        None => format!("{size} B"),
        Some(letter) => {
            let tenths = (size * 10 + unit / 2) / unit;
            format!("{}.{} {letter}B", tenths / 10, tenths % 10)
        }
    }
}

fn name(manifests: &Manifests, csv: &Value) -> Option<RuleFinding> {
    let release = text(csv, "/spec/release");
    let expected = format!("{}-v{}-{release}", manifests.package, text(csv, "/spec/version"));
    (!release.is_empty() && manifests.name != expected).then(|| {
        let detail = format!(
            "bundle name with release versioning {:?} does not match expected name {expected:?}",
            manifests.name
        );
        RuleFinding::bundle(Severity::Error, &manifests.name, detail)
    })
}

fn related_images(csv: &Value) -> Vec<RuleFinding> {
    let images = list(csv, "/spec/relatedImages").iter().enumerate();
    images
        .filter_map(|(at, related)| {
            let image = text(related, "/image");
            let detail = if image.is_empty() {
                format!("relatedImages[{at}] has an empty image field")
            } else {
                let fault = image_reference::check(image).err()?;
                format!("relatedImages[{at}] has an invalid image pullspec {image:?}: {fault}")
            };
            let value = format!("spec.relatedImages[{at}].image");
            Some(RuleFinding::bundle(Severity::Error, &value, detail))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_shown_in_units_of_a_thousand() {
        for (size, expected) in [
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1 << 20, "1.0 MB"),
            (1_550, "1.6 kB"),
        ] {
            assert_eq!(super::bytes(size), expected);
        }
    }
}
