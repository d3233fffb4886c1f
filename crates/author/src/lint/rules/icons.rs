//! Whether the icons of a ClusterServiceVersion are pictures.

use olm_bundle::object::object_name;
use olm_bundle::object::{list, text};
use olm_fbc::Icon;
use olm_fbc::check::Severity;

use crate::lint::manifests::{Manifests, csvs};
use crate::lint::rule_finding::{Options, RuleFinding};

pub(super) fn lint(manifests: &Manifests, _: &Options) -> Vec<RuleFinding> {
    let mut findings = Vec::new();
    for (at, csv) in csvs(manifests) {
        for icon in list(csv, "/spec/icon") {
            let icon = Icon {
                base64_data: Some(text(icon, "/base64data").to_owned()),
                media_type: text(icon, "/mediatype").to_owned(),
            };
            let fault = match icon.data() {
                Err(error) => Some(format!("the icon's {error}")),
                Ok(_) => icon.fault(),
            };
            findings.extend(fault.map(|fault| {
                RuleFinding::csv(Severity::Warning, object_name(csv), fault)
                    .at(at)
                    .hinted("give the icon's file as base64, and its media type, for example image/svg+xml")
            }));
        }
    }
    findings
}
