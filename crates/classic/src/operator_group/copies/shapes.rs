//! The Go types of a ClusterServiceVersion.

use crate::wire::deployment::{DEPLOYMENT_SPEC, EMPTY_DEPLOYMENT};
use crate::wire::{Field, SELECTOR, Shape};

const TEXT: &str = "\"\"";
const PLAIN: Shape = Shape::Plain;

const fn text(name: &'static str) -> Field {
    Field::always(name, TEXT, PLAIN)
}

const fn optional(name: &'static str) -> Field {
    Field::optional(name, PLAIN)
}

/// Fields that the hash of a copy's content covers.
pub(super) const COPY: Shape = Shape::Struct(&[
    Field::always("metadata", "{}", METADATA),
    Field::always("spec", EMPTY_SPEC, SPEC),
    Field::always("status", "{\"cleanup\":{}}", STATUS),
]);

const METADATA: Shape = Shape::Struct(&[optional("name"), optional("labels"), optional("annotations")]);

const EMPTY_SPEC: &str = concat!(
    r#"{"install":{"strategy":"","spec":{"deployments":null}},"version":"0.0.0","customresourcedefinitions":{},"#,
    r#""apiservicedefinitions":{},"displayName":"","provider":{},"cleanup":{"enabled":false}}"#
);

const SPEC: Shape = Shape::Struct(&[
    Field::always(
        "install",
        r#"{"strategy":"","spec":{"deployments":null}}"#,
        INSTALL,
    ),
    Field::always("version", "\"0.0.0\"", PLAIN),
    optional("release"),
    optional("maturity"),
    Field::always("customresourcedefinitions", "{}", DEFINITIONS),
    Field::always("apiservicedefinitions", "{}", API_SERVICES),
    Field::optional("webhookdefinitions", Shape::List(&WEBHOOK)),
    Field::optional("nativeAPIs", Shape::List(&NATIVE_API)),
    optional("minKubeVersion"),
    text("displayName"),
    optional("description"),
    optional("keywords"),
    Field::optional("maintainers", Shape::List(&MAINTAINER)),
    Field::always("provider", "{}", LINK),
    Field::optional("links", Shape::List(&LINK)),
    Field::optional("icon", Shape::List(&ICON)),
    Field::optional("installModes", Shape::List(&INSTALL_MODE)),
    optional("replaces"),
    optional("labels"),
    optional("annotations"),
    Field::optional("selector", SELECTOR),
    Field::always("cleanup", "{\"enabled\":false}", CLEANUP),
    optional("skips"),
    Field::optional("relatedImages", Shape::List(&RELATED_IMAGE)),
]);

