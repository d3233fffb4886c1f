//! The verdict of the current signature policy about the images that the Pods of the installed bundle run. They run on in
//! any case.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use olm_api::ClusterObjectSet;
use olm_image::{Rules, SignatureStatus, Verification};
use olm_plan::images;
use olm_platform::log::chain;
use serde_json::Value;

use crate::bundles::operands::{OperandVerdicts, listed};
use crate::bundles::pulls::Pulled;
use crate::extension::context::Context;
use crate::object_set::gather::{self, GatherError};

/// The images of the installed revision, and the last answer.
#[derive(Debug, Clone, Default)]
pub(super) struct OperandCache {
    /// The UID of the revision and the images. Its objects never change.
    images: Option<(String, BTreeSet<String>)>,
    answer: Option<Answer>,
}

#[derive(Debug, Clone)]
struct Answer {
    policy: u64,
    /// The UID of the revision.
    revision: String,
    verification: Verification,
    asked: Instant,
}

impl Answer {
    fn holds(&self, policy: u64, revision: &str, now: Instant) -> bool {
        let stands = self.verification.again().unwrap_or(Duration::MAX);
        self.policy == policy
            && self.revision == revision
            && now.saturating_duration_since(self.asked) < stands
    }
}

impl OperandCache {
    /// The verdict of the policy and the rules about the images of the installed revision. A late answer of a registry
    /// starts another run.
    pub(super) async fn verify(
        &mut self,
        context: &Context,
        extension: &str,
        installed: &ClusterObjectSet,
        rules: &Rules,
    ) -> Verification {
        let (policy, asked) = (context.bundles.policy().number(rules).await, Instant::now());
        let revision = installed.metadata.uid.clone().unwrap_or_default();
        let known = self.answer.as_ref();
        if let Some(known) = known.filter(|known| known.holds(policy, &revision, asked)) {
            return known.verification.clone();
        }
        let images = match self.images(context, installed, &revision).await {
            Ok(images) => images,
            Err(error) => return Verification::Known(unknown(&chain(&error))),
        };
        let answer = context
            .bundles
            .verify_installed_images(extension, images, rules)
            .await;
        let Pulled::Done(answer) = answer else {
            return Verification::Pending;
        };
        let status = match answer {
            Ok(verdicts) => status(&verdicts),
            Err(error) => Some(unknown(&chain(&error))),
        };
        let verification = status.map_or(Verification::NotAsked, Verification::Known);
        self.answer = Some(Answer {
            policy,
            revision,
            verification: verification.clone(),
            asked,
        });
        verification
    }

    async fn images(
        &mut self,
        context: &Context,
        installed: &ClusterObjectSet,
        revision: &str,
    ) -> Result<BTreeSet<String>, GatherError> {
        if let Some((_, images)) = self.images.as_ref().filter(|(known, _)| known == revision) {
            return Ok(images.clone());
        }
        let objects = gather::objects(installed, &context.system_namespace, &context.client).await?;
        let objects: Vec<&Value> = objects.iter().collect();
        let images = images::of(&objects);
        self.images = Some((revision.to_owned(), images.clone()));
        Ok(images)
    }
}

fn unknown(why: &str) -> SignatureStatus {
    SignatureStatus {
        accepted: None,
        message: format!("cannot verify the images of the bundle's Pods: {why}"),
    }
}

/// The status of the images together; `None` if no rule asks about any. A registry that refuses an image says nothing
/// about its signature.
fn status(verdicts: &OperandVerdicts) -> Option<SignatureStatus> {
    let reasons = |by_policy: bool| {
        let refused = verdicts.refused.iter();
        let refused = refused.filter(move |refused| refused.by_policy == by_policy);
        refused.map(|refused| refused.reason.as_str())
    };
    if reasons(true).next().is_some() {
        return Some(SignatureStatus {
            accepted: Some(false),
            message: format!(
                "the bundle stays in use, but images of its Pods are refused: {}. Sign the images, or change the policy",
                listed(reasons(true))
            ),
        });
    }
    if reasons(false).next().is_some() {
        return Some(unknown(&listed(reasons(false))));
    }
    verdicts.signers().map(|message| SignatureStatus {
        accepted: Some(true),
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::operands::OperandRefusal;

    fn verdicts(accepted: &[&str], refused: &[(bool, &str)]) -> OperandVerdicts {
        let refusal = |(by_policy, reason): &(bool, &str)| OperandRefusal {
            by_policy: *by_policy,
            reason: (*reason).to_owned(),
        };
        OperandVerdicts {
            accepted: accepted.iter().map(|&text| text.to_owned()).collect(),
            refused: refused.iter().map(refusal).collect(),
        }
    }

    #[test]
    fn a_policy_refuses_an_image_and_a_registry_leaves_it_unknown() {
        assert_eq!(status(&verdicts(&[], &[])), None);
        let check = |verdicts: &OperandVerdicts, accepted: Option<bool>, said: &str| {
            let found = status(verdicts).unwrap();
            assert_eq!(found.accepted, accepted);
            assert!(found.message.contains(said), "{}", found.message);
        };
        check(
            &verdicts(&["a is signed"], &[]),
            Some(true),
            "images of its Pods: a is signed",
        );
        check(
            &verdicts(&["a is signed"], &[(true, "b is unsigned"), (false, "c is gone")]),
            Some(false),
            "images of its Pods are refused: b is unsigned. Sign the images",
        );
        check(
            &verdicts(&["a is signed"], &[(false, "c is gone")]),
            None,
            "cannot verify the images of the bundle's Pods: c is gone",
        );
    }

    #[test]
    fn an_answer_stands_for_its_revision_and_policy() {
        let asked = Instant::now();
        let answer = |accepted: Option<bool>| Answer {
            policy: 1,
            revision: "a".to_owned(),
            verification: Verification::Known(SignatureStatus {
                accepted,
                message: String::new(),
            }),
            asked,
        };
        let hour = asked + Duration::from_hours(1);
        assert!(answer(Some(true)).holds(1, "a", hour));
        assert!(!answer(Some(false)).holds(1, "a", hour));
        assert!(!answer(None).holds(1, "a", hour));
        assert!(!answer(Some(true)).holds(2, "a", asked));
        assert!(!answer(Some(true)).holds(1, "b", asked));
        let not_asked = Answer {
            verification: Verification::NotAsked,
            ..answer(None)
        };
        assert!(not_asked.holds(1, "a", asked + Duration::from_hours(1000)));
    }
}
