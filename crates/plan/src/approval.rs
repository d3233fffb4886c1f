//! Whether a planned change may begin, given the policies that select its extension and the decision.

pub mod window;

use olm_api::change_policy::{ApprovalMode, ApprovalRules};
use olm_api::names::CHANGE_POLICY;
use olm_api::pending_change::{Decision, DecisionOutcome};
use olm_api::updates::held_back;
use olm_api::{ChangePolicy, conditions::reason};
use olm_version::blang::parse_version;
use serde::Serialize;

use jiff::Timestamp;

use self::window::{Window, WindowError};
use crate::ChangePlan;
use crate::change::Bundle;
use crate::definitions::Class;

/// The class of a change, as in `spec.approval` of a ChangePolicy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ChangeClass {
    /// A first installation.
    Install,
    /// Other content of the same version.
    Content,
    /// Another patch version.
    Patch,
    /// Another minor version.
    Minor,
    /// Another major version, or versions that cannot be compared.
    Major,
}

impl ChangeClass {
    /// The class of a plan. A downgrade has the class of the upgrade.
    pub fn of(plan: &ChangePlan) -> Self {
        let Some(installed) = &plan.installed else {
            return Self::Install;
        };
        if installed.package == plan.wanted.package && installed.version == plan.wanted.version {
            return Self::Content;
        }
        let read = |bundle: &Bundle| parse_version(&bundle.version);
        let (Ok(old), Ok(new)) = (read(installed), read(&plan.wanted)) else {
            return Self::Major;
        };
        if installed.package != plan.wanted.package || old.major != new.major {
            Self::Major
        } else if old.minor != new.minor {
            Self::Minor
        } else {
            Self::Patch
        }
    }

    /// The name in `spec.class` of a PendingChange.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Install => "Install",
            Self::Content => "Content",
            Self::Patch => "Patch",
            Self::Minor => "Minor",
            Self::Major => "Major",
        }
    }

    fn mode(self, rules: &ApprovalRules) -> ApprovalMode {
        let named = match self {
            Self::Install => rules.install,
            Self::Content | Self::Patch => rules.patch,
            Self::Minor => rules.minor,
            Self::Major => rules.major,
        };
        named.unwrap_or(rules.default)
    }
}

impl Class {
    /// The name in `spec.definitions` of a PendingChange.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Safe => "Safe",
            Self::Breaking => "Breaking",
        }
    }
}

/// Whether a change grants rights that the bundle did not grant before.
pub fn widens_rights(plan: &ChangePlan) -> bool {
    !plan.rights.gained.is_empty()
}

/// A cause that holds a change back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A policy is invalid, so its conditions are unknown.
    Policy {
        /// The name.
        name: String,
        /// The fault.
        why: String,
    },
    /// No user has decided yet.
    Approval,
    /// A user rejected it.
    Rejected(Decision),
    /// A policy freezes all changes.
    Freeze {
        /// The name.
        policy: String,
    },
    /// No window is open.
    Window {
        /// The policy whose window opens last.
        policy: String,
        /// The time when it opens; `None` if it never opens again.
        opens: Option<Timestamp>,
    },
}