const INSTALL: Shape = Shape::Struct(&[
    text("strategy"),
    Field::always("spec", "{\"deployments\":null}", STRATEGY),
]);
const STRATEGY: Shape = Shape::Struct(&[
    Field::always("deployments", "null", Shape::List(&DEPLOYMENT)),
    Field::optional("permissions", Shape::List(&PERMISSIONS)),
    Field::optional("clusterPermissions", Shape::List(&PERMISSIONS)),
]);
const DEPLOYMENT: Shape = Shape::Struct(&[
    text("name"),
    Field::always("spec", EMPTY_DEPLOYMENT, DEPLOYMENT_SPEC),
    optional("label"),
]);
/// Permissions of a service account.
pub(crate) const PERMISSIONS: Shape = Shape::Struct(&[
    text("serviceAccountName"),
    Field::always("rules", "null", Shape::List(&RULE)),
]);
/// A rule of a role.
pub(crate) const RULE: Shape = Shape::Struct(&[
    Field::always("verbs", "null", PLAIN),
    optional("apiGroups"),
    optional("resources"),
    optional("resourceNames"),
    optional("nonResourceURLs"),
]);
const DEFINITIONS: Shape = Shape::Struct(&[
    Field::optional("owned", Shape::List(&DEFINITION)),
    Field::optional("required", Shape::List(&DEFINITION)),
]);
const DEFINITION: Shape = Shape::Struct(&[
    text("name"),
    text("version"),
    text("kind"),
    optional("displayName"),
    optional("description"),
    Field::optional("resources", Shape::List(&RESOURCE)),
    Field::optional("statusDescriptors", Shape::List(&DESCRIPTOR)),
    Field::optional("specDescriptors", Shape::List(&DESCRIPTOR)),
    Field::optional("actionDescriptors", Shape::List(&DESCRIPTOR)),
]);
const API_SERVICES: Shape = Shape::Struct(&[
    Field::optional("owned", Shape::List(&API_SERVICE)),
    Field::optional("required", Shape::List(&API_SERVICE)),
]);
const API_SERVICE: Shape = Shape::Struct(&[
    text("name"),
    text("group"),
    text("version"),
    text("kind"),
    optional("deploymentName"),
    optional("containerPort"),
    optional("displayName"),
    optional("description"),
    Field::optional("resources", Shape::List(&RESOURCE)),
    Field::optional("statusDescriptors", Shape::List(&DESCRIPTOR)),
    Field::optional("specDescriptors", Shape::List(&DESCRIPTOR)),
    Field::optional("actionDescriptors", Shape::List(&DESCRIPTOR)),
]);
const RESOURCE: Shape = Shape::Struct(&[text("name"), text("kind"), text("version")]);
const DESCRIPTOR: Shape = Shape::Struct(&[
    text("path"),
    optional("displayName"),
    optional("description"),
    optional("x-descriptors"),
    optional("value"),
]);
/// A webhook definition.
pub(crate) const WEBHOOK: Shape = Shape::Struct(&[
    text("generateName"),
    text("type"),
    optional("deploymentName"),
    optional("containerPort"),
    optional("targetPort"),
    Field::optional("rules", Shape::List(&WEBHOOK_RULE)),
    optional("failurePolicy"),
    optional("matchPolicy"),
    Field::optional("objectSelector", SELECTOR),
    Field::always("sideEffects", "null", PLAIN),
    optional("timeoutSeconds"),
    Field::always("admissionReviewVersions", "null", PLAIN),
    optional("reinvocationPolicy"),
    optional("webhookPath"),
    optional("conversionCRDs"),
]);
const WEBHOOK_RULE: Shape = Shape::Struct(&[
    optional("operations"),
    optional("apiGroups"),
    optional("apiVersions"),
    optional("resources"),
    optional("scope"),
]);
const NATIVE_API: Shape = Shape::Struct(&[text("group"), text("version"), text("kind")]);
const MAINTAINER: Shape = Shape::Struct(&[optional("name"), optional("email")]);
const LINK: Shape = Shape::Struct(&[optional("name"), optional("url")]);
const ICON: Shape = Shape::Struct(&[text("base64data"), text("mediatype")]);
const INSTALL_MODE: Shape = Shape::Struct(&[text("type"), Field::always("supported", "false", PLAIN)]);
const CLEANUP: Shape = Shape::Struct(&[Field::always("enabled", "false", PLAIN)]);
const RELATED_IMAGE: Shape = Shape::Struct(&[text("name"), text("image")]);

/// A status.
pub(super) const STATUS: Shape = Shape::Struct(&[
    optional("phase"),
    optional("message"),
    optional("reason"),
    optional("lastUpdateTime"),
    optional("lastTransitionTime"),
    Field::optional("conditions", Shape::List(&CONDITION)),
    Field::optional("requirementStatus", Shape::List(&REQUIREMENT)),
    optional("certsLastUpdated"),
    optional("certsRotateAt"),
    Field::always("cleanup", "{}", Shape::Struct(&[optional("pendingDeletion")])),
]);
const CONDITION: Shape = Shape::Struct(&[
    optional("phase"),
    optional("message"),
    optional("reason"),
    optional("lastUpdateTime"),
    optional("lastTransitionTime"),
]);
const REQUIREMENT: Shape = Shape::Struct(&[
    text("group"),
    text("version"),
    text("kind"),
    text("name"),
    text("status"),
    text("message"),
    optional("uuid"),
    Field::optional("dependents", Shape::List(&DEPENDENT)),
]);
const DEPENDENT: Shape = Shape::Struct(&[
    text("group"),
    text("version"),
    text("kind"),
    text("status"),
    optional("uuid"),
    optional("message"),
]);
