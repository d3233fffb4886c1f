//! One run over one ClusterExtension.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Resource as _;
use kube::api::{Api, PostParams};
use olm_api::cluster_extension::ClusterExtensionStatus;
use olm_api::command::{Annotated, annotate};
use olm_api::conditions::{self, PROGRESSING, bounded_message, reason};
use olm_api::names::{annotation, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_platform::log::chain;
use olm_platform::queue::Outcome;
use olm_resolve::deprecation::Messages;
use sha2::{Digest as _, Sha256};

use crate::cluster::identity::AccountName;
use crate::conditions::records::{self, Kept};
use crate::extension::act::adopt;
use crate::extension::act::finalizers;
use crate::extension::act::write;
use crate::extension::act::write::Written;
use crate::extension::bundle::fetch;
use crate::extension::bundle::render;
use crate::extension::context::Context;
use crate::extension::delete;
use crate::extension::failure::{Failure, Severity, StageError as _};
use crate::extension::observe::account;
use crate::extension::observe::conflicts::{self, Claim, ConflictError, Standing};
use crate::extension::observe::options::Wishes;
use crate::extension::observe::revisions::{Revisions, disturbed, is_being_replaced, vanishing};
use crate::extension::plan::Plan;
use crate::extension::plan::content::Parcel;
use crate::extension::plan::draft;
use crate::extension::plan::draft::{Told, Work};
use crate::extension::preflight;
use crate::extension::report::events;
use crate::extension::report::events::Tone;
use crate::extension::report::status::{Facts, Progress, Started, status};
use crate::extension::resolve::inventory;
use crate::extension::resolve::{Origin, Target, resolve};
use crate::extension::resolve::{proposals, upgrade_gate};
use crate::object_set::engine::rollout::Writes;

/// The longest time until it is looked again whether somebody mended what a run waits for.
const LONGEST_WAIT: u32 = 60;
/// Characters of what keeps an extension that others are told.
const SHOWN: usize = 200;
/// A run that waits for somebody and took longer than this is repeated seldom: it rests for [`REST`] times as long.
const COSTLY: Duration = Duration::from_secs(5);
/// How many times as long a costly run rests.
const REST: u32 = 10;
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_mins(10);
/// How long until a run goes on that had more to do.
const AT_ONCE: Duration = Duration::from_millis(100);
/// How long until it is looked again whether a newer bundle is still held back.
const HELD: Duration = Duration::from_mins(5);

/// Runs once: what the extension asks for becomes a revision, what its revisions say becomes its status.
pub async fn reconcile(context: Arc<Context>, name: String) -> Outcome {
    let Some(extension) = context.extension(&name) else {
        context.forget(&name);
        return Outcome::Done;
    };
    if extension.is_deleting() {
        return delete::uninstall(&context, &extension).await;
    }
    // What became of former revisions is no part of what its deletion does.
    if let Some(uid) = &extension.metadata.uid {
        context.fates.take(uid);
    }
    if let Some(list) = finalizers::with_ours(&extension) {
        return told(
            "add finalizers",
            &name,
            finalizers::write(&context.client, &extension, &list).await,
            Outcome::Done,
        );
    }
    let begun = Instant::now();
    let revisions = match adopt::migrate(&context, &extension, context.revisions(&name)).await {
        Ok(revisions) => revisions,
        Err(error) => {
            // What is installed is not known anew; what was said of it stays.
            let message = bounded_message(&chain(&error));
            let said = (error.reason(), message.as_str(), Tone::Fault);
            let written = delete::tell(&context, &extension, said).await;
            let outcome = again(&context, &name, Some(error.severity()), false, begun.elapsed());
            return told("write the status", &name, written.map(drop), outcome);
        }
    };
    let work = install(&context, &extension, &revisions).await;
    let taken = begun.elapsed();
    let facts = Facts {
        generation: extension.generation(),
        revisions: &revisions,
        deprecations: work.deprecations.as_ref(),
        progress: &work.progress,
    };
    let mut next = status(
        &extension.status.clone().unwrap_or_default(),
        facts,
        Timestamp::now(),
    );
    if let Some(held) = &work.held {
        tell(&mut next, held, |why| why == reason::SUCCEEDED);
    }
    if let Some(vanishing) = vanishing(&revisions) {
        tell(&mut next, &vanishing, |_| true);
    }
    if let Some(warnings) = warned(&revisions) {
        tell(&mut next, &format!("Warnings: {warnings}"), |_| true);
    }
    let doubts = match &work.progress {
        Progress::Applied { .. } => inventory::doubts(&context, &extension).await,
        Progress::Failed(_) => None,
    };
    if let Some(doubts) = &doubts {
        tell(&mut next, doubts, |_| true);
    }
    let severity = match &work.progress {
        Progress::Applied { .. } => None,
        Progress::Failed(failure) => Some(failure.severity),
    };
    let outcome = match again(&context, &name, severity, work.held.is_some(), taken) {
        // Somebody else may bring what is missing without anybody telling.
        Outcome::Done | Outcome::Refused if work.held.is_some() || doubts.is_some() => Outcome::After(HELD),
        outcome => outcome,
    };
    let written = write_status(&context, &extension, next, work.tone).await;
    // After the status, which is written to the extension as it was seen.
    preflight::record(&context, &extension).await;
    told("write the status", &name, written, outcome)
}

/// Adds to what `Progressing` says, where it is for one of the given reasons: which newer bundle is held back although
/// all is well with the installed one, what that one lacks, or that somebody deletes it.
fn tell(status: &mut ClusterExtensionStatus, more: &str, tells: impl Fn(&str) -> bool) {
    let mut conditions = status.conditions.iter_mut();
    let progressing = conditions.find(|c| c.type_ == PROGRESSING && tells(&c.reason));
    if let Some(progressing) = progressing.filter(|c| !c.message.contains(more)) {
        progressing.message = bounded_message(&format!("{}\n{more}", progressing.message));
    }
}

/// What was to be known of the newest revision when it was made, as long as it rolls out.
fn warned(revisions: &Revisions) -> Option<&str> {
    revisions.rolling().last()?.annotation(annotation::WARNINGS)
}

/// What a run came to.
struct Ended {
    /// Which newer bundle is held back, and why.
    held: Option<String>,
    deprecations: Option<Messages>,
    progress: Progress,
    /// How what stands in the way is to be told.
    tone: Tone,
}

/// From what is asked for to a written revision.
async fn install(context: &Context, extension: &Arc<ClusterExtension>, revisions: &Revisions) -> Ended {
    let fail = |failure: Failure, deprecations| {
        // What an earlier run found is not true any more.
        context.memorise(extension.name(), |memory| {
            memory.ready = None;
            memory.kept = Some(first_line(&failure));
        });
        Ended {
            held: None,
            deprecations,
            progress: Progress::Failed(failure),
            tone: Tone::Fault,
        }
    };
    let asked = match ask(context, extension, revisions) {
        Ok(asked) => asked,
        Err(failure) => {
            let resolution = resolve(context, extension, revisions).await;
            return fail(failure.and(resolution.target.err()), resolution.deprecations);
        }
    };
    let named = match write::name_account(&context.client, &asked.account, revisions).await {
        Ok(named) => named,
        Err(error) => return fail(error.into(), None),
    };
    let revisions = named.as_ref().unwrap_or(revisions);
    let resolution = resolve(context, extension, revisions).await;
    let resolution = upgrade_gate::hold(context, extension, revisions, resolution).await;
    if let Err(error) = records::tidy(context, extension, revisions).await {
        tracing::debug!(
            extension = extension.name(),
            error = &error as &dyn std::error::Error,
            "cannot remove OperatorConditions of former bundles"
        );
    }
    let (mut ready, mut kept) = (None, None);
    let written = match resolution.target {
        _ if asked.wishes.writes == Writes::Paused => Err(pause(context, extension, revisions).await),
        Ok(target) => {
            let written = revise(context, extension, revisions, &asked, &target, &mut ready).await;
            let is_kept = target.origin == Origin::Catalog && ready.is_none();
            kept = written.as_ref().err().filter(|_| is_kept).map(first_line);
            let bundle = &target.bundle.metadata;
            written.map_err(|failure| failure.with_bundle(&bundle.name, &bundle.version))
        }
        Err(failure) => Err(failure),
    };
    context.memorise(extension.name(), |memory| {
        memory.ready = ready;
        memory.kept = kept;
    });
    let progress = match (written, resolution.problem) {
        (Err(failure), _) | (Ok(_), Some(failure)) => Progress::Failed(failure),
        (Ok(started), None) => Progress::Applied { started },
    };
    let tone = match &progress {
        Progress::Failed(failure) if failure.severity == Severity::Unfinished => {
            Tone::Part(events::MIGRATING)
        }
        Progress::Failed(failure)
            if asked.wishes.writes == Writes::Paused && failure.severity == Severity::Terminal =>
        {
            Tone::Part(events::PAUSED)
        }
        Progress::Failed(_) | Progress::Applied { .. } => Tone::Fault,
    };
    Ended {
        held: resolution.held,
        deprecations: resolution.deprecations,
        progress,
        tone,
    }
}

fn first_line(failure: &Failure) -> String {
    let line = failure.message.lines().next().unwrap_or_default();
    line.chars().take(SHOWN).collect()
}

/// Under whom, and how.
pub(crate) struct Asked {
    /// The account.
    pub(crate) account: AccountName,
    /// How.
    pub(crate) wishes: Wishes,
}

/// What the extension asks for beside a bundle, when it makes sense.
fn ask(
    context: &Context,
    extension: &Arc<ClusterExtension>,
    revisions: &Revisions,
) -> Result<Asked, Failure> {
    claim(context, extension, revisions)?;
    Ok(Asked {
        wishes: Wishes::of(extension)?,
        account: account::choose(extension, context.default_account.as_ref())
            .map_err(|error| error.beside(revisions.installed()))?,
    })
}

/// Has the revisions stand still, too.
async fn pause(context: &Context, extension: &ClusterExtension, revisions: &Revisions) -> Failure {
    let sets: Api<ClusterObjectSet> = Api::all(context.client.clone());
    for set in revisions.active() {
        match write::inherit(&sets, extension, set).await {
            Ok(_) => {}
            // Its change is on its way here.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                return Failure {
                    severity: Severity::Transient,
                    reason: reason::RETRYING,
                    message: format!("cannot pause {}: {}", set.name(), chain(&error)),
                };
            }
        }
    }
    Failure {
        severity: Severity::Terminal,
        reason: reason::BLOCKED,
        message: format!(
            "paused by the annotation {}: nothing is applied; to go on: `{}`",
            user::PAUSED,
            annotate(Annotated::Extension(extension.name()), user::PAUSED, None)
        ),
    }
}

