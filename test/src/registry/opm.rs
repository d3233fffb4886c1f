//! `opm serve`, the registry of the Go implementation.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use crate::cluster::free_address;

/// A running `opm serve`, which ends with this value.
pub struct Opm {
    process: Child,
    address: String,
}

impl Opm {
    /// Serves a catalog, as lines of JSON. Its files are below `folder`.
    ///
    /// # Errors
    /// When the files cannot be written, or `program` cannot be started.
    pub fn serve(program: &Path, folder: &Path, blobs: &str) -> Result<Self> {
        let catalog = folder.join("opm-configs");
        std::fs::create_dir_all(&catalog)?;
        std::fs::write(catalog.join("catalog.json"), blobs)?;
        let address = free_address()?;
        let port = address.rsplit(':').next().unwrap_or_default();
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg(&catalog)
            .args(["--port", port])
            .args(["--pprof-addr", "127.0.0.1:0"])
            .args(["--termination-log", "opm-termination.log"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = command.current_dir(folder).spawn().context("cannot start opm")?;
        Ok(Self { process, address })
    }

    /// The address, `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// When its state cannot be read.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }
}

impl Drop for Opm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
