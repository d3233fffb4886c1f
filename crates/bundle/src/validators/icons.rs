//! Whether the icons of a ClusterServiceVersion are pictures.

use olm_fbc::Icon;

use super::{Manifests, Options, Problem, Severity, csvs};
use crate::catalog::{list, text};
use crate::parse::object_name;

pub(super) fn validate(manifests: &Manifests, _: &Options) -> Vec<Problem> {
    let mut problems = Vec::new();
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
            problems
                .extend(fault.map(|fault| Problem::csv(Severity::Warning, object_name(csv), fault).at(at)));
        }
    }
    problems
}
