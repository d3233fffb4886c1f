//! The state of moves, and the clients that they use.

use std::sync::Arc;

use anyhow::anyhow;
use jiff::Timestamp;
use kube::Client;
use olm_classic::names::FIELD_MANAGER;
use olm_migrate::check::{Choices, Request};
use olm_migrate::context::{MoveContext, OnStep};
use olm_migrate::facts::ClassicObjects;

use super::requests;
use crate::base::Base;
use crate::objects::account::account;
use crate::objects::write::Actor;

/// Carries out the moves that annotations request.
pub struct Mover {
    /// The shared state of the program.
    pub(super) base: Arc<Base>,
    /// The namespace of the managers of OLM v1.
    system_namespace: String,
}

impl Mover {
    /// Nothing is moved yet.
    pub fn new(base: Arc<Base>, system_namespace: String) -> Arc<Self> {
        Arc::new(Self {
            base,
            system_namespace,
        })
    }

    /// The facts that the program follows, as of now.
    pub(super) fn facts(&self) -> ClassicObjects {
        requests::facts(&self.base.store.snapshot(), Timestamp::now())
    }

    /// The account that OLM classic uses for the content of a namespace.
    fn account(&self, namespace: &str) -> anyhow::Result<Actor> {
        let cluster = self.base.store.snapshot();
        Ok(account(&cluster, namespace, self.base.account.as_ref())?)
    }

    /// The choices for a Subscription. The account is the one that OLM classic uses: no annotation names another.
    pub(super) fn choices(&self, namespace: &str, together: &[String]) -> Choices {
        let account = match self.account(namespace) {
            Ok(Actor::Account(account)) if account.namespace == namespace => Some(account.name),
            _ => None,
        };
        Choices {
            request: Request::Annotation,
            account,
            together: together.iter().cloned().collect(),
            ..Choices::default()
        }
    }

    /// What a move in a namespace acts with: the program's rights on kinds of OLM, and that account's on the objects of
    /// the operator.
    pub(super) async fn move_context<'a>(
        &'a self,
        namespace: &str,
        on_step: OnStep<'a>,
    ) -> anyhow::Result<MoveContext<'a>> {
        let actor = self.account(namespace)?;
        let content = self.base.writer.client(&actor).await;
        let content = content.map_err(|failure| anyhow!(failure.message))?;
        Ok(self.move_context_with(content, on_step))
    }

    /// The same with this client for the objects of the operator.
    pub(super) fn move_context_with<'a>(&'a self, content: Client, on_step: OnStep<'a>) -> MoveContext<'a> {
        MoveContext {
            own: self.base.writer.own().clone(),
            content,
            manager: FIELD_MANAGER,
            system_namespace: &self.system_namespace,
            request: Request::Annotation,
            on_step,
        }
    }
}
