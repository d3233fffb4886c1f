//! Connections that an HTTP proxy tunnels.

use std::io;

use reqwest::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Proxies;

/// The most that is read of the answer of a proxy, in bytes.
const MOST: usize = 8 << 10;

/// Connects to `HOST:PORT`, directly or through the proxy that `proxies` has for it. The caller limits the time.
///
/// # Errors
/// Nothing accepts the connection, or the proxy refuses to forward it.
pub async fn connect(target: &str, proxies: &Proxies) -> io::Result<TcpStream> {
    let url = format!("http://{target}")
        .parse::<Url>()
        .map_err(io::Error::other)?;
    let Some(proxy) = proxies.find(&url) else {
        return TcpStream::connect(target).await;
    };
    let host = proxy.host_str().unwrap_or_default();
    let port = proxy.port_or_known_default().unwrap_or(80);
    let refused = |why: &str| io::Error::other(format!("the proxy {host}:{port} does not forward: {why}"));
    if !proxy.username().is_empty() || proxy.password().is_some() {
        return Err(refused("credentials of gRPC proxies are not supported"));
    }
    let mut stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // One by one: what follows the head belongs to the server behind.
        head.push(stream.read_u8().await?);
        if head.len() > MOST {
            return Err(refused("its answer is too long"));
        }
    }
    let head = String::from_utf8_lossy(&head);
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(stream),
        _ => Err(refused(status)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn through(answer: &'static str, exempt: &str) -> (io::Result<TcpStream>, Option<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(head).unwrap()
        });
        let proxies = Proxies::for_grpc(|name| match name {
            "grpc_proxy" => Some(address.clone()),
            "NO_PROXY" => Some(exempt.to_owned()),
            _ => None,
        });
        let connected = connect("registry.invalid:50051", &proxies.unwrap()).await;
        if exempt.is_empty() {
            return (connected, Some(serving.await.unwrap()));
        }
        serving.abort();
        (connected, None)
    }

    #[tokio::test]
    async fn a_proxy_forwards_what_no_exemption_covers() {
        let (stream, asked) = through("HTTP/1.1 200 OK\r\nVia: p\r\n\r\nhello", "").await;
        let asked = asked.unwrap();
        assert_eq!(
            asked,
            "CONNECT registry.invalid:50051 HTTP/1.1\r\nHost: registry.invalid:50051\r\n\r\n"
        );
        let mut rest = String::new();
        stream.unwrap().read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "hello");
        // Nothing has this name: it is dialled directly.
        assert!(through("", "registry.invalid").await.0.is_err());
    }

    #[tokio::test]
    async fn a_refusal_of_the_proxy_is_said() {
        let (stream, _) = through("HTTP/1.1 403 Forbidden\r\n\r\n", "").await;
        let error = stream.unwrap_err().to_string();
        assert!(
            error.contains("does not forward: HTTP/1.1 403 Forbidden"),
            "{error}"
        );
        let fault = Proxies::for_grpc(|name| (name == "GRPC_PROXY").then(|| "https://p".to_owned()));
        assert_eq!(
            fault.unwrap_err().to_string(),
            "cannot use the proxy of GRPC_PROXY: its scheme is `https`, and only `http` is supported"
        );
    }
}
