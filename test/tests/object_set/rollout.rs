//! A rollout from the first to the last object.

use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams};
use olm_api::names;
use serde_json::{Value, json};

use crate::world::{eventually, everything, in_place};

#[test]
fn a_rollout_past_its_deadline_is_reported_and_superseded_by_another_version() {
    in_place(everything(), async |place| {
        let mut set = place.set(1, &[("deploy", vec![place.deployment("operator")])]);
        let template = "/spec/phases/0/objects/0/object/spec/template/spec";
        set.pointer_mut(template).unwrap()["nodeSelector"] = json!({"no": "such-node"});
        set["spec"]["progressDeadlineMinutes"] = 720.into();
        let name = place.create(&set).await;
        place
            .until(
                &name,
                "Progressing=True/RollingOut",
                "Revision 1.0.0 is rolling out.",
            )
            .await;
        let patch = Patch::Merge(json!({"spec": {"progressDeadlineMinutes": 10}}));
        let params = PatchParams::default();
        place.world.sets().patch(&name, &params, &patch).await.unwrap();
        place
            .until(
                &name,
                "Progressing=False/ProgressDeadlineExceeded",
                "Revision has not rolled out for 10 minute(s). Last status: Revision 1.0.0 is rolling out.",
            )
            .await;
        place
            .until(&name, "Available=False/ProbeFailure", "Deployment.apps/v1")
            .await;

        let arguments = ["get", "cos", &name, "--no-headers"];
        let row = olm_test::world::kubectl(&place.world.cluster, &arguments, None).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert!(
            words
                .windows(2)
                .any(|two| two == ["False", "ProgressDeadlineExceeded"]),
            "{row}"
        );

        let better = place
            .create(&place.set(2, &[("deploy", vec![place.deployment("operator")])]))
            .await;
        place.until(&better, "Succeeded=True/Succeeded", "").await;
        place.until(&name, "Progressing=False/Archived", "").await;
    });
}

#[test]
fn a_set_rolls_out_phase_by_phase_under_its_account_and_is_removed_without_leftovers() {
    in_place(everything(), async |place| {
        let (definition, custom) = place.custom();
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "secret", "namespace": place.name}, "stringData": {"key": "value"}});
        let set = place.set(
            1,
            &[
                ("configuration", vec![place.config_map("one"), secret.clone()]),
                ("crds", vec![definition.clone()]),
                ("deploy", vec![place.deployment("operator"), custom.clone()]),
            ],
        );
        let name = place.create(&set).await;
        let done = place
            .until(
                &name,
                "Progressing=True/Succeeded",
                "Revision 1.0.0 has rolled out.",
            )
            .await;
        place
            .until(
                &name,
                "Available=True/ProbesSucceeded",
                "Objects are available and pass all probes.",
            )
            .await;
        place
            .until(
                &name,
                "Succeeded=True/Succeeded",
                "Revision succeeded rolling out.",
            )
            .await;
        assert_eq!(
            done.metadata.finalizers,
            Some(vec![names::finalizer::TEARDOWN.to_owned()])
        );
        assert_eq!(done.status.unwrap().observed_phases.len(), 3);

        let live = place.live(&place.deployment("operator")).await.unwrap();
        let owner = &live["metadata"]["ownerReferences"];
        assert_eq!(owner.as_array().unwrap().len(), 1);
        assert_eq!(
            (&owner[0]["controller"], &owner[0]["blockOwnerDeletion"]),
            (&json!(true), &Value::Null)
        );
        let managers: BTreeSet<String> = live["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["subresource"].is_null())
            .map(|entry| {
                format!(
                    "{} {}",
                    entry["manager"].as_str().unwrap(),
                    entry["operation"].as_str().unwrap()
                )
            })
            .collect();
        assert!(
            managers.contains("olm.operatorframework.io Apply"),
            "{managers:?}"
        );
        assert!(
            !managers.contains("olm.operatorframework.io Update"),
            "{managers:?}"
        );

        // Only the account wrote to these kinds.
        let writers = place
            .world
            .writers(&place.name, &["configmaps", "secrets", "deployments", "foos"]);
        assert_eq!(
            writers,
            BTreeSet::from([format!("system:serviceaccount:{}:installer", place.name)])
        );

        place.remove(&name).await;
        place.until_gone(&name).await;
        assert_eq!(place.left().await, Vec::<String>::new());
        assert_eq!(place.live(&custom).await, None);
        let order = place.world.deletions(&place.name);
        let at = |what: &str| {
            order
                .iter()
                .position(|path| path.contains(what))
                .unwrap_or_else(|| panic!("{order:?}"))
        };
        assert!(at("/foos/foo") < at("/customresourcedefinitions/"), "{order:?}");
        assert!(
            at("/customresourcedefinitions/") < at("/configmaps/one"),
            "{order:?}"
        );
    });
}

#[test]
fn a_phase_that_the_server_refuses_is_not_begun() {
    in_place(everything(), async |place| {
        let mut wrong = place.config_map("wrong");
        wrong["data"] = json!({"bad key!": "x"});
        let name = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one"), wrong])]))
            .await;
        place
            .until(
                &name,
                "Progressing=True/Retrying",
                "phase 0 (deploy) validation error: v1, Kind=ConfigMap",
            )
            .await;
        assert_eq!(place.live(&place.config_map("one")).await, None);
    });
}

#[test]
fn a_paused_set_writes_nothing_and_reports_the_pending_writes() {
    in_place(everything(), async |place| {
        let mut set = place.set(1, &[("deploy", vec![place.config_map("one")])]);
        set["metadata"]["annotations"][names::user::PAUSED] = "true".into();
        let name = place.create(&set).await;
        let message = format!("to be applied: ConfigMap.v1 {}/one", place.name);
        place.until(&name, "Progressing=False/Blocked", &message).await;
        assert_eq!(place.live(&place.config_map("one")).await, None);
        place.annotate(&name, names::user::PAUSED, "false").await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
    });
}

#[test]
fn missing_kinds_are_waited_for_or_left_out_as_the_user_says() {
    in_place(everything(), async |place| {
        let (definition, custom) = place.custom();
        let phases = [
            ("deploy", vec![place.config_map("one")]),
            ("publish", vec![custom.clone()]),
        ];
        let name = place.create(&place.set(1, &phases)).await;
        let message = format!(
            "the cluster has no kind Foo in version v1 of group {}.example.com; the rollout waits until the cluster serves the \
             missing kinds: install their provider, or set the annotation {}",
            place.name,
            names::user::MISSING_KINDS
        );
        place.until(&name, "Progressing=True/Retrying", &message).await;
        assert!(place.live(&place.config_map("one")).await.is_some());
        place.annotate(&name, names::user::MISSING_KINDS, "skip").await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        let left_out = format!(
            "because the cluster lacks their kinds: Foo.{}.example.com/v1 ",
            place.name
        );
        place.until(&name, "Ready=True/Healthy", &left_out).await;
        place.apply(definition).await;
        eventually("the object comes with its kind", async || {
            place.live(&custom).await.is_some()
        })
        .await;
    });
}

#[test]
fn a_webhook_that_takes_no_part_in_dry_runs_blocks_no_rollout() {
    in_place(everything(), async |place| {
        place.hinder_dry_runs().await;
        // A phase of several objects has a dry run before it begins.
        let maps = vec![place.config_map("one"), place.config_map("two")];
        let name = place.create(&place.set(1, &[("deploy", maps)])).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
    });
}
