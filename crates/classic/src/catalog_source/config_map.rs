//! Content in a ConfigMap: the keys `packages`, `clusterServiceVersions` and `customResourceDefinitions`, each a YAML
//! list. It is read into the blobs of a file-based catalog, with the manifests in them.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::{items, text};
use crate::csv::ClusterServiceVersion;
use crate::operator_group::ApiKey;

/// Content of a ConfigMap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfigMapContent {
    /// The blobs of the catalog.
    pub blobs: Vec<Value>,
    /// Omitted entries, one sentence each.
    pub faults: Vec<String>,
}

/// Reads the content of a ConfigMap. Unreadable parts are left out.
pub fn config_map_content(map: &Value) -> ConfigMapContent {
    let mut content = ConfigMapContent::default();
    let csvs = content.list(map, "clusterServiceVersions");
    let definitions = content.list(map, "customResourceDefinitions");
    let packages = content.list(map, "packages");
    let name = |object: &Value| text(object, "/metadata/name").to_owned();
    let csvs: BTreeMap<String, Value> = csvs.into_iter().map(|csv| (name(&csv), csv)).collect();
    let definitions: BTreeMap<String, Value> = definitions
        .into_iter()
        .map(|definition| (name(&definition), definition))
        .collect();
    for package in &packages {
        content.package(package, &csvs, &definitions);
    }
    content
}

impl ConfigMapContent {
    /// The list at a key.
    fn list(&mut self, map: &Value, key: &str) -> Vec<Value> {
        let found = text(map, &format!("/data/{key}"));
        match olm_yaml::to_json(found) {
            Ok(Value::Array(list)) => return list,
            Ok(Value::Null) => {}
            Ok(_) => self
                .faults
                .push(format!("cannot read key `{key}`: it must be a list")),
            Err(error) => self.faults.push(format!("cannot read key `{key}`: {error}")),
        }
        Vec::new()
    }

    fn package(
        &mut self,
        package: &Value,
        csvs: &BTreeMap<String, Value>,
        definitions: &BTreeMap<String, Value>,
    ) {
        let name = text(package, "/packageName");
        let mut channels: Vec<(&str, &str)> = items(package, "/channels")
            .map(|channel| (text(channel, "/name"), text(channel, "/currentCSV")))
            .collect();
        channels.sort_unstable();
        channels.dedup_by_key(|(channel, _)| *channel);
        let default = match (text(package, "/defaultChannel"), channels.as_slice()) {
            ("", [(only, _)]) => only,
            (default, _) => default,
        };
        if name.is_empty() || channels.is_empty() {
            self.faults.push(format!(
                "package {name:?} is left out: it needs packageName and channels"
            ));
            return;
        }
        let (mut blobs, mut used) = (Vec::new(), BTreeSet::new());
        for (channel, head) in channels {
            let entries = entries(head, csvs);
            if entries.is_empty() {
                self.faults.push(format!(
                    "channel {channel:?} of package {name:?} is left out: there is no ClusterServiceVersion {head:?}"
                ));
                continue;
            }
            used.extend(entries.iter().map(|entry| text(entry, "/name").to_owned()));
            blobs
                .push(json!({"schema": "olm.channel", "package": name, "name": channel, "entries": entries}));
        }
        if !blobs.iter().any(|blob| blob["name"] == default) {
            self.faults.push(format!(
                "package {name:?} is left out: it has no default channel {default:?}"
            ));
            return;
        }
        self.blobs
            .push(json!({"schema": "olm.package", "name": name, "defaultChannel": default}));
        self.blobs.append(&mut blobs);
        for csv in used.iter().filter_map(|used| csvs.get(used)) {
            match bundle(name, csv, definitions) {
                Ok(bundle) => self.blobs.push(bundle),
                Err(error) => self.faults.push(format!(
                    "ClusterServiceVersion {:?} is left out: {error}",
                    text(csv, "/metadata/name")
                )),
            }
        }
    }
}

/// The entries of a channel, from its head along `spec.replaces`.
fn entries(head: &str, csvs: &BTreeMap<String, Value>) -> Vec<Value> {
    let (mut entries, mut seen, mut next) = (Vec::new(), BTreeSet::new(), head);
    while let Some(csv) = csvs.get(next) {
        if !seen.insert(next) {
            break;
        }
        let replaces = text(csv, "/spec/replaces");
        let mut entry = json!({"name": next});
        if let Some(entry) = entry.as_object_mut() {
            let annotations = csv.pointer("/metadata/annotations");
            let range = annotations.and_then(|found| found.get("olm.skipRange"));
            if !replaces.is_empty() {
                entry.insert("replaces".to_owned(), replaces.into());
            }
            for (key, value) in [("skipRange", range), ("skips", csv.pointer("/spec/skips"))] {
                if let Some(value) = value {
                    entry.insert(key.to_owned(), value.clone());
                }
            }
        }
        entries.push(entry);
        next = replaces;
    }
    entries
}

