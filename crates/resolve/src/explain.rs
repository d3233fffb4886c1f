//! The explanation of a refusal: the candidates, the reasons that exclude them, and possible changes for the user.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::Display;

use olm_api::names;
use olm_api::text::{counted, first_of};
use olm_fbc::similar::nearest;
use olm_version::quoted;

use crate::blocker::{Blocker, listed};
use crate::catalog::{Availability, Catalog, PackageAnswer, Selected};
use crate::channels;
use crate::choose::{BlockedBundle, Choice, Context, rank};
use crate::package::{Candidate, Package};
use crate::range::{Fit, fit};
use crate::refusal::{NoBundle, Reason, Refusal};
use crate::request::Request;
use crate::successors::{self, Current, Edge, Successors};

/// The most names in a list. Further ones are only counted.
const SHOWN: usize = 3;

/// The first filter that excludes a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exclusion {
    Channel,
    Version,
    Prerelease,
    Unreadable,
    Edge,
}

/// The bundles of one catalog that one filter excludes, highest version first.
type Excluded<'a> = (Exclusion, Vec<&'a Candidate>);

/// The refusal when no catalog, or more than one, has the bundle.
pub(crate) fn no_choice(
    catalogs: &[Catalog<'_>],
    selected: &[Selected<'_>],
    contenders: &[Choice<'_>],
    context: &Context<'_>,
) -> Refusal {
    let request = context.request;
    let mut names: Vec<String> = contenders
        .iter()
        .map(|choice| choice.catalog.name.to_owned())
        .collect();
    names.sort_unstable();
    let mut refusal = Refusal::new(Reason::NoBundle(NoBundle {
        installed: context.installed.map(|installed| installed.version.to_owned()),
        package: request.package.to_owned(),
        range: request.version.map(str::to_owned),
        channels: request.channels.to_vec(),
        contenders: names,
    }));
    if contenders.is_empty() {
        nothing(&mut refusal, catalogs, selected, context);
    } else {
        ambiguous(&mut refusal, contenders);
    }
    refusal
}

/// The refusal when every fitting bundle is blocked, given the first few of each catalog, highest first.
pub(crate) fn blocked(mut blocked: Vec<BlockedBundle<'_>>) -> Refusal {
    blocked
        .sort_by(|left, right| rank(right.bundle, left.bundle).then_with(|| left.catalog.cmp(right.catalog)));
    let highest = blocked.first();
    let mut refusal = blocked_bundle(
        highest
            .map(|blocked| blocked.bundle.name.as_str())
            .unwrap_or_default(),
        highest.map(|blocked| blocked.catalog).unwrap_or_default(),
        highest
            .map(|blocked| blocked.blockers.as_slice())
            .unwrap_or_default(),
    );
    for blocked in blocked.iter().skip(1) {
        refusal.add(format!(
            "{} of catalog {}: {}",
            blocked.bundle.name,
            quoted(blocked.catalog),
            listed(&blocked.blockers)
        ));
    }
    ways_out(&mut refusal, blocked.iter().flat_map(|blocked| &blocked.blockers));
    refusal
}

/// The refusal of one bundle because of requirements in its own files.
pub fn refuse(bundle: &str, catalog: &str, blockers: &[Blocker]) -> Refusal {
    let mut refusal = blocked_bundle(bundle, catalog, blockers);
    ways_out(&mut refusal, blockers.iter());
    refusal
}

fn blocked_bundle(bundle: &str, catalog: &str, blockers: &[Blocker]) -> Refusal {
    let mut refusal = Refusal::new(Reason::Blocked {
        bundle: bundle.to_owned(),
        catalog: catalog.to_owned(),
        why: listed(blockers),
    });
    for blocker in blockers {
        refusal.wants(blocker.wanted());
    }
    refusal
}

fn ways_out<'h>(refusal: &mut Refusal, blockers: impl Iterator<Item = &'h Blocker> + Clone) {
    let mut missing = blockers.clone();
    if missing.any(|blocker| matches!(blocker, Blocker::Missing { .. })) {
        refusal.hint("it is installed as soon as its requirements hold");
    }
    let mut dependents = blockers;
    if dependents.any(|blocker| matches!(blocker, Blocker::Dependent { .. })) {
        refusal.hint(format!(
            "update or uninstall the ClusterExtensions that depend on it first, or set the annotation {}: \"true\" to continue anyway",
            names::user::ALLOW_BREAK_DEPENDENTS
        ));
    }
}

fn ambiguous(refusal: &mut Refusal, contenders: &[Choice<'_>]) {
    let mut contenders: Vec<_> = contenders.iter().collect();
    contenders.sort_unstable_by_key(|choice| choice.catalog.name);
    for choice in contenders {
        let catalog = &choice.catalog;
        refusal.add(format!(
            "catalog {} (priority {}) offers {}",
            quoted(catalog.name),
            catalog.priority,
            choice.candidate.name
        ));
    }
    refusal.hint_or(
        format!(
            "select one catalog by spec.source.catalog.selector, e.g. by its label {}, or give one ClusterCatalog a \
             higher spec.priority",
            names::label::METADATA_NAME
        ),
        "name one catalog only, or give one a higher priority by --priority NAME=NUMBER",
    );
}

fn nothing(
    refusal: &mut Refusal,
    catalogs: &[Catalog<'_>],
    selected: &[Selected<'_>],
    context: &Context<'_>,
) {
    let mut excluded = Vec::new();
    // A text that depended on the order of the catalogs would be written to the status again and again.
    let mut selected: Vec<_> = selected.iter().collect();
    selected.sort_unstable_by_key(|catalog| catalog.name);
    let mut others: Vec<_> = catalogs.iter().collect();
    others.sort_unstable_by_key(|catalog| catalog.name);
    for catalog in &selected {
        let groups = exclusions(catalog, context);
        refusal.add(describe(catalog, &groups));
        excluded.extend(groups);
    }
    let (mut left_out, mut absent): (Vec<&str>, bool) = (Vec::new(), false);
    for catalog in others {
        let is_selected = context
            .request
            .selector
            .is_none_or(|selector| selector.matches(catalog.labels));
        match (is_selected, catalog.availability, catalog.answer) {
            (true, Availability::Available, PackageAnswer::Absent) => {
                absent = true;
                refusal.add(format!(
                    "catalog {} does not have the package",
                    quoted(catalog.name)
                ));
            }
            (true, Availability::Available, _) => {}
            (true, Availability::Unavailable, _) => {
                refusal.add(format!(
                    "catalog {} is not used: its availabilityMode is Unavailable",
                    quoted(catalog.name)
                ));
            }
            (false, ..) => left_out.push(catalog.name),
        }
    }
    if !left_out.is_empty() {
        refusal.add(format!(
            "not selected: {}",
            list("catalog", left_out.iter().map(|name| quoted(name)))
        ));
    }
    if catalogs.is_empty() {
        refusal.hint("create a ClusterCatalog: the cluster has none");
    } else if selected.is_empty() {
        let (general, on_command_line) = if context.installed.is_some() {
            // The package of an extension never changes, so its name is right.
            (
                "a catalog had the package when it was installed: its ClusterCatalog was deleted, has lost the package, or is \
                 not selected by spec.source.catalog.selector; `kubectl get clustercatalogs` shows which there are",
                "name the catalog that has the installed bundle",
            )
        } else {
            (
                "check spec.source.catalog.packageName and spec.source.catalog.selector, and that the ClusterCatalog with the \
                 package is there (`kubectl get clustercatalogs`)",
                "check the name of the package: `olm search`, for a source with `--catalog SOURCE`, shows what the catalogs have",
            )
        };
        if absent {
            refusal.unknown_package(general, on_command_line);
        } else {
            refusal.hint_or(general, on_command_line);
        }
    }
    hints(refusal, &selected, &excluded, context);
}

fn exclusions<'a>(catalog: &Selected<'a>, context: &Context<'_>) -> Vec<Excluded<'a>> {
    let package = catalog.package;
    let members = channels::members(package, context.request);
    let successors = context
        .current
        .as_ref()
        .map(|current| Successors::new(package, context.request, current));
    let mut groups: Vec<Excluded<'a>> = Vec::new();
    for candidate in package.candidates() {
        let fits = fit(candidate, context.range.as_ref());
        let exclusion = if members
            .as_ref()
            .is_some_and(|members| !members.contains(candidate.name.as_str()))
        {
            Exclusion::Channel
        } else if fits == Fit::Outside {
            Exclusion::Version
        } else if fits == Fit::Prerelease {
            Exclusion::Prerelease
        } else if fits == Fit::Unknown {
            Exclusion::Unreadable
        } else if successors
            .as_ref()
            .is_some_and(|successors| successors.to(candidate).is_none())
        {
            Exclusion::Edge
        } else {
            continue;
        };
        match groups.iter_mut().find(|(known, _)| *known == exclusion) {
            Some((_, candidates)) => candidates.push(candidate),
            None => groups.push((exclusion, vec![candidate])),
        }
    }
    for (_, candidates) in &mut groups {
        candidates.sort_by(|left, right| by_version(right, left));
    }
    groups
}

/// The order by version and release, equal ones by name.
fn by_version(left: &Candidate, right: &Candidate) -> Ordering {
    left.compare_versions(right)
        .then_with(|| left.name.cmp(&right.name))
}

/// `2 bundles (a, b)`, `5 bundles (a, b, c and 2 more)`.
fn list<S: Display>(noun: &str, names: impl ExactSizeIterator<Item = S>) -> String {
    let count = counted(names.len(), noun);
    format!("{count} ({})", first_of(names, SHOWN))
}

fn bundles(candidates: &[&Candidate]) -> String {
    list("bundle", candidates.iter().map(|candidate| name_of(candidate)))
}

/// The name of a bundle, shortened to fit in a line.
fn name_of(candidate: &Candidate) -> String {
    candidate.name.chars().take(80).collect()
}

fn describe(catalog: &Selected<'_>, groups: &[Excluded<'_>]) -> String {
    let parts: Vec<String> = groups
        .iter()
        .map(|(exclusion, candidates)| {
            let why = match exclusion {
                Exclusion::Channel => "not in the requested channels",
                Exclusion::Version => "outside the version range",
                Exclusion::Prerelease => "pre-releases, which the version range does not admit",
                Exclusion::Unreadable => "without a readable version",
                Exclusion::Edge => "not an update of the installed bundle",
            };
            format!("{} {why}", bundles(candidates))
        })
        .collect();
    let parts = if parts.is_empty() {
        "no bundles of the package".to_owned()
    } else {
        parts.join("; ")
    };
    format!(
        "catalog {} (priority {}): {parts}",
        quoted(catalog.name),
        catalog.priority
    )
}

fn first<'a>(excluded: &[Excluded<'a>], wanted: Exclusion) -> Option<&'a Candidate> {
    let candidates = excluded
        .iter()
        .filter(|(exclusion, _)| *exclusion == wanted)
        .flat_map(|(_, all)| all);
    candidates.copied().max_by(|left, right| by_version(left, right))
}

fn hints(
    refusal: &mut Refusal,
    selected: &[&Selected<'_>],
    excluded: &[Excluded<'_>],
    context: &Context<'_>,
) {
    let request = context.request;
    let mut known: Vec<&str> = selected
        .iter()
        .flat_map(|catalog| catalog.package.channels())
        .collect();
    known.sort_unstable();
    known.dedup();
    for channel in request
        .channels
        .iter()
        .filter(|name| !known.contains(&name.as_str()))
    {
        if !selected.is_empty() {
            let instead = if let Some(meant) = nearest(channel, known.iter().copied()) {
                format!("did you mean {}?", quoted(meant))
            } else {
                let channels = known.iter().map(|name| quoted(name));
                format!("the catalogs have {}", list("channel", channels))
            };
            refusal.hint(format!("channel {} does not exist; {instead}", quoted(channel)));
        }
    }
    let elsewhere = elsewhere(selected, context, context.current.as_ref());
    let detour = match &elsewhere {
        Some(_) => None,
        None => detour(selected, context),
    };
    let either = |channels: &[&str], mark: &str| {
        let named = channels
            .iter()
            .take(SHOWN)
            .map(|name| format!("{mark}{}", quoted(name)));
        named.collect::<Vec<_>>().join(" or ")
    };
    if let Some(detour) = &detour {
        refusal.hint(format!(
            "{} is in channel {}; first go to {}",
            name_of(detour.to),
            either(&detour.channels, ""),
            name_of(detour.by)
        ));
    }
    if let Some((candidate, channels)) = &elsewhere {
        let fits = format!(
            "{} fits the version range, but is in another channel:",
            name_of(candidate)
        );
        refusal.hint_or(
            format!(
                "{fits} add {} to spec.source.catalog.channels",
                either(channels, "")
            ),
            format!("{fits} add {}", either(channels, "--channel ")),
        );
    }
    if let Some(candidate) = first(excluded, Exclusion::Prerelease) {
        let name = &candidate.name;
        refusal.hint_or(
            format!(
                "to admit pre-releases such as {name} name one in spec.source.catalog.version, e.g. >=1.2.3-0"
            ),
            format!("to admit pre-releases such as {name} name one in --version, e.g. '>=1.2.3-0'"),
        );
    }
    if let (Some(candidate), Some(current)) = (first(excluded, Exclusion::Edge), &context.current) {
        let next = next_steps(selected, context);
        if !next.is_empty() {
            refusal.hint(format!(
                "from {} the catalogs lead to {}",
                current.name,
                list("bundle", next.iter())
            ));
        }
        let force = |how: &str| {
            format!(
                "no update edge leads to {} from {} (replaces, skips or skipRange): choose another version, or force \
                 it with {how}, which is untested and can lose data",
                candidate.name, current.name
            )
        };
        refusal.hint_or(
            force("spec.source.catalog.upgradeConstraintPolicy: SelfCertified"),
            force("--policy SelfCertified"),
        );
    } else if let (None, None, Some(candidate)) = (
        elsewhere.map(drop).or(detour.map(drop)),
        first(excluded, Exclusion::Prerelease),
        first(excluded, Exclusion::Version),
    ) {
        refusal.hint(format!(
            "the highest version outside the range {} is that of {}",
            quoted(request.version.unwrap_or_default()),
            candidate.name
        ));
    }
}

/// The way to a bundle in another channel that no update edge leads to from the installed one.
struct Detour<'a> {
    /// The update to go to first.
    by: &'a Candidate,
    to: &'a Candidate,
    /// The channels of the bundle.
    channels: Vec<&'a str>,
}

/// The highest update from which a bundle [`elsewhere`] can be reached.
fn detour<'a>(selected: &[&Selected<'a>], context: &Context<'_>) -> Option<Detour<'a>> {
    // Each costs a look at all bundles, and a catalog may have any number.
    let updates = updates(selected, context).into_iter().take(SHOWN);
    updates.into_iter().find_map(|by| {
        let there = Current {
            name: &by.name,
            version: by.version.as_ref().ok()?.clone(),
        };
        let (to, channels) = elsewhere(selected, context, Some(&there))?;
        Some(Detour { by, to, channels })
    })
}

/// The highest bundle in the version range that would be chosen if its channels, which are returned, were requested and
/// `current` were installed.
fn elsewhere<'a>(
    selected: &[&Selected<'a>],
    context: &Context<'_>,
    current: Option<&Current<'_>>,
) -> Option<(&'a Candidate, Vec<&'a str>)> {
    context.range.as_ref()?;
    let any_channel = Request {
        channels: &[],
        ..*context.request
    };
    let mut best: Option<(&Candidate, &Package)> = None;
    for package in selected.iter().map(|catalog| catalog.package) {
        let members = channels::members(package, context.request)?;
        let entries = channels::considered(package, &any_channel).flat_map(|channel| &channel.entries);
        let entered: HashSet<&str> = entries.map(|entry| entry.name.as_str()).collect();
        let successors = current.map(|current| Successors::new(package, &any_channel, current));
        for candidate in package.candidates() {
            let name = candidate.name.as_str();
            let is_kept_out = !members.contains(name)
                && entered.contains(name)
                && fit(candidate, context.range.as_ref()) == Fit::Inside
                && successors
                    .as_ref()
                    .is_none_or(|successors| successors.to(candidate).is_some());
            if is_kept_out && best.is_none_or(|(known, _)| by_version(candidate, known).is_gt()) {
                best = Some((candidate, package));
            }
        }
    }
    best.map(|(candidate, package)| {
        (
            candidate,
            channels::holding(package, &any_channel, &candidate.name),
        )
    })
}

/// The names of the updates in the catalogs, highest first.
fn next_steps(selected: &[&Selected<'_>], context: &Context<'_>) -> Vec<String> {
    updates(selected, context).into_iter().map(name_of).collect()
}

/// The updates in the catalogs, highest first.
fn updates<'a>(selected: &[&Selected<'a>], context: &Context<'_>) -> Vec<&'a Candidate> {
    let Some(current) = &context.current else {
        return Vec::new();
    };
    let all = selected
        .iter()
        .flat_map(|catalog| successors::within(catalog.package, context.request, current));
    let mut steps: Vec<_> = all
        .filter(|(_, edge)| *edge != Edge::Current)
        .map(|(candidate, _)| candidate)
        .collect();
    steps.sort_by(|left, right| by_version(right, left));
    steps.dedup_by(|left, right| left.name == right.name);
    steps
}
