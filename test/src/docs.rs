//! The documentation as tests see it: its pages, the blocks in them, and the pages that are generated.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::world::{binary, repository};

/// The line above the generated part of a page; the text before it is written by hand.
const MARKER: &str = "<!-- The rest is generated from --help by `make crds`. -->\n";

/// A Markdown file of the repository.
pub struct Page {
    /// The path in the repository.
    pub path: PathBuf,
    /// The content.
    pub text: String,
}

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The text after the opening fence, such as `sh cluster`.
    pub mark: String,
    /// The lines between the fences.
    pub text: String,
}

/// Every page in `docs/`, and the Markdown files of the repository's root.
///
/// # Errors
/// When a file cannot be read.
pub fn pages() -> Result<Vec<Page>> {
    let root = repository();
    let mut found: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
        .map(|name| root.join(name))
        .into();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
        .into_iter()
        .map(|file| {
            let path = file.strip_prefix(&root)?.to_owned();
            let text = std::fs::read_to_string(&file)?;
            Ok(Page { path, text })
        })
        .collect()
}

/// One page, by its path below `docs/`.
///
/// # Errors
/// When it cannot be read.
pub fn page(path: &str) -> Result<Page> {
    let path = Path::new("docs").join(path);
    let file = repository().join(&path);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Page { path, text })
}

impl Page {
    /// The fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for line in self.text.lines() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(mark)) => {
                    open = Some(Block {
                        mark: mark.to_owned(),
                        text: String::new(),
                    });
                }
                (Some(_), Some("")) => blocks.extend(open.take()),
                (Some(block), _) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        blocks
    }

    /// The blocks with this mark.
    pub fn marked(&self, mark: &str) -> Vec<String> {
        let blocks = self.blocks().into_iter();
        blocks
            .filter(|block| block.mark == mark)
            .map(|block| block.text)
            .collect()
    }

    /// The text outside fenced blocks, with a line for each line of the page.
    pub fn prose(&self) -> String {
        let mut inside = false;
        let lines = self.text.lines().map(|line| {
            if line.starts_with("```") {
                inside = !inside;
                return "";
            }
            if inside { "" } else { line }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The pages that are generated from `--help`, each with its path below `docs/`.
///
/// # Errors
/// When a program is not built or a page has no marker.
pub fn generated() -> Result<Vec<(&'static str, String)>> {
    [
        ("reference/olm.md", &["olm"][..]),
        (
            "reference/managers.md",
            &["catalogd", "operator-controller", "classic"][..],
        ),
    ]
    .into_iter()
    .map(|(path, programs)| {
        let text = page(path)?.text;
        let (written, _) = text
            .split_once(MARKER)
            .with_context(|| format!("{path} has no line {MARKER}"))?;
        let mut text = format!("{written}{MARKER}");
        for program in programs {
            describe(program, &[], &mut text)?;
        }
        Ok((path, text))
    })
    .collect()
}

/// Adds the output of `--help` of a command and its subcommands.
fn describe(program: &str, path: &[&str], out: &mut String) -> Result<()> {
    let run = Command::new(binary(program)?)
        .args(path)
        .arg("--help")
        .env_clear()
        .output()?;
    let name = [&[program], path].concat().join(" ");
    ensure!(run.status.success(), "{name} --help fails");
    let help = String::from_utf8(run.stdout)?;
    // clap ends some lines with blanks.
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    out.push_str(&format!(
        "\n{} {name}\n\n```text\n{}\n```\n",
        if path.is_empty() { "##" } else { "###" },
        help.join("\n").trim_end()
    ));
    let commands = help
        .iter()
        .skip_while(|line| **line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    for line in commands {
        let command = line
            .strip_prefix("  ")
            .filter(|rest| !rest.starts_with(' '))
            .and_then(|rest| rest.split(' ').next());
        if let Some(command) = command.filter(|command| *command != "help") {
            describe(program, &[path, &[command]].concat(), out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_prose_are_distinguished() {
        let page = Page {
            path: PathBuf::new(),
            text: "a\n```sh run\nb\n```\nc\n```yaml\nd\n```\n".to_owned(),
        };
        assert_eq!(page.marked("sh run"), ["b\n"]);
        assert_eq!(page.blocks().len(), 2);
        assert_eq!(page.prose(), "a\n\n\n\nc\n\n\n");
    }
}
