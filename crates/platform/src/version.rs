//! What this binary is.

/// The line that the subcommand `version` prints: the version, and of commit, date and state of the sources what the build
/// was told.
///
/// The build is told by its environment (`OLM_BUILD_COMMIT`, `OLM_BUILD_DATE`, `OLM_BUILD_STATE`), so that a build of the
/// same sources is the same, and one that is told nothing is not made again with each commit.
pub fn line(version: &str) -> String {
    told(
        version,
        [
            ("commit", option_env!("OLM_BUILD_COMMIT")),
            ("date", option_env!("OLM_BUILD_DATE")),
            ("state", option_env!("OLM_BUILD_STATE")),
        ],
    )
}

fn told(version: &str, of_build: [(&str, Option<&str>); 3]) -> String {
    let known = of_build
        .into_iter()
        .filter_map(|(what, value)| Some((what, value.filter(|value| !value.is_empty())?)));
    known.fold(format!("version: \"{version}\""), |line, (what, value)| {
        format!("{line}, {what}: \"{value}\"")
    })
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn only_what_the_build_was_told_is_said() {
        let check = |commit, date, expected: &str| {
            let told = told("1.2.3", [("commit", commit), ("date", date), ("state", None)]);
            assert_eq!(told, expected);
        };
        check(None, Some(""), "version: \"1.2.3\"");
        check(
            Some("abc"),
            Some("2026-01-02"),
            "version: \"1.2.3\", commit: \"abc\", date: \"2026-01-02\"",
        );
    }
}
