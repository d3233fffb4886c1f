//! The requests to the API server by user, from its audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::{Context as _, Result};
use olm_api::names;
use serde_json::Value;

use crate::world::CLASSIC_NAMESPACE;

/// User → verb → number of requests.
pub(super) type Requests = BTreeMap<String, BTreeMap<String, usize>>;

/// The end of the log, to count from there on.
pub(super) fn end(log: &Path) -> Result<u64> {
    Ok(std::fs::metadata(log).context("there is no audit log")?.len())
}

/// The requests that the programs made after `start`, under their own accounts and under those for content.
pub(super) fn since(log: &Path, start: u64) -> Result<Requests> {
    let mut file = File::open(log).context("there is no audit log")?;
    file.seek(SeekFrom::Start(start))?;
    let mut requests = Requests::new();
    for line in BufReader::new(file).lines() {
        // The last line may still be written.
        let Ok(event) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        // Watches occur twice, when they begin and when they end.
        if text("/verb") == "watch" && text("/stage") != "ResponseStarted" {
            continue;
        }
        if let Some(who) = who(text("/user/username"), text("/userAgent")) {
            *requests
                .entry(who)
                .or_default()
                .entry(text("/verb").to_owned())
                .or_default() += 1;
        }
    }
    Ok(requests)
}

/// The program and the account of a client, if it is one of ours.
fn who(user: &str, agent: &str) -> Option<String> {
    let account = user.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = account.split_once(':')?;
    let agent = agent.split(['/', ' ']).next().unwrap_or_default();
    if [names::SYSTEM_NAMESPACE, CLASSIC_NAMESPACE].contains(&namespace) {
        return Some(format!(
            "`{}`, own account",
            if agent.is_empty() { name } else { agent }
        ));
    }
    let agent = if agent.is_empty() { "no user agent" } else { agent };
    (name == super::extensions::ACCOUNT).then(|| format!("`{agent}`, accounts of the extensions"))
}

/// The requests as `12 get, 3 list`.
pub(super) fn describe(verbs: &BTreeMap<String, usize>) -> String {
    let total: usize = verbs.values().sum();
    let verbs: Vec<String> = verbs
        .iter()
        .map(|(verb, count)| format!("{count} {verb}"))
        .collect();
    format!("{total}: {}", verbs.join(", "))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn only_the_managers_requests_are_counted_and_watches_once() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        writeln!(
            log,
            r#"{{"verb":"get","user":{{"username":"system:serviceaccount:olmv1-system:x"}}}}"#
        )
        .unwrap();
        let start = end(log.path()).unwrap();
        for (verb, stage, user, agent) in [
            (
                "get",
                "ResponseComplete",
                "olmv1-system:catalogd-controller-manager",
                "catalogd/0.1.0",
            ),
            (
                "get",
                "ResponseComplete",
                "olmv1-system:catalogd-controller-manager",
                "catalogd/0.1.0",
            ),
            (
                "watch",
                "ResponseStarted",
                "olmv1-system:catalogd-controller-manager",
                "catalogd/0.1.0",
            ),
            (
                "watch",
                "ResponseComplete",
                "olmv1-system:catalogd-controller-manager",
                "catalogd/0.1.0",
            ),
            ("patch", "ResponseComplete", "bench-01:bench-installer", ""),
            (
                "list",
                "ResponseComplete",
                "kube-system:job-controller",
                "kube-controller-manager",
            ),
        ] {
            let user = format!("system:serviceaccount:{user}");
            let event = serde_json::json!({
                "verb": verb, "stage": stage, "userAgent": agent, "user": { "username": user },
            });
            writeln!(log, "{event}").unwrap();
        }
        write!(log, "{{\"verb\":").unwrap();
        let found = since(log.path(), start).unwrap();
        let found: Vec<(&str, String)> = found
            .iter()
            .map(|(who, verbs)| (who.as_str(), describe(verbs)))
            .collect();
        assert_eq!(
            found,
            [
                ("`catalogd`, own account", "3: 2 get, 1 watch".to_owned()),
                (
                    "`no user agent`, accounts of the extensions",
                    "1: 1 patch".to_owned()
                ),
            ]
        );
    }
}
