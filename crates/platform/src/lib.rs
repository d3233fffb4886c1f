//! `olm-platform`.
