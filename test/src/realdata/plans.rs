//! Planning again writes nothing, for every real bundle that renders: its revision, its preflight, its rollout and its
//! deletion are planned, executed in memory, and planned again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use olm_api::cluster_extension::{BundleMetadata, ClusterExtensionSpec};
use olm_api::cluster_object_set::CollisionProtection;
use olm_api::names::{SYSTEM_NAMESPACE, field_manager};
use olm_api::{ClusterExtension, ClusterObjectSet, Time};
use olm_bundle::{CertificateProvider, InstallMode, Prepared};
use olm_cluster::identity::AccountName;
use olm_plan::phases::{CommonMetadata, Group, phases};
use olm_preflight::crd_upgrade::migration::{Migration, migration};
use olm_preflight::crd_upgrade::{Policy, compare, existing};
use olm_preflight::permissions::{
    AccountRights, Completeness, Discovery, Environment, Planned, Presence, Resource, Scope, needed,
};
use olm_rollout::content::{SecretContent, SecretName, resolve};
use olm_rollout::engine::desired::{body, wanted};
use olm_rollout::engine::differences::differences;
use olm_rollout::engine::request::{Observation, Request, RequestOutcome, Step};
use olm_rollout::engine::rollout::{Report, Rollout, RolloutEnd, Settings};
use olm_rollout::engine::teardown::{RetainedObjects, Teardown, TeardownEnd};
use olm_rollout::object::ObjectId;
use olm_rollout::outline::{ObjectPosition, Outline, Owner};
use olm_rollout::ownership::Ownership;
use olm_rollout::phases::Phases;
use olm_rollout::policy::{Policy as UninstallPolicy, Uninstall};
use olm_rollout::probe;
use operator_controller::extension::delete::plan::{self as deletion, DeletionReport, Remaining};
use operator_controller::extension::plan::action::Action;
use operator_controller::extension::plan::revision::{Creation, DesiredRevision, RevisionPlan, plan};
use operator_controller::extension::revisions::{BundleIdentity, ConflictingSets, Revisions};
use serde_json::{Map, Value, json};

use super::bundles::{NAMESPACE, attempt, directories, read, supported_modes};
use super::{Case, guarded};

const EXTENSION: &str = "extension";
const UID: &str = "extension-uid";

/// Plans every bundle below `dir/bundles/PACKAGE/VERSION` twice, in all install modes that it supports. Refused bundles
/// are left out: [`super::bundles`] checks the reasons.
pub fn run(dir: &Path) -> Vec<Case> {
    let root = dir.join("bundles");
    let mut cases = Vec::new();
    for package in directories(&root) {
        for version in directories(&root.join(&package)) {
            let path = root.join(&package).join(&version);
            let outcome = guarded(|| examine(&path).map_err(|error| format!("{error:#}")));
            match outcome {
                Ok(0) => {}
                outcome => cases.push((
                    format!("plans/{package}/{version}"),
                    outcome.map(|_| "planned again without a write".to_owned()),
                )),
            }
        }
    }
    cases
}

/// The number of install modes for which the bundle was planned.
fn examine(path: &Path) -> Result<usize> {
    let files = read(path)?;
    let Ok(bundle) = olm_bundle::parse(&files, &BTreeMap::new()) else {
        return Ok(0);
    };
    let mut count = 0;
    for mode in supported_modes(&bundle) {
        if let Ok(prepared) = attempt(&files, mode, Some(CertificateProvider::SelfSigned)) {
            plan_again(&prepared, mode).with_context(|| mode.to_string())?;
            count += 1;
        }
    }
    Ok(count)
}

