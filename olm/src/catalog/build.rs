//! `olm catalog build`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use olm_fbc::Catalog;
use olm_image::{BuiltImage, Reference};
use serde::Deserialize;

use super::{CatalogFormat, push};
use crate::input::read;
use crate::output::{CommandResult, Status, note, print};
use crate::registry::RegistryArguments;
use crate::source::load;

/// The largest composition that is read, in bytes.
const MAX_COMPOSITION: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directory of the catalog
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    directory: Option<PathBuf>,
    /// File that composes a catalog of others: `name`, `repo`, `tag`, and `references` of `name` and `image`
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Directory to compose in [default: the directory of the file]
    #[arg(long, value_name = "DIR", requires = "file")]
    work_dir: Option<PathBuf>,
    /// Reference of the image [default: `repo:tag` of the file]
    #[arg(short, long, value_name = "REFERENCE")]
    tag: Option<String>,
    /// Archive to write, in OCI layout [default: NAME.tar beside the catalog]
    #[arg(short, long, value_name = "ARCHIVE", conflicts_with = "push")]
    output: Option<PathBuf>,
    /// Push the image instead of writing an archive
    #[arg(long)]
    push: bool,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// A catalog that is composed of others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Composition {
    name: String,
    repo: String,
    #[serde(default)]
    tag: String,
    references: Vec<Part>,
}

/// One of the catalogs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with name and image")]
struct Part {
    name: String,
    image: String,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let (directory, reference) = match (&arguments.file, &arguments.directory) {
        (Some(file), _) => {
            let composition = composition(file)?;
            let beside = file.parent().unwrap_or(Path::new(""));
            let work = arguments.work_dir.as_deref().unwrap_or(beside);
            let directory = compose(&composition, work, &arguments.registry)?;
            let tag = if composition.tag.is_empty() {
                "latest"
            } else {
                &composition.tag
            };
            (directory, Some(format!("{}:{tag}", composition.repo)))
        }
        (None, Some(directory)) => (directory.clone(), None),
        (None, None) => bail!("name a directory or a file"),
    };
    let reference = arguments.tag.clone().or(reference);
    if let Some(reference) = &reference {
        Reference::parse_familiar(reference)
            .with_context(|| format!("{reference:?} is not an image reference"))?;
    }
    let image = push::image(&directory)?;
    if arguments.push {
        let Some(reference) = &reference else {
            bail!("name the image to push with --tag");
        };
        arguments.registry.push(reference, &image)?;
        return Ok(Status::Success);
    }
    let archive = arguments.output.clone().unwrap_or_else(|| beside(&directory));
    write(&image, &archive, reference.as_deref())?;
    Ok(Status::Success)
}

/// The archive for a directory, whose name may contain dots.
fn beside(directory: &Path) -> PathBuf {
    // `.` has a name as well, though not in the argument.
    let named = match directory.file_name() {
        Some(_) => directory.to_owned(),
        None => directory.canonicalize().unwrap_or_else(|_| directory.to_owned()),
    };
    let mut archive = named.into_os_string();
    archive.push(".tar");
    archive.into()
}

fn write(image: &BuiltImage, archive: &Path, reference: Option<&str>) -> anyhow::Result<()> {
    image.write_archive(archive, reference)?;
    let name = reference
        .map(|reference| format!("{reference} "))
        .unwrap_or_default();
    note(&format!("wrote {}", archive.display()));
    print(&format!("{name}{}\n", image.digest()))
}

fn composition(file: &Path) -> anyhow::Result<Composition> {
    let text = read(file, MAX_COMPOSITION)?;
    let value = olm_yaml::to_json(&text).with_context(|| format!("cannot read {}", file.display()))?;
    let composition: Composition = serde_json::from_value(value).with_context(|| {
        format!(
            "{} is not a composition of name, repo, tag and references",
            file.display()
        )
    })?;
    let names = composition.references.iter().map(|part| part.name.as_str());
    let mut seen = std::collections::BTreeSet::new();
    for name in std::iter::once(composition.name.as_str()).chain(names) {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\', '\0']) {
            bail!("{name:?} cannot be the name of a directory");
        }
    }
    for part in &composition.references {
        if !seen.insert(&part.name) {
            bail!("the reference {:?} occurs twice", part.name);
        }
    }
    if composition.references.is_empty() {
        bail!("{} names no references", file.display());
    }
    Ok(composition)
}

/// Renders each part into `NAME/PART/index.yaml`. An existing directory is replaced as a whole, or not at all.
fn compose(composition: &Composition, work: &Path, registry: &RegistryArguments) -> anyhow::Result<PathBuf> {
    let work = if work.as_os_str().is_empty() {
        Path::new(".")
    } else {
        work
    };
    let root = work.join(&composition.name);
    let fresh = tempfile::Builder::new()
        .prefix(".olm-compose-")
        .tempdir_in(work)
        .with_context(|| format!("cannot write in {}", work.display()))?;
    for Part { name, image } in &composition.references {
        let mut catalog = Catalog::default();
        load(image, registry, &mut catalog).with_context(|| format!("reference {name:?}"))?;
        let directory = fresh.path().join(name);
        fs::create_dir(&directory)?;
        fs::write(directory.join("index.yaml"), CatalogFormat::Yaml.write(&catalog))?;
    }
    fs::create_dir_all(&root).with_context(|| format!("cannot write {}", root.display()))?;
    for Part { name, .. } in &composition.references {
        let target = root.join(name);
        if target.exists() {
            fs::remove_dir_all(&target).with_context(|| format!("cannot replace {}", target.display()))?;
        }
        fs::rename(fresh.path().join(name), &target)
            .with_context(|| format!("cannot write {}", target.display()))?;
        note(&format!("rendered {}", target.join("index.yaml").display()));
    }
    for entry in fs::read_dir(&root).with_context(|| format!("cannot read {}", root.display()))? {
        let name = entry?.file_name();
        if composition.references.iter().all(|part| name != *part.name) {
            note(&format!(
                "warning: {} becomes part of the catalog, although no reference has this name",
                root.join(name).display()
            ));
        }
    }
    Ok(root)
}
