//! The content of the pages, read from the cluster.

use std::fmt::Debug;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use kube::{Resource, core::ClusterResourceScope};
use olm_api::conditions::{READY, find};
use olm_api::names::user;
use olm_api::readiness::{Verdict, verdict};
use olm_api::updates::held_back;
use olm_api::{ClusterCatalog, ClusterExtension, PendingChange};
use reqwest::Url;
use serde::de::DeserializeOwned;

use crate::extension::access::{ClusterArguments, unlisted};
use crate::extension::approve::waiting;
use crate::extension::cluster::Cluster;
use crate::extension::look::events::events;
use crate::extension::look::explain::{Explanation, explain};
use crate::extension::plan;
use crate::registry::RegistryArguments;

/// The access of the pages to the cluster and the registries of bundles.
pub(super) struct Backend {
    /// The address of the API server.
    pub(super) server: String,
    pub(super) cluster: ClusterArguments,
    pub(super) registry: RegistryArguments,
}

/// The filter of the overview.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query {
    /// A part of the name or of the package; empty: all.
    pub(super) words: String,
    /// A state; none: all.
    pub(super) state: Option<State>,
}

impl Query {
    /// Parses the query of an address; unknown parts are ignored.
    pub(super) fn parse(query: &str) -> Self {
        let mut found = Self::default();
        let Ok(address) = Url::parse(&format!("http://localhost/?{query}")) else {
            return found;
        };
        for (key, value) in address.query_pairs() {
            match key.as_ref() {
                "q" => found.words = value.trim().to_lowercase(),
                "state" => found.state = State::ALL.into_iter().find(|state| state.key() == value),
                _ => {}
            }
        }
        found
    }

    /// Whether the extension has the words.
    pub(super) fn takes(&self, extension: &ClusterExtension) -> bool {
        let package = extension.spec.source.catalog.as_ref();
        let package = package
            .map(|filter| filter.package_name.as_str())
            .unwrap_or_default();
        [extension.name(), package]
            .into_iter()
            .any(|text| text.to_lowercase().contains(&self.words))
    }
}

/// The state of an extension at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A user must change something.
    Blocked,
    /// A change waits for a decision or for its time.
    Waiting,
    /// The extension is progressing.
    Progressing,
    /// A user stopped it.
    Paused,
    /// The extension is being deleted.
    Deleting,
    /// The extension matches its spec.
    Ready,
}

impl State {
    /// All, those first that need a user.
    pub(super) const ALL: [Self; 6] = [
        Self::Blocked,
        Self::Waiting,
        Self::Progressing,
        Self::Paused,
        Self::Deleting,
        Self::Ready,
    ];

    /// The state of an extension.
    pub(super) fn of(extension: &ClusterExtension) -> Self {
        let held = extension
            .status
            .as_ref()
            .and_then(|status| status.updates.as_ref()?.held_back_by.as_deref());
        let waits = [held_back::APPROVAL, held_back::WINDOW, held_back::FREEZE];
        match verdict(extension.conditions()) {
            _ if extension.is_deleting() => Self::Deleting,
            _ if extension.annotation(user::PAUSED) == Some("true") => Self::Paused,
            _ if held.is_some_and(|held| waits.contains(&held)) => Self::Waiting,
            Some(Verdict::Ready) => Self::Ready,
            Some(Verdict::Stalled) => Self::Blocked,
            Some(Verdict::Reconciling) | None => Self::Progressing,
        }
    }

    /// The name in addresses.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Waiting => "waiting",
            Self::Progressing => "progressing",
            Self::Paused => "paused",
            Self::Deleting => "deleting",
            Self::Ready => "ready",
        }
    }

    /// The name on pages.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Blocked => "Blocked",
            Self::Waiting => "Change waits",
            Self::Progressing => "Progressing",
            Self::Paused => "Paused",
            Self::Deleting => "Deleting",
            Self::Ready => "Ready",
        }
    }
}

/// The facts about one extension.
pub(super) struct Details {
    pub(super) extension: ClusterExtension,
    pub(super) explanation: Explanation,
    pub(super) waiting: Vec<PendingChange>,
    pub(super) events: Vec<Event>,
    /// Notes about facts that could not be read.
    pub(super) notes: Vec<String>,
}

/// The next change of an extension.
pub(super) enum Plan {
    /// The digest, and the change as text.
    Made {
        /// The digest to approve.
        digest: String,
        /// The plan as `olm plan` prints it.
        text: String,
        /// Whether there are no changes.
        is_empty: bool,
        /// Whether a PendingChange with this digest waits.
        waits: bool,
    },
    /// No bundle fits, for this reason.
    Refused(String),
}

/// All extensions, by name.
pub(super) fn overview(backend: &Backend) -> anyhow::Result<Vec<ClusterExtension>> {
    all(backend, "the ClusterExtensions")
}

/// All catalogs, by name.
pub(super) fn catalogs(backend: &Backend) -> anyhow::Result<Vec<ClusterCatalog>> {
    all(backend, "the ClusterCatalogs")
}

