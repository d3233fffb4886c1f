//! The edge to the cluster that extensions are installed in.
//!
//! ```text
//! identity     one client per service account, with tokens that are renewed
//! discover     which kinds the cluster serves
//! permissions  what an account may do
//! apply        read, apply, let go, delete one object under an account
//! followed     what a watch tells of objects, lists included
//! list         custom resources, page by page
//! watch        metadata of managed objects, to see drift at once
//! ```
//!
//! Nothing here decides what is to be done.

pub mod apply;
pub mod discover;
#[cfg(test)]
pub(crate) mod fake;
pub mod followed;
pub mod identity;
pub mod list;
pub mod permissions;
pub mod watch;