fn plan_again(prepared: &Prepared, mode: InstallMode) -> Result<()> {
    let objects = prepared.rendered.objects();
    let (package, version) = (prepared.bundle.package(), &prepared.bundle.csv().spec.version);
    let marks = CommonMetadata {
        extension: EXTENSION,
        package,
        version,
    };
    let groups = phases(objects.to_vec(), marks)?;
    let grouped = groups.iter().map(|group| group.objects.len()).sum::<usize>();
    ensure!(grouped == objects.len(), "{grouped} of {} objects", objects.len());
    let account: AccountName = format!("{NAMESPACE}/installer").parse()?;
    let extension = extension();
    let bundle = BundleIdentity {
        package: package.to_owned(),
        metadata: BundleMetadata {
            name: prepared.bundle.name().to_owned(),
            version: version.clone(),
            release: None,
        },
        image: format!("registry.example/{package}:{mode}"),
    };
    let properties = prepared.bundle.properties_text();
    let further_properties = prepared.bundle.further_properties(&[]);
    let wanted = DesiredRevision {
        extension: &extension,
        account: Some(&account),
        bundle: &bundle,
        catalog: "catalog",
        properties,
        further_properties: further_properties.as_deref(),
        certificates: Some(CertificateProvider::SelfSigned),
        operator_condition: Some(&bundle.metadata.name),
        roles_named_after: None,
        config_digest: None,
        verified: None,
        groups: &groups,
        adopt: CollisionProtection::Prevent,
        system_namespace: SYSTEM_NAMESPACE,
    };
    let planned = plan(&wanted, &Revisions::default(), &ConflictingSets::default())?;
    let RevisionPlan::Create(creation) = planned else {
        bail!("the first plan makes no revision: {planned:?}");
    };
    let set = Arc::new(stored(&creation)?);
    let revisions = Revisions::new(vec![Arc::clone(&set)]);
    match plan(&wanted, &revisions, &ConflictingSets::default())? {
        RevisionPlan::Keep { secrets } => ensure!(secrets == creation.secrets, "other Secrets are planned"),
        other => bail!("planned again, the revision is not kept: {other:?}"),
    }
    roll_out_again(&set, &creation, &groups).context("rollout")?;
    preflight_again(&groups).context("preflight")?;
    delete_again(&extension, &set).context("deletion")
}

fn extension() -> ClusterExtension {
    let mut extension = ClusterExtension::new(
        EXTENSION,
        ClusterExtensionSpec {
            namespace: NAMESPACE.to_owned(),
            ..ClusterExtensionSpec::default()
        },
    );
    extension.metadata.uid = Some(UID.to_owned());
    extension
}

/// The revision in the form that an API server returns.
fn stored(creation: &Creation) -> Result<ClusterObjectSet> {
    let text = serde_json::to_vec(&creation.set)?;
    let mut set: ClusterObjectSet = serde_json::from_slice(&text)?;
    set.metadata.uid = Some("set-uid".to_owned());
    set.metadata.resource_version = Some("1".to_owned());
    Ok(set)
}

/// The content equals the rendered objects. A second rollout writes nothing, and a second teardown finds nothing.
fn roll_out_again(set: &ClusterObjectSet, creation: &Creation, groups: &[Group]) -> Result<()> {
    let secret = |secret: &olm_plan::pack::ContentSecret| {
        let name = SecretName {
            namespace: SYSTEM_NAMESPACE.to_owned(),
            name: secret.name.clone(),
        };
        let content = SecretContent {
            immutable: true,
            data: secret.data.clone(),
        };
        (name, content)
    };
    let secrets = creation.secrets.iter().map(secret).collect();
    let content = resolve(&set.spec, &secrets, SYSTEM_NAMESPACE)?;
    let held: Vec<Vec<&Value>> = content
        .phases
        .iter()
        .map(|phase| phase.objects.iter().map(|held| &held.object).collect())
        .collect();
    let rendered: Vec<Vec<&Value>> = groups
        .iter()
        .map(|group| group.objects.iter().collect())
        .collect();
    ensure!(
        held == rendered,
        "the revision holds other objects than were rendered"
    );
    let owner = Owner {
        name: set.name().to_owned(),
        uid: "set-uid".to_owned(),
        revision: set.spec.revision,
        owner_name: EXTENSION.to_owned(),
        extension: UID.to_owned(),
        migrated: false,
    };
    let mut cluster = Cluster {
        outline: Phases::of(&content).outline(owner, Vec::new()),
        bodies: held,
        objects: BTreeMap::new(),
        writes: 0,
    };
    let first = cluster.roll_out(Settings::default())?;
    let count = rendered.iter().map(Vec::len).sum::<usize>();
    ensure!(first.end == RolloutEnd::Complete, "{:?}", first.end);
    ensure!(
        first.written == count,
        "{} of {count} objects are written",
        first.written
    );
    cluster.writes = 0;
    let again = cluster.roll_out(Settings {
        accepted: first.accepted,
        ..Settings::default()
    })?;
    ensure!(
        (&again.end, again.written, cluster.writes) == (&RolloutEnd::Complete, 0, 0),
        "rolled out again: {again:?}, {} writes",
        cluster.writes
    );
    ensure!(
        cluster.take_down()? == TeardownEnd::Complete,
        "it is not taken down"
    );
    ensure!(cluster.objects.is_empty(), "left: {:?}", cluster.objects.keys());
    cluster.writes = 0;
    ensure!(
        cluster.take_down()? == TeardownEnd::Complete,
        "it is not taken down again"
    );
    ensure!(cluster.writes == 0, "taken down again: {} writes", cluster.writes);
    Ok(())
}

