//! Watches that end, expire or are late.

use std::pin::Pin;

use futures::{Stream, StreamExt as _, stream};
use hyper::body::Bytes;

use super::plan::Watches;

/// The reason why a stream broke.
pub(super) type Broken = Box<dyn std::error::Error + Send + Sync>;
/// The bytes of an answer as they arrive.
pub(super) type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, Broken>> + Send>>;

/// The event that the API server sends when it no longer has the history that a watch wants.
const EXPIRED: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"too old resource version: injected","reason":"Expired","code":410}}"#,
    "\n"
);

/// Applies the planned fault to a watch, whose lines are events.
pub(super) fn disturb(chunks: Chunks, watches: Watches) -> Chunks {
    match watches {
        Watches::Close(count) => Box::pin(first(chunks, count)),
        Watches::Expire(count) => {
            let end = stream::iter([Ok(Bytes::from_static(EXPIRED.as_bytes()))]);
            Box::pin(first(chunks, count).chain(end))
        }
        Watches::Late(time) => Box::pin(chunks.then(move |chunk| async move {
            tokio::time::sleep(time).await;
            chunk
        })),
    }
}

/// The first `count` lines of a stream, or all of them when it ends before.
fn first(chunks: Chunks, count: usize) -> impl Stream<Item = Result<Bytes, Broken>> + Send {
    stream::unfold((chunks, count), |(mut chunks, left)| async move {
        if left == 0 {
            return None;
        }
        let chunk = match chunks.next().await? {
            Ok(chunk) => chunk,
            error => return Some((error, (chunks, left))),
        };
        let ends: Vec<usize> = chunk
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(index, _)| index + 1)
            .collect();
        let last = left.checked_sub(1).and_then(|index| ends.get(index));
        Some(match last {
            Some(&end) => (Ok(chunk.slice(..end)), (chunks, 0)),
            None => (Ok(chunk), (chunks, left - ends.len())),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seen(watches: Watches) -> String {
        let chunks = ["one\nt", "wo\nthree\n", "four\n"].map(|text| Ok(Bytes::from(text)));
        let disturbed = disturb(Box::pin(stream::iter(chunks)), watches);
        let parts: Vec<Result<Bytes, Broken>> = disturbed.collect().await;
        let parts: Vec<u8> = parts.into_iter().flat_map(Result::unwrap).collect();
        String::from_utf8(parts).unwrap()
    }

    #[tokio::test]
    async fn a_watch_ends_after_whole_events() {
        assert_eq!(seen(Watches::Close(1)).await, "one\n");
        assert_eq!(seen(Watches::Close(2)).await, "one\ntwo\n");
        assert_eq!(seen(Watches::Close(9)).await, "one\ntwo\nthree\nfour\n");
        assert_eq!(
            seen(Watches::Expire(3)).await,
            format!("one\ntwo\nthree\n{EXPIRED}")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_watch_loses_nothing() {
        let late = Watches::Late(std::time::Duration::from_secs(1));
        assert_eq!(seen(late).await, "one\ntwo\nthree\nfour\n");
    }
}
