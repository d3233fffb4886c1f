//! The rights of the programs of OLM classic themselves.

use super::{Secrets, Write, check, rendered, text};

const ACCOUNTS: &[&str] = &["olm-operator", "catalog-operator", "packageserver"];
/// The account that writes content if no OperatorGroup names one. It has all rights.
const INSTALLER: &str = "classic-installer";

/// Every write that a program may make by itself.
const WRITES: &[Write] = &[
    (
        "olm-operator",
        "operators.coreos.com",
        concat!(
            "catalogsources,clusterserviceversions,installplans,olmconfigs,",
            "operatorconditions,operatorgroups,operators,subscriptions"
        ),
        "create,delete,patch,update",
        "our kinds",
    ),
    (
        "olm-operator",
        "operators.coreos.com",
        concat!(
            "clusterserviceversions/status,olmconfigs/status,operatorconditions/status,",
            "operatorgroups/status,operators/status"
        ),
        "patch,update",
        "our kinds",
    ),
    (
        "olm-operator",
        "operators.coreos.com",
        "clusterserviceversions/finalizers,operatorconditions/finalizers,operatorgroups/finalizers",
        "update",
        "our kinds",
    ),
    (
        "olm-operator",
        "",
        "namespaces",
        "patch,update",
        "labels of the namespaces that OperatorGroups select",
    ),
    (
        "olm-operator",
        "config.openshift.io",
        "clusteroperators",
        "create",
        "the report to OpenShift",
    ),
    (
        "olm-operator",
        "config.openshift.io",
        "clusteroperators/status",
        "update",
        "the report to OpenShift",
    ),
    (
        "catalog-operator",
        "config.openshift.io",
        "clusteroperators",
        "create",
        "the report to OpenShift",
    ),
    (
        "catalog-operator",
        "config.openshift.io",
        "clusteroperators/status",
        "update",
        "the report to OpenShift",
    ),
    (
        "olm-operator",
        "rbac.authorization.k8s.io",
        "clusterroles",
        "create,delete,escalate,patch,update",
        "roles of OperatorGroups and of APIs; an admission policy refuses others",
    ),
    (
        "olm-operator",
        "rbac.authorization.k8s.io",
        "roles,rolebindings",
        "create,delete,patch,update",
        "for OperatorConditions by name; an admission policy refuses others",
    ),
    (
        "olm-operator",
        "",
        "serviceaccounts/token",
        "create",
        "acts as the accounts that OperatorGroups name",
    ),
    (
        "olm-operator",
        "events.k8s.io",
        "events",
        "create,delete,patch",
        "what happened; an event that no longer holds is deleted",
    ),
    (
        "olm-operator",
        "authentication.k8s.io",
        "tokenreviews",
        "create",
        "stores nothing",
    ),
    (
        "olm-operator",
        "authorization.k8s.io",
        "subjectaccessreviews",
        "create",
        "stores nothing",
    ),
    (
        "catalog-operator",
        "config.openshift.io",
        "operatorhubs/status",
        "patch,update",
        "the default catalogs of OpenShift",
    ),
    (
        "catalog-operator",
        "operators.coreos.com",
        "catalogsources,clusterserviceversions,installplans,operatorgroups,subscriptions",
        "create,delete,patch,update",
        "our kinds",
    ),
    (
        "catalog-operator",
        "operators.coreos.com",
        "catalogsources/status,installplans/status,subscriptions/status",
        "patch,update",
        "our kinds",
    ),
    (
        "catalog-operator",
        "operators.coreos.com",
        "catalogsources/finalizers,subscriptions/finalizers",
        "update",
        "our kinds",
    ),
    (
        "catalog-operator",
        "",
        "services",
        "create,delete,patch,update",
        "registries of CatalogSources; an admission policy refuses others",
    ),
    (
        "catalog-operator",
        "",
        "pods,serviceaccounts",
        "create,delete,patch,update",
        "registries of CatalogSources; an admission policy refuses others",
    ),
    (
        "catalog-operator",
        "networking.k8s.io",
        "networkpolicies",
        "create,delete,patch,update",
        "registries of CatalogSources; an admission policy refuses others",
    ),
    (
        "catalog-operator",
        "rbac.authorization.k8s.io",
        "roles,rolebindings",
        "create,delete,patch,update",
        "registries of CatalogSources; an admission policy refuses others",
    ),
    (
        "catalog-operator",
        "",
        "configmaps",
        "delete,patch,update",
        "owners of catalogs; an admission policy refuses other content",
    ),
    (
        "catalog-operator",
        "discovery.k8s.io",
        "endpointslices",
        "create,delete,patch,update",
        "registries of CatalogSources; an admission policy refuses others",
    ),
    (
        "catalog-operator",
        "",
        "serviceaccounts/token",
        "create",
        "acts as the accounts that OperatorGroups name",
    ),
    (
        "catalog-operator",
        "events.k8s.io",
        "events",
        "create,patch",
        "what happened",
    ),
    (
        "catalog-operator",
        "authentication.k8s.io",
        "tokenreviews",
        "create",
        "stores nothing",
    ),
    (
        "catalog-operator",
        "authorization.k8s.io",
        "subjectaccessreviews",
        "create",
        "stores nothing",
    ),
    (
        "olm-leases",
        "coordination.k8s.io",
        "leases",
        "create,delete,patch,update",
        "who leads, in its namespace",
    ),
];

