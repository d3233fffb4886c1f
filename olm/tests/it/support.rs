//! Runs the binary on directories made for the test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory with these files in it, gone after the test.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    /// Writes the files.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().expect("the file is in a directory"))
                .expect("it can be made");
            std::fs::write(path, text).expect("the file can be written");
        }
        Self(directory)
    }

    /// The directory, or a path in it.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        if below.is_empty() {
            self.0.path().to_owned()
        } else {
            self.0.path().join(below)
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("output is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("output is UTF-8"),
        }
    }
}

/// The binary, without access to the developer's credentials.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_olm"));
    for variable in [
        "REGISTRY_AUTH_FILE",
        "CONTAINERS_REGISTRIES_CONF",
        "OLM_SIGNATURE_POLICY",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "DOCKER_CONFIG",
        "HOME",
        "KUBECONFIG",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Runs the binary in `directory`.
pub(crate) fn olm(directory: &Path, arguments: &[&str]) -> Run {
    binary()
        .current_dir(directory)
        .args(arguments)
        .output()
        .expect("the binary runs")
        .into()
}

pub(crate) const CATALOG: &str = r#"{"schema":"olm.package","name":"foo","defaultChannel":"stable"}
{"schema":"olm.channel","package":"foo","name":"stable","entries":[{"name":"foo.v1.0.0"},{"name":"foo.v1.1.0","replaces":"foo.v1.0.0"}]}
{"schema":"olm.channel","package":"foo","name":"fast","entries":[{"name":"foo.v2.0.0"}]}
{"schema":"olm.bundle","package":"foo","name":"foo.v1.0.0","image":"reg.example/foo:1.0.0","properties":[{"type":"olm.package","value":{"packageName":"foo","version":"1.0.0"}}]}
{"schema":"olm.bundle","package":"foo","name":"foo.v1.1.0","image":"reg.example/foo:1.1.0","properties":[{"type":"olm.package","value":{"packageName":"foo","version":"1.1.0"}}]}
{"schema":"olm.bundle","package":"foo","name":"foo.v2.0.0","image":"reg.example/foo:2.0.0","properties":[{"type":"olm.package","value":{"packageName":"foo","version":"2.0.0"}}]}
"#;

pub(crate) const CSV: &str = "apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: greeter.v1.0.0
spec:
  version: 1.0.0
  displayName: Greeter
  installModes:
  - {type: AllNamespaces, supported: true}
  - {type: OwnNamespace, supported: true}
  - {type: SingleNamespace, supported: true}
  - {type: MultiNamespace, supported: false}
  install:
    strategy: deployment
    spec:
      deployments:
      - name: greeter
        spec:
          replicas: 1
          selector: {matchLabels: {app: greeter}}
          template:
            metadata: {labels: {app: greeter}}
            spec:
              serviceAccountName: greeter
              containers:
              - {name: greeter, image: 'reg.example/greeter:1.0.0'}
";

pub(crate) const ANNOTATIONS: &str = "annotations:
  operators.operatorframework.io.bundle.mediatype.v1: registry+v1
  operators.operatorframework.io.bundle.manifests.v1: manifests/
  operators.operatorframework.io.bundle.metadata.v1: metadata/
  operators.operatorframework.io.bundle.package.v1: greeter
  operators.operatorframework.io.bundle.channels.v1: stable
";

/// A small bundle that can be installed.
pub(crate) fn bundle() -> Files {
    Files::new(&[
        ("manifests/csv.yaml", CSV),
        ("metadata/annotations.yaml", ANNOTATIONS),
    ])
}
