//! Commands on a cluster that nothing leads to.

use crate::support::{Files, Run, binary};

/// `olm get` with a home folder and a kubeconfig in the environment.
fn get(files: &Files, kubeconfig: Option<&str>) -> Run {
    let mut command = binary();
    command
        .arg("get")
        .current_dir(files.path(""))
        .env("HOME", files.path("home"))
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST");
    if let Some(path) = kubeconfig {
        command.env("KUBECONFIG", path);
    }
    command.output().expect("the binary runs").into()
}

#[test]
fn an_error_names_the_kubeconfig_that_is_missing_or_what_is_wrong_with_it() {
    let files = Files::new(&[("empty", "{}"), ("home/file", "")]);
    let home = files.path("home/.kube/config").display().to_string();
    for (kubeconfig, path) in [(None, home.as_str()), (Some("gone"), "gone")] {
        let run = get(&files, kubeconfig);
        assert_eq!(
            (run.status, run.stderr),
            (
                1,
                format!(
                    "error: cannot find the API server: there is no file `{path}`; set `KUBECONFIG` or `--kubeconfig` \
                     to a kubeconfig\n"
                )
            )
        );
    }
    let gone = crate::support::olm(&files.path(""), &["get", "--kubeconfig", "gone"]);
    assert!(gone.stderr.contains("there is no file `gone`"), "{gone:?}");
    let run = get(&files, Some("empty"));
    assert!(
        run.stderr
            .starts_with("error: cannot use the kubeconfig `empty`: ")
            && !run.stderr.contains("in-cluster"),
        "{run:?}"
    );
}
