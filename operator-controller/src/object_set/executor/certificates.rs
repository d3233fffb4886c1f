//! Objects with certificates from OLM, and those that trust them.

use std::time::Instant;

use olm_api::names::field_manager;
use olm_cluster::apply::{Commit, Target};
use olm_rollout::{
    certificates::{
        authority::{self, AuthorityObstacle},
        layout::Layout,
    },
    engine::{
        desired,
        differences::{Differences, differences},
        request::{RequestOutcome, Write},
    },
    failure::{FailureKind, RequestFailure},
    inheritance,
    outline::ObjectPosition,
    ownership::{Guard, Ownership},
};
use serde_json::Value;

use super::{Executor, goal::Goal, today};
use crate::certificates::secret;

impl Executor<'_> {
    pub(super) fn layout(&self) -> &Layout {
        static NONE: Layout = Layout::NONE;
        self.set_state
            .loaded
            .phases
            .as_ref()
            .map_or(&NONE, |phases| &phases.certificates)
    }

    /// Applies an object with its certificate or authorities.
    ///
    /// # Errors
    /// The answer, if it was not applied.
    pub(super) async fn apply(
        &self,
        target: &Target<'_>,
        position: ObjectPosition,
        object: &Value,
        write: &Write,
    ) -> Result<Value, RequestOutcome> {
        if let Some(names) = self.layout().names(position) {
            let certified = self.certify(target, position, object, names, write).await;
            return certified.map_err(RequestOutcome::Failed);
        }
        let write = self.inherited(target, position, write).await;
        let write = write.map_err(RequestOutcome::Failed)?;
        let write = self.entrusted(target, position, object, write).await;
        let write = write.map_err(RequestOutcome::Failed)?;
        let body = desired::body(object, &self.outline.owner, &write);
        match target.apply(&body, Commit::Yes).await {
            Ok(live) => {
                let authorized = self.authorize(target, position, object, live).await;
                authorized.map_err(RequestOutcome::Failed)
            }
            Err(failure) => Err(match self.obstacle(target, object, &failure).await {
                Some(_) => RequestOutcome::Blocked(failure),
                None => RequestOutcome::Failed(failure),
            }),
        }
    }

    /// Writes the object after making fields of the reference implementation ours. Otherwise they would stay for ever,
    /// even if no later version wants them.
    async fn inherited(
        &self,
        target: &Target<'_>,
        position: ObjectPosition,
        write: &Write,
    ) -> Result<Write, RequestFailure> {
        let known = self.set_state.objects.known.get(&position);
        let taken = match known.filter(|known| known.seen.ownership.inheritable) {
            Some(_) => inherit(target, &write.guard).await?,
            None => None,
        };
        let Some(live) = taken else {
            return Ok(write.clone());
        };
        let now = Ownership::of(&live, &self.outline.owner.uid);
        let ours = now
            .controller
            .as_ref()
            .filter(|controller| controller.applied_by_us);
        let demoted = write
            .demoted
            .iter()
            .filter(|other| Some(&other.uid) != ours.map(|ours| &ours.uid));
        Ok(Write {
            guard: now.guard(),
            demoted: demoted.cloned().collect(),
        })
    }

    /// Applies a Secret with due parts renewed. If its content is invalid, authorities of callers stay trusted.
    pub(super) async fn certify(
        &self,
        target: &Target<'_>,
        position: ObjectPosition,
        skeleton: &Value,
        names: &[String],
        write: &Write,
    ) -> Result<Value, RequestFailure> {
        let (live, write) = taken_from_content(target, write).await?;
        let mut older = String::new();
        if live.as_ref().and_then(secret::usable).is_none() {
            for caller in self.layout().callers(position) {
                let id = self.outline.id(caller);
                let Ok(resource) = self.resource(&id, Goal::Keep, Instant::now()).await else {
                    continue;
                };
                let at = Target {
                    client: self.client,
                    resource: &resource,
                    namespace: &id.namespace,
                    name: &id.name,
                };
                if let Some(live) = at.read().await? {
                    older.push_str(&authority::trusted_by(&live));
                }
            }
        }
        let owner = &self.outline.owner;
        let body = secret::body(skeleton, owner, &write, names, live.as_ref(), &older, today());
        let body = body
            .map_err(|error| RequestFailure::new(FailureKind::Transient, olm_platform::log::chain(&error)))?;
        target
            .apply_as(field_manager::CERTIFICATES, &body, Commit::Yes)
            .await
    }

    /// Writes the authority that an applied object must trust into it.
    pub(super) async fn authorize(
        &self,
        target: &Target<'_>,
        position: ObjectPosition,
        wanted: &Value,
        live: Value,
    ) -> Result<Value, RequestFailure> {
        match self.authority(position) {
            Some(trusted) if !authority::is_trusting(wanted, &live, &trusted) => {
                let body = authority::trusting(wanted, &live, &trusted);
                target
                    .apply_as(field_manager::CERTIFICATES, &body, Commit::Yes)
                    .await
            }
            _ => Ok(live),
        }
    }

    /// Writes the authority into an object before it is applied if its present authorities are content of an earlier
    /// revision: the apply removes those, and calls would fail until the authority is there again. Returns the write,
    /// which requires the object as it is then.
    async fn entrusted(
        &self,
        target: &Target<'_>,
        position: ObjectPosition,
        wanted: &Value,
        write: Write,
    ) -> Result<Write, RequestFailure> {
        let Some(trusted) = self.authority(position) else {
            return Ok(write);
        };
        let live = target.read().await?;
        let Some(live) = live.filter(|live| authority::is_content(wanted, live)) else {
            return Ok(write);
        };
        Ownership::of(&live, "").check(&write.guard)?;
        let body = authority::trusting(wanted, &live, &trusted);
        let live = target
            .apply_as(field_manager::CERTIFICATES, &body, Commit::Yes)
            .await?;
        Ok(Write {
            guard: Ownership::of(&live, "").guard(),
            demoted: write.demoted,
        })
    }

    /// The authorities that the object at a position must trust, if known.
    pub(super) fn authority(&self, position: ObjectPosition) -> Option<String> {
        self.set_state
            .objects
            .certificates
            .trusted(self.layout().secret_of(position)?)
    }

    /// Removes the authorities that make the server refuse the wanted object. Returns the object afterwards; `None` if
    /// there is nothing to remove.
    pub(super) async fn clear(
        &self,
        target: &Target<'_>,
        wanted: &Value,
    ) -> Result<Option<Value>, RequestFailure> {
        let live = self.ours(target).await?;
        let cleared = match live.and_then(|live| AuthorityObstacle::of(wanted, &live)) {
            Some(AuthorityObstacle::Ours(body)) => {
                target
                    .apply_as(field_manager::CERTIFICATES, &body, Commit::Yes)
                    .await
            }
            Some(AuthorityObstacle::Injected(patch)) => target.merge(&patch).await,
            None => return Ok(None),
        };
        cleared.map(Some)
    }

    /// The authorities in our object that may make the server refuse the wanted one.
    pub(super) async fn obstacle(
        &self,
        target: &Target<'_>,
        wanted: &Value,
        failure: &RequestFailure,
    ) -> Option<AuthorityObstacle> {
        if failure.kind != FailureKind::Invalid || !authority::is_caller(wanted) {
            return None;
        }
        let live = self.ours(target).await.ok()??;
        AuthorityObstacle::of(wanted, &live)
    }

    /// The live object, if it belongs to the extension.
    async fn ours(&self, target: &Target<'_>) -> Result<Option<Value>, RequestFailure> {
        let live = target.read().await?;
        Ok(live.filter(|live| {
            let owner = Ownership::of(live, &self.outline.owner.uid).owner_name;
            owner.as_deref() == Some(self.outline.owner.owner_name.as_str())
        }))
    }

    /// The differences of a live object from the wanted one with its certificate or authorities.
    pub(super) fn compare(
        &self,
        position: ObjectPosition,
        live: &Value,
    ) -> Result<Differences, RequestFailure> {
        let (wanted, owner) = (self.body(position)?, &self.outline.owner);
        if let Some(names) = self.layout().names(position) {
            let seen = secret::state(wanted, owner, names, live, today());
            if let Some(trusted) = seen.trusted {
                self.set_state
                    .objects
                    .certificates
                    .secret_seen(position, today(), trusted);
            }
            return Ok(seen.differences);
        }
        let mut found = differences(&desired::wanted(wanted, owner), live);
        if let Some(trusted) = self.authority(position) {
            self.set_state
                .objects
                .certificates
                .caller_seen(position, &trusted);
            if !authority::is_trusting(wanted, live, &trusted) {
                found.add("caBundle");
            }
        }
        Ok(found)
    }
}

/// Reads the Secret of a certificate, after the fields that an earlier revision applied as its content have become
/// fields of the certificate. Returns it with the write, which requires the Secret as it is then.
async fn taken_from_content(
    target: &Target<'_>,
    write: &Write,
) -> Result<(Option<Value>, Write), RequestFailure> {
    let Some(live) = target.read().await? else {
        return Ok((None, write.clone()));
    };
    let Some(patch) = inheritance::certified(&live) else {
        return Ok((Some(live), write.clone()));
    };
    Ownership::of(&live, "").check(&write.guard)?;
    let live = target.merge(&patch).await?;
    let write = Write {
        guard: Ownership::of(&live, "").guard(),
        demoted: write.demoted.clone(),
    };
    Ok((Some(live), write))
}

/// Makes fields ours that the reference implementation wrote by updates. Returns the object afterwards; `None` if there
/// are no such fields or no object.
async fn inherit(target: &Target<'_>, guard: &Guard) -> Result<Option<Value>, RequestFailure> {
    let Some(live) = target.read().await? else {
        return Ok(None);
    };
    Ownership::of(&live, "").check(guard)?;
    match inheritance::patch(&live) {
        Some(patch) => target.merge(&patch).await.map(Some),
        None => Ok(None),
    }
}
