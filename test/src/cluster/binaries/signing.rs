//! The programs that sign images and the services that they use, from two Go modules: cosign 2 goes with older versions
//! of what the others have in common.

use super::modules::{Module, Needed, program};

type Sources = &'static [(&'static str, &'static str)];

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tool {
    /// cosign 2, `cosign2`.
    Cosign2,
    /// cosign 3, `cosign3`.
    Cosign3,
    /// The certificate authority for identities, the transparency log that stores in a folder, and the timestamp
    /// authority: `fulcio`, `rekor`, `timestamp-server`.
    Services,
}

impl Tool {
    pub(super) const fn parts(self) -> (Sources, &'static [Module], Needed) {
        match self {
            Self::Cosign2 => (COSIGN2, COSIGN2_MODULE, Needed::Signer),
            Self::Cosign3 => (SIGSTORE, SIGSTORE_MODULE, Needed::Signer),
            Self::Services => (SIGSTORE, SIGSTORE_MODULE, Needed::SigningService),
        }
    }
}

const COSIGN2: Sources = &[
    ("cosign2/go.mod", include_str!("../../../cluster/cosign2/go.mod")),
    ("cosign2/go.sum", include_str!("../../../cluster/cosign2/go.sum")),
];
const COSIGN2_MODULE: &[Module] = &[Module::of(
    "cosign2",
    &[program(
        "cosign2",
        "github.com/sigstore/cosign/v2/cmd/cosign",
        Needed::Signer,
    )],
)];

const SIGSTORE: Sources = &[
    (
        "sigstore/go.mod",
        include_str!("../../../cluster/sigstore/go.mod"),
    ),
    (
        "sigstore/go.sum",
        include_str!("../../../cluster/sigstore/go.sum"),
    ),
];
const SIGSTORE_MODULE: &[Module] = &[Module::of(
    "sigstore",
    &[
        program(
            "cosign3",
            "github.com/sigstore/cosign/v3/cmd/cosign",
            Needed::Signer,
        ),
        program(
            "rekor",
            "github.com/sigstore/rekor-tiles/v2/cmd/rekor-server/posix",
            Needed::SigningService,
        ),
        program(
            "timestamp-server",
            "github.com/sigstore/timestamp-authority/cmd/timestamp-server",
            Needed::SigningService,
        ),
        program("fulcio", "github.com/sigstore/fulcio", Needed::SigningService),
    ],
)];
