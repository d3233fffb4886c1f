//! `olm-test bench`: time, memory and requests of both managers on a simulated node, as Markdown.
//!
//! The figures are those of one machine that also runs the control plane, the registry and the load: they compare
//! one state of this project with another, not machines. Everything together takes less than four minutes.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::world::{Options, World};

pub mod catalog;
mod dependencies;
mod extensions;
mod process;
mod requests;
mod serving;
mod unpack;

/// Measures with the catalog in this file (lines of JSON), or with a generated one of the shape of a big real one, and
/// prints the figures.
///
/// # Errors
/// When something cannot be started, or does not come to its end in time.
pub async fn run(file: Option<&Path>) -> Result<()> {
    let begin = Instant::now();
    let blobs = match file {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?
        }
        None => catalog::generate(&catalog::Shape::default()),
    };
    let package = catalog::a_package(&blobs).context("the catalog holds no package with bundles")?;
    let mut figures = Figures::new(&format!(
        "{} catalog: {}; {}",
        if file.is_some() { "given" } else { "generated" },
        catalog::describe(&blobs),
        process::machine()?,
    ));
    dependencies::measure(&mut figures)?;
    let world = World::start(Options::default()).await?;
    let processes = [
        ("catalogd", &world.catalogd),
        ("operator-controller", &world.operator_controller),
    ];
    for (name, manager) in processes {
        let pid = manager.pid().context("a manager does not run")?;
        figures.add(
            &format!("{name}, idle: memory"),
            &process::mebibytes(process::resident(pid)?),
        );
    }
    unpack::measure(&world, &blobs, &mut figures).await?;
    drop(blobs);
    serving::measure(&world, &package, &mut figures).await?;
    extensions::measure(&world, &mut figures).await?;
    figures.add("all of this", &format!("{:.0} s", begin.elapsed().as_secs_f64()));
    writeln!(std::io::stdout(), "{}", figures.text)?;
    Ok(())
}

/// A table in the making.
struct Figures {
    text: String,
}

impl Figures {
    fn new(title: &str) -> Self {
        Self {
            text: format!("\n{title}\n\n| what | figure |\n|---|---|\n"),
        }
    }

    fn add(&mut self, what: &str, figure: &str) {
        self.text.push_str(&format!("| {what} | {figure} |\n"));
    }
}
