//! The status of a ChangePolicy: whether it is valid.

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use olm_api::ChangePolicy;
use olm_api::change_policy::ChangePolicyStatus;
use olm_api::conditions::reason;
use olm_api::names::CHANGE_POLICY;
use olm_api::readiness::{Readiness, Verdict, set_readiness};
use olm_plan::approval::windows;
use olm_platform::write::unless;
use olm_resolve::Selector;

/// Writes the status of a policy if it differs. If the policy has changed, its event starts another run.
///
/// # Errors
/// It cannot be written.
pub(crate) async fn report(client: &Client, policy: &ChangePolicy) -> Result<(), kube::Error> {
    let next = status(policy, Timestamp::now());
    if policy.status.as_ref() == Some(&next) {
        return Ok(());
    }
    let policies: Api<ChangePolicy> = Api::all(client.clone());
    let next = ChangePolicy {
        status: Some(next),
        ..policy.clone()
    };
    let written = policies
        .replace_status(policy.name(), &PostParams::default(), &next)
        .await;
    unless(&[404, 409], written).map(drop)
}

/// The wanted status of a policy.
pub(crate) fn status(policy: &ChangePolicy, now: Timestamp) -> ChangePolicyStatus {
    let fault = match Selector::from(&policy.spec.selector).validate() {
        Err(error) => Some(format!("spec.selector: {error}")),
        Ok(()) => match windows(policy) {
            Err(error) => Some(format!("spec.windows: {error}")),
            Ok(all) => (!all.is_empty() && all.iter().all(|window| window.opens(now).is_none()))
                .then(|| "spec.windows: no window ever opens".to_owned()),
        },
    };
    let message = fault.map(|fault| {
        format!("{fault}. Until {CHANGE_POLICY} {:?} is corrected, it holds back every change of the extensions that it selects.", policy.name())
    });
    let (verdict, reason) = match &message {
        Some(_) => (Verdict::Stalled, reason::INVALID),
        None => (Verdict::Ready, reason::HEALTHY),
    };
    let mut next = policy.status.clone().unwrap_or_default();
    let readiness = Readiness {
        verdict,
        reason,
        message: message.as_deref().unwrap_or_default(),
        observed_generation: policy.generation(),
    };
    set_readiness(&mut next.conditions, readiness, now);
    next.observed_generation = Some(policy.generation());
    next
}

#[cfg(test)]
mod tests {
    use olm_api::change_policy::{ChangePolicySpec, WindowSpec};
    use olm_api::conditions::{READY, find};

    use super::*;

    #[test]
    fn an_invalid_policy_reports_the_fault_and_its_effect() {
        let window = WindowSpec {
            schedule: "0 25 * * *".to_owned(),
            duration: "1h".to_owned(),
            time_zone: "UTC".to_owned(),
        };
        let spec = ChangePolicySpec {
            windows: vec![window],
            ..ChangePolicySpec::default()
        };
        let mut policy = ChangePolicy::new("nights", spec);
        let found = status(&policy, Timestamp::UNIX_EPOCH);
        let ready = find(&found.conditions, READY).unwrap();
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            ("False", "Invalid")
        );
        assert!(ready.message.contains("0 25 * * *"), "{}", ready.message);
        policy.spec.windows.clear();
        let found = status(&policy, Timestamp::UNIX_EPOCH);
        assert_eq!(find(&found.conditions, READY).unwrap().status, "True");
        policy.status = Some(found.clone());
        assert_eq!(
            status(&policy, Timestamp::now()),
            found,
            "the same again changes nothing"
        );
    }
}
