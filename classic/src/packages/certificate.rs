//! The certificate of the API.

use std::sync::Arc;

use olm_platform::args::ArgsError;
use olm_platform::tls::certificate::Files;
use olm_platform::tls::{ReloadingCertificate, TlsError, ephemeral_certificate, from_files};

use crate::args::PackageArgs;
use crate::base::Base;

/// Error of the serving certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    /// Flags contradict each other.
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// It is not usable.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The certificate in files, as the machinery of ClusterServiceVersions mounts them, else one of this process: where
/// the APIService trusts any.
pub(super) fn serving(
    base: &Base,
    args: &PackageArgs,
) -> Result<Arc<ReloadingCertificate>, CertificateError> {
    if let Some(files) = files(args)? {
        return Ok(from_files(files, &base.metrics, &base.shutdown)?);
    }
    let service = format!("packageserver-service.{}.svc", base.namespace);
    let names = vec![service, "localhost".to_owned()];
    Ok(ephemeral_certificate(names, &base.shutdown)?)
}

fn files(args: &PackageArgs) -> Result<Option<Files>, ArgsError> {
    let (certificate, key) = (&args.tls_cert_file, &args.tls_private_key_file);
    match (certificate.is_empty(), key.is_empty()) {
        (false, false) => {
            return Ok(Some(Files {
                certificate: certificate.into(),
                key: key.into(),
            }));
        }
        (true, true) => {}
        _ => return Err(ArgsError::HalfCertificate),
    }
    if let Some(files) = args.classic.common.certificate_files()? {
        return Ok(Some(files));
    }
    let mounted = Files {
        certificate: args.cert_dir.join("apiserver.crt"),
        key: args.cert_dir.join("apiserver.key"),
    };
    let is_there = mounted.certificate.is_file() && mounted.key.is_file();
    Ok(is_there.then_some(mounted))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn flags_come_before_the_directory() {
        let folder = std::env::temp_dir().join(format!("packages-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["apiserver.crt", "apiserver.key"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let directory = format!("--cert-dir={}", folder.display());
        let found = |more: &[&str]| {
            let all = ["classic", "packageserver", directory.as_str()];
            let args = Args::try_parse_from(all.iter().chain(more)).unwrap();
            let Command::Packageserver(args) = args.command else {
                panic!("another program");
            };
            files(&args).map(|files| files.map(|files| files.key.display().to_string()))
        };
        let of_directory = folder.join("apiserver.key").display().to_string();
        assert_eq!(found(&[]).unwrap(), Some(of_directory));
        let common = ["--tls-cert=a", "--tls-key=b"];
        assert_eq!(found(&common).unwrap().as_deref(), Some("b"));
        let both = [&common[..], &["--tls-cert-file=c", "--tls-private-key-file=d"]].concat();
        assert_eq!(found(&both).unwrap().as_deref(), Some("d"));
        assert!(found(&["--tls-cert-file=c"]).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found(&[]).unwrap(), None);
    }
}