fn all<K>(backend: &Backend, kind: &str) -> anyhow::Result<Vec<K>>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let cluster = Cluster::reach(&backend.cluster)?;
    let api: Api<K> = Api::all(cluster.client.clone());
    let listed = cluster.runtime.block_on(api.list(&ListParams::default()));
    let mut found = listed.map_err(|error| unlisted(error, kind))?.items;
    found.sort_by(|left, right| left.meta().name.cmp(&right.meta().name));
    Ok(found)
}

/// One extension; `None` if there is none with this name.
pub(super) fn extension(backend: &Backend, name: &str) -> anyhow::Result<Option<Details>> {
    let cluster = Cluster::reach(&backend.cluster)?;
    let Some(extension) = cluster.find(name)? else {
        return Ok(None);
    };
    let explanation = explain(&cluster, &extension, &backend.registry, &backend.cluster)
        .with_context(|| format!("cannot explain ClusterExtension {name:?}"))?;
    let mut notes = Vec::new();
    let mut missing = |what: &str, error: anyhow::Error| notes.push(format!("{what}: {error:#}"));
    let waiting = waiting(&cluster, &extension).unwrap_or_else(|error| {
        missing("changes that wait are not shown", error);
        Vec::new()
    });
    let mut found = events(&cluster, name).unwrap_or_else(|error| {
        missing("events are not shown", error);
        Vec::new()
    });
    found.reverse();
    Ok(Some(Details {
        extension,
        explanation,
        waiting,
        events: found,
        notes,
    }))
}

/// The next change of an extension, if there is one of the name.
pub(super) fn plan(backend: &Backend, name: &str) -> anyhow::Result<Option<Plan>> {
    let cluster = Cluster::reach(&backend.cluster)?;
    let Some(extension) = cluster.find(name)? else {
        return Ok(None);
    };
    let made = plan::of_extension(&cluster, name, &backend.registry, &backend.cluster)?;
    let waiting = waiting(&cluster, &extension).unwrap_or_default();
    Ok(Some(match made {
        Ok((plan, text)) => Plan::Made {
            is_empty: plan.is_empty(),
            waits: waiting.iter().any(|change| change.spec.digest == plan.digest),
            digest: plan.digest,
            text,
        },
        Err(refusal) => Plan::Refused(refusal),
    }))
}

/// The message of `Ready` if an extension is not ready.
pub(super) fn fault(extension: &ClusterExtension) -> Option<(&str, &str)> {
    let ready = find(extension.conditions(), READY)?;
    (ready.status != "True").then_some((ready.reason.as_str(), ready.message.as_str()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec, SourceConfig};
    use olm_api::readiness::{Readiness, set_readiness};
    use olm_api::updates::UpdatesStatus;

    use super::*;

    fn extension(name: &str, package: &str) -> ClusterExtension {
        let filter = CatalogFilter {
            package_name: package.to_owned(),
            ..CatalogFilter::default()
        };
        let spec = ClusterExtensionSpec {
            source: SourceConfig {
                catalog: Some(filter),
                ..SourceConfig::default()
            },
            ..ClusterExtensionSpec::default()
        };
        ClusterExtension::new(name, spec)
    }

    #[test]
    fn a_query_filters_by_words_and_state() {
        let query = Query::parse("q=%20Greeter%26s&state=waiting&x=1");
        assert_eq!(
            (query.words.as_str(), query.state),
            ("greeter&s", Some(State::Waiting))
        );
        assert_eq!(Query::parse("state=nonsense"), Query::default());
        let words = Query::parse("q=GREETER");
        assert!(words.takes(&extension("a", "my-greeters")) && words.takes(&extension("greeter", "b")));
        assert!(!words.takes(&extension("a", "b")));
    }

    #[test]
    fn the_most_important_fact_gives_the_state() {
        let mut one = extension("a", "b");
        assert_eq!(State::of(&one), State::Progressing);
        let set = |one: &mut ClusterExtension, verdict| {
            let readiness = Readiness {
                verdict,
                reason: "R",
                message: "",
                observed_generation: 1,
            };
            let status = one.status.get_or_insert_default();
            set_readiness(&mut status.conditions, readiness, Timestamp::UNIX_EPOCH);
        };
        set(&mut one, Verdict::Stalled);
        assert_eq!(State::of(&one), State::Blocked);
        set(&mut one, Verdict::Ready);
        assert_eq!(State::of(&one), State::Ready);
        let updates = UpdatesStatus {
            held_back_by: Some(held_back::WINDOW.to_owned()),
            ..UpdatesStatus::default()
        };
        one.status.get_or_insert_default().updates = Some(updates);
        assert_eq!(State::of(&one), State::Waiting);
        let annotations = one.metadata.annotations.get_or_insert_default();
        annotations.insert(user::PAUSED.to_owned(), "true".to_owned());
        assert_eq!(State::of(&one), State::Paused);
        one.metadata.deletion_timestamp = Some(olm_api::Time(Timestamp::UNIX_EPOCH));
        assert_eq!(State::of(&one), State::Deleting);
    }
}
