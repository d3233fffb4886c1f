//! `olm mirror`.

mod place;
mod report;
mod select;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use olm_api::names::annotation;
use olm_author::write;
use olm_fbc::Catalog;
use olm_image::{Access, BuiltImage, Copied, Images, Layout, Origin, Outline, Reference, Target};
use serde_json::json;

use self::place::{Destination, NOWHERE, mirror_sets, mirrored, registries, registries_conf};
use self::report::{report, size};
use self::select::{PackageSelector, lacking, select};
use super::push;
use crate::hint::Hint;
use crate::output::{CommandResult, ObjectFormat, Status, note};
use crate::registry::RegistryArguments;
use crate::source::{MalformedBlobs, is_object_name, load_catalog, named_source};

const CATALOG: &str = "catalog";
const IMAGE: &str = "image";

#[derive(Debug, Args)]
#[command(
    after_help = "Digests stay as they are; images with several platforms, signatures, attestations and referrers are copied whole. An \
                  image HOST/PATH goes to REGISTRY/HOST/PATH, a port in HOST after a hyphen. What is there already is not sent \
                  again: after an interruption, run the same command.\n\nFor a registry, the command writes into --config-dir: \
                  registries.conf for both managers, `olm` and container runtimes, image-mirrors.yaml with an \
                  ImageDigestMirrorSet and an ImageTagMirrorSet of OpenShift, and clustercatalog.yaml.\n\nExit status: 1 when \
                  an image is missing; then nothing is copied, unless --skip-missing is set.\n\nExamples:\n  olm mirror \
                  quay.io/operatorhubio/catalog:latest argocd-operator --to registry.example/mirror\n  olm mirror ./catalog \
                  'greeter@>=1.0.0' --to ./copy --dry-run\n  olm mirror ./copy --to registry.example/mirror"
)]
pub(crate) struct Arguments {
    /// Catalog to mirror: a file, directory, image, or address of a running catalogd; or a directory that this command
    /// wrote. For a ClusterCatalog, give the image in its spec.source.image.ref, and its name as NAME: clustercatalog.yaml
    /// then has that name
    #[arg(value_name = "[NAME=]CATALOG")]
    catalog: String,
    /// Packages to mirror, with the versions that are wanted [default: all]
    #[arg(value_name = "PACKAGE[@RANGE]")]
    packages: Vec<PackageSelector>,
    /// Where to: HOST[:PORT][/PATH] for a registry, ./DIR for a directory in OCI layout
    #[arg(long, value_name = "REGISTRY|DIR")]
    to: String,
    /// Only report which images would be copied, and which the source lacks
    #[arg(long)]
    dry_run: bool,
    /// Copy the rest when an image is missing
    #[arg(long)]
    skip_missing: bool,
    /// Number of images to copy at once
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency: u16,
    /// Directory for the files that lead to the mirror
    #[arg(long, value_name = "DIR", default_value = "mirror-config")]
    config_dir: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// An image to mirror.
struct MirrorItem {
    reference: Reference,
    role: &'static str,
    /// The bundles that name it.
    used_by: Vec<String>,
    /// The image itself, if it is made here: a catalog that exists in no registry.
    built: Option<BuiltCatalog>,
}

/// A catalog that is made for the mirror.
struct BuiltCatalog {
    image: BuiltImage,
    /// Whether it has all packages and versions of its source.
    is_whole: bool,
}

/// An image before the transfer: its parts and those that the target lacks, or the reason why it
/// is missing.
struct InspectedImage {
    item: MirrorItem,
    found: Result<(Outline, Copied), String>,
}

/// The content of the mirror.
struct Plan {
    /// The catalog first.
    items: Vec<MirrorItem>,
    /// The directory that the images come from.
    layout: Option<Layout>,
    /// The reference of the catalog for ClusterCatalogs, and the name of one.
    catalog: (Reference, String),
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let to = Destination::parse(&arguments.to)?;
    let plan = plan(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(mirror(arguments, &to, plan))
}

fn plan(arguments: &Arguments) -> anyhow::Result<Plan> {
    let (name, source) = named_source(&arguments.catalog)?;
    // Without a name of its own, a directory keeps the one that it was written with.
    let given = (source != arguments.catalog).then_some(name.as_str());
    if let Some(given) = given.filter(|given| !is_object_name(given)) {
        bail!(
            "{given:?} cannot be the name of a ClusterCatalog: it has lower-case letters, digits, - and . only"
        );
    }
    if let Some(plan) = of_layout(arguments, Path::new(&source), given)? {
        return Ok(plan);
    }
    let mut catalog = load_catalog(&source, &arguments.registry, MalformedBlobs::Refused)?;
    let is_whole = arguments.packages.is_empty();
    if !is_whole {
        catalog = select(catalog, &arguments.packages, &source)?;
        for (package, bundle) in lacking(&catalog)? {
            note(&format!(
                "warning: {bundle} requires package {package}, which is not chosen"
            ));
        }
    }
    let is_image = !source.contains("://") && !Path::new(&source).exists();
    let image = is_image
        .then(|| Reference::parse_familiar(&source))
        .transpose()
        .with_context(|| format!("{source:?} is not an image reference"))?;
    let reference = match image {
        Some(reference) if is_whole => reference,
        // A selection from the catalog has another digest, so its tag is used.
        Some(image) => Reference::parse(&format!("{}:{}", image.name(), image.tag().unwrap_or("latest")))?,
        None => Reference::parse(&format!("{NOWHERE}/{name}:latest"))?,
    };
    let built = if is_image && is_whole {
        None
    } else {
        let image = push::copied_image(write::json_lines(&catalog))?;
        Some(BuiltCatalog { image, is_whole })
    };
    let mut items = images(&catalog)?;
    items.insert(
        0,
        MirrorItem {
            reference: reference.clone(),
            role: CATALOG,
            used_by: Vec::new(),
            built,
        },
    );
    Ok(Plan {
        items,
        layout: None,
        catalog: (reference, name),
    })
}

/// The images of a directory that this command wrote; `given` is the name that the catalog gets on the command line.
fn of_layout(arguments: &Arguments, path: &Path, given: Option<&str>) -> anyhow::Result<Option<Plan>> {
    if !path.join("index.json").is_file() {
        return Ok(None);
    }
    let layout = Layout::open(path)?;
    let mut items = Vec::new();
    let mut recorded = None;
    for entry in layout.entries() {
        let (Some(name), Some(role)) = (entry.name(), entry.annotations.get(annotation::MIRROR)) else {
            continue;
        };
        let named = entry.annotations.get(annotation::MIRROR_NAME);
        recorded = recorded.or_else(|| named.filter(|name| is_object_name(name)).cloned());
        items.push(MirrorItem {
            reference: Reference::parse(name)
                .with_context(|| format!("{name:?} is not an image reference"))?,
            role: if role == CATALOG { CATALOG } else { IMAGE },
            used_by: Vec::new(),
            built: None,
        });
    }
    let Some(catalog) = items.iter().find(|item| item.role == CATALOG) else {
        return Ok(None);
    };
    if !arguments.packages.is_empty() {
        let error = anyhow!("{} is mirrored as a whole", path.display());
        return Err(error.context(Hint("choose packages when the directory is written".to_owned())));
    }
    let reference = catalog.reference.clone();
    let last = || {
        reference
            .repository()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let name = given.map(str::to_owned).or(recorded).unwrap_or_else(last);
    name_bundles(&mut items, &path.display().to_string(), &arguments.registry);
    Ok(Some(Plan {
        items,
        layout: Some(layout),
        catalog: (reference, name),
    }))
}

/// The name of an image in the index of a directory, where a tag beside a digest is left out.
fn entry_name(reference: &Reference) -> String {
    match reference.pinned() {
        Some(pinned) => pinned.to_string(),
        None => format!("{}:{}", reference.name(), reference.tag().unwrap_or("latest")),
    }
}

/// Adds the bundles of the catalog in a directory to the images that they name. The directory is mirrored as it is: a
/// catalog that cannot be read is no reason to stop.
fn name_bundles(items: &mut [MirrorItem], directory: &str, registry: &RegistryArguments) {
    let named =
        load_catalog(directory, registry, MalformedBlobs::LeftOut).and_then(|catalog| images(&catalog));
    match named {
        Ok(named) => {
            let mut users: HashMap<String, Vec<String>> = HashMap::new();
            for item in named {
                users
                    .entry(entry_name(&item.reference))
                    .or_default()
                    .extend(item.used_by);
            }
            for item in items {
                item.used_by = users.remove(&entry_name(&item.reference)).unwrap_or_default();
            }
        }
        Err(error) => note(&format!("warning: USED BY is empty: {error:#}")),
    }
}

/// The images of bundles and those that they are related to, each once, in the order of the catalog.
fn images(catalog: &Catalog) -> anyhow::Result<Vec<MirrorItem>> {
    let mut items: Vec<MirrorItem> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for bundle in &catalog.bundles {
        let related = bundle.related_images.iter().map(|related| related.image.as_str());
        let all = std::iter::once(bundle.image.as_str()).chain(related);
        for text in all.filter(|text| !text.is_empty()) {
            let reference = Reference::parse_familiar(text).with_context(|| {
                format!("{} names {text:?}, which is not an image reference", bundle.name)
            })?;
            let place = *places.entry(reference.to_string()).or_insert_with(|| {
                items.push(MirrorItem {
                    reference,
                    role: IMAGE,
                    used_by: Vec::new(),
                    built: None,
                });
                items.len() - 1
            });
            if let Some(item) = items.get_mut(place)
                && item.used_by.last() != Some(&bundle.name)
            {
                item.used_by.push(bundle.name.clone());
            }
        }
    }
    Ok(items)
}

/// The rights and settings for registries, each read once.
struct RegistryAccess<'a> {
    registry: &'a RegistryArguments,
    images: Images,
    known: parking_lot::Mutex<HashMap<String, Access>>,
}

impl RegistryAccess<'_> {
    fn access(&self, reference: &Reference) -> anyhow::Result<Access> {
        let mut known = self.known.lock();
        if let Some(access) = known.get(reference.registry()) {
            return Ok(access.clone());
        }
        let access = self.registry.access(reference)?;
        known.insert(reference.registry().to_owned(), access.clone());
        Ok(access)
    }

