//! What a controller needs of a Kubernetes cluster. Nothing here knows a kind of ours or decides what is done.
//!
//! ```text
//! identity     one client per service account, with tokens that are renewed
//! discover     which kinds the cluster serves
//! permissions  what an account may do
//! apply        read, apply, dry run, patch, delete one object under an account
//! followed     what a watch says of objects, lists included
//! list         custom resources, page by page
//! turns        whose turn it is of objects that are read one by one
//! rights       what an account needs for objects, and lacks
//! watch        metadata of managed objects, to see drift at once
//! ```

pub mod apply;
pub mod discover;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod followed;
pub mod identity;
pub mod list;
pub mod permissions;
pub mod rights;
pub mod turns;
pub mod watch;
