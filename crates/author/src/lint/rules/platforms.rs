//! Whether the images of an operator support the platforms in its labels.
//!
//! The labels `operatorframework.io/os.NAME` and `operatorframework.io/arch.NAME` of a ClusterServiceVersion with the
//! value `supported` list the platforms of the operator; without any it is Linux on amd64. The platforms of the images
//! are an argument.

use std::collections::BTreeSet;

use olm_bundle::object::object_name;
use olm_bundle::object::{list, text};
use olm_fbc::check::Severity;
use serde_json::Value;

use crate::lint::manifests::{Manifests, csvs};
use crate::lint::rule_finding::{Options, RuleFinding};

const OS: &str = "operatorframework.io/os.";
const ARCHITECTURE: &str = "operatorframework.io/arch.";
/// The value of a label for a supported platform.
const SUPPORTED: &str = "supported";

/// The images of the operators of a bundle, and their related images.
#[must_use]
pub fn images(manifests: &Manifests) -> BTreeSet<String> {
    let all = csvs(manifests).flat_map(|(_, csv)| own(csv).chain(related(csv)));
    all.map(str::to_owned).collect()
}

/// The images of the operator itself.
fn own(csv: &Value) -> impl Iterator<Item = &str> {
    let deployments = list(csv, "/spec/install/spec/deployments").iter();
    let containers = deployments.flat_map(|deployment| {
        let pod = |part: &str| list(deployment, &format!("/spec/template/spec/{part}")).iter();
        pod("initContainers").chain(pod("containers"))
    });
    named(containers)
}

/// The images that it uses.
fn related(csv: &Value) -> impl Iterator<Item = &str> {
    named(list(csv, "/spec/relatedImages").iter())
}

fn named<'a>(all: impl Iterator<Item = &'a Value>) -> impl Iterator<Item = &'a str> {
    all.map(|value| text(value, "/image"))
        .filter(|image| !image.is_empty())
}

/// The platforms that the labels name, as `linux/amd64`.
fn labelled(csv: &Value) -> BTreeSet<String> {
    let labels = csv.pointer("/metadata/labels").and_then(Value::as_object);
    let names = |prefix: &str, otherwise: &'static str| -> Vec<&str> {
        let supported = labels.into_iter().flatten();
        let supported = supported.filter(|(_, value)| value.as_str() == Some(SUPPORTED));
        let names: Vec<&str> = supported
            .filter_map(|(key, _)| key.strip_prefix(prefix))
            .collect();
        if names.is_empty() { vec![otherwise] } else { names }
    };
    let architectures = names(ARCHITECTURE, "amd64");
    names(OS, "linux")
        .into_iter()
        .flat_map(|os| {
            architectures
                .iter()
                .map(move |architecture| format!("{os}/{architecture}"))
        })
        .collect()
}

pub(super) fn lint(manifests: &Manifests, options: &Options) -> Vec<RuleFinding> {
    let mut findings = Vec::new();
    for (at, csv) in csvs(manifests) {
        let mut find = |severity, detail: String| {
            findings.push(RuleFinding::csv(severity, object_name(csv), detail).at(at));
        };
        let promised = labelled(csv);
        let images: BTreeSet<&str> = own(csv).chain(related(csv)).collect();
        for image in images {
            match options.platforms.get(image) {
                None => {}
                Some(Err(why)) => find(
                    Severity::Warning,
                    format!("cannot tell on which platforms image {image} runs: {why}"),
                ),
                Some(Ok(built)) => {
                    let missing: Vec<&str> = promised.difference(built).map(String::as_str).collect();
                    if !missing.is_empty() {
                        find(
                            Severity::Error,
                            format!(
                                "the labels say that {} is supported, for which image {image} is not built",
                                missing.join(" and ")
                            ),
                        );
                    }
                }
            }
        }
        let mut everywhere: Option<BTreeSet<&String>> = None;
        for built in own(csv).filter_map(|image| options.platforms.get(image)?.as_ref().ok()) {
            let built: BTreeSet<&String> = built.iter().collect();
            everywhere = Some(match everywhere {
                None => built,
                Some(others) => &others & &built,
            });
        }
        let unsaid = everywhere.unwrap_or_default();
        let unsaid: Vec<&str> = unsaid
            .into_iter()
            .filter(|platform| !promised.contains(*platform))
            .map(String::as_str)
            .collect();
        if !unsaid.is_empty() {
            let detail = format!(
                "the operator's images are built for {}, too, where it is not offered without the labels {OS}… and \
                 {ARCHITECTURE}…",
                unsaid.join(" and ")
            );
            let finding = RuleFinding::csv(Severity::Warning, object_name(csv), detail).at(at);
            findings.push(finding.hinted(
                "add for example operatorframework.io/arch.arm64: supported, or ignore this where it is not supported",
            ));
        }
    }
    findings
}
