//! The texts of conditions that both the plan and the report know.

/// The message of `Progressing` after success, fixed by the reference.
pub(super) const UNPACKED: &str = "Successfully unpacked and stored content from resolved source";

/// The message of `Progressing` after success, with a note about an annotation that is not used.
pub(super) fn succeeded(note: Option<&str>) -> String {
    with_note(UNPACKED, note)
}

/// A message with a note behind it.
pub(super) fn with_note(message: &str, note: Option<&str>) -> String {
    note.map_or_else(|| message.to_owned(), |note| format!("{message}; {note}"))
}
