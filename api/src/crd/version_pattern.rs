//! The regular expressions for `spec.source.catalog.version`.

/// Two regular expressions (RE2) that together accept exactly the grammar of version ranges, so that a range that
/// passes admission never fails later. Classes such as `\s` mean ASCII, as in RE2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionPattern {
    /// The pattern that a version range must match.
    pub accepted: String,
    /// The pattern that a version range must not match: it finds a separator at the start, and numbers that exceed 64
    /// bits.
    pub refused: String,
}

/// The regular expressions for `spec.source.catalog.version`.
pub fn version_pattern() -> VersionPattern {
    let wildcard = "[xX*]";
    let number = "[0-9]+";
    // The parts after a wildcard are not checked.
    let anything = "[0-9xX*]+";
    let core = format!(
        r"v?(?:{wildcard}(?:\.{anything}){{0,2}}|{number}(?:\.(?:{wildcard}(?:\.{anything})?|{number}(?:\.(?:{wildcard}|{number}))?))?)"
    );
    let identifier = "(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)";
    let build = r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?";
    let version = format!(r"{core}(?:-{identifier}(?:\.{identifier})*)?{build}");
    let operator = r"(?:!=|[<>]=?|=[<>]?|~>?|\^)";
    let term = format!(r"{operator}?\s*{version}");
    // A range with a hyphen stands at the start, after a comma, after two bars, or after another such range.
    let range = format!(r"{version}\s+-\s+{version}");
    let accepted = format!(r"^(?:(?:^\s*|\s*(?:,|\|\|)\s*)(?:{range}(?:\s+{range})*|{term})|\s+{term})+\s*$");
    let refused = format!(
        r"^\s*[,|]|(?:^|[\s,|!=<>~^])v?(?:[0-9]+\.){{0,2}}0*(?:{})",
        above_u64()
    );
    VersionPattern { accepted, refused }
}

/// A number without leading zeros that does not fit 64 bits.
fn above_u64() -> String {
    let most = u64::MAX.to_string();
    let mut alternatives = vec![format!("[1-9][0-9]{{{},}}", most.len())];
    for (i, digit) in most.char_indices() {
        let (before, rest) = (most.get(..i).unwrap_or_default(), most.len() - i - 1);
        let Some(above) = digit.to_digit(10).map(|d| d + 1).filter(|d| *d <= 9) else {
            continue;
        };
        let digits = if above == 9 {
            "9".to_owned()
        } else {
            format!("[{above}-9]")
        };
        let tail = if rest == 0 {
            String::new()
        } else {
            format!("[0-9]{{{rest}}}")
        };
        alternatives.push(format!("{before}{digits}{tail}"));
    }
    alternatives.join("|")
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_above_64_bits_are_listed_completely() {
        let pattern = super::above_u64();
        assert!(
            pattern.starts_with("[1-9][0-9]{20,}|[2-9][0-9]{19}|19[0-9]{18}|18[5-9][0-9]{17}|"),
            "{pattern}"
        );
        assert!(pattern.ends_with("|1844674407370955161[6-9]"), "{pattern}");
    }
}
