//! Community operators that use APIs which OpenShift 4.9 no longer serves.

use olm_bundle::object::object_name;
use olm_bundle::object::text;
use olm_fbc::check::Severity;
use serde_json::Value;

use super::removed::{MIGRATE, in_22, listed};
use super::text::tolerant_version;
use crate::lint::manifests::{Manifests, csvs};
use crate::lint::rule_finding::{Options, RuleFinding};

const PROPERTIES: &str = "olm.properties";
const MAXIMUM: &str = "olm.maxOpenShiftVersion";
const LABEL: &str = "com.redhat.openshift.versions";
/// The message about removed APIs.
const REMOVED: &str = "APIs which were deprecated and removed in v1.22. More info: \
                       https://kubernetes.io/docs/reference/using-api/deprecation-guide/#v1-22";

/// The first version of OpenShift that does not serve them.
fn is_beyond(text: &str) -> Option<bool> {
    let version = tolerant_version(text)?;
    Some((version.major, version.minor) >= (4, 9))
}

pub(super) fn lint(manifests: &Manifests, options: &Options) -> Vec<RuleFinding> {
    let found = in_22(manifests);
    let Some((at, csv)) = csvs(manifests).next().filter(|_| !found.is_empty()) else {
        return Vec::new();
    };
    let apis = listed(&found);
    let mut findings = Vec::new();
    let mut find = |found: Option<(Severity, String)>| {
        let finding = |(severity, detail)| {
            RuleFinding::csv(severity, object_name(csv), detail)
                .at(at)
                .hinted(MIGRATE)
        };
        findings.extend(found.map(finding));
    };
    find(maximum(csv, &apis));
    find(match &options.dockerfile {
        Some(dockerfile) => label(dockerfile, &apis).map(|detail| (Severity::Error, detail)),
        None => Some((
            Severity::Warning,
            format!(
                "please, inform the path of its index image file via the the optional key values and the key index-path to \
                 allow this validator check the labels configuration or migrate the API(s) for {apis}. (e.g. \
                 index-path=./mypath/bundle.Dockerfile). This bundle is using {REMOVED} "
            ),
        )),
    });
    findings
}

/// The fault of the newest version of OpenShift in the ClusterServiceVersion.
fn maximum(csv: &Value, apis: &str) -> Option<(Severity, String)> {
    let error = |detail: String| Some((Severity::Error, detail));
    let properties = text(csv, "/metadata/annotations/olm.properties");
    if properties.is_empty() {
        return error(format!(
            "csv.Annotations not specified {MAXIMUM} for an OCP version < 4.9. This annotation is required to prevent the \
             user from upgrading their OCP cluster before they have installed a version of their operator which is \
             compatible with 4.9. This bundle is using {REMOVED} which are no longer supported on 4.9. Migrate the API(s) \
             for {apis} or use the annotation"
        ));
    }
    let list = serde_json::from_str(properties).ok().and_then(|list| match list {
        Value::Array(list) => Some(list),
        _ => None,
    });
    let Some(list) = list else {
        return error(format!(
            "csv.Annotations has an invalid value specified for {PROPERTIES}. Please, check the value  ({properties}) and \
             ensure that it is an array such as: \"{PROPERTIES}\": '[{{\"type\": \"key name\", \"value\": \"key value\"}}]'"
        ));
    };
    let declared = list.iter().find(|property| text(property, "/type") == MAXIMUM);
    let Some(declared) = declared else {
        return error(format!(
            "csv.Annotations.{PROPERTIES} with the key `{MAXIMUM}` and a value with an OCP version which is < 4.9 is \
             required for any operator bundle that is using {REMOVED}. Migrate the API(s) for {apis} or use the annotation"
        ));
    };
    let value = match declared.get("value") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let Some(version) = tolerant_version(&value) else {
        return error(format!(
            "csv.Annotations.{PROPERTIES} has an invalid value. Unable to parse ({value}) using semver : it is no version"
        ));
    };
    if version.patch != 0 || !version.pre.is_empty() {
        let truncated = format!("{}.{}.0", version.major, version.minor);
        return Some((
            Severity::Warning,
            format!(
                "csv.Annotations.{PROPERTIES} has an invalid value. {MAXIMUM} must specify only major.minor versions, \
                 {version} will be truncated to {truncated}"
            ),
        ));
    }
    if is_beyond(&value) == Some(true) {
        return error(format!(
            "csv.Annotations.{PROPERTIES} with the key and value for {MAXIMUM} has the OCP version value {value} which is >= \
             of 4.9. This bundle is using {REMOVED}. Migrate the API(s) for {apis} or inform in this property an OCP \
             version which is < 4.9"
        ));
    }
    None
}

/// The fault of the versions of OpenShift in the label of the Dockerfile.
fn label(dockerfile: &str, apis: &str) -> Option<String> {
    let Some(line) = dockerfile.lines().find(|line| line.contains(LABEL)) else {
        return Some(format!(
            "this bundle is using {REMOVED}. Migrate the APIs for {apis} or provide compatible version(s) via the labels. \
             (e.g. LABEL {LABEL}='4.6-4.8')"
        ));
    };
    let Some((_, value)) = line.split_once('=') else {
        return Some(format!("invalid syntax ({line}) for ({LABEL})"));
    };
    let plain: String = value.chars().filter(|letter| !"'\"v".contains(*letter)).collect();
    let plain = plain.trim();
    // `=v4.8` is that version only, `v4.6-v4.8` a range, and `v4.6` that version and all after it.
    let (newest, exact) = match (plain.strip_prefix('='), plain.split_once('-')) {
        (Some(only), _) => (only, true),
        (None, Some((_, newest))) => (newest, true),
        (None, None) => (plain, false),
    };
    if plain.len() < 2 {
        return Some(format!("unable to get the range informed on {LABEL}"));
    }
    match (is_beyond(newest), exact) {
        (None, _) => Some(format!("unable to parse the value ({newest}) on ({LABEL})")),
        (Some(false), true) => None,
        _ => Some(format!(
            "this bundle is using {REMOVED}. The {LABEL} {plain} allows to distribute it on >= 4.9. Migrate the API(s) for \
             {apis} or provide compatible version(s) by using the {LABEL} annotation in `metadata/annotations.yaml` to \
             ensure that the index image will be generated with its label. (e.g. LABEL {LABEL}='4.6-4.8')"
        )),
    }
}
