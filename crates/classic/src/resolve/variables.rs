//! The variables of a resolution: one for each Subscription, each bundle that it may choose, and each bundle that those
//! may require.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::chain;
use super::entry::Entry;
use super::predicate::requirements;
use super::snapshot::{Offer, Snapshot};
use super::solver::{Constraint, Rule, Variable};
use crate::cluster::text;

/// The variables, and the entries by the ids of their variables.
pub(super) struct Variables {
    /// Those of Subscriptions first.
    pub(super) all: Vec<Variable>,
    pub(super) entries: BTreeMap<String, Entry>,
}

/// What the names of the variables of Subscriptions begin with.
pub(super) const SUBSCRIPTION: &str = "subscription:";

/// The ids of the installed operators that a candidate replaces, by the id of the candidate. Neither is chosen with the other.
type Conflicts = BTreeMap<String, BTreeSet<String>>;

pub(super) fn variables(
    snapshot: &Snapshot<'_>,
    namespace: &str,
    subscriptions: &[&Value],
) -> Result<Variables, String> {
    let mut heads = Vec::new();
    let mut waiting: VecDeque<Entry> = VecDeque::new();
    let mut conflicts = Conflicts::new();
    for subscription in subscriptions {
        let (variable, candidates) = of_subscription(snapshot, namespace, subscription, &mut conflicts)?;
        heads.push(variable);
        waiting.extend(candidates);
    }
    let orphans = snapshot.existing().iter();
    let orphans = orphans.filter(|entry| entry.subscription.is_none());
    waiting.extend(orphans.cloned());
    let mut queued: BTreeSet<String> = waiting.iter().map(Entry::id).collect();
    let (mut bundles, mut entries) = (Vec::new(), BTreeMap::new());
    while let Some(entry) = waiting.pop_front() {
        let id = entry.id();
        if entries.contains_key(&id) {
            continue;
        }
        let mut constraints = Vec::new();
        if entry.is_existing() && entry.subscription.is_none() {
            constraints.push(constraint(
                Rule::Mandatory,
                format!(
                    "clusterserviceversion {} exists and is not referenced by a subscription",
                    entry.name
                ),
            ));
        }
        if entry
            .properties
            .iter()
            .any(|property| property.kind == "olm.deprecated")
        {
            constraints.push(constraint(Rule::Prohibited, format!("bundle {id} is deprecated")));
        }
        for replaced in conflicts.get(&id).into_iter().flatten() {
            let shown = format!("{id} conflicts with {replaced}");
            constraints.push(constraint(Rule::Conflict(replaced.clone()), shown));
        }
        for wanted in requirements(&entry)? {
            let providers = snapshot.providers(&entry, &wanted)?;
            let ids: Vec<String> = providers.iter().map(Offer::id).collect();
            for (id, provider) in ids.iter().zip(providers) {
                if queued.insert(id.clone()) {
                    waiting.push_back(provider.to_entry());
                }
            }
            constraints.push(constraint(
                Rule::Dependency(ids),
                format!("bundle {} requires an operator {}", entry.name, wanted.text()),
            ));
        }
        bundles.push(Variable {
            id: id.clone(),
            constraints,
        });
        entries.insert(id, entry);
    }
    let mut all = heads;
    bundles.sort_by(|left, right| left.id.cmp(&right.id));
    all.extend(bundles);
    all.extend(exclusive(&entries));
    Ok(Variables { all, entries })
}

fn constraint(rule: Rule, text: String) -> Constraint {
    Constraint { rule, text }
}

