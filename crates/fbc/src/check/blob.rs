//! The rules of a single blob.

use crate::blob::channel::Channel;
use crate::blob::deprecation::Deprecations;
use crate::blob::package::{Icon, Package};
use crate::blob::property::{self, Property};
use crate::blob::{Blob, BlobError};
use crate::check::label::{is_group, is_version};
use crate::check::{BlobLocation, BundleFacts, Checker, DeprecationFacts, Object, PackageFacts, Rule};
use crate::decode::{List, decode, decode_object};
use crate::meta::Meta;
use crate::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};

use olm_text::names::label_faults;
use olm_version::quoted;

use super::{BLOB_BYTES, ChannelFacts, ITEM_BYTES, NAME_BYTES, csv_metadata, shared};

/// The fields that a blob of any schema may have.
#[derive(Default)]
struct Envelope {
    package: Option<String>,
    properties: List<Property>,
}
decode_object!(Envelope { "package" => package, "properties" => properties });

impl Checker {
    pub(super) fn add_blob(&mut self, meta: &Meta, place: BlobLocation) {
        let blob = match Blob::from_json(&meta.schema, shown(meta)) {
            Ok(blob) => blob,
            Err(error) => {
                let rule = if matches!(error, BlobError::NoSchema(_)) {
                    Rule::Schema
                } else {
                    Rule::Shape
                };
                self.find(rule, Object::of(meta), Some(place.clone()), error.to_string());
                self.add_unreadable(meta, place);
                return;
            }
        };
        if let Err(error) = blob.check_contents() {
            self.find(
                Rule::Shape,
                Object::of(meta),
                Some(place.clone()),
                error.to_string(),
            );
        }
        match blob {
            Blob::Package(package) => self.add_package(package, place),
            Blob::Channel(mut channel) => {
                channel.entries.shrink_to_fit();
                let object = Object::channel(&channel.package, &channel.name);
                let properties = std::mem::take(&mut channel.properties);
                self.check_properties(&properties, &object, &place);
                if self.has_room(memory_of_channel(&channel)) {
                    self.channels.push(ChannelFacts { channel, place });
                }
            }
            Blob::Bundle(bundle) => self.add_bundle(&bundle, place),
            Blob::Deprecations(deprecations) => {
                if self.has_room(memory_of_deprecations(&deprecations)) {
                    self.deprecations.push(DeprecationFacts { deprecations, place });
                }
            }
            Blob::Other => self.add_other(meta, &place),
        }
    }

    /// Registers an unreadable blob by its known fields, so that no other blob is reported because of it.
    fn add_unreadable(&mut self, meta: &Meta, place: BlobLocation) {
        if !self.has_room(BLOB_BYTES + 2 * (meta.name.len() + meta.package.len())) {
            return;
        }
        match meta.schema.as_str() {
            SCHEMA_PACKAGE => {
                self.unreadable_channels.insert(meta.name.clone());
                self.packages.entry(meta.name.clone()).or_insert(PackageFacts {
                    default_channel: String::new(),
                    place,
                });
            }
            SCHEMA_CHANNEL => {
                self.unreadable_channels.insert(meta.package.clone());
            }
            SCHEMA_BUNDLE => {
                let package = shared(&mut self.package, &meta.package);
                self.bundles.push(BundleFacts {
                    package,
                    name: meta.name.as_str().into(),
                    version: None,
                    place,
                });
            }
            _ => {}
        }
    }

    fn add_other(&mut self, meta: &Meta, place: &BlobLocation) {
        let object = Object::package(&meta.package);
        match decode::<Envelope>(meta.json()) {
            Ok(envelope) => {
                if envelope.package.as_deref() == Some("") {
                    let message = "package must not be empty when it is given";
                    self.find(Rule::BlobPackage, object.clone(), Some(place.clone()), message);
                }
                self.check_properties(&envelope.properties, &object, place);
            }
            Err(error) => self.find(Rule::Properties, object, Some(place.clone()), error.to_string()),
        }
    }

    fn add_package(&mut self, package: Package, place: BlobLocation) {
        if package.name.is_empty() {
            let message = "config contains package with no name";
            self.find(Rule::PackageName, Object::default(), Some(place), message);
            return;
        }
        let object = Object::package(&package.name);
        let faults = label_faults(&package.name);
        if !faults.is_empty() {
            let message = format!(
                "invalid package name {}: [{}]",
                quoted(&package.name),
                faults.join(" ")
            );
            self.find(Rule::PackageLabel, object.clone(), Some(place.clone()), message);
        }
        if package.default_channel.is_empty() {
            self.find(
                Rule::DefaultChannel,
                object.clone(),
                Some(place.clone()),
                "default channel must be set",
            );
        }
        if let Some(fault) = package.icon.as_ref().and_then(Icon::fault) {
            self.find(Rule::PackageIcon, object.clone(), Some(place.clone()), fault);
        }
        self.check_properties(&package.properties, &object, &place);
        if self.packages.contains_key(&package.name) {
            let message = format!("duplicate package {}", quoted(&package.name));
            self.find(Rule::PackageDuplicate, object, Some(place), message);
            return;
        }
        if !self.has_room(BLOB_BYTES + package.name.len() + package.default_channel.len()) {
            return;
        }
        self.packages.insert(
            package.name,
            PackageFacts {
                default_channel: package.default_channel,
                place,
            },
        );
    }

