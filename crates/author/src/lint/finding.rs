//! One finding about a bundle.

use std::borrow::Cow;

use olm_fbc::check::Severity;

/// The check of a bundle's layout.
pub(super) const FORMAT: &str = "format";
/// The check of whether clusters can install a bundle.
pub(super) const INSTALL: &str = "install";
/// The check whether catalogs accept a bundle.
pub(super) const PUBLISH: &str = "publish";

/// A fault of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The faulty file.
    pub file: Option<String>,
    /// The line at which the object begins, counted from 1.
    pub line: Option<usize>,
    /// The severity.
    pub severity: Severity,
    /// The check that found it: `format`, `install`, `publish` or the name of a [`RuleSet`](super::RuleSet).
    pub check: &'static str,
    /// The fault.
    pub message: String,
    /// The remedy.
    pub hint: Option<Cow<'static, str>>,
    /// The file and the fault without further text: two findings with the same value are about the same fault.
    pub(super) fault: Option<(String, String)>,
}

impl Finding {
    pub(super) fn new(severity: Severity, check: &'static str, message: impl Into<String>) -> Self {
        Self {
            file: None,
            line: None,
            severity,
            check,
            message: message.into(),
            hint: None,
            fault: None,
        }
    }

    pub(super) fn of_fault(mut self, file: &str, fault: impl Into<String>) -> Self {
        self.fault = Some((file.to_owned(), fault.into()));
        self
    }

    pub(super) fn in_file(mut self, file: Option<&str>) -> Self {
        self.file = file.map(str::to_owned);
        self
    }
}
