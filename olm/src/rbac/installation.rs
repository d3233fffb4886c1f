//! The parameters of an installation: what the options set, and what follows from the bundle.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_bundle::{Bundle, config, parse};
use serde_json::{Value, json};

use crate::extension::cluster::{Cluster, note_unread};
use crate::input::read;
use crate::registry::RegistryArguments;
use crate::source::{BundleSource, open_bundle};

/// The largest configuration that is read, in bytes.
const MAX_CONFIG: u64 = 1 << 20;
/// The annotation of a ClusterServiceVersion with the namespace that its author proposes.
const SUGGESTED_NAMESPACE: &str = "operatorframework.io/suggested-namespace";

/// The configuration of an operator.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArguments {
    /// File with the configuration, as in `spec.config.inline`
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Namespace that the operator watches [default: all, else the one that it is installed in]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) watch_namespace: Option<String>,
}

impl ConfigArguments {
    /// Whether no option is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.config.is_none() && self.watch_namespace.is_none()
    }

    /// The configuration that the options set; `None` if none is set.
    ///
    /// # Errors
    /// When the file cannot be read, holds no object, or names another namespace to watch.
    pub(crate) fn read(&self) -> anyhow::Result<Option<Value>> {
        let mut given = self.file()?;
        if let Some(namespace) = &self.watch_namespace {
            let config = given.get_or_insert_with(|| json!({}));
            let before = config.get(config::WATCH_NAMESPACE).and_then(Value::as_str);
            if let Some(before) = before.filter(|before| before != namespace) {
                bail!("--watch-namespace is {namespace:?}, and the configuration names {before:?}");
            }
            if let Some(fields) = config.as_object_mut() {
                fields.insert(config::WATCH_NAMESPACE.to_owned(), json!(namespace));
            }
        }
        Ok(given)
    }

    fn file(&self) -> anyhow::Result<Option<Value>> {
        let Some(path) = &self.config else {
            return Ok(None);
        };
        let text = read(path, MAX_CONFIG)?;
        let given = config::from_text(&String::from_utf8_lossy(&text));
        let given = given.with_context(|| format!("cannot use {}", path.display()))?;
        if !given.is_object() {
            bail!("{} holds no object with settings", path.display());
        }
        Ok(Some(given))
    }
}

/// A bundle that is not installed, and the namespace for it.
pub(crate) struct OpenedBundle {
    /// Its files.
    pub(crate) source: BundleSource,
    /// Its parsed files.
    pub(crate) bundle: Bundle,
    /// The namespace to install into.
    pub(crate) namespace: String,
}

/// Opens a bundle image whose signatures satisfy the policies for its namespace: by default the one that it proposes.
///
/// # Errors
/// When the image cannot be read, is refused, or is no bundle.
pub(crate) fn open(
    cluster: &Cluster,
    registry: &RegistryArguments,
    image: &str,
    namespace: Option<&str>,
) -> anyhow::Result<OpenedBundle> {
    let policies = cluster.image_policies(namespace);
    let mut source = open_bundle(image, &registry.with_rules(policies.rules.clone()))?;
    let bundle = read_bundle(&source)?;
    if let Some(namespace) = namespace {
        note_unread(&policies);
        return Ok(OpenedBundle {
            namespace: namespace.to_owned(),
            source,
            bundle,
        });
    }
    // Which policies hold is known only now.
    let namespace = default_namespace(&bundle).to_owned();
    let all = cluster.image_policies(Some(&namespace));
    note_unread(&all);
    if all.rules != policies.rules {
        source = open_bundle(image, &registry.with_rules(all.rules))?;
    }
    Ok(OpenedBundle {
        source,
        bundle,
        namespace,
    })
}

/// The bundle, for the defaults of its installation.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read_bundle(source: &BundleSource) -> anyhow::Result<Bundle> {
    parse(&source.files, &source.labels).context("cannot read the bundle")
}

/// The namespace that the bundle proposes, otherwise its package.
pub(crate) fn default_namespace(bundle: &Bundle) -> &str {
    let suggested = bundle.csv().metadata.annotations.get(SUGGESTED_NAMESPACE);
    match suggested.filter(|suggested| !suggested.is_empty()) {
        Some(suggested) => suggested,
        None => bundle.package(),
    }
}

/// The service account that installs an extension.
pub(crate) fn default_account(extension: &str) -> String {
    format!("{extension}-installer")
}

/// The configuration, with the namespace of the installation as the one to watch if the bundle requires one.
pub(crate) fn settings(bundle: &Bundle, given: Option<Value>, namespace: &str) -> Option<Value> {
    let modes = bundle.csv().install_modes();
    config::with_own_namespace(&modes, given.as_ref(), namespace).or(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_to_watch_joins_the_configuration_and_does_not_contradict_it() {
        let path = std::env::temp_dir().join(format!("olm-config-{}", std::process::id()));
        let read = |text: Option<&str>, namespace: Option<&str>| {
            std::fs::write(&path, text.unwrap_or_default()).unwrap();
            let arguments = ConfigArguments {
                config: text.map(|_| path.clone()),
                watch_namespace: namespace.map(str::to_owned),
            };
            arguments.read().map_err(|error| error.to_string())
        };
        assert_eq!(read(None, None), Ok(None));
        let own = json!({"watchNamespace": "a"});
        assert_eq!(read(None, Some("a")), Ok(Some(own.clone())));
        assert_eq!(read(Some("watchNamespace: a"), Some("a")), Ok(Some(own)));
        let both = json!({"deploymentConfig": {}, "watchNamespace": "a"});
        assert_eq!(read(Some("deploymentConfig: {}"), Some("a")), Ok(Some(both)));
        let other = read(Some("watchNamespace: b"), Some("a")).unwrap_err();
        assert_eq!(
            other,
            "--watch-namespace is \"a\", and the configuration names \"b\""
        );
        assert!(
            read(Some("- a"), None)
                .unwrap_err()
                .ends_with("holds no object with settings")
        );
        std::fs::remove_file(&path).unwrap();
    }
}
