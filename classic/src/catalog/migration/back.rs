//! From a ClusterExtension to its Subscription again.

use kube::Client;
use olm_api::ClusterExtension;
use olm_api::names::migration;
use olm_migrate::back::{Return, Withdrawal, go, in_groups, prepare, withdraw};
use olm_migrate::facts::{ClassicObjects, restore};
use serde_json::{Value, json};

use super::report::{BackState, failure};
use super::requests::{Requests, invalid, is_returning};
use super::{Mover, PassOutcome, withdrawn};
use crate::objects::write::Actor;

impl Mover {
    /// Returns the requested operators to OLM classic as far as they can.
    pub(super) async fn back(&self, requests: &Requests) -> PassOutcome {
        if requests.back.is_empty() {
            return PassOutcome::Done;
        }
        let mut facts = self.facts();
        restore(&mut facts);
        let mut outcome = PassOutcome::Done;
        let mut returning = Vec::new();
        for extension in &facts.extensions {
            if !requests.back.contains(extension.name()) {
                continue;
            }
            if let Some(key) = extension.annotation(migration::SUBSCRIPTION) {
                returning.push((key.to_owned(), extension));
            }
        }
        // Operators that stay may hold others back.
        let mut rounds = returning.len();
        loop {
            let keys: Vec<String> = returning.iter().map(|(key, _)| key.clone()).collect();
            let (mut free, mut held) = (Vec::new(), Vec::new());
            for (key, extension) in &returning {
                match self.prepared(&facts, key, &keys).await {
                    Ok(None) => held.push(key.clone()),
                    Ok(Some(found)) if found.findings.is_empty() => free.push(found),
                    Ok(Some(found)) => {
                        held.push(key.clone());
                        let message = found.findings.join("; ");
                        outcome = outcome.max(PassOutcome::Waits).max(
                            self.try_report_return(extension, BackState::Blocked, &message)
                                .await,
                        );
                    }
                    Err(error) => {
                        held.push(key.clone());
                        outcome = outcome.max(self.failed_back(extension, &error).await);
                    }
                }
            }
            if held.is_empty() || rounds == 0 {
                // An error stops those that need each other, and no others.
                for group in in_groups(free) {
                    outcome = outcome.max(self.give_back(&returning, group).await);
                }
                return outcome;
            }
            returning.retain(|(key, _)| !held.contains(key));
            rounds -= 1;
        }
    }

    async fn prepared(
        &self,
        facts: &ClassicObjects,
        key: &str,
        together: &[String],
    ) -> anyhow::Result<Option<Return>> {
        let (place, _) = key.split_once('/').unwrap_or_default();
        let on_step = |_: &str| {};
        let move_context = self.move_context(place, &on_step).await?;
        prepare(&move_context, facts, key, together).await
    }

    /// Returns operators that need each other.
    async fn give_back(&self, requested: &[(String, &ClusterExtension)], group: Vec<Return>) -> PassOutcome {
        let keys: Vec<String> = group.iter().map(|found| found.record.key()).collect();
        let Some(first) = keys.first() else {
            return PassOutcome::Done;
        };
        let on_step = self.steps(first);
        // Each return acts on objects with the client that it was prepared with.
        let content: Client = self.base.writer.own().clone();
        let move_context = self.move_context_with(content, &on_step);
        let extensions = requested.iter().filter(|(key, _)| keys.contains(key));
        match go(&move_context, group).await {
            Ok(()) => {
                for (key, extension) in extensions {
                    tracing::info!(
                        key,
                        extension = extension.name(),
                        "an operator returned to OLM classic"
                    );
                }
                PassOutcome::Done
            }
            Err(error) => {
                let mut outcome = PassOutcome::of(&error);
                for (_, extension) in extensions {
                    outcome = outcome.max(self.failed_back(extension, &error).await);
                }
                outcome
            }
        }
    }

    async fn failed_back(&self, extension: &ClusterExtension, error: &anyhow::Error) -> PassOutcome {
        let (outcome, message) = (PassOutcome::of(error), failure(error));
        tracing::warn!(
            extension = extension.name(),
            error = message,
            "the return of a ClusterExtension has stopped; retrying"
        );
        if outcome == PassOutcome::Failed {
            return outcome.max(
                self.try_report_return(extension, BackState::Blocked, &message)
                    .await,
            );
        }
        outcome
    }

    /// Ends the return of a ClusterExtension without a request as far as it can be ended, and reports what remains or
    /// an invalid request.
    pub(super) async fn without_request(&self, object: &Value) -> PassOutcome {
        let Ok(extension) = serde_json::from_value::<ClusterExtension>(object.clone()) else {
            return PassOutcome::Done;
        };
        let withdrawal = if is_returning(object) {
            let key = extension.annotation(migration::SUBSCRIPTION).unwrap_or_default();
            let on_step = self.steps(key);
            let move_context = self.move_context_with(self.base.writer.own().clone(), &on_step);
            withdraw(&move_context, &extension).await
        } else {
            Ok(Withdrawal::Idle)
        };
        let message = match withdrawal {
            Err(error) => return self.failed_back(&extension, &error).await,
            Ok(Withdrawal::Stopped(message)) => {
                return self
                    .try_report_return(&extension, BackState::Stopped, &message)
                    .await;
            }
            Ok(Withdrawal::Resumed) => {
                self.event(
                    object,
                    false,
                    "MigrationBackWithdrawn",
                    "the request of the return was withdrawn before anything had gone back",
                );
                return PassOutcome::Done;
            }
            Ok(Withdrawal::Idle) => invalid(object),
        };
        if let Some(message) = message {
            return self
                .try_report_return(&extension, BackState::Invalid, &message)
                .await;
        }
        if extension.annotation(migration::MIGRATE_BACK_STATUS).is_none() {
            return PassOutcome::Done;
        }
        let patch = json!({"metadata": {
            "uid": extension.metadata.uid, "annotations": {migration::MIGRATE_BACK_STATUS: null},
        }});
        let written = self.base.writer.merge(&Actor::Own, object, &patch).await;
        withdrawn(object, written.map(drop))
    }

    async fn try_report_return(
        &self,
        extension: &ClusterExtension,
        state: BackState,
        message: &str,
    ) -> PassOutcome {
        match self.report_return(extension, state, message).await {
            Ok(()) => PassOutcome::Done,
            Err(failure) => {
                tracing::warn!(
                    extension = extension.name(),
                    error = failure.message,
                    "cannot write a ClusterExtension; retrying"
                );
                PassOutcome::Failed
            }
        }
    }
}
