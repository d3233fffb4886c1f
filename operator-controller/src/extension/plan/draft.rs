//! From a bundle's image to what is to be written, and whether it may be. Nothing is written here.

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_api::ClusterExtension;
use olm_bundle::CertificateProvider;
use olm_platform::events::Said;
use serde_json::Value;

use crate::certificates::layout;
use crate::conditions::records;
use crate::extension::bundle::phases::{Group, Marks, phases};
use crate::extension::bundle::render;
use crate::extension::context::Context;
use crate::extension::failure::{Failure, Severity};
use crate::extension::observe::revisions::{BundleIdentity, Revisions};
use crate::extension::plan::changes::{self, Changes};
use crate::extension::plan::{Plan, Wanted, plan};
use crate::extension::preflight;
use crate::extension::reconcile::Asked;
use crate::extension::report::events;
use crate::extension::resolve::inventory;
use crate::extension::resolve::{Origin, Target};
use crate::object_set::gather;

/// What a revision is made for.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    /// Whose it is.
    pub(crate) extension: &'a Arc<ClusterExtension>,
    /// Those that there are.
    pub(crate) revisions: &'a Revisions,
    /// What the extension asks for beside a bundle.
    pub(crate) asked: &'a Asked,
    /// The bundle.
    pub(crate) target: &'a Target,
}

/// What is to be written, as far as nothing stands in the way.
pub(crate) struct Draft {
    /// The accounts of its operator.
    pub(crate) accounts: BTreeSet<String>,
    /// Who provides its certificates, when it needs any.
    certificates: Option<CertificateProvider>,
    /// Its objects.
    groups: Vec<Group>,
    /// What is to be done.
    pub(crate) plan: Plan,
    /// Fields of the configuration that count for nothing.
    ignored: Vec<String>,
}

/// From a bundle's image, who provides certificates, and the name of the OperatorCondition that the operator is told, to
/// what is to be written.
pub(crate) async fn draft(
    context: &Context,
    work: Work<'_>,
    image: &Arc<olm_image::Bundle>,
    wishes: (CertificateProvider, Option<String>),
) -> Result<Draft, Failure> {
    let Work {
        extension,
        revisions,
        asked,
        target,
    } = work;
    let (certificates, condition) = wishes.clone();
    let prepared = render::render(context.gates, wishes, Arc::clone(extension), Arc::clone(image))
        .await
        .map_err(|error| patient(error.into(), target))?;
    let platform = inventory::platform(&prepared.bundle).map(Arc::new);
    context.memorise(extension.name(), |memory| memory.platform = platform);
    if target.origin == Origin::Catalog {
        inventory::admit(context, extension, revisions, target, &prepared.bundle).await?;
    }
    let certificates = prepared.bundle.csv().needs_certificates().then_some(certificates);
    let properties = prepared.bundle.recorded_properties(&target.declared);
    let ignored = prepared.ignored;
    let objects = prepared.rendered.into_objects();
    let accounts = records::accounts(&objects);
    let groups = phases(
        objects,
        Marks {
            extension: extension.name(),
            package: &target.bundle.package,
            version: &target.bundle.metadata.version,
        },
    )?;
    let wanted = Wanted {
        extension,
        account: Some(&asked.account),
        bundle: &target.bundle,
        properties: properties.as_deref(),
        certificates,
        operator_condition: condition.as_deref(),
        groups: &groups,
        adopt: asked.wishes.adopt,
        system_namespace: &context.system_namespace,
    };
    let plan = plan(&wanted, revisions, &context.others(extension))?;
    Ok(Draft {
        accounts,
        certificates,
        groups,
        plan,
        ignored,
    })
}

impl Draft {
    /// What of the configuration counts for nothing.
    fn left_out(&self) -> Option<String> {
        let fields: Vec<String> = self
            .ignored
            .iter()
            .take(5)
            .map(|field| format!("deploymentConfig.{field}"))
            .collect();
        (!fields.is_empty()).then(|| {
            format!(
                "Kubernetes does not know these fields of spec.config.inline, which are left out: {}; are they misspelled?",
                fields.join(", ")
            )
        })
    }
}

/// What is wrong with a bundle that is named by tag may be mended under the same tag, without any event.
pub(crate) fn patient(mut failure: Failure, target: &Target) -> Failure {
    if failure.severity == Severity::Terminal && !target.bundle.image.contains('@') {
        failure.severity = Severity::Waiting;
    }
    failure
}

/// What is to be told of a revision before it is made.
#[derive(Default)]
pub(crate) struct Told {
    /// What stands not in the way, but should be known.
    pub(crate) warnings: Option<String>,
    /// What it changes of what is installed.
    pub(crate) difference: Option<String>,
    /// The same as an event.
    upcoming: Option<Said>,
}

/// Finds out whether a revision may be made, and tells what it changes.
pub(crate) async fn examine(context: &Context, work: Work<'_>, draft: &Draft) -> Result<Told, Failure> {
    let Work {
        extension,
        revisions,
        asked,
        target,
    } = work;
    let objects: Vec<_> = draft.groups.iter().flat_map(|group| &group.objects).collect();
    let secrets = match draft.certificates {
        Some(CertificateProvider::SelfSigned) => layout::secrets(objects.iter().copied()),
        _ => Vec::new(),
    };
    let changes = upgrade(context, revisions, &objects).await;
    let request = preflight::Request {
        extension,
        account: &asked.account,
        wishes: &asked.wishes,
        objects: &objects,
        secrets: &secrets,
        changes: changes.as_ref(),
    };
    let found = preflight::check(context, request).await?;
    let left_out = draft.left_out();
    let warnings: Vec<String> = left_out.into_iter().chain(found).collect();
    let warnings = (!warnings.is_empty()).then(|| warnings.join("\n"));
    let wanted = &target.bundle.metadata;
    let difference = changes.map(|changes| format!("the revision of {} {changes}", wanted.version));
    let installed = revisions.installed().map(BundleIdentity::of).unwrap_or_default();
    let upcoming = difference
        .as_ref()
        .map(|text| events::upcoming(&installed.metadata, wanted, text));
    Ok(Told {
        warnings,
        difference,
        upcoming,
    })
}

impl Told {
    /// The same as events.
    pub(crate) fn said(&self) -> Vec<Said> {
        let warned = self.warnings.iter();
        let warned = warned.map(|text| events::said(events::WARNED, text));
        self.upcoming.iter().cloned().chain(warned).collect()
    }
}

/// How the objects differ from those of the installed revision; nothing when none is installed or it cannot be read.
async fn upgrade(context: &Context, revisions: &Revisions, objects: &[&Value]) -> Option<Changes> {
    let installed = revisions.installed()?;
    match gather::objects(installed, &context.system_namespace, &context.client).await {
        Ok(before) => Some(changes::changes(&before, objects.iter().copied())),
        Err(error) => {
            tracing::warn!(
                revision = installed.name(),
                error = &error as &dyn std::error::Error,
                "cannot tell what an upgrade changes"
            );
            None
        }
    }
}
