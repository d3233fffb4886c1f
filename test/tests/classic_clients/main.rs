//! Clients of OLM classic as others ship them, built from their Go modules and unchanged, against the programs of this
//! project.

mod kubectl_operator;
mod operator_sdk;
mod registry;
mod stage;
