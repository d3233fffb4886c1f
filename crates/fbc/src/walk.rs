//! The order in which the files of a catalog are read.

use std::cmp::Ordering;

/// Compares two paths, `/` between their parts, by the order in which a catalog is walked: directory by directory,
/// each in the order of its names. `a/1.yaml` comes before `a-b.yaml`, which comes before `a.yaml`.
pub fn walk_order(left: &str, right: &str) -> Ordering {
    left.split('/').cmp(right.split('/'))
}

#[cfg(test)]
mod tests {
    use super::walk_order;

    #[test]
    fn directories_are_walked_where_their_name_stands() {
        let mut paths = ["b", "a.yaml", "a-b.yaml", "a/b/c", "a/1.yaml", "a/b"];
        paths.sort_by(|left, right| walk_order(left, right));
        assert_eq!(paths, ["a/1.yaml", "a/b", "a/b/c", "a-b.yaml", "a.yaml", "b"]);
    }
}
