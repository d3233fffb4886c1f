//! Permission reviews of accounts.
//!
//! Rules are reviewed once per account and namespace. Where an authorizer cannot list its rules, the open accesses are
//! reviewed one by one. Answers are cached, refusals only briefly so that a granted right counts soon.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectRulesReviewStatus,
};
use kube::{Api, Client, api::PostParams};
use olm_preflight::{
    permissions::{AccountRights, Completeness, Missing, RequiredRights, Right, RightStatus},
    rules::{Access, Object, PolicyRule},
};
use parking_lot::Mutex;

use crate::identity::AccountName;

/// The most access reviews at the same time.
const QUESTIONS_AT_ONCE: usize = 8;
/// The time for which a granted right is cached.
const GRANTED: Duration = Duration::from_mins(10);
/// The time for which a refused right is cached.
const REFUSED: Duration = Duration::from_secs(10);
/// A namespace that cannot exist, in which only rules for the whole cluster apply.
const NOWHERE: &str = "*";

/// The subject of a review.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Viewer {
    /// The controller itself.
    Controller,
    /// A service account.
    Account(AccountName),
}

/// A right on objects of a kind.
pub fn right(verb: &str, group: &str, resource: &str, namespace: &str) -> Right {
    Right {
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        access: Access {
            verb: verb.to_owned(),
            object: Object::Resource {
                group: group.to_owned(),
                resource: resource.to_owned(),
                name: None,
            },
        },
    }
}

#[derive(Debug)]
struct Cached<T> {
    value: T,
    at: Instant,
}

impl<T> Cached<T> {
    fn now(value: T) -> Self {
        let at = Instant::now();
        Self { value, at }
    }
}

/// The rules of one scope.
#[derive(Debug)]
struct Rules {
    rules: Vec<PolicyRule>,
    complete: Completeness,
}

/// The scope of a review: a viewer and a namespace; `None` for the whole cluster.
type ReviewScope = (Viewer, Option<String>);

/// A cache of permission reviews.
#[derive(Debug, Default)]
pub struct Reviews {
    rules: Mutex<HashMap<ReviewScope, Cached<Arc<Rules>>>>,
    answers: Mutex<HashMap<Viewer, BTreeMap<Right, Cached<bool>>>>,
}

impl Reviews {
    /// The needed rights that the viewer, whose client is given, lacks.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn missing(
        &self,
        client: &Client,
        viewer: &Viewer,
        needs: &RequiredRights,
    ) -> Result<Missing, kube::Error> {
        let mut missing = Missing::default();
        for oldest in [GRANTED, REFUSED] {
            let mut account_rights = AccountRights::new();
            for scope in needs.scopes() {
                let rules = self.rules(client, viewer, scope, oldest).await?;
                account_rights.add_rules(scope, rules.rules.clone(), rules.complete);
            }
            let questions = needs
                .open_questions(&account_rights)
                .into_iter()
                .map(async |right| {
                    let allowed = self.answer(client, viewer, &right).await?;
                    Ok::<_, kube::Error>((right, allowed))
                });
            let mut answers = futures::stream::iter(questions).buffer_unordered(QUESTIONS_AT_ONCE);
            while let Some((right, allowed)) = answers.try_next().await? {
                account_rights.add_answer(right, allowed);
            }
            drop(answers);
            missing = needs.missing(&account_rights);
            if missing.is_empty() {
                break;
            }
        }
        Ok(missing)
    }

    /// Whether the viewer has the right.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn may(&self, client: &Client, viewer: &Viewer, right: &Right) -> Result<bool, kube::Error> {
        let scope = right.namespace.as_deref();
        for oldest in [GRANTED, REFUSED] {
            let rules = self.rules(client, viewer, scope, oldest).await?;
            let mut account_rights = AccountRights::new();
            account_rights.add_rules(scope, rules.rules.clone(), rules.complete);
            match account_rights.status(right) {
                RightStatus::Granted => return Ok(true),
                RightStatus::Unknown => return self.answer(client, viewer, right).await,
                RightStatus::Missing => {}
            }
        }
        Ok(false)
    }

    /// Forgets the reviews of an account, because the server gave another answer.
    pub fn forget(&self, account: &AccountName) {
        let viewer = Viewer::Account(account.clone());
        self.rules.lock().retain(|(known, _), _| *known != viewer);
        self.answers.lock().remove(&viewer);
    }

    /// Forgets the accounts for which `used` returns false.
    pub fn retain(&self, used: impl Fn(&AccountName) -> bool) {
        let wanted = |viewer: &Viewer| match viewer {
            Viewer::Controller => true,
            Viewer::Account(account) => used(account),
        };
        self.rules.lock().retain(|(viewer, _), _| wanted(viewer));
        self.answers.lock().retain(|viewer, _| wanted(viewer));
    }

    /// The rules of a namespace, or of the whole cluster for `None`, not older than given.
    async fn rules(
        &self,
        client: &Client,
        viewer: &Viewer,
        scope: Option<&str>,
        oldest: Duration,
    ) -> Result<Arc<Rules>, kube::Error> {
        let place = (viewer.clone(), scope.map(str::to_owned));
        let known = self
            .rules
            .lock()
            .get(&place)
            .filter(|cached| cached.at.elapsed() < oldest)
            .map(|cached| Arc::clone(&cached.value));
        if let Some(rules) = known {
            return Ok(rules);
        }
        let review = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(scope.unwrap_or(NOWHERE).to_owned()),
            },
            ..SelfSubjectRulesReview::default()
        };
        let reviews = Api::<SelfSubjectRulesReview>::all(client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let rules = Arc::new(answer.status.map_or_else(nothing, listed));
        self.rules.lock().insert(place, Cached::now(Arc::clone(&rules)));
        Ok(rules)
    }

    async fn answer(&self, client: &Client, viewer: &Viewer, right: &Right) -> Result<bool, kube::Error> {
        let known = self
            .answers
            .lock()
            .get(viewer)
            .and_then(|answers| answers.get(right))
            .filter(|cached| cached.at.elapsed() < if cached.value { GRANTED } else { REFUSED })
            .map(|cached| cached.value);
        if let Some(answer) = known {
            return Ok(answer);
        }
        let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
        let answer = reviews
            .create(&PostParams::default(), &access_review(right))
            .await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.answers
            .lock()
            .entry(viewer.clone())
            .or_default()
            .insert(right.clone(), Cached::now(allowed));
        Ok(allowed)
    }
}

