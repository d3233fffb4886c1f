//! Tables for people: columns padded with blanks.

use std::borrow::Cow;

use olm_api::text::escape;

/// The rows under their heads, two blanks between the columns and none at the end of a line.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    // Text of a catalog must not contain control characters for the terminal.
    let rows: Vec<Vec<Cow<'_, str>>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| escape(cell)).collect())
        .collect();
    let heads: Vec<Cow<'_, str>> = heads.iter().map(|head| Cow::Borrowed(*head)).collect();
    let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(&rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line.push_str(cell);
            let padding = width + 2 - cell.chars().count().min(*width);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
