//! The image of a catalog: `spec.source.image.ref`, or the annotation with Kubernetes version variables.
//!
//! A usable annotation takes precedence. For an unusable one, the spec is used and the condition reports it. Without
//! either the catalog is blocked.

use std::time::Duration;

use kube::Client;
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::SourceType;
use olm_api::names::user;
use olm_api::text::escape;
use olm_image::{Reference, ReferenceError};
use olm_platform::fresh::Fresh;
use olm_platform::log::chain;

/// The interval at which a catalog with a template follows the version of the cluster.
pub(super) const RECHECK_INTERVAL: Duration = Duration::from_mins(10);
/// The time for which an answer of the API server is current; many catalogs reconcile together.
const ANSWER_AGE: Duration = Duration::from_secs(2);
/// The most characters of an annotation in a message.
const MAX_SHOWN: usize = 200;

/// The version of the cluster's API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KubernetesVersion {
    major: String,
    minor: String,
    /// Absent when the server reports none.
    patch: Option<String>,
}

impl KubernetesVersion {
    /// Parses `v1.25.4+k3s1`, or else the separate parts (`1`, `25+`).
    pub(super) fn parse(git_version: &str, major: &str, minor: &str) -> Option<Self> {
        let digits = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text.get(..end)
                .filter(|digits| !digits.is_empty())
                .map(str::to_owned)
        };
        let mut parts = git_version.trim_start_matches('v').splitn(3, '.');
        let whole = parts.next().and_then(|text| text.parse::<u32>().ok());
        let (second, third) = (parts.next().and_then(digits), parts.next().and_then(digits));
        Some(match (whole, second) {
            (Some(major), Some(minor)) => Self {
                major: major.to_string(),
                minor,
                patch: third,
            },
            _ => Self {
                major: digits(major)?,
                minor: digits(minor)?,
                patch: None,
            },
        })
    }
}

/// A template that yields no image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    #[error("it has an unknown variable {{{0}}}")]
    Variable(String),
    #[error("its braces do not match")]
    Braces,
    #[error("the API server reports no patch version")]
    Patch,
    #[error("{0:?} is not an image reference: {1}")]
    Reference(String, ReferenceError),
    #[error("{0:?} has both a tag and a digest")]
    TagAndDigest(String),
}

/// Replaces the variables of a template.
pub(super) fn expand(template: &str, version: &KubernetesVersion) -> Result<String, TemplateError> {
    let mut image = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (variable, tail) = after.split_once('}').ok_or(TemplateError::Braces)?;
        image.push_str(before);
        image.push_str(match variable {
            "kube_major_version" => &version.major,
            "kube_minor_version" => &version.minor,
            "kube_patch_version" => version.patch.as_ref().ok_or(TemplateError::Patch)?,
            unknown => return Err(TemplateError::Variable(escape(&shorten(unknown)).into_owned())),
        });
        rest = tail;
    }
    image.push_str(rest);
    if image.contains('}') {
        return Err(TemplateError::Braces);
    }
    match Reference::parse(&image) {
        Err(error) => Err(TemplateError::Reference(shorten(&image), error)),
        Ok(reference) if reference.has_tag_and_digest() => Err(TemplateError::TagAndDigest(shorten(&image))),
        Ok(_) => Ok(image),
    }
}

/// The image reference of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CatalogReference {
    pub(super) reference: String,
    /// A note about an annotation that is not used.
    pub(super) ignored: Option<String>,
}

/// A catalog without an image reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoImage {
    /// The object must change.
    Blocked(String),
    /// The version of the cluster is not known yet.
    Retry(String),
}

/// Whether the image depends on the cluster's version.
pub(super) fn is_templated(catalog: &ClusterCatalog) -> bool {
    catalog.annotation(user::CATALOG_IMAGE_TEMPLATE).is_some()
}

