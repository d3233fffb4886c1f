use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::{AvailabilityMode, CatalogSource, ClusterCatalogSpec, ImageSource};
use olm_api::names::{finalizer, label, user};
use olm_serve::Findings;

use super::*;
use crate::controller::message::UNPACKED;
use crate::controller::observe::CatalogState;
use crate::controller::plan::{ContentAction, plan};
use crate::controller::template::KubernetesVersion;

const ORIGIN: &str = "https://catalogd-service.olmv1-system.svc";
const ONE: &str =
    "registry.example/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111";
const TWO: &str =
    "registry.example/catalog@sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn stored(resolved: &str, second: i64) -> ServedContent {
    ServedContent {
        requested: "registry.example/catalog:latest".to_owned(),
        resolved: resolved.to_owned(),
        since: at(second),
        findings: Findings::default(),
    }
}

fn observed(second: i64) -> Observed {
    let image = ImageSource {
        reference: "registry.example/catalog:latest".to_owned(),
        poll_interval_minutes: Some(5),
    };
    let source = CatalogSource {
        source_type: SourceType::Image,
        image: Some(image),
    };
    let mut catalog = ClusterCatalog::new(
        "cat",
        ClusterCatalogSpec {
            source,
            ..ClusterCatalogSpec::default()
        },
    );
    catalog.metadata.generation = Some(1);
    catalog.metadata.labels = Some([(label::METADATA_NAME.to_owned(), "cat".to_owned())].into());
    catalog.metadata.finalizers = Some(vec![finalizer::DELETE_SERVER_CACHE.to_owned()]);
    let state = CatalogState {
        polled: Some(at(second)),
        ..CatalogState::default()
    };
    Observed {
        catalog: Arc::new(catalog),
        stored: None,
        known: false,
        state,
        role: Role::Leader,
        kubernetes: None,
        now: at(second),
    }
}

fn status(observed: &Observed, done: &ContentOutcome, origin: &str) -> Option<ClusterCatalogStatus> {
    super::status(observed, &plan(observed), done, origin)
}

/// The state after a pass at a second with the outcome `done`.
fn after(mut observed: Observed, second: i64, done: &ContentOutcome) -> Observed {
    observed.now = at(second);
    if let Some(status) = status(&observed, done, ORIGIN) {
        Arc::make_mut(&mut observed.catalog).status = Some(status);
    }
    match done {
        ContentOutcome::Served(stored) | ContentOutcome::Restored(stored) => {
            observed.stored = Some(stored.clone());
        }
        ContentOutcome::Removed(_) => observed.stored = None,
        ContentOutcome::Nothing
        | ContentOutcome::Lost(_)
        | ContentOutcome::Failed(_)
        | ContentOutcome::Superseded => {}
    }
    observed.known = observed.stored.is_some();
    observed
}

/// Conditions as `Type=Status/Reason@second`, then digest and time of the served content.
fn summary(observed: &Observed) -> Vec<String> {
    let status = observed.catalog.status.clone().unwrap_or_default();
    let condition = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        format!(
            "{}={}/{}@{}",
            c.type_,
            c.status,
            c.reason,
            c.last_transition_time.0.as_second()
        )
    };
    let for_tools = [conditions::READY, conditions::RECONCILING, conditions::STALLED];
    let others = status
        .conditions
        .iter()
        .filter(|c| !for_tools.contains(&c.type_.as_str()));
    let mut lines: Vec<String> = others.map(condition).collect();
    if let Some(source) = &status.resolved_source {
        lines.push(
            source
                .image
                .as_ref()
                .unwrap()
                .reference
                .chars()
                .skip(32)
                .take(1)
                .collect(),
        );
    }
    lines.extend(status.last_unpacked.map(|time| time.0.as_second().to_string()));
    lines.extend(status.urls.map(|urls| urls.base));
    lines
}

fn message<'c>(observed: &'c Observed, condition_type: &str) -> &'c str {
    &conditions::find(observed.catalog.conditions(), condition_type)
        .unwrap()
        .message
}

/// The state for tools, its reason and its generation.
fn tools(observed: &Observed) -> (Verdict, &str, i64) {
    let conditions = observed.catalog.conditions();
    let ready = conditions::find(conditions, conditions::READY).unwrap();
    let status = observed.catalog.status.as_ref().unwrap();
    assert_eq!(ready.observed_generation, status.observed_generation);
    (
        olm_api::readiness::verdict(conditions).unwrap(),
        &ready.reason,
        ready.observed_generation.unwrap(),
    )
}