/// A minimal API server for a single revision.
struct Cluster<'a> {
    outline: Outline,
    bodies: Vec<Vec<&'a Value>>,
    objects: BTreeMap<ObjectId, Value>,
    writes: usize,
}

impl Cluster<'_> {
    fn roll_out(&mut self, settings: Settings) -> Result<Report> {
        let mut step = Rollout::start(&self.outline, settings);
        loop {
            match step {
                Step::End(report) => return Ok(report),
                Step::Ask(machine, requests) => {
                    let answers = self.answers(&requests)?;
                    step = machine.step(&self.outline, answers);
                }
            }
        }
    }

    fn take_down(&mut self) -> Result<TeardownEnd> {
        let mut step = Teardown::start(&self.outline, RetainedObjects::default());
        loop {
            match step {
                Step::End(end) => return Ok(end),
                Step::Ask(machine, requests) => {
                    let answers = self.answers(&requests)?;
                    step = machine.step(&self.outline, answers);
                }
            }
        }
    }

    fn answers(&mut self, requests: &[Request]) -> Result<Vec<RequestOutcome>> {
        requests.iter().map(|request| self.answer(request)).collect()
    }

    fn answer(&mut self, request: &Request) -> Result<RequestOutcome> {
        self.writes += usize::from(request.writes());
        let ObjectPosition { phase, object } = request.position();
        let rendered = self.bodies.get(phase).and_then(|objects| objects.get(object));
        let rendered = *rendered.context("a request for an object that is not there")?;
        let id = self.outline.id(request.position());
        let owner = &self.outline.owner;
        let live = match request {
            Request::Observe(_) => match self.objects.get(&id) {
                None => return Ok(RequestOutcome::Absent),
                Some(live) => live.clone(),
            },
            Request::DryRun(_, write) => applied(body(rendered, owner, write)),
            Request::Apply(_, write) => {
                let live = applied(body(rendered, owner, write));
                self.objects.insert(id, live.clone());
                live
            }
            Request::Delete(..) => {
                self.objects.remove(&id);
                return Ok(RequestOutcome::Absent);
            }
            Request::Release(..) | Request::Clear(_) => bail!("there is no other writer: {request:?}"),
        };
        Ok(RequestOutcome::Live(Box::new(Observation {
            ownership: Ownership::of(&live, &owner.uid),
            differences: differences(&wanted(rendered, owner), &live).fingerprint,
            probe: probe::ask(&[], &live),
        })))
    }
}

/// An object without other writers, after it was applied.
fn applied(mut object: Value) -> Value {
    let fields = fields(&object);
    let api_version = object.get("apiVersion").cloned().unwrap_or_default();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), json!("object-uid"));
        metadata.insert("resourceVersion".to_owned(), json!("1"));
        let entry = json!({
            "manager": field_manager::OBJECTS, "operation": "Apply", "apiVersion": api_version, "fieldsV1": fields,
        });
        metadata.insert("managedFields".to_owned(), json!([entry]));
    }
    object
}

