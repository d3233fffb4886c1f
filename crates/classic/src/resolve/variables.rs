//! The variables of a resolution: one for each Subscription, each bundle that it may choose, and each bundle that those
//! may require.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::chain;
use super::entry::Entry;
use super::predicate::requirements;
use super::remedy::{self, Lack};
use super::snapshot::{Candidate, Snapshot, aggregate};
use super::solver::{Constraint, Rule, Variable};
use crate::cluster::text;

/// The variables, and the entries by the ids of their variables.
pub(super) struct Variables {
    /// Those of Subscriptions first.
    pub(super) all: Vec<Variable>,
    pub(super) entries: BTreeMap<String, Entry>,
    remedies: BTreeMap<String, String>,
}

impl Variables {
    /// What a user can change about constraints with these texts.
    pub(super) fn remedies(&self, texts: &[String]) -> Vec<String> {
        let mut remedies: Vec<String> = Vec::new();
        for remedy in texts.iter().filter_map(|text| self.remedies.get(text)) {
            if !remedies.contains(remedy) {
                remedies.push(remedy.clone());
            }
        }
        remedies
    }
}

/// Prefix of the names of the variables of Subscriptions.
pub(super) const SUBSCRIPTION: &str = "subscription:";

/// The variables and entries of the bundles that are found so far.
#[derive(Default)]
struct BundleVariables {
    bundles: BTreeMap<String, Variable>,
    entries: BTreeMap<String, Entry>,
    /// The names that Subscriptions start with.
    starting: BTreeSet<String>,
    /// What a user can change about constraints, by their texts.
    remedies: BTreeMap<String, String>,
}

pub(super) fn variables(snapshot: &Snapshot<'_>, subscriptions: &[&Value]) -> Result<Variables, String> {
    let (mut bundles, mut heads, mut errors) = (BundleVariables::default(), Vec::new(), Vec::new());
    bundles
        .add(snapshot, snapshot.existing().collect())
        .map_err(aggregate)?;
    for entry in snapshot.abandoned() {
        let remedy = remedy::of_unreferenced(entry, subscriptions);
        bundles.remedies.insert(unreferenced(&entry.name), remedy);
    }
    for subscription in subscriptions {
        match of_subscription(snapshot, subscription, &mut bundles) {
            Ok(variable) => heads.push(variable),
            Err(several) => errors.extend(several),
        }
    }
    if !errors.is_empty() {
        return Err(aggregate(errors));
    }
    let BundleVariables {
        bundles,
        mut entries,
        starting,
        remedies,
    } = bundles;
    for entry in entries.values_mut() {
        if starting.contains(&entry.name) {
            entry.starting_csv.clone_from(&entry.name);
        }
    }
    let mut all = heads;
    all.extend(bundles.into_values());
    all.extend(exclusive(
        entries.iter().filter(|(_, entry)| snapshot.is_unique(entry)),
    ));
    Ok(Variables {
        all,
        entries,
        remedies,
    })
}

impl BundleVariables {
    /// Adds bundles, and those that they may require.
    fn add<'a>(
        &mut self,
        snapshot: &'a Snapshot<'_>,
        mut waiting: Vec<Candidate<'a>>,
    ) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        while let Some(offer) = waiting.pop() {
            let id = offer.id();
            if self.entries.contains_key(&id) {
                continue;
            }
            let entry = offer.to_entry();
            let mut constraints = Vec::new();
            if entry.is_existing() && entry.subscription.is_none() {
                constraints.push(constraint(Rule::Mandatory, unreferenced(&entry.name)));
            }
            let mut kinds = entry.properties.iter().map(|property| property.kind.as_str());
            if kinds.any(|kind| kind == "olm.deprecated") {
                constraints.push(constraint(Rule::Prohibited, format!("bundle {id} is deprecated")));
            }
            let wanted = requirements(&entry).unwrap_or_else(|error| {
                errors.push(error);
                Vec::new()
            });
            for wanted in wanted {
                match snapshot.providers(&entry, &wanted) {
                    Ok(providers) => {
                        let ids = providers.iter().map(Candidate::id).collect();
                        let shown = format!("bundle {} requires an operator {}", entry.name, wanted.text());
                        if providers.is_empty() {
                            let remedy = remedy::of_requirement(snapshot, &wanted);
                            self.remedies.insert(shown.clone(), remedy);
                        }
                        constraints.push(constraint(Rule::Dependency(ids), shown));
                        waiting.extend(providers);
                    }
                    Err(error) => errors.push(error),
                }
            }
            self.entries.insert(id.clone(), entry);
            self.bundles.insert(id.clone(), Variable { id, constraints });
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Notes that a bundle replaces an installed one; they are not chosen together.
    fn replace(&mut self, id: &str, current: &Entry) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.replaces.clone_from(&current.name);
        }
        let current = current.id();
        let shown = format!("{id} conflicts with {current}");
        if let Some(bundle) = self.bundles.get_mut(id) {
            bundle
                .constraints
                .push(constraint(Rule::Conflict(current), shown));
        }
    }
}

/// The text of the constraint on an installed version that no Subscription refers to.
fn unreferenced(name: &str) -> String {
    format!("clusterserviceversion {name} exists and is not referenced by a subscription")
}

fn constraint(rule: Rule, text: String) -> Constraint {
    Constraint { rule, text }
}

