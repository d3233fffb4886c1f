//! Certificates that OLM creates for webhooks and aggregated APIs of operators, if there is no other provider.
//!
//! ```text
//! annotated Service ─► Secret: authority + certificate ─► caBundle of webhook configurations, CRDs and APIServices
//! ```
//!
//! [`olm_rollout::certificates`] decides where a revision needs them and which objects trust them, [`choose`] selects
//! the provider, and [`secret`] creates ours. They are written under the account with a field manager of their own. The
//! content of the revision and the Secrets are the only state.
//!
//! [`olm_platform::tls::issue`] decides when a certificate is renewed, and creates it. If a Secret is deleted,
//! everything in it is created again; trusted authorities stay trusted until their certificates have expired.

pub(crate) mod choose;
pub(crate) mod secret;
