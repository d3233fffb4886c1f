//! The positions of the blobs of a stored catalog, by schema, package and name.
//!
//! A stored catalog is a sequence of lines, one for each blob. The index contains the length of each line and the
//! identity of the blob. A query is one pass over these facts, or over those of one package, and reads no blob. The
//! index is small: a few bytes for each blob, and each name once.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The filter of a query. An empty field matches everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter<'a> {
    /// The schema.
    pub schema: &'a str,
    /// The value of the blob's own `package`: the `olm.package` blob of a package has none.
    pub package: &'a str,
    /// The name.
    pub name: &'a str,
}

impl Filter<'_> {
    /// Whether the filter is empty, so that it matches everything.
    pub fn is_empty(&self) -> bool {
        self.schema.is_empty() && self.package.is_empty() && self.name.is_empty()
    }
}

/// Collects the facts of a catalog while its lines are written.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    index: Index,
}

impl IndexBuilder {
    /// A builder for an empty catalog.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next line: the identity of the blob, and the length of the line in bytes with its line feed.
    pub fn add(&mut self, schema: &str, package: &str, name: &str, length: u64) {
        let entry = Entry {
            schema: self.index.intern(schema),
            package: self.index.intern(package),
            name: self.index.intern(name),
            end: self.index.bytes().saturating_add(length),
        };
        self.index.entries.push(entry);
        self.index.memory += ENTRY_BYTES;
    }

    /// The approximate memory of the index so far, in bytes.
    pub const fn memory(&self) -> usize {
        self.index.memory
    }

    /// The index of the added lines.
    pub fn finish(mut self) -> Index {
        self.index.strings.shrink_to_fit();
        self.index.numbers.shrink_to_fit();
        self.index.entries.shrink_to_fit();
        self.index.sort_by_package();
        self.index
    }
}

/// The facts of a stored catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    strings: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    entries: Vec<Entry>,
    /// The positions of all entries, by package and then in the order of the catalog: most queries are about one
    /// package of hundreds.
    by_package: Vec<u32>,
    memory: usize,
}

/// The memory of an entry and its position in its package, in bytes.
const ENTRY_BYTES: usize = size_of::<Entry>() + size_of::<u32>();
/// The memory of a name without its text, in bytes, including a hash table with spare room.
const NAME_BYTES: usize = 96;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    schema: u32,
    package: u32,
    name: u32,
    /// The offset after the line. The line begins where the previous one ends.
    end: u64,
}

/// A blob as the index knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indexed<'a> {
    /// The schema; empty when the blob has none.
    pub schema: &'a str,
    /// The package; empty when the blob has none.
    pub package: &'a str,
    /// The name; empty when the blob has none.
    pub name: &'a str,
    /// The bytes of the line in the stored catalog, including its line feed.
    pub range: Range<u64>,
}

/// The reason why bytes are not an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The bytes do not begin like an index of this version.
    #[error("not an index of this version")]
    Version,
    /// The bytes end early or contradict themselves.
    #[error("the index is damaged")]
    Damaged,
}

const MAGIC: &[u8] = b"olmfbcx1";

