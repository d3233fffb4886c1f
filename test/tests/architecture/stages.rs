//! The stages of a run over a ClusterExtension stand in the order of the architecture page.

use std::collections::BTreeSet;

use crate::circles::{Module, imports_between};
use crate::tokens::{Token, paths, production};
use crate::{root, sources};

/// The methods that write to the cluster and that nothing else has.
const WRITES: &[&str] = &[
    "apply_with_warnings",
    "create",
    "create_with_warnings",
    "delete",
    "delete_collection",
    "merge",
    "merge_as",
    "patch",
    "patch_metadata",
    "patch_status",
    "patch_subresource",
    "replace_object",
    "replace_status",
    "replace_subresource",
];
/// Names that only writes use: their parameters, a commit, and the functions of modules that also read.
const WRITING: &[&str] = &[
    "Commit::Yes",
    "DeleteParams",
    "PatchParams",
    "PostParams",
    "records::archive",
    "records::bind",
    "records::finalizers",
    "records::keep",
    "records::remove",
    "records::status",
    "records::tidy",
];

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

/// What a source uses to write to the cluster.
fn writes(source: &str) -> Vec<String> {
    let tokens = production(source);
    let methods = tokens.windows(3).filter_map(|window| match window {
        [Token::Sign('.'), Token::Word(method), Token::Sign('(')] => Some(method.clone()),
        _ => None,
    });
    let methods = methods.filter(|method| WRITES.contains(&method.as_str()));
    let used = paths(&tokens).into_iter().filter(|path| {
        let path = format!("::{path}::");
        WRITING.iter().any(|name| path.contains(&format!("::{name}::")))
    });
    // `remove` is a method of maps, too.
    let releases = tokens.windows(5).filter_map(|window| match window {
        [
            Token::Word(what),
            Token::Sign('.'),
            Token::Word(method),
            Token::Sign('('),
            _,
        ] if what == "releases" && method == "remove" => Some("releases.remove".to_owned()),
        _ => None,
    });
    methods.chain(used).chain(releases).collect()
}

#[test]
fn a_stage_before_the_last_ones_writes_nothing() {
    let before = ["observe", "resolve", "bundle", "plan", "approval", "preflight"];
    let folder = root().join("operator-controller/src/extension");
    let mut read = 0;
    for (path, source) in sources(&folder) {
        let module = path.strip_prefix(&folder).unwrap().with_extension("");
        let first = module.iter().next().unwrap();
        if !before.iter().any(|stage| first == *stage) {
            continue;
        }
        read += 1;
        let found = writes(&source);
        assert!(found.is_empty(), "{} calls {found:?}", path.display());
    }
    assert!(read > 30, "only {read} sources were read");
}

#[test]
fn writes_are_found_and_dry_runs_are_not() {
    for (source, expected) in [
        ("sets.create(&params, &set).await", &["create"][..]),
        (
            "sets.replace(name, &PostParams::default(), &set)",
            &["PostParams::default"],
        ),
        ("target.apply(&body, Commit::Yes)", &["Commit::Yes"]),
        ("target.replace_object(&body)", &["replace_object"]),
        ("target.merge_as(manager, &patch)", &["merge_as"]),
        ("context.releases.remove(&secret).await?", &["releases.remove"]),
        (
            "crate::object_set::records::status(client, set)",
            &["crate::object_set::records::status"],
        ),
        ("records::keep(client, &condition)", &["records::keep"]),
        (
            "target.apply(&body, Commit::DryRun); create(&wanted); text.replace(a, b)",
            &[],
        ),
        ("#[cfg(test)] mod tests { fn a() { case.create(); } }", &[]),
    ] {
        assert_eq!(writes(source), expected, "{source}");
    }
}
