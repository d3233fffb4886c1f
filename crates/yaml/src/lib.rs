//! `olm-yaml`.
