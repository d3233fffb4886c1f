//! The schema of ClusterObjectSet.

use serde_json::{Value, json};

use super::schema::{Schema, array, choice, integer, object, string};
use super::{
    AGE, Column, Columns, PROGRESSING, READY, REASON, STATUS, TOOLS, conditions, definition as define,
    label_selector, root, status_root,
};
use crate::names::CLUSTER_OBJECT_SET;

/// The annotation `olm.operatorframework.io/bundle-version`.
const BUNDLE_VERSION: &str = r".metadata.annotations.olm\.operatorframework\.io/bundle-version";

pub(super) fn definition() -> Value {
    let columns = Columns {
        always: &[
            Column {
                name: "Available",
                kind: "string",
                path: ".status.conditions[?(@.type=='Available')].status",
            },
            PROGRESSING,
            Column {
                name: "Version",
                kind: "string",
                path: BUNDLE_VERSION,
            },
            Column {
                name: "Revision",
                kind: "integer",
                path: ".spec.revision",
            },
            READY,
            STATUS,
            AGE,
        ],
        wide: &[
            Column {
                name: "Lifecycle",
                kind: "string",
                path: ".spec.lifecycleState",
            },
            REASON,
        ],
    };
    let description = "A ClusterObjectSet is one revision of a set of objects. It is applied phase by phase, kept as it is written, and archived when its successor is complete.";
    define(
        CLUSTER_OBJECT_SET,
        "cos",
        &columns,
        root(description, spec(), status()),
    )
}

fn spec() -> Schema {
    object("The objects and how they are rolled out.")
        .required(
            "collisionProtection",
            collision_protection("The action for objects that exist already, unless the phase or the object sets another one.")
                .immutable("collisionProtection is immutable"),
        )
        .required(
            "lifecycleState",
            choice(
                "Active: the objects are applied and kept. Archived: they are taken down in reverse order, but for those that a newer revision owns. There is no way back.",
                &["Active", "Archived"],
            )
            .rule("oldSelf == 'Active' || oldSelf == 'Archived' && oldSelf == self", "cannot un-archive"),
        )
        .property(
            "phases",
            array("The phases in order. Each begins when the one before is complete. Once there are any they never change.", phase())
                .max_items(20)
                .map_list(&["name"])
                .rule("self == oldSelf || oldSelf.size() == 0", "phases is immutable"),
        )
        .property(
            "progressDeadlineMinutes",
            integer(
                "Minutes until the rollout is reported as failed. Without it, the rollout has no deadline. The rollout continues in any case.",
                "int32",
            )
            .range(10, 720),
        )
        .property(
            "progressionProbes",
            array("When objects count as ready. Objects that no probe selects are ready once applied.", probe())
                .items(1, 20)
                .list_type("atomic"),
        )
        .required(
            "revision",
            integer("The number of this revision. Among those of one owner, the higher is the newer.", "int64")
                .minimum(1)
                .immutable("revision is immutable"),
        )
}

fn collision_protection(description: &str) -> Schema {
    choice(
        &format!(
            "{description} Prevent: they are never touched. IfNoController: those without a controller are adopted. None: all are adopted."
        ),
        &["Prevent", "IfNoController", "None"],
    )
}

fn phase_name(description: &str) -> Schema {
    string(description).length(1, 63).rule(
        "!format.dns1123Label().validate(self).hasValue()",
        "the value must consist of only lowercase alphanumeric characters and hyphens, and must start and end with an alphanumeric character.",
    )
}

fn phase() -> Schema {
    object("Objects that are applied together.")
        .property(
            "collisionProtection",
            collision_protection("Overrides the set's."),
        )
        .required("name", phase_name("Its name."))
        .required("objects", array("Its objects.", phase_object()).max_items(50))
}

