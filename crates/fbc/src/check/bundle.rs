//! The rules of a single bundle.

use olm_version::{Release, blang, quoted};

use super::{BLOB_BYTES, BlobLocation, BundleFacts, Checker, Object, Rule, image_reference, shared};
use crate::blob::bundle::Bundle;
use crate::blob::property::{PackageProperty, TYPE_BUNDLE_OBJECT, TYPE_PACKAGE};

impl Checker {
    pub(super) fn add_bundle(&mut self, bundle: &Bundle, place: BlobLocation) {
        let object = Object::bundle(&bundle.package, &bundle.name);
        let mut find =
            |rule: Rule, message: String| self.find(rule, object.clone(), Some(place.clone()), message);
        if bundle.package.is_empty() {
            find(
                Rule::BundlePackage,
                format!("package name must be set for bundle {}", quoted(&bundle.name)),
            );
        }
        check_images(bundle, &mut find);
        let property = package_property(bundle, &mut find);
        if let Some(property) = &property {
            check_version(bundle, property, &mut find);
        }
        self.check_properties(&bundle.properties, &object, &place);
        let version = property.and_then(|property| version(bundle, &property));
        let bytes = BLOB_BYTES + bundle.name.len() + version.as_ref().map_or(0, String::len);
        if !self.has_room(bytes) {
            return;
        }
        let package = shared(&mut self.package, &bundle.package);
        self.bundles.push(BundleFacts {
            package,
            name: bundle.name.as_str().into(),
            version: version.map(String::into_boxed_str),
            place,
        });
    }
}

fn check_images(bundle: &Bundle, find: &mut impl FnMut(Rule, String)) {
    let about = format!(
        "package {} bundle {}",
        quoted(&bundle.package),
        quoted(&bundle.name)
    );
    let mut check = |field: &str, image: &str| {
        if !image.is_empty()
            && let Err(fault) = image_reference::check(image)
        {
            let fault = match fault {
                image_reference::ReferenceFault::Identifier => {
                    format!("invalid repository name ({image}), {fault}")
                }
                fault => fault.to_string(),
            };
            find(
                Rule::ImageReference,
                format!(
                    "{about} {field}: invalid image pull spec {}: {fault}",
                    quoted(image)
                ),
            );
        }
    };
    check("image", &bundle.image);
    for (index, related) in bundle.related_images.iter().enumerate() {
        check(&format!("relatedImages[{index}].image"), &related.image);
    }
    if bundle.image.is_empty() {
        let carries_manifests = bundle
            .properties
            .iter()
            .any(|property| property.kind == TYPE_BUNDLE_OBJECT);
        if carries_manifests {
            find(
                Rule::BundleImageOnly,
                "bundle image must be set, even with manifests in properties".to_owned(),
            );
        } else {
            find(Rule::BundleImage, "bundle image must be set".to_owned());
        }
    }
    for (index, _) in bundle
        .related_images
        .iter()
        .enumerate()
        .filter(|(_, related)| related.image.is_empty())
    {
        find(
            Rule::RelatedImage,
            format!("relatedImages[{index}] must name an image"),
        );
    }
    // Rendering writes a missing name as an empty one.
    for (index, related) in bundle.related_images.iter().enumerate() {
        let is_blank = !related.name.is_empty() && related.name.trim().is_empty();
        if is_blank || related.name.chars().any(char::is_control) {
            let name = quoted(&related.name);
            find(
                Rule::RelatedImage,
                format!("relatedImages[{index}] has the name {name}, must say what the image is for"),
            );
        }
    }
}

/// The single property with package and version.
fn package_property(bundle: &Bundle, find: &mut impl FnMut(Rule, String)) -> Option<PackageProperty> {
    let mut properties = bundle
        .properties
        .iter()
        .filter(|property| property.kind == TYPE_PACKAGE);
    let (first, second) = (properties.next(), properties.next());
    let (Some(property), None) = (first, second) else {
        let found = first.iter().chain(second.iter()).count() + properties.count();
        let (package, bundle) = (quoted(&bundle.package), quoted(&bundle.name));
        find(
            Rule::PackageProperty,
            format!(
                "package {package} bundle {bundle} must have exactly 1 \"olm.package\" property, found {found}"
            ),
        );
        return None;
    };
    // A value of the wrong shape is reported with the other properties.
    let property = property.package().ok()?;
    if property.package_name != bundle.package {
        let (package, named) = (quoted(&bundle.package), quoted(&property.package_name));
        find(
            Rule::PackagePropertyName,
            format!("package {package} does not match \"olm.package\" property {named}"),
        );
    }
    Some(property)
}

fn check_version(bundle: &Bundle, property: &PackageProperty, find: &mut impl FnMut(Rule, String)) {
    let version = blang::parse_version(&property.version);
    let of_bundle = format!("error parsing bundle {}", quoted(&bundle.name));
    if let Err(error) = &version {
        find(
            Rule::Version,
            format!("{of_bundle} version {}: {error}", quoted(&property.version)),
        );
    }
    if property.release.is_empty() {
        return;
    }
    if let Err(error) = Release::parse(&property.release) {
        find(
            Rule::Release,
            format!(
                "{of_bundle} release version {}: {error}",
                quoted(&property.release)
            ),
        );
        return;
    }
    let normalized = format!("{}-v{}-{}", bundle.package, property.version, property.release);
    if version.as_ref().is_ok_and(|_| bundle.name != normalized) {
        find(
            Rule::ReleaseName,
            format!(
                "name {} does not match normalized name {}",
                quoted(&bundle.name),
                quoted(&normalized)
            ),
        );
    }
    if version.is_ok_and(|version| !version.build.is_empty()) {
        find(
            Rule::ReleaseBuild,
            "cannot use build metadata in version with a release version".to_owned(),
        );
    }
}

/// Version and release as one text by which bundles are compared.
fn version(bundle: &Bundle, property: &PackageProperty) -> Option<String> {
    let (version, release) = bundle.version_of(property).ok()?;
    if release.is_empty() {
        Some(version.to_string())
    } else {
        Some(format!("{version}-{release}"))
    }
}
