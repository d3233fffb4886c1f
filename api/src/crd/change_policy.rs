//! The schema of ChangePolicy.

use serde_json::{Value, json};

use super::schema::{Schema, array, boolean, choice, object, string};
use super::{
    AGE, Column, Columns, READY, STATUS, TOOLS, conditions, definition as define, label_selector, root,
    status_root,
};
use crate::names::CHANGE_POLICY;

pub(super) fn definition() -> Value {
    let columns = Columns {
        always: &[
            Column {
                name: "Approval",
                kind: "string",
                path: ".spec.approval.default",
            },
            Column {
                name: "Freeze",
                kind: "boolean",
                path: ".spec.freeze",
            },
            READY,
            STATUS,
            AGE,
        ],
        wide: &[Column {
            name: "Windows",
            kind: "string",
            path: ".spec.windows[*].schedule",
        }],
    };
    let description = "A ChangePolicy says which changes of the ClusterExtensions that it selects need an approval, and when changes may begin. Where several select an extension, all of them apply. Drift repair, rollouts that have begun, and deletions continue.";
    let status = status_root("Whether the policy can be used.").property(
        "conditions",
        conditions(&format!(
            "{TOOLS} A policy that cannot be used holds back every change of the extensions that it selects."
        )),
    );
    let root = root(description, spec(), status).extension("required", json!(["metadata", "spec"]));
    define(CHANGE_POLICY, "chpol", &columns, root)
}

fn spec() -> Schema {
    object("The rules.")
        .property("approval", approval())
        .property(
            "freeze",
            boolean("Whether no change begins at all, approved or not.").default_value(json!(false)),
        )
        .required(
            "selector",
            label_selector("Selects ClusterExtensions by their labels. An empty selector selects all."),
        )
        .property(
            "windows",
            array("When changes may begin: while one of the windows is open. Without windows, at any time. A change that has begun continues.", window())
                .max_items(20)
                .list_type("atomic"),
        )
}

fn mode(description: &str) -> Schema {
    choice(description, &["Automatic", "Manual"])
}

fn approval() -> Schema {
    object("The changes that need an approval. Manual: the change waits until a user approves its PendingChange.")
        .default_value(json!({}))
        .property(
            "default",
            mode("Applies to every kind of change that is not named here.").default_value(json!("Automatic")),
        )
        .property("install", mode("For a first installation."))
        .property("major", mode("For another major version."))
        .property("minor", mode("For another minor version."))
        .property("patch", mode("For another patch version, and for other content of the same version."))
        .property(
            "widenedRights",
            mode("For a change after which the bundle grants rights that it did not grant before, whatever its version."),
        )
}

fn window() -> Schema {
    object("A recurring window.")
        .required(
            "duration",
            string("The duration in hours and minutes, at most 168h: 4h, 90m, 1h30m.")
                .length(2, 16)
                .pattern("^([0-9]+h)?([0-9]+m)?$"),
        )
        .required(
            "schedule",
            string("When it opens: minute, hour, day of the month, month and day of the week, as cron writes them. A time that the clock skips in spring opens it as much later; a time that the clock shows twice in autumn opens it twice.")
                .length(9, 200)
                .pattern(r"^\S+( +\S+){4}$"),
        )
        .property(
            "timeZone",
            string("The time zone of the schedule, by its IANA name: Europe/Berlin.")
                .length(1, 64)
                .pattern("^[A-Za-z0-9+_/-]+$")
                .default_value(json!("UTC")),
        )
}
