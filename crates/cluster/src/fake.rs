//! A fake API server with the answers of a test.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{Client, client::Body};
use serde_json::Value;

/// A status code and a body: a string as it is, any other value as JSON.
pub type Reply = (u16, Value);

/// `METHOD PATH` of each request.
pub type Log = Arc<Mutex<Vec<String>>>;

/// A client of a server that answers by method and path, each time after a moment.
pub fn client(answer: impl Fn(&str, &str) -> Reply + Send + 'static) -> (Client, Log) {
    let log = Log::default();
    let asked = Arc::clone(&log);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (method, path) = (request.method().as_str(), request.uri().path());
        let request = format!("{method} {path}");
        asked.lock().unwrap_or_else(PoisonError::into_inner).push(request);
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
