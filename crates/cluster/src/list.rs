//! Custom resources of all namespaces in pages of bounded size.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::AsyncReadExt as _;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde::Deserialize;
use serde_json::Value;

use crate::apply::classify;
use crate::identity::is_name;

/// The largest page that is read, in bytes.
const MAX_PAGE: u64 = 8 << 20;
/// The objects of a page; fewer if they are large.
const PAGE: u32 = 100;

/// A resource in one version.
#[derive(Debug, Clone, Copy)]
pub struct Collection<'a> {
    /// The group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The resource's name, `greetings`.
    pub plural: &'a str,
}

/// The part of objects to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The metadata.
    Metadata,
    /// The complete objects.
    Whole,
}

/// The most that may be read.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Objects.
    pub objects: usize,
    /// Bytes.
    pub bytes: u64,
    /// The end of the time.
    pub until: Instant,
}

/// The reason why a list ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// There are no more objects.
    Complete,
    /// The budget was used up: that for the time, the number of objects or the size of the objects.
    Spent(&'static str),
    /// The server did not answer.
    Failed(RequestFailure),
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    /// Null for a list of metadata without entries.
    items: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
    #[serde(default)]
    remaining_item_count: u64,
}

impl Collection<'_> {
    /// The path of the objects of all namespaces.
    fn path(&self) -> String {
        format!("/apis/{}/{}/{}", self.group, self.version, self.plural)
    }

    /// The path of one object.
    pub fn object_path(&self, namespace: &str, name: &str) -> String {
        let Self {
            group,
            version,
            plural,
        } = self;
        if namespace.is_empty() {
            format!("/apis/{group}/{version}/{plural}/{name}")
        } else {
            format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}")
        }
    }

    /// The number of objects in all namespaces.
    ///
    /// # Errors
    /// The server did not report it.
    pub async fn count(&self, client: &Client) -> Result<u64, RequestFailure> {
        let (page, _) = self
            .page(client, Detail::Metadata, 1, "")
            .await
            .map_err(PageError::failure)?;
        let here = page.items.map_or(0, |items| items.len());
        Ok(here as u64 + page.metadata.remaining_item_count)
    }

    /// The objects, page by page as far as the budget goes.
    pub fn read<'a>(&'a self, client: &'a Client, part: Detail, budget: Budget) -> Pages<'a> {
        Pages {
            collection: self,
            client,
            part,
            budget,
            size: PAGE,
            next: Some(String::new()),
        }
    }

    async fn page(
        &self,
        client: &Client,
        part: Detail,
        limit: u32,
        next: &str,
    ) -> Result<(Page, u64), PageError> {
        /// The timeout of one page.
        const TIMEOUT: Duration = Duration::from_secs(30);
        if ![self.group, self.version, self.plural].into_iter().all(is_name) {
            return Err(PageError::transient("not a resource".to_owned()));
        }
        let mut parameters = ListParams::default().limit(limit);
        if !next.is_empty() {
            parameters = parameters.continue_token(next);
        }
        let request = Request::new(self.path());
        let request = match part {
            Detail::Metadata => request.list_metadata(&parameters),
            Detail::Whole => request.list(&parameters),
        };
        let request = request.map_err(|error| PageError::transient(error.to_string()))?;
        let read = async {
            let answer = client.request_stream(request).await;
            let answer = answer.map_err(|error| PageError::Failed(classify(&error)))?;
            let mut bytes = Vec::new();
            let length = pin!(answer).take(MAX_PAGE + 1).read_to_end(&mut bytes).await;
            length.map_err(|error| PageError::transient(error.to_string()))?;
            Ok(bytes)
        };
        let bytes = tokio::time::timeout(TIMEOUT, read).await.unwrap_or_else(|_| {
            Err(PageError::transient(format!(
                "no answer within {} s",
                TIMEOUT.as_secs()
            )))
        })?;
        let length = bytes.len() as u64;
        if length > MAX_PAGE {
            return Err(PageError::TooLarge);
        }
        let page = serde_json::from_slice(&bytes);
        page.map(|page| (page, length))
            .map_err(|error| PageError::transient(error.to_string()))
    }
}

