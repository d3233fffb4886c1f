//! `olm-test bench`: time, memory and requests of both managers on a simulated node, as Markdown.
//!
//! The figures come from one machine that also runs the control plane, the registry and the load. They compare states
//! of this project, not machines. A run takes some minutes.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::world::{Options, World};

pub mod catalog;
mod classic;
mod dependencies;
mod extensions;
mod fleet;
pub mod process;
mod requests;
mod serving;
mod subscriptions;
mod unpack;
pub mod worst;

/// The size in megabytes of the catalog that is present while Subscriptions are measured.
const LARGE: u64 = 100;

/// The catalogs to measure with.
#[derive(Debug, Clone)]
pub enum Catalogs {
    /// The one in this file, lines of JSON.
    Given(PathBuf),
    /// Generated catalogs in the shape of a large real one, with this many megabytes.
    Generated(Vec<u64>),
}

/// The plan of a benchmark.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The catalogs, one after another. The last one is also queried, and stays while extensions are measured.
    pub catalogs: Catalogs,
    /// The numbers of cores for catalogd while it unpacks and serves, one measurement for each.
    pub cores: Vec<usize>,
    /// The number of extensions that are applied at the same time.
    pub extensions: usize,
    /// The time for which the requests of idle managers are counted.
    pub quiet: Duration,
}

/// Measures, and prints the figures.
///
/// # Errors
/// When a part cannot be started or does not end in time.
pub async fn run(plan: &Plan) -> Result<()> {
    let begin = Instant::now();
    let mut figures = Figures::new(&process::machine()?);
    dependencies::measure(&mut figures)?;
    fleet::measure(&mut figures)?;
    let mut world = World::start(Options::default()).await?;
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
    let mut asked: Option<RequestedPackage> = None;
    match &plan.catalogs {
        Catalogs::Given(path) => {
            let blobs =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            asked = Some(unpacked(&mut world, "given", &blobs, plan, &mut figures).await?);
        }
        Catalogs::Generated(megabytes) => {
            for size in megabytes {
                let blobs = catalog::generate(&catalog::Shape::of_megabytes(*size));
                let name = format!("generated-{size}");
                if let Some(earlier) = asked.take() {
                    unpack::remove(&world, &earlier.catalog).await?;
                }
                asked = Some(unpacked(&mut world, &name, &blobs, plan, &mut figures).await?);
            }
        }
    }
    let asked = asked.context("there is no catalog to measure with")?;
    let pid = world.catalogd.pid().context("catalogd does not run")?;
    for cores in &plan.cores {
        process::confine(pid, *cores)?;
        serving::measure(&world, &asked, *cores, &mut figures).await?;
    }
    process::confine(pid, std::thread::available_parallelism()?.get())?;
    extensions::measure(&world, plan, &mut figures).await?;
    drop(world);
    classic::measure(plan.quiet, &mut figures).await?;
    subscriptions::measure(LARGE, plan.quiet, &mut figures).await?;
    figures.add("all of this", &format!("{:.0} s", begin.elapsed().as_secs_f64()));
    print(&figures)
}

/// Measures `olm fleet plan` alone, and prints the figures.
///
/// # Errors
/// When the command is not built or fails.
pub fn fleet() -> Result<()> {
    let mut figures = Figures::new(&process::machine()?);
    fleet::measure(&mut figures)?;
    print(&figures)
}

/// Measures olm-operator of OLM classic alone, and prints the figures.
///
/// # Errors
/// When something cannot be started, or does not come to its end in time.
pub async fn classic(quiet: Duration) -> Result<()> {
    let mut figures = Figures::new(&process::machine()?);
    classic::measure(quiet, &mut figures).await?;
    print(&figures)
}

/// Measures Subscriptions of OLM classic alone with a catalog of so many megabytes, and prints the figures.
///
/// # Errors
/// When something cannot be started, or does not come to its end in time.
pub async fn subscriptions(megabytes: u64, quiet: Duration) -> Result<()> {
    let mut figures = Figures::new(&process::machine()?);
    subscriptions::measure(megabytes, quiet, &mut figures).await?;
    print(&figures)
}

fn print(figures: &Figures) -> Result<()> {
    print_text(&figures.text)
}

fn print_text(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// A served catalog, and the package of it to request.
struct RequestedPackage {
    catalog: String,
    package: String,
    /// Bytes of the package's blobs.
    size: usize,
}

async fn unpacked(
    world: &mut World,
    name: &str,
    blobs: &str,
    plan: &Plan,
    figures: &mut Figures,
) -> Result<RequestedPackage> {
    let (package, size) = catalog::a_package(blobs).context("the catalog holds no package with bundles")?;
    unpack::measure(world, name, blobs, &plan.cores, figures).await?;
    Ok(RequestedPackage {
        catalog: name.to_owned(),
        package,
        size,
    })
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