impl Index {
    fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.strings.len()).unwrap_or(u32::MAX);
        self.memory += NAME_BYTES + text.len();
        let text: Arc<str> = text.into();
        self.strings.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    fn sort_by_package(&mut self) {
        let places = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.by_package = (0..places).collect();
        self.by_package
            .sort_by_key(|place| package_at(&self.entries, *place));
    }

    /// The positions of the entries of a package, in the order of the catalog.
    fn of_package(&self, package: u32) -> &[u32] {
        let before = |bound: u32| {
            self.by_package
                .partition_point(|place| package_at(&self.entries, *place) < bound)
        };
        self.by_package
            .get(before(package)..before(package.saturating_add(1)))
            .unwrap_or_default()
    }

    /// The length of the stored catalog in bytes.
    pub fn bytes(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    /// The number of blobs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the catalog has no blobs.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every blob, in the order of the catalog.
    pub fn iter(&self) -> impl Iterator<Item = Indexed<'_>> {
        let text = |number: u32| {
            usize::try_from(number)
                .ok()
                .and_then(|number| self.strings.get(number))
                .map_or("", |text| &**text)
        };
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let range = start..entry.end;
            start = entry.end;
            Indexed {
                schema: text(entry.schema),
                package: text(entry.package),
                name: text(entry.name),
                range,
            }
        })
    }

    /// The byte ranges of the matching blobs in the stored catalog, in the order of the catalog. Adjacent ranges are
    /// merged.
    ///
    /// All fields of the filter must match exactly. An empty filter matches the whole catalog. A blob without a schema
    /// matches only by name, not by package alone.
    pub fn query(&self, filter: &Filter<'_>) -> Ranges<'_> {
        let number = |text: &str| self.numbers.get(text).copied();
        let wanted = |text: &str| {
            if text.is_empty() {
                Selection::Anything
            } else {
                number(text).into()
            }
        };
        let package = wanted(filter.package);
        Ranges {
            entries: &self.entries,
            places: match package {
                Selection::Is(package) => SelectedEntries::Some(self.of_package(package).iter()),
                _ => SelectedEntries::All(0..u32::try_from(self.entries.len()).unwrap_or(u32::MAX)),
            },
            pending: None,
            schema: match wanted(filter.schema) {
                Selection::Anything if !filter.package.is_empty() && filter.name.is_empty() => {
                    number("").map_or(Selection::Anything, Selection::Not)
                }
                wanted => wanted,
            },
            package,
            name: wanted(filter.name),
        }
    }

    /// The encoded index, to be stored beside the catalog.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        push_number(&mut out, self.strings.len() as u64);
        for text in &self.strings {
            push_number(&mut out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
        push_number(&mut out, self.entries.len() as u64);
        let mut start = 0;
        for entry in &self.entries {
            for number in [
                entry.schema.into(),
                entry.package.into(),
                entry.name.into(),
                entry.end - start,
            ] {
                push_number(&mut out, number);
            }
            start = entry.end;
        }
        out
    }

    /// Decodes the output of [`Index::encode`].
    ///
    /// # Errors
    /// When the bytes have another format or are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, IndexError> {
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(IndexError::Version)?;
        let mut index = Self::default();
        for number in 0..take_number(&mut rest)? {
            let length = usize::try_from(take_number(&mut rest)?).map_err(|_| IndexError::Damaged)?;
            let (text, after) = rest.split_at_checked(length).ok_or(IndexError::Damaged)?;
            rest = after;
            let text = std::str::from_utf8(text).map_err(|_| IndexError::Damaged)?;
            if u64::from(index.intern(text)) != number {
                return Err(IndexError::Damaged);
            }
        }
        let strings = index.strings.len() as u64;
        for _ in 0..take_number(&mut rest)? {
            let mut string = || {
                let number = take_number(&mut rest)?;
                u32::try_from(number)
                    .ok()
                    .filter(|_| number < strings)
                    .ok_or(IndexError::Damaged)
            };
            let (schema, package, name) = (string()?, string()?, string()?);
            let end = index
                .bytes()
                .checked_add(take_number(&mut rest)?)
                .ok_or(IndexError::Damaged)?;
            index.entries.push(Entry {
                schema,
                package,
                name,
                end,
            });
            index.memory += ENTRY_BYTES;
        }
        if rest.is_empty() {
            index.sort_by_package();
            Ok(index)
        } else {
            Err(IndexError::Damaged)
        }
    }
}

/// Appends `number`, seven bits a byte, the lowest first.
fn push_number(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

fn take_number(rest: &mut &[u8]) -> Result<u64, IndexError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(IndexError::Damaged)?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(IndexError::Damaged)
}

#[derive(Debug, Clone, Copy)]
enum Selection {
    Anything,
    Nothing,
    Is(u32),
    Not(u32),
}

impl From<Option<u32>> for Selection {
    fn from(number: Option<u32>) -> Self {
        number.map_or(Self::Nothing, Self::Is)
    }
}

impl Selection {
    fn fits(self, number: u32) -> bool {
        match self {
            Self::Anything => true,
            Self::Nothing => false,
            Self::Is(wanted) => number == wanted,
            Self::Not(unwanted) => number != unwanted,
        }
    }
}

/// The package of the entry at a position.
fn package_at(entries: &[Entry], place: u32) -> u32 {
    at(entries, place).map_or(u32::MAX, |entry| entry.package)
}

fn at(entries: &[Entry], place: u32) -> Option<&Entry> {
    entries.get(usize::try_from(place).ok()?)
}

/// The entries that a query reads.
#[derive(Debug, Clone)]
enum SelectedEntries<'a> {
    All(Range<u32>),
    Some(std::slice::Iter<'a, u32>),
}

impl Iterator for SelectedEntries<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            Self::All(places) => places.next(),
            Self::Some(places) => places.next().copied(),
        }
    }
}

/// The answer to a query; see [`Index::query`].
#[derive(Debug, Clone)]
pub struct Ranges<'a> {
    entries: &'a [Entry],
    places: SelectedEntries<'a>,
    /// The beginning of the next stretch.
    pending: Option<Range<u64>>,
    schema: Selection,
    package: Selection,
    name: Selection,
}

