//! Catalogs behind the registry API: the servers of CatalogSources with an image, and the client for all of them.
