//! `olm-test`.