/// From a bundle to a written revision. Gives the version of a revision that was just made. `ready` becomes the bundle
/// that may be installed as far as it alone is concerned.
async fn revise(
    context: &Context,
    extension: &Arc<ClusterExtension>,
    revisions: &Revisions,
    asked: &Asked,
    target: &Target,
    ready: &mut Option<String>,
) -> Result<Option<Started>, Failure> {
    let certificates = render::certificates(context, revisions).await?;
    let pinned = context.bundles.pin(&target.bundle.image).await;
    let pinned = pinned.map_err(|error| fetch::failure(error, target))?;
    // Remembered of every extension, and a bundle in a catalog can be long.
    let inputs = Sha256::digest(format!(
        "{:?} {} {:?} {pinned} {certificates:?} {:?}",
        (extension.generation(), &extension.metadata.annotations),
        asked.account,
        target.bundle,
        revisions.latest().map(identity),
    ))
    .into();
    let disturbed = revisions.latest().filter(|latest| disturbed(latest));
    let trouble = disturbed
        .and_then(|set| conditions::find(set.conditions(), PROGRESSING))
        .map(|progressing| progressing.message.clone());
    if is_settled(context, extension.name(), inputs, trouble.as_deref()) {
        return Ok(None);
    }
    let fetched = context.bundles.fetch(&pinned).await;
    let Some(image) = fetch::unless_installed(fetched, extension, target)? else {
        return Ok(None);
    };
    let condition = records::name(revisions.latest(), &target.bundle).map(str::to_owned);
    let work = Work {
        extension,
        revisions,
        asked,
        target,
    };
    let mut drawn = draft::draft(context, work, &image, (certificates, condition.clone())).await?;
    let told = match &drawn.plan {
        Plan::Create { .. } => {
            let told = draft::examine(context, work, &drawn).await?;
            if !target.companions.is_empty() {
                *ready = Some(target.bundle.metadata.name.clone());
                // Before the others are asked: of those that ask at the same time one sees that all are.
                context.memorise(extension.name(), |memory| memory.ready.clone_from(ready));
                proposals::all_ready(context, &target.companions)?;
            }
            told
        }
        Plan::Keep { .. } | Plan::Patch { .. } => Told::default(),
    };
    // Only now is anything written.
    if let Some(name) = condition {
        let kept = records::keep(&context.client, extension, revisions.latest(), &name).await;
        match or_account(context, asked, kept).await? {
            Kept::Yes => {
                let bound = records::bind(&context.client, extension, &drawn.accounts).await;
                or_account(context, asked, bound).await?;
            }
            Kept::No => drawn = draft::draft(context, work, &image, (certificates, None)).await?,
        }
    }
    let mut plan = drawn.plan;
    if let (Plan::Create { set, .. }, Some(warnings)) = (&mut plan, &told.warnings) {
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::WARNINGS.to_owned(), bounded_message(warnings));
    }
    let written = write::write(&context.client, &context.system_namespace, &plan).await?;
    if let (Some(latest), Plan::Keep { parcels } | Plan::Patch { parcels, .. }) = (disturbed, &plan) {
        restore(context, latest, parcels).await?;
    }
    let settled = matches!(plan, Plan::Keep { .. }).then_some(inputs);
    context.memorise(extension.name(), |memory| {
        memory.settled = settled;
        memory.trouble = trouble;
    });
    let mut said = told.said();
    if let (Plan::Create { set, .. }, Some(latest)) = (&plan, revisions.latest())
        && is_being_replaced(latest)
    {
        said.push(events::replacing(latest.name(), set.name()));
    }
    context.events.publish(extension.object_ref(&()), said);
    Ok(concluded(extension, target, &plan, written, told))
}

