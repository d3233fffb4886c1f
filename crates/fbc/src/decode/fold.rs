//! Case folding of JSON keys.

use std::borrow::Cow;

/// `key` with the differences of letter case removed, so that `Schema`, `SCHEMA` and `ſchema` become equal.
pub(crate) fn fold(key: &str) -> Cow<'_, str> {
    if key
        .bytes()
        .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
    {
        return Cow::Borrowed(key);
    }
    if key.is_ascii() {
        return Cow::Owned(key.to_ascii_lowercase());
    }
    // Upper case first: only that brings together the long s, the final sigma and the like. The dotless i has the
    // upper case of i without being another spelling of it.
    let mut folded = String::with_capacity(key.len());
    for letter in key.chars() {
        if letter == 'ı' {
            folded.push(letter);
        } else {
            folded.extend(letter.to_uppercase().flat_map(char::to_lowercase));
        }
    }
    Cow::Owned(folded)
}

#[cfg(test)]
mod tests {
    use super::fold;

    fn check(left: &str, right: &str, expected: bool) {
        assert_eq!(fold(left) == fold(right), expected, "{left} and {right}");
    }

    #[test]
    fn keys_that_differ_in_case_only_fold_together() {
        check("schema", "Schema", true);
        check("schema", "ſchema", true);
        check("straße", "STRASSE", true);
        check("Σ", "ς", true);
        check("K", "\u{212a}", true);
        check("i", "ı", false);
        check("schema", "schemas", false);
    }
}
