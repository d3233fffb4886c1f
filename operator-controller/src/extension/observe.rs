//! Reads the state of an extension: its account, options, revisions, Helm release, and other claims to its package.
//! Writes nothing.

pub(crate) mod claim;
pub(crate) mod options;

use std::sync::Arc;

use olm_api::ClusterExtension;
use olm_image::Rules;

use self::claim::{Claim, ClaimError, ClaimPrecedence};
use self::options::{Options, OptionsError};
use super::context::claims::Stage;
use super::context::helm::HelmError;
use super::context::release::{Entry, Release, ReleaseOwner};
use super::context::{Context, account};
use super::failure::StageFailure;
use super::revisions::Revisions;
use olm_cluster::identity::AccountName;
use olm_rollout::engine::rollout::Writes;

/// The state of an extension.
pub struct Observed {
    pub extension: Arc<ClusterExtension>,
    pub revisions: Revisions,
    /// The Helm release to continue from, while there is no revision.
    pub release: Option<(Entry, Release)>,
    /// The account and options of the installation, or the reason why they are unknown.
    pub settings: Result<ExtensionSettings, StageFailure>,
}

impl Observed {
    /// Whether the user has paused the extension.
    pub(crate) fn is_paused(&self) -> bool {
        matches!(&self.settings, Ok(settings) if settings.options.writes == Writes::Paused)
    }
}

/// The account and options of an installation.
#[derive(Debug, Clone)]
pub struct ExtensionSettings {
    pub account: AccountName,
    /// The options that users set by annotation.
    pub options: Options,
}

/// Reads the state of an extension.
///
/// # Errors
/// Its Helm release cannot be read.
pub(crate) async fn observe(
    context: &Context,
    extension: Arc<ClusterExtension>,
) -> Result<Observed, HelmError> {
    let revisions = context.revisions(extension.name());
    let release = release(context, &extension, &revisions).await?;
    let settings = settings(context, &extension, &revisions);
    Ok(Observed {
        extension,
        revisions,
        release,
        settings,
    })
}

fn settings(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
) -> Result<ExtensionSettings, StageFailure> {
    claim(context, extension, revisions)?;
    let options = Options::of(extension)?;
    Ok(ExtensionSettings {
        options: Options {
            signatures: options.signatures.and(&of_namespace(context, extension)),
            ..options
        },
        account: account::choose(extension, context.default_account.as_ref())
            .map_err(|error| error.with_installed(revisions.installed()))?,
    })
}

/// The rules for the images of an extension, beside the signature policy of the files.
///
/// # Errors
/// The annotation cannot be read.
pub(crate) fn signatures(context: &Context, extension: &ClusterExtension) -> Result<Rules, OptionsError> {
    Ok(options::signatures(extension)?.and(&of_namespace(context, extension)))
}

fn of_namespace(context: &Context, extension: &ClusterExtension) -> Rules {
    context.image_policies.of_namespace(&extension.spec.namespace)
}

async fn release(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
) -> Result<Option<(Entry, Release)>, HelmError> {
    // Only an extension with revisions reports active ones. They were deleted since, and the release is older.
    let status = extension.status.as_ref();
    let had_revisions = status.is_some_and(|status| !status.active_revisions.is_empty());
    if had_revisions || !revisions.all().is_empty() {
        return Ok(None);
    }
    let Some(entry) = newest_release(context, extension).await? else {
        return Ok(None);
    };
    let release = context.releases.read(extension.name(), &entry).await?;
    Ok(Some((entry, release)))
}

/// The release that an extension without revisions continues from.
///
/// # Errors
/// The releases cannot be listed.
pub(crate) async fn newest_release(
    context: &Context,
    extension: &ClusterExtension,
) -> Result<Option<Entry>, HelmError> {
    Ok(releases(context, extension).await?.into_iter().max())
}

/// The deployed releases of an extension.
///
/// # Errors
/// The releases cannot be listed.
pub(crate) async fn releases(
    context: &Context,
    extension: &ClusterExtension,
) -> Result<Vec<Entry>, HelmError> {
    let owner = ReleaseOwner {
        uid: extension.metadata.uid.as_deref().unwrap_or_default(),
        created: extension.metadata.creation_timestamp.as_ref().map(|time| time.0),
        has_earlier_revisions: context.others(extension).highest > 0,
    };
    let status = extension.status.as_ref();
    let had_something = status.is_some_and(|status| status.install.is_some());
    let releases = &context.releases;
    releases.of(extension.name(), owner, had_something).await
}

/// Checks the claim of the extension to its package.
///
/// # Errors
/// Another extension has the better claim.
fn claim(context: &Context, extension: &ClusterExtension, revisions: &Revisions) -> Result<(), ClaimError> {
    let rivals = rivals(context, extension);
    // Unreadable revisions count, too.
    let precedence = |extension: &ClusterExtension, revisions: &Revisions| {
        let uid = extension.metadata.uid.as_deref();
        let is_unreadable = uid.is_some_and(|uid| context.sets.unreadable_of(uid).is_some());
        if is_unreadable || revisions.latest().is_some() {
            ClaimPrecedence::Established
        } else {
            ClaimPrecedence::New
        }
    };
    let claims: Vec<Claim<'_>> = rivals
        .iter()
        .map(|rival| Claim {
            extension: rival,
            precedence: precedence(rival, &context.revisions(rival.name())),
        })
        .filter(|rival| {
            let stage = context.claims.stage(rival.extension.name());
            rival.precedence == ClaimPrecedence::Established || stage != Some(Stage::Blocked)
        })
        .collect();
    let ours = Claim {
        extension,
        precedence: precedence(extension, revisions),
    };
    claim::package(ours, &claims)
}

/// Claims the package before the installation begins.
///
/// # Errors
/// Another extension has the better claim, or began before.
pub(crate) fn claim_package(context: &Context, extension: &ClusterExtension) -> Result<(), ClaimError> {
    claim(context, extension, &context.revisions(extension.name()))?;
    let Some(package) = claim::wanted(extension) else {
        return Ok(());
    };
    let rivals = rivals(context, extension);
    let names = rivals.iter().map(|rival| rival.name());
    let begun = context.claims.install(extension.name(), names);
    begun.map_err(|owner| ClaimError {
        package: package.to_owned(),
        owner: owner.to_owned(),
        precedence: ClaimPrecedence::New,
    })
}

/// The other extensions of the same package.
fn rivals(context: &Context, extension: &ClusterExtension) -> Vec<Arc<ClusterExtension>> {
    let package = claim::wanted(extension);
    let others = context.extensions.state().into_iter();
    others
        .filter(|other| other.name() != extension.name() && claim::wanted(other) == package)
        .collect()
}
