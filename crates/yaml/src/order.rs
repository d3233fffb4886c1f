//! The order of written keys: numbers inside names count as numbers.

use std::cmp::Ordering;

fn number(text: &[char], from: usize, start: u64) -> (u64, usize) {
    let mut value = start;
    let mut at = from;
    while let Some(digit) = text.get(at).and_then(|character| character.to_digit(10)) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (value, at)
}

/// Compares two keys: letters after all other characters, runs of digits by their value, otherwise by code point.
fn compare(left: &str, right: &str) -> Ordering {
    if left == right {
        return Ordering::Equal;
    }
    if left
        .bytes()
        .chain(right.bytes())
        .all(|byte| byte.is_ascii_alphabetic())
    {
        return left.cmp(right);
    }
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    for (at, (a, b)) in left.iter().zip(&right).enumerate() {
        if a == b {
            continue;
        }
        match (a.is_alphabetic(), b.is_alphabetic()) {
            (true, true) => return a.cmp(b),
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        // A zero inside a number that has already begun is a digit like any other.
        let begun = (*a == '0' || *b == '0')
            && left
                .get(..at)
                .unwrap_or_default()
                .iter()
                .rev()
                .take_while(|character| character.is_ascii_digit())
                .any(|character| *character != '0');
        let (a_number, a_end) = number(&left, at, u64::from(begun));
        let (b_number, b_end) = number(&right, at, u64::from(begun));
        return a_number.cmp(&b_number).then(a_end.cmp(&b_end)).then(a.cmp(b));
    }
    left.len().cmp(&right.len())
}

/// Sorts entries by their keys.
///
/// The order is not transitive (`a10` before `a1b` before `a2` before `a10`), so the sort of the standard library may
/// panic. A merge of neighbours does not, and starts from the order of code points, so that the result depends only on
/// the keys.
pub(crate) fn sort_by_key<V: Copy>(mut entries: Vec<(&str, V)>) -> Vec<(&str, V)> {
    entries.sort_unstable_by_key(|(key, _)| *key);
    let mut width = 1;
    while width < entries.len() {
        let mut merged = Vec::with_capacity(entries.len());
        for pair in entries.chunks(2 * width) {
            let (left, right) = pair.split_at_checked(width).unwrap_or((pair, &[]));
            let mut left = left.iter().copied().peekable();
            let mut right = right.iter().copied().peekable();
            while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
                let next = if compare(a.0, b.0).is_le() {
                    left.next()
                } else {
                    right.next()
                };
                merged.extend(next);
            }
            merged.extend(left);
            merged.extend(right);
        }
        entries = merged;
        width *= 2;
    }
    entries
}
