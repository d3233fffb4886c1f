//! The rule that chose a bundle, and what the user can do. Pure.

use olm_api::ClusterExtension;
use olm_api::names::user;
use olm_api::readiness::{Verdict, verdict};
use olm_api::updates::held_back;
use olm_resolve::Edge;

use super::Explanation;
use crate::extension::choose::ChosenBundle;
use crate::extension::rollback::plan::restoration_of;

/// The rule that chose a bundle, as text.
pub(super) fn rule(explanation: &Explanation, chosen: &ChosenBundle) -> String {
    let mut limits = Vec::new();
    if let Some(version) = &explanation.version {
        limits.push(format!("the version range {version:?}"));
    }
    if !explanation.channels.is_empty() {
        limits.push(format!("the channels {}", explanation.channels.join(", ")));
    }
    if chosen.edge.is_some() {
        limits.push("the update graph".to_owned());
    }
    limits.push("the cluster".to_owned());
    let by = match (&chosen.edge, &explanation.installed) {
        (Some(Edge::Current), _) => "; it is installed".to_owned(),
        (Some(edge), Some(installed)) => {
            let edge = match edge {
                Edge::Replaces => "replaces",
                Edge::Skips => "skips",
                Edge::SkipRange => "skipRange",
                Edge::Current => "current",
            };
            format!("; it follows {installed} by {edge}")
        }
        _ => String::new(),
    };
    let verb = if limits.len() == 1 { "allows" } else { "allow" };
    format!("the newest version that {} {verb}{by}", all(&limits))
}

