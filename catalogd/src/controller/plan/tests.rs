use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::cluster_catalog::{
    CatalogSource, ClusterCatalogSpec, ClusterCatalogStatus, ImageSource, ResolvedCatalogSource,
    ResolvedImageSource, SourceType,
};
use olm_api::conditions::{Report, Status, set_condition};
use olm_api::readiness::{Readiness, Verdict, set_readiness};
use olm_serve::Findings;
use std::sync::Arc;

use super::*;
use crate::controller::message::UNPACKED;
use crate::controller::observe::{BlockedGeneration, CatalogState, RefusedContent, ServedContent};
use crate::controller::template::KubernetesVersion;

const TAG: &str = "registry.example/catalog:latest";
const ONE: &str =
    "registry.example/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111";
const TWO: &str =
    "registry.example/catalog@sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A leader's view of a catalog that is settled: labelled, finalized, stored and reported.
fn settled() -> Observed {
    let image = ImageSource {
        reference: TAG.to_owned(),
        poll_interval_minutes: None,
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
    catalog.metadata.generation = Some(3);
    catalog.metadata.labels = Some([(label::METADATA_NAME.to_owned(), "cat".to_owned())].into());
    catalog.metadata.finalizers = Some(vec![finalizer::DELETE_SERVER_CACHE.to_owned()]);
    let image = Some(ResolvedImageSource {
        reference: ONE.to_owned(),
    });
    catalog.status = Some(ClusterCatalogStatus {
        resolved_source: Some(ResolvedCatalogSource {
            source_type: SourceType::Image,
            image,
        }),
        last_unpacked: Some(Time(at(500))),
        ..ClusterCatalogStatus::default()
    });
    let stored = ServedContent {
        requested: TAG.to_owned(),
        resolved: ONE.to_owned(),
        since: at(500),
        findings: Findings::default(),
    };
    let mut observed = Observed {
        catalog: Arc::new(catalog),
        stored: Some(stored),
        known: true,
        state: CatalogState {
            polled: Some(at(1000)),
            ..CatalogState::default()
        },
        role: Role::Leader,
        kubernetes: None,
        now: at(1000),
    };
    progress(&mut observed, reason::SUCCEEDED, 3);
    observed
}

fn progress(observed: &mut Observed, reason: &str, generation: i64) {
    let report = Report {
        condition_type: conditions::PROGRESSING,
        status: Status::True,
        reason,
        message: UNPACKED,
        observed_generation: generation,
    };
    change(observed, |catalog| {
        set_condition(
            &mut catalog.status.get_or_insert_default().conditions,
            report,
            at(0),
        );
        let readiness = Readiness {
            verdict: Verdict::Ready,
            reason,
            message: &ready(None),
            observed_generation: generation,
        };
        set_readiness(
            &mut catalog.status.get_or_insert_default().conditions,
            readiness,
            at(0),
        );
    });
}

fn change(observed: &mut Observed, change: impl FnOnce(&mut ClusterCatalog)) {
    change(Arc::make_mut(&mut observed.catalog));
}

fn image(catalog: &mut ClusterCatalog) -> &mut ImageSource {
    catalog.spec.source.image.get_or_insert_default()
}

fn follow(reference: &str, before: Option<ReportedContent>) -> ContentAction {
    ContentAction::Resolve {
        reference: reference.to_owned(),
        before,
    }
}

/// The served content in the status of [`settled`].
fn claimed(requested: &str) -> ReportedContent {
    ReportedContent {
        resolved: ONE.to_owned(),
        requested: requested.to_owned(),
        modified: Some(at(500)),
    }
}

fn check(change: impl FnOnce(&mut Observed), expected: &ContentAction) {
    let mut observed = settled();
    change(&mut observed);
    assert_eq!(plan(&observed).content, *expected);
}

#[test]
fn nothing_is_planned_for_a_catalog_that_is_settled() {
    let idle = Plan {
        metadata: None,
        content: ContentAction::Keep,
        release: false,
        poll: None,
        recheck: None,
        note: None,
    };
    assert_eq!(plan(&settled()), idle);
    let mut follower = settled();
    follower.role = Role::Follower;
    assert_eq!(plan(&follower), idle);
}

#[test]
fn the_leader_follows_the_spec() {
    check(
        |o| change(o, |c| image(c).reference = TWO.to_owned()),
        &follow(TWO, None),
    );
    check(
        |o| change(o, |c| c.metadata.generation = Some(4)),
        &follow(TAG, None),
    );
    check(|o| progress(o, reason::RETRYING, 3), &follow(TAG, None));
    check(|o| change(o, |c| c.status = None), &follow(TAG, None));
    // The content of the digest in the spec is already stored under a tag.
    check(
        |o| {
            change(o, |c| image(c).reference = ONE.to_owned());
            o.state.confirmed = Some(ONE.to_owned());
        },
        &ContentAction::Keep,
    );
}

#[test]
fn the_digest_in_the_status_is_fetched_before_that_of_the_tag() {
    check(|o| o.stored = None, &follow(TAG, Some(claimed(TAG))));
    // The content on an old disk is older than the content that another leader has served since.
    let stored = |resolved: &'static str, second| {
        move |o: &mut Observed| {
            let stored = o.stored.as_mut().unwrap();
            (stored.resolved, stored.since) = (resolved.to_owned(), at(second));
        }
    };
    check(stored(TWO, 400), &follow(TAG, Some(claimed(TAG))));
    // Content that was stored after the status was written becomes part of the next status.
    check(stored(TWO, 600), &ContentAction::Keep);
    // A failed fetch of the leader has no meaning for this reference.
    check(
        |o| {
            o.stored = None;
            progress(o, reason::RETRYING, 3);
        },
        &follow(TAG, Some(claimed(""))),
    );
    // Content that cannot be served is not fetched again.
    check(
        |o| {
            o.stored = None;
            o.state.refused = Some(RefusedContent {
                resolved: ONE.to_owned(),
                message: String::new(),
            });
        },
        &follow(TAG, None),
    );
    // The last served content is restored even if only another spec helps.
    check(
        |o| {
            o.stored = None;
            o.state.blocked = Some(BlockedGeneration {
                generation: 3,
                reference: TAG.to_owned(),
            });
        },
        &ContentAction::Restore(claimed(TAG)),
    );
}

