//! The design of our pages: one style, one frame, one policy, for the pages of catalogs and those of `olm ui`.

pub use crate::site::{Document, FAVICON, HTML, STYLE, badge, block, document, protect, search, symbol};
