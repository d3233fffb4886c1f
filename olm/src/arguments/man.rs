//! Manual pages.

use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// The program and its version, in the footer of each page.
const SOURCE: &str = concat!("olm ", env!("CARGO_PKG_VERSION"));
/// How the parts of a help text begin that get sections of their own.
const EXAMPLES: &str = "Examples:\n";
const EXIT_STATUS: &str = "Exit status: ";

/// Writes a page for each command and group.
pub(super) fn write(root: Command, directory: &Path) -> io::Result<()> {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    let mut left = vec![root];
    while let Some(command) = left.pop() {
        let page = Man::new(command.clone()).source(SOURCE);
        std::fs::write(directory.join(page.get_filename()), text(&page, &command)?)?;
        left.extend(shown(&command).cloned());
    }
    Ok(())
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set())
}

/// The page in the order of man-pages(7).
fn text(page: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if shown(command).next().is_some() {
        page.render_subcommands_section(&mut text)?;
    }
    let help = command.get_after_help().map(ToString::to_string);
    sections(&help.unwrap_or_default()).to_writer(&mut text)?;
    // The footer of each page has the version.
    if command.get_version().is_some() {
        page.render_version_section(&mut text)?;
    }
    Ok(text)
}

/// The sections about the text after the options: its paragraphs, the exit status, the examples.
fn sections(help: &str) -> Roff {
    let (mut notes, mut status, mut examples) = (Vec::new(), None, None);
    for paragraph in help.split("\n\n") {
        if let Some(lines) = paragraph.strip_prefix(EXAMPLES) {
            examples = Some(lines);
        } else if let Some(text) = paragraph.strip_prefix(EXIT_STATUS) {
            status = Some(text);
        } else if !paragraph.is_empty() {
            notes.push(paragraph);
        }
    }
    let mut roff = Roff::new();
    for (title, paragraphs) in [("EXIT STATUS", status.as_slice()), ("NOTES", notes.as_slice())] {
        if !paragraphs.is_empty() {
            roff.control("SH", [title]);
        }
        for paragraph in paragraphs {
            roff.control("PP", []);
            roff.text([roman(*paragraph)]);
        }
    }
    if let Some(lines) = examples {
        roff.control("SH", ["EXAMPLES"]);
        // Lines stay as they are.
        roff.control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line.trim())]);
        }
        roff.control("fi", []);
    }
    roff
}