    /// The parts of an image, and those that the target lacks.
    async fn inspect(
        &self,
        item: &MirrorItem,
        from: Option<&Layout>,
        to: &Destination,
        into: Option<&Layout>,
    ) -> anyhow::Result<(Outline, Copied)> {
        let reference = &item.reference;
        let outline = if let Some(built) = &item.built {
            Outline::of(&built.image, reference.tag().unwrap_or("latest"))
        } else {
            let access = self.access(reference)?;
            let origin = from.map_or(Origin::Registry(&access), Origin::Layout);
            self.images.outline(origin, reference).await?
        };
        let lacking = match (to, into) {
            (Destination::Registry(base), _) => {
                let target = mirrored(base, reference)?;
                let access = self.access(&target)?;
                let target = Target::Registry(&target, &access);
                self.images.lacking(&outline, target).await?
            }
            (Destination::Directory(_), Some(layout)) => {
                self.images.lacking(&outline, Target::Layout(layout)).await?
            }
            (Destination::Directory(_), None) => Copied {
                parts: 1,
                bytes: outline.bytes(),
            },
        };
        Ok((outline, lacking))
    }

    async fn copy(
        &self,
        reference: &Reference,
        outline: &Outline,
        from: Option<&Layout>,
        to: &Destination,
        into: Option<&Layout>,
    ) -> anyhow::Result<Copied> {
        let access = self.access(reference)?;
        let origin = from.map_or(Origin::Registry(&access), Origin::Layout);
        let copied = match (to, into) {
            (Destination::Registry(base), _) => {
                let target = mirrored(base, reference)?;
                let access = self.access(&target)?;
                let target = Target::Registry(&target, &access);
                self.images.copy(origin, reference, outline, target).await
            }
            (Destination::Directory(_), Some(layout)) => {
                let target = Target::Layout(layout);
                self.images.copy(origin, reference, outline, target).await
            }
            (Destination::Directory(path), None) => bail!("there is no directory {}", path.display()),
        };
        copied.with_context(|| format!("cannot mirror {reference}"))
    }

