//! The refusal of a request that gets no bundle.

use std::fmt;

use olm_api::text::escape;
use olm_constraint::SimpleRequirement;
use olm_fbc::similar::distance;
use olm_version::masterminds::ConstraintError;
use olm_version::{VersionReleaseError, quoted};

use crate::package::VersionFault;
use crate::selector::SelectorError;

/// The longest text of a refusal, in bytes. A condition can hold eight times as much.
pub const MAX_LENGTH: usize = 4096;
/// The longest line of an explanation, in characters.
pub const MAX_LINE: usize = 400;

/// The reason why the recorded version of the installed bundle cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstalledError {
    /// The version, which may contain the release.
    #[error("failed to get version and release of installed bundle: {0}")]
    Folded(VersionReleaseError),
    /// The version or the release, which are recorded separately.
    #[error("failed to parse installed bundle version and release: {0}")]
    Apart(VersionReleaseError),
}

/// The reason of a refusal. Its text is the first line, which clients match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The request's catalog selector is invalid. Only the user can change that.
    #[error("desired catalog selector is invalid: {0}")]
    Selector(SelectorError),
    /// The request's version range is invalid. Only the user can change that.
    #[error("desired version range {} is invalid: {fault}", quoted(.range))]
    Range {
        /// The range.
        range: String,
        /// The fault of the range.
        fault: ConstraintError,
    },
    /// A selected catalog does not answer.
    #[error("error walking catalogs: error getting package {} from catalog {}: {fault}", quoted(.package), quoted(.catalog))]
    Catalog {
        /// The package.
        package: String,
        /// The catalog; the first by name if there are several.
        catalog: String,
        /// The reason why the catalog does not answer.
        fault: String,
    },
    /// The recorded version of the installed bundle cannot be read.
    #[error("error walking catalogs: error finding upgrade edges: {0}")]
    Installed(InstalledError),
    /// No bundle passes the filters, or several catalogs tie.
    #[error("{0}")]
    NoBundle(NoBundle),
    /// The only bundle has no readable version.
    #[error("error getting resolved bundle version for bundle {}: {fault}", quoted(.bundle))]
    Version {
        /// The bundle.
        bundle: String,
        /// The fault of the version.
        fault: VersionFault,
    },
    /// All bundles that fit the request are blocked: the cluster lacks their requirements, or they would break others.
    #[error("bundle {} cannot be installed: {why}", quoted(.bundle))]
    Blocked {
        /// The bundle that ranks highest.
        bundle: String,
        /// The catalog it comes from.
        catalog: String,
        /// The reason why it cannot be installed.
        why: String,
    },
}

/// No bundle, or too many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoBundle {
    /// The recorded version of the installed bundle.
    pub installed: Option<String>,
    /// The package.
    pub package: String,
    /// The requested range.
    pub range: Option<String>,
    /// The requested channels.
    pub channels: Vec<String>,
    /// The catalogs with the highest priority, by name; empty if no catalog has a bundle.
    pub contenders: Vec<String>,
}

impl fmt::Display for NoBundle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(installed) = &self.installed {
            write!(
                formatter,
                "error upgrading from currently installed version {}: ",
                quoted(installed)
            )?;
        }
        let found = if self.contenders.is_empty() {
            "no bundles found"
        } else {
            "found bundles"
        };
        write!(formatter, "{found} for package {}", quoted(&self.package))?;
        if let Some(range) = &self.range {
            write!(formatter, " matching version {}", quoted(range))?;
        }
        if !self.channels.is_empty() {
            write!(formatter, " in channels [{}]", self.channels.join(" "))?;
        }
        if !self.contenders.is_empty() {
            write!(
                formatter,
                " in multiple catalogs with the same priority [{}]",
                self.contenders.join(" ")
            )?;
        }
        Ok(())
    }
}

/// A hint, one sentence.
#[derive(Clone, Debug)]
struct Hint {
    text: String,
    /// The hint of the command line, if it differs.
    on_command_line: Option<String>,
}

/// The reason why a request gets no bundle, and possible changes for the user.
///
/// The text has the [`Reason`], then a line for each catalog, then a line for each hint.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The reason, boxed because most results have none.
    reason: Box<Reason>,
    findings: Vec<String>,
    hints: Vec<Hint>,
    /// The index of the hint that no catalog has the package, if there is one.
    unknown: Option<usize>,
    wanted: Vec<SimpleRequirement>,
}

impl Refusal {
    pub(crate) fn new(reason: Reason) -> Self {
        Self {
            reason: Box::new(reason),
            findings: Vec::new(),
            hints: Vec::new(),
            unknown: None,
            wanted: Vec::new(),
        }
    }

    pub(crate) fn wants(&mut self, wanted: &[SimpleRequirement]) {
        self.wanted.extend_from_slice(wanted);
    }

    /// The packages or APIs that would solve it.
    pub fn wanted(&self) -> &[SimpleRequirement] {
        &self.wanted
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint(hint);
        self
    }

