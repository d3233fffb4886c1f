//! Masks for what differs between two runs of a command: times, identifiers, digests and addresses.

use std::net::SocketAddr;

use jiff::Timestamp;

/// The output without what differs between two runs.
pub fn masked(text: &str) -> String {
    text.lines().map(|line| masked_line(line) + "\n").collect()
}

fn masked_line(line: &str) -> String {
    // Progress begins with padded seconds.
    if line.starts_with(' ')
        && let Some((first, rest)) = line.trim_start().split_once("  ")
        && is_age(first)
    {
        return format!("   Ns  {}", masked_line(rest));
    }
    let mut masked = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let mask = mask(word, &masked);
        // Columns keep their place.
        let lost = word.len().saturating_sub(mask.len());
        masked.push_str(&mask);
        if is_age(word) && after.starts_with("  ") {
            masked.extend(std::iter::repeat_n(' ', lost));
        }
        let next = after.chars().next();
        masked.extend(next);
        rest = after.get(next.map_or(0, char::len_utf8)..).unwrap_or_default();
    }
    masked
}

/// Whether a character is part of a word.
fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '-' | '+')
}

fn mask(word: &str, before: &str) -> String {
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && before.ends_with("after ") {
        return "N".to_owned();
    }
    if is_age(word) {
        return "Ns".to_owned();
    }
    if word.parse::<Timestamp>().is_ok() {
        return "TIME".to_owned();
    }
    if word.parse::<SocketAddr>().is_ok() {
        return "ADDRESS".to_owned();
    }
    if word.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64) {
        return "sha256:DIGEST".to_owned();
    }
    let groups: Vec<usize> = word.split('-').map(str::len).collect();
    if groups == [8, 4, 4, 4, 12] {
        return "UID".to_owned();
    }
    if let Some((name, suffix)) = word.rsplit_once('-')
        && suffix.len() == 12
        && suffix.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return format!("{name}-DIGEST");
    }
    word.to_owned()
}

/// Whether a word is a time such as `12s` or `3m`.
fn is_age(word: &str) -> bool {
    let number = word.strip_suffix(['s', 'm']).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn what_differs_between_two_runs_is_masked() {
        for (text, expected) in [
            (
                "   0s  revision vase-1 created",
                "   Ns  revision vase-1 created\n",
            ),
            ("vase is ready after 12 s", "vase is ready after N s\n"),
            ("12s        Normal  Installed", "Ns         Normal  Installed\n"),
            ("9s         Normal  Installed", "Ns         Normal  Installed\n"),
            ("1  2026-11-26T09:00:00Z  -", "1  TIME  -\n"),
            (
                "127.0.0.1:43211/vase-bundle:v1.0.0",
                "ADDRESS/vase-bundle:v1.0.0\n",
            ),
            ("uid: 01234567-89ab-cdef-0123-456789abcdef", "uid: UID\n"),
            ("pendingchange/vase-53a9f1fb29dc", "pendingchange/vase-DIGEST\n"),
        ] {
            assert_eq!(masked(text), expected);
        }
        let digest = format!("a@sha256:{}, b", "0f".repeat(32));
        assert_eq!(masked(&digest), "a@sha256:DIGEST, b\n");
    }
}
