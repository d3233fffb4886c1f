//! What a revision holds: its objects, some of which lie in Secrets, and the digests by which they are known.

pub mod canonical;
pub mod content;
