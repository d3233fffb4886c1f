//! Examples at the end of the help of commands.

use clap::Command;

/// The words of a command or a group, and its examples.
const EXAMPLES: &[(&[&str], &[&str])] = &[
    (
        &[],
        &[
            "olm search database",
            "olm install greeter --wait",
            "olm get",
            "olm explain greeter",
        ],
    ),
    (
        &["catalog"],
        &[
            "olm catalog validate ./catalog",
            "olm catalog push ./catalog registry.example/catalogs/mine:latest",
        ],
    ),
    (
        &["bundle"],
        &[
            "olm bundle validate ./bundle",
            "olm bundle push ./bundle registry.example/greeter-bundle:v1.0.0",
        ],
    ),
    (&["crd"], &["olm crd check old-crd.yaml new-crd.yaml"]),
    (&["fleet"], &["olm fleet plan samples=./catalog inventories/"]),
    (
        &["image"],
        &["olm image push catalogd.tar registry.example/olmv1/catalogd:v0.1.0"],
    ),
    (
        &["trust-root"],
        &["olm trust-root update --mirror https://tuf.example --root root.json"],
    ),
    (
        &["trust-root", "update"],
        &[
            "olm trust-root update --mirror https://tuf.example --root root.json",
            "olm trust-root update --mirror https://tuf.example --root root.json --out policy/trusted_root.json --state /var/lib/tuf",
        ],
    ),
    (
        &["catalog", "validate"],
        &[
            "olm catalog validate ./catalog",
            "olm catalog validate registry.example/catalogs/mine:latest",
        ],
    ),
    (
        &["catalog", "render"],
        &[
            "olm catalog render registry.example/catalogs/mine:latest -o yaml > mine.yaml",
            "olm catalog render ./catalog registry.example/greeter-bundle:v1.0.0",
        ],
    ),
    (
        &["catalog", "init"],
        &["olm catalog init greeter --default-channel stable > catalog/greeter.json"],
    ),
    (
        &["catalog", "list"],
        &[
            "olm catalog list packages ./catalog",
            "olm catalog list bundles ./catalog greeter",
        ],
    ),
    (&["catalog", "graph"], &["olm catalog graph ./catalog greeter"]),
    (
        &["catalog", "template"],
        &["olm catalog template semver template.yaml > catalog/greeter.json"],
    ),
    (
        &["catalog", "convert-template"],
        &["olm catalog convert-template basic ./catalog > template.json"],
    ),
    (&["catalog", "dockerfile"], &["olm catalog dockerfile ./catalog"]),
    (
        &["catalog", "build"],
        &["olm catalog build ./catalog -t registry.example/catalogs/mine:v1 -o mine.tar"],
    ),
    (
        &["catalog", "push"],
        &["olm catalog push ./catalog registry.example/catalogs/mine:latest"],
    ),
    (
        &["catalog", "serve"],
        &[
            "olm catalog serve ./catalog",
            "olm catalog serve old=./v1 new=./v2",
        ],
    ),
    (
        &["bundle", "init"],
        &["olm bundle init ./bundle --name greeter --version 1.0.0 --image registry.example/greeter:v1.0.0"],
    ),
    (
        &["bundle", "validate"],
        &[
            "olm bundle validate ./bundle",
            "olm bundle validate registry.example/greeter-bundle:v1.0.0",
        ],
    ),
    (
        &["bundle", "render"],
        &["olm bundle render ./bundle -n greetings > objects.yaml"],
    ),
    (
        &["bundle", "convert"],
        &["olm bundle convert ./bundle > bundle.json"],
    ),
    (
        &["bundle", "push"],
        &["olm bundle push ./bundle registry.example/greeter-bundle:v1.0.0"],
    ),
    (&["crd", "check"], &["olm crd check old-crd.yaml new-crd.yaml"]),
    (
        &["completion"],
        &["olm completion bash > ~/.local/share/bash-completion/completions/olm"],
    ),
    (&["history"], &["olm history greeter"]),
    (&["man"], &["olm man ~/.local/share/man/man1"]),
    (
        &["plan"],
        &[
            "olm plan greeter",
            "olm plan greeter --version 2.x --exit-code",
            "olm plan -f greeter.yaml -o yaml",
        ],
    ),
    (
        &["resolve"],
        &[
            "olm resolve greeter --catalog ./catalog --version 1.x",
            "olm resolve greeter --cluster",
            "olm resolve greeter --catalog samples=./catalog --cluster",
        ],
    ),
    (
        &["rbac"],
        &[
            "olm rbac greeter --catalog ./catalog",
            "olm rbac --bundle ./bundle | kubectl apply -f -",
        ],
    ),
    (
        &["rollback"],
        &[
            "olm rollback greeter --dry-run",
            "olm rollback greeter --yes --wait",
        ],
    ),
    (
        &["updates"],
        &["olm updates", "olm updates greeter --catalog samples=./catalog"],
    ),
    (&["version"], &["olm version", "olm version --client -o json"]),
];

/// The command line with the examples in its help.
pub(super) fn with_examples(root: Command) -> Command {
    EXAMPLES
        .iter()
        .fold(root, |root, (words, examples)| inserted(root, words, examples))
}

/// Adds examples to a command. The recursion is as deep as the number of words.
fn inserted(command: Command, words: &[&str], examples: &[&str]) -> Command {
    let Some((word, rest)) = words.split_first() else {
        let text = format!("Examples:\n  {}", examples.join("\n  "));
        let before = command.get_after_help().map(ToString::to_string);
        return command.after_help(match before {
            Some(before) => format!("{before}\n\n{text}"),
            None => text,
        });
    };
    command.mut_subcommand(*word, |inner| inserted(inner, rest, examples))
}
