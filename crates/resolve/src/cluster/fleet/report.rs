//! The plan for each extension in the end.

use olm_api::cluster_extension::BundleMetadata;
use olm_api::updates::held_back;
use serde::Serialize;

use super::{BundleChoice, BundleIndex, Member, Planner, State};
use crate::package::ReleaseField;

/// The plan for the extensions of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterPlan {
    /// The cluster.
    pub cluster: String,
    /// The extensions, by name.
    pub extensions: Vec<ExtensionPlan>,
}

/// The plan for an extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionPlan {
    /// The ClusterExtension.
    pub extension: String,
    /// The package.
    pub package: String,
    /// The change.
    pub change: Change,
    /// The installed version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// The bundles that it would get, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<Step>,
    /// The newest bundle of its catalogs, if it would not get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<Step>,
    /// The class of the reason that holds the newest bundle back, one of [`held_back`]'s constants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back_by: Option<&'static str>,
    /// The reasons why the extension gets no bundle, or not the newest one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Catalogs that the extension admits and whose content is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_catalogs: Vec<String>,
}

/// The change of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Change {
    /// The extension would be installed.
    Install,
    /// The extension would get another version.
    Update,
    /// The extension would stay at its version.
    Stay,
    /// No bundle would fit any more; the installed one stays.
    NoBundle,
    /// The extension admits only other catalogs.
    OtherCatalog,
}

/// A bundle that an extension gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Name, version and release.
    #[serde(flatten)]
    pub bundle: BundleMetadata,
    /// The catalog that has it.
    pub catalog: String,
    /// The edge that leads to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<&'static str>,
    /// The extensions that change in the same step, because none can change alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub together_with: Vec<String>,
}

impl Planner<'_> {
    /// The plan for an extension after the last round.
    pub(super) fn report(&mut self, state: &State<'_>, index: usize) -> Option<ExtensionPlan> {
        let member = state.members.get(index)?;
        let installed = member.record.installed.as_ref();
        let mut plan = ExtensionPlan {
            extension: member.record.name.clone(),
            package: member.record.catalog.package_name.clone(),
            change: match (member.steps.is_empty(), installed.is_some()) {
                (false, false) => Change::Install,
                (false, true) => Change::Update,
                (true, _) => Change::Stay,
            },
            installed: installed.map(|installed| installed.bundle.version.clone()),
            updates: member.steps.clone(),
            newest: None,
            held_back_by: None,
            reasons: Vec::new(),
            unknown_catalogs: member.unknown.iter().map(|&name| name.to_owned()).collect(),
        };
        if !member.is_affected {
            plan.change = Change::OtherCatalog;
            return Some(plan);
        }
        let choice = self.choice(state, member);
        if let Err(why) = &choice.chosen {
            plan.reasons.push(why.clone());
            if member.steps.is_empty() {
                plan.change = Change::NoBundle;
            }
        }
        self.held_back(member, &choice, &mut plan);
        Some(plan)
    }

    fn held_back(&self, member: &Member<'_>, choice: &BundleChoice, plan: &mut ExtensionPlan) {
        let as_step = |bundle_index: BundleIndex| {
            let (catalog, bundle) = self.found(&member.record.catalog.package_name, bundle_index)?;
            Some(Step {
                bundle: bundle.recorded(ReleaseField::Counts),
                catalog: catalog.to_owned(),
                edge: None,
                together_with: Vec::new(),
            })
        };
        let newest = choice.newest.and_then(as_step);
        let chosen = choice
            .chosen
            .as_ref()
            .ok()
            .and_then(|(bundle_index, _)| as_step(*bundle_index));
        let is_other = |step: &Step| member.installed.as_ref() != Some(&step.bundle);
        if member.record.paused && chosen.as_ref().is_some_and(is_other) {
            plan.held_back_by = Some(held_back::PAUSED);
            plan.reasons
                .push("the annotation paused stops all changes".to_owned());
            plan.newest = newest.or(chosen);
            return;
        }
        plan.newest = newest.filter(is_other);
        if plan.newest.is_some() {
            plan.held_back_by = choice.obstacles.first().map(|(by, _)| *by);
            plan.reasons
                .extend(choice.obstacles.iter().map(|(_, text)| text.clone()));
        }
    }
}