#[test]
fn another_version_of_the_cluster_means_another_image() {
    let template = "registry.example/catalog:v{kube_major_version}.{kube_minor_version}";
    let version = |text| KubernetesVersion::parse(text, "", "");
    let templated = |version| {
        move |o: &mut Observed| {
            o.kubernetes = version;
            o.stored.as_mut().unwrap().requested = "registry.example/catalog:v1.25".to_owned();
            change(o, |c| {
                let annotations = [(user::CATALOG_IMAGE_TEMPLATE.to_owned(), template.to_owned())];
                c.metadata.annotations = Some(annotations.into());
            });
        }
    };
    check(templated(version("v1.25.9")), &ContentAction::Keep);
    check(
        templated(version("v1.26.0")),
        &follow("registry.example/catalog:v1.26", None),
    );
    let mut observed = settled();
    templated(version("v1.25.9"))(&mut observed);
    let again = plan(&observed).recheck.unwrap();
    assert!(again <= Duration::from_mins(10), "the version is read again");
    templated(None)(&mut observed);
    assert!(matches!(plan(&observed).content, ContentAction::Retry(_)));
}

#[test]
fn a_tag_is_looked_at_again_when_its_interval_has_passed() {
    let polled = |second| {
        move |o: &mut Observed| {
            change(o, |c| image(c).poll_interval_minutes = Some(10));
            o.now = at(second);
        }
    };
    check(polled(1000), &ContentAction::Keep);
    check(polled(1000 + 599), &ContentAction::Keep);
    check(polled(1000 + 607), &follow(TAG, None));
    // After a restart the time of the last poll is unknown.
    check(
        |o| {
            polled(1001)(o);
            o.state.polled = None;
        },
        &follow(TAG, None),
    );
    let mut observed = settled();
    polled(1000 + 100)(&mut observed);
    let left = plan(&observed).poll.unwrap().as_secs();
    assert!((500..=506).contains(&left), "{left}");
}

#[test]
fn a_tag_is_looked_at_when_an_annotation_changes() {
    let asked = |now: Option<&str>, then: Option<&str>| {
        let (now, then) = (now.map(str::to_owned), then.map(str::to_owned));
        move |o: &mut Observed| {
            change(o, |c| {
                c.metadata.annotations = now.clone().map(|value| [(user::POLL.to_owned(), value)].into());
            });
            o.state.asked = then;
        }
    };
    check(asked(Some("1"), None), &follow(TAG, None));
    check(asked(Some("1"), Some("1")), &ContentAction::Keep);
    check(asked(Some("2"), Some("1")), &follow(TAG, None));
    check(asked(None, Some("1")), &ContentAction::Keep);
}

#[test]
fn terminal_failures_wait_for_another_spec() {
    let blocked = |generation| {
        move |o: &mut Observed| {
            progress(o, reason::BLOCKED, 3);
            o.state.blocked = Some(BlockedGeneration {
                generation,
                reference: TAG.to_owned(),
            });
        }
    };
    check(blocked(3), &ContentAction::Keep);
    check(blocked(2), &follow(TAG, None));
}

