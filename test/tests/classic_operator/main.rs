//! `olm-operator` on a real API server, with simulated nodes.

mod component;
mod copies;
mod install;
mod removal;
mod rest;
mod rights;
mod scope;
mod serving;
mod stage;
mod upgrade;