fn failed(severity: Severity) -> ContentOutcome {
    let message = "source catalog content: read tcp 10.0.0.1:41000->10.0.0.2:443: reset".to_owned();
    let hint = (severity == Severity::Terminal).then(|| "fix it".to_owned());
    ContentOutcome::Failed(ContentFailure {
        message,
        hint,
        severity,
    })
}

#[test]
fn a_catalog_from_first_sight_to_deletion() {
    const BASE: &str = "https://catalogd-service.olmv1-system.svc/catalogs/cat";
    let state = after(observed(10), 10, &failed(Severity::Transient));
    assert_eq!(summary(&state), ["Progressing=True/Retrying@10"]);
    assert_eq!(tools(&state), (Verdict::Reconciling, "Retrying", 1));
    assert_eq!(
        message(&state, conditions::PROGRESSING),
        "source catalog content: reset"
    );
    assert_eq!(
        message(&state, conditions::READY),
        format!("source catalog content: reset\nhint: {RETRY}")
    );
    // Repeated failures of the same kind cause no further writes.
    assert_eq!(status(&state, &failed(Severity::Transient), ORIGIN), None);

    let state = after(state, 20, &ContentOutcome::Served(stored(ONE, 19)));
    let served = [
        "Progressing=True/Succeeded@10",
        "Serving=True/Available@20",
        "ContentValid=True/NoFindings@20",
        "1",
        "19",
        BASE,
    ];
    assert_eq!(summary(&state), served);
    assert_eq!(tools(&state), (Verdict::Ready, "Healthy", 1));

    // The next pass has the same result, so nothing is written.
    assert_eq!(
        status(&state, &ContentOutcome::Served(stored(ONE, 19)), ORIGIN),
        None
    );
    assert_eq!(status(&state, &ContentOutcome::Nothing, ORIGIN), None);

    // A replica that stored the same content at another time reports the same.
    assert_eq!(
        status(&state, &ContentOutcome::Served(stored(ONE, 25)), ORIGIN),
        None
    );

    let state = after(state, 30, &failed(Severity::Terminal));
    let mut blocked = served.map(str::to_owned);
    blocked[0] = "Progressing=False/Blocked@30".to_owned();
    assert_eq!(summary(&state), blocked);
    assert_eq!(tools(&state), (Verdict::Stalled, "Blocked", 1));
    assert_eq!(
        message(&state, conditions::PROGRESSING),
        "source catalog content: reset"
    );
    let explained = "source catalog content: reset\nhint: fix it";
    assert_eq!(message(&state, conditions::READY), explained);
    let state = after(state, 31, &ContentOutcome::Nothing);
    assert_eq!(
        message(&state, conditions::READY),
        explained,
        "it stays as long as the state"
    );

    let mut new = stored(TWO, 40);
    new.findings = Findings {
        total: 2,
        first: vec!["package foo: no channel".to_owned()],
    };
    let state = after(state, 41, &ContentOutcome::Served(new));
    assert_eq!(
        summary(&state),
        [
            "Progressing=True/Succeeded@41",
            "Serving=True/Available@20",
            "ContentValid=False/Findings@41",
            "2",
            "40",
            BASE
        ]
    );
    assert_eq!(
        conditions::find(state.catalog.conditions(), conditions::CONTENT_VALID)
            .unwrap()
            .message,
        "2 findings of the catalog check; the catalog is served all the same:\n- package foo: no channel\n… and 1 more"
    );

    let state = after(state, 50, &ContentOutcome::Removed(RemovalReason::Unavailable));
    assert_eq!(
        summary(&state),
        [
            "Progressing=True/Succeeded@41",
            "Serving=False/UserSpecifiedUnavailable@50"
        ]
    );
    assert_eq!(tools(&state), (Verdict::Ready, "UserSpecifiedUnavailable", 1));
    let state = after(state, 60, &ContentOutcome::Served(stored(TWO, 60)));
    let state = after(state, 70, &ContentOutcome::Removed(RemovalReason::Deleted));
    assert_eq!(
        summary(&state),
        ["Progressing=True/Succeeded@41", "Serving=False/Unavailable@70"]
    );
}