/// `a, b and c`.
fn all(parts: &[String]) -> String {
    match parts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The step to a version from which an update edge may lead to the newest one, if none leads there from the installed
/// one.
fn in_between(name: &str, explanation: &Explanation) -> Option<String> {
    let newest = explanation
        .candidates
        .first()
        .filter(|newest| newest.lacks_edge)?;
    let installed = explanation.installed.as_ref()?;
    let mut newer = explanation.candidates.iter();
    let next = newer
        .by_ref()
        .take_while(|candidate| candidate.version != *installed)
        .find(|candidate| !candidate.lacks_edge);
    Some(match next {
        Some(next) => format!(
            "no update edge leads from {installed} to {}: first `olm upgrade {name} --version {}`",
            newest.version, next.version
        ),
        None => format!("no update edge leads from {installed} to {}", newest.version),
    })
}

/// Whether an extension whose chosen version is held back for this reason is not ready for the same reason.
fn stalls(held_by: &str) -> bool {
    !matches!(
        held_by,
        held_back::PIN
            | held_back::RANGE
            | held_back::PRERELEASE
            | held_back::CHANNEL
            | held_back::EDGE
            | held_back::PLATFORM
            | held_back::DEPRECATED
            | held_back::CATALOG
    )
}

/// The steps for the user, the most urgent first.
pub(super) fn steps(extension: &ClusterExtension, explanation: &Explanation) -> Vec<String> {
    let name = extension.name();
    let mut steps = Vec::new();
    if extension.annotation(user::PAUSED) == Some("true") {
        steps.push(format!("`olm resume {name}` lets OLM change it again"));
    }
    let held = explanation
        .updates
        .as_ref()
        .and_then(|updates| updates.held_back_by.as_deref());
    match held {
        Some(held_back::RIGHTS) => {
            steps.push(format!("`olm rbac {name} | kubectl apply -f -` grants what the account lacks"));
        }
        Some(held_back::PIN | held_back::RANGE | held_back::PRERELEASE | held_back::CHANNEL)
            if restoration_of(extension).is_some() =>
        {
            steps.push(format!(
                "`olm unpin {name}` ends the rollback: it restores the settings from before it"
            ));
        }
        Some(held_back::PIN | held_back::RANGE | held_back::PRERELEASE | held_back::CHANNEL) => {
            steps.extend(in_between(name, explanation));
            steps.push(format!("`olm upgrade {name} --version RANGE` allows other versions, --channel other channels"));
        }
        Some(held_back::APPROVAL) => steps.push(format!(
            "`olm plan {name}` shows the change, `olm approve {name}` lets it happen, `olm reject {name}` refuses it"
        )),
        Some(held_back::WINDOW) => steps.push(
            "wait for the window, or change the ChangePolicy that selects it: `kubectl get changepolicies`".to_owned(),
        ),
        Some(held_back::FREEZE) => steps.push(
            "end the freeze in the ChangePolicy that selects it: `kubectl get changepolicies`".to_owned(),
        ),
        Some(held_back::REQUIREMENT) => steps.push(
            "install what the message names, or remove what requires the present version".to_owned(),
        ),
        Some(held_back::EDGE) => steps.push(format!(
            "no update edge leads there: `olm upgrade {name}` goes to the newest version that can be reached"
        )),
        Some(held_back::ROLLOUT) => steps.push(format!(
            "repair what fails, or `olm rollback {name}` takes it back to an earlier version"
        )),
        Some(held_back::CONFIGURATION) => steps.push(format!(
            "correct spec.config or the annotation that the message names: `kubectl edit clusterextension {name}`"
        )),
        Some(held_back::OPERATOR) => steps.push(format!(
            "wait until the operator allows the upgrade; the annotation {} overrides it",
            user::UPGRADEABLE_OVERRIDE
        )),
        Some(held_back::SIGNATURE) => steps.push(
            "do what the message says about the signature; OLM tries again within a minute".to_owned(),
        ),
        Some(held_back::CRD_UPGRADE_SAFETY) => steps.push(format!(
            "`olm plan {name}` shows the change of the CRD; the annotation {} admits it",
            user::CRD_POLICY
        )),
        _ => {}
    }
    let is_paused = extension.annotation(user::PAUSED) == Some("true");
    let is_stalled = verdict(extension.conditions()) == Some(Verdict::Stalled);
    if is_stalled && !is_paused && !held.is_some_and(stalls) {
        steps.insert(
            0,
            format!(
                "do what the message under Why says; `kubectl edit clusterextension {name}` changes the spec and the annotations"
            ),
        );
    }
    if explanation
        .verified
        .as_ref()
        .is_some_and(|verified| verified.status == "False")
    {
        steps.push("do what the message of the signatures says; the installed version runs on".to_owned());
    }
    if explanation.updates.is_none() && !explanation.is_ready && explanation.choice.refusal.is_none() {
        steps.push(format!(
            "`olm rbac {name}` prints the rights that its account lacks, if any"
        ));
    }
    if !explanation.pods.is_empty() {
        steps.push(format!(
            "`kubectl get pods,events -n {}` shows more of the Pods",
            explanation.namespace
        ));
    }
    if !explanation.is_ready {
        steps.push(format!("`olm events {name}` shows what happened"));
    }
    steps
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::cluster_extension::ClusterExtensionSpec;
    use olm_api::names::annotation;
    use olm_api::readiness::{Readiness, set_readiness};
    use olm_api::updates::UpdatesStatus;

    use super::*;
    use crate::extension::look::explain::{Row, of_status};

    fn held_by(reason: &str, candidates: &[(&str, bool)]) -> Vec<String> {
        let extension = ClusterExtension::new("greeter", ClusterExtensionSpec::default());
        steps_of(&extension, reason, candidates)
    }

    fn steps_of(extension: &ClusterExtension, reason: &str, candidates: &[(&str, bool)]) -> Vec<String> {
        let row = |(version, lacks_edge): &(&str, bool)| Row {
            bundle: format!("greeter.v{version}"),
            version: (*version).to_owned(),
            catalog: "samples".to_owned(),
            is_chosen: false,
            excluded_by: Vec::new(),
            lacks_edge: *lacks_edge,
        };
        let explanation = Explanation {
            is_ready: true,
            installed: Some("1.0.1".to_owned()),
            candidates: candidates.iter().map(row).collect(),
            updates: Some(UpdatesStatus {
                held_back_by: Some(reason.to_owned()),
                ..UpdatesStatus::default()
            }),
            ..of_status(extension)
        };
        steps(extension, &explanation)
    }

    #[test]
    fn what_stalls_an_extension_comes_before_newer_versions() {
        let mut extension = ClusterExtension::new("greeter", ClusterExtensionSpec::default());
        let readiness = Readiness {
            verdict: Verdict::Stalled,
            reason: "Blocked",
            message: "the annotation cannot be read",
            observed_generation: 1,
        };
        let status = extension.status.get_or_insert_default();
        set_readiness(&mut status.conditions, readiness, Timestamp::UNIX_EPOCH);
        let of = |by: &str| steps_of(&extension, by, &[("1.0.1", false)]).remove(0);
        let edit = "`kubectl edit clusterextension greeter` changes the spec and the annotations";
        assert_eq!(
            of(held_back::RANGE),
            format!("do what the message under Why says; {edit}")
        );
        let signature = of(held_back::SIGNATURE);
        assert!(
            signature.starts_with("do what the message says about the signature"),
            "{signature}"
        );
    }

    #[test]
    fn a_rollback_is_ended_before_another_version_is_chosen() {
        let mut extension = ClusterExtension::new("greeter", ClusterExtensionSpec::default());
        let record = (annotation::BEFORE_ROLLBACK.to_owned(), "{}".to_owned());
        extension.metadata.annotations = Some([record].into());
        let candidates = [("2.0.0", true), ("1.1.0", false), ("1.0.1", false)];
        assert_eq!(
            steps_of(&extension, held_back::PIN, &candidates),
            ["`olm unpin greeter` ends the rollback: it restores the settings from before it"]
        );
    }

    #[test]
    fn a_version_without_an_edge_is_reached_by_one_in_between() {
        let wider = "`olm upgrade greeter --version RANGE` allows other versions, --channel other channels";
        let there = [("2.0.0", true), ("1.1.0", false), ("1.0.1", false)];
        assert_eq!(
            held_by(held_back::RANGE, &there),
            [
                "no update edge leads from 1.0.1 to 2.0.0: first `olm upgrade greeter --version 1.1.0`",
                wider
            ]
        );
        let nowhere = [("2.0.0", true), ("1.0.1", false)];
        assert_eq!(
            held_by(held_back::CHANNEL, &nowhere),
            ["no update edge leads from 1.0.1 to 2.0.0", wider]
        );
        assert_eq!(
            held_by(held_back::PIN, &[("1.1.0", false), ("1.0.1", false)]),
            [wider]
        );
    }

    #[test]
    fn a_change_that_waits_for_people_names_who_decides() {
        for (reason, part) in [
            (held_back::APPROVAL, "`olm approve greeter` lets it happen"),
            (held_back::WINDOW, "wait for the window"),
            (held_back::FREEZE, "end the freeze"),
            (held_back::REQUIREMENT, "install what the message names"),
        ] {
            let steps = held_by(reason, &[]);
            assert!(steps.len() == 1 && steps[0].contains(part), "{reason}: {steps:?}");
        }
    }
}
