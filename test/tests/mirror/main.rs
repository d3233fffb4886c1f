//! `olm mirror` between two real registries and a directory: digests stay, platforms and signatures come along, and
//! with the source gone the written files lead to the copies.

mod referrers;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use olm_image::{
    Access, Digest, ImageBuilder, Images, LayerBuilder, Options, Pinned, Platform, Reference, Registries,
};
use olm_test::masks::masked;
use olm_test::registry::signatures::{key, sign};
use olm_test::registry::{Registry, Server};
use olm_test::samples;
use olm_test::world::binary;
use serde_json::{Value, json};
use tempfile::TempDir;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const PACKAGES: [&str; 2] = ["greeter", "memcached"];
const VERSIONS: [&str; 2] = ["1.0.0", "1.0.1"];

async fn push(registry: &Registry, name: &str, image: ImageBuilder, layer: LayerBuilder) -> Result<Pinned> {
    let image = image.layer(layer.build()?).build();
    let reference = Reference::parse(&format!("{}/{name}", registry.address))?;
    let access = Access {
        registries: Arc::new(Registries::default().plain_http(&registry.address)),
        ..Access::default()
    };
    Ok(Images::new(Options::new("test"))
        .push(&reference, &image, &access)
        .await?
        .pinned)
}

async fn push_bundle(registry: &Registry, package: &str, version: &str) -> Result<Pinned> {
    let mut layer = LayerBuilder::new();
    for (path, content) in samples::renamed_bundle(package, version, samples::OPERATOR_IMAGE) {
        layer.bytes(&path, content, 0o644)?;
    }
    let image = ImageBuilder::new(Platform::host())
        .label(
            "operators.operatorframework.io.bundle.mediatype.v1",
            "registry+v1",
        )
        .label("operators.operatorframework.io.bundle.package.v1", package);
    push(registry, &format!("{package}/bundle:v{version}"), image, layer).await
}

async fn put(registry: &Registry, place: &str, kind: &str, text: String) -> Result<String> {
    let url = format!("http://{}/v2/{place}", registry.address);
    let digest = Digest::of(text.as_bytes()).to_string();
    let put = reqwest::Client::new()
        .put(url)
        .header("content-type", kind)
        .body(text);
    put.send().await?.error_for_status()?;
    Ok(digest)
}

/// The digest of a name in a registry, if it exists.
async fn digest(registry: &Registry, repository: &str, name: &str) -> Result<Option<String>> {
    let url = format!("http://{}/v2/{repository}/manifests/{name}", registry.address);
    let get = reqwest::Client::new()
        .get(url)
        .header("accept", format!("{INDEX}, {MANIFEST}"));
    let answer = get.send().await?;
    if answer.status().as_u16() == 404 {
        return Ok(None);
    }
    let bytes = answer.error_for_status()?.bytes().await?;
    Ok(Some(Digest::of(&bytes).to_string()))
}

