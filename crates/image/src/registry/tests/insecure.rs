//! Registries of which any certificate is accepted.

use std::io::Read as _;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;

use super::{chain, images};
use crate::*;

/// Long, for a machine with much to do.
const MINUTE: Duration = Duration::from_mins(1);

fn access(registry: &str) -> Access {
    Access {
        registries: Arc::new(Registries::default().insecure(registry)),
        ..Access::default()
    }
}

#[tokio::test]
async fn a_registry_whose_tls_fails_is_not_spoken_to_in_the_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, first_bytes) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut byte = [0];
            let read = stream.and_then(|mut stream| stream.read(&mut byte));
            if read.is_ok_and(|read| read == 1) && sender.send(byte[0]).is_err() {
                return;
            }
        }
    });
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let reference = Reference::parse(&format!("{address}/a/b:v1")).unwrap();
    let error = images().resolve(&reference, &access(&address)).await.unwrap_err();
    assert!(chain(&error).contains("cannot reach registry"), "{error}");
    // Every attempt begins as TLS does.
    assert_eq!(first_bytes.recv_timeout(MINUTE), Ok(0x16));
    assert!(first_bytes.try_iter().all(|byte| byte == 0x16));
}

/// A server with an untrusted certificate; reports for each connection whether the client accepted it.
fn impostor() -> (u16, mpsc::Receiver<bool>) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![issued.cert.der().clone()], key.into())
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, believed) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            // A client that rejects the certificate disconnects before it sends anything.
            let mut request = [0; 16];
            let read = rustls::Stream::new(&mut connection, &mut stream).read(&mut request);
            if sender.send(read.is_ok_and(|read| read > 0)).is_err() {
                return;
            }
        }
    });
    (port, believed)
}

#[tokio::test]
async fn an_untrusted_certificate_is_reported_at_once() {
    let (port, believed) = impostor();
    let reference = Reference::parse(&format!("localhost:{port}/a/b:v1")).unwrap();
    let error = images()
        .resolve(&reference, &Access::default())
        .await
        .unwrap_err();
    let said = chain(&error);
    assert!(
        said.contains(
            "`: the certificate is not trusted: no trusted authority issued it; the server presents subject `"
        ),
        "{said}"
    );
    assert_eq!(believed.recv_timeout(MINUTE), Ok(false));
    assert!(believed.try_recv().is_err(), "it is asked once");
}

#[tokio::test]
async fn any_certificate_is_accepted_of_the_registry_itself_only() {
    let (port, believed) = impostor();
    let answer = async move |request: Request| {
        let response = Response::builder();
        let response = if request.uri().path().contains("/token/") {
            let realm = format!("Bearer realm=\"https://localhost:{port}/token\"");
            response.status(401).header("www-authenticate", realm)
        } else {
            let elsewhere = format!("https://localhost:{port}/elsewhere");
            response.status(307).header("location", elsewhere)
        };
        response.body(axum::body::Body::empty()).unwrap()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let app = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, app).await });
    for repository in ["a/token", "a/redirected"] {
        let reference = Reference::parse(&format!("{address}/{repository}:v1")).unwrap();
        let images = Images::new(Options {
            token_services: vec!["localhost".to_owned()],
            ..Options::new("test")
        });
        let error = images.resolve(&reference, &access(&address)).await.unwrap_err();
        assert!(
            chain(&error).contains("it leads to `localhost`: the certificate is not trusted"),
            "{repository}: {}",
            chain(&error)
        );
        assert_eq!(believed.recv_timeout(MINUTE), Ok(false), "{repository}");
        assert!(believed.try_iter().all(|believed| !believed), "{repository}");
    }
    // The registry itself may show what it likes.
    let registry = format!("localhost:{port}");
    let reference = Reference::parse(&format!("{registry}/a/b:v1")).unwrap();
    images()
        .resolve(&reference, &access(&registry))
        .await
        .unwrap_err();
    while !believed.recv_timeout(MINUTE).unwrap() {}
}
