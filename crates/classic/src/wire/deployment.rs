//! The Go type of a DeploymentSpec, whose JSON the label `olm.deployment-spec-hash` is the hash of.

use crate::wire::{Field, SELECTOR, Shape};

mod volumes;

use volumes::VOLUME;

const PLAIN: Shape = Shape::Plain;

const fn text(name: &'static str) -> Field {
    Field::always(name, "\"\"", PLAIN)
}

const fn number(name: &'static str) -> Field {
    Field::always(name, "0", PLAIN)
}

const fn optional(name: &'static str) -> Field {
    Field::optional(name, PLAIN)
}

const fn pointer(name: &'static str) -> Field {
    Field::pointer(name, PLAIN)
}

/// The text of a DeploymentSpec without fields.
pub(crate) const EMPTY_DEPLOYMENT: &str =
    r#"{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}}"#;
/// A DeploymentSpec.
pub(crate) const DEPLOYMENT_SPEC: Shape = Shape::Struct(&[
    pointer("replicas"),
    Field::always("selector", "null", SELECTOR),
    Field::always(
        "template",
        r#"{"metadata":{},"spec":{"containers":null}}"#,
        TEMPLATE,
    ),
    Field::always(
        "strategy",
        "{}",
        Shape::Struct(&[optional("type"), Field::pointer("rollingUpdate", ROLLING_UPDATE)]),
    ),
    optional("minReadySeconds"),
    pointer("revisionHistoryLimit"),
    optional("paused"),
    pointer("progressDeadlineSeconds"),
]);
const ROLLING_UPDATE: Shape = Shape::Struct(&[pointer("maxUnavailable"), pointer("maxSurge")]);
const TEMPLATE: Shape = Shape::Struct(&[
    Field::always("metadata", "{}", METADATA),
    Field::always("spec", "{\"containers\":null}", POD_SPEC),
]);
const METADATA: Shape = Shape::Struct(&[
    optional("name"),
    optional("generateName"),
    optional("namespace"),
    optional("labels"),
    optional("annotations"),
    optional("finalizers"),
]);

/// A PodSpec.
pub(crate) const POD_SPEC: Shape = Shape::Struct(&[
    Field::optional("volumes", Shape::List(&VOLUME)),
    Field::optional("initContainers", Shape::List(&CONTAINER)),
    Field::always("containers", "null", Shape::List(&CONTAINER)),
    Field::optional("ephemeralContainers", Shape::List(&CONTAINER)),
    optional("restartPolicy"),
    pointer("terminationGracePeriodSeconds"),
    pointer("activeDeadlineSeconds"),
    optional("dnsPolicy"),
    optional("nodeSelector"),
    optional("serviceAccountName"),
    optional("serviceAccount"),
    pointer("automountServiceAccountToken"),
    optional("nodeName"),
    optional("hostNetwork"),
    optional("hostPID"),
    optional("hostIPC"),
    pointer("shareProcessNamespace"),
    Field::pointer("securityContext", POD_SECURITY),
    Field::optional("imagePullSecrets", Shape::List(&NAMED)),
    optional("hostname"),
    optional("subdomain"),
    Field::pointer("affinity", AFFINITY),
    optional("schedulerName"),
    Field::optional("tolerations", Shape::List(&TOLERATION)),
    Field::optional(
        "hostAliases",
        Shape::List(&Shape::Struct(&[text("ip"), optional("hostnames")])),
    ),
    optional("priorityClassName"),
    pointer("priority"),
    Field::pointer("dnsConfig", DNS_CONFIG),
    Field::optional(
        "readinessGates",
        Shape::List(&Shape::Struct(&[text("conditionType")])),
    ),
    pointer("runtimeClassName"),
    pointer("enableServiceLinks"),
    pointer("preemptionPolicy"),
    optional("overhead"),
    Field::optional("topologySpreadConstraints", Shape::List(&SPREAD)),
    pointer("setHostnameAsFQDN"),
    Field::pointer("os", Shape::Struct(&[text("name")])),
    pointer("hostUsers"),
    Field::optional("schedulingGates", Shape::List(&Shape::Struct(&[text("name")]))),
    Field::optional("resourceClaims", Shape::List(&RESOURCE_CLAIM)),
    Field::pointer("resources", RESOURCES),
    pointer("hostnameOverride"),
]);
const NAMED: Shape = Shape::Struct(&[optional("name")]);
const RESOURCE_CLAIM: Shape = Shape::Struct(&[
    text("name"),
    pointer("resourceClaimName"),
    pointer("resourceClaimTemplateName"),
]);
const TOLERATION: Shape = Shape::Struct(&[
    optional("key"),
    optional("operator"),
    optional("value"),
    optional("effect"),
    pointer("tolerationSeconds"),
]);
const DNS_CONFIG: Shape = Shape::Struct(&[
    optional("nameservers"),
    optional("searches"),
    Field::optional(
        "options",
        Shape::List(&Shape::Struct(&[optional("name"), pointer("value")])),
    ),
]);
const SPREAD: Shape = Shape::Struct(&[
    number("maxSkew"),
    text("topologyKey"),
    text("whenUnsatisfiable"),
    Field::pointer("labelSelector", SELECTOR),
    pointer("minDomains"),
    pointer("nodeAffinityPolicy"),
    pointer("nodeTaintsPolicy"),
    optional("matchLabelKeys"),
]);
const SELINUX: Shape = Shape::Struct(&[
    optional("user"),
    optional("role"),
    optional("type"),
    optional("level"),
]);
const WINDOWS: Shape = Shape::Struct(&[
    pointer("gmsaCredentialSpecName"),
    pointer("gmsaCredentialSpec"),
    pointer("runAsUserName"),
    pointer("hostProcess"),
]);
const PROFILE: Shape = Shape::Struct(&[text("type"), pointer("localhostProfile")]);
const POD_SECURITY: Shape = Shape::Struct(&[
    Field::pointer("seLinuxOptions", SELINUX),
    Field::pointer("windowsOptions", WINDOWS),
    pointer("runAsUser"),
    pointer("runAsGroup"),
    pointer("runAsNonRoot"),
    optional("supplementalGroups"),
    pointer("supplementalGroupsPolicy"),
    pointer("fsGroup"),
    Field::optional(
        "sysctls",
        Shape::List(&Shape::Struct(&[text("name"), text("value")])),
    ),
    pointer("fsGroupChangePolicy"),
    Field::pointer("seccompProfile", PROFILE),
    Field::pointer("appArmorProfile", PROFILE),
    pointer("seLinuxChangePolicy"),
]);

