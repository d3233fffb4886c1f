//! Transitions between phases.

use serde_json::{Map, Value, json};

/// Most entries of the history of phases.
const MAX_HISTORY: usize = 20;

/// Sets phase, reason and message of a ClusterServiceVersion on the wire at a time in RFC 3339, and adds an entry to
/// its history when phase or reason differ from the last one.
pub fn set_phase(csv: &mut Value, phase: &str, reason: &str, message: &str, now: &str) {
    let Some(csv) = csv.as_object_mut() else {
        return;
    };
    let status = csv.entry("status").or_insert_with(|| json!({}));
    if status.is_null() {
        *status = json!({});
    }
    let Some(status) = status.as_object_mut() else {
        return;
    };
    if status.get("phase").and_then(Value::as_str).unwrap_or_default() != phase {
        status.insert("phase".to_owned(), phase.into());
        status.insert("lastTransitionTime".to_owned(), now.into());
    }
    status.insert("lastUpdateTime".to_owned(), now.into());
    status.insert("reason".to_owned(), reason.into());
    status.insert("message".to_owned(), message.into());
    record(status);
}

fn record(status: &mut Map<String, Value>) {
    let keys = [
        "phase",
        "reason",
        "message",
        "lastUpdateTime",
        "lastTransitionTime",
    ];
    let field = |key: &str| Some((key.to_owned(), status.get(key)?.clone()));
    let entry: Map<String, Value> = keys.into_iter().filter_map(field).collect();
    let history = status.entry("conditions").or_insert_with(|| json!([]));
    if history.is_null() {
        *history = json!([]);
    }
    let Some(history) = history.as_array_mut() else {
        return;
    };
    let is_same = |last: &Value| {
        ["phase", "reason"]
            .iter()
            .all(|key| last.get(key) == entry.get(*key))
    };
    if !history.last().is_some_and(is_same) {
        history.push(Value::Object(entry));
    }
    let excess = history.len().saturating_sub(MAX_HISTORY);
    history.drain(..excess);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_phase_or_reason_makes_history() {
        let mut csv = json!({"status": {"phase": "Pending", "lastTransitionTime": "t0"}});
        set_phase(&mut csv, "Pending", "A", "first", "t1");
        set_phase(&mut csv, "Pending", "A", "second", "t2");
        set_phase(&mut csv, "Failed", "A", "third", "t3");
        let status = &csv["status"];
        assert_eq!(status["message"], "third");
        assert_eq!(status["lastTransitionTime"], "t3");
        let history = status["conditions"].as_array().unwrap();
        assert_eq!(history.len(), 2);
        assert_eq!(history[0]["message"], "first");
        assert_eq!(history[0]["lastTransitionTime"], "t0");
    }

    #[test]
    fn history_keeps_the_last_twenty() {
        let mut csv = json!({});
        for count in 0..30 {
            set_phase(&mut csv, "Pending", &format!("R{count}"), "", "t");
        }
        let history = csv["status"]["conditions"].as_array().unwrap();
        assert_eq!(history.len(), 20);
        assert_eq!(history[19]["reason"], "R29");
    }
}
