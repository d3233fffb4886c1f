//! `.indexignore`: the files of a directory that are not part of the catalog.
//!
//! The patterns are those of `.gitignore`. The patterns of all files form one list in the order of the walk, and the
//! last match decides. A pattern that matches a directory matches everything below it. A later pattern can include a
//! file below an ignored directory again.

// The crates `ignore` and `globset` have other rules: there the deepest directory that a pattern matches decides, here
// the last matching pattern. In their brackets a backslash is literal.

use std::collections::BTreeSet;

use crate::walk::walk_order;

/// The name of the files with patterns. They are never part of a catalog themselves.
pub const FILE_NAME: &str = ".indexignore";

/// The patterns of a catalog.
#[derive(Debug, Clone, Default)]
pub struct Ignore {
    /// The patterns with the path of their file, in the order of the walk.
    files: Vec<(String, Vec<Pattern>)>,
}

impl Ignore {
    /// A list without patterns: nothing is ignored.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the patterns in `text`, the content of the ignore file at `path`. The order of calls does not matter.
    ///
    /// Invalid patterns match nothing, as in `.gitignore`.
    pub fn add(&mut self, path: &str, text: &str) {
        let directory: Vec<&str> = path
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .collect();
        let directory = directory.split_last().map_or(&[][..], |(_, directory)| directory);
        let patterns = text
            .lines()
            .filter_map(|line| Pattern::parse(line, directory))
            .collect();
        let at = self
            .files
            .partition_point(|(other, _)| walk_order(other, path).is_le());
        self.files.insert(at, (path.to_owned(), patterns));
    }

    /// Whether the file at `path`, relative to the root of the catalog, is ignored.
    pub fn is_ignored(&self, path: &str) -> bool {
        let parts: Vec<&str> = path
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .collect();
        if parts.last() == Some(&FILE_NAME) {
            return true;
        }
        let patterns = self
            .files
            .iter()
            .rev()
            .flat_map(|(_, patterns)| patterns.iter().rev());
        let deciding = patterns.into_iter().find(|pattern| pattern.matches(&parts));
        deciding.is_some_and(|pattern| pattern.effect == PatternEffect::Ignore)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternEffect {
    Ignore,
    Include,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Anything,
    Directories,
}

#[derive(Debug, Clone)]
struct Pattern {
    /// The directory that the pattern is about.
    directory: Vec<String>,
    effect: PatternEffect,
    target: Target,
    shape: PatternShape,
}

#[derive(Debug, Clone)]
enum PatternShape {
    /// A name at any depth.
    Name(Glob),
    /// A path from the directory on.
    Path(Vec<Step>),
}

#[derive(Debug, Clone)]
enum Step {
    /// `**`: any number of directories.
    Depths,
    Name(Glob),
}

impl Pattern {
    /// The pattern in `line`, if there is one.
    fn parse(line: &str, directory: &[&str]) -> Option<Self> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (effect, text) = match line.strip_prefix('!') {
            Some(rest) => (PatternEffect::Include, rest),
            None => (PatternEffect::Ignore, line),
        };
        let (target, text) = match text.strip_suffix('/') {
            Some(rest) => (Target::Directories, rest),
            None => (Target::Anything, text),
        };
        let shape = if text.contains('/') {
            let steps = text
                .split('/')
                .filter(|step| !step.is_empty())
                .map(|step| match step {
                    "**" => Some(Step::Depths),
                    name => Glob::parse(name).map(Step::Name),
                });
            PatternShape::Path(steps.collect::<Option<Vec<_>>>()?)
        } else {
            PatternShape::Name(Glob::parse(text)?)
        };
        let directory = directory.iter().map(|part| (*part).to_owned()).collect();
        Some(Self {
            directory,
            effect,
            target,
            shape,
        })
    }

    /// Whether the pattern matches the file at `path` or a directory above it.
    fn matches(&self, path: &[&str]) -> bool {
        let (directory, path) = match path.split_at_checked(self.directory.len()) {
            Some((directory, path)) if !path.is_empty() => (directory, path),
            _ => return false,
        };
        if !directory.iter().eq(self.directory.iter()) {
            return false;
        }
        // The number of parts that a match may have: all of them match the file, fewer a directory above it.
        let longest = match self.target {
            Target::Anything => path.len(),
            Target::Directories => path.len() - 1,
        };
        match &self.shape {
            PatternShape::Name(glob) => path.iter().take(longest).any(|part| glob.matches(part)),
            PatternShape::Path(steps) => lengths(steps, path)
                .iter()
                .any(|length| (1..=longest).contains(length)),
        }
    }
}

/// The numbers of parts at the head of `path` that `steps` can match.
fn lengths(steps: &[Step], path: &[&str]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::from([0]);
    for (index, step) in steps.iter().enumerate() {
        reached = match step {
            // At the end of a pattern it matches the content, not the directory itself.
            Step::Depths => {
                let least = usize::from(index + 1 == steps.len());
                reached
                    .first()
                    .map_or_else(BTreeSet::new, |first| (first + least..=path.len()).collect())
            }
            Step::Name(glob) => reached
                .into_iter()
                .filter(|at| path.get(*at).is_some_and(|part| glob.matches(part)))
                .map(|at| at + 1)
                .collect(),
        };
    }
    reached
}

/// A pattern for one part of a path.
#[derive(Debug, Clone)]
struct Glob(Vec<Token>);

#[derive(Debug, Clone)]
enum Token {
    Letter(char),
    AnyLetter,
    AnyLetters,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Glob {
    /// The pattern in `text`; none when a bracket or an escape is not finished.
    fn parse(text: &str) -> Option<Self> {
        let mut tokens = Vec::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            tokens.push(match letter {
                '*' => Token::AnyLetters,
                '?' => Token::AnyLetter,
                '\\' => Token::Letter(letters.next()?),
                '[' => class(&mut letters)?,
                letter => Token::Letter(letter),
            });
        }
        Some(Self(tokens))
    }

    fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut token, mut letter) = (0, 0);
        // The position to retry from if the last star has to match one more letter.
        let mut retry: Option<(usize, usize)> = None;
        while letter < name.len() {
            let fits = match (self.0.get(token), name.get(letter)) {
                (Some(Token::AnyLetters), _) => {
                    retry = Some((token, letter));
                    token += 1;
                    continue;
                }
                (Some(token), Some(letter)) => token.fits(*letter),
                _ => false,
            };
            if fits {
                token += 1;
                letter += 1;
            } else if let Some((star, taken)) = retry {
                retry = Some((star, taken + 1));
                token = star + 1;
                letter = taken + 1;
            } else {
                return false;
            }
        }
        self.0
            .iter()
            .skip(token)
            .all(|token| matches!(token, Token::AnyLetters))
    }
}

/// The class after its opening bracket.
fn class(letters: &mut std::str::Chars<'_>) -> Option<Token> {
    let mut rest = letters.clone();
    let negated = matches!(rest.next(), Some('!' | '^'));
    if negated {
        letters.next();
    }
    let mut ranges = Vec::new();
    loop {
        let first = match letters.next()? {
            ']' if !ranges.is_empty() => return Some(Token::Class { negated, ranges }),
            '\\' => letters.next()?,
            letter => letter,
        };
        let mut ahead = letters.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *letters = ahead;
                if last == '\\' { letters.next()? } else { last }
            }
            _ => first,
        };
        ranges.push((first, last));
    }
}

