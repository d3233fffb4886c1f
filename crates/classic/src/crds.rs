//! The `CustomResourceDefinitions` of OLM classic.
//!
//! Objects that the Go implementation accepted stay valid: there is no bound, enumeration or required field that its
//! definitions do not have. `sourceType` and `installPlanApproval` take any text.

mod catalog_source;
mod csv;
mod install_plan;
mod olm_config;
mod operator;
mod operator_group;
mod pod;
mod subscription;
mod words;

use olm_api::crd::definition::{Columns, Kind, Scope, Version};
use olm_api::crd::schema::Schema;
use olm_api::crd::{File, operator_condition};
use serde_json::Value;

use crate::names;

/// Every definition as a file for `manifests/classic/crds`.
pub fn files() -> Vec<File> {
    named()
        .into_iter()
        .map(|(name, definition)| File::new(name, &definition))
        .collect()
}

/// Every definition as an object.
pub fn all() -> Vec<Value> {
    named().into_iter().map(|(_, definition)| definition).collect()
}

fn named() -> [(&'static str, Value); 8] {
    [
        (
            "operators.coreos.com_catalogsources.yaml",
            catalog_source::definition(),
        ),
        (
            "operators.coreos.com_clusterserviceversions.yaml",
            csv::definition(),
        ),
        (
            "operators.coreos.com_installplans.yaml",
            install_plan::definition(),
        ),
        ("operators.coreos.com_olmconfigs.yaml", olm_config::definition()),
        (
            "operators.coreos.com_operatorconditions.yaml",
            operator_condition(),
        ),
        (
            "operators.coreos.com_operatorgroups.yaml",
            operator_group::definition(),
        ),
        ("operators.coreos.com_operators.yaml", operator::definition()),
        (
            "operators.coreos.com_subscriptions.yaml",
            subscription::definition(),
        ),
    ]
}

/// A kind of the API group.
fn kind<'a>(kind: &'a str, short_names: &'a [&'a str], scope: Scope) -> Kind<'a> {
    Kind {
        group: names::GROUP,
        kind,
        short_names,
        scope,
        annotations: &[],
    }
}

/// The version in which objects are stored.
fn stored<'a>(name: &'a str, columns: &'a Columns<'a>, root: Schema) -> Version<'a> {
    Version {
        name,
        storage: true,
        columns,
        root,
    }
}

#[cfg(test)]
mod tests;
