use super::*;

struct Case {
    extension: ClusterExtension,
    account: AccountName,
    bundle: BundleIdentity,
    certificates: Option<CertificateProvider>,
    groups: Vec<Group>,
    adopt: CollisionProtection,
}

impl Case {
    fn new() -> Self {
        let mut extension =
            ClusterExtension::new("ext", olm_api::cluster_extension::ClusterExtensionSpec::default());
        extension.metadata.uid = Some("uid".to_owned());
        let mut bundle = BundleIdentity {
            package: "pkg".to_owned(),
            image: "reg/i".to_owned(),
            ..BundleIdentity::default()
        };
        bundle.metadata.name = "pkg.v1".to_owned();
        bundle.metadata.version = "1.0.0".to_owned();
        let groups = vec![Group {
            name: "deploy".to_owned(),
            objects: vec![json!({"a": 1})],
        }];
        Self {
            extension,
            account: "ns/acc".parse().unwrap(),
            bundle,
            certificates: None,
            groups,
            adopt: CollisionProtection::Prevent,
        }
    }

    fn plan(&self, sets: &[ClusterObjectSet]) -> RevisionPlan {
        self.plan_beside(sets, &ConflictingSets::default())
    }

    fn plan_beside(&self, sets: &[ClusterObjectSet], others: &ConflictingSets) -> RevisionPlan {
        let wanted = DesiredRevision {
            extension: &self.extension,
            account: Some(&self.account),
            bundle: &self.bundle,
            catalog: "shop",
            properties: Some("[]"),
            further_properties: None,
            certificates: self.certificates,
            operator_condition: Some("pkg.v1"),
            roles_named_after: None,
            config_digest: None,
            verified: None,
            groups: &self.groups,
            adopt: self.adopt,
            system_namespace: "system",
        };
        plan(
            &wanted,
            &Revisions::new(sets.iter().cloned().map(Arc::new).collect()),
            others,
        )
        .unwrap()
    }

    fn keeps(&self, latest: &ClusterObjectSet) {
        let plan = self.plan(std::slice::from_ref(latest));
        assert!(
            matches!(&plan, RevisionPlan::Keep { secrets } if secrets.len() == 1),
            "{plan:?}"
        );
    }

    fn patched(&self, latest: &ClusterObjectSet) -> ClusterObjectSet {
        match self.plan(std::slice::from_ref(latest)) {
            RevisionPlan::Patch { name, patch, .. } => {
                assert_eq!(name, latest.name());
                applied(latest, &patch)
            }
            other => panic!("{other:?}"),
        }
    }

    fn create(&self, sets: &[ClusterObjectSet]) -> ClusterObjectSet {
        match self.plan(sets) {
            RevisionPlan::Create(creation) => *creation.set,
            other => panic!("{other:?}"),
        }
    }
}

/// The result of a merge patch on the API server.
fn applied(set: &ClusterObjectSet, patch: &Value) -> ClusterObjectSet {
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(key);
            } else {
                merge(&mut target[key], value);
            }
        }
    }
    assert_eq!(patch["metadata"]["uid"], json!(set.metadata.uid));
    assert_eq!(
        patch["metadata"]["resourceVersion"],
        json!(set.metadata.resource_version)
    );
    let mut value = serde_json::to_value(set).unwrap();
    merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

#[test]
fn planning_on_the_result_writes_nothing() {
    let case = Case::new();
    let first = case.create(&[]);
    assert_eq!((first.name(), first.spec.revision), ("ext-1", 1));
    assert_eq!(first.annotation(annotation::SERVICE_ACCOUNT), Some("ns/acc"));
    assert_eq!(first.annotation(annotation::BUNDLE_RELEASE), None);
    case.keeps(&first);
}

#[test]
fn other_content_or_another_account_is_a_new_revision() {
    let mut case = Case::new();
    let first = case.create(&[]);
    case.groups[0].objects[0] = json!({"a": 2});
    let second = case.create(std::slice::from_ref(&first));
    assert_eq!((second.name(), second.spec.revision), ("ext-2", 2));
    case.account.name = "other".to_owned();
    let third = case.create(&[first.clone(), second.clone()]);
    assert_eq!(third.spec.revision, 3);
    case.adopt = CollisionProtection::IfNoController;
    let fourth = case.create(&[first, second, third]);
    assert_eq!(
        (fourth.spec.revision, fourth.spec.collision_protection),
        (4, CollisionProtection::IfNoController)
    );
}

