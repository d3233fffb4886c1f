//! Writes what is generated from the API, `manifests/crds/*.yaml` and `docs/api.md`, below the directory named on the command line.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let root = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    for file in olm_api::crd::files() {
        std::fs::write(root.join("manifests/crds").join(file.name), file.yaml)?;
    }
    std::fs::write(root.join("docs/api.md"), olm_api::crd::reference())
}
