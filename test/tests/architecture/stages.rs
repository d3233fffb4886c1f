//! The stages of a run over a ClusterExtension stand in the order of the architecture page.

use std::collections::BTreeSet;

use crate::circles::{Module, imports_between};
use crate::root;

/// The folders of the stages, as the table of the architecture page lists them.
fn stages() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/design/architecture.md")).unwrap();
    let section = page.split("\n## operator-controller\n").nth(1).unwrap();
    let table = section.split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let folders = rows.filter_map(|row| row.split_once("/` |"));
    folders.map(|(folder, _)| folder.to_owned()).collect()
}

/// The stage of a module below `extension`, by position.
fn stage(module: &Module, stages: &[String]) -> Option<usize> {
    let [folder, name, ..] = module.as_slice() else {
        return None;
    };
    (folder == "extension")
        .then(|| stages.iter().position(|stage| stage == name))
        .flatten()
}

#[test]
fn a_stage_imports_only_those_before_it() {
    let stages = stages();
    assert_eq!(
        stages,
        [
            "observe",
            "resolve",
            "bundle",
            "plan",
            "approval",
            "preflight",
            "act",
            "report",
            "delete"
        ]
    );
    let imports = imports_between(&root().join("operator-controller/src"));
    let between = imports.iter().filter_map(|(from, target)| {
        let (begin, end) = (stage(from, &stages)?, stage(target, &stages)?);
        (begin != end).then_some((begin < end, from, target))
    });
    let (back, forth): (Vec<_>, Vec<_>) = between.partition(|(is_back, ..)| *is_back);
    let back: BTreeSet<String> = back
        .into_iter()
        .map(|(_, from, target)| format!("{} imports {}", from.join("::"), target.join("::")))
        .collect();
    assert!(back.is_empty(), "these stages import later ones: {back:#?}");
    assert!(forth.len() > 20, "only {} imports were read", forth.len());
}