/// The same, or that there is no account: where its namespace is gone, that is what to mend, and how is said there.
async fn or_account<T>(
    context: &Context,
    asked: &Asked,
    written: Result<T, records::RecordError>,
) -> Result<T, Failure> {
    match written {
        Err(error) if error.is_without_place() => {
            let account = context.accounts.client(&asked.account).await;
            account.map_err(preflight::PreflightError::from)?;
            Err(error.into())
        }
        written => Ok(written?),
    }
}

/// Logs what was written. Gives the revision that was just made.
fn concluded(
    extension: &ClusterExtension,
    target: &Target,
    plan: &Plan,
    written: Written,
    told: Told,
) -> Option<Started> {
    match plan {
        Plan::Patch { name, .. } if written == Written::Yes => {
            tracing::info!(
                extension = extension.name(),
                revision = name,
                "changed a revision"
            );
            None
        }
        Plan::Keep { .. } | Plan::Patch { .. } => None,
        Plan::Create { set, .. } => {
            tracing::info!(
                extension = extension.name(),
                revision = set.name(),
                bundle = target.bundle.metadata.name,
                warnings = told.warnings,
                difference = told.difference,
                "made a revision"
            );
            Some(Started {
                version: target.bundle.metadata.version.clone(),
                warnings: told.warnings,
                difference: told.difference,
            })
        }
    }
}

