//! The inputs of the newest revision. While they do not change, nothing is fetched, rendered or planned.

use olm_api::ClusterObjectSet;
use olm_api::conditions::{self, PROGRESSING};
use olm_bundle::CertificateProvider;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::extension::resolve::Resolved;
use crate::extension::revisions::is_blocked;

/// All inputs of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    /// A digest, because the inputs of every extension are kept and a bundle in a catalog can be long.
    digest: [u8; 32],
    /// The failure that the newest revision reports.
    failure: Option<String>,
}

impl Inputs {
    /// The inputs of the plan for a bundle: the extension, its newest revision, the pinned image, the certificate
    /// provider, and how many of the extension's OperatorConditions were deleted.
    pub(crate) fn of(
        resolved: &Resolved<'_>,
        pinned: &str,
        provider: CertificateProvider,
        deleted: u64,
    ) -> Self {
        let (extension, target) = (&resolved.observed.extension, &resolved.target);
        let latest = resolved.observed.revisions.latest();
        let bundle = &target.bundle;
        let all = json!({
            "generation": extension.metadata.generation,
            "annotations": extension.metadata.annotations,
            "account": resolved.settings.account.to_string(),
            "bundle": [bundle.package, bundle.image],
            "catalog": target.catalog,
            "version": bundle.metadata,
            "pinned": pinned,
            "provider": provider.to_string(),
            "deleted": deleted,
            "latest": latest.map(identity),
        });
        let blocked = latest.filter(|latest| is_blocked(latest));
        let failure = blocked.and_then(|set| conditions::find(set.conditions(), PROGRESSING));
        Self {
            digest: Sha256::digest(all.to_string()).into(),
            failure: failure.map(|progressing| progressing.message.clone()),
        }
    }
}

/// The part of a revision on which a plan depends: everything except its status.
fn identity(set: &ClusterObjectSet) -> Value {
    let metadata = &set.metadata;
    json!({
        "uid": metadata.uid,
        "generation": metadata.generation,
        "deleting": set.is_deleting(),
        "labels": metadata.labels,
        "annotations": metadata.annotations,
        "owners": metadata.owner_references,
    })
}

/// The inputs for which the newest revision is the wanted one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settled(pub(super) Option<Inputs>);

impl Settled {
    /// Whether the newest revision is still the wanted one. If known problems were examined, the content of the
    /// revision exists, and the revision reports the result.
    pub(crate) fn holds(&mut self, inputs: &Inputs) -> bool {
        let Some(known) = &mut self.0 else {
            return false;
        };
        let holds =
            known.digest == inputs.digest && (inputs.failure.is_none() || known.failure == inputs.failure);
        if holds && inputs.failure.is_none() {
            known.failure = None;
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_inputs_are_settled_until_a_new_failure_comes() {
        let inputs = |digest: u8, failure: Option<&str>| Inputs {
            digest: [digest; 32],
            failure: failure.map(str::to_owned),
        };
        assert!(!Settled::default().holds(&inputs(1, None)));
        let mut settled = Settled(Some(inputs(1, Some("a"))));
        for (given, expected) in [
            (inputs(2, None), false),
            (inputs(1, Some("a")), true),
            (inputs(1, Some("b")), false),
            (inputs(1, None), true),
            // The failure ended in between.
            (inputs(1, Some("a")), false),
        ] {
            assert_eq!(settled.holds(&given), expected, "{given:?}");
        }
    }
}
