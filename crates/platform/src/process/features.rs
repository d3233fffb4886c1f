//! Feature gates: `--feature-gates=A=true,B=false`.

use std::collections::BTreeMap;

/// The gates of a program, with their defaults and the settings of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGates {
    gates: BTreeMap<&'static str, bool>,
    /// Settings with an unknown gate or an invalid value. They cause a warning, never an error, so that a command line
    /// for another version still starts.
    pub ignored: Vec<String>,
}

impl FeatureGates {
    /// Reads repeated, comma-separated `NAME=BOOL` settings over the known gates.
    pub fn parse(known: &[(&'static str, bool)], settings: &[String]) -> Self {
        let mut gates: BTreeMap<&'static str, bool> = known.iter().copied().collect();
        let mut ignored = Vec::new();
        for setting in settings
            .iter()
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .filter(|s| !s.is_empty())
        {
            let parsed = setting
                .split_once('=')
                .and_then(|(name, value)| Some((name.trim(), truth(value.trim())?)));
            match parsed.and_then(|(name, value)| Some((gates.get_mut(name)?, value))) {
                Some((gate, value)) => *gate = value,
                None => ignored.push(setting.to_owned()),
            }
        }
        Self { gates, ignored }
    }

    /// Whether a gate is on. An undeclared gate is off.
    pub fn enabled(&self, name: &str) -> bool {
        self.gates.get(name).copied().unwrap_or(false)
    }

    /// Logs the ignored settings.
    pub fn warn(&self) {
        for setting in &self.ignored {
            tracing::warn!(setting, known = ?self.gates.keys().collect::<Vec<_>>(), "unknown feature gate setting is ignored");
        }
    }
}

/// Truth values as Go's `strconv.ParseBool` reads them.
fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[(&str, bool)] = &[("Metas", true), ("GraphQL", true)];

    #[test]
    fn settings_override_defaults_and_the_last_one_wins() {
        let gates = FeatureGates::parse(KNOWN, &["Metas=false,GraphQL=true".into(), "GraphQL=F".into()]);
        assert!(!gates.enabled("Metas") && !gates.enabled("GraphQL"));
        assert!(gates.ignored.is_empty());
    }

    #[test]
    fn unknown_and_malformed_gates_lead_to_a_warning_only() {
        let gates = FeatureGates::parse(KNOWN, &["Nope=true, Metas=maybe,GraphQL".into(), String::new()]);
        assert_eq!(gates.ignored, ["Nope=true", "Metas=maybe", "GraphQL"]);
        assert!(gates.enabled("Metas") && gates.enabled("GraphQL") && !gates.enabled("Nope"));
    }
}
