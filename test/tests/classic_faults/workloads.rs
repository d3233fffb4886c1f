//! Work of the catalog-operator while it dies.

/// A step, done when its goal is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Makes the namespace, an OperatorGroup, and a CatalogSource with these versions.
    Offer(&'static [&'static str]),
    /// The CatalogSource has these versions now, and serves them.
    Newer(&'static [&'static str]),
    /// Subscribes; `true` waits for approvals.
    Subscribe(bool),
    /// A plan waits for approval.
    Waits,
    /// Approves the plan that was waited for last.
    Approve,
    /// This version is installed and healthy.
    Installed(&'static str),
}

/// Steps that lead to one end.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// The steps before the faults.
    pub(crate) before: &'static [Step],
    /// The steps with the faults.
    pub(crate) steps: &'static [Step],
}

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "subscription-install",
        before: &[],
        steps: &[
            Step::Offer(&["1.0.0"]),
            Step::Subscribe(false),
            Step::Installed("1.0.0"),
        ],
    },
    Workload {
        name: "subscription-upgrade",
        before: &[
            Step::Offer(&["1.0.0"]),
            Step::Subscribe(false),
            Step::Installed("1.0.0"),
        ],
        steps: &[Step::Newer(&["1.0.0", "1.0.1"]), Step::Installed("1.0.1")],
    },
    // The catalog changes while the plan waits: the approved version is installed, and the next version waits.
    Workload {
        name: "subscription-stale-approval",
        before: &[Step::Offer(&["1.0.0"]), Step::Subscribe(true), Step::Waits],
        steps: &[
            Step::Newer(&["1.0.0", "1.0.1"]),
            Step::Approve,
            Step::Installed("1.0.0"),
            Step::Waits,
        ],
    },
];
