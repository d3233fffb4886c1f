//! The schema of PendingChange.

use serde_json::{Value, json};

use super::schema::{Schema, array, boolean, choice, object, string};
use super::{AGE, Column, Columns, conditions, definition as define, root, status_root};
use crate::names::PENDING_CHANGE;

/// The fields that are fixed once the object is created: all but the decision.
const FIXED: [&str; 12] = [
    "account",
    "bundle",
    "class",
    "definitions",
    "digest",
    "extension",
    "extensionUID",
    "from",
    "image",
    "summary",
    "to",
    "widensRights",
];

pub(super) fn definition() -> Value {
    let columns = Columns {
        always: &[
            Column {
                name: "Extension",
                kind: "string",
                path: ".spec.extension",
            },
            Column {
                name: "From",
                kind: "string",
                path: ".spec.from",
            },
            Column {
                name: "To",
                kind: "string",
                path: ".spec.to",
            },
            Column {
                name: "Class",
                kind: "string",
                path: ".spec.class",
            },
            Column {
                name: "Decision",
                kind: "string",
                path: ".spec.decision.verdict",
            },
            Column {
                name: "Status",
                kind: "string",
                path: ".status.conditions[?(@.type=='Applied')].reason",
            },
            AGE,
        ],
        wide: &[
            Column {
                name: "Approver",
                kind: "string",
                path: ".spec.decision.approver",
            },
            Column {
                name: "Widens Rights",
                kind: "boolean",
                path: ".spec.widensRights",
            },
            Column {
                name: "Definitions",
                kind: "string",
                path: ".spec.definitions",
            },
        ],
    };
    let description = "A PendingChange is a change of a ClusterExtension that waits for an approval. operator-controller creates it; a user with the verb approve sets its decision. The approval covers exactly the content that its digest names.";
    let status = status_root("The state of the change.").property(
        "conditions",
        conditions("Applied: the change is made. Otherwise the reason names what holds it back, or is Void if the extension no longer wants the change."),
    );
    let root = root(description, spec(), status).extension("required", json!(["metadata", "spec"]));
    define(PENDING_CHANGE, "pchg", &columns, root)
}

fn spec() -> Schema {
    let text = |description: &str| string(description).max_length(1024);
    let decision = object("The decision. Absent until a user decides.")
        .required(
            "approver",
            string("The user who decides, as the API server knows them; an admission policy refuses another name.")
                .length(1, 1024),
        )
        .property("note", text("The reason."))
        .required(
            "verdict",
            choice("Whether the change is approved.", &["Approved", "Rejected"]),
        );
    let schema = object("The change, which never alters, and the decision.")
        .required("account", text("The account that applies it, NAMESPACE/NAME."))
        .required("bundle", text("The bundle to install."))
        .required(
            "class",
            choice(
                "The kind of change. Content: other objects of the same version.",
                &["Install", "Content", "Patch", "Minor", "Major"],
            ),
        )
        .property("decision", decision)
        .required(
            "definitions",
            choice(
                "The severity of the changes of CustomResourceDefinitions.",
                &["None", "Safe", "Breaking"],
            ),
        )
        .required(
            "digest",
            string("The digest of the plan to approve, as `olm plan` prints it.")
                .pattern("^sha256:[0-9a-f]{64}$"),
        )
        .required("extension", text("The name of the ClusterExtension."))
        .required("extensionUID", text("Its UID."))
        .property(
            "from",
            text("The version of the newest revision; absent before there is one."),
        )
        .required("image", text("The image of the bundle, by digest."))
        .property(
            "summary",
            array(
                "The changes, one per line. `olm plan` shows them in full.",
                text(""),
            )
            .max_items(100)
            .list_type("atomic"),
        )
        .required("to", text("The version to install."))
        .required(
            "widensRights",
            boolean("Whether the bundle grants rights that it did not grant before."),
        );
    FIXED.into_iter().fold(schema, |schema, field| {
        schema.rule(
            &format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"),
            &format!("{field} is immutable"),
        )
    })
}
