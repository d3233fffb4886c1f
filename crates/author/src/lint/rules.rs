//! Sets of rules about good bundles, with their names in operator tooling.
//!
//! [`violations`](olm_bundle::lint::violations) decides whether OLM installs a bundle. These rules are about good
//! manifests: metadata for people, rules of operator hubs, APIs that newer clusters no longer serve. A set reports all
//! its findings. [`RuleFinding`]s are displayed in the texts of that tooling.

mod annotations;
mod bundle;
mod community;
mod csv;
mod definitions;
mod hub;
mod icons;
mod objects;
mod platforms;
mod practices;
mod removed;
mod text;

pub use platforms::images;

use super::manifests::Manifests;
use super::rule_finding::{Options, RuleFinding};

macro_rules! rule_sets {
    ($(#[doc = $doc:literal] $variant:ident, $name:literal, $run:expr;)+) => {
        /// A set of rules.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum RuleSet {
            $(#[doc = $doc] $variant,)+
        }

        impl RuleSet {
            /// Every set.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name for its selection.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What the set is about, as a sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc.trim_ascii_start(),)+ }
            }

            /// All findings, errors first.
            #[must_use]
            pub fn run(self, manifests: &Manifests, options: &Options) -> Vec<RuleFinding> {
                let run: fn(&Manifests, &Options) -> Vec<RuleFinding> = match self {
                    $(Self::$variant => $run,)+
                };
                let mut findings = run(manifests, options);
                findings.sort_by_key(|finding| finding.severity);
                findings
            }
        }
    };
}

rule_sets! {
    /// The ClusterServiceVersion.
    ClusterServiceVersion, "clusterserviceversion", csv::lint;
    /// The custom resource definitions.
    Definitions, "crd", definitions::lint;
    /// The references between the objects of the bundle.
    Bundle, "bundle", bundle::lint;
    /// The requirements of OperatorHub.io, with categories and capabilities; deprecated in favour of the three sets in it.
    OperatorHub, "operatorhub", hub::validate_deprecated;
    /// The requirements of OperatorHub.io.
    OperatorHubV2, "operatorhub/v2", hub::lint;
    /// The annotation `capabilities`.
    Capabilities, "standardcapabilities", hub::capabilities;
    /// The annotation `categories`.
    Categories, "standardcategories", hub::categories;
    /// Objects that could harm the cluster.
    Objects, "object", objects::lint;
    /// Annotations of OperatorGroups with misspelled keys.
    OperatorGroups, "operatorgroup", annotations::operator_groups;
    /// Community operators on OpenShift 4.9; deprecated.
    Community, "community", community::lint;
    /// APIs that newer clusters no longer serve.
    RemovedApis, "alpha-deprecated-apis", removed::lint;
    /// Recommendations.
    GoodPractices, "good-practices", practices::lint;
    /// Whether each image is built for the platforms that the labels name; asks registries.
    Platforms, "multiarch", platforms::lint;
    /// Whether the icons are pictures.
    Icons, "icons", icons::lint;
}

impl RuleSet {
    /// The default rules.
    pub const DEFAULT: [Self; 4] = [
        Self::ClusterServiceVersion,
        Self::Definitions,
        Self::Bundle,
        Self::Icons,
    ];

    /// The set of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule_set| rule_set.name() == name)
    }
}
