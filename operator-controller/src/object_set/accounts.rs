//! Follows the service accounts that sets are worked on as, so that one that goes is told at once and not only when
//! something has to be written, and one that comes is used at once.

use std::collections::{BTreeMap, HashSet};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};

use super::{controller::Context, reconcile::RESYNC};
use olm_cluster::{identity::AccountName, watch::code};

/// Never returns. Where the controller may not watch service accounts it is asked again now and then, and their going is
/// told when something has to be written.
pub(super) async fn follow(context: &Context) {
    loop {
        watch(context).await;
        tokio::time::sleep(RESYNC).await;
    }
}

/// Returns when the watch is refused. Nothing is kept of accounts but, while they are listed, their names.
async fn watch(context: &Context) {
    let api: Api<PartialObjectMeta<ServiceAccount>> = Api::all(context.own.clone());
    let events = watcher(api, watcher::Config::default()).default_backoff();
    pin_mut!(events);
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(account)) => {
                listed.insert(name(&account));
            }
            Ok(Event::InitDone) => {
                let listed = std::mem::take(&mut listed);
                for (account, sets) in context.sets_by_account() {
                    if !listed.contains(&account) {
                        context.accounts.forget_token(&account).await;
                        context.wake(sets);
                    }
                }
            }
            Ok(Event::Delete(account)) => {
                let account = name(&account);
                context.accounts.forget_token(&account).await;
                context.wake(sets_of(context, &account));
            }
            Ok(Event::Apply(account)) => {
                let account = name(&account);
                // Most changes of an account are none of our business.
                if context.accounts.forget_failure(&account).await {
                    context.wake(sets_of(context, &account));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the watch of service accounts is interrupted");
                if code(&error) == Some(403) {
                    return;
                }
            }
        }
    }
}

fn sets_of(context: &Context, account: &AccountName) -> Vec<String> {
    let mut all: BTreeMap<AccountName, Vec<String>> = context.sets_by_account();
    all.remove(account).unwrap_or_default()
}

fn name(account: &PartialObjectMeta<ServiceAccount>) -> AccountName {
    AccountName {
        namespace: account.namespace().unwrap_or_default(),
        name: account.name_any(),
    }
}
