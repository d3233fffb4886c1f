//! From a Subscription to a ClusterExtension.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};
use olm_api::names::{migration, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_classic::subscription::{MigrationState, is_paused};
use olm_migrate::assess::{self, Assessment, assess, bind};
use olm_migrate::back::release_version;
use olm_migrate::check::Finding;
use olm_migrate::facts::{Case, ClassicObjects, find, restore, successor};
use olm_migrate::needs::{groups, in_order};
use olm_migrate::{read, steps};
use serde_json::{Value, json};

use super::report::{blockers, failure};
use super::requests::Requests;
use super::{Mover, PassOutcome};

/// The plan for the requested Subscriptions.
#[derive(Default)]
struct Plan {
    /// Those without blockers.
    movable: Vec<Assessment>,
    /// Those whose objects are recorded.
    begun: BTreeMap<String, (ClusterExtension, ClusterObjectSet)>,
    /// The others, with what is said about them.
    reports: Vec<(String, MigrationState, String)>,
    /// Those that were deleted before their objects were recorded.
    deserted: Vec<(String, ClusterExtension)>,
}

impl Plan {
    /// The Subscriptions that move now.
    fn keys(&self) -> Vec<String> {
        let movable = self.movable.iter().map(Assessment::key);
        movable.chain(self.begun.keys().cloned()).collect()
    }
}

/// The state of a Subscription before it is assessed.
enum Stage<'a> {
    /// It can begin to move.
    New(Case<'a>),
    /// This ClusterExtension is on its way.
    UnderWay(&'a ClusterExtension),
    /// This ClusterExtension has the operator.
    Moved(&'a ClusterExtension),
    /// There is neither a Subscription nor a ClusterExtension.
    Gone,
}

fn stage<'a>(facts: &'a ClassicObjects, key: &'a str) -> Stage<'a> {
    let (place, name) = key.split_once('/').unwrap_or_default();
    let subscription = find(&facts.subscriptions, place, name);
    let case = subscription.map(|subscription| Case { facts, subscription });
    let Some(extension) = successor(facts, key) else {
        return case.map_or(Stage::Gone, Stage::New);
    };
    let is_marked = extension.annotation(migration::MIGRATE) == Some("true");
    let is_extension_paused = extension.annotation(user::PAUSED) == Some("true");
    let is_frozen = subscription.is_some_and(is_paused);
    match case {
        _ if is_extension_paused && (is_marked || is_frozen) => Stage::UnderWay(extension),
        Some(case) if case.version().is_some() => Stage::New(case),
        _ => Stage::Moved(extension),
    }
}

impl Mover {
    /// Moves the requested Subscriptions as far as they can.
    pub(super) async fn forward(&self, requests: &Requests) -> PassOutcome {
        let keys = &requests.forward;
        if keys.is_empty() {
            return PassOutcome::Done;
        }
        let first = match self.complete(keys).await {
            Ok(facts) => self.plan(&facts, keys).await.map(|plan| (facts, plan)),
            Err(error) => Err(error),
        };
        let (facts, plan) = match first {
            Ok(first) => first,
            Err(error) => return self.failed(keys, &error).await,
        };
        let mut outcome = self.report_all(&plan.reports).await;
        for (key, extension) in &plan.deserted {
            let on_step = self.steps(key);
            let move_context = self.move_context_with(self.base.writer.own().clone(), &on_step);
            if let Err(error) = release_version(&move_context, &facts, key, extension).await {
                outcome = outcome.max(self.failed(std::slice::from_ref(key), &error).await);
            }
        }
        let moving = plan.keys();
        if moving.is_empty() {
            return outcome;
        }
        for key in &moving {
            let said = self.report(
                key,
                MigrationState::Moving,
                "the operator moves to a ClusterExtension",
            );
            if let Err(failure) = said.await {
                return outcome.max(self.failed(&moving, &anyhow!(failure.message)).await);
            }
        }
        // What the move acts on is read from the API server.
        let fresh = read::facts(self.base.writer.own()).await.map(|mut facts| {
            restore(&mut facts);
            facts
        });
        let facts = match fresh {
            Ok(facts) => facts,
            Err(error) => return outcome.max(self.failed(&moving, &error).await),
        };
        let plan = match self.plan(&facts, &moving).await {
            Ok(plan) => plan,
            Err(error) => return outcome.max(self.failed(&moving, &error).await),
        };
        outcome = outcome.max(self.report_all(&plan.reports).await);
        for group in in_order(&facts, &plan.keys()) {
            if let Err(error) = self.move_group(&facts, &plan, &group).await {
                outcome = outcome.max(self.failed(&group, &error).await);
            }
        }
        outcome
    }

    /// The followed facts, with those that are read for these Subscriptions only.
    async fn complete(&self, keys: &[String]) -> anyhow::Result<ClassicObjects> {
        let mut facts = self.facts();
        restore(&mut facts);
        let versions: Vec<Value> = keys
            .iter()
            .filter_map(|key| {
                let (place, name) = key.split_once('/')?;
                let subscription = find(&facts.subscriptions, place, name)?;
                let case = Case {
                    facts: &facts,
                    subscription,
                };
                case.version().cloned()
            })
            .collect();
        (facts.conditions, facts.certificates) = read::details(self.base.writer.own(), &versions).await?;
        Ok(facts)
    }

    async fn plan(&self, facts: &ClassicObjects, keys: &[String]) -> anyhow::Result<Plan> {
        let mut plan = Plan::default();
        let names = assess::names(facts);
        let mut assessed = Vec::new();
        for key in keys {
            let case = match stage(facts, key) {
                Stage::New(case) => case,
                Stage::UnderWay(extension) => {
                    let set = steps::begun(self.base.writer.own(), extension).await?;
                    if let Some(set) = set {
                        plan.begun.insert(key.clone(), (extension.clone(), set));
                        continue;
                    }
                    // It has stopped before its objects were recorded.
                    let (place, name) = key.split_once('/').unwrap_or_default();
                    let Some(subscription) = find(&facts.subscriptions, place, name) else {
                        let message = format!(
                            "Subscription {key} was deleted before its objects were recorded: delete this \
                             ClusterExtension, and apply the Subscription again to move it"
                        );
                        plan.reports.push((key.clone(), MigrationState::Failed, message));
                        plan.deserted.push((key.clone(), extension.clone()));
                        continue;
                    };
                    Case { facts, subscription }
                }
                Stage::Moved(extension) => {
                    let message = format!(
                        "ClusterExtension {:?} has the operator; nothing is installed for this Subscription, and it \
                         may be deleted",
                        extension.name()
                    );
                    plan.reports.push((key.clone(), MigrationState::Moved, message));
                    continue;
                }
                Stage::Gone => continue,
            };
            let extension = match case.successor() {
                Some(extension) => extension.name(),
                None => names.get(key).map(String::as_str).unwrap_or_default(),
            };
            let mut one = assess(case, extension, &self.choices(case.namespace(), keys));
            // An error stops the move itself.
            if one.can_move()
                && let Ok(found) = self.refusals(case, &one).await
            {
                one.add(found);
            }
            assessed.push(one);
        }
        bind(&mut assessed, &groups(facts));
        for mut one in assessed {
            if one.can_move() {
                let annotations = one.extension.metadata.annotations.get_or_insert_default();
                annotations.insert(migration::MIGRATE.to_owned(), "true".to_owned());
                plan.movable.push(one);
            } else {
                let message = blockers(&one.findings);
                plan.reports.push((one.key(), MigrationState::Blocked, message));
            }
        }
        Ok(plan)
    }

    /// The findings for which the move would refuse the objects of the operator.
    async fn refusals(&self, case: Case<'_>, one: &Assessment) -> anyhow::Result<Vec<Finding>> {
        let on_step = |_: &str| {};
        let move_context = self.move_context(case.namespace(), &on_step).await?;
        steps::findings(&move_context, case, &one.extension).await
    }

    /// Moves Subscriptions whose operators need each other: all are recorded before the first one is handed over.
    async fn move_group(&self, facts: &ClassicObjects, plan: &Plan, group: &[String]) -> anyhow::Result<()> {
        let mut begun = plan.begun.clone();
        for key in group {
            let Some(one) = plan.movable.iter().find(|one| one.key() == *key) else {
                continue;
            };
            let (place, name) = key.split_once('/').unwrap_or_default();
            let Some(subscription) = find(&facts.subscriptions, place, name) else {
                bail!("Subscription {key} is gone");
            };
            let on_step = self.steps(key);
            let move_context = self.move_context(place, &on_step).await?;
            let case = Case { facts, subscription };
            let made = steps::begin(&move_context, case, &one.extension).await?;
            begun.insert(key.clone(), made);
        }
        for key in group {
            let Some((extension, set)) = begun.get(key) else {
                continue;
            };
            let (place, _) = key.split_once('/').unwrap_or_default();
            let on_step = self.steps(key);
            let move_context = self.move_context(place, &on_step).await?;
            let marked = self.mark(extension).await;
            marked.map_err(|failure| anyhow!(failure.message))?;
            steps::finish(&move_context, extension, set).await?;
            tracing::info!(key, extension = extension.name(), "a Subscription has moved");
            let message = format!("Subscription {key} has become this ClusterExtension");
            self.event(
                &super::report::about(extension),
                false,
                "MigrationMoved",
                &message,
            );
        }
        Ok(())
    }

    /// Records an event about a Subscription for each step.
    pub(super) fn steps(&self, key: &str) -> impl Fn(&str) + Send + Sync + use<'_> {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let about = json!({
            "apiVersion": olm_classic::names::CSV_API_VERSION, "kind": olm_classic::names::SUBSCRIPTION_KIND,
            "metadata": {"namespace": namespace, "name": name},
        });
        let key = key.to_owned();
        move |step: &str| {
            tracing::info!(key, step, "a step of a move");
            self.event(&about, false, "MigrationStep", step);
        }
    }

    async fn report_all(&self, said: &[(String, MigrationState, String)]) -> PassOutcome {
        let mut outcome = PassOutcome::Done;
        for (key, state, message) in said {
            if *state != MigrationState::Moved {
                outcome = outcome.max(PassOutcome::Waits);
            }
            if let Err(failure) = self.report(key, *state, message).await {
                tracing::warn!(
                    key,
                    error = failure.message,
                    "cannot write a Subscription; retrying"
                );
                outcome = outcome.max(PassOutcome::Failed);
            }
        }
        outcome
    }

    /// Says that a step has failed.
    async fn failed(&self, keys: &[String], error: &anyhow::Error) -> PassOutcome {
        let outcome = PassOutcome::of(error);
        let message = failure(error);
        tracing::warn!(?keys, error = message, "a move has stopped; retrying");
        for key in keys.iter().filter(|_| outcome == PassOutcome::Failed) {
            if let Err(failure) = self.report(key, MigrationState::Failed, &message).await {
                tracing::warn!(
                    key,
                    error = failure.message,
                    "cannot write a Subscription; retrying"
                );
            }
        }
        outcome
    }
}
