//! From the chosen bundle's image to the objects that will be applied, in phases.

pub mod fetch;
pub mod phases;
pub mod render;
