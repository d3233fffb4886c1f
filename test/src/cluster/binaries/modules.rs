//! The Go modules that the programs are built from.

/// The Go modules in `test/cluster`, included so that the launcher needs no checkout.
pub(super) const SOURCES: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../../cluster/go.mod")),
    ("go.sum", include_str!("../../../cluster/go.sum")),
    ("node/go.mod", include_str!("../../../cluster/node/go.mod")),
    ("node/go.sum", include_str!("../../../cluster/node/go.sum")),
    (
        "node/coredns/main.go",
        include_str!("../../../cluster/node/coredns/main.go"),
    ),
    (
        "node/pause/main.go",
        include_str!("../../../cluster/node/pause/main.go"),
    ),
    (
        "registry/go.mod",
        include_str!("../../../cluster/registry/go.mod"),
    ),
    (
        "registry/go.sum",
        include_str!("../../../cluster/registry/go.sum"),
    ),
    (
        "registry/main.go",
        include_str!("../../../cluster/registry/main.go"),
    ),
];

/// The registry with support for tokens. It is a separate module in a separate folder, so that its changes rebuild
/// nothing else.
pub(super) const TOKEN_SOURCES: &[(&str, &str)] = &[
    (
        "registry/go.mod",
        concat!(
            include_str!("../../../cluster/registry/go.mod"),
            include_str!("../../../cluster/registry-tokens/more.mod")
        ),
    ),
    (
        "registry/go.sum",
        concat!(
            include_str!("../../../cluster/registry/go.sum"),
            include_str!("../../../cluster/registry-tokens/more.sum")
        ),
    ),
    (
        "registry/main.go",
        include_str!("../../../cluster/registry-tokens/main.go"),
    ),
];

/// The health checks of GitOps tools, with their own libraries. In a separate folder for the same reason.
pub(super) const HEALTH_SOURCES: &[(&str, &str)] = &[
    ("health/go.mod", include_str!("../../../cluster/health/go.mod")),
    ("health/go.sum", include_str!("../../../cluster/health/go.sum")),
    ("health/main.go", include_str!("../../../cluster/health/main.go")),
];

/// Prometheus and the tool that checks its rules.
pub(super) const PROMETHEUS_SOURCES: &[(&str, &str)] = &[
    (
        "prometheus/go.mod",
        include_str!("../../../cluster/prometheus/go.mod"),
    ),
    (
        "prometheus/go.sum",
        include_str!("../../../cluster/prometheus/go.sum"),
    ),
];

/// Helm, which renders the chart.
pub(super) const HELM_SOURCES: &[(&str, &str)] = &[
    ("helm/go.mod", include_str!("../../../cluster/helm/go.mod")),
    ("helm/go.sum", include_str!("../../../cluster/helm/go.sum")),
];

/// A Go module of ours and the programs that are built from it.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) folder: &'static str,
    /// The dependency whose version the programs report, and the variables for it.
    pub(super) version_of: &'static str,
    pub(super) stamp: fn(&str) -> String,
    pub(super) tags: &'static str,
    pub(super) programs: &'static [Program],
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    pub(super) needed: Needed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needed {
    Always,
    Registry,
    Health,
    Prometheus,
    Helm,
    Signer,
    SigningService,
    Minor,
    Client,
    Simulated,
    Node,
}

pub(super) const fn program(name: &'static str, package: &'static str, needed: Needed) -> Program {
    Program {
        name,
        package,
        needed,
    }
}

impl Module {
    /// A module whose programs need no tags and report no version of ours.
    pub(super) const fn of(folder: &'static str, programs: &'static [Program]) -> Self {
        Self {
            folder,
            version_of: "",
            stamp: |_| String::new(),
            tags: "",
            programs,
        }
    }
}

/// The registry's module.
pub(super) const REGISTRY: Module = Module {
    folder: "registry",
    version_of: "",
    stamp: |_| String::new(),
    tags: "",
    programs: &[program("registry", "olm-test/registry", Needed::Registry)],
};

/// The module of GitOps tools.
pub(super) const HEALTH: Module = Module {
    folder: "health",
    version_of: "",
    stamp: |_| String::new(),
    tags: "",
    programs: &[program("health", "olm-test/health", Needed::Health)],
};

/// The module of Prometheus. Targets are named in its configuration, so it needs no discovery.
pub(super) const PROMETHEUS: Module = Module {
    folder: "prometheus",
    version_of: "",
    stamp: |_| String::new(),
    tags: "remove_all_sd",
    programs: &[
        program(
            "promtool",
            "github.com/prometheus/prometheus/cmd/promtool",
            Needed::Prometheus,
        ),
        program(
            "prometheus",
            "github.com/prometheus/prometheus/cmd/prometheus",
            Needed::Prometheus,
        ),
    ],
};

