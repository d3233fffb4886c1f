//! OperatorConditions, with which an operator can block its upgrade.
//!
//! Every bundle gets an OperatorCondition with its name, and reads the name from an environment variable. This holds
//! from the first revision of a bundle on; installed content is never changed for it. OLM writes the OperatorCondition
//! and the binding for the operator with its own rights. While the OperatorCondition of the installed bundle says
//! `Upgradeable=False`, no other bundle replaces it. If OLM classic has installed the CRD, it is used as it is.

pub(crate) mod definition;
pub(crate) mod gate;
mod owner;
pub(crate) mod records;
pub(crate) mod watch;