/// The fields of an object as an API server keeps account of who applied them; lists as a whole but for the owners.
fn fields(value: &Value) -> Value {
    let Value::Object(members) = value else {
        return json!({});
    };
    let fields = members.iter().map(|(key, member)| {
        let below = match member {
            Value::Array(owners) if key == "ownerReferences" => {
                let owners = owners.iter();
                let owners =
                    owners.map(|owner| (format!("k:{}", json!({ "uid": owner.get("uid") })), fields(owner)));
                Value::Object(owners.collect())
            }
            member => fields(member),
        };
        (format!("f:{key}"), below)
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

/// An account with the reported rights lacks none, and a definition that replaces itself is safe.
fn preflight_again(groups: &[Group]) -> Result<()> {
    let objects: Vec<&Value> = groups.iter().flat_map(|group| &group.objects).collect();
    let discovery: Discovery = objects.iter().map(|object| discovered(object)).collect();
    let environment = Environment {
        discovery: &discovery,
        watched: &BTreeSet::new(),
        roles: &[],
        namespace: NAMESPACE,
    };
    let planned = |presence| -> Vec<Planned<'_>> {
        let planned = objects.iter().map(|object| Planned { object, presence });
        planned.collect()
    };
    let needs = needed(&planned(Presence::Absent), &environment);
    let missing = needs.missing(&AccountRights::new());
    ensure!(
        missing.is_empty() == objects.is_empty(),
        "{} objects need no right",
        objects.len()
    );
    let mut rights = AccountRights::new();
    for (namespace, rules) in missing.rules() {
        rights.add_rules(namespace, rules, Completeness::Complete);
    }
    for presence in [Presence::Absent, Presence::Exists] {
        let lacking = needed(&planned(presence), &environment).missing(&rights);
        ensure!(
            lacking.is_empty(),
            "{presence:?}: rights are still missing: {lacking:?}"
        );
    }
    let definitions = objects
        .iter()
        .filter(|object| object.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition"));
    for definition in definitions {
        let found = compare(definition, definition, &Policy::everything());
        ensure!(found.is_empty(), "a definition is unsafe after itself: {found:?}");
        let migration = migration(definition, definition);
        ensure!(migration == Migration::Needless, "{migration:?}");
        let versions = existing::schema_checks(definition, definition).versions();
        ensure!(versions.is_empty(), "objects of {versions:?} are looked at");
    }
    Ok(())
}

/// The discovery of the kind of an object.
fn discovered(object: &Value) -> ((String, String), Resource) {
    let id = ObjectId::of(object);
    let scope = if id.namespace.is_empty() {
        Scope::Cluster
    } else {
        Scope::Namespaced
    };
    let plural = format!("{}s", id.kind.to_lowercase());
    ((id.group, id.kind), Resource { plural, scope })
}

/// The deletion tears the revision down once, waits without a write, and removes the finalizer of the extension once.
fn delete_again(extension: &ClusterExtension, set: &ClusterObjectSet) -> Result<()> {
    let now = Time(jiff::Timestamp::UNIX_EPOCH);
    let mut extension = extension.clone();
    extension.metadata.deletion_timestamp = Some(now.clone());
    let observed = |left| deletion::DeletionState {
        extension: &extension,
        policy: Ok(UninstallPolicy::default()),
        announced: Some(Uninstall::Delete),
        left,
    };
    let revisions = |set: &ClusterObjectSet| Remaining::Revisions {
        revisions: Revisions::new(vec![Arc::new(set.clone())]),
        dependents: None,
        account: None,
        releases: Ok(Vec::new()),
        data_loss: None,
        finalizers: None,
    };
    let first = deletion::plan(&observed(revisions(set)), Vec::new());
    let [
        Action::TakeDown {
            patch: Some(patch),
            delete: Some(_),
            ..
        },
    ] = first.actions.as_slice()
    else {
        bail!("the revision is not taken down: {:?}", first.actions);
    };
    let mut going = serde_json::to_value(set)?;
    merge(&mut going, patch);
    let mut going: ClusterObjectSet = serde_json::from_value(going)?;
    going.metadata.deletion_timestamp = Some(now);
    let again = deletion::plan(&observed(revisions(&going)), Vec::new());
    ensure!(again.actions.is_empty(), "planned again: {:?}", again.actions);
    let last = deletion::plan(
        &observed(Remaining::Nothing {
            is_listed: false,
            release: Ok(false),
            records: Vec::new(),
        }),
        Vec::new(),
    );
    ensure!(
        matches!(last.report, DeletionReport::Gone(_)) && !last.actions.is_empty(),
        "the extension is not let go: {:?}",
        last.actions
    );
    extension.metadata.finalizers = Some(Vec::new());
    let finalizers = deletion::other_finalizers(&extension);
    ensure!(finalizers.is_none(), "it is let go again");
    Ok(())
}

/// Applies a merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(members), Value::Object(changes)) = (&mut *target, patch) else {
        *target = patch.clone();
        return;
    };
    for (key, change) in changes {
        if change.is_null() {
            members.remove(key);
        } else {
            merge(members.entry(key).or_insert_with(|| json!({})), change);
        }
    }
}