/// The module of Helm.
pub(super) const HELM: Module = Module {
    folder: "helm",
    version_of: "helm.sh/helm/v4",
    stamp: |version| format!("-X helm.sh/helm/v4/internal/version.version={version}"),
    tags: "",
    programs: &[program("helm", "helm.sh/helm/v4/cmd/helm", Needed::Helm)],
};

/// The variables with the version that Kubernetes reports.
fn kubernetes_stamp(version: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    format!(
        "-X k8s.io/component-base/version.gitVersion={version} \
         -X k8s.io/component-base/version.gitMajor=1 \
         -X k8s.io/component-base/version.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={version}"
    )
}

/// The module of another minor version of Kubernetes: the programs that must have the version of the API server.
pub(super) const MINOR: Module = Module {
    folder: "kubernetes",
    version_of: "k8s.io/kubernetes",
    stamp: kubernetes_stamp,
    tags: "",
    programs: &[
        program(
            "kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-apiserver",
            Needed::Minor,
        ),
        program(
            "kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            Needed::Minor,
        ),
        program(
            "kube-scheduler",
            "k8s.io/kubernetes/cmd/kube-scheduler",
            Needed::Minor,
        ),
    ],
};

pub(super) const MODULES: &[Module] = &[
    REGISTRY,
    Module {
        folder: "",
        version_of: "k8s.io/kubernetes",
        stamp: kubernetes_stamp,
        tags: "",
        programs: &[
            program("etcd", "go.etcd.io/etcd/server/v3", Needed::Always),
            program(
                "kube-apiserver",
                "k8s.io/kubernetes/cmd/kube-apiserver",
                Needed::Always,
            ),
            program("kubectl", "k8s.io/kubernetes/cmd/kubectl", Needed::Simulated),
            program(
                "kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                Needed::Simulated,
            ),
            program(
                "kube-scheduler",
                "k8s.io/kubernetes/cmd/kube-scheduler",
                Needed::Simulated,
            ),
            program("kwok", "sigs.k8s.io/kwok/cmd/kwok", Needed::Simulated),
            program("kubelet", "k8s.io/kubernetes/cmd/kubelet", Needed::Node),
            program("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", Needed::Node),
        ],
    },
    Module {
        folder: "node",
        version_of: "github.com/containerd/containerd/v2",
        stamp: |version| {
            format!(
                "-X github.com/containerd/containerd/v2/version.Version={}",
                version.trim_start_matches('v')
            )
        },
        // File systems that no machine here has.
        tags: "no_btrfs no_zfs no_devmapper no_aufs",
        programs: &[
            program(
                "containerd",
                "github.com/containerd/containerd/v2/cmd/containerd",
                Needed::Node,
            ),
            program(
                "containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                Needed::Node,
            ),
            program("ctr", "github.com/containerd/containerd/v2/cmd/ctr", Needed::Node),
            program("coredns", "olm-test/node/coredns", Needed::Node),
            program("pause", "olm-test/node/pause", Needed::Node),
        ],
    },
];

/// Clients of OLM classic as others ship them. Each has a folder of its own, for their dependencies differ.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) sources: &'static [(&'static str, &'static str)],
    pub(super) modules: &'static [Module],
}

const fn client(folder: &'static str, tags: &'static str, programs: &'static [Program]) -> Module {
    Module {
        tags,
        ..Module::of(folder, programs)
    }
}

/// The plugin of kubectl.
pub(super) const KUBECTL_OPERATOR: Client = Client {
    sources: &[
        (
            "kubectl-operator/go.mod",
            include_str!("../../../cluster/kubectl-operator/go.mod"),
        ),
        (
            "kubectl-operator/go.sum",
            include_str!("../../../cluster/kubectl-operator/go.sum"),
        ),
    ],
    modules: &[client(
        "kubectl-operator",
        "",
        &[program(
            "kubectl-operator",
            "github.com/operator-framework/kubectl-operator",
            Needed::Client,
        )],
    )],
};

/// The client of servers with reflection.
pub(super) const GRPCURL: Client = Client {
    sources: &[
        ("grpcurl/go.mod", include_str!("../../../cluster/grpcurl/go.mod")),
        ("grpcurl/go.sum", include_str!("../../../cluster/grpcurl/go.sum")),
    ],
    modules: &[client(
        "grpcurl",
        "",
        &[program(
            "grpcurl",
            "github.com/fullstorydev/grpcurl/cmd/grpcurl",
            Needed::Client,
        )],
    )],
};

/// The program of authors and servers of catalogs.
pub(super) const OPM: Client = Client {
    sources: &[
        ("opm/go.mod", include_str!("../../../cluster/opm/go.mod")),
        ("opm/go.sum", include_str!("../../../cluster/opm/go.sum")),
    ],
    modules: &[client(
        "opm",
        WITHOUT_C,
        &[program(
            "opm",
            "github.com/operator-framework/operator-registry/cmd/opm",
            Needed::Client,
        )],
    )],
};

/// Leaves out what needs libraries in C.
const WITHOUT_C: &str = "containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper";