    /// Puts an image that is made here into the mirror.
    async fn put(
        &self,
        reference: &Reference,
        image: &BuiltImage,
        to: &Destination,
        into: Option<&Layout>,
    ) -> anyhow::Result<()> {
        match (to, into) {
            (Destination::Registry(base), _) => {
                let target = mirrored(base, reference)?;
                let access = self.access(&target)?;
                self.images.push(&target, image, &access).await?;
            }
            (Destination::Directory(_), Some(layout)) => drop(layout.take(image, reference)?),
            (Destination::Directory(path), None) => bail!("there is no directory {}", path.display()),
        }
        Ok(())
    }
}

async fn mirror(arguments: &Arguments, to: &Destination, plan: Plan) -> CommandResult {
    let registries = RegistryAccess {
        registry: &arguments.registry,
        images: arguments.registry.images(),
        known: parking_lot::Mutex::default(),
    };
    let at_once = usize::from(arguments.concurrency);
    let mut into = match to {
        Destination::Directory(path) if path.join("oci-layout").is_file() => Some(Layout::create(path)?),
        _ => None,
    };
    let looks = plan.items.into_iter().map(|item| {
        let (registries, layout, into) = (&registries, plan.layout.as_ref(), into.as_ref());
        async move {
            let found = registries.inspect(&item, layout, to, into).await;
            let found = found.map_err(|error| format!("{error:#}"));
            InspectedImage { item, found }
        }
    });
    let known: Vec<InspectedImage> = stream::iter(looks).buffered(at_once).collect().await;
    let missing = known.iter().filter(|known| known.found.is_err()).count();
    report(arguments, &known)?;
    if arguments.dry_run {
        return Ok(if missing > 0 {
            Status::Failure
        } else {
            Status::Success
        });
    }
    if missing > 0 && !arguments.skip_missing {
        let error = anyhow!(
            "{missing} of {} images are missing: nothing is copied",
            known.len()
        );
        return Err(error.context(Hint("--skip-missing copies the rest".to_owned())));
    }
    if let (Destination::Directory(path), None) = (to, &into) {
        into = Some(Layout::create(path)?);
    }
    let copies = known.iter().filter_map(|known| {
        let (outline, _) = known.found.as_ref().ok()?;
        let (registries, layout, into) = (&registries, plan.layout.as_ref(), into.as_ref());
        let reference = &known.item.reference;
        let is_copied = known.item.built.is_none();
        is_copied.then_some(async move { registries.copy(reference, outline, layout, to, into).await })
    });
    let sent: Vec<Copied> = stream::iter(copies)
        .buffer_unordered(at_once)
        .try_collect()
        .await?;
    let mut bytes: u64 = sent.iter().map(|copied| copied.bytes).sum();
    // A catalog that is made here comes after all that it names.
    for known in &known {
        if let Some(built) = &known.item.built {
            let reference = &known.item.reference;
            registries.put(reference, &built.image, to, into.as_ref()).await?;
            bytes += known.found.as_ref().map_or(0, |(_, lacking)| lacking.bytes);
        }
    }
    match (to, &mut into) {
        (Destination::Directory(_), Some(layout)) => {
            for known in &known {
                if let Ok((outline, _)) = &known.found {
                    let role = role(known.item.role, &plan.catalog.1);
                    layout.add(&known.item.reference, outline, &role);
                }
            }
            layout.save()?;
        }
        (Destination::Registry(base), _) => {
            let references = known.iter().map(|known| &known.item.reference);
            configuration(arguments, base, references, &plan.catalog)?;
        }
        (Destination::Directory(_), None) => {}
    }
    note(&format!("copied {} to {}", size(bytes), arguments.to));
    Ok(if missing > 0 {
        Status::Failure
    } else {
        Status::Success
    })
}

/// The annotations of an image in a directory: its role, and of the catalog its name.
fn role(role: &str, name: &str) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([(annotation::MIRROR.to_owned(), role.to_owned())]);
    if role == CATALOG {
        annotations.insert(annotation::MIRROR_NAME.to_owned(), name.to_owned());
    }
    annotations
}

