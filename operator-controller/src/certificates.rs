//! Certificates for operators that the API server calls, where no other provider does.
//!
//! ```text
//! annotated Service ─► Secret: authority + certificate ─► caBundle of webhook configurations, CRDs and APIServices
//! ```
//!
//! [`olm_rollout::certificates`] says where a revision needs them and who trusts them; [`choose`] says who provides them,
//! and [`secret`] makes ours. They are written under the account with a field manager of their own. What is needed follows
//! from the content, what is due from the Secrets: nothing is lost with the process.
//!
//! [`olm_platform::tls::issue`] says when something is renewed, and makes it. Deleting a Secret has all of it made anew;
//! authorities that are still trusted stay trusted until what they signed has expired.

pub mod choose;
pub mod secret;

pub use olm_rollout::certificates::{authority, layout};
