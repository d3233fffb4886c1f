//! An operator without one of its objects: the report, the command and the annotation refuse its move alike.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{MIGRATE, annotate, condition, is_still, operator, serve, subscribe_to, written};
use crate::olm;
use crate::running::{CLUSTER, Operator, publish_with_secret};

const BADGE: Operator = operator("badge", "badge.v1.0.0", "greetings.badge.olm.example");
const FINDING: &str = "Secret \"badge-token\" of the operator does not exist";

#[test]
fn an_operator_without_the_token_of_its_account_is_refused_before_anything_is_written() -> Result<()> {
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": "badge-token", "annotations": {"kubernetes.io/service-account.name": "badge-operator"},
            },
        });
        let image = publish_with_secret(world, "badge", &secret).await?;
        subscribe_to(stage, BADGE, &image, true, json!({}))?;
        stage.installs(BADGE).await?;
        serve(world, "badge", &image)?;
        // Kubernetes deletes it where OLM classic has made the account later.
        let token = ["secret", "badge-token", "-n", "badge", "--ignore-not-found"];
        world.kubectl(&[&["delete"][..], &token].concat())?;

        let before = written(stage, BADGE)?;
        let blocked = format!("blocked (objects): {FINDING}");
        for line in ["--dry-run", "--yes"] {
            let line = format!("migrate badge -n badge --service-account installer {line}");
            olm(world, &line)?
                .ended(1)?
                .shows(&["no, 1 to fix", &blocked, "leave it to OLM classic"])?;
        }
        let after = written(stage, BADGE)?;
        ensure!(before == after, "was {before:#?}, is {after:#?}");

        annotate(world, "subscription/badge", BADGE, MIGRATE)?;
        let condition = condition(stage, BADGE, "Blocked").await?;
        let message = condition["message"].as_str().unwrap_or_default();
        ensure!(message.starts_with(&format!("objects: {FINDING}")), "{message}");
        is_still(stage, BADGE).await
    })
}