/// Whether the newest revision was found to be the wanted one before. What was in its way then was looked at: its content
/// is there, and the next word on it comes from the revision.
fn is_settled(context: &Context, extension: &str, inputs: [u8; 32], trouble: Option<&str>) -> bool {
    let remembered = context.remember(extension);
    let settled =
        remembered.settled == Some(inputs) && (trouble.is_none() || remembered.trouble.as_deref() == trouble);
    if settled && trouble.is_none() && remembered.trouble.is_some() {
        context.memorise(extension, |memory| memory.trouble = None);
    }
    settled
}

/// Makes the content Secrets of a revision again that are gone.
async fn restore(context: &Context, set: &ClusterObjectSet, parcels: &[Parcel]) -> Result<(), Failure> {
    let restored = write::restore(&context.client, &context.system_namespace, set, parcels).await?;
    if !restored.is_empty() {
        tracing::warn!(
            revision = set.name(),
            secrets = restored.join(", "),
            "made lost Secrets again"
        );
    }
    Ok(())
}

/// What of a revision a plan depends on: everything but its status.
fn identity(set: &ClusterObjectSet) -> impl std::fmt::Debug {
    let metadata = &set.metadata;
    let texts = (
        metadata.labels.clone(),
        metadata.annotations.clone(),
        metadata.owner_references.clone(),
    );
    (
        metadata.uid.clone(),
        metadata.generation,
        metadata.deletion_timestamp.is_some(),
        texts,
    )
}

/// Whether the package is ours (requirement 5.04).
fn claim(
    context: &Context,
    extension: &Arc<ClusterExtension>,
    revisions: &Revisions,
) -> Result<(), ConflictError> {
    let package = |extension: &ClusterExtension| {
        extension
            .spec
            .source
            .catalog
            .as_ref()
            .map(|c| c.package_name.clone())
    };
    let rivals: Vec<Arc<ClusterExtension>> = context
        .extensions
        .state()
        .into_iter()
        .filter(|other| other.name() != extension.name() && package(other) == package(extension))
        .collect();
    let standing = |revisions: &Revisions| match revisions.latest() {
        Some(_) => Standing::Established,
        None => Standing::New,
    };
    let claims: Vec<Claim<'_>> = rivals
        .iter()
        .map(|rival| Claim {
            extension: rival,
            standing: standing(&context.revisions(rival.name())),
        })
        .collect();
    conflicts::package(
        Claim {
            extension,
            standing: standing(revisions),
        },
        &claims,
    )
}

