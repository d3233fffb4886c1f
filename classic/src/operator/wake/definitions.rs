//! ClusterServiceVersions that wait for a change of a CustomResourceDefinition.

use std::collections::BTreeSet;

use olm_classic::cluster::{items, text};
use olm_classic::csv::component::lacks_label_of;
use olm_classic::names;
use serde_json::Value;

use super::super::work::{Name, Work};
use super::{Change, Urgency, Wake, differs, has_api};

/// The parts of a CustomResourceDefinition that every ClusterServiceVersion that brings or needs it checks.
const CHECKED: [&str; 5] = [
    "/metadata/uid",
    "/metadata/deletionTimestamp",
    "/metadata/ownerReferences",
    "/spec",
    "/status/conditions",
];

impl Wake<'_> {
    /// ClusterServiceVersions that bring or need a CustomResourceDefinition. Labels of it, and the annotation that says
    /// with which one it came, matter to few of them.
    pub(super) fn of_definition(&mut self, change: &Change) {
        let definition = change.object();
        let name = text(definition, "/metadata/name");
        let is_meant =
            |csv: &Value| has_api(csv, "customresourcedefinitions", |api| text(api, "/name") == name);
        if differs(change, |version| CHECKED.map(|part| version.pointer(part))) {
            self.csvs(None, is_meant);
        } else {
            let noted = |version: Option<&Value>| version.map(noted_alongside).unwrap_or_default();
            let [before, now] = [&change.before, &change.now].map(|version| noted(version.as_deref()));
            for (_, csv) in before.symmetric_difference(&now) {
                let namespace = csv.split_once('/').map_or("", |(namespace, _)| namespace);
                self.csvs(Some(namespace), is_meant);
            }
        }
        if change.now.is_none() {
            return;
        }
        let brings = |csv: &&Value| {
            items(csv, "/spec/customresourcedefinitions/owned").any(|api| text(api, "/name") == name)
        };
        let csvs = self.cluster.of_kind(names::CSV_KIND).filter(brings);
        let unlabelled = csvs.filter(|csv| lacks_label_of(definition, csv));
        let works = unlabelled.map(|csv| (Work::Owned(Name::of(csv)), Urgency::Now));
        self.tasks.extend(works);
    }
}

/// The annotations that say with which ClusterServiceVersions a CustomResourceDefinition came: the keys, and namespace
/// and name with a slash between them.
fn noted_alongside(definition: &Value) -> BTreeSet<(String, String)> {
    let annotations = definition
        .pointer("/metadata/annotations")
        .and_then(Value::as_object);
    let annotations = annotations.into_iter().flatten();
    let notes = annotations.filter(|(key, _)| key.starts_with(names::ALONGSIDE_PREFIX));
    notes
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}
