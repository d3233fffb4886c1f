//! ClusterExtensions by name, and their revisions.

use anyhow::Context as _;
use kube::Client;
use kube::api::{Api, ListParams};
use olm_api::cluster_extension::controlling_extension;
use olm_api::names::label;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_fbc::similar::nearest;

use super::access::NO_OLM;
use crate::hint::Hint;

/// The number of names that are compared with an unknown one.
const LISTED: u32 = 500;

/// The hint about an unknown name of an extension.
pub(crate) async fn others(extensions: &Api<ClusterExtension>, name: &str) -> Hint {
    let known = extensions
        .list_metadata(&ListParams::default().limit(LISTED))
        .await;
    Hint(match known {
        Ok(known) => {
            let names = known.items.iter().filter_map(|one| one.metadata.name.as_deref());
            match nearest(name, names) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => "`olm get` lists them".to_owned(),
            }
        }
        Err(kube::Error::Api(status)) if status.code == 404 => NO_OLM.to_owned(),
        Err(_) => "`olm get` lists those that you may see".to_owned(),
    })
}

/// The revisions that the extension controls.
pub(crate) async fn revisions(
    client: &Client,
    extension: &ClusterExtension,
) -> anyhow::Result<Vec<ClusterObjectSet>> {
    let Some(selector) = label::selector(label::OWNER_NAME, extension.name()) else {
        return Ok(Vec::new());
    };
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let labelled = ListParams::default().labels(&selector);
    let mut listed = sets
        .list(&labelled)
        .await
        .context("cannot list the revisions")?
        .items;
    let uid = extension.metadata.uid.as_deref();
    listed.retain(|set| uid.is_some() && controlling_extension(&set.metadata) == uid);
    Ok(listed)
}
