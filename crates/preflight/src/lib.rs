//! `olm-preflight`.