fn bundle(package: &str, object: &Value, definitions: &BTreeMap<String, Value>) -> Result<Value, String> {
    let csv = ClusterServiceVersion::read(object).map_err(|error| error.to_string())?;
    let provided = crate::operator_group::provided_by(&csv).map_err(|error| error.to_string())?;
    let mut properties = vec![json!({
        "type": "olm.package", "value": {"packageName": package, "version": csv.spec.version},
    })];
    let api = |kind: &str, key: &ApiKey| json!({"type": kind, "value": {"group": key.group, "version": key.version, "kind": key.kind}});
    properties.extend(provided.iter().map(|key| api("olm.gvk", key)));
    let required = crate::operator_group::required_by(&csv);
    properties.extend(required.iter().map(|key| api("olm.gvk.required", key)));
    let owned = csv.spec.custom_resource_definitions.owned.iter();
    let owned: BTreeSet<&str> = owned.map(|owned| owned.name.as_str()).collect();
    let manifests = owned.iter().filter_map(|name| definitions.get(*name));
    properties.extend(std::iter::once(object).chain(manifests).map(|manifest| {
        json!({"type": "olm.bundle.object", "value": {"data": STANDARD.encode(manifest.to_string())}})
    }));
    Ok(json!({
        "schema": "olm.bundle", "package": package, "name": csv.metadata.name, "properties": properties,
    }))
}

#[cfg(test)]
mod tests {
    use olm_fbc::meta::{limits, metas};
    use olm_fbc::{Catalog, Gvk};

    use super::*;
    use crate::registry::Registry;

    const CSVS: &str = "
- apiVersion: operators.coreos.com/v1alpha1
  kind: ClusterServiceVersion
  metadata: {name: db.v2, annotations: {olm.skipRange: '<2.0.0'}}
  spec:
    version: 2.0.0
    replaces: db.v1
    customresourcedefinitions:
      owned: [{name: dbs.db.example, version: v1, kind: Db}]
      required: [{name: disks.disk.example, version: v1, kind: Disk}]
- apiVersion: operators.coreos.com/v1alpha1
  kind: ClusterServiceVersion
  metadata: {name: db.v1}
  spec: {version: 1.0.0}
";
    const CRDS: &str = "
- apiVersion: apiextensions.k8s.io/v1beta1
  kind: CustomResourceDefinition
  metadata: {name: dbs.db.example}
";

    fn content(packages: &str) -> ConfigMapContent {
        config_map_content(&json!({"data": {
            "packages": packages, "clusterServiceVersions": CSVS, "customResourceDefinitions": CRDS,
        }}))
    }

    #[test]
    fn the_content_is_a_catalog_with_its_manifests() {
        let found = content("- {packageName: db, channels: [{name: stable, currentCSV: db.v2}]}");
        assert_eq!(found.faults, Vec::<String>::new());
        let lines: Vec<String> = found.blobs.iter().map(Value::to_string).collect();
        let mut catalog = Catalog::default();
        for meta in metas(lines.join("\n").as_bytes(), &limits()) {
            catalog.add(meta.unwrap()).unwrap();
        }
        let registry = Registry::new(&catalog);
        let head = registry.get_bundle_for_channel("db", "stable").unwrap();
        assert_eq!((head.csv_name.as_str(), head.object.len()), ("db.v2", 2));
        assert_eq!(head.skip_range, "<2.0.0");
        assert!(head.csv_json.contains("\"version\":\"2.0.0\""));
        assert_eq!(head.required_apis[0].kind, "Disk");
        let api = Gvk {
            group: "db.example".to_owned(),
            version: "v1".to_owned(),
            kind: "Db".to_owned(),
        };
        assert_eq!(
            registry.latest_entries_that_provide(&api).unwrap()[0].replaces,
            "db.v1"
        );
        assert_eq!(registry.list_bundles().len(), 2);
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_said() {
        let check = |packages: &str, expected: &str| {
            let found = content(packages);
            assert_eq!(found.blobs.len(), 0, "{packages}");
            assert!(
                found.faults.iter().any(|fault| fault.contains(expected)),
                "{:?}",
                found.faults
            );
        };
        check("a: b", "key `packages`: it must be a list");
        check("[", "cannot read key `packages`");
        check("- {packageName: db}", "it needs packageName and channels");
        check(
            "- {packageName: db, channels: [{name: a, currentCSV: db.v9}]}",
            "there is no ClusterServiceVersion \"db.v9\"",
        );
    }
}
