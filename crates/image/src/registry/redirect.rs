//! Requests and the redirects that follow from them, as blob stores need them.
//!
//! | what | where it goes |
//! |---|---|
//! | a credential | to the scheme, host and port that it was meant for, and nowhere else |
//! | a body | likewise |
//! | anything | never from HTTPS to HTTP |
//! | a request to another host or port than the registry's | over a client that verifies certificates |

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Method, Response, Url};

use super::clients::Pair;
use super::error::Unreachable;

/// The most redirects that are followed.
const CHAIN_LIMIT: usize = 5;

/// A request as it is sent to its first address.
#[derive(Clone, Debug)]
pub(crate) struct InitialRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// Sent to the origin of `url` only.
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) body: Option<Bytes>,
    pub(crate) elsewhere: RedirectPolicy,
}

/// Whether a redirect may lead to another origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedirectPolicy {
    /// Yes for requests that only read.
    WhenReading,
    Never,
}

/// Sends a request to `outgoing.url` and follows redirects. `home` is an address of the registry.
pub(crate) async fn send(
    clients: &Pair,
    home: &Url,
    outgoing: InitialRequest,
) -> Result<Response, Unreachable> {
    let mut url = outgoing.url.clone();
    for _ in 0..=CHAIN_LIMIT {
        let is_first_origin = url.origin() == outgoing.url.origin();
        // Only the registry itself may be insecure.
        let client = if is_same_server(&url, home) {
            &clients.own
        } else {
            &clients.others
        };
        let mut request = client
            .request(outgoing.method.clone(), url.clone())
            .headers(outgoing.headers.clone());
        if let Some(authorization) = outgoing.authorization.as_ref().filter(|_| is_first_origin) {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = &outgoing.body {
            request = request.body(body.clone());
        }
        let response = request
            .send()
            .await
            .map_err(|error| Unreachable::new(home, &clients.proxies, error))?;
        let Some(next) = location(&response) else {
            return Ok(response);
        };
        if gives_up_tls(&url, &next) {
            return Err(Unreachable::redirect("it redirects from HTTPS to HTTP,", &next));
        }
        let is_reading = outgoing.body.is_none() && matches!(outgoing.method, Method::GET | Method::HEAD);
        let may_leave = is_reading && outgoing.elsewhere == RedirectPolicy::WhenReading;
        if !may_leave && next.origin() != outgoing.url.origin() {
            let why = "it redirects a request that only its own host may see";
            return Err(Unreachable::redirect(why, &next));
        }
        if !is_reading && !matches!(response.status().as_u16(), 307 | 308) {
            return Ok(response);
        }
        url = next;
    }
    Err(Unreachable::redirect(
        "it redirects more than 5 times, at last",
        &url,
    ))
}

/// Whether two addresses name the same host and port.
fn is_same_server(one: &Url, other: &Url) -> bool {
    one.host_str() == other.host_str() && one.port_or_known_default() == other.port_or_known_default()
}

/// Target of a redirect.
fn location(response: &Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    response.url().join(location).ok()
}

/// Whether a way leads from HTTPS to HTTP.
fn gives_up_tls(from: &Url, to: &Url) -> bool {
    from.scheme() == "https" && to.scheme() != "https"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_port_is_another_server() {
        let check = |one: &str, other: &str, expected: bool| {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(is_same_server(&one, &other), expected, "{one} {other}");
        };
        check("https://r.example/v2/", "https://R.example:443/token", true);
        check("https://r.example/v2/", "https://r.example:8443/token", false);
        check("https://r.example:5000/v2/", "https://a.example:5000/", false);
    }
}
