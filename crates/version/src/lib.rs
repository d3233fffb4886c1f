//! `olm-version`.
