//! `olm-api`.
