//! Other minor versions of Kubernetes. `OLM_KUBERNETES=1.35` makes tests use the API server and the controllers of
//! 1.35.

use anyhow::{Result, bail};

/// The environment variable with the minor version.
const VARIABLE: &str = "OLM_KUBERNETES";
/// The minor version in `test/cluster/go.mod`.
const USUAL: &str = "1.36";

/// Another minor version.
#[derive(Debug)]
pub(super) struct Minor {
    version: &'static str,
    /// The Go module with its programs.
    pub(super) sources: &'static [(&'static str, &'static str)],
}

const MINORS: &[Minor] = &[
    Minor {
        version: "1.37",
        sources: &[
            (
                "kubernetes/go.mod",
                include_str!("../../cluster/kubernetes-1.37/go.mod"),
            ),
            (
                "kubernetes/go.sum",
                include_str!("../../cluster/kubernetes-1.37/go.sum"),
            ),
        ],
    },
    Minor {
        version: "1.35",
        sources: &[
            (
                "kubernetes/go.mod",
                include_str!("../../cluster/kubernetes-1.35/go.mod"),
            ),
            (
                "kubernetes/go.sum",
                include_str!("../../cluster/kubernetes-1.35/go.sum"),
            ),
        ],
    },
];

/// The other minor version that the environment chooses; `None` for the usual one.
pub(super) fn chosen() -> Result<Option<&'static Minor>> {
    let chosen = std::env::var(VARIABLE).unwrap_or_default();
    of(&chosen)
}

fn of(version: &str) -> Result<Option<&'static Minor>> {
    if version.is_empty() || version == USUAL {
        return Ok(None);
    }
    let Some(minor) = MINORS.iter().find(|minor| minor.version == version) else {
        let known: Vec<&str> = MINORS.iter().map(|minor| minor.version).collect();
        bail!(
            "cannot use Kubernetes {version:?}: set {VARIABLE} to {USUAL} or one of {}",
            known.join(", ")
        );
    };
    Ok(Some(minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minor_version_has_a_module_of_that_version() {
        for minor in MINORS {
            let found = of(minor.version).unwrap().unwrap();
            let (_, module) = found.sources[0];
            let required = format!("k8s.io/kubernetes v{}.", minor.version);
            assert!(module.contains(&required), "{required}");
        }
        assert!(of("").unwrap().is_none() && of(USUAL).unwrap().is_none());
        let refused = of("1.20").unwrap_err().to_string();
        assert!(
            refused.ends_with("set OLM_KUBERNETES to 1.36 or one of 1.37, 1.35"),
            "{refused}"
        );
    }
}
