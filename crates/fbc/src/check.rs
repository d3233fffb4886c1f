//! The rules of a whole catalog.
//!
//! A [`Checker`] takes the blobs of a catalog one at a time and keeps only the facts for rules between blobs: names,
//! edges and versions, no manifests. It reports all faults, each with its object and place.

mod blob;
mod bundle;
mod catalog;
mod csv_metadata;
mod deprecation;
pub mod image_reference;
pub mod label;
mod rule;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::blob::channel::Channel;
use crate::blob::deprecation::Deprecations;
use crate::blob::property::Property;
use crate::meta::{Meta, MetaError};
use crate::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};

pub use rule::{Rule, Severity, Stage};

/// The maximum number of kept findings; more are only counted.
pub const MAX_FINDINGS: usize = 10_000;
/// The most bytes of the texts of all findings that are kept.
const MAX_FINDINGS_BYTES: usize = 4 << 20;
/// The most bytes of a message, and of a name in a finding; longer ones are cut.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// One fault of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogFinding {
    /// The rule that is broken.
    pub rule: Rule,
    /// The object with the fault.
    pub object: Object,
    /// The place in a file, if any.
    pub place: Option<BlobLocation>,
    /// The fault, without the object and the place.
    pub message: String,
}

/// The package, and the channel or bundle in it, that a finding is about. Empty names are not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// The package.
    pub package: String,
    /// The channel.
    pub channel: String,
    /// The bundle.
    pub bundle: String,
}

impl Object {
    /// The object of the blob, by its own names.
    pub fn of(meta: &Meta) -> Self {
        match meta.schema.as_str() {
            SCHEMA_PACKAGE => Self::package(&meta.name),
            SCHEMA_CHANNEL => Self::channel(&meta.package, &meta.name),
            SCHEMA_BUNDLE => Self::bundle(&meta.package, &meta.name),
            _ => Self::package(&meta.package),
        }
    }

    fn package(package: &str) -> Self {
        Self {
            package: package.to_owned(),
            ..Self::default()
        }
    }

    fn channel(package: &str, channel: &str) -> Self {
        Self {
            channel: channel.to_owned(),
            ..Self::package(package)
        }
    }

    fn bundle(package: &str, bundle: &str) -> Self {
        Self {
            bundle: bundle.to_owned(),
            ..Self::package(package)
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("package", &self.package),
            ("channel", &self.channel),
            ("bundle", &self.bundle),
        ];
        let mut separator = "";
        for (kind, name) in parts.into_iter().filter(|(_, name)| !name.is_empty()) {
            write!(formatter, "{separator}{kind} {name}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// The location of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobLocation {
    /// The file, relative to the root of the catalog.
    pub file: Arc<str>,
    /// The line at which the blob begins, counted from 1.
    pub line: usize,
}

impl fmt::Display for BlobLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file, self.line)
    }
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogReport {
    /// The findings in the order of the catalog; those without a place come last.
    pub findings: Vec<CatalogFinding>,
    /// The number of further findings beyond [`MAX_FINDINGS`] or the limit of their texts.
    pub omitted: usize,
    bytes: usize,
}

impl CatalogReport {
    /// Whether the catalog is valid: warnings do not count.
    pub fn is_valid(&self) -> bool {
        self.omitted == 0 && self.errors().next().is_none()
    }

    /// Puts the findings in the order of the catalog. The sort is stable: within a blob they stay in the order of the
    /// rules.
    pub fn sort(&mut self) {
        self.findings
            .sort_by(|left, right| match (&left.place, &right.place) {
                (Some(left), Some(right)) => {
                    crate::walk_order(&left.file, &right.file).then(left.line.cmp(&right.line))
                }
                (left, right) => left.is_none().cmp(&right.is_none()),
            });
    }

    /// Adds a finding, or only counts it if there are [`MAX_FINDINGS`] or their texts reach their limit.
    pub fn add(&mut self, mut finding: CatalogFinding) {
        let Object {
            package,
            channel,
            bundle,
        } = &mut finding.object;
        let texts = [&mut finding.message, package, channel, bundle];
        let bytes: usize = texts.map(shorten).iter().sum();
        if self.findings.len() < MAX_FINDINGS && self.bytes + bytes <= MAX_FINDINGS_BYTES {
            self.bytes += bytes;
            self.findings.push(finding);
        } else {
            self.omitted += 1;
        }
    }

