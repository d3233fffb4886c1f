//! Pulls and renders the chosen bundle, up to the objects in phases.

pub(crate) mod compatibility;
pub(crate) mod fetch;
pub(crate) mod images;
mod operands;
pub(crate) mod render;
pub(crate) mod requirements;
pub(crate) mod settled;
pub(crate) mod verification;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_api::conditions::reason;
use olm_bundle::CertificateProvider;
use olm_image::{SignatureStatus, Verification};

use self::settled::{Inputs, Settled};
use super::context::Context;
use super::failure::{Severity, StageError, StageFailure};
use super::observe::Observed;
use super::observe::signatures;
use super::resolve::{Origin, Resolved};
use super::revisions::{is_of_classic, roles_named_after};
use crate::conditions::records;
use olm_cluster::identity::AccountName;
use olm_plan::bundle::operator_condition;
use olm_plan::phases::{CommonMetadata, Group, PhasesError, phases};
use olm_rollout::policy::verified_images;

/// The time for which a refused OperatorCondition is left out. The cause, such as a quota, may pass.
const REFUSAL_COUNTS: Duration = Duration::from_mins(5);

/// State of this stage between runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct BundleCache {
    settled: Settled,
    compatibility: compatibility::CompatibilityCache,
    verification: verification::VerificationCache,
    /// The OperatorCondition that the API server refused, and when.
    refused_condition: Option<(String, Instant)>,
}

impl StageError for PhasesError {
    fn severity(&self) -> Severity {
        Severity::Terminal
    }

    fn reason(&self) -> &'static str {
        reason::RETRYING
    }
}

/// A rendered bundle.
pub struct Rendered<'a> {
    /// The bundle and its extension.
    pub resolved: Resolved<'a>,
    /// The provider of its certificates, if it needs any.
    pub certificates: Option<CertificateProvider>,
    /// The OperatorCondition of its operator.
    pub operator_condition: Option<OperatorCondition>,
    /// The bundle after which its roles are named, if it is another one.
    pub roles_named_after: Option<String>,
    /// The properties in its files, a JSON list.
    pub properties: Option<String>,
    /// The properties that are derived from its files, and those that its catalog adds.
    pub further_properties: Option<String>,
    /// The reference of its image, by digest.
    pub image: String,
    /// By whom its image is signed and which rules ask for that, if any does.
    pub verified: Option<String>,
    /// The objects.
    pub groups: Vec<Group>,
    /// Ignored fields of the configuration.
    pub ignored: Vec<String>,
    /// The inputs of the plan.
    pub inputs: Inputs,
}

/// The OperatorCondition of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorCondition {
    pub name: String,
    /// The account under which the bundle is installed.
    pub account: AccountName,
    /// The accounts of the operator.
    pub operators: BTreeSet<String>,
    /// The OperatorConditions that these accounts may write: this one, and those of active revisions.
    pub writable: BTreeSet<String>,
    /// Whether the newest revision already names it.
    pub is_named: bool,
}

