//! The OpenShift gate: blocks a minor update of the cluster while an installed bundle does not support the next
//! version.
//!
//! [`verdict`] is the pure rule, [`olm_bundle::openshift`] reads versions, [`controller`] runs only if the API group
//! `config.openshift.io` is served, and writes only the condition `Upgradeable` of the ClusterOperator `olm`.

pub(crate) mod controller;
pub mod verdict;
