//! An API server that answers as a test says.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{Client, client::Body};
use serde_json::Value;

/// A status code and a body: text as it is, all else as JSON.
pub(crate) type Reply = (u16, Value);

/// `METHOD PATH` of each request.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// A client of a server that answers by method and path, each time after a moment.
pub(crate) fn client(answer: impl Fn(&str, &str) -> Reply + Send + 'static) -> (Client, Log) {
    let log = Log::default();
    let asked = Arc::clone(&log);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (method, path) = (request.method().as_str(), request.uri().path());
        asked.lock().unwrap().push(format!("{method} {path}"));
        let (code, body) = answer(method, path);
        let body = match body {
            Value::String(text) => text,
            other => other.to_string(),
        };
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            http::Response::builder()
                .status(code)
                .body(Body::from(body.into_bytes()))
        }
    });
    (Client::new(service, "default"), log)
}