/// Fetches and renders the chosen bundle; `None` if the newest revision is already the wanted one, or if the image of
/// the installed bundle cannot be pulled. Then the installed objects stay.
///
/// # Errors
/// The bundle cannot be pulled or installed.
pub(crate) async fn render<'a>(
    context: &Context,
    resolved: Resolved<'a>,
    cache: &mut BundleCache,
) -> Result<Option<Rendered<'a>>, StageFailure> {
    let (extension, target) = (&resolved.observed.extension, &resolved.target);
    let own = resolved.observed.revisions.latest();
    let others = own.is_none().then(|| context.others(extension));
    let account = &resolved.settings.account;
    if own.is_some_and(|own| is_of_classic(own, extension, &target.bundle, account)) {
        return Ok(None);
    }
    // An orphaned or restored revision records its settings, so that an equal revision is created and takes over.
    let latest = own.or_else(|| others.as_ref()?.left_behind(extension.name(), account));
    let provider = render::provider(context, latest).await?;
    let rules = &resolved.settings.options.signatures;
    let pinned = context
        .bundles
        .pin(extension.name(), &target.bundle.image, rules)
        .await;
    let pinned = pinned.map_err(|error| fetch::failure(error, target))?;
    let deleted = context.deletions.count(extension.name());
    let inputs = Inputs::of(&resolved, &pinned.to_string(), provider, deleted);
    if cache.settled.holds(&inputs) {
        return Ok(None);
    }
    if target.origin == Origin::Catalog {
        // No image is pulled for an account that cannot be used.
        context.accounts.client(&resolved.settings.account).await?;
    }
    let fetched = context.bundles.fetch(extension.name(), &pinned, rules).await;
    let Some((image, approvals)) = fetch::unless_installed(fetched, extension, target)? else {
        return Ok(None);
    };
    let verified = SignatureStatus::accepted(&pinned, &approvals).map(|status| status.message);
    let named = operator_condition(latest, &target.bundle).filter(|name| !cache.is_refused(name));
    let named = named.map(str::to_owned);
    let roles_named_after = roles_named_after(latest, &target.bundle).map(str::to_owned);
    let prepared = render::render(
        context.gates,
        (provider, named.clone()),
        roles_named_after.clone(),
        Arc::clone(extension),
        image,
    )
    .await
    .map_err(|error| fetch::retry_if_tagged(error.into(), target))?;
    cache
        .compatibility
        .expect(requirements::platform(&prepared.bundle));
    if target.origin == Origin::Catalog {
        requirements::admit(context, &resolved, &prepared.bundle).await?;
    }
    let certificates = prepared.bundle.csv().needs_certificates().then_some(provider);
    let properties = prepared.bundle.properties_text().map(str::to_owned);
    let further_properties = prepared.bundle.further_properties(&target.declared);
    let ignored = prepared.ignored;
    let objects = prepared.rendered.into_objects();
    let mut writable = resolved.observed.revisions.operator_conditions();
    writable.extend(named.clone());
    let operator_condition = named.map(|name| OperatorCondition {
        is_named: records::named(own) == Some(name.as_str()),
        writable,
        name,
        account: resolved.settings.account.clone(),
        operators: records::accounts(&objects),
    });
    let marks = CommonMetadata {
        extension: extension.name(),
        package: &target.bundle.package,
        version: &target.bundle.metadata.version,
    };
    let groups = phases(objects, marks)?;
    Ok(Some(Rendered {
        resolved,
        certificates,
        operator_condition,
        roles_named_after,
        properties,
        further_properties,
        image: pinned.to_string(),
        verified,
        groups,
        ignored,
        inputs,
    }))
}

impl BundleCache {
    /// Records the inputs for which the newest revision is the wanted one; `None` for a revision that was just created
    /// or changed.
    pub(crate) fn settle(&mut self, inputs: Option<Inputs>) {
        self.settled = Settled(inputs);
    }

    /// Records that the API server refuses an OperatorCondition. The bundle is rendered without it.
    pub(crate) fn refuse_condition(&mut self, name: String) {
        self.refused_condition = Some((name, Instant::now()));
    }

    /// Whether the API server recently refused this OperatorCondition.
    fn is_refused(&self, name: &str) -> bool {
        let refused = self.refused_condition.as_ref();
        refused.is_some_and(|(known, at)| known == name && at.elapsed() < REFUSAL_COUNTS)
    }

    /// The verdict of the signature policy about the image of the installed bundle, and about those of its Pods where
    /// the extension asks for it.
    pub(crate) async fn verify(&mut self, context: &Context, observed: &Observed) -> Verification {
        let (extension, installed) = (observed.extension.name(), observed.revisions.installed());
        match signatures(context, &observed.extension) {
            Ok(rules) => {
                // An annotation that cannot be read is reported by the settings.
                let images = verified_images(|key| observed.extension.annotation(key)).unwrap_or_default();
                self.verification
                    .verify(context, extension, installed, images, &rules)
                    .await
            }
            Err(_) if installed.is_none() => Verification::NotAsked,
            Err(error) => Verification::Known(SignatureStatus::unreadable(&error.to_string())),
        }
    }

    /// Warnings about the installed bundle on this cluster; `None` if there are none or the cluster does not answer.
    pub(crate) async fn warnings(&mut self, context: &Context) -> Option<String> {
        self.compatibility.warnings(context).await
    }
}
