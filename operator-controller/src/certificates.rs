//! Certificates for operators that the API server calls, where nobody else provides them.
//!
//! ```text
//! annotated Service ─► Secret: authority + certificate ─► caBundle of webhook configurations, CRDs and APIServices
//! ```
//!
//! Neither is content of a ClusterObjectSet: the Secrets come as a phase of their own in front of the others, so that the
//! engine owns, watches, hands over and removes them like any object; the authorities are written into the objects that
//! say so, right after these are applied. Both are written under the account with a field manager of their own. What is
//! needed follows from the content, what is due from the Secrets: nothing is lost with the process.
//!
//! [`olm_platform::tls::issue`] says when something is renewed, and makes it. Deleting a Secret has all of it made anew;
//! authorities that are still trusted stay trusted until what they signed has expired.

pub mod authority;
pub mod choose;
pub mod known;
pub mod layout;
pub mod secret;
