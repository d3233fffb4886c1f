//! The conditions of a bundle lookup, in the words of the Go implementation, which unpacks in Jobs.

use serde_json::{Value, json};

/// The reason why a bundle is not unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnpackFailure {
    /// The cause.
    pub(super) message: String,
    /// Whether the image itself is at fault.
    pub(super) is_final: bool,
}

/// Hint for an administrator about an image that cannot be pulled.
const PULL_HINT: &str = "Check that the image exists, that the pull secrets of the CatalogSource (`spec.secrets`) are valid, \
                         and that the registry can be reached. OLM retries the pull.";
/// Hint for an administrator about an image that is no bundle.
const CONTENT_HINT: &str = "The publisher must fix the bundle.";

/// It is being unpacked; `late` is the image of one that takes longer than allowed.
pub(super) fn running(late: Option<&str>) -> Value {
    match late {
        None => pending("JobIncomplete", "unpack job not completed", ""),
        Some(image) => over(&format!("image {image} is still being pulled"), PULL_HINT),
    }
}

/// The image cannot be pulled yet.
pub(super) fn pulling(failure: &UnpackFailure, image: &str) -> Value {
    let message = format!(
        "unpack job not completed: bundle image {image} is pending. Reason: ImagePullBackOff, Message: {}",
        failure.message
    );
    pending(
        "JobIncomplete",
        &message,
        &format!("Bundle image pull failed. {}. {PULL_HINT}", failure.message),
    )
}

/// It could not be unpacked in time, or never can.
pub(super) fn failed(failure: &UnpackFailure, image: &str) -> Value {
    if failure.is_final {
        let message = format!(
            "Job has reached the specified backoff limit: image {image}: {}",
            failure.message
        );
        return failed_condition("BackoffLimitExceeded", &message, CONTENT_HINT);
    }
    over(&failure.message, PULL_HINT)
}

/// The CatalogSource is gone.
pub(super) fn catalog_missing() -> Value {
    pending("CatalogSourceMissing", "referenced catalogsource not found", "")
}

fn over(why: &str, hint: &str) -> Value {
    let message = format!("Job was active longer than specified deadline: {why}");
    failed_condition("DeadlineExceeded", &message, hint)
}

fn pending(reason: &str, message: &str, hint: &str) -> Value {
    condition("BundleLookupPending", reason, message, hint)
}

fn failed_condition(reason: &str, message: &str, hint: &str) -> Value {
    condition("BundleLookupFailed", reason, message, hint)
}

fn condition(kind: &str, reason: &str, message: &str, hint: &str) -> Value {
    let mut condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
    if let (false, Some(fields)) = (hint.is_empty(), condition.as_object_mut()) {
        fields.insert("hint".to_owned(), hint.into());
    }
    condition
}