#[test]
fn the_programs_of_olm_classic_write_nothing_but_their_own_kinds() {
    let objects = rendered("classic");
    check("classic", &objects, ACCOUNTS, Secrets::Read, WRITES.iter());
}

/// Every write that catalog-operator may make beside these where it moves Subscriptions to OLM v1.
const MIGRATION: &[Write] = &[
    (
        "catalog-operator-migration",
        "operators.coreos.com",
        "operatorconditions",
        "delete,patch",
        "those of moved operators, which stay when their ClusterServiceVersion is deleted",
    ),
    (
        "catalog-operator-migration",
        "olm.operatorframework.io",
        "clusterextensions",
        "create,delete,patch",
        "those made from Subscriptions; an admission policy refuses others",
    ),
    (
        "catalog-operator-migration",
        "olm.operatorframework.io",
        "clusterobjectsets",
        "create",
        "first revisions; an admission policy refuses others",
    ),
    (
        "catalog-operator-migration",
        "olm.operatorframework.io",
        "clusterextensions/finalizers,clusterobjectsets/finalizers",
        "update",
        "owners that hold back their deletion",
    ),
    (
        "catalog-operator-migration",
        "identity.olm.operatorframework.io",
        "controllers",
        "act",
        "no API: the admission policies of the managers know by it who gives ClusterExtensions their revisions",
    ),
    (
        "catalog-operator-migration",
        "operators.coreos.com",
        "clusterserviceversions/status",
        "patch",
        "our kind",
    ),
    (
        "catalog-operator-migration",
        "",
        "secrets",
        "create,delete,patch",
        "content of revisions, in the managers' namespace; an admission policy refuses others",
    ),
];

#[test]
fn moves_to_olm_v1_add_no_right_on_content() {
    let objects = rendered("classic/migration");
    check(
        "classic/migration",
        &objects,
        ACCOUNTS,
        Secrets::Never,
        MIGRATION.iter(),
    );
}

/// An administrator who removes the account needs to look for no other object.
#[test]
fn the_account_that_may_do_everything_is_bound_once() {
    let objects = rendered("classic");
    let bindings = objects.iter().filter(|object| {
        super::members(object, "subjects").any(|subject| text(subject, "/name") == INSTALLER)
    });
    let found: Vec<_> = bindings
        .map(|binding| (text(binding, "/kind"), text(binding, "/roleRef/name")))
        .collect();
    assert_eq!(found, [("ClusterRoleBinding", "cluster-admin")]);
}
