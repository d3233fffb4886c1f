//! The OpenShift gate: holds a minor update of the cluster back while an installed bundle does not support the next
//! version.
//!
//! [`verdict`] is the rules and touches nothing, versions are read by [`olm_bundle::openshift`]; [`controller`] runs only where the API group
//! `config.openshift.io` is served, and writes nothing but the condition `Upgradeable` of the ClusterOperator `olm`.

pub mod controller;
pub mod verdict;
