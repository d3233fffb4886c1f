//! Watches the service accounts of sets: the status reports a deleted account at once, not only at the next write, and
//! a new one is used at once.

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
use olm_cluster::{identity::AccountName, watch::code};

use crate::object_set::{acting, conclusion::RESYNC, context::Context};

/// Never returns. If the controller may not watch service accounts, it retries from time to time, and the status
/// reports a missing account at the next write.
pub(in crate::object_set) async fn follow(context: &Context) {
    loop {
        watch(context).await;
        tokio::time::sleep(RESYNC).await;
    }
}

/// Watches service accounts and keeps only their names. Returns when the watch is refused.
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
                for (account, sets) in sets_by_account(context) {
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
                // Most changes of accounts do not matter here.
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

/// The sets of each account.
fn sets_by_account(context: &Context) -> BTreeMap<AccountName, Vec<String>> {
    let mut found: BTreeMap<AccountName, Vec<String>> = BTreeMap::new();
    for set in context.sets.state() {
        if let Ok(account) = acting::account(context, &set) {
            found.entry(account).or_default().push(set.name().to_owned());
        }
    }
    found
}

/// Drops accounts that no set names any more.
pub(in crate::object_set) fn forget_unused(context: &Context) {
    let used = sets_by_account(context);
    let is_used = |account: &AccountName| {
        used.contains_key(account) || context.options.default_account.as_ref() == Some(account)
    };
    context.accounts.retain(is_used);
    context.reviews.retain(is_used);
}

fn sets_of(context: &Context, account: &AccountName) -> Vec<String> {
    let mut all: BTreeMap<AccountName, Vec<String>> = sets_by_account(context);
    all.remove(account).unwrap_or_default()
}

fn name(account: &PartialObjectMeta<ServiceAccount>) -> AccountName {
    AccountName {
        namespace: account.namespace().unwrap_or_default(),
        name: account.name_any(),
    }
}
