//! Certificate authorities for registries elsewhere that speak TLS.

use std::path::PathBuf;

use olm_transport::Authorities;
use rustls::ClientConfig;

/// The flag with the directory of authorities.
const SETTING: &str = "--pull-cas-dir";

/// The authorities that registries are verified with: those of the system and of a directory.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    directory: Option<PathBuf>,
}

impl Trust {
    /// `directory` may be empty.
    pub fn new(directory: &str) -> Self {
        Self {
            directory: (!directory.is_empty()).then(|| PathBuf::from(directory)),
        }
    }

    /// A client of the authorities as they are now. Reads files.
    ///
    /// # Errors
    /// The authorities cannot be read.
    pub fn client(&self) -> Result<ClientConfig, String> {
        let mut authorities = Authorities::system();
        if let Some(directory) = &self.directory {
            let files = olm_transport::read_directory(directory).map_err(|error| causes(&error))?;
            authorities
                .add_files(directory, &files)
                .map_err(|error| causes(&error))?;
        }
        let provider = olm_transport::provider();
        let verifier = olm_transport::verified(&provider, authorities, SETTING);
        let client = olm_transport::client_config(provider, rustls::DEFAULT_VERSIONS, verifier);
        let mut client = client.map_err(|error| causes(&error))?;
        client.alpn_protocols = vec![b"h2".to_vec()];
        Ok(client)
    }
}

fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    olm_platform::log::chain(error)
}
