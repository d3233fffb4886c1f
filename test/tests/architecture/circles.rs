//! Files of a crate do not import each other in circles: each can be read after those that it imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tokens::{Token, imports, paths, production};
use crate::{Kind, crates, sources};

/// A module by the names that lead to it from the root of its crate.
pub(crate) type Module = Vec<String>;

/// A file of a crate.
#[derive(Debug, Default)]
struct File {
    /// The paths that it uses, as written.
    paths: Vec<String>,
    /// The paths that it re-exports under its own name, as written.
    exports: Vec<String>,
}

impl File {
    fn read(source: &str) -> Self {
        let mut rest = Vec::new();
        let mut exports = Vec::new();
        let tokens = production(source);
        let mut index = 0;
        while index < tokens.len() {
            if let Some(begin) = export(&tokens, index) {
                index = imports(&tokens, begin, "", &mut exports);
            } else {
                rest.push(tokens[index].clone());
                index += 1;
            }
        }
        Self {
            paths: paths(&rest),
            exports,
        }
    }
}

/// The start of the tree of a re-export, `pub use` or `pub(crate) use`, if one begins here.
fn export(tokens: &[Token], index: usize) -> Option<usize> {
    let word = |at: usize, text: &str| tokens.get(at) == Some(&Token::Word(text.to_owned()));
    let sign = |at: usize, sign: char| tokens.get(at) == Some(&Token::Sign(sign));
    if !word(index, "pub") {
        return None;
    }
    let mut next = index + 1;
    if sign(next, '(') {
        next += tokens[next..]
            .iter()
            .position(|token| *token == Token::Sign(')'))?
            + 1;
    }
    word(next, "use").then_some(next + 1)
}

/// The module that a file is.
fn module(file: &Path) -> Module {
    let parts = file.with_extension("");
    let mut names: Module = parts
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if matches!(names.last().map(String::as_str), Some("lib" | "main" | "mod")) {
        names.pop();
    }
    names
}

/// The module at a path in a module; `None` for a path outside the crate.
fn target(files: &BTreeMap<Module, File>, from: &Module, path: &str, depth: usize) -> Option<Module> {
    let mut names = path.split("::").peekable();
    let mut at = match *names.peek()? {
        "crate" => {
            names.next();
            Module::new()
        }
        "self" => {
            names.next();
            from.clone()
        }
        "super" => {
            let mut at = from.clone();
            while names.next_if_eq(&"super").is_some() {
                at.pop();
            }
            at
        }
        first => {
            let child = [from.as_slice(), &[first.to_owned()]].concat();
            files.contains_key(&child).then_some(())?;
            from.clone()
        }
    };
    for name in names {
        let child = [at.as_slice(), &[name.to_owned()]].concat();
        if files.contains_key(&child) {
            at = child;
            continue;
        }
        let exported = files.get(&at).into_iter().flat_map(|file| &file.exports);
        let exported = exported
            .filter(|export| export.rsplit("::").next() == Some(name))
            .find_map(|export| target(files, &at, export, depth.checked_sub(1)?));
        let Some(found) = exported else { break };
        at = found;
    }
    Some(at)
}

/// The modules that each module imports.
fn arrows(files: &BTreeMap<Module, File>) -> BTreeMap<&Module, BTreeSet<Module>> {
    let mut arrows = BTreeMap::new();
    for (from, file) in files {
        // A name alone is that of a variable, or declares a module.
        let paths = file.paths.iter().filter(|path| path.contains("::"));
        let targets = paths.filter_map(|path| target(files, from, path, 8));
        // A file and the files of its folder count as one, because they share its definitions.
        let targets = targets.filter(|target| !from.starts_with(target));
        arrows.insert(from, targets.collect());
    }
    arrows
}

/// The imports between the modules of a crate, with its `src` folder, as pairs of importing and imported module.
pub(crate) fn imports_between(folder: &Path) -> BTreeSet<(Module, Module)> {
    let files: BTreeMap<Module, File> = sources(folder)
        .into_iter()
        .map(|(path, text)| (module(path.strip_prefix(folder).unwrap()), File::read(&text)))
        .collect();
    let pairs = arrows(&files).into_iter().flat_map(|(from, targets)| {
        let from = from.clone();
        targets.into_iter().map(move |target| (from.clone(), target))
    });
    pairs.collect()
}

/// The modules that import each other in a circle.
fn circles(files: &BTreeMap<Module, File>) -> BTreeSet<Module> {
    let arrows = arrows(files);
    let reaches = |from: &Module| {
        let mut known = BTreeSet::new();
        let mut open = vec![from.clone()];
        while let Some(at) = open.pop() {
            for next in arrows.get(&at).into_iter().flatten() {
                if known.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        known
    };
    files
        .keys()
        .filter(|from| reaches(from).contains(*from))
        .cloned()
        .collect()
}

#[test]
fn files_of_a_crate_do_not_import_each_other_in_circles() {
    let mut found = BTreeMap::new();
    let mut read = 0;
    for (name, manifest) in crates(&[Kind::Pure, Kind::Edge, Kind::Program]) {
        let root = manifest.folder.join("src");
        let files: BTreeMap<Module, File> = sources(&root)
            .into_iter()
            .map(|(path, source)| (module(path.strip_prefix(&root).unwrap()), File::read(&source)))
            .collect();
        read += files.len();
        let circles: Vec<String> = circles(&files).iter().map(|module| module.join("::")).collect();
        if !circles.is_empty() {
            found.insert(name, circles);
        }
    }
    assert!(read > 300, "only {read} files were read");
    assert!(found.is_empty(), "these import each other in circles: {found:#?}");
}

#[test]
fn a_cycle_is_found_through_children_parents_and_reexports() {
    let check = |sources: &[(&str, &str)], expected: &[&str]| {
        let files = sources
            .iter()
            .map(|(path, source)| (module(Path::new(path)), File::read(source)))
            .collect();
        let found: Vec<String> = circles(&files).iter().map(|module| module.join("::")).collect();
        assert_eq!(found, expected, "{sources:?}");
    };
    let root = ("lib.rs", "pub mod a; mod b; pub use b::c; pub use b::c::Type;");
    check(
        &[root, ("a.rs", "use crate::c;"), ("b.rs", ""), ("b/c.rs", "")],
        &[],
    );
    check(
        &[
            root,
            ("a.rs", "use crate::Type;"),
            ("b.rs", ""),
            ("b/c.rs", "fn f() { crate::a::g() }"),
        ],
        &["a", "b::c"],
    );
    check(
        &[
            root,
            ("a.rs", ""),
            ("b.rs", "use c::{x, y};"),
            ("b/c.rs", "use super::{z};"),
        ],
        &[],
    );
    check(
        &[
            root,
            ("a.rs", "use crate::b;"),
            ("b.rs", "#[cfg(test)] mod t { use crate::a; }"),
        ],
        &[],
    );
}
