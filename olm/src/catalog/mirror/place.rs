//! The destination of mirrored images, and the files that redirect clients there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use olm_image::Reference;
use serde_json::{Value, json};

use crate::hint::Hint;

/// The host of images that are in no registry yet.
pub(super) const NOWHERE: &str = "localhost";

/// The destination of the images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Destination {
    /// A registry, with a path in it.
    Registry(String),
    /// A directory in OCI layout.
    Directory(PathBuf),
}

impl Destination {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let path = Path::new(text);
        if text.starts_with(['/', '.']) || path.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        let host = text.split('/').next().unwrap_or_default();
        let is_host = host.contains(['.', ':']) || host == "localhost";
        let example = format!("{}/x:y", text.trim_end_matches('/'));
        if is_host && Reference::parse(&example).is_ok() {
            return Ok(Self::Registry(text.trim_end_matches('/').to_owned()));
        }
        let error = anyhow!("{text:?} is neither a registry nor a directory");
        Err(error.context(Hint(format!(
            "write HOST[:PORT][/PATH] for a registry, ./{text} for a directory"
        ))))
    }
}

/// The place of the images of a registry in the mirror.
fn below(base: &str, registry: &str) -> String {
    if registry == NOWHERE {
        base.to_owned()
    } else {
        format!("{base}/{}", registry.replace(':', "-").to_lowercase())
    }
}

/// An image in the mirror.
pub(super) fn mirrored(base: &str, reference: &Reference) -> anyhow::Result<Reference> {
    let text = reference.to_string();
    let rest = text.split_once('/').map(|(_, rest)| rest).unwrap_or_default();
    let mirrored = format!("{}/{rest}", below(base, reference.registry()));
    Reference::parse(&mirrored).with_context(|| format!("cannot name {reference} in {base}"))
}

/// The registries that have a mirror.
pub(super) fn registries<'r>(references: impl Iterator<Item = &'r Reference>) -> BTreeSet<&'r str> {
    references
        .map(Reference::registry)
        .filter(|registry| *registry != NOWHERE)
        .collect()
}

/// `registries.conf` of container tools, of both managers and of `olm`.
pub(super) fn registries_conf(base: &str, registries: &BTreeSet<&str>, is_insecure: bool) -> String {
    let mut text = String::new();
    for registry in registries {
        let _ = write!(
            text,
            "[[registry]]\nprefix = \"{registry}\"\nlocation = \"{registry}\"\n[[registry.mirror]]\nlocation = \"{}\"\n",
            below(base, registry)
        );
        if is_insecure {
            text.push_str("insecure = true\n");
        }
        text.push('\n');
    }
    text
}

/// The same for the nodes of OpenShift: mirrors for references by digest and by tag.
pub(super) fn mirror_sets(base: &str, registries: &BTreeSet<&str>) -> [Value; 2] {
    let set = |kind: &str, field: &str| {
        let mirrors = registries
            .iter()
            .map(|registry| json!({"source": registry, "mirrors": [below(base, registry)]}));
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": "olm-mirror"},
            "spec": {field: mirrors.collect::<Vec<_>>()},
        })
    };
    [
        set("ImageDigestMirrorSet", "imageDigestMirrors"),
        set("ImageTagMirrorSet", "imageTagMirrors"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_keeps_its_registry_path_tag_and_digest_in_the_mirror() {
        let check = |reference: &str, expected: &str| {
            let reference = Reference::parse(reference).unwrap();
            assert_eq!(mirrored("m.example/x", &reference).unwrap().to_string(), expected);
        };
        let digest = format!("sha256:{}", "0".repeat(64));
        check("quay.io/a/b:v1", "m.example/x/quay.io/a/b:v1");
        check(
            &format!("quay.io:5000/a@{digest}"),
            &format!("m.example/x/quay.io-5000/a@{digest}"),
        );
        check("localhost/mine:latest", "m.example/x/mine:latest");
    }

    #[test]
    fn a_target_is_a_registry_or_a_directory() {
        assert_eq!(
            Destination::parse("r.example:5000/a/").unwrap(),
            Destination::Registry("r.example:5000/a".to_owned())
        );
        assert_eq!(
            Destination::parse("./copy").unwrap(),
            Destination::Directory(PathBuf::from("./copy"))
        );
        assert!(Destination::parse("copy").is_err());
    }

    #[test]
    fn the_files_lead_every_registry_to_its_mirror() {
        let registries = BTreeSet::from(["docker.io", "quay.io"]);
        let text = registries_conf("m.example", &registries, false);
        assert!(
            text.starts_with(
                "[[registry]]\nprefix = \"docker.io\"\nlocation = \"docker.io\"\n[[registry.mirror]]\nlocation = \
                 \"m.example/docker.io\"\n\n[[registry]]\nprefix = \"quay.io\"\n"
            ),
            "{text}"
        );
        let [digests, tags] = mirror_sets("m.example", &registries);
        assert_eq!(
            digests["spec"]["imageDigestMirrors"][1],
            json!({"source": "quay.io", "mirrors": ["m.example/quay.io"]})
        );
        assert_eq!(tags["kind"], "ImageTagMirrorSet");
    }
}
