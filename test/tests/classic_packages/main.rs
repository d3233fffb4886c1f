//! `packageserver` behind a real API server, which forwards requests of kubectl and other clients to it.

mod content;
mod reading;
mod rights;
mod stage;
mod watching;