#[test]
fn a_revision_from_a_helm_release_is_not_replaced_for_its_weaker_protection_alone() {
    let mut case = Case::new();
    case.adopt = CollisionProtection::IfNoController;
    let mut first = case.create(&[]);
    case.adopt = CollisionProtection::Prevent;
    assert_eq!(case.create(std::slice::from_ref(&first)).spec.revision, 2);
    let labels = first.metadata.labels.get_or_insert_default();
    labels.insert(label::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
    case.keeps(&first);
    case.adopt = CollisionProtection::None;
    assert_eq!(case.create(&[first]).spec.revision, 2);
}

#[test]
fn metadata_that_may_change_is_patched_in_place() {
    let mut case = Case::new();
    let mut first = case.create(&[]);
    first.metadata.uid = Some("u".to_owned());
    first.metadata.resource_version = Some("7".to_owned());
    case.extension.spec.progress_deadline_minutes = Some(10);
    case.extension.metadata.annotations = Some([(user::PAUSED.to_owned(), "true".to_owned())].into());
    let patched = case.patched(&first);
    assert_eq!(patched.spec.progress_deadline_minutes, Some(10));
    assert_eq!(patched.annotation(user::PAUSED), Some("true"));
    case.keeps(&patched);
    case.extension.spec.progress_deadline_minutes = None;
    case.extension.metadata.annotations = None;
    let back = case.patched(&patched);
    assert_eq!(
        (back.spec.progress_deadline_minutes, back.annotation(user::PAUSED)),
        (None, None)
    );
    case.keeps(&back);
}

#[test]
fn the_uninstall_policy_is_inherited_by_every_revision() {
    let mut case = Case::new();
    let first = case.create(&[]);
    assert_eq!(inherit(&case.extension, &first), None);
    case.extension.metadata.annotations = Some([(user::UNINSTALL.to_owned(), "orphan".to_owned())].into());
    let patch = inherit(&case.extension, &first).unwrap();
    assert_eq!(
        patch["metadata"]["annotations"],
        json!({user::UNINSTALL: "orphan"})
    );
    let patched = applied(&first, &patch);
    assert_eq!(inherit(&case.extension, &patched), None);
    case.extension.metadata.annotations = None;
    assert_eq!(
        inherit(&case.extension, &patched).unwrap()["metadata"]["annotations"],
        json!({user::UNINSTALL: null})
    );
    case.extension.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        jiff::Timestamp::UNIX_EPOCH,
    ));
    let patch = inherit(&case.extension, &first).unwrap();
    assert_eq!(
        patch["metadata"]["annotations"],
        json!({annotation::UNINSTALLING: "true"})
    );
    assert_eq!(inherit(&case.extension, &applied(&first, &patch)), None);
}

#[test]
fn a_restored_or_orphaned_revision_is_taken_over_when_its_content_matches() {
    let case = Case::new();
    let RevisionPlan::Create(Creation { set, .. }) = case.plan(&[]) else {
        panic!()
    };
    let mut left = (*set).clone();
    left.metadata.owner_references = None;
    let others = |set: &ClusterObjectSet| ConflictingSets {
        names: [set.name().to_owned()].into(),
        highest: set.spec.revision,
        left: vec![Arc::new(set.clone())],
    };
    let RevisionPlan::Patch { name, patch, .. } = case.plan_beside(&[], &others(&left)) else {
        panic!()
    };
    assert_eq!(name, left.name());
    let taken = applied(&left, &patch);
    assert_eq!(taken.annotation(annotation::RESTORED), Some("true"));
    assert_eq!(controlling_extension(&taken.metadata), Some("uid"));
    case.keeps(&taken);
    // Another account, other content or another owner.
    let is_skipped = |change: &dyn Fn(&mut ClusterObjectSet)| {
        let mut other = left.clone();
        change(&mut other);
        matches!(
            case.plan_beside(&[], &others(&other)),
            RevisionPlan::Create(Creation { set, .. }) if set.name() == "ext-2"
        )
    };
    assert!(is_skipped(&|set| {
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::SERVICE_ACCOUNT.to_owned(), "ns/other".to_owned());
    }));
    assert!(is_skipped(&|set| set.spec.phases.clear()));
    assert!(is_skipped(
        &|set| set.spec.lifecycle_state = LifecycleState::Archived
    ));
}