fn phase_object() -> Schema {
    let reference = object("A key of a Secret that holds the object. The Secret must be immutable.")
        .required("key", string("The key in its data.").length(1, 253))
        .required("name", string("Its name.").length(1, 253))
        .property(
            "namespace",
            string("Its namespace. Without it, the namespace that the managers run in.").max_length(63),
        );
    object("One object, either written here or referred to.")
        .property(
            "collisionProtection",
            collision_protection("Overrides the phase's."),
        )
        .property(
            "object",
            object("The object itself.")
                .extension("x-kubernetes-embedded-resource", json!(true))
                .extension("x-kubernetes-preserve-unknown-fields", json!(true)),
        )
        .property("ref", reference)
        .rule(
            "[has(self.object),has(self.ref)].filter(x,x==true).size() == 1",
            "exactly one of the fields in [object ref] must be set",
        )
}

fn probe() -> Schema {
    object("The probes that the selected objects must pass.")
        .required(
            "assertions",
            array("The assertions. All must hold.", assertion())
                .items(1, 20)
                .list_type("atomic"),
        )
        .required("selector", selector())
}

fn union(schema: Schema, members: &[(&str, &str)]) -> Schema {
    members.iter().fold(schema, |schema, (value, member)| {
        schema.rule(
            &format!("self.type == '{value}' ?has(self.{member}) : !has(self.{member})"),
            &format!("{member} is required when type is {value}, and forbidden otherwise"),
        )
    })
}

fn assertion() -> Schema {
    let text = |description: &str| string(description).length(1, 200);
    let path = |description: &str| {
        text(description).matches(
            r"^[a-zA-Z0-9]+(?:\.[a-zA-Z0-9]+)*$",
            "must contain a valid field path. valid fields contain upper or lower-case alphanumeric characters separated by the \".\" character.",
        )
    };
    let condition_equal = object("A condition in the object's status has this value.")
        .required("status", choice("The value.", &["True", "False"]))
        .required("type", text("The condition's type."));
    let field_value = object("A field has this value.")
        .required(
            "fieldPath",
            path("The path to the field, its steps separated by dots."),
        )
        .required("value", text("The value, as text."));
    let fields_equal = object("Two fields are equal.")
        .required(
            "fieldA",
            path("The path to one field, its steps separated by dots."),
        )
        .required("fieldB", path("The path to the other."));
    let schema = object("An assertion.")
        .property("conditionEqual", condition_equal)
        .property("fieldValue", field_value)
        .property("fieldsEqual", fields_equal)
        .required(
            "type",
            choice(
                "The kind of assertion.",
                &["ConditionEqual", "FieldsEqual", "FieldValue"],
            ),
        );
    union(
        schema,
        &[
            ("ConditionEqual", "conditionEqual"),
            ("FieldsEqual", "fieldsEqual"),
            ("FieldValue", "fieldValue"),
        ],
    )
}

fn selector() -> Schema {
    let group_kind = object("All objects of a kind.")
        .required("group", string("The API group; empty for the core group."))
        .required("kind", string("The kind."));
    let label = label_selector("All objects with these labels.").rule(
        "(has(self.matchExpressions) && !has(self.matchLabels)) || (!has(self.matchExpressions) && has(self.matchLabels))",
        "exactly one of matchLabels or matchExpressions must be set",
    );
    let schema = object("The objects that are probed.")
        .property("groupKind", group_kind)
        .property("label", label)
        .required(
            "type",
            choice("How the objects are selected.", &["GroupKind", "Label"]),
        );
    union(schema, &[("GroupKind", "groupKind"), ("Label", "label")])
}

fn status() -> Schema {
    let observed = object("The content of a phase when the controller first read it.")
        .required(
            "digest",
            string("Digest of its objects.").length(1, 256).matches(
                "^[a-z0-9]+:[a-f0-9]+$",
                "digest must be in the format '<algorithm>:<hex>'",
            ),
        )
        .required("name", phase_name("Name of the phase."));
    status_root("The state of the set.")
        .property(
            "conditions",
            conditions(&format!(
                "{TOOLS} Progressing: the objects are applied, complete, or cannot be applied. Available: they pass their probes. Succeeded: all phases were complete once.",
            )),
        )
        .property(
            "observedPhases",
            array("The content of the phases when the controller first read them. Content that differs later is not applied.", observed)
                .max_items(20)
                .map_list(&["name"])
                .rule("self == oldSelf || oldSelf.size() == 0", "observedPhases is immutable"),
        )
}
