//! Small grammars that several validators need.

use olm_version::{Version, blang};

/// A semantic version read with tolerance: blanks around it, a leading `v`, missing parts and leading zeros are
/// accepted.
pub(super) fn tolerant_version(text: &str) -> Option<Version> {
    blang::parse_tolerant(text).ok()
}

/// Texts as Go prints a list of quoted ones.
pub(super) fn quoted_list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| olm_version::quoted(text)).collect();
    format!("[{}]", quoted.join(" "))
}

/// The fault of a text as one mail address, with or without a name before it.
pub(super) fn address_fault(text: &str) -> Option<&'static str> {
    let text = text.trim();
    let address = match text.rsplit_once('<') {
        Some((_, address)) => match address.strip_suffix('>') {
            Some(address) => address,
            None => return Some("unclosed angle-addr"),
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return Some("missing '@' or angle-addr");
    };
    let atom = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|letter| letter.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(letter))
    };
    let quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    if !quoted && !local.split('.').all(atom) {
        return Some("no angle-addr");
    }
    let literal = domain.starts_with('[') && domain.ends_with(']');
    if literal || domain.split('.').all(atom) {
        None
    } else {
        Some("expected a domain after the '@'")
    }
}

/// The fault of a text as the address of a page: an absolute one, or a path from the root.
pub(super) fn uri_fault(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("empty url");
    }
    if text.chars().any(|letter| letter.is_ascii_control()) {
        return Some("invalid control character in URL");
    }
    if text.starts_with(':') {
        return Some("missing protocol scheme");
    }
    let scheme = text.split_once(':').filter(|(scheme, _)| {
        scheme
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    });
    let rest = match scheme {
        Some((_, rest)) => rest,
        None if text.starts_with('/') => text,
        None => return Some("invalid URI for request"),
    };
    if let Some(rest) = rest.strip_prefix("//") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        if host.contains([' ', '<', '>', '"']) {
            return Some("invalid character in host name");
        }
        let port = host.rsplit_once(':').filter(|(name, _)| !name.contains(':'));
        if port.is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit())) {
            return Some("invalid port after host");
        }
    }
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let escaped = path.split('%').skip(1).all(|part| {
        let mut digits = part.bytes().take(2);
        let is_digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_hexdigit());
        is_digit(digits.next()) && is_digit(digits.next())
    });
    (!escaped).then_some("invalid URL escape")
}

#[cfg(test)]
mod tests {
    use super::{address_fault, tolerant_version, uri_fault};

    #[test]
    fn versions_are_read_with_tolerance() {
        for (text, expected) in [
            ("1.25", Some("1.25.0")),
            (" v1 ", Some("1.0.0")),
            ("01.002.3", Some("1.2.3")),
            ("1.0.0-rc.1", Some("1.0.0-rc.1")),
            ("1.0-rc.1", None),
            ("", None),
            ("x", None),
        ] {
            let found = tolerant_version(text).map(|version| version.to_string());
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn addresses_and_pages_are_distinguished_from_other_text() {
        for (text, good) in [
            ("a@b.example", true),
            ("A Name <a.b+c@d>", true),
            ("a@[127.0.0.1]", true),
            ("nobody", false),
            ("a b@c", false),
            ("a@", false),
            ("<a@b", false),
        ] {
            assert_eq!(address_fault(text).is_none(), good, "{text:?}");
        }
        for (text, good) in [
            ("https://a.example/b?c#d", true),
            ("/a", true),
            ("mailto:a@b", true),
            ("https//a.example", false),
            ("a.example", false),
            ("https://a b/", false),
            ("https://a:x/", false),
            ("https://a/%zz", false),
            ("", false),
        ] {
            assert_eq!(uri_fault(text).is_none(), good, "{text:?}");
        }
    }
}
