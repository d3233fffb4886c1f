//! The server of a manager: a listener that tolerates slow clients, authorization, metrics and health.

pub mod admin;
mod decision_cache;
pub mod delegated;
pub mod gate;
pub mod listener;
mod progress;
mod reviews;
mod stall;
