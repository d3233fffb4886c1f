//! Every name once.

use std::collections::BTreeMap;
use std::process::Command;

use olm_api::names;

use crate::tokens::{Token, production};
use crate::{Kind, crates, root, sources};

/// Texts about names that are no names.
const EXCEPT: &[(&str, &str)] = &[(
    "https://olm.operatorframework.io/docs/best-practices/channel-naming",
    "a page on the web",
)];

/// Labels, annotations, finalizers and types that begin with our API group are in `api/src/names.rs` and nowhere else,
/// not even within a longer text.
#[test]
fn names_of_ours_stand_once() {
    let ours = format!("{}/", names::GROUP);
    let home = root().join("api/src/names.rs");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, manifest) in crates(&[Kind::Pure, Kind::Edge, Kind::Program]) {
        for (file, source) in sources(&manifest.folder.join("src")) {
            for token in production(&source) {
                let Token::Text(text) = token else { continue };
                if text.contains(&ours) && !EXCEPT.iter().any(|(except, _)| text.contains(except)) {
                    let place = if file == home {
                        String::new()
                    } else {
                        file.display().to_string()
                    };
                    found.entry(text).or_default().push(place);
                }
            }
        }
    }
    assert!(found.len() > 30, "only {} names were found", found.len());
    found.retain(|_, places| *places != [String::new()]);
    assert!(
        found.is_empty(),
        "these do not stand in api/src/names.rs alone: {found:#?}"
    );
}

/// The only unsafe code is one call of the C library.
#[test]
fn unsafe_code_is_allowed_in_one_place() {
    let mark = ["unsafe", "_code"].concat();
    let all = crates(&[Kind::Pure, Kind::Edge, Kind::Program, Kind::Tests]);
    let files = all.values().flat_map(|manifest| sources(&manifest.folder));
    let allowed = files.filter(|(_, source)| source.contains(&mark));
    let allowed: Vec<_> = allowed.map(|(file, _)| file).collect();
    assert_eq!(allowed, [root().join("crates/platform/src/process/memory.rs")]);
}

/// A comment states its rule: a reader cannot look up numbers of documents that are not in the repository.
#[test]
fn sources_refer_to_no_numbered_requirements() {
    let mut found = Vec::new();
    for (_, manifest) in crates(&[Kind::Pure, Kind::Edge, Kind::Program, Kind::Tests]) {
        for (file, source) in sources(&manifest.folder) {
            let lines = source.lines().enumerate();
            let numbered = lines.filter(|(_, line)| names_a_requirement(line));
            found.extend(numbered.map(|(index, line)| format!("{}:{}: {line}", file.display(), index + 1)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Whether a line contains the word, followed by a number such as 1.02.
fn names_a_requirement(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line.match_indices("requirement").any(|(at, word)| {
        let rest = line.split_at(at + word.len()).1;
        let number = rest
            .strip_prefix('s')
            .unwrap_or(rest)
            .strip_prefix(' ')
            .unwrap_or_default();
        let digits = number.trim_start_matches(|letter: char| letter.is_ascii_digit());
        digits.len() < number.len()
            && digits
                .strip_prefix('.')
                .is_some_and(|rest| rest.starts_with(|l: char| l.is_ascii_digit()))
    })
}

/// A name of a test says the behaviour, and no number of a list that a reader does not have.
#[test]
fn functions_are_named_without_numbers_of_lists() {
    let listed = Command::new("git")
        .args(["ls-files", "*.rs"])
        .current_dir(root())
        .output()
        .unwrap();
    let files = String::from_utf8(listed.stdout).unwrap();
    assert!(files.lines().count() > 500, "git lists {files}");
    let mut found = Vec::new();
    for file in files.lines().filter(|file| root().join(file).exists()) {
        let source = std::fs::read_to_string(root().join(file)).unwrap();
        let numbered = source.split("fn ").skip(1).filter(|name| is_numbered(name));
        found.extend(numbered.map(|name| format!("{file}: {}", name.lines().next().unwrap_or_default())));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Whether a name begins as `t_1c_` or `req_12_`.
fn is_numbered(name: &str) -> bool {
    let rest = name.strip_prefix("t_").or_else(|| name.strip_prefix("req_"));
    rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

#[test]
fn a_numbered_name_is_recognised() {
    assert!(is_numbered("t_1c_01_skips_lead_on()"));
    assert!(is_numbered("req_12_01_an_edge_counts()"));
    assert!(!is_numbered("t_shirts_have_sizes()"));
    assert!(!is_numbered("two_bundles()"));
}

#[test]
fn a_numbered_requirement_is_recognised() {
    let numbered = format!("/// {} 5.04: the package has one owner.", "Requirement");
    assert!(names_a_requirement(&numbered));
    assert!(!names_a_requirement("/// The requirement of 2 packages."));
    assert!(!names_a_requirement("/// Requirements are read first."));
}
