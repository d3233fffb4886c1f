//! From a ClusterExtension to its Subscription again.

use kube::Client;
use olm_api::ClusterExtension;
use olm_api::names::migration;
use olm_migrate::back::{Return, Withdrawal, go, in_groups, prepare, withdraw};
use olm_migrate::facts::{ClassicObjects, restore};
use serde_json::{Value, json};

use super::requests::{Requests, invalid, is_returning};
use super::say::{BackState, failure};
use super::{Mover, Turn, withdrawn};
use crate::objects::write::Actor;

impl Mover {
    /// Returns the requested operators to OLM classic as far as they can.
    pub(super) async fn back(&self, requests: &Requests) -> Turn {
        if requests.back.is_empty() {
            return Turn::Done;
        }
        let mut facts = self.facts();
        restore(&mut facts);
        let mut turn = Turn::Done;
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
                        turn = turn
                            .max(Turn::Waits)
                            .max(self.said_back(extension, BackState::Blocked, &message).await);
                    }
                    Err(error) => {
                        held.push(key.clone());
                        turn = turn.max(self.failed_back(extension, &error).await);
                    }
                }
            }
            if held.is_empty() || rounds == 0 {
                // An error stops those that need each other, and no others.
                for group in in_groups(free) {
                    turn = turn.max(self.give_back(&returning, group).await);
                }
                return turn;
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
        let tell = |_: &str| {};
        let hands = self.hands(place, &tell).await?;
        prepare(&hands, facts, key, together).await
    }

    /// Returns operators that need each other.
    async fn give_back(&self, requested: &[(String, &ClusterExtension)], group: Vec<Return>) -> Turn {
        let keys: Vec<String> = group.iter().map(|found| found.record.key()).collect();
        let Some(first) = keys.first() else {
            return Turn::Done;
        };
        let tell = self.steps(first);
        // Each return acts on objects with the client that it was prepared with.
        let content: Client = self.base.writer.own().clone();
        let hands = self.hands_of(content, &tell);
        let extensions = requested.iter().filter(|(key, _)| keys.contains(key));
        match go(&hands, group).await {
            Ok(()) => {
                for (key, extension) in extensions {
                    tracing::info!(
                        key,
                        extension = extension.name(),
                        "an operator returned to OLM classic"
                    );
                }
                Turn::Done
            }
            Err(error) => {
                let mut turn = Turn::of(&error);
                for (_, extension) in extensions {
                    turn = turn.max(self.failed_back(extension, &error).await);
                }
                turn
            }
        }
    }

    async fn failed_back(&self, extension: &ClusterExtension, error: &anyhow::Error) -> Turn {
        let (turn, message) = (Turn::of(error), failure(error));
        tracing::warn!(
            extension = extension.name(),
            error = message,
            "the return of a ClusterExtension has stopped; retrying"
        );
        if turn == Turn::Failed {
            return turn.max(self.said_back(extension, BackState::Blocked, &message).await);
        }
        turn
    }

    /// Ends the return of a ClusterExtension without a request as far as it can be ended, and reports what remains or
    /// an invalid request.
    pub(super) async fn without_request(&self, object: &Value) -> Turn {
        let Ok(extension) = serde_json::from_value::<ClusterExtension>(object.clone()) else {
            return Turn::Done;
        };
        let withdrawal = if is_returning(object) {
            let key = extension.annotation(migration::SUBSCRIPTION).unwrap_or_default();
            let tell = self.steps(key);
            let hands = self.hands_of(self.base.writer.own().clone(), &tell);
            withdraw(&hands, &extension).await
        } else {
            Ok(Withdrawal::Idle)
        };
        let message = match withdrawal {
            Err(error) => return self.failed_back(&extension, &error).await,
            Ok(Withdrawal::Stopped(message)) => {
                return self.said_back(&extension, BackState::Stopped, &message).await;
            }
            Ok(Withdrawal::Resumed) => {
                self.tell(
                    object,
                    false,
                    "MigrationBackWithdrawn",
                    "the request of the return was withdrawn before anything had gone back",
                );
                return Turn::Done;
            }
            Ok(Withdrawal::Idle) => invalid(object),
        };
        if let Some(message) = message {
            return self.said_back(&extension, BackState::Invalid, &message).await;
        }
        if extension.annotation(migration::MIGRATE_BACK_STATUS).is_none() {
            return Turn::Done;
        }
        let patch = json!({"metadata": {
            "uid": extension.metadata.uid, "annotations": {migration::MIGRATE_BACK_STATUS: null},
        }});
        let written = self.base.writer.merge(&Actor::Own, object, &patch).await;
        withdrawn(object, written.map(drop))
    }

    async fn said_back(&self, extension: &ClusterExtension, state: BackState, message: &str) -> Turn {
        match self.say_back(extension, state, message).await {
            Ok(()) => Turn::Done,
            Err(failure) => {
                tracing::warn!(
                    extension = extension.name(),
                    error = failure.message,
                    "cannot write a ClusterExtension; retrying"
                );
                Turn::Failed
            }
        }
    }
}
