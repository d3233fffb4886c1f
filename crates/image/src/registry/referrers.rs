//! The list of the manifests that refer to one, which a registry gives page by page.

use bytes::Bytes;
use oci_distribution::manifest::{ImageIndexEntry, OCI_IMAGE_INDEX_MEDIA_TYPE, OciManifest};
use olm_signature::BUNDLE;
use reqwest::header::{HeaderMap, LINK};
use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::digest::Digest;
use crate::manifest::{EMPTY_TYPE, parse_manifest};
use crate::registry::error::RegistryError;
use crate::registry::session::Session;

/// Pages beyond which a list is refused.
const MOST_PAGES: usize = 100;

/// Fetches the whole list as an index of at most `limit` bytes, with the digest of that index.
pub(crate) async fn fetch(
    session: &Session<'_>,
    digest: &Digest,
    limit: u64,
) -> Result<(Bytes, Digest), RegistryError> {
    let what = format!("list of referrers of {digest}");
    let mut url = session.url(&format!("referrers/{digest}"))?;
    let mut pages = Vec::new();
    let mut left = limit;
    loop {
        let accept = Session::accept(&[OCI_IMAGE_INDEX_MEDIA_TYPE]);
        let response = session.send(Method::GET, &url, accept, None, &what).await?;
        let next = next_page(&url, response.headers());
        let bytes = session.read(response, left, &what).await?;
        left = left.saturating_sub(bytes.len() as u64);
        pages.push(bytes);
        match next {
            Some(_) if pages.len() == MOST_PAGES => {
                return Err(session.protocol(&format!("the {what} has more than {MOST_PAGES} pages")));
            }
            Some(next) => url = next,
            None => break,
        }
    }
    let list =
        joined(pages).map_err(|error| session.protocol(&format!("the {what} is not an index: {error}")))?;
    let digest = Digest::of(&list);
    Ok((list, digest))
}

/// Whether it is an index with a manifest that may be a signature: a list may leave the type out, and cosign 2 lists the
/// type of the configuration.
pub(crate) fn lists_signatures(bytes: &[u8]) -> bool {
    let Ok(OciManifest::ImageIndex(index)) = parse_manifest(bytes) else {
        return false;
    };
    index.manifests.iter().any(may_be_signature)
}

/// Whether an entry of a list may be a signature.
pub(crate) fn may_be_signature(entry: &ImageIndexEntry) -> bool {
    matches!(
        entry.artifact_type.as_deref(),
        None | Some("" | EMPTY_TYPE | BUNDLE)
    )
}

/// Whether it is an index with manifests.
pub(crate) fn lists_some(bytes: &[u8]) -> bool {
    matches!(parse_manifest(bytes), Ok(OciManifest::ImageIndex(index)) if !index.manifests.is_empty())
}

/// The page after this one, if the header `Link` names one of the same registry.
fn next_page(page: &Url, headers: &HeaderMap) -> Option<Url> {
    let links = headers.get_all(LINK).iter();
    let mut links = links
        .filter_map(|link| link.to_str().ok())
        .flat_map(|links| links.split(','));
    let target = links.find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = parameters
            .split(';')
            .any(|parameter| matches!(parameter.trim(), "rel=next" | "rel=\"next\""));
        is_next.then_some(target)
    })?;
    let next = page.join(target).ok()?;
    (next.origin() == page.origin()).then_some(next)
}

/// One index with the manifests of all pages. A single page stays as it is.
fn joined(mut pages: Vec<Bytes>) -> Result<Bytes, serde_json::Error> {
    if pages.len() == 1
        && let Some(page) = pages.pop()
    {
        return Ok(page);
    }
    let mut manifests = Vec::new();
    for page in pages {
        let page: Value = serde_json::from_slice(&page)?;
        manifests.extend(
            page.get("manifests")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .cloned(),
        );
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": OCI_IMAGE_INDEX_MEDIA_TYPE,
        "manifests": manifests,
    });
    Ok(index.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_one_of_the_same_registry() {
        let page = Url::parse("https://registry.example/v2/a/referrers/sha256:0").expect("a URL");
        for (link, expected) in [
            (
                "</v2/a/referrers/sha256:0?n=1>; rel=\"next\"",
                Some("https://registry.example/v2/a/referrers/sha256:0?n=1"),
            ),
            (
                "<?n=0>; rel=prev, <?n=2>; rel=next",
                Some("https://registry.example/v2/a/referrers/sha256:0?n=2"),
            ),
            ("<https://other.example/v2/>; rel=next", None),
            ("<?n=2>; rel=prev", None),
            ("?n=2", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LINK, link.parse().expect("a header"));
            let next = next_page(&page, &headers);
            assert_eq!(next.as_ref().map(Url::as_str), expected, "{link}");
        }
        assert_eq!(next_page(&page, &HeaderMap::new()), None);
    }

    #[test]
    fn pages_become_one_index() {
        let page = |digest: &str| Bytes::from(json!({"manifests": [{"digest": digest}]}).to_string());
        let single = page("a");
        assert_eq!(joined(vec![single.clone()]).expect("an index"), single);
        let index = joined(vec![page("a"), page("b")]).expect("an index");
        let index: Value = serde_json::from_slice(&index).expect("JSON");
        assert_eq!(index["manifests"], json!([{"digest": "a"}, {"digest": "b"}]));
        assert!(joined(vec![page("a"), Bytes::from_static(b"<html>")]).is_err());
    }
}