    /// The findings that make the catalog invalid.
    pub fn errors(&self) -> impl Iterator<Item = &CatalogFinding> {
        self.findings
            .iter()
            .filter(|finding| finding.rule.severity() == Severity::Error)
    }
}

/// The fault of the value of an `olm.constraint`; `None` if it is valid.
pub type ConstraintCheck = fn(&Property) -> Option<String>;

/// A check in progress.
#[derive(Debug, Default)]
pub struct Checker {
    report: CatalogReport,
    file: Option<Arc<str>>,
    /// The package of the last bundle: most bundles of a package are adjacent.
    package: Option<Arc<str>>,
    packages: HashMap<String, PackageFacts>,
    /// Packages of which not all channels are known.
    unreadable_channels: HashSet<String>,
    channels: Vec<ChannelFacts>,
    bundles: Vec<BundleFacts>,
    deprecations: Vec<DeprecationFacts>,
    constraints: Option<ConstraintCheck>,
    /// The approximate memory of the kept facts, in bytes.
    held: usize,
    limit: Option<usize>,
}

/// The memory of the kept facts of a blob without its names, in bytes.
const BLOB_BYTES: usize = 192;
/// The memory of an entry of a channel or of deprecations without its names.
const ITEM_BYTES: usize = 144;
/// The memory of a name in a list without its text.
const NAME_BYTES: usize = 56;

#[derive(Debug)]
struct PackageFacts {
    default_channel: String,
    place: BlobLocation,
}

#[derive(Debug)]
struct ChannelFacts {
    channel: Channel,
    place: BlobLocation,
}

/// There are many of them, so that each byte counts.
#[derive(Debug)]
struct BundleFacts {
    package: Arc<str>,
    name: Box<str>,
    /// Version and release as one text, when they can be read.
    version: Option<Box<str>>,
    place: BlobLocation,
}

#[derive(Debug)]
struct DeprecationFacts {
    deprecations: Deprecations,
    place: BlobLocation,
}

impl Checker {
    /// A check without blobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also checks the constraints of bundles with this function. This crate does not depend on the grammar of
    /// constraints.
    #[must_use]
    pub fn with_constraints(mut self, check: ConstraintCheck) -> Self {
        self.constraints = Some(check);
        self
    }

    /// Limits the memory of the facts for rules between blobs to some `bytes`. A larger catalog gets a finding, and
    /// these rules are not applied to it.
    #[must_use]
    pub const fn within(mut self, bytes: usize) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Adds the next blob, which is in `file`.
    pub fn add(&mut self, file: &str, meta: &Meta) {
        let place = self.place(file, meta.position);
        self.add_blob(meta, place);
    }

    /// Takes note of a file that cannot be read to its end.
    pub fn add_failure(&mut self, file: &str, error: &MetaError) {
        let place = self.place(file, error.line);
        self.find(Rule::Syntax, Object::default(), Some(place), error.without_line());
    }

    /// Applies the rules between blobs and returns all findings.
    pub fn finish(mut self) -> CatalogReport {
        let channels = std::mem::take(&mut self.channels);
        let bundles = std::mem::take(&mut self.bundles);
        if self.is_full() {
            let mebibytes = self.limit.unwrap_or_default() >> 20;
            let message = format!(
                "the names and edges of the catalog take more than {mebibytes} MiB, and are not compared with each other"
            );
            self.find(Rule::CatalogSize, Object::default(), None, message);
        } else {
            self.check_catalog(&channels, &bundles);
            self.check_deprecations(&channels, &bundles);
        }
        self.report.sort();
        self.report
    }

    /// Whether there is memory for further facts of this size. If not, no facts are kept from then on.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.held = self.held.saturating_add(bytes);
        let full = self.is_full();
        if full {
            self.packages = HashMap::new();
            self.unreadable_channels = HashSet::new();
            self.channels = Vec::new();
            self.bundles = Vec::new();
            self.deprecations = Vec::new();
        }
        !full
    }

    fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.held > limit)
    }

    fn place(&mut self, file: &str, line: usize) -> BlobLocation {
        let file = shared(&mut self.file, file);
        BlobLocation { file, line }
    }

    fn find(&mut self, rule: Rule, object: Object, place: Option<BlobLocation>, message: impl Into<String>) {
        self.report.add(CatalogFinding {
            rule,
            object,
            place,
            message: message.into(),
        });
    }
}

/// Truncates a text that is too long, and returns its length in bytes.
fn shorten(text: &mut String) -> usize {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
        text.shrink_to_fit();
    }
    text.len()
}

/// The text, shared with the last one if it is equal.
fn shared(last: &mut Option<Arc<str>>, text: &str) -> Arc<str> {
    match last {
        Some(last) if **last == *text => Arc::clone(last),
        _ => Arc::clone(last.insert(Arc::from(text))),
    }
}