impl Iterator for Ranges<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut found = self.pending.take();
        for place in self.places.by_ref() {
            let entry = at(self.entries, place)?;
            let previous = place.checked_sub(1).and_then(|place| at(self.entries, place));
            let start = previous.map_or(0, |previous| previous.end);
            let fits = entry.end != start
                && self.schema.fits(entry.schema)
                && self.package.fits(entry.package)
                && self.name.fits(entry.name);
            if !fits {
                continue;
            }
            match &mut found {
                None => found = Some(start..entry.end),
                Some(stretch) if stretch.end == start => stretch.end = entry.end,
                Some(_) => {
                    self.pending = Some(start..entry.end);
                    break;
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{Filter, Index, IndexBuilder, IndexError};

    fn index() -> Index {
        let mut builder = IndexBuilder::new();
        for (schema, package, name, length) in [
            ("olm.package", "", "foo", 10),
            ("olm.channel", "foo", "stable", 20),
            ("olm.bundle", "foo", "foo.v1", 30),
            ("", "", "", 0),
            ("olm.bundle", "foo", "foo.v2", 40),
            ("", "foo", "bare", 5),
            ("olm.bundle", "bar", "foo.v1", 7),
        ] {
            builder.add(schema, package, name, length);
        }
        builder.finish()
    }

    fn check(schema: &str, package: &str, name: &str, expected: &[(u64, u64)]) {
        let index = index();
        let decoded = Index::decode(&index.encode()).expect("what was encoded decodes");
        assert_eq!(decoded, index);
        for index in [index, decoded] {
            let found: Vec<(u64, u64)> = index
                .query(&Filter {
                    schema,
                    package,
                    name,
                })
                .map(|range| (range.start, range.end))
                .collect();
            assert_eq!(found, expected, "schema={schema} package={package} name={name}");
        }
    }

    #[test]
    fn an_empty_filter_means_the_whole_catalog_in_one_stretch() {
        check("", "", "", &[(0, 112)]);
    }

    #[test]
    fn all_given_fields_have_to_be_equal() {
        check("olm.bundle", "", "", &[(30, 100), (105, 112)]);
        check("olm.bundle", "foo", "", &[(30, 100)]);
        check("olm.bundle", "", "foo.v1", &[(30, 60), (105, 112)]);
        check("olm.bundle", "bar", "foo.v1", &[(105, 112)]);
        check("OLM.bundle", "", "", &[]);
        check("olm.channel", "bar", "", &[]);
    }

    #[test]
    fn neighbours_are_one_stretch() {
        check("", "foo", "", &[(10, 100)]);
    }

    #[test]
    fn a_package_that_stands_in_several_places_has_several_stretches() {
        let mut builder = IndexBuilder::new();
        for (package, length) in [
            ("b", 1),
            ("a", 2),
            ("b", 4),
            ("b", 8),
            ("", 0),
            ("b", 16),
            ("c", 32),
            ("b", 64),
        ] {
            builder.add("schema", package, "", length);
        }
        let index = builder.finish();
        let of = |package| {
            let filter = Filter {
                package,
                ..Filter::default()
            };
            index.query(&filter).collect::<Vec<_>>()
        };
        assert_eq!(of("b"), [0..1, 3..31, 63..127]);
        assert_eq!(of("a"), vec![1..3]);
        assert_eq!(of("c"), vec![31..63]);
        assert_eq!(of("d"), vec![]);
    }

    #[test]
    fn a_package_blob_answers_to_its_name_and_not_to_its_package() {
        check("olm.package", "foo", "", &[]);
        check("olm.package", "", "foo", &[(0, 10)]);
    }

    #[test]
    fn a_blob_without_schema_answers_to_its_name_only() {
        check("", "", "bare", &[(100, 105)]);
        check("", "foo", "bare", &[(100, 105)]);
    }

    #[test]
    fn an_empty_line_joins_nothing() {
        let mut builder = IndexBuilder::new();
        for (schema, length) in [("a", 0), ("b", 9), ("a", 3)] {
            builder.add(schema, "", "", length);
        }
        let index = builder.finish();
        let found: Vec<_> = index
            .query(&Filter {
                schema: "a",
                ..Filter::default()
            })
            .collect();
        assert_eq!(found, vec![9..12]);
    }

    #[test]
    fn the_blobs_come_in_the_order_of_the_catalog() {
        let index = index();
        let names: Vec<&str> = index.iter().map(|blob| blob.name).collect();
        assert_eq!(names, ["foo", "stable", "foo.v1", "", "foo.v2", "bare", "foo.v1"]);
        assert_eq!(index.iter().last().map(|blob| blob.range), Some(105..112));
        assert_eq!((index.len(), index.bytes()), (7, 112));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let bytes = index().encode();
        assert_eq!(Index::decode(b"something else"), Err(IndexError::Version));
        for length in super::MAGIC.len()..bytes.len() {
            assert_eq!(
                Index::decode(&bytes[..length]),
                Err(IndexError::Damaged),
                "cut at {length}"
            );
        }
        assert_eq!(
            Index::decode(&[&bytes[..], &[0]].concat()),
            Err(IndexError::Damaged)
        );
    }
}