/// An operator's image for two platforms with a referrer; gives the digest of its index.
async fn push_operator(registry: &Registry) -> Result<String> {
    let mut entries = Vec::new();
    for architecture in ["amd64", "arm64"] {
        let platform = Platform {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
        };
        let mut layer = LayerBuilder::new();
        layer.bytes("operator", architecture, 0o755)?;
        let name = format!("samples/operator:{architecture}");
        let pinned = push(registry, &name, ImageBuilder::new(platform), layer).await?;
        let url = format!(
            "http://{}/v2/samples/operator/manifests/{}",
            registry.address,
            pinned.digest()
        );
        let get = reqwest::Client::new().get(url).header("accept", MANIFEST);
        let size = get.send().await?.bytes().await?.len();
        entries.push(
            json!({"mediaType": MANIFEST, "digest": pinned.digest().to_string(), "size": size,
            "platform": {"os": "linux", "architecture": architecture}}),
        );
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    let size = index.len();
    let index = put(registry, "samples/operator/manifests/v1", INDEX, index).await?;

    // A referrer: a description, which is at the tag for registries that do not list referrers.
    let mut layer = LayerBuilder::new();
    layer.bytes("sbom.json", "{}", 0o644)?;
    let described = push(
        registry,
        "samples/operator:described",
        ImageBuilder::new(Platform::host()),
        layer,
    )
    .await?;
    let url = format!(
        "http://{}/v2/samples/operator/manifests/described",
        registry.address
    );
    let get = reqwest::Client::new().get(url).header("accept", MANIFEST);
    let mut manifest: Value = get.send().await?.json().await?;
    manifest["subject"] = json!({"mediaType": INDEX, "digest": index, "size": size});
    ensure!(described.digest().to_string() != index, "{described}");
    let text = manifest.to_string();
    let length = text.len();
    let referrer = put(registry, "samples/operator/manifests/described", MANIFEST, text).await?;
    let list = json!({"schemaVersion": 2, "mediaType": INDEX,
        "manifests": [{"mediaType": MANIFEST, "digest": referrer, "size": length}]});
    let tag = index.replace(':', "-");
    put(
        registry,
        &format!("samples/operator/manifests/{tag}"),
        INDEX,
        list.to_string(),
    )
    .await?;
    Ok(index)
}

fn run(folder: &Path, line: &str) -> Result<Output> {
    let run = Command::new(binary("olm")?)
        .args(line.split_whitespace())
        .current_dir(folder)
        .env_remove("CONTAINERS_REGISTRIES_CONF")
        .output()?;
    Ok(run)
}

/// Compares the whole output with its record: sizes are masked, and with them the width of columns.
#[track_caller]
fn record(folder: &Path, name: &str, line: &str) -> Result<()> {
    let run = run(folder, line)?;
    let text = format!(
        "$ olm {line}\n{}--- exit status {}, standard error:\n{}",
        String::from_utf8_lossy(&run.stdout),
        run.status.code().context("it was killed")?,
        String::from_utf8_lossy(&run.stderr)
    );
    let mut masked_text = String::new();
    for line in masked(&text).lines() {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let cells: Vec<String> = cells.map(without_sizes).collect();
        masked_text.push_str(&format!("{}\n", cells.join("  ")));
    }
    insta::assert_snapshot!(name, masked_text);
    Ok(())
}

/// A cell with `SIZE` for each number of bytes.
fn without_sizes(cell: &str) -> String {
    let mut words: Vec<&str> = cell.split(' ').collect();
    for at in 1..words.len() {
        if ["B", "KiB", "MiB"].contains(&words[at]) && words[at - 1].parse::<u64>().is_ok() {
            words[at - 1] = "SIZE";
            words[at] = "";
        }
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

/// The output of a command that succeeds.
fn olm(folder: &Path, line: &str) -> Result<String> {
    let run = run(folder, line)?;
    ensure!(run.status.success(), "`olm {line}`: {run:?}");
    Ok(String::from_utf8(run.stdout)?)
}

/// Bundle, version and image of the resolution.
fn resolved(folder: &Path, package: &str, catalog: &str, more: &str) -> Result<String> {
    let text = olm(
        folder,
        &format!("resolve {package} --catalog c={catalog} {more} -o json"),
    )?;
    let answer: Value = serde_json::from_str(&text)?;
    Ok(format!(
        "{} {} {}",
        answer["bundle"], answer["version"], answer["image"]
    ))
}

/// A registry with two packages of two versions each, one of them signed; gives the blobs of the catalog.
async fn filled(registry: &Registry) -> Result<Vec<Value>> {
    let operator = push_operator(registry).await?;
    let mut blobs = Vec::new();
    for package in PACKAGES {
        let name = |version: &str| format!("{package}.v{version}");
        blobs.push(json!({"schema": "olm.package", "name": package, "defaultChannel": "stable"}));
        let entries = [
            json!({"name": name("1.0.0")}),
            json!({"name": name("1.0.1"), "replaces": name("1.0.0")}),
        ];
        blobs
            .push(json!({"schema": "olm.channel", "package": package, "name": "stable", "entries": entries}));
        for version in VERSIONS {
            let image = push_bundle(registry, package, version).await?;
            if (package, version) == ("greeter", "1.0.1") {
                let (_, pair) = key()?;
                sign(registry, "greeter/bundle", image.digest(), &pair).await?;
            }
            blobs.push(json!({
                "schema": "olm.bundle", "package": package, "name": name(version), "image": image.to_string(),
                "properties": [{"type": "olm.package", "value": {"packageName": package, "version": version}}],
                "relatedImages": [
                    {"name": "operator", "image": format!("{}/samples/operator@{operator}", registry.address)},
                    {"name": "tagged", "image": format!("{}/samples/operator:v1", registry.address)},
                ],
            }));
        }
    }
    Ok(blobs)
}

fn write_catalog(folder: &Path, name: &str, blobs: &[Value]) -> Result<()> {
    std::fs::create_dir_all(folder.join(name))?;
    let text: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
    Ok(std::fs::write(folder.join(name).join("catalog.json"), text)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_gives_what_its_source_gave() -> Result<()> {
    olm_platform::crypto::install();
    let (source, target) = (Server::start().await?, Server::start().await?);
    let (from, to) = (source.registry().clone(), target.registry().clone());
    let scratch = TempDir::new()?;
    let folder = scratch.path();
    let blobs = filled(&from).await?;
    write_catalog(folder, "catalog", &blobs)?;
    let catalog = format!("{}/catalogs/samples:v1", from.address);
    olm(folder, &format!("catalog push catalog {catalog} --plain-http"))?;

    missing_images_are_reported_first(folder, &blobs, &from, &to).await?;
    let before = copied_whole(folder, &catalog, &from, &to).await?;
    through_a_directory(folder, &catalog, &from, &to).await?;
    a_fault_that_the_source_has_stays(folder, &blobs)?;

    // The source is gone.
    drop(source);
    ensure!(
        !run(folder, &format!("catalog list packages {catalog} --plain-http"))?
            .status
            .success()
    );
    let led = "--registries-conf conf/registries.conf";
    for (package, before) in PACKAGES.iter().zip(before) {
        let after = resolved(folder, package, &catalog, led)?;
        ensure!(after == before, "{after} was {before}");
        let answer: Value = serde_json::from_str(&format!("[{}]", after.replace(' ', ",")))?;
        let image = answer[2].as_str().context("a bundle has an image")?;
        let objects = olm(folder, &format!("bundle render {image} {led} -n samples"))?;
        ensure!(objects.contains("kind: Deployment"), "{objects}");
    }
    Ok(())
}

async fn missing_images_are_reported_first(
    folder: &Path,
    blobs: &[Value],
    from: &Registry,
    to: &Registry,
) -> Result<()> {
    let mut broken = blobs.to_vec();
    let lost = format!("{}/greeter/lost@sha256:{}", from.address, "0".repeat(64));
    for blob in broken.iter_mut().filter(|blob| blob["name"] == "greeter.v1.0.0") {
        blob["relatedImages"][0]["image"] = json!(lost);
    }
    write_catalog(folder, "broken", &broken)?;
    let line = format!("mirror ./broken --to {}/never --plain-http", to.address);
    record(folder, "missing", &line)?;
    let refused = run(folder, &line)?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    let (printed, said) = (
        String::from_utf8_lossy(&refused.stdout),
        String::from_utf8_lossy(&refused.stderr),
    );
    ensure!(
        printed.contains("missing: ") && printed.contains("greeter/lost") && printed.contains(" 1 missing;"),
        "{printed}"
    );
    ensure!(said.contains("nothing is copied"), "{said}");
    let url = format!("http://{}/v2/_catalog", to.address);
    let list: Value = reqwest::get(url).await?.json().await?;
    ensure!(list["repositories"] == json!([]), "{list}");
    let refused = run(folder, "mirror ./broken --to ./never --plain-http")?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    ensure!(
        !folder.join("never").exists(),
        "a refused mirror leaves a directory"
    );
    Ok(())
}

/// Copies a catalog from one registry to the other. Returns the resolutions from the source.
async fn copied_whole(folder: &Path, catalog: &str, from: &Registry, to: &Registry) -> Result<Vec<String>> {
    let line = format!(
        "mirror {catalog} --to {}/m --plain-http --config-dir conf",
        to.address
    );
    let rehearsed = olm(folder, &format!("{line} --dry-run"))?;
    ensure!(
        rehearsed.contains("7 images: 7 to copy, 0 present, 0 missing;"),
        "{rehearsed}"
    );
    let names = olm(folder, &format!("{line} --dry-run -o name"))?;
    ensure!(
        names.lines().count() == 7 && names.starts_with(&format!("{catalog}\n")),
        "{names}"
    );
    record(folder, "dry_run", &format!("{line} --dry-run"))?;
    record(folder, "dry_run_name", &format!("{line} --dry-run -o name"))?;
    record(folder, "whole", &line)?;
    let host = from.address.replace(':', "-");
    let operator = digest(from, "samples/operator", "v1")
        .await?
        .context("it is there")?;
    let described = operator.replace(':', "-");
    let signed = digest(from, "greeter/bundle", "v1.0.1")
        .await?
        .context("it is there")?;
    let signature = format!("{}.sig", signed.replace(':', "-"));
    for (repository, name) in [
        ("catalogs/samples", "v1"),
        ("samples/operator", "v1"),
        ("samples/operator", operator.as_str()),
        ("samples/operator", described.as_str()),
        ("greeter/bundle", signed.as_str()),
        ("greeter/bundle", signature.as_str()),
    ] {
        let here = digest(from, repository, name).await?;
        let there = digest(to, &format!("m/{host}/{repository}"), name).await?;
        ensure!(
            here.is_some() && here == there,
            "{repository} {name}: {here:?} {there:?}"
        );
    }
    // Both platforms and the referrers of the image can be pulled.
    for tag in ["amd64", "arm64", "described"] {
        let wanted = digest(from, "samples/operator", tag)
            .await?
            .context("it is there")?;
        let repository = format!("m/{host}/samples/operator");
        ensure!(digest(to, &repository, &wanted).await?.is_some(), "{tag}");
    }
    let again = olm(folder, &line)?;
    ensure!(again.contains("7 images: 0 to copy, 7 present"), "{again}");
    let sets = std::fs::read_to_string(folder.join("conf/image-mirrors.yaml"))?;
    ensure!(
        sets.contains("kind: ImageDigestMirrorSet") && sets.contains(&format!("{}/m/{host}", to.address)),
        "{sets}"
    );
    let applied = std::fs::read_to_string(folder.join("conf/clustercatalog.yaml"))?;
    ensure!(applied.contains(catalog), "{applied}");
    PACKAGES
        .iter()
        .map(|package| resolved(folder, package, catalog, "--plain-http"))
        .collect()
}

/// The catalog of the selected packages is in the table, the counts and the JSON.
fn the_selection_is_reported(folder: &Path, line: &str, catalog: &str) -> Result<()> {
    let line = format!("{line} --dry-run");
    let table = olm(folder, &line)?;
    let row = table.lines().nth(1).unwrap_or_default();
    ensure!(
        row.starts_with(catalog) && row.ends_with("the catalog (selected packages)"),
        "{table}"
    );
    ensure!(
        table.contains("4 images: 4 to copy, 0 present, 0 missing;"),
        "{table}"
    );
    let images: Vec<Value> = serde_json::from_str(&olm(folder, &format!("{line} -o json"))?)?;
    let names = olm(folder, &format!("{line} -o name"))?;
    // The built catalog is in no registry that it could be pulled from.
    let others = images.iter().filter(|one| one["built"] == false);
    let in_json: Vec<&str> = others.filter_map(|one| one["image"].as_str()).collect();
    ensure!(
        in_json == names.lines().collect::<Vec<_>>(),
        "{in_json:?} {names}"
    );
    let first = images.first().context("there are images")?;
    ensure!(
        images.len() == 4 && first["image"] == catalog && first["built"] == true,
        "{first}"
    );
    ensure!(
        first["bytes"] == first["bytesToCopy"] && first["missing"].is_null(),
        "{first}"
    );
    Ok(())
}

/// A part of the catalog to a directory, and from there to a registry.
async fn through_a_directory(folder: &Path, catalog: &str, from: &Registry, to: &Registry) -> Result<()> {
    let line = format!("mirror wanted={catalog} greeter@>=1.0.1 --to ./copy --plain-http");
    the_selection_is_reported(folder, &line, catalog)?;
    record(folder, "selection", &line)?;
    record(folder, "selection_again", &line)?;
    let again = olm(folder, &line)?;
    ensure!(again.contains("4 images: 0 to copy, 4 present"), "{again}");
    let wanted = resolved(folder, "greeter", catalog, "--plain-http")?;
    ensure!(resolved(folder, "greeter", "./copy", "")? == wanted);
    ensure!(olm(folder, "catalog list packages ./copy")?.lines().count() == 2);

    let line = format!(
        "mirror ./copy --to {}/onward --plain-http --config-dir onward",
        to.address
    );
    let onward = olm(folder, &format!("{line} --dry-run"))?;
    ensure!(onward.contains("4 images: 4 to copy"), "{onward}");
    ensure!(
        onward.matches("greeter.v1.0.1").count() == 3,
        "each image of a directory has its bundles: {onward}"
    );
    record(folder, "directory", &line)?;
    // The directory keeps the name, unless another one is given.
    let is_named = |name: &str| -> Result<bool> {
        let text = std::fs::read_to_string(folder.join("onward/clustercatalog.yaml"))?;
        Ok(text.contains(&format!("\n  name: {name}\n")))
    };
    ensure!(is_named("wanted")?);
    olm(folder, &line.replace("./copy", "other=./copy"))?;
    ensure!(is_named("other")?);
    let wrong = run(folder, &line.replace("./copy", "Other=./copy"))?;
    ensure!(wrong.status.code() == Some(1), "{wrong:?}");
    let host = from.address.replace(':', "-");
    let part = format!("{}/onward/{host}/catalogs/samples:v1", to.address);
    ensure!(resolved(folder, "greeter", &part, "--plain-http")? == wanted);
    let signed = digest(from, "greeter/bundle", "v1.0.1")
        .await?
        .context("it is there")?;
    let signature = format!("{}.sig", signed.replace(':', "-"));
    let repository = format!("onward/{host}/greeter/bundle");
    ensure!(
        digest(to, &repository, &signed).await?.is_some()
            && digest(to, &repository, &signature).await?.is_some()
    );
    ensure!(run(folder, "mirror ./copy greeter --to ./more")?.status.code() == Some(1));
    Ok(())
}

/// A catalog with an unreadable icon is served; chosen packages of it can be copied.
fn a_fault_that_the_source_has_stays(folder: &Path, blobs: &[Value]) -> Result<()> {
    let mut odd = blobs.to_vec();
    let is_package = |blob: &Value| blob["schema"] == "olm.package" && blob["name"] == "greeter";
    for blob in odd.iter_mut().filter(|blob| is_package(blob)) {
        blob["icon"] = json!({"base64data": "*", "mediatype": "image/png"});
    }
    write_catalog(folder, "odd", &odd)?;
    olm(
        folder,
        "mirror ./odd greeter@>=1.0.1 --to ./odd-copy --plain-http",
    )?;
    let wanted = resolved(folder, "greeter", "./odd", "")?;
    let copied = resolved(folder, "greeter", "./odd-copy", "")?;
    ensure!(copied == wanted, "{copied} was {wanted}");
    Ok(())
}
