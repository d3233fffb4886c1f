//! OperatorConditions, with which an operator can block its upgrade.
//!
//! Every bundle gets an OperatorCondition of its name and reads that name from an environment variable, from the first
//! revision of a bundle on: content that is there already is never changed for it. The OperatorCondition and the binding
//! that lets the operator write it are our own records. While the installed bundle's says `Upgradeable=False`, no other
//! bundle takes its place. Where OLM classic has brought the kind, it is used as it is.

pub mod definition;
pub mod gate;
mod owner;
pub mod records;
pub mod watch;