impl Cause {
    /// The reason of the condition `Ready`.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Policy { .. } | Self::Window { opens: None, .. } => reason::BLOCKED,
            Self::Approval => reason::AWAITING_APPROVAL,
            Self::Rejected(_) => reason::REJECTED,
            Self::Freeze { .. } => reason::FROZEN,
            Self::Window { opens: Some(_), .. } => reason::AWAITING_WINDOW,
        }
    }

    /// The value of `status.updates.heldBackBy`.
    pub const fn held_back_by(&self) -> &'static str {
        match self {
            Self::Policy { .. } => held_back::OTHER,
            Self::Approval | Self::Rejected(_) => held_back::APPROVAL,
            Self::Freeze { .. } => held_back::FREEZE,
            Self::Window { .. } => held_back::WINDOW,
        }
    }

    /// The cause as text.
    pub fn text(&self) -> String {
        match self {
            Self::Policy { name, why } => format!("{CHANGE_POLICY} {name:?} cannot be used: {why}"),
            Self::Approval => "it needs an approval".to_owned(),
            Self::Rejected(decision) if decision.note.is_empty() => {
                format!("{} rejected it", decision.approver)
            }
            Self::Rejected(decision) => format!("{} rejected it: {}", decision.approver, decision.note),
            Self::Freeze { policy } => format!("{CHANGE_POLICY} {policy:?} freezes all changes"),
            Self::Window { policy, opens } => match opens {
                Some(opens) => format!("the next window of {CHANGE_POLICY} {policy:?} opens at {opens}"),
                None => format!("no window of {CHANGE_POLICY} {policy:?} opens again"),
            },
        }
    }
}

/// The result of the policies and the decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gate {
    /// Whether a policy requires an approval of the change, given or not.
    pub needs_approval: bool,
    /// The approver, if an approval is needed and given.
    pub approver: Option<String>,
    /// The causes that hold the change back, those that need a user first. If empty, the change may begin.
    pub causes: Vec<Cause>,
}

/// Decides whether a change may begin at `now`. `policies` are those that select the extension; `decision` is that of
/// the PendingChange with the digest of this plan, unless it is void.
pub fn gate<'p>(
    plan: &ChangePlan,
    policies: impl IntoIterator<Item = &'p ChangePolicy>,
    decision: Option<&Decision>,
    now: Timestamp,
) -> Gate {
    let class = ChangeClass::of(plan);
    let mut gate = Gate::default();
    let mut invalid = Vec::new();
    let (mut frozen, mut closed): (Option<Cause>, Option<Cause>) = (None, None);
    for policy in policies {
        let name = policy.name().to_owned();
        let rules = &policy.spec.approval;
        let widened = rules.widened_rights.filter(|_| widens_rights(plan));
        gate.needs_approval |=
            class.mode(rules) == ApprovalMode::Manual || widened == Some(ApprovalMode::Manual);
        if policy.spec.freeze {
            frozen.get_or_insert(Cause::Freeze { policy: name.clone() });
        }
        match windows(policy) {
            Err(error) => invalid.push(Cause::Policy {
                name,
                why: error.to_string(),
            }),
            Ok(windows) => closed = later(closed, shut(name, &windows, now)),
        }
    }
    if gate.needs_approval {
        match decision {
            None => gate.causes.push(Cause::Approval),
            Some(decision) if decision.verdict == DecisionOutcome::Approved => {
                gate.approver = Some(decision.approver.clone());
            }
            Some(decision) => gate.causes.push(Cause::Rejected(decision.clone())),
        }
    }
    gate.causes.extend(invalid);
    gate.causes.extend(frozen);
    gate.causes.extend(closed);
    gate
}

/// The windows of a policy.
///
/// # Errors
/// One of them cannot be read.
pub fn windows(policy: &ChangePolicy) -> Result<Vec<Window>, WindowError> {
    policy.spec.windows.iter().map(Window::parse).collect()
}

/// The cause of a policy whose windows are closed.
fn shut(policy: String, windows: &[Window], now: Timestamp) -> Option<Cause> {
    if windows.is_empty() || windows.iter().any(|window| window.is_open(now)) {
        return None;
    }
    let opens = windows.iter().filter_map(|window| window.opens(now)).min();
    Some(Cause::Window { policy, opens })
}

/// The cause that lasts longer.
fn later(one: Option<Cause>, other: Option<Cause>) -> Option<Cause> {
    let until = |cause: &Option<Cause>| match cause {
        Some(Cause::Window { opens, .. }) => (1, opens.map_or(Timestamp::MAX, |opens| opens)),
        _ => (0, Timestamp::MIN),
    };
    if until(&other) > until(&one) { other } else { one }
}

#[cfg(test)]
mod tests;
