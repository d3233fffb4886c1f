//! The kinds of templates.

/// A kind of template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Blobs in which a bundle consists only of its image.
    Basic,
    /// Bundles whose versions determine the channels.
    Semver,
    /// A catalog with bundles that substitute for others.
    Substitutes,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Basic, Self::Semver, Self::Substitutes];

    /// The schema of templates of this kind.
    pub fn schema(self) -> &'static str {
        match self {
            Self::Basic => "olm.template.basic",
            Self::Semver => "olm.semver",
            Self::Substitutes => "olm.template.substitutes",
        }
    }

    /// The name of the kind on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Semver => "semver",
            Self::Substitutes => "substitutes",
        }
    }
}
