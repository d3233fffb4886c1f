//! The proxy for a host, from the environment: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or
//! lower case.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::Url;

/// The environment names a proxy that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the proxy of {variable}: {reason}")]
pub struct ProxyError {
    /// The variable of the environment.
    pub variable: &'static str,
    /// The reason. It never contains the value, which may contain a password.
    pub reason: String,
}

/// The proxies of the environment. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    rules: Arc<Rules>,
}

#[derive(Default)]
struct Rules {
    http: Option<Url>,
    https: Option<Url>,
    exempt: Vec<NoProxyEntry>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |url: &Option<Url>| url.as_ref().map(name);
        formatter
            .debug_struct("Rules")
            .field("http", &name(&self.http))
            .field("https", &name(&self.https))
            .field("exempt", &self.exempt)
            .finish()
    }
}

/// One entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NoProxyEntry {
    /// `*`
    Everything,
    /// `10.0.0.0/8`, or one address.
    Network(IpNet, Option<u16>),
    /// `example.com`: the domain and its subdomains. `.example.com` and `*.example.com`: only subdomains.
    Domain {
        name: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl Proxies {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// When the proxy in a variable is not an `http` or `https` URL.
    pub fn from_environment() -> Result<Self, ProxyError> {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Like [`Self::from_environment`], from any source of variables.
    ///
    /// # Errors
    /// When the proxy in a variable is not an `http` or `https` URL.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let value = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| {
                let value = variable(name)?;
                let value = value.trim();
                (!value.is_empty()).then(|| (name, value.to_owned()))
            })
        };
        let all = value(["ALL_PROXY", "all_proxy"]);
        let proxy = |names| {
            let found = value(names).or_else(|| all.clone());
            found.map(|(name, value)| parse(name, &value)).transpose()
        };
        let (http, https) = (
            proxy(["HTTP_PROXY", "http_proxy"])?,
            proxy(["HTTPS_PROXY", "https_proxy"])?,
        );
        let exempt = value(["NO_PROXY", "no_proxy"]).map_or_else(Vec::new, |(_, value)| exempt(&value));
        Ok(Self {
            rules: Arc::new(Rules { http, https, exempt }),
        })
    }

    /// The proxies of gRPC clients: `GRPC_PROXY` or `grpc_proxy`, and `NO_PROXY`.
    ///
    /// # Errors
    /// When the proxy is not an `http` URL.
    pub fn for_grpc(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let value = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| {
                let value = variable(name)?.trim().to_owned();
                (!value.is_empty()).then_some((name, value))
            })
        };
        let proxy = value(["GRPC_PROXY", "grpc_proxy"]).map(|(name, value)| {
            let proxy = parse(name, &value)?;
            if proxy.scheme() == "http" {
                return Ok(proxy);
            }
            let reason = "its scheme is `https`, and only `http` is supported".to_owned();
            Err(ProxyError {
                variable: name,
                reason,
            })
        });
        let exempt = value(["NO_PROXY", "no_proxy"]).map_or_else(Vec::new, |(_, value)| exempt(&value));
        Ok(Self {
            rules: Arc::new(Rules {
                http: proxy.transpose()?,
                https: None,
                exempt,
            }),
        })
    }

    /// The proxy for a URL, with its credentials.
    pub(crate) fn find(&self, url: &Url) -> Option<&Url> {
        let proxy = match url.scheme() {
            "https" => self.rules.https.as_ref(),
            "http" => self.rules.http.as_ref(),
            _ => None,
        }?;
        let (host, port) = (url.host_str()?, url.port_or_known_default());
        if is_loopback(host) {
            return None;
        }
        let is_exempt = self.rules.exempt.iter().any(|rule| rule.covers(host, port));
        (!is_exempt).then_some(proxy)
    }

    /// The proxy for a URL, for messages: `http://proxy.example:3128`, without credentials.
    pub fn name(&self, url: &Url) -> Option<String> {
        self.find(url).map(name)
    }

    /// The proxies for `reqwest::ClientBuilder::proxy`.
    pub fn for_client(&self) -> reqwest::Proxy {
        let proxies = self.clone();
        reqwest::Proxy::custom(move |url| proxies.find(url).cloned())
    }
}

/// Whether a host of a URL is this machine. A proxy would connect to its own machine instead.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || address(host).is_some_and(|address| address.is_loopback())
}

/// The IP address in a host of a URL, if any.
fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

fn parse(variable: &'static str, value: &str) -> Result<Url, ProxyError> {
    let wrong = |reason: String| ProxyError { variable, reason };
    let with_scheme = if value.contains("://") {
        value.to_owned()
    } else {
        format!("http://{value}")
    };
    let url = Url::parse(&with_scheme).map_err(|error| wrong(format!("it is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!(
            "its scheme is `{}`, and only `http` and `https` are supported",
            url.scheme()
        )));
    }
    if url.host_str().is_none() {
        return Err(wrong("it names no host".to_owned()));
    }
    Ok(url)
}

fn name(proxy: &Url) -> String {
    let host = proxy.host_str().unwrap_or_default();
    let port = proxy.port_or_known_default().unwrap_or_default();
    format!("{}://{host}:{port}", proxy.scheme())
}

fn exempt(text: &str) -> Vec<NoProxyEntry> {
    let entries = text.split([',', ' ', '\t', '\n']).map(str::trim);
    entries
        .filter(|entry| !entry.is_empty())
        .filter_map(|entry| exempt_one(&entry.to_ascii_lowercase()))
        .collect()
}

