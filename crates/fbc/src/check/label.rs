//! The names that Kubernetes allows for parts of an API.

use olm_text::names::{is_dns1035_label, is_label};

/// Whether `name` can be an API group.
pub(super) fn is_group(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Whether `name` can be an API version. A kind follows the same rule without regard to letter case.
pub(super) fn is_version(name: &str) -> bool {
    name.len() <= 63 && is_dns1035_label(name)
}

#[cfg(test)]
mod tests {
    use super::{is_group, is_version};

    #[test]
    fn groups_have_dots_and_versions_begin_with_a_letter() {
        assert!(is_group("a.3b-c") && !is_group("a..b") && !is_group("") && !is_group("A"));
        assert!(is_version("v1beta1") && !is_version("1v") && !is_version("v1.0"));
    }
}
