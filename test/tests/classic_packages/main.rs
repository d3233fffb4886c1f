//! `packageserver` behind a real API server, which forwards requests of kubectl and other clients to it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod content;
mod reading;
mod rights;
mod stage;
mod watching;