/// When to look again, after a run that took so long.
fn again(context: &Context, name: &str, severity: Option<Severity>, held: bool, taken: Duration) -> Outcome {
    let awaits_others = held || severity == Some(Severity::Waiting);
    let mut waits = 0;
    context.memorise(name, |memory| {
        memory.waits = if severity == Some(Severity::Waiting) {
            memory.waits.saturating_add(1)
        } else {
            0
        };
        waits = memory.waits;
        memory.awaits_others = awaits_others;
    });
    match severity {
        None => Outcome::Done,
        Some(Severity::Terminal) => Outcome::Refused,
        Some(Severity::Waiting) => Outcome::After(rest(waits, taken)),
        Some(Severity::Unfinished) => Outcome::After(AT_ONCE),
        Some(Severity::Transient) => Outcome::Failed,
    }
}

/// How long a failure rests that waits for somebody: 1 s, 2 s, 4 s … 60 s, and longer when looking takes long.
fn rest(waits: u32, taken: Duration) -> Duration {
    let seconds = 2u32.saturating_pow(waits.saturating_sub(1)).min(LONGEST_WAIT);
    let rest = Duration::from_secs(seconds.into());
    if taken < COSTLY {
        return rest;
    }
    rest.max(taken.saturating_mul(REST).min(LONGEST_REST))
}

/// Writes the status when it differs, unless the extension changed since it was read. `tone` is that of what stands in the
/// way of success.
pub(crate) async fn write_status(
    context: &Context,
    extension: &ClusterExtension,
    status: ClusterExtensionStatus,
    tone: Tone,
) -> Result<(), kube::Error> {
    if extension.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let extensions: Api<ClusterExtension> = Api::all(context.client.clone());
    let told = events::changes(extension.status.as_ref(), &status, tone);
    let next = ClusterExtension {
        status: Some(status),
        ..extension.clone()
    };
    extensions
        .replace_status(extension.name(), &PostParams::default(), &next)
        .await?;
    context.events.publish(extension.object_ref(&()), told);
    Ok(())
}

/// `outcome`, unless a write failed. A conflict means that a newer extension is on its way.
fn told(action: &'static str, name: &str, written: Result<(), kube::Error>, outcome: Outcome) -> Outcome {
    match written {
        Ok(()) => outcome,
        Err(kube::Error::Api(status)) if status.code == 404 => Outcome::Done,
        Err(kube::Error::Api(status)) if status.code == 409 => Outcome::After(Duration::from_millis(500)),
        Err(error) => {
            tracing::warn!(
                extension = name,
                error = &error as &dyn std::error::Error,
                "cannot {action}"
            );
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use olm_api::conditions::{SUCCEEDED, Status};

    use super::*;
    use crate::extension::observe::revisions::tests::revision;

    #[test]
    fn what_takes_long_is_looked_at_seldom() {
        for (waits, taken, expected) in [
            (1, 0, 1),
            (2, 1, 2),
            (7, 1, 60),
            (100, 4, 60),
            (1, 5, 50),
            (100, 5, 60),
            (1, 30, 300),
            (1, 3600, 600),
        ] {
            let rest = rest(waits, Duration::from_secs(taken));
            assert_eq!(rest.as_secs(), expected, "{waits} {taken}");
        }
    }

    #[test]
    fn warnings_are_told_as_long_as_their_revision_rolls_out() {
        // Whoever leads reads it from the revision.
        let warning = |number, reports: &[_]| {
            let mut set = (*revision(number, reports)).clone();
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::WARNINGS.to_owned(), "beware".to_owned());
            Arc::new(set)
        };
        let done = [(SUCCEEDED, Status::True, "")];
        for (revisions, expected) in [
            (vec![revision(1, &done), warning(2, &[])], Some("beware")),
            (vec![revision(1, &done), warning(2, &done)], None),
            (vec![revision(1, &done), warning(2, &[]), revision(3, &[])], None),
            (vec![revision(2, &[])], None),
        ] {
            assert_eq!(warned(&Revisions::new(revisions)), expected);
        }
    }
}