#[test]
fn a_follower_copies_the_content_of_the_leader() {
    let follow = |then: fn(&mut Observed)| {
        move |o: &mut Observed| {
            o.role = Role::Follower;
            then(o);
        }
    };
    let copy = |requested: &str| ContentAction::Restore(claimed(requested));
    check(follow(|o| o.stored = None), &copy(TAG));
    check(
        follow(|o| o.stored.as_mut().unwrap().resolved = TWO.to_owned()),
        &copy(TAG),
    );
    // The leader has not processed this spec yet, so the meaning of its reference is unknown.
    check(
        follow(|o| {
            o.stored = None;
            change(o, |c| c.metadata.generation = Some(4));
        }),
        &copy(""),
    );
    // Content that the leader serves and this replica cannot serve is not fetched repeatedly.
    check(
        follow(|o| {
            o.stored = None;
            o.state.refused = Some(RefusedContent {
                resolved: ONE.to_owned(),
                message: String::new(),
            });
        }),
        &ContentAction::Keep,
    );
    check(follow(|o| change(o, |c| c.status = None)), &ContentAction::Keep);
    check(
        follow(|o| change(o, |c| c.metadata.labels = None)),
        &ContentAction::Keep,
    );
}

#[test]
fn the_label_and_the_finalizer_are_restored() {
    let check = |then: fn(&mut ClusterCatalog), expected: Option<(bool, bool)>| {
        let mut observed = settled();
        change(&mut observed, then);
        let expected = expected.map(|(set_label, add_finalizer)| Metadata {
            set_label,
            add_finalizer,
        });
        assert_eq!(plan(&observed).metadata, expected);
    };
    check(|_| {}, None);
    check(|c| c.metadata.labels = None, Some((true, false)));
    check(
        |c| c.metadata.labels = Some([(label::METADATA_NAME.to_owned(), "x".to_owned())].into()),
        Some((true, false)),
    );
    check(|c| c.metadata.finalizers = None, Some((false, true)));
    check(
        |c| {
            c.spec.availability_mode = AvailabilityMode::Unavailable;
            c.metadata.finalizers = None;
            c.metadata.labels = None;
        },
        Some((true, false)),
    );
}

#[test]
fn deleted_and_unavailable_catalogs_are_removed_by_every_replica() {
    let unavailable = |c: &mut ClusterCatalog| c.spec.availability_mode = AvailabilityMode::Unavailable;
    let deleted = |c: &mut ClusterCatalog| c.metadata.deletion_timestamp = Some(Time(at(0)));
    for role in [Role::Leader, Role::Follower] {
        check(
            |o| {
                o.role = role;
                change(o, unavailable);
            },
            &ContentAction::Remove(RemovalReason::Unavailable),
        );
        check(
            |o| {
                o.role = role;
                change(o, deleted);
            },
            &ContentAction::Remove(RemovalReason::Deleted),
        );
    }
    let mut observed = settled();
    change(&mut observed, deleted);
    assert!(plan(&observed).release);
    // Others' finalizers are others' business.
    change(&mut observed, |c| {
        c.metadata.finalizers = Some(vec!["other".to_owned()]);
    });
    assert_eq!(
        plan(&observed),
        Plan {
            metadata: None,
            content: ContentAction::Keep,
            release: false,
            poll: None,
            recheck: None,
            note: None,
        }
    );
}

#[test]
fn a_paused_catalog_stays_as_it_is_until_it_is_deleted() {
    let pause = |value: &'static str| {
        move |o: &mut Observed| {
            o.stored = None;
            change(o, |c| {
                c.metadata.annotations = Some([(user::PAUSED.to_owned(), value.to_owned())].into());
            });
        }
    };
    // A pause is intended; the content is not lost.
    check(pause("true"), &ContentAction::Restore(claimed(TAG)));
    check(
        |o| {
            pause("true")(o);
            o.stored = settled().stored;
            change(o, |c| image(c).reference = TWO.to_owned());
        },
        &ContentAction::Block(
            "paused by annotation olm.operatorframework.io/paused; to resume run `kubectl annotate \
             clustercatalog cat olm.operatorframework.io/paused-`"
                .to_owned(),
        ),
    );
    check(pause("false"), &follow(TAG, Some(claimed(TAG))));
    let refused = "annotation olm.operatorframework.io/paused must be \"true\" or \"false\", not \"yes\"; \
                   the served content stays unchanged until the value is corrected";
    check(pause("yes"), &ContentAction::Block(refused.to_owned()));
    check(
        |o| {
            pause("true")(o);
            change(o, |c| c.metadata.deletion_timestamp = Some(Time(at(0))));
        },
        &ContentAction::Remove(RemovalReason::Deleted),
    );
}
