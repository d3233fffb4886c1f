//! Commands and manifests for the installation of a package, to copy.

use maud::{Markup, html};
use serde_json::Value;

use super::icons;
use super::package::Package;

/// Whether the name can be used in a command without quotes, and in a `ClusterExtension`.
fn is_plain(name: &str) -> bool {
    name.len() <= 253
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'+'))
}

/// Whether a `ClusterExtension` can name the package.
pub(super) fn is_nameable(of: &Package) -> bool {
    is_plain(&of.name)
}

/// A block of commands with a copy button, which is visible if scripts are enabled.
pub fn block(label: &str, text: &str) -> Markup {
    html! {
        div class="block" {
            pre tabindex="0" role="group" aria-label=(label) { code { (text) } }
            button class="copy small" type="button" hidden { (icons::symbol("copy")) span { "Copy" } }
        }
    }
}

/// The section about the installation: of the newest version with updates, or of one version.
pub(super) fn section(of: &Package, version: Option<&str>) -> Markup {
    if !is_nameable(of) || version.is_some_and(|version| !is_plain(version)) {
        return html! {
            section id="install" {
                h2 { "Install" }
                p { "A ClusterExtension cannot name this package: its name or version is not valid." }
            }
        };
    }
    html! {
        section id="install" {
            h2 { "Install" }
            p {
                "With " code { "olm" } ". The command shows the namespace, the service account, the least roles and the \
                 ClusterExtension that it creates, and asks first:"
            }
            (block("Command to install the package", &command(of, version)))
            details {
                summary { "With kubectl" }
                ol class="steps" {
                    li {
                        p { "Save this as " code { (of.name) ".yaml" } ", and apply it:" }
                        (block("Manifests", &manifests(of, version)))
                        (block("Command to apply the manifests", &format!("kubectl apply --server-side -f {}.yaml", of.name)))
                    }
                    li {
                        p { "Grant the service account the rights that the bundle needs, and no others:" }
                        (block("Command to grant rights", &format!("olm rbac {} | kubectl apply -f -", of.name)))
                    }
                    li {
                        p { "Wait until it is ready:" }
                        (block(
                            "Command to wait",
                            &format!("kubectl wait --for=condition=Ready clusterextension/{} --timeout=5m", of.name),
                        ))
                    }
                }
            }
        }
    }
}

fn command(of: &Package, version: Option<&str>) -> String {
    let version = version
        .map(|version| format!(" --version {version}"))
        .unwrap_or_default();
    format!("olm install {}{version} --catalog {} --wait", of.name, of.catalog)
}

/// The command that prints the least roles for a version, out of the image of its bundle; `None` if a name in it needs
/// quotes or the image is unknown.
pub(super) fn roles(of: &Package) -> Option<String> {
    let image = of.release.image.as_str();
    let is_image = image.starts_with(|c: char| c.is_ascii_alphanumeric())
        && image
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._/:@".contains(&b));
    let namespace = namespace(of);
    let is_known = is_image && is_plain(&of.name) && is_plain(namespace);
    is_known.then(|| {
        format!(
            "olm rbac --bundle {image} \\\n  --namespace {namespace} --service-account {}",
            account(of)
        )
    })
}

/// The namespace to install into.
fn namespace(of: &Package) -> &str {
    let metadata = &of.release.metadata;
    let suggested = metadata.annotation("operatorframework.io/suggested-namespace");
    if suggested.is_empty() { &of.name } else { suggested }
}

/// The service account that installs.
fn account(of: &Package) -> String {
    format!("{}-installer", of.name)
}

/// The field `config` of an operator that can watch its own namespace but not all; empty for others.
fn config(of: &Package, namespace: &str) -> String {
    let modes: Vec<&str> = of.release.metadata.install_modes().collect();
    if modes.contains(&"AllNamespaces") || !modes.contains(&"OwnNamespace") {
        return String::new();
    }
    format!("  config:\n    configType: Inline\n    inline:\n      watchNamespace: {namespace}\n")
}