/// The variable of a Subscription, and the entries that it may choose from.
fn of_subscription(
    snapshot: &Snapshot<'_>,
    namespace: &str,
    subscription: &Value,
    conflicts: &mut Conflicts,
) -> Result<(Variable, Vec<Entry>), String> {
    let name = text(subscription, "/metadata/name");
    let exists = constraint(Rule::Mandatory, format!("subscription {name} exists"));
    let mut variable = Variable {
        id: format!("{SUBSCRIPTION}{name}"),
        constraints: vec![exists],
    };
    let installed = snapshot.installed(text(subscription, "/status/installedCSV"));
    let current = match &installed[..] {
        [] => None,
        [one] => Some(*one),
        several => {
            let names: Vec<&str> = several.iter().map(|entry| entry.name.as_str()).collect();
            return Err(format!(
                "multiple name matches for status.installedCSV of subscription {namespace}/{name}: {}",
                names.join(", ")
            ));
        }
    };
    let starting = text(subscription, "/spec/startingCSV");
    let starting = if current.is_some() { "" } else { starting };
    let found = match selected(snapshot, subscription, starting) {
        Ok(found) => found,
        Err(problem) => {
            variable.constraints.push(constraint(Rule::Prohibited, problem));
            return Ok((variable, Vec::new()));
        }
    };
    let mut channels: BTreeMap<(bool, &str), Vec<Offer<'_>>> = BTreeMap::new();
    for offer in found {
        let channel = (!offer.entry.is_default_channel, offer.entry.channel.as_str());
        channels.entry(channel).or_default().push(offer);
    }
    let mut candidates = Vec::new();
    for members in channels.values() {
        for offer in chain::sorted(members)? {
            let mut candidate = offer.to_entry();
            starting.clone_into(&mut candidate.starting_csv);
            if let Some(current) = current {
                if !follows(offer.entry, current) {
                    continue;
                }
                candidate.replaces.clone_from(&current.name);
                conflicts.entry(candidate.id()).or_default().insert(current.id());
            }
            candidates.push(candidate);
        }
    }
    candidates.extend(current.cloned());
    let ids: Vec<String> = candidates.iter().map(Entry::id).collect();
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
    Ok((variable, candidates))
}

/// The entries that the spec of a Subscription names.
fn selected<'a>(
    snapshot: &Snapshot<'a>,
    subscription: &'a Value,
    starting: &str,
) -> Result<Vec<Offer<'a>>, String> {
    let of = |pointer| text(subscription, pointer);
    let (name, package, channel) = (of("/metadata/name"), of("/spec/name"), of("/spec/channel"));
    let (source, source_namespace) = (of("/spec/source"), of("/spec/sourceNamespace"));
    let end = format!("in the catalog referenced by subscription {name}");
    let catalogs = snapshot.of_catalog(source_namespace, source);
    if catalogs.is_empty() {
        return Err(format!(
            "no operators found from catalog {source} in namespace {source_namespace} referenced by subscription {name}"
        ));
    }
    let found = catalogs.into_iter().flat_map(|(catalog, content)| {
        let entries = content.of_package(package);
        entries.map(move |entry| Offer {
            entry,
            catalog: Some(catalog),
        })
    });
    let mut found: Vec<Offer<'_>> = found.collect();
    if found.is_empty() {
        return Err(format!("no operators found in package {package} {end}"));
    }
    found.retain(|offer| channel.is_empty() || offer.entry.channel == channel);
    if found.is_empty() {
        return Err(format!(
            "no operators found in channel {channel} of package {package} {end}"
        ));
    }
    found.retain(|offer| starting.is_empty() || offer.entry.name == starting);
    if found.is_empty() {
        return Err(format!(
            "no operators found with name {starting} in channel {channel} of package {package} {end}"
        ));
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
fn exclusive(entries: &BTreeMap<String, Entry>) -> Vec<Variable> {
    let mut packages: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
    let mut apis: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
    for (id, entry) in entries {
        for (package, _) in entry.packages() {
            packages.entry(package.clone()).or_default().insert(id);
        }
        for gvk in entry.gvks() {
            let api = format!("{} ({}/{})", gvk.kind, gvk.group, gvk.version);
            apis.entry(api).or_default().insert(id);
        }
    }
    let packages = packages.into_iter().map(|(package, ids)| {
        at_most_one(
            &format!("package:{package}"),
            &ids,
            &format!("originate from package {package}"),
        )
    });
    let apis = apis
        .into_iter()
        .map(|(api, ids)| at_most_one(&format!("api:{api}"), &ids, &format!("provide {api}")));
    packages.chain(apis).flatten().collect()
}

fn at_most_one(id: &str, ids: &BTreeSet<&String>, what: &str) -> Option<Variable> {
    let ids: Vec<String> = ids.iter().map(|id| (*id).clone()).collect();
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
