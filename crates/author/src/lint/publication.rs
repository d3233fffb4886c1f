//! Faults that keep an installable bundle out of catalogs, and fields that a catalog interprets differently.

use olm_bundle::Bundle;
use olm_bundle::openshift::{PropertiesError, maxima};
use olm_fbc::check::Severity;
use olm_version::{BuildMetadata, VersionRelease, blang};

use super::finding::{Finding, PUBLISH};

/// The annotation with the versions that a bundle may replace.
const SKIP_RANGE: &str = "olm.skipRange";

/// Findings for the author before the bundle is added to a catalog, each with a remedy.
pub(super) fn publication(bundle: &Bundle) -> Vec<Finding> {
    let all = [version, skip_range, default_channel, openshift];
    all.iter()
        .filter_map(|check| check(bundle))
        .map(|message| Finding::new(Severity::Warning, PUBLISH, message))
        .collect()
}

fn version(bundle: &Bundle) -> Option<String> {
    let text = &bundle.csv().spec.version;
    let fault = match VersionRelease::parse(text, BuildMetadata::Release) {
        Ok(_) => return None,
        Err(_) if text.is_empty() => "is missing".to_owned(),
        Err(fault) => format!("is none: {fault}"),
    };
    Some(format!(
        "spec.version {fault}; catalogs accept no bundle without a version: set three numbers, such as 1.0.0"
    ))
}

fn skip_range(bundle: &Bundle) -> Option<String> {
    let range = bundle.csv().metadata.annotations.get(SKIP_RANGE)?;
    let fault = blang::Range::parse(range).err().filter(|_| !range.is_empty())?;
    Some(format!(
        "the annotation {SKIP_RANGE} {range:?} is not a version range ({fault}), so no version upgrades to this one: \
         write for example \">=1.0.0 <1.2.0\""
    ))
}

fn default_channel(bundle: &Bundle) -> Option<String> {
    let default = bundle.annotations().default_channel()?;
    let channels: Vec<&str> = bundle.annotations().channels().collect();
    if channels.is_empty() || channels.contains(&default) {
        return None;
    }
    Some(format!(
        "the default channel {default:?} is not among the bundle's channels ({}): name one of them, or add it",
        channels.join(", ")
    ))
}

fn openshift(bundle: &Bundle) -> Option<String> {
    match maxima(bundle.properties_text()?) {
        // A bundle whose properties are not a list is not read at all.
        Err(PropertiesError::Shape(_)) => None,
        Err(fault) => Some(format!(
            "{fault}: OpenShift does not update a cluster with this bundle; set one version, such as \"4.18\""
        )),
        Ok(maxima) => {
            let (highest, _) = maxima.split_first().filter(|(_, more)| !more.is_empty())?;
            Some(format!(
                "more than one olm.maxOpenShiftVersion: the highest counts, {highest}, and nothing with the Go \
                 implementation, where OpenShift does not update a cluster with this bundle; set one version"
            ))
        }
    }
}
