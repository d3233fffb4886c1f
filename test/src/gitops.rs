//! The health of objects in GitOps tools: kstatus, Argo CD's script and Flux's expressions in `manifests/gitops`, run
//! by the libraries of those tools.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::Binaries;
use crate::world::repository;

/// The results of the tools for an object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ToolHealth {
    /// The status of kstatus.
    pub kstatus: String,
    /// The message.
    pub message: String,
    /// The health of Argo CD.
    pub argo: ArgoHealth,
    /// The status of Flux.
    pub flux: String,
}

/// The health of Argo CD.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ArgoHealth {
    /// The state in one word.
    pub status: String,
    /// The reason.
    pub message: String,
}

impl ToolHealth {
    /// Whether each of the tools reports the object as healthy.
    pub fn healthy(&self) -> [bool; 3] {
        [
            self.kstatus == "Current",
            self.argo.status == "Healthy",
            self.flux == "Current",
        ]
    }
}

/// Asks the tools about objects; the answers come in the same order.
///
/// # Errors
/// When the program cannot be built, or a tool cannot read an object.
pub fn ask(objects: &[Value]) -> Result<Vec<ToolHealth>> {
    let program = Binaries::ensure_health()?.path("health");
    let mut child = Command::new(&program)
        .arg(repository().join("manifests/gitops"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let lines: String = objects.iter().map(|object| format!("{object}\n")).collect();
    let mut pipe = child.stdin.take().context("no input")?;
    let writing = std::thread::spawn(move || pipe.write_all(lines.as_bytes()));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    if let Ok(written) = writing.join() {
        written?;
    }
    let text = String::from_utf8(output.stdout)?;
    let said: Vec<ToolHealth> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(
        said.len() == objects.len(),
        "{} answers to {} objects",
        said.len(),
        objects.len()
    );
    Ok(said)
}
