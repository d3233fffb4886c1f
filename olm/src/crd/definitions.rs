//! The custom resource definitions of a file, a directory or a bundle.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use olm_preflight::crd_upgrade::definition_name;
use olm_yaml::{Limits, documents};
use serde_json::Value;

use crate::hint::Hint;
use crate::input::{MAX_BUNDLE_FILE, read, walk};
use crate::registry::RegistryArguments;
use crate::source::open_bundle;

/// Definitions by name.
pub(crate) type Definitions = BTreeMap<String, Value>;

/// Reads the definitions that `source` holds: a file of YAML or JSON documents, a directory of such files or of a
/// bundle, the image of a bundle.
pub(crate) fn read_definitions(source: &str, registry: &RegistryArguments) -> anyhow::Result<Definitions> {
    let path = Path::new(source);
    let mut found = Definitions::new();
    if path.is_dir() && !path.join("oci-layout").is_file() {
        let bundle = path.join("manifests").is_dir();
        let files = walk(
            if bundle {
                path.join("manifests")
            } else {
                path.to_owned()
            }
            .as_path(),
        )?;
        for file in files {
            let is_text = [".yaml", ".yml", ".json"]
                .iter()
                .any(|ending| file.name.ends_with(ending));
            if is_text {
                add(&read(&file.path, MAX_BUNDLE_FILE)?, &file.name, &mut found)?;
            }
        }
    } else if path.is_file() && path.extension().is_none_or(|ending| ending != "tar") {
        add(&read(path, MAX_BUNDLE_FILE)?, source, &mut found)?;
    } else {
        let bundle = open_bundle(source, registry)?;
        for (name, content) in &bundle.files {
            if name.starts_with("manifests/") {
                add(content, name, &mut found)?;
            }
        }
    }
    if found.is_empty() {
        let error = anyhow!("{source:?} has no custom resource definition");
        return Err(error.context(Hint(
            "name a file of YAML or JSON documents, a directory of such files, or a bundle; of a directory, files that end in \
             .yaml, .yml and .json count"
                .to_owned(),
        )));
    }
    Ok(found)
}

fn add(text: &[u8], name: &str, found: &mut Definitions) -> anyhow::Result<()> {
    for document in documents(text, &Limits::default()) {
        let document = document.and_then(olm_yaml::Document::into_value);
        let document = document.with_context(|| format!("cannot read {name}"))?;
        let list = document.pointer("/items").and_then(Value::as_array);
        let items = list.map_or(std::slice::from_ref(&document), Vec::as_slice);
        for item in items {
            if let Some(definition) = definition_name(item)
                && found.insert(definition.to_owned(), item.clone()).is_some()
            {
                bail!("{name}: duplicate definition {definition:?}");
            }
        }
    }
    Ok(())
}
