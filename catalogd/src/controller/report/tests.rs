use std::sync::Arc;

use jiff::Timestamp;
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::{AvailabilityMode, CatalogSource, ClusterCatalogSpec, ImageSource};
use olm_api::names::{finalizer, label};
use olm_serve::Findings;

use super::*;
use crate::controller::observe::Memory;
use crate::controller::plan::{Content, plan};

const ORIGIN: &str = "https://catalogd-service.olmv1-system.svc";
const ONE: &str =
    "registry.example/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111";
const TWO: &str =
    "registry.example/catalog@sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn stored(resolved: &str, second: i64) -> Stored {
    Stored {
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
    let memory = Memory {
        polled: Some(at(second)),
        ..Memory::default()
    };
    Observed {
        catalog: Arc::new(catalog),
        stored: None,
        known: false,
        memory,
        role: Role::Leader,
        now: at(second),
    }
}

/// The state after a pass at that second that came to `done`.
fn after(mut observed: Observed, second: i64, done: &Done) -> Observed {
    observed.now = at(second);
    if let Some(status) = status(&observed, done, ORIGIN) {
        Arc::make_mut(&mut observed.catalog).status = Some(status);
    }
    match done {
        Done::Served(stored) => observed.stored = Some(stored.clone()),
        Done::Removed(_) => observed.stored = None,
        Done::Nothing | Done::Failed(_) | Done::Superseded => {}
    }
    observed.known = observed.stored.is_some();
    observed
}

/// Conditions as `Type=Status/Reason@second`, then digest and time of what is served.
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
    let mut lines: Vec<String> = status.conditions.iter().map(condition).collect();
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

fn failed(remedy: Remedy) -> Done {
    let message = "source catalog content: read tcp 10.0.0.1:41000->10.0.0.2:443: reset".to_owned();
    Done::Failed(Failure { message, remedy })
}

#[test]
fn a_catalog_from_first_sight_to_deletion() {
    const BASE: &str = "https://catalogd-service.olmv1-system.svc/catalogs/cat";
    let state = after(observed(10), 10, &failed(Remedy::Retry));
    assert_eq!(summary(&state), ["Progressing=True/Retrying@10"]);
    let message = &state.catalog.conditions()[0].message;
    assert_eq!(message, "source catalog content: reset");

    let state = after(state, 20, &Done::Served(stored(ONE, 19)));
    let served = [
        "Progressing=True/Succeeded@10",
        "Serving=True/Available@20",
        "ContentValid=True/NoFindings@20",
        "1",
        "19",
        BASE,
    ];
    assert_eq!(summary(&state), served);

    // The next look finds the same: nothing is written.
    assert_eq!(status(&state, &Done::Served(stored(ONE, 19)), ORIGIN), None);
    assert_eq!(status(&state, &Done::Nothing, ORIGIN), None);

    // A replica that stored the same content at another time says the same.
    assert_eq!(status(&state, &Done::Served(stored(ONE, 25)), ORIGIN), None);

    let state = after(state, 30, &failed(Remedy::Change));
    let mut blocked = served.map(str::to_owned);
    blocked[0] = "Progressing=False/Blocked@30".to_owned();
    assert_eq!(summary(&state), blocked);

    let mut new = stored(TWO, 40);
    new.findings = Findings {
        total: 2,
        first: vec!["package foo: no channel".to_owned()],
    };
    let state = after(state, 41, &Done::Served(new));
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
        state.catalog.conditions()[2].message,
        "2 findings of the whole-catalog check, which does not stop serving:\n- package foo: no channel\n… and 1 more"
    );

    let state = after(state, 50, &Done::Removed(Why::Unavailable));
    assert_eq!(
        summary(&state),
        [
            "Progressing=True/Succeeded@41",
            "Serving=False/UserSpecifiedUnavailable@50"
        ]
    );
    let state = after(state, 60, &Done::Served(stored(TWO, 60)));
    let state = after(state, 70, &Done::Removed(Why::Deleted));
    assert_eq!(
        summary(&state),
        ["Progressing=True/Succeeded@41", "Serving=False/Unavailable@70"]
    );
}

#[test]
fn planning_on_the_result_asks_for_nothing() {
    for done in [Done::Served(stored(ONE, 10)), Done::Removed(Why::Unavailable)] {
        let mut start = observed(10);
        if matches!(done, Done::Removed(_)) {
            let catalog = Arc::make_mut(&mut start.catalog);
            catalog.spec.availability_mode = AvailabilityMode::Unavailable;
            catalog.metadata.finalizers = None;
        }
        let end = after(start, 10, &done);
        let again = plan(&end);
        assert_eq!(
            (again.metadata, &again.content, again.release),
            (None, &Content::Keep, false)
        );
        assert_eq!(status(&end, &Done::Nothing, ORIGIN), None);
    }
}

#[test]
fn what_somebody_else_changed_is_said_again() {
    let end = after(observed(10), 10, &Done::Served(stored(ONE, 10)));
    let mut tampered = end.clone();
    let changed = Arc::make_mut(&mut tampered.catalog).status.as_mut().unwrap();
    changed.urls = None;
    changed.conditions.retain(|c| c.type_ != conditions::SERVING);
    let restored = status(&tampered, &Done::Nothing, ORIGIN).unwrap();
    assert_eq!(restored.urls, end.catalog.status.as_ref().unwrap().urls);
    assert!(conditions::is_true(&restored.conditions, conditions::SERVING));
}

#[test]
fn a_follower_says_nothing() {
    let mut follower = observed(10);
    follower.role = Role::Follower;
    assert_eq!(status(&follower, &Done::Served(stored(ONE, 10)), ORIGIN), None);
    assert_eq!(status(&follower, &failed(Remedy::Retry), ORIGIN), None);
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
        content: Content::Keep,
        release: false,
        poll,
    };
    let minute = Duration::from_mins(1);
    let check = |poll, done: &Done, expected| assert_eq!(next(&plan(poll), done), expected, "{done:?}");
    check(Some(minute), &Done::Nothing, Outcome::After(minute));
    check(None, &Done::Served(stored(ONE, 1)), Outcome::Done);
    check(Some(minute), &failed(Remedy::Retry), Outcome::Failed);
    check(Some(minute), &failed(Remedy::Change), Outcome::Done);
    check(None, &Done::Superseded, Outcome::After(Duration::ZERO));
}
