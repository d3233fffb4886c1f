//! Catalogs: what is loaded, linted, written, made of templates, served and admitted.

pub mod clustercatalog_admission;
pub mod fbc_load;
pub mod fbc_templates;
pub mod fbc_validate;
pub mod fbc_write;
pub mod indexignore;
pub mod metas_query;
