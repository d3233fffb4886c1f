//! `olm-resolve`.
