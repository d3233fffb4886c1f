//! Tables for people: columns padded with blanks.

/// The rows under their heads, two blanks between the columns and none at the end of a line.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            // What a catalog says must not reach the terminal as a command.
            let cell: String = cell
                .chars()
                .map(|letter| if letter.is_control() { ' ' } else { letter })
                .collect();
            line.push_str(&cell);
            let padding = width + 2 - cell.chars().count().min(*width);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