    /// The rules for the properties of any blob.
    pub(super) fn check_properties(
        &mut self,
        properties: &[Property],
        object: &Object,
        place: &BlobLocation,
    ) {
        for (index, property) in properties.iter().enumerate() {
            if property.kind.is_empty() {
                let message = format!("property[{index}] must have a type");
                self.find(Rule::PropertyType, object.clone(), Some(place.clone()), message);
            }
            if &*property.value == "null" {
                let message = format!(
                    "property[{index}] of type {} must not be null",
                    quoted(&property.kind)
                );
                self.find(Rule::PropertyNull, object.clone(), Some(place.clone()), message);
            }
            match fault(property) {
                Err(PropertyFault::Shape(problem)) => {
                    let bundle = if object.bundle.is_empty() {
                        String::new()
                    } else {
                        format!("parse properties for bundle {}: ", quoted(&object.bundle))
                    };
                    let message = format!(
                        "{bundle}parse property[{index}] of type {}: {problem}",
                        quoted(&property.kind)
                    );
                    self.find(Rule::PropertyValue, object.clone(), Some(place.clone()), message);
                }
                Err(PropertyFault::Rule(rule, problem)) => {
                    let message = format!("property[{index}] of type {} {problem}", quoted(&property.kind));
                    self.find(rule, object.clone(), Some(place.clone()), message);
                }
                Ok(()) => {}
            }
            let is_constraint = property.kind == property::TYPE_CONSTRAINT;
            let check = self.constraints.filter(|_| is_constraint);
            if let Some(problem) = check.and_then(|check| check(property)) {
                let message = format!("property[{index}] of type {}: {problem}", quoted(&property.kind));
                self.find(Rule::Constraint, object.clone(), Some(place.clone()), message);
            }
        }
    }
}

/// The approximate memory of the facts of a channel, in bytes.
fn memory_of_channel(channel: &Channel) -> usize {
    let entries = channel.entries.iter().map(|entry| {
        let edges = [&entry.replaces, &entry.skip_range].map(|edge| edge.as_deref().map_or(0, str::len));
        let skips = entry.skips.iter().map(|name| NAME_BYTES + name.len());
        ITEM_BYTES + entry.name.len() + edges.iter().sum::<usize>() + skips.sum::<usize>()
    });
    BLOB_BYTES + channel.package.len() + channel.name.len() + entries.sum::<usize>()
}

/// The approximate memory of deprecations, in bytes.
fn memory_of_deprecations(deprecations: &Deprecations) -> usize {
    let entries = deprecations.entries.iter().map(|entry| {
        let reference = &entry.reference;
        ITEM_BYTES + reference.schema.len() + reference.name.len() + entry.message.len()
    });
    BLOB_BYTES + deprecations.package.len() + entries.sum::<usize>()
}

/// The JSON of the blob, shortened if it is only displayed.
fn shown(meta: &Meta) -> &str {
    if !meta.schema.is_empty() {
        return meta.json();
    }
    let end = meta
        .json()
        .char_indices()
        .nth(200)
        .map_or(meta.json().len(), |(at, _)| at);
    meta.json().get(..end).unwrap_or_default()
}

/// The fault of the value of a property.
enum PropertyFault {
    Shape(String),
    Rule(Rule, String),
}

impl From<crate::ShapeError> for PropertyFault {
    fn from(error: crate::ShapeError) -> Self {
        Self::Shape(error.to_string())
    }
}

/// The fault of the value of a property of a known type.
fn fault(property: &Property) -> Result<(), PropertyFault> {
    property.well_formed()?;
    match property.kind.as_str() {
        property::TYPE_PACKAGE => drop(property.package()?),
        property::TYPE_PACKAGE_REQUIRED => {
            let required = property.package_required()?;
            if required.package_name.is_empty() {
                return Err(PropertyFault::Rule(
                    Rule::PackageRequired,
                    "must name a package".to_owned(),
                ));
            }
            olm_version::blang::Range::parse(&required.version_range).map_err(|error| {
                let range = quoted(&required.version_range);
                PropertyFault::Rule(
                    Rule::PackageRequired,
                    format!("has an invalid version range {range}: {error}"),
                )
            })?;
        }
        property::TYPE_CSV_METADATA => {
            if let Some(problem) = csv_metadata::fault(&property.value) {
                return Err(PropertyFault::Rule(Rule::PropertyValue, problem));
            }
        }
        property::TYPE_GVK => check_gvk(property, Rule::Gvk)?,
        property::TYPE_GVK_REQUIRED => check_gvk(property, Rule::GvkRequired)?,
        _ => {}
    }
    Ok(())
}

fn check_gvk(property: &Property, rule: Rule) -> Result<(), PropertyFault> {
    let gvk = property.gvk()?;
    let parts = [
        ("group", &gvk.group, is_group(&gvk.group)),
        ("version", &gvk.version, is_version(&gvk.version)),
        ("kind", &gvk.kind, is_version(&gvk.kind.to_ascii_lowercase())),
    ];
    match parts.into_iter().find(|(_, _, valid)| !valid) {
        Some((part, text, _)) if text.is_empty() => {
            Err(PropertyFault::Rule(rule, format!("must have a {part}")))
        }
        Some((part, text, _)) => Err(PropertyFault::Rule(
            rule,
            format!("has an invalid {part} {}", quoted(text)),
        )),
        None => Ok(()),
    }
}
