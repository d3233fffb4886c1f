//! From a ClusterExtension to its Subscription again.

use kube::Client;
use olm_api::ClusterExtension;
use olm_api::names::migration;
use olm_migrate::back::{Return, go, in_groups, prepare};
use olm_migrate::facts::{ClassicObjects, restore};

use super::requests::Requests;
use super::say::failure;
use super::{Mover, Turn};

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
                            .max(self.said_back(extension, &message).await);
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
                        "an operator is with OLM classic again"
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
            "the return of a ClusterExtension has stopped; will try again"
        );
        if turn == Turn::Failed {
            return turn.max(self.said_back(extension, &message).await);
        }
        turn
    }

    async fn said_back(&self, extension: &ClusterExtension, message: &str) -> Turn {
        match self.say_back(extension, message).await {
            Ok(()) => Turn::Done,
            Err(failure) => {
                tracing::warn!(
                    extension = extension.name(),
                    error = failure.message,
                    "cannot write a ClusterExtension; will try again"
                );
                Turn::Failed
            }
        }
    }
}