#[test]
fn tools_wait_for_the_generation_that_was_attempted_and_know_a_pause() {
    let mut state = after(observed(10), 10, &ContentOutcome::Served(stored(ONE, 10)));
    Arc::make_mut(&mut state.catalog).metadata.generation = Some(2);
    let state = after(state, 20, &ContentOutcome::Nothing);
    assert_eq!(
        tools(&state),
        (Verdict::Ready, "Healthy", 1),
        "nothing was attempted"
    );
    let mut state = after(state, 30, &failed(Severity::Terminal));
    assert_eq!(tools(&state), (Verdict::Stalled, "Blocked", 2));
    let paused = (user::PAUSED.to_owned(), "true".to_owned());
    Arc::make_mut(&mut state.catalog).metadata.annotations = Some([paused].into());
    let state = after(state, 40, &failed(Severity::Terminal));
    assert_eq!(tools(&state), (Verdict::Stalled, "Paused", 2));
    let lost = after(state, 50, &ContentOutcome::Served(stored(ONE, 50)));
    let mut lost = Observed { stored: None, ..lost };
    lost.now = at(60);
    let lost = after(lost, 60, &ContentOutcome::Lost("gone".to_owned()));
    assert_eq!(tools(&lost), (Verdict::Reconciling, "Unavailable", 2));
}

#[test]
fn planning_on_the_result_asks_for_nothing() {
    for done in [
        ContentOutcome::Served(stored(ONE, 10)),
        ContentOutcome::Removed(RemovalReason::Unavailable),
    ] {
        let mut start = observed(10);
        if matches!(done, ContentOutcome::Removed(_)) {
            let catalog = Arc::make_mut(&mut start.catalog);
            catalog.spec.availability_mode = AvailabilityMode::Unavailable;
            catalog.metadata.finalizers = None;
        }
        let end = after(start, 10, &done);
        let again = plan(&end);
        assert_eq!(
            (again.metadata, &again.content, again.release),
            (None, &ContentAction::Keep, false)
        );
        assert_eq!(status(&end, &ContentOutcome::Nothing, ORIGIN), None);
    }
}

#[test]
fn a_status_that_another_writer_changed_is_written_again() {
    let end = after(observed(10), 10, &ContentOutcome::Served(stored(ONE, 10)));
    let mut tampered = end.clone();
    let changed = Arc::make_mut(&mut tampered.catalog).status.as_mut().unwrap();
    changed.urls = None;
    changed.conditions.retain(|c| c.type_ != conditions::SERVING);
    let restored = status(&tampered, &ContentOutcome::Nothing, ORIGIN).unwrap();
    assert_eq!(restored.urls, end.catalog.status.as_ref().unwrap().urls);
    assert!(conditions::is_true(&restored.conditions, conditions::SERVING));
}

#[test]
fn a_follower_says_nothing() {
    let mut follower = observed(10);
    follower.role = Role::Follower;
    assert_eq!(
        status(&follower, &ContentOutcome::Served(stored(ONE, 10)), ORIGIN),
        None
    );
    assert_eq!(status(&follower, &failed(Severity::Transient), ORIGIN), None);
}

#[test]
fn findings_fit_into_a_condition() {
    let mut many = stored(ONE, 10);
    many.findings = Findings {
        total: 100_000,
        first: vec!["漢".repeat(1000); 25],
    };
    let text = findings(&many);
    assert!(text.len() < FINDINGS_BYTES + 600, "{}", text.len());
    assert!(text.ends_with("more"));
}

#[test]
fn only_a_transient_failure_is_retried_by_itself() {
    let plan = |poll| Plan {
        metadata: None,
        content: ContentAction::Keep,
        release: false,
        poll,
        recheck: None,
        note: None,
    };
    let here = after(observed(1), 1, &ContentOutcome::Served(stored(ONE, 1)));
    let minute = Duration::from_mins(1);
    let check = |poll, done: &ContentOutcome, expected| {
        assert_eq!(next(&plan(poll), &here, done, None), expected, "{done:?}");
    };
    check(Some(minute), &ContentOutcome::Nothing, Outcome::After(minute));
    check(None, &ContentOutcome::Served(stored(ONE, 1)), Outcome::Done);
    check(Some(minute), &failed(Severity::Transient), Outcome::Failed);
    check(Some(minute), &failed(Severity::Terminal), Outcome::Refused);
    check(None, &ContentOutcome::Superseded, Outcome::After(Duration::ZERO));
    check(
        Some(minute),
        &ContentOutcome::Lost(String::new()),
        Outcome::Failed,
    );
    check(
        Some(minute),
        &ContentOutcome::Restored(stored(ONE, 1)),
        Outcome::After(minute),
    );
    // The cluster's version is read again whatever the result of the pass.
    let templated = Plan {
        recheck: Some(minute),
        ..plan(Some(minute * 5))
    };
    for done in [failed(Severity::Terminal), ContentOutcome::Nothing] {
        assert_eq!(
            next(&templated, &here, &done, None),
            Outcome::After(minute),
            "{done:?}"
        );
    }
    // Without any content, the last content is fetched although only another spec fixes the fault.
    let mut empty = here.clone();
    empty.stored = None;
    assert_eq!(
        next(
            &super::super::plan::plan(&empty),
            &empty,
            &failed(Severity::Terminal),
            None
        ),
        Outcome::Failed
    );
}