    /// Like [`Refusal::hint`], with another text for the command line.
    pub(crate) fn hint_or(&mut self, hint: impl Into<String>, on_command_line: impl Into<String>) {
        self.hints.push(Hint {
            text: hint.into(),
            on_command_line: Some(on_command_line.into()),
        });
    }

    /// [`Refusal::hint_or`] for a package that no catalog has. [`Refusal::suggest`] may replace it.
    pub(crate) fn unknown_package(&mut self, hint: &str, on_command_line: &str) {
        self.unknown = Some(self.hints.len());
        self.hint_or(hint, on_command_line);
    }

    /// Whether catalogs answered and none has the package. Then its name may be misspelled.
    pub fn is_of_unknown_package(&self) -> bool {
        self.unknown.is_some()
    }

    /// Suggests the most similar of these (catalog, package), if no catalog has the package and none is installed.
    pub fn suggest<'n>(&mut self, names: impl IntoIterator<Item = (&'n str, &'n str)>) {
        let Reason::NoBundle(NoBundle {
            package,
            installed: None,
            ..
        }) = &*self.reason
        else {
            return;
        };
        let Some(hint) = self.unknown.and_then(|at| self.hints.get_mut(at)) else {
            return;
        };
        let alike = names.into_iter().filter(|(_, name)| *name != package.as_str());
        let meant = alike.filter_map(|(catalog, name)| Some((distance(package, name)?, name, catalog)));
        if let Some((_, name, catalog)) = meant.min() {
            let text = format!("did you mean {} of catalog {}?", quoted(name), quoted(catalog));
            *hint = Hint {
                on_command_line: Some(text.clone()),
                text: format!(
                    "{text} spec.source.catalog.packageName cannot be changed: delete this ClusterExtension, which has nothing installed, and create it again"
                ),
            };
        }
    }

    /// [`Refusal::hint_or`] for a chain of calls.
    pub(crate) fn with_hint_or(mut self, hint: &str, on_command_line: &str) -> Self {
        self.hint_or(hint, on_command_line);
        self
    }

    /// The refusal with the hints of the command line `olm resolve`.
    #[must_use]
    pub fn on_command_line(mut self) -> Self {
        for hint in &mut self.hints {
            if let Some(text) = hint.on_command_line.take() {
                hint.text = text;
            }
        }
        self
    }

    pub(crate) fn add(&mut self, finding: impl Into<String>) {
        self.findings.push(finding.into());
    }

    /// Adds a hint, one sentence.
    pub fn hint(&mut self, hint: impl Into<String>) {
        self.hints.push(Hint {
            text: hint.into(),
            on_command_line: None,
        });
    }

    /// Removes all hints, if the user need not act.
    pub fn clear_hints(&mut self) {
        self.hints.clear();
        self.unknown = None;
    }

    /// The reason.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The text after that of the reason.
    pub fn explanation(&self) -> Option<String> {
        let text = self.explained(self.reason_line().len());
        let lines = text.strip_prefix('\n')?;
        Some(lines.to_owned())
    }

    /// The lines after a reason of `used` bytes, each with a line break before it.
    fn explained(&self, used: usize) -> String {
        const MORE: &str = "\n(more left out)";
        let mut text = String::new();
        if used >= MAX_LENGTH {
            return text;
        }
        let limit = MAX_LENGTH - used;
        let findings = self
            .findings
            .iter()
            .map(|finding| format!("\n- {}", one_line(finding)));
        let hints: Vec<_> = self
            .hints()
            .map(|hint| format!("\nhint: {}", one_line(hint)))
            .collect();
        let room = limit.saturating_sub(hints.iter().map(String::len).sum::<usize>() + MORE.len());
        for finding in findings {
            if text.len() + finding.len() > room {
                text.push_str(MORE);
                break;
            }
            text.push_str(&finding);
        }
        for hint in hints {
            if text.len() + hint.len() <= limit {
                text.push_str(&hint);
            }
        }
        text
    }

    /// The reason, on one line.
    fn reason_line(&self) -> String {
        let mut text = escape(&self.reason.to_string()).into_owned();
        text.truncate(text.floor_char_boundary(MAX_LENGTH));
        text
    }

    /// The findings in each catalog, one sentence each.
    pub fn findings(&self) -> &[String] {
        &self.findings
    }

    /// The hints, one sentence each.
    pub fn hints(&self) -> impl Iterator<Item = &str> {
        self.hints.iter().map(|hint| hint.text.as_str())
    }
}

impl std::error::Error for Refusal {}

fn one_line(text: &str) -> String {
    let mut line: String = escape(text).chars().take(MAX_LINE + 1).collect();
    if line.chars().count() > MAX_LINE {
        line.pop();
        line.push('…');
    }
    line
}

impl fmt::Display for Refusal {
    /// Writes at most [`MAX_LENGTH`] bytes. The first line is only shortened if it is longer by itself.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason_line();
        formatter.write_str(&reason)?;
        formatter.write_str(&self.explained(reason.len()))
    }
}
