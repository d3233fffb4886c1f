//! The clients that the API server trusts: its front proxy, and clients with a certificate of the cluster.

use std::collections::BTreeMap;

use http::HeaderMap;
use k8s_openapi::api::authentication::v1::UserInfo;

use crate::tls::client::{ClientAuthorities, ClientCertificates};

/// The content of the ConfigMap `extension-apiserver-authentication`.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// Whether it was read.
    pub(super) is_known: bool,
    proxies: Option<ClientAuthorities>,
    /// The names of the front proxy; empty allows every name.
    proxy_names: Vec<String>,
    user_headers: Vec<String>,
    uid_headers: Vec<String>,
    group_headers: Vec<String>,
    extra_prefixes: Vec<String>,
    clients: Option<ClientAuthorities>,
}

impl Trust {
    /// Reads the data of the ConfigMap. A missing or malformed entry trusts no client.
    pub(super) fn read(data: &BTreeMap<String, String>) -> Self {
        let list = |key: &str| -> Vec<String> {
            let text = data.get(key).map_or("[]", String::as_str);
            serde_json::from_str(text).unwrap_or_else(|error| {
                tracing::warn!(%error, key, "cannot read whom the API server trusts");
                Vec::new()
            })
        };
        let authorities = |key: &str| ClientAuthorities::from_pem(data.get(key)?.as_bytes());
        let names = data.get("requestheader-allowed-names");
        let names = names.map(|names| serde_json::from_str::<Vec<String>>(names));
        Self {
            is_known: false,
            // If the list of names is unreadable, no name is allowed.
            proxies: authorities("requestheader-client-ca-file").filter(|_| !matches!(names, Some(Err(_)))),
            proxy_names: names.and_then(Result::ok).unwrap_or_default(),
            user_headers: list("requestheader-username-headers"),
            uid_headers: list("requestheader-uid-headers"),
            group_headers: list("requestheader-group-headers"),
            extra_prefixes: list("requestheader-extra-headers-prefix"),
            clients: authorities("client-ca-file"),
        }
    }

    /// The user whom the front proxy names in these headers, otherwise the owner of the certificate.
    pub(super) fn user(&self, headers: &HeaderMap, shown: &ClientCertificates) -> Option<UserInfo> {
        let proxy = self.proxies.as_ref().and_then(|proxies| proxies.subject(shown));
        let is_allowed = |name: &String| self.proxy_names.is_empty() || self.proxy_names.contains(name);
        if proxy.is_some_and(|proxy| is_allowed(&proxy.name))
            && let Some(user) = self.named(headers)
        {
            return Some(user);
        }
        let owner = self.clients.as_ref()?.subject(shown)?;
        Some(UserInfo {
            username: Some(owner.name),
            groups: Some(owner.organizations),
            ..UserInfo::default()
        })
    }

    fn named(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let first = |names: &[String]| {
            let mut values = names.iter().filter_map(|name| headers.get(name)?.to_str().ok());
            values.find(|value| !value.is_empty()).map(str::to_owned)
        };
        let username = first(&self.user_headers)?;
        let groups = self.group_headers.iter().flat_map(|name| headers.get_all(name));
        let groups = groups.filter_map(|group| group.to_str().ok().map(str::to_owned));
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            // Names of headers are lower case here.
            let key = self
                .extra_prefixes
                .iter()
                .find_map(|prefix| name.as_str().strip_prefix(&prefix.to_ascii_lowercase()));
            if let (Some(key), Ok(value)) = (key, value.to_str()) {
                extra.entry(decoded(key)).or_default().push(value.to_owned());
            }
        }
        Some(UserInfo {
            username: Some(username),
            uid: first(&self.uid_headers),
            groups: Some(groups.collect()),
            extra: (!extra.is_empty()).then_some(extra),
        })
    }
}

/// A key with its percent escapes decoded. A key with a malformed escape stays as it is.
fn decoded(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.split_at_checked(2)).flatten();
        let value =
            escaped.and_then(|(digits, _)| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        if let (Some((_, after)), Some(value)) = (escaped, value) {
            bytes.push(value);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_proxy_names_user_groups_and_more() {
        let trust = Trust {
            user_headers: vec!["X-Remote-User".to_owned()],
            uid_headers: vec!["X-Remote-Uid".to_owned()],
            group_headers: vec!["X-Remote-Group".to_owned()],
            extra_prefixes: vec!["X-Remote-Extra-".to_owned()],
            ..Trust::default()
        };
        let mut headers = HeaderMap::new();
        assert_eq!(trust.named(&headers), None);
        for (name, value) in [
            ("x-remote-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-acme.com%2fproject", "p"),
            ("x-remote-extra-100%", "q"),
        ] {
            headers.append(http::HeaderName::from_static(name), value.parse().unwrap());
        }
        let user = trust.named(&headers).unwrap();
        assert_eq!(user.username.as_deref(), Some("jane"));
        assert_eq!(user.uid.as_deref(), Some("7"));
        assert_eq!(user.groups, Some(vec!["a".to_owned(), "b".to_owned()]));
        let extra = user.extra.unwrap();
        assert_eq!(extra["acme.com/project"], ["p"]);
        assert_eq!(extra["100%"], ["q"]);
    }

    #[test]
    fn an_unreadable_list_of_names_allows_no_proxy() {
        let with = |names: &str| {
            let data = [("requestheader-allowed-names", names)];
            Trust::read(&data.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
        };
        assert!(with("[").proxies.is_none());
        assert_eq!(
            with(r#"["front-proxy-client"]"#).proxy_names,
            ["front-proxy-client"]
        );
    }
}
