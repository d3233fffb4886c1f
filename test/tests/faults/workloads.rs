//! The steps of a user during faults, as data.

/// The manager that the faults affect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    OperatorController,
    Catalogd,
}

/// One step of a user, or a wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Publishes these versions in a catalog of the extension's own and has the ClusterCatalog name it.
    Publish(&'static [&'static str]),
    /// Deletes the ClusterCatalog.
    DeleteCatalog,
    /// Applies the extension with a version range, its namespace, account and rights.
    Apply(&'static str),
    /// Merges fields into the extension.
    Merge(&'static str),
    /// Has a ChangePolicy ask for an approval of each change of the extension.
    AskForApproval,
    /// Approves the change of the extension, as soon as it is offered.
    Approve,
    /// Stores an object of the kind that the bundle brings.
    StoreObject,
    /// Deletes the extension.
    Delete,
    /// Waits until the catalog serves and says so.
    Serving,
    /// Waits until the ClusterCatalog is gone.
    CatalogGone,
    /// Waits until this version is installed and no change is in progress.
    Installed(&'static str),
    /// Waits until the revision of this number exists, or a later one.
    Revision(i64),
    /// Waits until the extension and its revisions are gone.
    Gone,
}

/// A piece of work.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) target: Target,
    /// The steps without faults.
    pub(crate) before: &'static [Step],
    /// The steps with faults.
    pub(crate) steps: &'static [Step],
    /// Whether the number of revisions depends on the time at which a manager is back.
    pub(crate) any_revisions: bool,
}

use Step::{
    Apply, Approve, AskForApproval, CatalogGone, Delete, DeleteCatalog, Gone, Installed, Merge, Publish,
    Revision, Serving, StoreObject,
};

const fn of_extension(name: &'static str, before: &'static [Step], steps: &'static [Step]) -> Workload {
    Workload {
        name,
        target: Target::OperatorController,
        before,
        steps,
        any_revisions: false,
    }
}

const fn of_catalog(name: &'static str, before: &'static [Step], steps: &'static [Step]) -> Workload {
    Workload {
        target: Target::Catalogd,
        ..of_extension(name, before, steps)
    }
}

const INSTALLED: &[Step] = &[Apply("1.0.0"), Installed("1.0.0"), StoreObject];

/// All workloads.
pub(crate) const ALL: &[Workload] = &[
    of_extension("install", &[], &[Apply("1.0.0"), Installed("1.0.0")]),
    of_extension(
        "upgrade",
        INSTALLED,
        &[
            Merge(r#"{"spec":{"source":{"catalog":{"version":"1.1.0"}}}}"#),
            Installed("1.1.0"),
        ],
    ),
    of_extension(
        "rollback",
        &[Apply("1.0.1"), Installed("1.0.1"), StoreObject],
        &[
            Merge(
                r#"{"spec":{"source":{"catalog":{"version":"1.0.0","upgradeConstraintPolicy":"SelfCertified"}}}}"#,
            ),
            Installed("1.0.0"),
        ],
    ),
    of_extension(
        "configuration",
        INSTALLED,
        &[
            Merge(
                r#"{"spec":{"config":{"configType":"Inline","inline":{"deploymentConfig":{"env":[{"name":"LEVEL","value":"debug"}]}}}}}"#,
            ),
            Revision(2),
            Installed("1.0.0"),
        ],
    ),
    Workload {
        any_revisions: true,
        ..of_extension(
            "superseded",
            INSTALLED,
            &[
                // No node has this label.
                Merge(
                    r#"{"spec":{"source":{"catalog":{"version":"1.0.1"}},"config":{"configType":"Inline","inline":{"deploymentConfig":{"nodeSelector":{"nowhere":"yes"}}}}}}"#,
                ),
                Revision(2),
                Merge(r#"{"spec":{"source":{"catalog":{"version":"1.1.0"}},"config":null}}"#),
                Installed("1.1.0"),
            ],
        )
    },
    of_extension(
        "approval",
        &[Apply("1.0.0"), Installed("1.0.0"), StoreObject, AskForApproval],
        &[
            Merge(r#"{"spec":{"source":{"catalog":{"version":"1.1.0"}}}}"#),
            Approve,
            Installed("1.1.0"),
        ],
    ),
    of_extension("uninstall", INSTALLED, &[Delete, Gone]),
    of_extension(
        "uninstall-orphan",
        INSTALLED,
        &[
            Merge(r#"{"metadata":{"annotations":{"olm.operatorframework.io/uninstall":"orphan"}}}"#),
            Delete,
            Gone,
        ],
    ),
    of_extension(
        "uninstall-keep-crds",
        INSTALLED,
        &[
            Merge(r#"{"metadata":{"annotations":{"olm.operatorframework.io/uninstall":"keep-crds"}}}"#),
            Delete,
            Gone,
        ],
    ),
    of_extension(
        "followed-catalog",
        &[
            Publish(&["1.0.0"]),
            Serving,
            Apply("1.0.x"),
            Installed("1.0.0"),
            StoreObject,
        ],
        &[Publish(&["1.0.0", "1.0.1"]), Installed("1.0.1")],
    ),
    of_catalog("catalog-add", &[], &[Publish(&["1.0.0"]), Serving]),
    of_catalog(
        "catalog-replace",
        &[
            Publish(&["1.0.0"]),
            Serving,
            Apply("1.0.x"),
            Installed("1.0.0"),
            StoreObject,
        ],
        &[Publish(&["1.0.0", "1.0.1"]), Serving, Installed("1.0.1")],
    ),
    of_catalog(
        "catalog-remove",
        &[Publish(&["1.0.0"]), Serving, Apply("1.0.x"), Installed("1.0.0")],
        &[DeleteCatalog, CatalogGone],
    ),
];

impl Workload {
    /// Whether the extension's package has its own catalog.
    pub(crate) fn has_catalog(&self) -> bool {
        let mut steps = self.before.iter().chain(self.steps);
        steps.any(|step| matches!(step, Publish(_)))
    }
}
