//! Faults between a manager and the API server, at calls that a plan names.
//!
//! A [`Proxy`] stands in front of the real API server. It numbers the mutating calls about one name and does to each what its
//! [`Plan`] says. It keeps every mutating call, so that tests can ask who wrote what.

mod calls;
mod numbers;
mod plan;
mod proxy;
mod watches;

pub use self::calls::{Call, Place};
pub use self::numbers::Numbers;
pub use self::plan::{Fault, Plan, Watches};
pub use self::proxy::{Observer, Proxy};