impl Token {
    fn fits(&self, letter: char) -> bool {
        match self {
            Self::Letter(wanted) => *wanted == letter,
            Self::AnyLetter => true,
            Self::AnyLetters => false,
            Self::Class { negated, ranges } => {
                ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&letter))
                    != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ignore;

    fn check(files: &[(&str, &str)], expected: &[(&str, bool)]) {
        let mut ignore = Ignore::new();
        for (path, text) in files {
            ignore.add(path, text);
        }
        for (path, ignored) in expected {
            assert_eq!(ignore.is_ignored(path), *ignored, "{path} under {files:?}");
        }
    }

    /// At the root of the catalog.
    #[test]
    fn everything_but_catalog_files_outside_objects() {
        let text = "# Ignore everything except non-object .json and .yaml files\n\
                    **/*\n!*.json\n!*.yaml\n**/objects/*.json\n**/objects/*.yaml\n";
        for directory in ["", "below/"] {
            check(
                &[(&format!("{directory}.indexignore"), text)],
                &[
                    (&format!("{directory}a/index.yaml"), false),
                    (&format!("{directory}a/README.md"), true),
                    (&format!("{directory}a/objects/x.yaml"), true),
                    (&format!("{directory}a/objects/x.json"), true),
                    (&format!("{directory}Dockerfile"), true),
                    (&format!("{directory}index.json"), false),
                ],
            );
        }
    }

    #[test]
    fn a_pattern_without_a_slash_matches_a_name_at_any_depth() {
        check(
            &[(".indexignore", "x\n")],
            &[("x", true), ("a/x", true), ("x/a", true), ("xa", false)],
        );
        check(
            &[(".indexignore", "x/\n")],
            &[("x", false), ("x/a", true), ("b/x/a", true)],
        );
    }

    #[test]
    fn a_pattern_with_a_slash_begins_where_its_file_is() {
        check(
            &[(".indexignore", "/x\n")],
            &[("x", true), ("x/a", true), ("a/x", false)],
        );
        check(
            &[("d/.indexignore", "/x\n")],
            &[("x", false), ("d/x", true), ("d/e/x", false)],
        );
        check(
            &[(".indexignore", "a/*/c\n")],
            &[("a/b/c", true), ("a/c", false), ("a/b/b/c", false)],
        );
        check(&[(".indexignore", "./x\n")], &[("x", false)]);
    }

    #[test]
    fn two_stars_stand_for_any_number_of_directories() {
        check(
            &[(".indexignore", "a/**/c\n")],
            &[("a/c", true), ("a/b/b/c", true), ("a/b/d", false)],
        );
        check(
            &[(".indexignore", "a/**\n")],
            &[("a/b", true), ("a/b/c", true), ("a", false)],
        );
        check(
            &[(".indexignore", "**/a/**/a/b\n")],
            &[("x/a/a/a/c/a/b", true), ("a/b", false)],
        );
    }

    #[test]
    fn the_last_match_decides_whatever_is_ignored_above() {
        check(
            &[(".indexignore", "/dir\n!/dir/a\n")],
            &[("dir/a", false), ("dir/b", true)],
        );
        check(&[(".indexignore", "!/dir/a\n/dir\n")], &[("dir/a", true)]);
        check(
            &[("dir/.indexignore", "!a\n"), (".indexignore", "/dir\n")],
            &[("dir/a", false), ("dir/b", true)],
        );
    }

    #[test]
    fn classes_and_escapes_are_those_of_gitignore() {
        check(
            &[(".indexignore", "[a-c!].y\n")],
            &[("b.y", true), ("!.y", true), ("d.y", false)],
        );
        check(
            &[(".indexignore", "[^a-c].y\n")],
            &[("b.y", false), ("d.y", true)],
        );
        check(
            &[(".indexignore", "\\#a\n\\!b\n{c,d}\n")],
            &[("#a", true), ("!b", true), ("c", false), ("{c,d}", true)],
        );
        check(
            &[(".indexignore", "?.y*\n")],
            &[("a.yaml", true), ("ab.yaml", false)],
        );
        check(
            &[(".indexignore", "[a\nb\\\n[]\n!\n/\n")],
            &[("[a", false), ("b", false), ("[]", false)],
        );
    }

    #[test]
    fn ignore_files_are_never_part_of_a_catalog() {
        check(
            &[],
            &[
                (".indexignore", true),
                ("a/.indexignore", true),
                ("a.indexignore", false),
            ],
        );
    }

    #[test]
    fn a_pattern_of_many_stars_is_answered_at_once() {
        check(
            &[(".indexignore", &"*a".repeat(200))],
            &[(&"a".repeat(400), true), (&"ab".repeat(400), false)],
        );
    }
}
