//! The record of a completed request.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Response, StatusCode, Uri, Version};
use http_body::{Frame, SizeHint};

use super::App;
use crate::body::Body;

/// One request and its answer.
#[derive(Debug)]
pub struct Access {
    /// The client's address, when known.
    pub peer: Option<SocketAddr>,
    /// The method.
    pub method: Method,
    /// The URI.
    pub uri: Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The endpoint: `all`, `metas` or `other`.
    pub endpoint: &'static str,
    /// The status of the response.
    pub status: StatusCode,
    /// The bytes of the body that the client read; fewer than announced if the client disconnected.
    pub bytes: u64,
    /// The time from the request's head to the end of the response.
    pub elapsed: Duration,
    began: Instant,
}

/// Hears of every request when its answer has ended.
pub trait Observer: Send + Sync {
    /// The answer has ended or was broken off.
    fn observe(&self, access: &Access);
}

impl<F: Fn(&Access) + Send + Sync> Observer for F {
    fn observe(&self, access: &Access) {
        self(access);
    }
}

impl Access {
    pub(super) fn begin(
        request: &http::request::Parts,
        endpoint: &'static str,
        peer: Option<SocketAddr>,
    ) -> Self {
        Self {
            peer,
            method: request.method.clone(),
            uri: request.uri.clone(),
            version: request.version,
            endpoint,
            status: StatusCode::OK,
            bytes: 0,
            elapsed: Duration::ZERO,
            began: Instant::now(),
        }
    }

    pub(super) fn watch(mut self, response: Response<Body>, app: Arc<App>) -> Response<ObservedBody> {
        self.status = response.status();
        response.map(|body| ObservedBody {
            body,
            access: self,
            app,
        })
    }
}

/// A body that reports its end.
pub struct ObservedBody {
    body: Body,
    access: Access,
    app: Arc<App>,
}

impl http_body::Body for ObservedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.access.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        self.access.elapsed = self.access.began.elapsed();
        if let Some(observer) = &self.app.observer {
            observer.observe(&self.access);
        }
        let Access {
            peer,
            method,
            uri,
            version,
            status,
            bytes,
            elapsed,
            ..
        } = &self.access;
        let peer = peer.map(tracing::field::display);
        if status.is_server_error() {
            tracing::error!(target: "access", peer, %method, %uri, ?version, status = status.as_u16(), bytes, ?elapsed);
        } else if status.is_client_error() {
            tracing::debug!(target: "access", peer, %method, %uri, ?version, status = status.as_u16(), bytes, ?elapsed);
        } else {
            tracing::info!(target: "access", peer, %method, %uri, ?version, status = status.as_u16(), bytes, ?elapsed);
        }
    }
}
