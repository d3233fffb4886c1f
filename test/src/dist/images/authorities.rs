//! The certificate authorities of the images: those of Mozilla, in the version that `Cargo.lock` pins. Nothing that
//! only this machine trusts gets into an image.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

/// The characters of a line in PEM.
const WIDTH: usize = 64;

/// The package that the authorities come from.
pub const PACKAGE: &str = "webpki-root-certs";

/// The authorities in PEM.
pub(super) fn pem() -> String {
    let mut text = String::new();
    for certificate in TLS_SERVER_ROOT_CERTS {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = STANDARD.encode(certificate.as_ref());
        while rest.len() > WIDTH {
            let more = rest.split_off(WIDTH);
            text.push_str(&rest);
            text.push('\n');
            rest = more;
        }
        text.push_str(&rest);
        text.push_str("\n-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn every_authority_is_read_again() {
        let found: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(pem().as_bytes())
            .map(Result::unwrap)
            .collect();
        assert!(found.len() > 100, "{}", found.len());
        assert_eq!(found, TLS_SERVER_ROOT_CERTS);
    }
}
