//! Names of catalogs. They are also names of Kubernetes objects and of directories, so they must be RFC 1123
//! subdomains.

/// The longest name of an object, in characters.
const LONGEST: usize = 253;

/// The reasons why a text is not a catalog name, in the words of Kubernetes; empty if it is one.
pub(crate) fn faults(name: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if name.len() > LONGEST {
        faults.push("must be no more than 253 characters");
    }
    if !is_subdomain(name) {
        faults.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        );
    }
    faults
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(|label| {
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = label.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes
                .iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_subdomains_name_catalogs() {
        for name in ["a", "operatorhubio", "a-b.c1", "1.2.3", &"a".repeat(253)] {
            assert!(faults(name).is_empty(), "{name}");
        }
        for name in [
            "", ".", "..", "A", "a_b", "-a", "a-", "a..b", "a.", "../a", "a/b", "ä",
        ] {
            assert_eq!(faults(name).len(), 1, "{name}");
        }
        assert_eq!(faults(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(faults(&"A".repeat(254)).len(), 2);
    }
}
