//! The schema of ClusterExtension.

use serde_json::{Value, json};

use super::schema::{Schema, array, choice, integer, object, string};
use super::{
    AGE, Column, Columns, DNS_LABEL, DNS_SUBDOMAIN, PROGRESSING, READY, REASON, STATUS, TOOLS,
    VersionPattern, conditions, definition as define, label_selector, root, status_root, version_pattern,
};
use crate::names::{CLUSTER_EXTENSION, MAX_EXTENSION_NAME};
use crate::updates::{MAX_MESSAGE_BYTES, MAX_NAME_BYTES, held_back};

const SUBDOMAIN_RULES: &str = "It must contain only lowercase alphanumeric characters, hyphens (-) or periods (.), start and end with an alphanumeric character, and be no longer than 253 characters";

pub(super) fn definition() -> Value {
    let columns = Columns {
        always: &[
            Column {
                name: "Installed Bundle",
                kind: "string",
                path: ".status.install.bundle.name",
            },
            Column {
                name: "Version",
                kind: "string",
                path: ".status.install.bundle.version",
            },
            Column {
                name: "Installed",
                kind: "string",
                path: ".status.conditions[?(@.type=='Installed')].status",
            },
            PROGRESSING,
            READY,
            STATUS,
            Column {
                name: "Update",
                kind: "string",
                path: ".status.updates.newest.version",
            },
            AGE,
        ],
        wide: &[
            REASON,
            Column {
                name: "Package",
                kind: "string",
                path: ".spec.source.catalog.packageName",
            },
            Column {
                name: "Range",
                kind: "string",
                path: ".spec.source.catalog.version",
            },
            Column {
                name: "Next",
                kind: "string",
                path: ".status.updates.next.version",
            },
            Column {
                name: "Held Back By",
                kind: "string",
                path: ".status.updates.heldBackBy",
            },
        ],
    };
    let description = "A ClusterExtension installs one package of the catalogs on the cluster and keeps it at the requested version.";
    // Unlike a rule of the root, this bound lets the API server update objects that exist with a longer name.
    let name = string("").max_length(MAX_EXTENSION_NAME);
    let metadata = Schema::bare_object().property("name", name);
    let root = root(description, spec(), status()).property("metadata", metadata);
    define(CLUSTER_EXTENSION, "cext", &columns, root)
}

fn spec() -> Schema {
    object("The package, its namespace, and the service account that installs it.")
        .property("config", config())
        .property("install", install())
        .required(
            "namespace",
            string(
                "The namespace that the bundle is installed in and that the service account is looked up in. It must exist. Bundles may hold objects for other namespaces too.",
            )
            .max_length(63)
            .immutable("namespace is immutable")
            .matches(DNS_LABEL, "namespace must be a valid DNS1123 label"),
        )
        .property(
            "progressDeadlineMinutes",
            integer(
                "Minutes until a rollout is reported as failed. Without it, a rollout has no deadline. The rollout continues in any case.",
                "int32",
            )
            .range(10, 720),
        )
        .property("serviceAccount", service_account())
        .required("source", source())
}

fn config() -> Schema {
    object("Configuration for the bundle. The bundle defines its fields. OLM checks them before it applies anything.")
        .required("configType", choice("The form of the configuration. Inline: in the member inline.", &["Inline"]))
        .property(
            "inline",
            Schema::bare_object()
                .extension(
                    "description",
                    json!("The configuration. Bundles of format registry+v1 know watchNamespace, the namespace to watch, and deploymentConfig, settings for the operator's Pods."),
                )
                .extension("minProperties", json!(1))
                .extension("x-kubernetes-preserve-unknown-fields", json!(true)),
        )
        .union_member("configType", "Inline", "inline", "inline is required when configType is Inline, and forbidden otherwise")
}

fn install() -> Schema {
    let enforcement = choice(
        "Whether a finding stops the upgrade. Strict: it does, as when nothing is set. None: the check is left out, which can lose data.",
        &["None", "Strict"],
    );
    let crd_upgrade_safety =
        object("The check that a new version of a CustomResourceDefinition keeps existing data valid.")
            .required("enforcement", enforcement);
    let preflight = object("Checks made before anything is applied.")
        .required("crdUpgradeSafety", crd_upgrade_safety)
        .rule(
            "has(self.crdUpgradeSafety)",
            "at least one of [crdUpgradeSafety] are required when preflight is specified",
        );
    object("Settings of the checks made before an installation or upgrade.")
        .property("preflight", preflight)
        .rule(
            "has(self.preflight)",
            "at least one of [preflight] are required when install is specified",
        )
}

fn service_account() -> Schema {
    object(
        "The service account, in the namespace of spec.namespace, under which every object of the bundle is created, changed and deleted. It must exist and hold the permissions for that; a condition lists the missing ones. Without one the extension is blocked, unless the controller was started with a default account.",
    )
    .property(
        "name",
        string("The account's name. Once set it may be cleared but not changed.")
            .length(1, 253)
            .immutable("name is immutable once set but may be cleared")
            .matches(DNS_SUBDOMAIN, &format!("name must be a valid DNS1123 subdomain. {SUBDOMAIN_RULES}")),
    )
    .extension("minProperties", json!(1))
}

