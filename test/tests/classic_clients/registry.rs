//! Clients of the gRPC registries: one that knows nothing but reflection, and `opm`.

use anyhow::{Result, ensure};
use olm_test::cluster::Binaries;
use olm_test::registry::opm::Opm;
use olm_test::samples;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, OPERATOR, V1ALPHA1, named};

#[test]
fn a_client_that_knows_nothing_but_reflection_calls_all_methods() -> Result<()> {
    CLUSTER.with(async |stage| {
        let program = tokio::task::spawn_blocking(Binaries::ensure_grpcurl).await??;
        stage.namespace("reflected")?;
        let image = stage
            .lab
            .publish("reflected", &["1.0.0", "1.0.1"], OPERATOR)
            .await?;
        let mut source = named(V1ALPHA1, "CatalogSource", "reflected", "catalog");
        source["spec"] = json!({"sourceType": "grpc", "image": image});
        stage.lab.apply(std::slice::from_ref(&source))?;
        stage
            .becomes("the catalog is served", &source, |found| {
                found["status"]["connectionState"]["lastObservedState"] == "READY"
            })
            .await?;
        let address = stage.registry("reflected", "catalog").await?;
        let call = async |arguments: &[&str], method: &str| {
            let all = [&["-plaintext"][..], arguments, &[&address, method]].concat();
            stage.run(&program, &all).await
        };
        let services = stage.run(&program, &["-plaintext", &address, "list"]).await?;
        for service in [
            "api.Registry",
            "api.ExperimentalRegistry",
            "grpc.health.v1.Health",
        ] {
            ensure!(services.lines().any(|line| line == service), "{services}");
        }
        let described = stage
            .run(&program, &["-plaintext", &address, "describe", "api.Registry"])
            .await?;
        ensure!(described.matches("rpc ").count() == 10, "{described}");
        ensure!(
            call(&[], "grpc.health.v1.Health/Check")
                .await?
                .contains("SERVING")
        );

        let packages = call(&[], "api.Registry/ListPackages").await?;
        ensure!(serde_json::from_str::<Value>(&packages)? == json!({"name": "reflected"}));
        let package = call(&["-d", r#"{"name": "reflected"}"#], "api.Registry/GetPackage").await?;
        let expected = json!({
            "name": "reflected", "defaultChannelName": "stable",
            "channels": [{"name": "stable", "csvName": "reflected.v1.0.1"}],
        });
        ensure!(serde_json::from_str::<Value>(&package)? == expected, "{package}");
        let channel = r#"{"pkgName": "reflected", "channelName": "stable"}"#;
        let bundle = r#"{"pkgName": "reflected", "channelName": "stable", "csvName": "reflected.v1.0.0"}"#;
        let replacing = r#"{"csvName": "reflected.v1.0.0", "pkgName": "reflected", "channelName": "stable"}"#;
        let kind = r#"{"group": "reflected.olm.example", "version": "v1", "kind": "Greeting"}"#;
        for (request, method, expected) in [
            (bundle, "GetBundle", "reflected.v1.0.0"),
            (channel, "GetBundleForChannel", "reflected.v1.0.1"),
            (
                r#"{"csvName": "reflected.v1.0.0"}"#,
                "GetChannelEntriesThatReplace",
                "reflected.v1.0.1",
            ),
            (replacing, "GetBundleThatReplaces", "reflected.v1.0.1"),
            (kind, "GetChannelEntriesThatProvide", "reflected.v1.0.0"),
            (kind, "GetLatestChannelEntriesThatProvide", "reflected.v1.0.1"),
            (kind, "GetDefaultBundleThatProvides", "reflected.v1.0.1"),
            ("{}", "ListBundles", "reflected.v1.0.1"),
        ] {
            let answer = call(&["-d", request], &format!("api.Registry/{method}")).await?;
            ensure!(answer.contains(expected), "{method}: {answer}");
        }
        let unknown = call(&["-d", r#"{"name": "nothing"}"#], "api.Registry/GetPackage").await;
        let error = unknown
            .err()
            .map(|error| format!("{error:#}"))
            .unwrap_or_default();
        ensure!(
            error.contains("Code: Unknown") && error.contains(r#"package "nothing" not found"#),
            "{error}"
        );
        Ok(())
    })
}

#[test]
fn opm_renders_lists_and_draws_what_is_served_here() -> Result<()> {
    CLUSTER.with(async |stage| {
        let program = tokio::task::spawn_blocking(Binaries::ensure_opm).await??;
        let blobs = stage
            .lab
            .push_bundles("drawn", &["1.0.0", "1.0.1"], OPERATOR)
            .await?;
        let image = stage.lab.push_catalog("drawn-catalog:latest", &blobs).await?;
        let rendered = stage.run(&program, &["render", &image]).await?;
        ensure!(rendered.contains(r#""name": "drawn.v1.0.1""#), "{rendered}");
        let listed = stage.run(&program, &["alpha", "list", "bundles", &image]).await?;
        ensure!(listed.contains("drawn.v1.0.1"), "{listed}");
        let drawn = stage.run(&program, &["alpha", "render-graph", &image]).await?;
        ensure!(drawn.contains("drawn.v1.0.0"), "{drawn}");
        // opm recognizes a bundle by more labels than OLM does.
        let files = samples::renamed_bundle("drawn", "1.0.0", OPERATOR);
        let label = |key: &str| format!("operators.operatorframework.io.bundle.{key}.v1");
        let labels = [
            ("mediatype", "registry+v1"),
            ("manifests", "manifests/"),
            ("metadata", "metadata/"),
            ("package", "drawn"),
            ("channels", "stable"),
            ("channel.default", "stable"),
        ];
        let labels = labels.map(|(key, value)| (label(key), value));
        let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let reference = stage.lab.push("labelled-bundle:v1.0.0", &files, &labels).await?;
        let bundle = stage.run(&program, &["render", &reference.to_string()]).await?;
        ensure!(
            bundle.contains(r#""name": "drawn.v1.0.0""#) && bundle.contains(r#""package": "drawn""#),
            "{bundle}"
        );

        // A CatalogSource with an address reads the content that opm serves.
        stage.namespace("drawn")?;
        let mut opm = Opm::serve(&program, stage.lab.folder(), &blobs)?;
        let mut source = named(V1ALPHA1, "CatalogSource", "drawn", "catalog");
        source["spec"] = json!({"sourceType": "grpc", "address": opm.address()});
        let mut group = named("operators.coreos.com/v1", "OperatorGroup", "drawn", "group");
        group["spec"] = json!({});
        let mut subscription = named(V1ALPHA1, "Subscription", "drawn", "drawn");
        subscription["spec"] = json!({
            "name": "drawn", "source": "catalog", "sourceNamespace": "drawn", "channel": "stable",
        });
        stage.lab.apply(&[source, group, subscription.clone()])?;
        stage
            .becomes("the operator is installed", &subscription, |found| {
                found["status"]["installedCSV"] == "drawn.v1.0.1"
            })
            .await?;
        ensure!(!opm.has_ended()?, "opm has ended");
        Ok(())
    })
}
