//! `catalogd`.
