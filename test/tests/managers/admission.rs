//! The objects that admission accepts.

use anyhow::{Context as _, Result, bail, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use olm_api::ClusterExtension;
use serde_json::json;

use crate::CLUSTER;

/// Only ranges that the range grammar accepts pass admission; any bundle name may be reported.
#[test]
fn admission_and_parser_accept_the_same_ranges() -> Result<()> {
    CLUSTER.with(async |stage| {
        let world = &stage.world;
    let extensions: Api<ClusterExtension> = Api::all(world.client.clone());
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for (version, accepted) in [
        ("1||2 - 3", true),
        ("1 - 2 3 - 4,5", true),
        ("\t1\n-\r2", true),
        ("x.1x.99999999999999999999", true),
        ("18446744073709551615", true),
        ("1.2--+001", true),
        (">=1.2.3-0 <2 || ~v3.x", true),
        (
            "1111111111.1111111111.1111111111-1111111111.1111111111.111111111",
            true,
        ),
        (
            "1111111111.1111111111.1111111111-1111111111.1111111111.1111111111",
            false,
        ),
        ("", false),
        (" ", false),
        ("1|2", false),
        ("x.1|2", false),
        ("1 - 2>3", false),
        (">=1 2 - 3", false),
        ("18446744073709551616", false),
        ("1.2.3-01", false),
        ("1.0.0\u{b}", false),
        ("1\u{a0}2", false),
        ("latest", false),
    ] {
        let extension: ClusterExtension = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": { "name": "dry" },
            "spec": { "namespace": "n", "source": { "sourceType": "Catalog", "catalog": {
                "packageName": "p", "version": version } } },
        }))?;
        let outcome = extensions.create(&dry, &extension).await;
        match &outcome {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 422 => {}
            Err(error) => bail!("{version:?}: {error}"),
        }
        let grammar = olm_version::masterminds::Constraint::parse(version).is_ok();
        ensure!(
            outcome.is_ok() == accepted && (accepted == grammar || version.len() > 64),
            "{version:?}: {outcome:?}"
        );
    }
    for name in ["a", "Strange_Name+v1", "greeter.v1.0.0", "-", &"long".repeat(100)] {
        let patch = json!({ "status": { "install": { "bundle": { "name": name, "version": "1.0.0" } } } });
        let dry = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        extensions
            .patch_status("greeter", &dry, &Patch::Merge(&patch))
            .await
            .with_context(|| format!("bundle {name:?}"))?;
    }
    Ok(())
    })
}