fn exempt_one(entry: &str) -> Option<NoProxyEntry> {
    if entry == "*" {
        return Some(NoProxyEntry::Everything);
    }
    if let Ok(network) = entry.parse::<IpNet>() {
        return Some(NoProxyEntry::Network(network, None));
    }
    let (host, port) = split_port(entry);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(NoProxyEntry::Network(address.into(), port));
    }
    let below = host.strip_prefix("*.").or_else(|| host.strip_prefix('.'));
    let name = below.unwrap_or(host).trim_end_matches('.');
    (!name.is_empty()).then(|| NoProxyEntry::Domain {
        name: name.to_owned(),
        itself: below.is_none(),
        port,
    })
}

/// Splits `host:port` and `[address]:port`; an IPv6 address without brackets has no port.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some((address, rest)) = entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (address, rest.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match entry.split_once(':') {
        Some((host, port)) if !port.contains(':') => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (entry, None),
        },
        _ => (entry, None),
    }
}

impl NoProxyEntry {
    fn covers(&self, host: &str, port: Option<u16>) -> bool {
        let fits = |wanted: &Option<u16>| wanted.is_none() || *wanted == port;
        match self {
            Self::Everything => true,
            Self::Network(network, wanted) => {
                fits(wanted) && address(host).is_some_and(|address| network.contains(&address))
            }
            Self::Domain {
                name,
                itself,
                port: wanted,
            } => {
                let host = host.trim_end_matches('.').to_ascii_lowercase();
                let below = host
                    .strip_suffix(name.as_str())
                    .is_some_and(|rest| rest.ends_with('.'));
                fits(wanted) && (below || (*itself && host == *name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        Proxies::read(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_names_a_proxy_by_scheme_in_either_case() {
        let check = |variables: &[(&str, &str)], url: &str, expected: Option<&str>| {
            let found = proxies(variables).unwrap().name(&url.parse().unwrap());
            assert_eq!(found.as_deref(), expected, "{variables:?} {url}");
        };
        let https = "https://r.example/v2/";
        check(&[], https, None);
        check(&[("HTTPS_PROXY", "http://p:3128")], https, Some("http://p:3128"));
        check(&[("https_proxy", "http://p:3128")], https, Some("http://p:3128"));
        check(
            &[("HTTPS_PROXY", ""), ("https_proxy", "p")],
            https,
            Some("http://p:80"),
        );
        check(&[("HTTPS_PROXY", "https://p")], https, Some("https://p:443"));
        check(&[("HTTP_PROXY", "p:1")], https, None);
        check(&[("http_proxy", "p:1")], "http://r.example/", Some("http://p:1"));
        check(&[("ALL_PROXY", "p:1")], https, Some("http://p:1"));
        check(
            &[("all_proxy", "p:1"), ("HTTPS_PROXY", "q:1")],
            https,
            Some("http://q:1"),
        );
        // Messages contain no password.
        check(
            &[("HTTPS_PROXY", "http://me:secret@p:1")],
            https,
            Some("http://p:1"),
        );
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_an_error_without_its_password() {
        let fault = |value: &str| proxies(&[("HTTPS_PROXY", value)]).unwrap_err().to_string();
        assert_eq!(
            fault("socks5://me:secret@p:1"),
            "cannot use the proxy of HTTPS_PROXY: its scheme is `socks5`, and only `http` and `https` are supported"
        );
        assert_eq!(
            fault("http://me:secret@p:99999"),
            "cannot use the proxy of HTTPS_PROXY: it is not a URL: invalid port number"
        );
        let debug = format!(
            "{:?}",
            proxies(&[("HTTPS_PROXY", "http://me:secret@p:1")]).unwrap()
        );
        assert!(!debug.contains("secret"), "{debug}");
    }

    #[test]
    fn no_proxy_is_understood_in_all_its_forms() {
        let check = |exempt: &str, url: &str, expected: bool| {
            for variable in ["NO_PROXY", "no_proxy"] {
                let found = proxies(&[("ALL_PROXY", "p:1"), (variable, exempt)]).unwrap();
                let direct = found.name(&url.parse().unwrap()).is_none();
                assert_eq!(direct, expected, "{variable}={exempt} {url}");
            }
        };
        check("*", "https://r.example", true);
        check("r.example", "https://r.example", true);
        check("R.Example", "https://r.EXAMPLE", true);
        check("example", "https://r.example", true);
        check("r.example", "https://other-r.example", false);
        check("r.example", "https://a.r.example", true);
        check(".example", "https://r.example", true);
        check(".r.example", "https://r.example", false);
        check("*.r.example", "https://a.r.example", true);
        check("*.r.example", "https://r.example", false);
        check("r.example:5000", "https://r.example:5000", true);
        check("r.example:5000", "https://r.example", false);
        check("r.example:443", "https://r.example", true);
        check("a.example, r.example", "https://r.example", true);
        check("a.example r.example", "https://r.example", true);
        check("10.0.0.0/8", "https://10.1.2.3:5000", true);
        check("10.0.0.0/8", "https://11.1.2.3", false);
        check("10.1.2.3", "https://10.1.2.3", true);
        check("10.1.2.3:5000", "https://10.1.2.3:5001", false);
        check("10.1.2.3:5000", "https://10.1.2.3:5000", true);
        check("fd00::/8", "https://[fd00::1]:5000", true);
        check("fd00::1", "https://[fd00::1]", true);
        check("[fd00::1]:5000", "https://[fd00::1]:5000", true);
        check("[fd00::1]:5000", "https://[fd00::1]", false);
        check("10.0.0.0/8", "https://r.example", false);
        check(",", "http://LOCALHOST:5000", true);
        check(",", "https://localhost.example", false);
        check(",", "http://127.0.0.1:5000", true);
        check(",", "http://[::1]:5000", true);
        check(",", "http://128.0.0.1:5000", false);
        check(",, ", "https://r.example", false);
    }
}
