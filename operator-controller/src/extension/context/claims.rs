//! Claims of extensions to a package before they have a revision. A blocked extension claims none, so several
//! extensions may begin to install the same package at once. The first to begin gets it.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::extension::failure::{Severity, StageFailure};

/// The stages of extensions. One that is not listed claims its package and has not begun to install it.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    stages: Mutex<HashMap<String, Stage>>,
}

/// The stage of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// The last run needs a user to act first.
    Blocked,
    /// A run began to install its bundle. Its revision may not be visible yet.
    Installing,
}

impl Claims {
    /// The stage of an extension.
    pub(crate) fn stage(&self, extension: &str) -> Option<Stage> {
        self.stages.lock().get(extension).copied()
    }

    /// Records that a run begins to install a bundle.
    ///
    /// # Errors
    /// One of these rivals began before.
    pub(crate) fn install<'r>(
        &self,
        extension: &str,
        mut rivals: impl Iterator<Item = &'r str>,
    ) -> Result<(), &'r str> {
        let mut stages = self.stages.lock();
        if let Some(rival) = rivals.find(|rival| stages.get(*rival) == Some(&Stage::Installing)) {
            return Err(rival);
        }
        stages.insert(extension.to_owned(), Stage::Installing);
        Ok(())
    }

    /// Records the end of a run. After a transient error the claim stays, because the failed write may have succeeded.
    pub(crate) fn conclude(&self, extension: &str, failure: Option<&StageFailure>) {
        let mut stages = self.stages.lock();
        match failure.map(|failure| failure.severity) {
            Some(Severity::Terminal | Severity::Waiting) => {
                stages.insert(extension.to_owned(), Stage::Blocked);
            }
            Some(Severity::Transient | Severity::Unfinished | Severity::Pulling) => {}
            None => {
                if stages.get(extension) == Some(&Stage::Blocked) {
                    stages.remove(extension);
                }
            }
        }
    }

    /// Forgets an extension that is gone.
    pub(crate) fn forget(&self, extension: &str) {
        self.stages.lock().remove(extension);
    }
}

#[cfg(test)]
mod tests {
    use olm_api::conditions::reason;
    use olm_api::updates::held_back;

    use super::*;

    fn failure(severity: Severity) -> StageFailure {
        StageFailure {
            severity,
            reason: reason::BLOCKED,
            message: String::new(),
            help: None,
            held_back_by: held_back::OTHER,
        }
    }

    #[test]
    fn of_several_that_begin_at_once_the_first_installs_until_it_is_blocked() {
        let claims = Claims::default();
        let rivals = |name: &'static str| ["a", "b", "c"].into_iter().filter(move |rival| *rival != name);
        for name in ["a", "b", "c"] {
            claims.conclude(name, Some(&failure(Severity::Waiting)));
        }
        assert_eq!(claims.install("b", rivals("b")), Ok(()));
        assert_eq!(claims.install("a", rivals("a")), Err("b"));
        // The next run of the same extension continues.
        claims.conclude("b", Some(&failure(Severity::Transient)));
        assert_eq!(claims.install("b", rivals("b")), Ok(()));
        claims.conclude("b", None);
        assert_eq!(claims.install("c", rivals("c")), Err("b"));
        claims.conclude("b", Some(&failure(Severity::Terminal)));
        assert_eq!(claims.install("c", rivals("c")), Ok(()));
        assert_eq!(claims.install("b", rivals("b")), Err("c"));
        claims.forget("c");
        assert_eq!(claims.install("a", rivals("a")), Ok(()));
    }

    #[test]
    fn an_extension_is_blocked_from_the_run_that_says_so_to_one_that_succeeds() {
        let claims = Claims::default();
        for (severity, expected) in [
            (Some(Severity::Transient), None),
            (Some(Severity::Pulling), None),
            (Some(Severity::Waiting), Some(Stage::Blocked)),
            (Some(Severity::Transient), Some(Stage::Blocked)),
            (None, None),
            (Some(Severity::Terminal), Some(Stage::Blocked)),
        ] {
            claims.conclude("a", severity.map(failure).as_ref());
            assert_eq!(claims.stage("a"), expected, "{severity:?}");
        }
    }
}