const AFFINITY: Shape = Shape::Struct(&[
    Field::pointer("nodeAffinity", NODE_AFFINITY),
    Field::pointer("podAffinity", POD_AFFINITY),
    Field::pointer("podAntiAffinity", POD_AFFINITY),
]);
const NODE_TERM: Shape = Shape::Struct(&[
    Field::optional("matchExpressions", Shape::List(&NODE_REQUIREMENT)),
    Field::optional("matchFields", Shape::List(&NODE_REQUIREMENT)),
]);
const NODE_REQUIREMENT: Shape = Shape::Struct(&[text("key"), text("operator"), optional("values")]);
const NODE_AFFINITY: Shape = Shape::Struct(&[
    Field::pointer(
        "requiredDuringSchedulingIgnoredDuringExecution",
        Shape::Struct(&[Field::always(
            "nodeSelectorTerms",
            "null",
            Shape::List(&NODE_TERM),
        )]),
    ),
    Field::optional(
        "preferredDuringSchedulingIgnoredDuringExecution",
        Shape::List(&Shape::Struct(&[
            number("weight"),
            Field::always("preference", "{}", NODE_TERM),
        ])),
    ),
]);
const POD_TERM: Shape = Shape::Struct(&[
    Field::pointer("labelSelector", SELECTOR),
    optional("namespaces"),
    text("topologyKey"),
    Field::pointer("namespaceSelector", SELECTOR),
    optional("matchLabelKeys"),
    optional("mismatchLabelKeys"),
]);
const POD_AFFINITY: Shape = Shape::Struct(&[
    Field::optional(
        "requiredDuringSchedulingIgnoredDuringExecution",
        Shape::List(&POD_TERM),
    ),
    Field::optional(
        "preferredDuringSchedulingIgnoredDuringExecution",
        Shape::List(&Shape::Struct(&[
            number("weight"),
            Field::always("podAffinityTerm", "{\"topologyKey\":\"\"}", POD_TERM),
        ])),
    ),
]);