/// Writes the files that lead to the mirror.
fn configuration<'r>(
    arguments: &Arguments,
    base: &str,
    references: impl Iterator<Item = &'r Reference>,
    (catalog, name): &'r (Reference, String),
) -> anyhow::Result<()> {
    let folder = &arguments.config_dir;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let registries = registries(references.chain(std::iter::once(catalog)));
    let [digests, tags] = mirror_sets(base, &registries);
    let sets = format!("{}---\n{}", olm_yaml::to_yaml(&digests), olm_yaml::to_yaml(&tags));
    // Through the mirror, unless the image exists nowhere else.
    let reference = if catalog.registry() == NOWHERE {
        mirrored(base, catalog)?
    } else {
        catalog.clone()
    };
    let cluster_catalog = json!({
        "apiVersion": olm_api::names::API_VERSION, "kind": olm_api::names::CLUSTER_CATALOG, "metadata": {"name": name},
        "spec": {"source": {"type": "Image", "image": {"ref": reference.to_string()}}},
    });
    let is_insecure = arguments.registry.is_insecure();
    for (file, text) in [
        ("registries.conf", registries_conf(base, &registries, is_insecure)),
        ("image-mirrors.yaml", sets),
        ("clustercatalog.yaml", olm_yaml::to_yaml(&cluster_catalog)),
    ] {
        let path = folder.join(file);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    note(&format!(
        "wrote registries.conf, image-mirrors.yaml and clustercatalog.yaml to {}",
        folder.display()
    ));
    Ok(())
}