/// The variable of a Subscription. The entries that it may choose from are added to the bundles.
fn of_subscription(
    snapshot: &Snapshot<'_>,
    subscription: &Value,
    bundles: &mut BundleVariables,
) -> Result<Variable, Vec<String>> {
    let name = text(subscription, "/metadata/name");
    let exists = constraint(Rule::Mandatory, format!("subscription {name} exists"));
    let mut variable = Variable {
        id: format!("{SUBSCRIPTION}{name}"),
        constraints: vec![exists],
    };
    let installed = text(subscription, "/status/installedCSV");
    let mut existing = snapshot.existing().map(|offer| offer.entry);
    let current = existing.find(|entry| entry.name == installed);
    let starting = text(subscription, "/spec/startingCSV");
    let starting = if current.is_some() { "" } else { starting };
    if !starting.is_empty() {
        bundles.starting.insert(starting.to_owned());
    }
    let found = match selected(snapshot, subscription, starting) {
        Ok(found) => found,
        Err((lack, problem)) => {
            let remedy = remedy::of_lack(snapshot, subscription, lack);
            bundles
                .remedies
                .extend(remedy.map(|remedy| (problem.clone(), remedy)));
            variable.constraints.push(constraint(Rule::Prohibited, problem));
            return Ok(variable);
        }
    };
    let mut found = found;
    found.sort_by_key(|offer| (!offer.entry.is_default_channel, offer.entry.channel.as_str()));
    let mut ids = Vec::new();
    for members in found.chunk_by(|left, right| left.entry.channel == right.entry.channel) {
        for offer in chain::sorted(members).map_err(|error| vec![error])? {
            if current.is_some_and(|current| !follows(offer.entry, current)) {
                continue;
            }
            bundles.add(snapshot, vec![offer])?;
            ids.push(offer.id());
        }
    }
    if let Some(current) = current {
        for id in &ids {
            bundles.replace(id, current);
        }
        ids.push(current.id());
    }
    let shown = match &ids[..] {
        [] => format!("no operators found matching the criteria of subscription {name}"),
        [one] => format!("subscription {name} requires {one}"),
        [first @ .., last] => {
            let first = first.join(", ");
            format!("subscription {name} requires at least one of {first} or {last}")
        }
    };
    variable
        .constraints
        .push(constraint(Rule::Dependency(ids), shown));
    Ok(variable)
}

/// The entries that the spec of a Subscription names, or what leads to none and the text of that constraint.
fn selected<'a>(
    snapshot: &'a Snapshot<'_>,
    subscription: &'a Value,
    starting: &str,
) -> Result<Vec<Candidate<'a>>, (Lack, String)> {
    let of = |pointer| text(subscription, pointer);
    let (name, package, channel) = (of("/metadata/name"), of("/spec/name"), of("/spec/channel"));
    let (source, source_namespace) = (of("/spec/source"), of("/spec/sourceNamespace"));
    let end = format!("in the catalog referenced by subscription {name}");
    let catalogs = snapshot.of_catalog(source_namespace, source);
    if catalogs.is_empty() {
        let problem = format!(
            "no operators found from catalog {source} in namespace {source_namespace} referenced by subscription {name}"
        );
        return Err((Lack::Catalog, problem));
    }
    let found = catalogs.into_iter().flat_map(|(catalog, content)| {
        let entries = content.of_package(package);
        entries.map(move |entry| Candidate { entry, catalog })
    });
    let mut found: Vec<Candidate<'_>> = found.collect();
    if found.is_empty() {
        let problem = format!("no operators found in package {package} {end}");
        return Err((Lack::Package, problem));
    }
    found.retain(|offer| channel.is_empty() || offer.entry.channel == channel);
    if found.is_empty() {
        let problem = format!("no operators found in channel {channel} of package {package} {end}");
        return Err((Lack::Channel, problem));
    }
    found.retain(|offer| starting.is_empty() || offer.entry.name == starting);
    if found.is_empty() {
        let problem = format!(
            "no operators found with name {starting} in channel {channel} of package {package} {end}"
        );
        return Err((Lack::StartingCsv, problem));
    }
    Ok(found)
}

/// Whether an entry may replace the installed operator.
fn follows(entry: &Entry, current: &Entry) -> bool {
    let in_range = entry
        .skip_range
        .as_ref()
        .zip(current.version.as_ref())
        .is_some_and(|(range, version)| range.contains(version));
    in_range || entry.replaces == current.name || entry.skips.contains(&current.name)
}

/// One variable for each package and API that several entries have: only one of them is chosen.
fn exclusive<'a>(entries: impl Iterator<Item = (&'a String, &'a Entry)>) -> Vec<Variable> {
    let mut packages: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut apis: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (id, entry) in entries {
        for (package, _) in entry.packages() {
            packages.entry(package.clone()).or_default().push(id.clone());
        }
        for gvk in entry.gvks() {
            let api = format!("{} ({}/{})", gvk.kind, gvk.group, gvk.version);
            apis.entry(api).or_default().push(id.clone());
        }
    }
    let packages = packages.into_iter().map(|(package, ids)| {
        let what = format!("originate from package {package}");
        at_most_one(&format!("package:{package}"), ids, &what)
    });
    let apis = apis
        .into_iter()
        .map(|(api, ids)| at_most_one(&format!("api:{api}"), ids, &format!("provide {api}")));
    packages.chain(apis).flatten().collect()
}

fn at_most_one(id: &str, ids: Vec<String>, what: &str) -> Option<Variable> {
    let [first @ .., last] = &ids[..] else { return None };
    if first.is_empty() {
        return None;
    }
    let shown = format!("{} and {last} {what}", first.join(", "));
    Some(Variable {
        id: id.to_owned(),
        constraints: vec![constraint(Rule::AtMost(1, ids), shown)],
    })
}
