//! The texts of conditions that both the plan and the report know.

/// The message of `Progressing` after success, fixed by the reference.
pub(super) const UNPACKED: &str = "Successfully unpacked and stored content from resolved source";
/// The message of `Serving` while content is served, fixed by the reference.
pub(super) const SERVING: &str = "Serving desired content from resolved source";

/// The message of `Ready` after success, with a note about an annotation that is not used.
pub(super) fn ready(note: Option<&str>) -> String {
    with_note(SERVING, note)
}

/// A message with a note behind it.
pub(super) fn with_note(message: &str, note: Option<&str>) -> String {
    note.map_or_else(|| message.to_owned(), |note| format!("{message}; {note}"))
}
