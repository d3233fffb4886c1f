//! Faults between a manager and the API server, at planned calls.
//!
//! A [`Proxy`] in front of the real API server numbers the mutating calls about one name and applies the faults of its
//! [`Plan`] to them. It records every mutating call, so that tests can check the writers.

mod calls;
mod numbers;
mod plan;
mod proxy;
mod watches;

pub use self::calls::{Call, Place};
pub use self::numbers::Numbers;
pub use self::plan::{Fault, Plan, Watches};
pub use self::proxy::{Observer, Proxy};
