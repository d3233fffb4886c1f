//! Answers of registries.

use anyhow::{Context as _, Result, ensure};
use classic::registry::messages::GroupVersionKind;
use futures::TryStreamExt as _;
use olm_classic::registry::{BundleMessage, Registry};
use olm_fbc::{Catalog, Gvk};
use serde_json::json;

use crate::stage::{CLUSTER, Stage};

/// A package with two channels, a bundle that is skipped, required APIs, manifests and deprecations.
fn fbc() -> String {
    let bundle = |version: &str, image: &str| {
        let csv = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": format!("db.v{version}")}, "spec": {"version": version},
        });
        let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, csv.to_string());
        json!({
            "schema": "olm.bundle", "package": "db", "name": format!("db.v{version}"), "image": image,
            "properties": [
                {"type": "olm.package", "value": {"packageName": "db", "version": version}},
                {"type": "olm.gvk", "value": {"group": "db.example", "version": "v1", "kind": "Db"}},
                {"type": "olm.gvk.required", "value": {"group": "disk.example", "version": "v1", "kind": "Disk"}},
                {"type": "olm.bundle.object", "value": {"data": data}},
            ],
        })
    };
    let digest = "a".repeat(64);
    let image = |version: &str| format!("registry.example/db{version}@sha256:{digest}");
    let blobs = [
        json!({"schema": "olm.package", "name": "db", "defaultChannel": "stable"}),
        json!({"schema": "olm.channel", "package": "db", "name": "stable", "entries": [
            {"name": "db.v1.0.0"},
            {"name": "db.v1.1.0", "replaces": "db.v1.0.0", "skipRange": "<1.1.0"},
        ]}),
        json!({"schema": "olm.channel", "package": "db", "name": "beta", "entries": [
            {"name": "db.v1.0.0"},
            {"name": "db.v2.0.0", "replaces": "db.v1.0.0", "skips": ["db.v1.1.0"]},
        ]}),
        bundle("1.0.0", &image("1.0.0")),
        bundle("1.1.0", &image("1.1.0")),
        bundle("2.0.0", ""),
        json!({"schema": "olm.deprecations", "package": "db", "entries": [
            {"reference": {"schema": "olm.channel", "name": "beta"}, "message": "beta is old"},
            {"reference": {"schema": "olm.bundle", "name": "db.v1.0.0"}, "message": "too old"},
        ]}),
        json!({"schema": "olm.package", "name": "other", "defaultChannel": "stable"}),
        json!({"schema": "olm.channel", "package": "other", "name": "stable", "entries": [{"name": "other.v1"}]}),
        json!({
            "schema": "olm.bundle", "package": "other", "name": "other.v1", "image": image("other"),
            "properties": [{"type": "olm.package", "value": {"packageName": "other", "version": "1.0.0"}}],
        }),
    ];
    blobs.iter().map(|blob| format!("{blob}\n")).collect()
}

#[test]
fn every_call_answers_as_the_rules_say() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("asked")?;
        let image = stage.lab.push_catalog("asked:v1", &fbc()).await?;
        let spec = json!({"sourceType": "grpc", "image": image});
        let source = stage.source("asked", "catalog", spec)?;
        stage.connected(&source, "READY").await?;
        compare(stage).await
    })
}

async fn compare(stage: &Stage) -> Result<()> {
    let mut catalog = Catalog::default();
    catalog.load(fbc().as_bytes(), &olm_fbc::meta::limits())?;
    let rules = Registry::new(&catalog);
    let client = stage.client("asked", "catalog").await?;

    assert_eq!(client.list_packages().await?, rules.list_packages());
    assert_eq!(client.get_package("db").await?, rules.get_package("db")?);
    let sorted = |mut bundles: Vec<BundleMessage>| {
        bundles.sort_by(|a, b| (&a.channel_name, &a.csv_name).cmp(&(&b.channel_name, &b.csv_name)));
        bundles
    };
    let listed: Vec<BundleMessage> = client.list_bundles().await?.try_collect().await?;
    assert_eq!(sorted(listed), sorted(rules.list_bundles()));
    for (channel, name) in [("stable", "db.v1.0.0"), ("beta", "db.v2.0.0")] {
        assert_eq!(
            client.get_bundle("db", channel, name).await?,
            rules.get_bundle("db", channel, name)?
        );
        assert_eq!(
            client.get_bundle_for_channel("db", channel).await?,
            rules.get_bundle_for_channel("db", channel)?
        );
        assert_eq!(
            client
                .get_bundle_that_replaces("db.v1.0.0", "db", channel)
                .await?,
            rules.get_bundle_that_replaces("db.v1.0.0", "db", channel)?
        );
    }
    assert_eq!(
        client.entries_that_replace("db.v1.0.0").await?,
        rules.entries_that_replace("db.v1.0.0")?
    );
    let (asked, api) = (api("Db"), gvk("Db"));
    assert_eq!(
        client.entries_that_provide(asked.clone()).await?,
        rules.entries_that_provide(&api)?
    );
    assert_eq!(
        client.latest_entries_that_provide(asked.clone()).await?,
        rules.latest_entries_that_provide(&api)?
    );
    assert_eq!(
        client.get_default_bundle_that_provides(asked).await?,
        rules.default_bundle_that_provides(&api)?
    );

    let unknown = |message: &str| format!("rpc error: code = Unknown desc = {message}");
    let error = client.get_package("none").await.err().context("found")?;
    assert_eq!(error.to_string(), unknown("package \"none\" not found"));
    let error = client
        .get_bundle("db", "stable", "none")
        .await
        .err()
        .context("found")?;
    assert_eq!(
        error.to_string(),
        unknown("package \"db\", channel \"stable\", bundle \"none\" not found")
    );
    let error = client.entries_that_replace("none").await.err().context("found")?;
    assert_eq!(
        error.to_string(),
        unknown("no channel entries found that replace none")
    );
    let none = self::api("None");
    let error = client
        .latest_entries_that_provide(none)
        .await
        .err()
        .context("found")?;
    assert!(error.to_string().contains("kind:\"None\""), "{error}");
    ensure!(client.check().await?, "not healthy");
    Ok(())
}

fn api(kind: &str) -> GroupVersionKind {
    GroupVersionKind {
        group: "db.example".to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: String::new(),
    }
}

fn gvk(kind: &str) -> Gvk {
    Gvk {
        group: "db.example".to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
    }
}
