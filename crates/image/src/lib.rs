//! `olm-image`.