/// Chooses between the annotation and the spec.
pub(super) fn choose(
    catalog: &ClusterCatalog,
    version: Option<&KubernetesVersion>,
) -> Result<CatalogReference, NoImage> {
    let image = catalog.spec.source.image.as_ref();
    let image = image
        .filter(|image| catalog.spec.source.source_type == SourceType::Image && !image.reference.is_empty());
    let template = catalog.annotation(user::CATALOG_IMAGE_TEMPLATE);
    let expanded = match (template, version) {
        (Some(template), Some(version)) => Some(expand(template, version)),
        (Some(_), None) => {
            return Err(NoImage::Retry(format!(
                "cannot read the Kubernetes version that annotation {} needs",
                user::CATALOG_IMAGE_TEMPLATE
            )));
        }
        (None, _) => None,
    };
    match (expanded, image) {
        (Some(Ok(reference)), _) => Ok(CatalogReference {
            reference,
            ignored: None,
        }),
        (Some(Err(error)), Some(image)) => Ok(CatalogReference {
            reference: image.reference.clone(),
            ignored: Some(format!(
                "annotation {} is not used: {error}",
                user::CATALOG_IMAGE_TEMPLATE
            )),
        }),
        (None, Some(image)) => Ok(CatalogReference {
            reference: image.reference.clone(),
            ignored: None,
        }),
        (Some(Err(error)), None) => Err(NoImage::Blocked(format!(
            "no catalog image: annotation {} is not usable ({error}), and spec.source.image.ref is not set",
            user::CATALOG_IMAGE_TEMPLATE
        ))),
        (None, None) => {
            let name = catalog.name();
            Err(NoImage::Blocked(format!(
                "error parsing ClusterCatalog {name:?}, image source is nil"
            )))
        }
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

/// The version of the API server.
pub(crate) struct Versions {
    client: Client,
    last: Fresh<KubernetesVersion>,
}

impl Versions {
    /// A reader without an answer yet.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            last: Fresh::new(ANSWER_AGE),
        }
    }

    /// The current version; the last known one while the API server does not answer.
    pub(super) async fn read(&self) -> Option<KubernetesVersion> {
        let read = async || {
            let info = self.client.apiserver_version().await.map_err(Some)?;
            let version = KubernetesVersion::parse(&info.git_version, &info.major, &info.minor);
            version.ok_or(None::<kube::Error>)
        };
        match self.last.get_or(read).await {
            Ok(version) => Some(version),
            Err(None) => None,
            Err(Some(error)) => {
                tracing::warn!(error = chain(&error), "cannot read the version of the API server");
                self.last.last()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_catalog::{CatalogSource, ClusterCatalogSpec, ImageSource};

    use super::*;

    const TWO: &str = "quay.io/example-org/example-catalog:v{kube_major_version}.{kube_minor_version}";
    const THREE: &str =
        "quay.io/example-org/example-catalog:v{kube_major_version}.{kube_minor_version}.{kube_patch_version}";

    fn version(text: &str) -> KubernetesVersion {
        KubernetesVersion::parse(text, "", "").unwrap()
    }

    fn catalog(template: Option<&str>, image: Option<&str>) -> ClusterCatalog {
        let image = image.map(|reference| ImageSource {
            reference: reference.to_owned(),
            poll_interval_minutes: None,
        });
        let source = CatalogSource {
            source_type: SourceType::Image,
            image,
        };
        let mut catalog = ClusterCatalog::new(
            "cat",
            ClusterCatalogSpec {
                source,
                ..ClusterCatalogSpec::default()
            },
        );
        catalog.metadata.annotations =
            template.map(|template| [(user::CATALOG_IMAGE_TEMPLATE.to_owned(), template.to_owned())].into());
        catalog
    }

    #[test]
    fn major_and_minor_version_are_replaced() {
        let expected = Ok("quay.io/example-org/example-catalog:v1.25".to_owned());
        assert_eq!(expand(TWO, &version("v1.25.0")), expected);
        // Distributions add to the minor version.
        let apart = KubernetesVersion::parse("unknown", "1", "25+").unwrap();
        assert_eq!(expand(TWO, &apart), expected);
    }

    #[test]
    fn the_patch_version_is_replaced() {
        let expected = Ok("quay.io/example-org/example-catalog:v1.25.4".to_owned());
        for text in ["v1.25.4", "v1.25.4+k3s1", "v1.25.4-eks-1234", "1.25.4"] {
            assert_eq!(expand(THREE, &version(text)), expected, "{text}");
        }
        let apart = KubernetesVersion::parse("unknown", "1", "25+").unwrap();
        assert_eq!(expand(THREE, &apart), Err(TemplateError::Patch));
    }

    #[test]
    fn an_unusable_annotation_gives_way_to_the_spec_or_stops_the_catalog() {
        let now = version("v1.25.4");
        let spec = "registry.example/catalog:latest";
        let check = |template: &str, why: &str| {
            let chosen = choose(&catalog(Some(template), Some(spec)), Some(&now)).unwrap();
            assert_eq!(chosen.reference, spec);
            assert_eq!(
                chosen.ignored.as_deref(),
                Some(format!("annotation olm.catalogImageTemplate is not used: {why}").as_str())
            );
            let Err(NoImage::Blocked(message)) = choose(&catalog(Some(template), None), Some(&now)) else {
                panic!("{template} must stop the catalog");
            };
            assert!(message.contains(why), "{message}");
        };
        check("quay.io/org/cat:v{foo}", "it has an unknown variable {foo}");
        check("quay.io/org/cat:v{kube_minor_version", "its braces do not match");
        check("quay.io/org/cat:v}", "its braces do not match");
        check(
            "quay.io/org/cat:v{{kube_minor_version}}",
            "it has an unknown variable {{kube_minor_version}",
        );
        check(
            "cat:v{kube_minor_version}",
            "\"cat:v25\" is not an image reference: repository name must be canonical",
        );
        check(
            "",
            "\"\" is not an image reference: repository name must have at least one component",
        );
    }

    #[test]
    fn the_annotation_wins_over_the_spec_and_waits_for_the_version() {
        let spec = "registry.example/catalog:latest";
        let now = version("v1.25.4");
        let reference =
            |template, image| choose(&catalog(template, image), Some(&now)).map(|chosen| chosen.reference);
        let expanded = Ok("quay.io/example-org/example-catalog:v1.25".to_owned());
        assert_eq!(reference(Some(TWO), Some(spec)), expanded);
        assert_eq!(reference(Some(TWO), None), expanded);
        assert_eq!(reference(None, Some(spec)), Ok(spec.to_owned()));
        assert!(matches!(reference(None, None), Err(NoImage::Blocked(_))));
        let unknown = choose(&catalog(Some(TWO), Some(spec)), None);
        assert!(matches!(unknown, Err(NoImage::Retry(_))));
    }
}
