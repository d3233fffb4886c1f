//! `olm-serve`.