#[test]
fn a_name_that_something_else_has_and_numbers_left_behind_are_passed_over() {
    let case = Case::new();
    let mut others = ConflictingSets::default();
    others.names.extend(["ext-1", "ext-2"].map(str::to_owned));
    let number = |others: &ConflictingSets, sets: &[ClusterObjectSet]| match case.plan_beside(sets, others) {
        RevisionPlan::Create(Creation { set, .. }) => (set.name().to_owned(), set.spec.revision),
        other => panic!("{other:?}"),
    };
    assert_eq!(number(&others, &[]), ("ext-3".to_owned(), 3));
    others.highest = 7;
    assert_eq!(number(&others, &[]), ("ext-8".to_owned(), 8));
    others.highest = i64::MAX;
    assert_eq!(number(&others, &[]).1, i64::MAX);
}

#[test]
fn a_revision_is_recognised_that_an_interrupted_run_made() {
    let mut case = Case::new();
    let first = case.create(&[]);
    assert!(is_same_revision(&first, &first));
    let mut named = first.clone();
    let annotations = named.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::SERVICE_ACCOUNT.to_owned(), "n/later".to_owned());
    assert!(!is_same_revision(&named, &first));
    let mut migrated = first.clone();
    let labels = migrated.metadata.labels.get_or_insert_default();
    labels.insert(label::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
    assert!(is_same_revision(&named, &migrated));
    let mut foreign = first.clone();
    foreign.metadata.owner_references = None;
    assert!(!is_same_revision(&foreign, &first));
    case.groups[0].objects[0] = json!({"a": 2});
    assert!(!is_same_revision(&case.create(&[]), &first));
}

#[test]
fn the_certificate_provider_and_the_condition_name_are_recorded_on_the_revision() {
    let mut case = Case::new();
    let first = case.create(&[]);
    assert_eq!(first.annotation(annotation::CERTIFICATE_PROVIDER), None);
    assert_eq!(first.annotation(annotation::OPERATOR_CONDITION), Some("pkg.v1"));
    case.certificates = Some(CertificateProvider::SelfSigned);
    let patched = case.patched(&first);
    assert_eq!(
        patched.annotation(annotation::CERTIFICATE_PROVIDER),
        Some("self-signed")
    );
    case.keeps(&patched);
}

#[test]
fn an_archived_or_deleted_revision_is_not_brought_back() {
    let case = Case::new();
    let mut first = case.create(&[]);
    first.spec.lifecycle_state = LifecycleState::Archived;
    assert_eq!(case.create(&[first.clone()]).spec.revision, 2);
    first.spec.lifecycle_state = LifecycleState::Active;
    first.metadata.deletion_timestamp = Some(olm_api::Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(case.create(&[first]).spec.revision, 2);
}

#[test]
fn the_newest_five_revisions_stay() {
    let case = Case::new();
    let sets: Vec<ClusterObjectSet> = (1..=8)
        .map(|number| {
            let mut set = case.create(&[]);
            set.metadata.name = Some(format!("ext-{number}"));
            set.spec.revision = number;
            set.spec.lifecycle_state = if number == 2 {
                LifecycleState::Active
            } else {
                LifecycleState::Archived
            };
            set
        })
        .collect();
    let RevisionPlan::Create(Creation { set, remove, .. }) = case.plan(&sets) else {
        panic!()
    };
    assert_eq!(set.spec.revision, 9);
    let names: Vec<&str> = remove.iter().map(|set| set.name()).collect();
    assert_eq!(names, ["ext-1", "ext-3"]);
}

#[test]
fn a_name_that_does_not_fit_a_label_is_refused() {
    let mut case = Case::new();
    case.extension.metadata.name = Some("x".repeat(62));
    let wanted = DesiredRevision {
        extension: &case.extension,
        account: Some(&case.account),
        bundle: &case.bundle,
        catalog: "shop",
        properties: None,
        further_properties: None,
        certificates: None,
        operator_condition: None,
        roles_named_after: None,
        config_digest: None,
        verified: None,
        groups: &[],
        adopt: CollisionProtection::Prevent,
        system_namespace: "system",
    };
    assert!(matches!(
        plan(&wanted, &Revisions::default(), &ConflictingSets::default()),
        Err(PlanError::Name(_))
    ));
}
