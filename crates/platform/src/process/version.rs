//! The version of this binary.

/// Facts about the sources, from the environment of the build: builds of the same sources stay the same, and a build
/// without these facts is not repeated with each commit.
const OF_BUILD: [(&str, Option<&str>); 3] = [
    ("commit", option_env!("OLM_BUILD_COMMIT")),
    ("date", option_env!("OLM_BUILD_DATE")),
    ("state", option_env!("OLM_BUILD_STATE")),
];

/// The line that the subcommand `version` of a manager prints, in the form of the reference implementation: a fact that
/// the build does not set is `unknown`.
pub fn line(version: &str) -> String {
    let facts = OF_BUILD.map(|(what, value)| (what, value.or(Some("unknown"))));
    fields(version, &facts)
}

/// The line for people, without unknown fields.
pub fn known(version: &str) -> String {
    fields(version, &OF_BUILD)
}

/// The version and the known facts about the sources, each after its name.
pub fn facts(version: &str) -> impl Iterator<Item = (&'static str, &str)> {
    let known = OF_BUILD
        .into_iter()
        .filter_map(|(what, value)| Some((what, value?)));
    std::iter::once(("version", version)).chain(known)
}

fn fields(version: &str, of_build: &[(&str, Option<&str>)]) -> String {
    let known = of_build
        .iter()
        .filter_map(|(what, value)| Some((what, (*value)?)));
    known.fold(format!("version: \"{version}\""), |line, (what, value)| {
        format!("{line}, {what}: \"{value}\"")
    })
}

#[cfg(test)]
mod tests {
    use super::{fields, line};

    #[test]
    fn people_see_known_fields_and_programs_get_every_field() {
        let commit = ("commit", Some("abc"));
        for (facts, expected) in [
            (&[("commit", None)][..], "version: \"1.2.3\""),
            (&[commit, ("date", None)], "version: \"1.2.3\", commit: \"abc\""),
        ] {
            assert_eq!(fields("1.2.3", facts), expected);
        }
        let line = line("1.2.3");
        for field in ["version: \"1.2.3\"", ", commit: \"", ", date: \"", ", state: \""] {
            assert!(line.contains(field), "{line}");
        }
    }
}
