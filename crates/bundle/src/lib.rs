//! `olm-bundle`.
