//! The names that Kubernetes allows, with its own words for what is wrong with a name.

const LONG_LABEL: &str = "must be no more than 63 characters";

/// Whether a text is an RFC 1123 label, regardless of its length.
pub fn is_label(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Whether a text is a DNS-1035 label, regardless of its length: an RFC 1123 label that begins with a letter.
pub fn is_dns1035_label(text: &str) -> bool {
    is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// The faults of a text as an RFC 1123 label; empty if it is one.
pub fn label_faults(text: &str) -> Vec<&'static str> {
    let wrong = if text.split('.').all(is_label) {
        "must not contain dots"
    } else {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
         with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    };
    faults(text.len() > 63, LONG_LABEL, is_label(text), wrong)
}

/// The faults of a text as a DNS-1035 label; empty if it is one.
pub fn dns1035_label_faults(text: &str) -> Vec<&'static str> {
    let wrong = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    faults(text.len() > 63, LONG_LABEL, is_dns1035_label(text), wrong)
}

/// The faults of a text as an RFC 1123 subdomain, such as the name of an object; empty if it is one.
pub fn subdomain_faults(text: &str) -> Vec<&'static str> {
    let long = "must be no more than 253 characters";
    let wrong = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    faults(text.len() > 253, long, text.split('.').all(is_label), wrong)
}

/// The faults of a text as the value of a label; empty if it is valid.
pub fn label_value_faults(text: &str) -> Vec<&'static str> {
    let ends = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_valid = text.bytes().all(inner) && ends(text.bytes().next()) && ends(text.bytes().last());
    let wrong = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                 for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    faults(text.len() > 63, LONG_LABEL, is_valid, wrong)
}

/// The faults in the order of Kubernetes: the length first.
fn faults(is_long: bool, long: &'static str, is_valid: bool, wrong: &'static str) -> Vec<&'static str> {
    let both = [(is_long, long), (!is_valid, wrong)];
    both.into_iter()
        .filter_map(|(applies, fault)| applies.then_some(fault))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_lower_case_and_without_dots() {
        assert_eq!(label_faults("3scale-x"), [""; 0]);
        assert_eq!(label_faults("a.b"), ["must not contain dots"]);
        assert_eq!(label_faults(&"a".repeat(64)), [LONG_LABEL]);
        assert_eq!(label_faults(&"A".repeat(64)).len(), 2);
        for name in ["", "A", "-a", "a-", "a_b", "a..b"] {
            let faults = label_faults(name).concat();
            assert!(faults.starts_with("a lowercase RFC 1123 label"), "{name}");
        }
    }

    #[test]
    fn the_grammars_differ() {
        for (text, dns1035, value) in [
            ("a-1", true, true),
            ("1a", false, true),
            ("a_b.C", false, true),
            ("a-", false, false),
            ("", false, true),
        ] {
            assert_eq!(dns1035_label_faults(text).is_empty(), dns1035, "{text:?}");
            assert_eq!(is_dns1035_label(text), dns1035, "{text:?}");
            assert_eq!(label_value_faults(text).is_empty(), value, "{text:?}");
        }
    }

    #[test]
    fn subdomains_are_distinguished_from_other_text() {
        for good in [
            "a",
            "operatorhubio",
            "a-b.c1",
            "1.2.3",
            "0.example.com",
            &"a".repeat(253),
        ] {
            assert!(subdomain_faults(good).is_empty(), "{good}");
        }
        for bad in [
            "", ".", "..", "A", "a_b", "-a", "a-", "a..b", "a.", "../a", "a/b", "é",
        ] {
            assert_eq!(subdomain_faults(bad).len(), 1, "{bad}");
        }
        let long = ["must be no more than 253 characters"];
        assert_eq!(subdomain_faults(&"a".repeat(254)), long);
        assert_eq!(subdomain_faults(&"-".repeat(254)).len(), 2);
    }
}
