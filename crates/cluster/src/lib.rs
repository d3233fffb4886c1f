//! Access to a Kubernetes cluster for controllers. Nothing here depends on the kinds of OLM or decides on actions.
//!
//! ```text
//! identity        one client per service account, with tokens that are renewed
//! discover        the kinds that the cluster serves
//! permissions     reviews of the rights of an account
//! apply           read, apply, dry run, patch, delete one object under an account
//! follow          the objects of a kind in a store, also where one cannot be read
//! followed        the changes in a watch, lists included
//! image_policies  OpenShift's signature policies, as rules for images
//! list            custom resources, page by page
//! optional_kind   the objects of a kind that the cluster may not serve
//! rate_limit      a rate limit for objects that must be read one by one
//! rights          the rights that an account needs for objects, and lacks
//! watch           metadata watches of managed objects, to see drift at once
//! ```

pub mod apply;
pub mod discover;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod follow;
pub mod followed;
pub mod identity;
pub mod image_policies;
pub mod list;
pub mod optional_kind;
pub mod permissions;
pub mod rate_limit;
pub mod rights;
pub mod watch;
