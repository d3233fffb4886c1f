//! The files that say where images come from and which may be used, read again for every pull.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::access::policy::{Policy, PolicyError};
use crate::access::registries::{Registries, RegistriesError};

/// The default configuration of registries.
const REGISTRIES: &str = "/etc/containers/registries.conf";
/// The default signature policy.
const POLICY: &str = "/etc/containers/policy.json";

/// Error of the settings. Nothing is fetched then.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file that is there, or was named, cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The configuration of registries is none.
    #[error(transparent)]
    Registries(#[from] RegistriesError),
    /// The signature policy is none.
    #[error("cannot use the signature policy `{path}`")]
    Policy {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: PolicyError,
    },
}

/// Files of the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `registries.conf`; beside it the files `registries.conf.d/*.conf` are read. Empty: the system's, when it is
    /// there.
    pub registries: Option<PathBuf>,
    /// `policy.json`. Empty: the system's, when it is there.
    pub policy: Option<PathBuf>,
    /// Registries that are reached over plain HTTP, `HOST[:PORT]`.
    pub plain_http: Vec<String>,
}

impl Settings {
    /// The file with the signature policy, if there is one.
    fn policy_file(&self) -> Option<PathBuf> {
        existing(self.policy.as_deref(), POLICY)
    }

    /// Logs whether images must satisfy a policy, so that an administrator notices when every image is accepted.
    pub fn announce(&self) {
        if let Some(path) = self.policy_file() {
            tracing::info!(path = %path.display(), "images have to satisfy this signature policy");
        } else {
            tracing::warn!("there is no signature policy: every image is accepted");
        }
    }

    /// Reads the files as they are now. A file that was named and is not there is an error.
    pub fn read(&self) -> Result<(Arc<Registries>, Arc<Policy>), SettingsError> {
        let mut texts = Vec::new();
        if let Some(path) = existing(self.registries.as_deref(), REGISTRIES) {
            texts.push((path.display().to_string(), read(&path)?));
            for path in drop_ins(&path)? {
                texts.push((path.display().to_string(), read(&path)?));
            }
        }
        let files = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let registries = self
            .plain_http
            .iter()
            .fold(Registries::parse(files)?, Registries::plain_http);
        let policy = match self.policy_file() {
            Some(path) => Policy::parse(&read(&path)?, |key| std::fs::read(key))
                .map_err(|source| SettingsError::Policy { path, source })?,
            None => Policy::accept_anything(),
        };
        Ok((Arc::new(registries), Arc::new(policy)))
    }
}

/// The file that was named, whether or not it is there, else the system's if it is.
fn existing(named: Option<&Path>, system: &str) -> Option<PathBuf> {
    match named {
        Some(path) => Some(path.to_owned()),
        None => Some(PathBuf::from(system)).filter(|path| path.exists()),
    }
}

fn read(path: &Path) -> Result<String, SettingsError> {
    std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
        path: path.to_owned(),
        source,
    })
}

/// The files of the folder beside, by name.
fn drop_ins(path: &Path) -> Result<Vec<PathBuf>, SettingsError> {
    let mut folder = path.as_os_str().to_owned();
    folder.push(".d");
    let folder = PathBuf::from(folder);
    let wrong = |source| SettingsError::Read {
        path: folder.clone(),
        source,
    };
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(wrong)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_some_and(|extension| extension == "conf") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;

    #[test]
    fn files_are_read_again_and_a_named_one_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            registries: Some(folder.path().join("registries.conf")),
            policy: Some(folder.path().join("policy.json")),
            plain_http: Vec::new(),
        };
        let fault = || olm_transport::chain(&settings.read().unwrap_err());
        assert!(fault().contains("registries.conf"));
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("registries.conf", "registry = [{ location = \"a.example\" }]");
        assert!(fault().contains("policy.json"));
        for (text, said) in [
            ("{}", "missing field `default`".to_owned()),
            ("[]", "it is a list, not an object".to_owned()),
            (
                r#"{"default":[{"type":"sigstoreSigned","keyPath":"/none/key.pub"}]}"#,
                "scope default: cannot read `/none/key.pub`: ".to_owned(),
            ),
        ] {
            write("policy.json", text);
            let path = folder.path().join("policy.json");
            let said = format!("cannot use the signature policy `{}`: {said}", path.display());
            assert!(fault().starts_with(&said), "{}", fault());
        }
        write("policy.json", r#"{"default":[{"type":"reject"}]}"#);
        let image = Reference::parse("a.example/x:v1").unwrap();
        let (registries, policy) = settings.read().unwrap();
        assert!(registries.endpoints(&image).is_ok());
        assert!(policy.admit(&image).is_err());

        std::fs::create_dir(folder.path().join("registries.conf.d")).unwrap();
        write("registries.conf.d/README", "no TOML");
        write(
            "registries.conf.d/01.conf",
            "registry = [{ location = \"a.example\", blocked = true }]",
        );
        assert!(settings.read().unwrap().0.endpoints(&image).is_err());
        write("registries.conf.d/02.conf", "[");
        assert!(fault().contains("02.conf"));
    }
}
