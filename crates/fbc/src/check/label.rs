//! The names that Kubernetes allows.

/// The faults of `name` as an RFC 1123 label; empty if it is valid.
pub(super) fn label_faults(name: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if name.len() > 63 {
        faults.push("must be no more than 63 characters");
    }
    if !is_label(name) {
        faults.push(if name.split('.').all(is_label) {
            "must not contain dots"
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        });
    }
    faults
}

/// Whether `name` is an RFC 1123 label, regardless of its length.
pub fn is_label(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('-')
        && !name.ends_with('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Whether `name` can be an API group.
pub(super) fn is_group(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Whether `name` can be an API version. A kind follows the same rule without regard to letter case.
pub(super) fn is_version(name: &str) -> bool {
    name.len() <= 63 && is_label(name) && name.starts_with(|first: char| first.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::{is_group, is_version, label_faults};

    #[test]
    fn labels_are_short_lower_case_and_without_dots() {
        assert_eq!(label_faults("3scale-x"), [""; 0]);
        assert_eq!(label_faults("a.b"), ["must not contain dots"]);
        assert_eq!(
            label_faults(&"a".repeat(64)),
            ["must be no more than 63 characters"]
        );
        assert_eq!(label_faults(&"A".repeat(64)).len(), 2);
        for name in ["", "A", "-a", "a-", "a_b", "a..b"] {
            assert!(
                label_faults(name)
                    .concat()
                    .starts_with("a lowercase RFC 1123 label"),
                "{name}"
            );
        }
    }

    #[test]
    fn groups_have_dots_and_versions_begin_with_a_letter() {
        assert!(is_group("a.3b-c") && !is_group("a..b") && !is_group("") && !is_group("A"));
        assert!(is_version("v1beta1") && !is_version("1v") && !is_version("v1.0"));
    }
}
