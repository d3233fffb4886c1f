//! Names of generated objects.
//!
//! They are part of the contract: a cluster that moves over from the reference implementation must find its objects
//! under the same names, including its off-by-one.

use sha2::{Digest as _, Sha224};

use crate::csv::{PolicyRule, StrategyPermissions};

/// The intended maximum length of a name.
const MAX_NAME: usize = 63;
/// The maximum length of a Service's name.
const MAX_SERVICE_NAME: usize = 63;
const SERVICE_SUFFIX: &str = "service";

/// `base-suffix`, with a shortened base if both together are longer than 63.
///
/// The hyphen is not counted, so a base and suffix of exactly 63 give a name of 64. A trailing `.` or `-` of the
/// shortened base stays. Both hold in every existing cluster.
#[must_use]
pub(crate) fn join_name(base: &str, suffix: &str) -> String {
    let base = if base.len() + suffix.len() > MAX_NAME {
        let mut end = MAX_NAME.saturating_sub(suffix.len() + 1).min(base.len());
        while !base.is_char_boundary(end) {
            end -= 1;
        }
        base.get(..end).unwrap_or_default()
    } else {
        base
    };
    format!("{base}-{suffix}")
}

/// The name of the Service in front of a deployment's webhooks and aggregated APIs.
///
/// If the name of the reference implementation is invalid (64 characters, or a leading digit), ours has the smallest
/// possible change.
#[must_use]
pub fn service_name(deployment: &str) -> String {
    let base = deployment.replace('.', "-");
    let name = join_name(&base, SERVICE_SUFFIX);
    let digit = name.starts_with(|first: char| first.is_ascii_digit());
    if name.len() <= MAX_SERVICE_NAME && !digit {
        return name;
    }
    let base = if digit { format!("s-{base}") } else { base };
    let length = MAX_SERVICE_NAME - SERVICE_SUFFIX.len() - 1;
    let base: String = base.chars().take(length).collect();
    format!("{}-{SERVICE_SUFFIX}", base.trim_end_matches('-'))
}

/// The name of the role and binding for a permission: the base and a hash of the permission.
#[must_use]
pub fn permission_name(base: &str, permission: &StrategyPermissions) -> String {
    join_name(base, &permission_hash(permission))
}

/// The base-36 form of the SHA-224 of the permission's JSON, as Go's encoder writes it with a final newline.
fn permission_hash(permission: &StrategyPermissions) -> String {
    let mut text = String::from("{\"serviceAccountName\":");
    text.push_str(&go_json(&permission.service_account_name));
    text.push_str(",\"rules\":");
    match &permission.rules {
        None => text.push_str("null"),
        Some(rules) => {
            text.push('[');
            for (index, rule) in rules.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_rule(&mut text, rule);
            }
            text.push(']');
        }
    }
    text.push_str("}\n");
    base36(&Sha224::digest(text.as_bytes()))
}

fn push_rule(text: &mut String, rule: &PolicyRule) {
    text.push_str("{\"verbs\":");
    text.push_str(&rule.verbs.as_ref().map_or_else(|| "null".to_owned(), go_json));
    for (field, values) in rule.limits() {
        text.push_str(",\"");
        text.push_str(field);
        text.push_str("\":");
        text.push_str(&go_json(values));
    }
    text.push('}');
}

/// JSON as Go writes it: compact, with `<`, `>`, `&` and the two Unicode line separators escaped. Map entries keep
/// the order they have.
#[must_use]
pub fn go_json(value: &impl serde::Serialize) -> String {
    let plain = serde_json::to_string(value).unwrap_or_default();
    let mut escaped = String::with_capacity(plain.len());
    // These characters occur in JSON text only inside strings.
    for character in plain.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A big-endian number in base 36, digits `0-9a-z`, without leading zeros.
fn base36(bytes: &[u8]) -> String {
    let mut number = bytes.to_vec();
    let mut digits = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut remainder = 0_u32;
        for byte in &mut number {
            let value = (remainder << 8) | u32::from(*byte);
            *byte = u8::try_from(value / 36).unwrap_or(u8::MAX);
            remainder = value % 36;
        }
        digits.push(char::from_digit(remainder, 36).unwrap_or('0'));
    }
    if digits.is_empty() {
        digits.push('0');
    }
    digits.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(account: &str, rules: &str) -> StrategyPermissions {
        StrategyPermissions {
            service_account_name: account.to_owned(),
            rules: serde_json::from_str(rules).expect("rules"),
        }
    }

    #[test]
    fn the_permission_hash_is_the_one_the_reference_writes() {
        let write = r#""get","list","watch","create","update","patch","delete""#;
        let rules = format!(
            r#"[{{"verbs":[{write}],"apiGroups":[""],"resources":["configmaps"]}},
                {{"verbs":[{write}],"apiGroups":["coordination.k8s.io"],"resources":["leases"]}},
                {{"verbs":["create","patch"],"apiGroups":[""],"resources":["events"]}},
                {{"verbs":["get","list","watch"],"apiGroups":[""],"resources":["namespaces"]}}]"#
        );
        let account = "webhook-operator-controller-manager";
        assert_eq!(
            permission_name(
                &format!("webhook-operator.v0.0.5-{account}"),
                &permission(account, &rules)
            ),
            "webhook-operator.v-1zfvwth88plw3th2midra1jqduroo1q7omiagjujsiu3"
        );
    }

    /// The name contains `default`, but the hash covers the permission as written.
    #[test]
    fn the_hash_of_a_permission_without_an_account_is_over_an_empty_name() {
        let rules = r#"[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]"#;
        let name = |account: &str| permission_name("backup.v1-default", &permission(account, rules));
        assert_eq!(
            name(""),
            "backup.v1-default-nzvb3zwx13bo1wsnj9o549rri6w6zwgjkd9ihzcrq24"
        );
        assert_eq!(
            name("default"),
            "backup.v1-default-306176509wgfj7usxw1ahyo6j2sj81mc4f3fjemiu4jw"
        );
    }

    #[test]
    fn a_missing_list_of_rules_differs_from_an_empty_one() {
        assert_ne!(
            permission_name("a", &permission("s", "null")),
            permission_name("a", &permission("s", "[]"))
        );
    }

    #[test]
    fn names_are_cut_to_63_but_for_the_one_that_is_64() {
        let check = |base: usize, suffix: usize, expected: usize| {
            assert_eq!(
                join_name(&"b".repeat(base), &"s".repeat(suffix)).len(),
                expected,
                "{base} and {suffix}"
            );
        };
        check(10, 20, 31);
        check(42, 20, 63);
        check(43, 20, 64);
        check(44, 20, 63);
        check(100, 20, 63);
        check(3, 70, 71);
    }

    #[test]
    fn numbers_are_written_in_base_36() {
        let check = |bytes: &[u8], expected: &str| assert_eq!(base36(bytes), expected);
        check(&[0], "0");
        check(&[35], "z");
        check(&[36], "10");
        check(&[0, 1, 0], "74");
    }

    #[test]
    fn json_is_escaped_as_go_does() {
        assert_eq!(
            go_json(&"<a>&\u{2028}\"\n"),
            "\"\\u003ca\\u003e\\u0026\\u2028\\\"\\n\""
        );
    }
}