#[test]
fn serving_is_not_claimed_without_content() {
    let mut state = after(observed(10), 10, &ContentOutcome::Served(stored(ONE, 10)));
    state.stored = None;
    let serving = |state: &Observed| {
        let condition = conditions::find(state.catalog.conditions(), conditions::SERVING).unwrap();
        (condition.status.clone(), condition.message.clone())
    };
    let lost = after(state.clone(), 20, &failed(Severity::Transient));
    assert_eq!(serving(&lost), ("False".to_owned(), MISSING.to_owned()));
    // The identity of the content stays known: other replicas serve it, and this one continues to request it.
    assert_eq!(resolved(lost.catalog.status.as_ref().unwrap()), Some(ONE));
    let unreachable = after(state, 20, &ContentOutcome::Lost("no route".to_owned()));
    assert_eq!(
        serving(&unreachable),
        ("False".to_owned(), format!("{MISSING}: no route"))
    );

    let mut back = unreachable;
    back.stored = Some(stored(ONE, 10));
    let back = after(back, 30, &failed(Severity::Transient));
    assert_eq!(serving(&back).0, "True");
    assert_eq!(summary(&back)[0], "Progressing=True/Retrying@10");
}

#[test]
fn an_annotation_that_is_not_followed_is_said() {
    let mut state = observed(10);
    let catalog = Arc::make_mut(&mut state.catalog);
    let template = (user::CATALOG_IMAGE_TEMPLATE.to_owned(), "x/y:{foo}".to_owned());
    catalog.metadata.annotations = Some([template].into());
    state.kubernetes = KubernetesVersion::parse("v1.30.1", "", "");
    let state = after(state, 10, &ContentOutcome::Served(stored(ONE, 10)));
    assert_eq!(message(&state, conditions::PROGRESSING), UNPACKED);
    let message = message(&state, conditions::READY);
    assert!(
        message.starts_with(SERVING) && message.ends_with("unknown variable {foo}"),
        "{message}"
    );
    assert_eq!(plan(&state).content, ContentAction::Keep, "it is said once");
}

#[test]
fn events_report_changes_only() {
    let check = |before: &Observed, then: &Observed, expected: &[&str]| {
        let said: Vec<String> = changes(&before.catalog, &then.catalog)
            .into_iter()
            .map(|said| {
                format!(
                    "{}{}: {}",
                    if said.is_fault { "!" } else { "" },
                    said.reason,
                    said.note
                )
            })
            .collect();
        assert_eq!(said, expected);
    };
    let first = observed(10);
    let serving = after(first.clone(), 10, &ContentOutcome::Served(stored(ONE, 10)));
    let new = format!("Available: Serving {ONE}");
    check(&first, &serving, &[&new]);
    let again = after(serving.clone(), 20, &ContentOutcome::Nothing);
    check(&serving, &again, &[]);
    let broken = after(again.clone(), 30, &failed(Severity::Transient));
    check(
        &again,
        &broken,
        &[&format!(
            "!Retrying: source catalog content: reset\nhint: {RETRY}"
        )],
    );
    check(
        &broken,
        &after(broken.clone(), 40, &failed(Severity::Transient)),
        &[],
    );
    let recovered = after(broken.clone(), 45, &ContentOutcome::Served(stored(ONE, 10)));
    check(&broken, &recovered, &[&format!("Succeeded: Serving {ONE} again")]);
    let gone = after(
        broken.clone(),
        50,
        &ContentOutcome::Removed(RemovalReason::Unavailable),
    );
    check(
        &broken,
        &gone,
        &[&format!("UserSpecifiedUnavailable: {UNAVAILABLE}")],
    );
    let mut deleting = again;
    Arc::make_mut(&mut deleting.catalog).metadata.deletion_timestamp = Some(Time(at(60)));
    let deleted = after(
        deleting.clone(),
        60,
        &ContentOutcome::Removed(RemovalReason::Deleted),
    );
    check(&deleting, &deleted, &[&format!("Unavailable: {DELETED}")]);
}
