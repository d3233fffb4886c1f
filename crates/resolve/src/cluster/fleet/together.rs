//! Extensions of a cluster that only change together.

use olm_constraint::Gvk;

use super::{BundleIndex, Planner, State};
use crate::cluster::inventory::{Inventory, Questions};
use crate::cluster::joint_update::{Participant, SearchBudget, joint_update, options};
use crate::cluster::related::Relations;

/// The most other extensions that may be updated along.
const MOST_MOVERS: usize = 50;

impl Planner<'_> {
    /// The bundle of an extension that is updated in one step with others, and those of the others.
    pub(super) fn together(
        &self,
        state: &State<'_>,
        index: usize,
    ) -> Option<(BundleIndex, Vec<(usize, BundleIndex)>)> {
        let own = state.members.get(index)?;
        let others = self.others(state, index);
        let facts = self.joint_facts(state, index, &others);
        let views: Vec<_> = std::iter::once(index)
            .chain(others)
            .filter_map(|index| Some((index, self.views(state, state.members.get(index)?))))
            .collect();
        let facts = facts.facts();
        let participants = views.iter().filter_map(|(index, views)| {
            let member = state.members.get(*index)?;
            let options = options(views, &member.request(), member.installed().as_ref(), &facts);
            let participant = Participant {
                extension: &member.record.name,
                options: options.ok()?,
            };
            Some((*index, participant))
        });
        let mut participants: Vec<(usize, Participant<'_>)> = participants.collect();
        if participants.first().is_none_or(|(first, _)| *first != index) {
            return None;
        }
        let (_, participant) = participants.remove(0);
        let others: Vec<Participant<'_>> = participants.into_iter().map(|(_, one)| one).collect();
        let found = joint_update(&participant, &others, &facts, &mut SearchBudget::default());
        // If the search takes too long, the controller waits as well.
        let (found, along) = found.ok().flatten()?;
        if along.is_empty() {
            return None;
        }
        let bundle_index =
            self.bundle_index(&own.record.catalog.package_name, found.catalog, found.bundle)?;
        let along = along.into_iter().map(|(extension, bundle)| {
            let index = state
                .members
                .iter()
                .position(|one| one.record.name == extension)?;
            let package = &state.members.get(index)?.record.catalog.package_name;
            let mut catalogs = self.catalogs.iter();
            let bundle_index =
                catalogs.find_map(|catalog| self.bundle_index(package, &catalog.name, bundle))?;
            Some((index, bundle_index))
        });
        Some((bundle_index, along.collect::<Option<_>>()?))
    }

    /// The extensions that may be updated along, by name. If there are many, only those that requirements connect.
    fn others(&self, state: &State<'_>, index: usize) -> Vec<usize> {
        let Some(own) = state.members.get(index) else {
            return Vec::new();
        };
        let package = &own.record.catalog.package_name;
        let mut relations = Relations::default();
        if let Some(there) = &own.there {
            relations.add(&there.installed);
        }
        let packages = |name: &str, relations: &mut Relations| {
            let catalogs = self.catalogs.iter();
            for package in catalogs.filter_map(|catalog| catalog.packages.get(name)) {
                relations.add_package(package);
            }
        };
        packages(package, &mut relations);
        let may_come = |other: &usize| {
            state.members.get(*other).is_some_and(|other| {
                other.may_move()
                    && other.record.catalog.package_name != *package
                    // A first installation does not change installed extensions.
                    && (own.installed.is_some() || other.installed.is_none())
            })
        };
        let mut waiting: Vec<usize> = (0..state.members.len()).filter(may_come).collect();
        let mut found = Vec::new();
        while found.len() < MOST_MOVERS && !waiting.is_empty() {
            let near = waiting.iter().position(|other| {
                state.members.get(*other).is_some_and(|other| {
                    let there = other.there.as_ref().map(|known| &*known.installed);
                    relations.reach(&other.record.catalog.package_name, there)
                })
            });
            let other = waiting.remove(near.unwrap_or(0));
            if let Some(member) = state.members.get(other).filter(|_| near.is_some()) {
                if let Some(there) = &member.there {
                    relations.add(&there.installed);
                }
                packages(&member.record.catalog.package_name, &mut relations);
            }
            found.push(other);
        }
        found.sort_unstable();
        found
    }

    /// The facts of the cluster that affect all of these.
    fn joint_facts(&self, state: &State<'_>, index: usize, others: &[usize]) -> Inventory {
        let mut questions = Questions::default();
        for member in std::iter::once(&index)
            .chain(others)
            .filter_map(|one| state.members.get(*one))
        {
            if let Some(about) = self.about.get(member.record.catalog.package_name.as_str()) {
                let asked = &about.questions;
                let apis: Vec<Gvk> = asked.apis.iter().cloned().collect();
                questions.apis.extend(apis);
                questions.requires |= asked.requires;
                questions.version |= asked.version;
                questions.architectures |= asked.architectures;
            }
        }
        state.members.get(index).map_or_else(Inventory::default, |own| {
            super::RelevantFacts::whole(state, own, &questions).inventory(state, own)
        })
    }
}
