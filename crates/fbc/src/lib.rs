//! `olm-fbc`.
