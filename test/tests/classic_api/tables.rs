//! Tables that kubectl shows.

use anyhow::{Context as _, Result, ensure};
use olm_test::world::kubectl;
use serde_json::{Value, json};

use crate::{SERVER, csv, object};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[test]
fn tables_have_the_columns_of_the_reference() -> Result<()> {
    SERVER.with(async |server| {
        let source = json!({"sourceType": "grpc", "displayName": "Community", "publisher": "P"});
        let subscription = json!({"name": "p", "source": "c", "sourceNamespace": "olm", "channel": "stable"});
        let plan =
            json!({"approval": "Automatic", "approved": true, "clusterServiceVersionNames": ["a", "b"]});
        let cases = [
            (
                csv("shown"),
                "clusterserviceversions",
                &["Name", "Display", "Version", "Release", "Replaces", "Phase"][..],
                json!(["shown", "Greeter", "1.0.0", "2", "greeter.v0.9.0", null]),
            ),
            (
                object("v1alpha1", "CatalogSource", "shown", json!({"spec": source})),
                "catalogsources",
                &["Name", "Display", "Type", "Publisher", "Age"],
                json!(["shown", "Community", "grpc", "P"]),
            ),
            (
                object("v1alpha1", "Subscription", "shown", json!({"spec": subscription})),
                "subscriptions",
                &["Name", "Package", "Source", "Channel"],
                json!(["shown", "p", "c", "stable"]),
            ),
            (
                object("v1alpha1", "InstallPlan", "shown", json!({"spec": plan})),
                "installplans",
                &["Name", "CSV", "Approval", "Approved"],
                json!(["shown", "a", "Automatic", true]),
            ),
            (
                object("v1", "OperatorGroup", "shown", json!({})),
                "operatorgroups",
                &["Name", "Age"],
                json!(["shown"]),
            ),
            (
                object("v2", "OperatorCondition", "shown", json!({})),
                "operatorconditions",
                &["Name", "Age"],
                json!(["shown"]),
            ),
            (
                object("v1", "Operator", "shown", json!({})),
                "operators",
                &["Name", "Age"],
                json!(["shown"]),
            ),
            (
                object("v1", "OLMConfig", "shown", json!({})),
                "olmconfigs",
                &["Name", "Age"],
                json!(["shown"]),
            ),
        ];
        for (object, plural, columns, row) in cases {
            server.create(&object).await?;
            let version = object["apiVersion"].as_str().context("no version")?;
            let place = match object["metadata"]["namespace"].as_str() {
                None => String::new(),
                Some(namespace) => format!("namespaces/{namespace}/"),
            };
            let path = format!("/apis/{version}/{place}{plural}/shown");
            let table = server.get(&path, TABLE).await?;
            let heads = table["columnDefinitions"].as_array().context("no columns")?;
            let heads: Vec<&str> = heads.iter().filter_map(|head| head["name"].as_str()).collect();
            ensure!(heads == columns, "{plural}: {heads:?}");
            let cells = table["rows"][0]["cells"].as_array().context("no row")?;
            let row = row.as_array().context("no row is expected")?;
            // The last cell is the age.
            ensure!(
                cells.iter().zip(row).all(|(found, expected)| found == expected),
                "{plural}: {cells:?}"
            );
            ensure!(cells.len() == columns.len(), "{plural}: {cells:?}");
        }
        Ok(())
    })
}

#[test]
fn kinds_are_found_by_their_short_names_and_category() -> Result<()> {
    SERVER.with(async |server| {
        let mut found = Vec::new();
        for version in ["v1", "v1alpha1", "v1alpha2", "v2"] {
            let list = server
                .get(
                    &format!("/apis/operators.coreos.com/{version}"),
                    "application/json",
                )
                .await?;
            for resource in list["resources"].as_array().context("no resources")? {
                let name = resource["name"].as_str().context("no name")?;
                if name.contains('/') {
                    ensure!(name.ends_with("/status"), "{resource}");
                    continue;
                }
                ensure!(resource["categories"] == json!(["olm"]), "{resource}");
                let short: Vec<&str> = resource["shortNames"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                found.push(format!("{version} {name} {}", short.join(",")));
            }
        }
        found.sort();
        let expected = [
            "v1 olmconfigs ",
            "v1 operatorconditions condition",
            "v1 operatorgroups og",
            "v1 operators ",
            "v1alpha1 catalogsources catsrc",
            "v1alpha1 clusterserviceversions csv,csvs",
            "v1alpha1 installplans ip",
            "v1alpha1 subscriptions sub,subs",
            "v1alpha2 operatorgroups og",
            "v2 operatorconditions condition",
        ];
        ensure!(found == expected, "{found:#?}");
        Ok(())
    })
}

/// The first versions of kubectl apply keep the whole object in an annotation of at most 256 KiB.
#[test]
fn definitions_can_be_applied_by_the_client_too() -> Result<()> {
    SERVER.with(async |server| {
        let folder = olm_test::world::repository().join("manifests/classic/crds");
        let folder = folder.display().to_string();
        kubectl(
            &server.cluster,
            &["apply", "--dry-run=server", "-k", &folder],
            None,
        )?;
        Ok(())
    })
}