fn nothing() -> Rules {
    Rules {
        rules: Vec::new(),
        complete: Completeness::Incomplete,
    }
}

fn listed(status: SubjectRulesReviewStatus) -> Rules {
    let resources = status.resource_rules.into_iter().map(|rule| PolicyRule {
        api_groups: rule.api_groups.unwrap_or_default(),
        resources: rule.resources.unwrap_or_default(),
        resource_names: rule.resource_names.unwrap_or_default(),
        verbs: rule.verbs,
        ..PolicyRule::default()
    });
    let paths = status.non_resource_rules.into_iter().map(|rule| PolicyRule {
        non_resource_urls: rule.non_resource_urls.unwrap_or_default(),
        verbs: rule.verbs,
        ..PolicyRule::default()
    });
    Rules {
        rules: resources.chain(paths).collect(),
        complete: if status.incomplete {
            Completeness::Incomplete
        } else {
            Completeness::Complete
        },
    }
}

fn access_review(right: &Right) -> SelfSubjectAccessReview {
    let verb = Some(right.access.verb.clone());
    let spec = match &right.access.object {
        Object::Path(path) => SelfSubjectAccessReviewSpec {
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.clone()),
                verb,
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        Object::Resource {
            group,
            resource,
            name,
        } => {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (resource.as_str(), None),
            };
            SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb,
                    group: Some(group.clone()),
                    resource: Some(resource.to_owned()),
                    subresource,
                    namespace: right.namespace.clone(),
                    name: name.clone(),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            }
        }
    };
    SelfSubjectAccessReview {
        spec,
        ..SelfSubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn listed_rules_are_those_for_resources_and_for_paths() {
        let status = serde_json::from_value(json!({
            "incomplete": false,
            "resourceRules": [{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}],
        }))
        .unwrap();
        let rules = listed(status);
        assert_eq!(rules.complete, Completeness::Complete);
        let mut account_rights = AccountRights::new();
        account_rights.add_rules(Some("n"), rules.rules, rules.complete);
        assert_eq!(
            account_rights.status(&right("get", "apps", "deployments", "n")),
            RightStatus::Granted
        );
        assert_eq!(
            account_rights.status(&right("list", "apps", "deployments", "n")),
            RightStatus::Missing
        );
    }

    #[test]
    fn a_question_names_the_subresource_apart() {
        let mut question = right("update", "g.io", "foos/finalizers", "");
        let attributes = access_review(&question).spec.resource_attributes.unwrap();
        assert_eq!(attributes.resource.as_deref(), Some("foos"));
        assert_eq!(attributes.subresource.as_deref(), Some("finalizers"));
        assert_eq!(attributes.namespace, None);
        question.access.object = Object::Path("/metrics".to_owned());
        let attributes = access_review(&question).spec.non_resource_attributes.unwrap();
        assert_eq!(attributes.path.as_deref(), Some("/metrics"));
    }
}
