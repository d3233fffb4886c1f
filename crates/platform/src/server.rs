//! What a manager serves: a listener that outlasts slow clients, who may read what, metrics and health.

pub mod admin;
pub mod gate;
pub mod listener;
mod progress;
mod stall;
