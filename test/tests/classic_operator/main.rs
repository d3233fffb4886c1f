//! `olm-operator` on a real API server, with simulated nodes.

mod component;
mod copies;
mod install;
mod ownership;
mod removal;
mod reports;
mod rest;
mod rights;
mod rotation;
mod scope;
mod serving;
mod stage;
mod takeover;
mod upgrade;
