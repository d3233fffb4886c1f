//! Catalogs: loading, lint, writing, templates, serving and admission.

pub mod clustercatalog_admission;
pub mod fbc_load;
pub mod fbc_templates;
pub mod fbc_validate;
pub mod fbc_write;
pub mod indexignore;
pub mod metas_query;
