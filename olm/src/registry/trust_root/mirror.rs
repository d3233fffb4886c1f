//! A TUF repository over HTTP: metadata at its URL, files below `targets/`.

use anyhow::{Context as _, ensure};
use reqwest::{StatusCode, Url};
use sigstore_tuf::transport::FetchFuture;
use sigstore_tuf::{Error, Repository};

/// A TUF repository over HTTP.
pub(super) struct Mirror {
    client: reqwest::Client,
    metadata: Url,
    targets: Url,
}

impl Mirror {
    /// The repository at a URL.
    pub(super) fn new(client: reqwest::Client, url: &str) -> anyhow::Result<Self> {
        let no_url = || format!("{url:?} is not the URL of a TUF repository");
        // With the slash, names are joined below the last part of the path.
        let metadata = Url::parse(&format!("{}/", url.trim_end_matches('/'))).with_context(no_url)?;
        ensure!(
            matches!(metadata.scheme(), "https" | "http"),
            "{}: only https and http are supported",
            no_url()
        );
        let targets = metadata.join("targets/").with_context(no_url)?;
        Ok(Self {
            client,
            metadata,
            targets,
        })
    }

    /// A file of at most `limit` bytes, if there is one.
    async fn get(&self, base: &Url, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let url = base
            .join(name)
            .map_err(|error| Error::transport_with_source(format!("no URL for {name:?}"), error))?;
        let failed = |error: reqwest::Error| {
            Error::transport_with_source(format!("cannot get {url}"), error.without_url())
        };
        let too_large = || Error::transport(format!("{url} is larger than {limit} bytes"));
        let mut response = self.client.get(url.clone()).send().await.map_err(failed)?;
        // Stores of objects answer 403 for what is not there.
        if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) {
            return Ok(None);
        }
        if !response.status().is_success() {
            let message = format!("cannot get {url}: the answer is {}", response.status());
            return Err(Error::transport(message));
        }
        if response.content_length().is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if bytes.len() as u64 + chunk.len() as u64 > limit {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }
}

impl Repository for Mirror {
    fn fetch_metadata<'a>(&'a self, name: &'a str, max_length: u64) -> FetchFuture<'a> {
        Box::pin(self.get(&self.metadata, name, max_length))
    }

    fn fetch_target<'a>(&'a self, path: &'a str, max_length: u64) -> FetchFuture<'a> {
        Box::pin(self.get(&self.targets, path, max_length))
    }
}
