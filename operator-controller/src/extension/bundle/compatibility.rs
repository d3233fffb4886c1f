//! Compatibility of the installed bundle with the cluster: requirements in its files that the cluster does not meet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_resolve::Platform;
use olm_resolve::blocker::listed;

use crate::extension::context::Context;
use crate::extension::context::cluster_info::FRESH;
use crate::extension::resolve::inventory;

/// The time for which it is cached that a bundle has no unmet requirement.
const CONTENT: Duration = Duration::from_hours(1);

/// The requirements of the bundle, and the last result.
#[derive(Debug, Clone, Default)]
pub(crate) struct CompatibilityCache {
    platform: Option<Arc<Platform>>,
    findings: Option<Findings>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Findings {
    asked: Instant,
    of: Arc<Platform>,
    warning: Option<String>,
}

impl Findings {
    /// Whether the result is still valid. A missing requirement may appear soon.
    fn is_valid(&self, platform: &Arc<Platform>, age: Duration) -> bool {
        let fresh = if self.warning.is_some() { FRESH } else { CONTENT };
        Arc::ptr_eq(&self.of, platform) && age < fresh
    }
}

impl CompatibilityCache {
    /// Replaces the requirements.
    pub(crate) fn expect(&mut self, platform: Option<Platform>) {
        self.platform = platform.map(Arc::new);
    }

    /// The unmet requirements. While nothing changes, the cluster is queried rarely.
    pub(crate) async fn warnings(&mut self, context: &Context) -> Option<String> {
        let platform = self.platform.as_ref()?;
        if let Some(known) = &self.findings
            && known.is_valid(platform, known.asked.elapsed())
        {
            return known.warning.clone();
        }
        let found = inventory::of_platform(context, platform).await.ok()?;
        let found = platform.blockers(found.facts().platform, found.facts().served);
        let warning = (!found.is_empty())
            .then(|| format!("The bundle may not work on this cluster: {}", listed(&found)));
        self.findings = Some(Findings {
            asked: Instant::now(),
            of: Arc::clone(platform),
            warning: warning.clone(),
        });
        warning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_lacks_nothing_is_seldom_asked_about_again() {
        let [of, other] = [(); 2].map(|()| Arc::new(Platform::default()));
        for (warning, age, expected) in [
            (None, FRESH, true),
            (None, CONTENT, false),
            (Some("no such API"), FRESH, false),
            (Some("no such API"), FRESH / 2, true),
        ] {
            let findings = Findings {
                asked: Instant::now(),
                of: Arc::clone(&of),
                warning: warning.map(str::to_owned),
            };
            assert_eq!(findings.is_valid(&of, age), expected, "{warning:?} {age:?}");
            assert!(!findings.is_valid(&other, Duration::ZERO));
        }
    }
}
