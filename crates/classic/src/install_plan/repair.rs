//! A complete plan that makes deleted objects again. It is the record of what is installed, and stays one in any case.

use serde_json::Value;

use crate::cluster::{items, put, text};

/// Whether a plan that was complete makes objects again.
pub fn is_repair(plan: &Value) -> bool {
    let mut conditions = items(plan, "/status/conditions");
    text(plan, "/status/phase") == "Installing"
        && conditions.any(|found| text(found, "/type") == "Installed" && text(found, "/status") == "True")
}

/// The plan, complete as it was before the objects were missing, with the event that says why it ends.
pub fn given_up(plan: &Value, error: &str) -> (Value, (String, String)) {
    let mut plan = plan.clone();
    put(&mut plan, &["status"], "phase", "Complete");
    put(&mut plan, &["status"], "message", "");
    let steps = plan.pointer_mut("/status/plan").and_then(Value::as_array_mut);
    for step in steps.into_iter().flatten() {
        if !matches!(text(step, "/status"), "Created" | "Present") {
            put(step, &[], "status", "Created");
        }
    }
    let note = format!("cannot create deleted objects again: {error}. OLM tries it again in five minutes");
    (plan, ("RepairFailed".to_owned(), note))
}
