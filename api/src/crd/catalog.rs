//! The schema of ClusterCatalog.

use serde_json::{Value, json};

use super::schema::{Schema, choice, integer, object, string};
use super::{
    AGE, Column, Columns, READY, REASON, STATUS, TOOLS, conditions, definition as define, root, status_root,
};
use crate::names::{CLUSTER_CATALOG, MAX_CATALOG_NAME};

pub(super) fn definition() -> Value {
    let columns = Columns {
        always: &[
            Column {
                name: "LastUnpacked",
                kind: "date",
                path: ".status.lastUnpacked",
            },
            Column {
                name: "Serving",
                kind: "string",
                path: r#".status.conditions[?(@.type=="Serving")].status"#,
            },
            READY,
            STATUS,
            AGE,
        ],
        wide: &[
            Column {
                name: "Availability",
                kind: "string",
                path: ".spec.availabilityMode",
            },
            Column {
                name: "Priority",
                kind: "integer",
                path: ".spec.priority",
            },
            REASON,
        ],
    };
    let description = "A ClusterCatalog is an image of file-based catalogs that is unpacked and served on the cluster, so that ClusterExtensions can be installed from it.";
    // catalogd writes the name as the value of a label.
    let name = string("").max_length(MAX_CATALOG_NAME);
    let root = root(description, spec(), status())
        .property("metadata", Schema::bare_object().property("name", name))
        .extension("required", json!(["metadata", "spec"]));
    define(CLUSTER_CATALOG, "ccat", &columns, root)
}

fn spec() -> Schema {
    let source = object("The source of the catalog.")
        .property("image", image())
        .required(
            "type",
            choice("The kind of source. Image: an image in a registry.", &["Image"]),
        );
    object("The image, its priority, and whether it is served.")
        .property(
            "availabilityMode",
            choice(
                "Whether the catalog is served. Unavailable: its content is removed and it takes no part in resolution.",
                &["Unavailable", "Available"],
            )
            .default_value(json!("Available")),
        )
        .property(
            "priority",
            integer("When several catalogs offer the best bundle of a package, the one with the highest number wins.", "int32")
                .range(i32::MIN.into(), i32::MAX.into())
                .default_value(json!(0)),
        )
        .required("source", image_union(source))
}

fn image_union(source: Schema) -> Schema {
    source.union_member(
        "type",
        "Image",
        "image",
        "image is required when source type is Image, and forbidden otherwise",
    )
}

fn image() -> Schema {
    object("The image.")
        .property(
            "pollIntervalMinutes",
            integer(
                "Minutes between two lookups of the tag. Without it the tag is looked up once. Not allowed with a digest, which cannot change.",
                "",
            )
            .minimum(1),
        )
        .required("ref", tag_or_digest())
        .rule(
            "self.ref.find('(@.*:)') != \"\" ? !has(self.pollIntervalMinutes) : true",
            "cannot specify pollIntervalMinutes while using digest-based image",
        )
}

const DOMAIN: (&str, &str) = (
    r"self.matches(r'^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*(:[0-9]+)?\b')",
    "must start with a valid domain. valid domains must be alphanumeric characters (lowercase and uppercase) separated by the \".\" character.",
);
const NAME: (&str, &str) = (
    r#"self.find(r'(\/[a-z0-9]+(([._]|__|-*)[a-z0-9]+)*)') != """#,
    "a valid name is required. valid names must contain lowercase alphanumeric characters separated only by the \".\", \"_\", \"__\", \"-\" characters.",
);
const ALGORITHM: (&str, &str) = (
    r#"self.find('(@.*:)') != "" ? self.find('(@.*:)').matches('(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*[:])') : true"#,
    "digest algorithm is not valid. valid algorithms must start with an uppercase or lowercase alpha character followed by alphanumeric characters and may contain the \"-\", \"_\", \"+\", and \".\" characters.",
);
const DIGEST_LENGTH: (&str, &str) = (
    r#"self.find('(@.*:)') != "" ? self.find(':.*$').substring(1).size() >= 32 : true"#,
    "digest is not valid. the encoded string must be at least 32 characters",
);
const DIGEST_CHARACTERS: (&str, &str) = (
    r#"self.find('(@.*:)') != "" ? self.find(':.*$').matches(':[0-9A-Fa-f]*$') : true"#,
    "digest is not valid. the encoded string must only contain hex characters (A-F, a-f, 0-9)",
);

fn reference(description: &str, rules: &[(&str, &str)]) -> Schema {
    rules
        .iter()
        .fold(string(description).max_length(1000), |schema, (rule, message)| {
            schema.rule(rule, message)
        })
}

fn tag_or_digest() -> Schema {
    let description = "The image, with its registry's domain and a tag or a digest: quay.io/example/catalog:latest. A digest pins the content, a tag is resolved to one.";
    reference(
        description,
        &[
            DOMAIN,
            NAME,
            (
                r#"self.find('(@.*:)') != "" || self.find(':') != """#,
                "must end with a digest or a tag",
            ),
            (
                r#"self.find('(@.*:)') == "" ? (self.find(':.*$') != "" ? self.find(':.*$').substring(1).size() <= 127 : true) : true"#,
                "tag is invalid. the tag must not be more than 127 characters",
            ),
            (
                r#"self.find('(@.*:)') == "" ? (self.find(':.*$') != "" ? self.find(':.*$').matches(r':[\w][\w.-]*$') : true) : true"#,
                "tag is invalid. valid tags must begin with a word character (alphanumeric + \"_\") followed by word characters or \".\", and \"-\" characters",
            ),
            ALGORITHM,
            DIGEST_LENGTH,
            DIGEST_CHARACTERS,
        ],
    )
}

fn digest_only() -> Schema {
    let digest = (r#"self.find('(@.*:)') != """#, "must end with a digest");
    reference(
        "The image, by digest.",
        &[DOMAIN, NAME, digest, ALGORITHM, DIGEST_LENGTH, DIGEST_CHARACTERS],
    )
}

fn status() -> Schema {
    let resolved = object("The content that is served.")
        .required("image", object("The image.").required("ref", digest_only()))
        .required("type", choice("The kind of source.", &["Image"]));
    let urls = object("The addresses of the content.").required(
        "base",
        string("The address that the endpoints' paths are appended to: /api/v1/all, /api/v1/metas, /api/v1/graphql.")
            .max_length(525)
            .rule("isURL(self)", "must be a valid URL")
            .rule(
                "isURL(self) ? (url(self).getScheme() == \"http\" || url(self).getScheme() == \"https\") : true",
                "scheme must be either http or https",
            ),
    );
    status_root("The state of the catalog.")
        .property(
            "conditions",
            conditions(&format!(
                "{TOOLS} Progressing: the image is looked up and unpacked. Serving: its content is served. ContentValid: the content passes the checks of the whole catalog; findings do not stop serving. Verified: the signature policy accepts the image; absent where it asks for no signature.",
            )),
        )
        .property("lastUnpacked", string("When the served content was unpacked.").format("date-time"))
        .property("resolvedSource", image_union(resolved))
        .property("urls", urls)
}