/// Objects that are being read.
pub struct Pages<'a> {
    collection: &'a Collection<'a>,
    client: &'a Client,
    part: Detail,
    budget: Budget,
    size: u32,
    /// The token of the next page; `None` after the last one.
    next: Option<String>,
}

impl Pages<'_> {
    /// The next page, or the reason why there is none.
    ///
    /// # Errors
    /// There are no more objects, or no more may be read, or the server did not answer.
    pub async fn page(&mut self) -> Result<Vec<Value>, End> {
        loop {
            let Some(next) = &self.next else {
                return Err(End::Complete);
            };
            if Instant::now() >= self.budget.until {
                return Err(End::Spent("time"));
            }
            if self.budget.objects == 0 {
                return Err(End::Spent("number of objects"));
            }
            if self.budget.bytes == 0 {
                return Err(End::Spent("size of the objects"));
            }
            let limit = self
                .size
                .min(u32::try_from(self.budget.objects).unwrap_or(self.size));
            let answer = self.collection.page(self.client, self.part, limit, next).await;
            let (page, length) = match answer {
                Ok(page) => page,
                Err(PageError::TooLarge) if self.size > 1 => {
                    self.size = (self.size / 10).max(1);
                    continue;
                }
                Err(PageError::TooLarge) => return Err(End::Spent("size of the objects")),
                Err(PageError::Failed(failure)) => return Err(End::Failed(failure)),
            };
            let items = page.items.unwrap_or_default();
            self.budget.objects = self.budget.objects.saturating_sub(items.len());
            self.budget.bytes = self.budget.bytes.saturating_sub(length);
            self.next = Some(page.metadata.next).filter(|next| !next.is_empty());
            return Ok(items);
        }
    }
}

enum PageError {
    TooLarge,
    Failed(RequestFailure),
}

impl PageError {
    fn transient(message: String) -> Self {
        Self::Failed(RequestFailure::new(FailureKind::Transient, message))
    }

    fn failure(self) -> RequestFailure {
        match self {
            Self::Failed(failure) => failure,
            Self::TooLarge => RequestFailure::new(
                FailureKind::Transient,
                format!("an answer of more than {MAX_PAGE} bytes"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake;

    const GREETINGS: Collection<'_> = Collection {
        group: "x.io",
        version: "v1",
        plural: "greetings",
    };

    async fn read(answer: (u16, Value), objects: usize) -> (usize, End) {
        let (client, _) = fake::client(move |_, _| answer.clone());
        let budget = Budget {
            objects,
            bytes: 1 << 20,
            until: Instant::now() + Duration::from_mins(1),
        };
        let mut pages = GREETINGS.read(&client, Detail::Whole, budget);
        let mut seen = 0;
        loop {
            match pages.page().await {
                Ok(page) => seen += page.len(),
                Err(end) => return (seen, end),
            }
        }
    }

    #[tokio::test]
    async fn objects_are_read_page_by_page_as_far_as_the_budget_goes() {
        let page =
            |next: &str| json!({"metadata": {"continue": next, "remainingItemCount": 5}, "items": [{}, {}]});
        assert_eq!(read((200, page("")), 10).await, (2, End::Complete));
        // The same page is returned again and again.
        assert_eq!(
            read((200, page("x")), 5).await,
            (6, End::Spent("number of objects"))
        );
        let refused = json!({"kind": "Status", "status": "Failure", "code": 403, "message": "no", "reason": "Forbidden"});
        let (seen, end) = read((403, refused), 5).await;
        assert_eq!(seen, 0);
        assert!(matches!(end, End::Failed(RequestFailure { message, .. }) if message == "no"));
        let large = Value::String("x".repeat(usize::try_from(MAX_PAGE).unwrap() + 1));
        assert_eq!(
            read((200, large), 5).await,
            (0, End::Spent("size of the objects"))
        );
        assert_eq!(
            read((200, json!({"metadata": {}, "items": null})), 5).await,
            (0, End::Complete)
        );
        let (client, asked) = fake::client(move |_, _| (200, page("x")));
        assert_eq!(GREETINGS.count(&client).await.unwrap(), 7);
        assert_eq!(*asked.lock().unwrap(), ["GET /apis/x.io/v1/greetings"]);
    }
}