const CONTAINER: Shape = Shape::Struct(&[
    text("name"),
    optional("image"),
    optional("command"),
    optional("args"),
    optional("workingDir"),
    Field::optional("ports", Shape::List(&PORT)),
    Field::optional("envFrom", Shape::List(&ENV_FROM)),
    Field::optional("env", Shape::List(&ENV)),
    Field::always("resources", "{}", RESOURCES),
    Field::optional(
        "resizePolicy",
        Shape::List(&Shape::Struct(&[text("resourceName"), text("restartPolicy")])),
    ),
    pointer("restartPolicy"),
    optional("restartPolicyRules"),
    Field::optional("volumeMounts", Shape::List(&MOUNT)),
    Field::optional(
        "volumeDevices",
        Shape::List(&Shape::Struct(&[text("name"), text("devicePath")])),
    ),
    Field::pointer("livenessProbe", PROBE),
    Field::pointer("readinessProbe", PROBE),
    Field::pointer("startupProbe", PROBE),
    Field::pointer("lifecycle", LIFECYCLE),
    optional("terminationMessagePath"),
    optional("terminationMessagePolicy"),
    optional("imagePullPolicy"),
    Field::pointer("securityContext", SECURITY),
    optional("stdin"),
    optional("stdinOnce"),
    optional("tty"),
]);
const PORT: Shape = Shape::Struct(&[
    optional("name"),
    optional("hostPort"),
    number("containerPort"),
    optional("protocol"),
    optional("hostIP"),
]);
const ENV_FROM: Shape = Shape::Struct(&[
    optional("prefix"),
    Field::pointer("configMapRef", REFERENCE),
    Field::pointer("secretRef", REFERENCE),
]);
const REFERENCE: Shape = Shape::Struct(&[optional("name"), pointer("optional")]);
const ENV: Shape = Shape::Struct(&[
    text("name"),
    optional("value"),
    Field::pointer(
        "valueFrom",
        Shape::Struct(&[
            Field::pointer("fieldRef", FIELD_REFERENCE),
            Field::pointer("resourceFieldRef", RESOURCE_REFERENCE),
            Field::pointer("configMapKeyRef", KEY_REFERENCE),
            Field::pointer("secretKeyRef", KEY_REFERENCE),
            Field::pointer(
                "fileKeyRef",
                Shape::Struct(&[text("volumeName"), text("path"), text("key"), pointer("optional")]),
            ),
        ]),
    ),
]);
const FIELD_REFERENCE: Shape = Shape::Struct(&[optional("apiVersion"), text("fieldPath")]);
const RESOURCE_REFERENCE: Shape = Shape::Struct(&[
    optional("containerName"),
    text("resource"),
    Field::always("divisor", "\"0\"", Shape::Quantities),
]);
const KEY_REFERENCE: Shape = Shape::Struct(&[optional("name"), text("key"), pointer("optional")]);
const RESOURCES: Shape = Shape::Struct(&[
    Field::optional("limits", Shape::Quantities),
    Field::optional("requests", Shape::Quantities),
    Field::optional(
        "claims",
        Shape::List(&Shape::Struct(&[text("name"), optional("request")])),
    ),
]);
const MOUNT: Shape = Shape::Struct(&[
    text("name"),
    optional("readOnly"),
    pointer("recursiveReadOnly"),
    text("mountPath"),
    optional("subPath"),
    pointer("mountPropagation"),
    optional("subPathExpr"),
]);
const ACTION_FIELDS: [Field; 3] = [
    Field::pointer("exec", Shape::Struct(&[optional("command")])),
    Field::pointer("httpGet", HTTP_GET),
    Field::pointer(
        "tcpSocket",
        Shape::Struct(&[Field::always("port", "0", PLAIN), optional("host")]),
    ),
];
const HTTP_GET: Shape = Shape::Struct(&[
    optional("path"),
    Field::always("port", "0", PLAIN),
    optional("host"),
    optional("scheme"),
    Field::optional(
        "httpHeaders",
        Shape::List(&Shape::Struct(&[text("name"), text("value")])),
    ),
]);
const PROBE: Shape = Shape::Struct(&[
    ACTION_FIELDS[0],
    ACTION_FIELDS[1],
    ACTION_FIELDS[2],
    Field::pointer(
        "grpc",
        Shape::Struct(&[number("port"), Field::always("service", "null", PLAIN)]),
    ),
    optional("initialDelaySeconds"),
    optional("timeoutSeconds"),
    optional("periodSeconds"),
    optional("successThreshold"),
    optional("failureThreshold"),
    pointer("terminationGracePeriodSeconds"),
]);
const HANDLER: Shape = Shape::Struct(&[
    ACTION_FIELDS[0],
    ACTION_FIELDS[1],
    ACTION_FIELDS[2],
    Field::pointer("sleep", Shape::Struct(&[number("seconds")])),
]);
const LIFECYCLE: Shape = Shape::Struct(&[
    Field::pointer("postStart", HANDLER),
    Field::pointer("preStop", HANDLER),
    pointer("stopSignal"),
]);
const SECURITY: Shape = Shape::Struct(&[
    Field::pointer(
        "capabilities",
        Shape::Struct(&[optional("add"), optional("drop")]),
    ),
    pointer("privileged"),
    Field::pointer("seLinuxOptions", SELINUX),
    Field::pointer("windowsOptions", WINDOWS),
    pointer("runAsUser"),
    pointer("runAsGroup"),
    pointer("runAsNonRoot"),
    pointer("readOnlyRootFilesystem"),
    pointer("allowPrivilegeEscalation"),
    pointer("procMount"),
    Field::pointer("seccompProfile", PROFILE),
    Field::pointer("appArmorProfile", PROFILE),
]);