/// Namespace, account and extension, ready to apply.
fn manifests(of: &Package, version: Option<&str>) -> String {
    // JSON strings are also YAML strings.
    let quoted = |text: &str| Value::from(text).to_string();
    let name = quoted(&of.name);
    let namespace = quoted(namespace(of));
    let account = quoted(&account(of));
    // Without a version, all channels count, as for `olm install`.
    let choice = version
        .map(|version| format!("version: {}\n      ", quoted(version)))
        .unwrap_or_default();
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {namespace}\n---\n\
         apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {account}\n  namespace: {namespace}\n---\n\
         apiVersion: {api}\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n  namespace: {namespace}\n  \
         serviceAccount:\n    name: {account}\n  source:\n    sourceType: Catalog\n    catalog:\n      \
         packageName: {name}\n      {choice}selector:\n        matchLabels:\n          {label}: {catalog}\n{config}",
        config = config(of, &namespace),
        api = olm_api::names::API_VERSION,
        kind = olm_api::names::CLUSTER_EXTENSION,
        label = olm_api::names::label::METADATA_NAME,
        catalog = quoted(&of.catalog),
    )
}

#[cfg(test)]
mod tests {
    use crate::package_summary::CsvMetadata;

    use super::*;

    fn package(name: &str) -> Package {
        Package {
            name: name.to_owned(),
            catalog: "cat".to_owned(),
            ..Package::default()
        }
    }

    #[test]
    fn commands_name_the_package_its_version_and_its_catalog() {
        let of = package("db");
        assert_eq!(command(&of, None), "olm install db --catalog cat --wait");
        assert_eq!(
            command(&of, Some("1.2.0")),
            "olm install db --version 1.2.0 --catalog cat --wait"
        );
        let values = |version| -> Vec<Value> {
            let text = manifests(&of, version);
            text.split("---\n")
                .map(|part| olm_yaml::to_json(part.as_bytes()).unwrap())
                .collect()
        };
        let one = values(Some("1.2.0"));
        assert_eq!(one[1]["metadata"]["name"], "db-installer");
        assert_eq!(one[2]["spec"]["source"]["catalog"]["version"], "1.2.0");
        let newest = values(None);
        let catalog = &newest[2]["spec"]["source"]["catalog"];
        let selector = serde_json::json!({"matchLabels": {"olm.operatorframework.io/metadata.name": "cat"}});
        assert_eq!(
            *catalog,
            serde_json::json!({"packageName": "db", "selector": selector})
        );
    }

    #[test]
    fn an_operator_for_its_own_namespace_has_a_configuration() {
        let check = |modes: &[(&str, bool)], expected: Option<&str>| {
            let mut of = package("db");
            let modes = modes
                .iter()
                .map(|(mode, supported)| serde_json::json!({"type": mode, "supported": supported}));
            let csv = serde_json::json!({"spec": {"installModes": modes.collect::<Vec<_>>()}});
            of.release.metadata = CsvMetadata::of_csv(&csv);
            let text = manifests(&of, None);
            let last = text.rsplit("---\n").next().unwrap();
            let extension = olm_yaml::to_json(last.as_bytes()).unwrap();
            let watched = extension.pointer("/spec/config/inline/watchNamespace");
            assert_eq!(watched.and_then(Value::as_str), expected, "{text}");
        };
        check(&[("AllNamespaces", false), ("OwnNamespace", true)], Some("db"));
        check(&[("AllNamespaces", true), ("OwnNamespace", true)], None);
        check(&[("SingleNamespace", true)], None);
    }

    #[test]
    fn the_roles_are_those_of_the_bundle_and_no_image_becomes_a_command() {
        let of = |image: &str| {
            let mut of = package("db");
            of.release.image = image.to_owned();
            roles(&of)
        };
        assert_eq!(
            of("r.example:5000/db@sha256:00").as_deref(),
            Some(
                "olm rbac --bundle r.example:5000/db@sha256:00 \\\n  --namespace db --service-account db-installer"
            )
        );
        for image in ["", "a;b", "$(id)", "--help", "a b", "a\nb"] {
            assert_eq!(of(image), None, "{image}");
        }
    }

    #[test]
    fn no_name_of_a_catalog_becomes_a_command() {
        for name in ["", "a;b", "$(id)", "--help", "a b", "a'b", "a\nb"] {
            let page = section(&package(name), None).into_string();
            assert!(
                !page.contains("olm install") && page.contains("cannot name"),
                "{name}: {page}"
            );
        }
        let page = section(&package("db"), Some("1.0.0; id")).into_string();
        assert!(!page.contains("olm install"), "{page}");
    }
}
