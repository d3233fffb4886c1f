//! The files for GitOps tools.

use anyhow::{Context as _, Result, ensure};
use olm_api::names;
use olm_test::gitops::ask;
use olm_test::world::repository;
use serde_json::{Value, json};

const KINDS: &[&str] = &[
    names::CLUSTER_CATALOG,
    names::CLUSTER_EXTENSION,
    names::CLUSTER_OBJECT_SET,
];

#[test]
fn the_config_map_holds_the_same_scripts_as_the_folder_of_argo_cd() -> Result<()> {
    let folder = repository().join("manifests/gitops/argocd");
    let text = std::fs::read(folder.join("argocd-cm.yaml"))?;
    let mut documents = olm_yaml::documents(text.as_slice(), &olm_yaml::Limits::default());
    let map = documents.next().context("a document")??.into_value()?;
    let data = map["data"].as_object().context("data")?;
    ensure!(data.len() == KINDS.len(), "{:?}", data.keys());
    for kind in KINDS {
        let key = format!("resource.customizations.health.{}_{kind}", names::GROUP);
        let path = format!("resource_customizations/{}/{kind}/health.lua", names::GROUP);
        let script = std::fs::read_to_string(folder.join(&path))?;
        ensure!(
            data.get(&key).and_then(Value::as_str) == Some(script.as_str()),
            "{path} differs from {key}"
        );
    }
    Ok(())
}

#[test]
fn an_object_that_no_controller_has_seen_is_in_progress() -> Result<()> {
    let of = |kind: &str, status: Value| {
        let mut object = json!({
            "apiVersion": names::API_VERSION, "kind": kind, "metadata": { "name": "x", "generation": 1 },
        });
        if !status.is_null() {
            object["status"] = status;
        }
        object
    };
    for kind in KINDS {
        let unseen = of(kind, json!({ "observedGeneration": -1 }));
        let older = of(kind, json!({ "conditions": [] }));
        let said = ask(&[unseen, older])?;
        let [unseen, older] = said.as_slice() else {
            anyhow::bail!("{said:?}");
        };
        let words = [unseen.kstatus.as_str(), &unseen.argo.status, &unseen.flux];
        ensure!(
            words == ["InProgress", "Progressing", "InProgress"],
            "{kind}: {unseen:?}"
        );
        // kstatus treats an object without any condition as current: hence the default of -1.
        let words = [older.argo.status.as_str(), &older.flux];
        ensure!(words == ["Progressing", "InProgress"], "{kind}: {older:?}");
    }
    Ok(())
}
