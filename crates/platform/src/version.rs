//! What this binary is.

/// The line that the subcommand `version` prints.
///
/// `commit` and `date` come from the environment of the build (`OLM_BUILD_COMMIT`, `OLM_BUILD_DATE`), so that a build
/// of the same sources is the same.
pub fn line(version: &str) -> String {
    let or_unknown = |value: Option<&'static str>| value.unwrap_or("unknown");
    format!(
        "version: \"{version}\", commit: \"{}\", date: \"{}\", state: \"{}\"",
        or_unknown(option_env!("OLM_BUILD_COMMIT")),
        or_unknown(option_env!("OLM_BUILD_DATE")),
        or_unknown(option_env!("OLM_BUILD_STATE")),
    )
}