fn source() -> Schema {
    let catalog = object("The bundles that the extension may choose. All given restrictions apply.")
        .property(
            "channels",
            array(
                "The channels that supply versions and update paths. Without any, all channels of the package do.",
                string("A channel's name.")
                    .max_length(253)
                    .matches(DNS_SUBDOMAIN, "channels entries must be valid DNS1123 subdomains"),
            )
            .max_items(256),
        )
        .required(
            "packageName",
            string("The package to install.")
                .max_length(253)
                .immutable("packageName is immutable")
                .matches(DNS_SUBDOMAIN, &format!("packageName must be a valid DNS1123 subdomain. {SUBDOMAIN_RULES}")),
        )
        .property("selector", label_selector("The catalogs to look in, by label. Without it, or when it is empty, in all."))
        .property(
            "upgradeConstraintPolicy",
            choice(
                "Whether updates must follow the update paths of the catalog. CatalogProvided: they must. SelfCertified: any version that the other restrictions allow may follow any other, backwards too; this can lose data.",
                &["CatalogProvided", "SelfCertified"],
            )
            .default_value(json!("CatalogProvided")),
        )
        .property(
            "version",
            string(
                "A version or a range of versions. Without it, every version is allowed.\n\nComparisons use =, !=, >, <, >=, <=, ~ (patch releases) and ^ (minor releases); a version alone pins it. x, X and * stand for any number. Blanks and commas mean and, || means or, and 1.2 - 1.4 is a range with both ends.\n\nPre-releases match only where the comparisons name one: >=1.2.0-0 includes them.",
            )
            .max_length(64)
            .rule(
                &version_rule(),
                "invalid version expression: write a version or a range, for example 1.2.3, 1.x, >=1.2 <2 or ~1.4 || ^2.1",
            ),
        );
    object("The source of the bundle.")
        .property("catalog", catalog)
        .required(
            "sourceType",
            choice(
                "The kind of source. Catalog: the ClusterCatalogs on the cluster.",
                &["Catalog"],
            ),
        )
        .union_member(
            "sourceType",
            "Catalog",
            "catalog",
            "catalog is required when sourceType is Catalog, and forbidden otherwise",
        )
}

fn version_rule() -> String {
    let VersionPattern { accepted, refused } = version_pattern();
    format!("self.matches(r'{accepted}') && !self.matches(r'{refused}')")
}

fn status() -> Schema {
    let revision = object("A revision that is applied.")
        .property(
            "conditions",
            conditions("Available and Progressing of the revision, while it rolls out."),
        )
        .required("name", string("Name of the ClusterObjectSet."));
    let bundle = object("The bundle that is applied and complete.")
        .required("name", string("Its name in the catalog.").extension("minLength", json!(1)))
        .property(
            "release",
            string("Its release. Absent when it has none, empty when it says so explicitly.").max_length(20).matches(
                r"^$|^(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*$",
                "release must be empty or consist of dot-separated identifiers (numeric without leading zeros, or alphanumeric)",
            ),
        )
        .required(
            "version",
            string("Its version.").matches(
                r"^([0-9]+)(\.[0-9]+)?(\.[0-9]+)?(-([-0-9A-Za-z]+(\.[-0-9A-Za-z]+)*))?(\+([-0-9A-Za-z]+(-\.[-0-9A-Za-z]+)*))?",
                "version must be well-formed semver",
            ),
        );
    status_root("The state of the extension.")
        .property(
            "activeRevisions",
            array("The installed revision, then those that roll out, oldest first.", revision).map_list(&["name"]),
        )
        .property(
            "conditions",
            conditions(&format!(
                "{TOOLS} Installed: a bundle is applied and complete. Progressing: the controller works towards the spec, or says why it does not. Available: the objects pass their probes. Deprecated, PackageDeprecated, ChannelDeprecated, BundleDeprecated: the catalog deprecates the package, a channel or the bundle. Verified: the signature policy accepts the installed image; absent where it asks for no signature.",
            )),
        )
        .property("install", object("The installed bundle.").required("bundle", bundle))
        .property("updates", updates())
}

fn updates() -> Schema {
    let text = |description: &str| string(description).max_length(bound(MAX_NAME_BYTES));
    let bundle = |description: &str| {
        object(description)
            .required("catalog", text("The ClusterCatalog that has it."))
            .required("name", text("Its name in the catalog."))
            .property(
                "release",
                text("Its release. Absent when it has none, empty when it says so explicitly."),
            )
            .required("version", text("Its version."))
    };
    // Not an enum: a later version may add reasons that the definition on the cluster does not have.
    let reasons = held_back::ALL.join(", ");
    object(
        "Newer bundles in the catalogs that the extension may choose from. Absent while they are unknown; without members when there are none.",
    )
    .property(
        "heldBackBy",
        text(&format!(
            "The reason that holds back next or, if it is absent or not held back, newest: one of {reasons}. Later versions may add reasons. Catalog without newest: a catalog does not answer or is gone, and newer bundles are not known."
        )),
    )
    .property(
        "message",
        string("The causes, one line each.").max_length(bound(MAX_MESSAGE_BYTES)),
    )
    .property(
        "newest",
        bundle("The newest bundle, where it is newer than the installed one; while none is installed, where it is newer than next. The last known one while a catalog does not answer."),
    )
    .property("next", bundle("The bundle that is chosen and not installed yet."))
}

/// Bytes as a limit of characters.
fn bound(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
