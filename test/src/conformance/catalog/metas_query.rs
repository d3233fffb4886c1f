//! `metas-query.json`: answers of the catalog server. A case stores its catalog as catalogd does and sends its request
//! through the same code that answers over the network.
//!
//! Three deviations depend on the request, so the list of deviations only names them and the rules are here:
//! `malformed_query = "refused"`, `unreadable_date = "ignored"`, `schemaless = "found by name"`; a fourth, `head =
//! "like GET"`: the answer to HEAD has the headers of GET; a fifth, `syntax_error = "own words"`: the first error
//! reports a syntax error with any text.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use olm_serve::{App, Commit, Endpoints, Findings, Origin, Store, StoreLimits, ingest};
use serde_json::Value;

use crate::conformance::Outcome;

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(answer(case)))
    {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Fail(format!("{error:#}")),
    }
}

async fn answer(case: &Value) -> anyhow::Result<Outcome> {
    let root = tempfile::tempdir()?;
    let store = Arc::new(Store::open(root.path(), StoreLimits::default())?);
    let expect = &expectation(case);
    let stored = fill(&store, case);
    let refused = expect["store_error"].as_str();
    if stored.is_err() != refused.is_some() {
        return Ok(Outcome::Fail(format!(
            "storing: expected {refused:?}, got {stored:?}"
        )));
    }
    let endpoints = Endpoints {
        metas: case["features"]["metas"] == true,
        graphql: case["features"]["graphql"] == true,
    };
    let app = Arc::new(App::new(store, endpoints));
    let mut answer = send(&app, &case["request"], None).await?;
    if expect["gzip"] == true && expect.get("body").is_none() {
        let plain = send(&app, &case["request"], Some("accept-encoding")).await?;
        let mut unzipped = Vec::new();
        flate2::read::GzDecoder::new(answer.body.as_slice()).read_to_end(&mut unzipped)?;
        answer.body = unzipped;
        return Ok(
            check_head(expect, &answer).and(|| Outcome::compare("body", &plain.text(), &answer.text()))
        );
    }
    if expect["head"] == "like GET" {
        let mut get = case["request"].clone();
        get["method"] = "GET".into();
        let mut get = send(&app, &get, None).await?;
        // The server adds the length of a whole body later than this test reads it.
        if get.status != http::StatusCode::NOT_MODIFIED.as_u16() {
            let length = http::HeaderValue::from(get.body.len());
            get.headers.entry(http::header::CONTENT_LENGTH).or_insert(length);
        }
        return Ok(Outcome::compare("status", &get.status, &answer.status)
            .and(|| Outcome::compare("headers", &get.headers, &answer.headers))
            .and(|| Outcome::compare("body", &String::new(), &answer.text()))
            .and(
                || match get.headers.contains_key(http::header::CONTENT_ENCODING) {
                    true => Outcome::Pass,
                    false => check_head(expect, &answer),
                },
            ));
    }
    let all = case["catalog_name"].as_str().unwrap_or_default();
    let all = serde_json::json!({ "method": "GET", "path": format!("/catalogs/{all}/api/v1/all") });
    let all = send(&app, &all, None).await?.text();
    Ok(check_head(expect, &answer).and(|| check_body(expect, &case["request"], &answer, &all)))
}

/// The expectation of ours, after the deviations that depend on the request.
fn expectation(case: &Value) -> Value {
    let mut expect = case["expect"].clone();
    let query = query(&case["request"]);
    let refusable = expect["status"] == 200 || expect["status"] == 304;
    if expect["malformed_query"] == "refused" && refusable && is_malformed(query) {
        expect["status"] = 400.into();
        expect["headers"] = serde_json::json!({ "Content-Type": "text/plain; charset=utf-8" });
        expect["body"] = "400 Bad Request\n".into();
    }
    if expect["unreadable_date"] == "ignored" && expect["status"] == 500 {
        let body = expect["body"].as_str().unwrap_or_default();
        let content = body.split_once('\n').map(|(_, content)| content.to_owned());
        expect["status"] = 200.into();
        expect["headers"] = serde_json::json!({ "Content-Type": "application/jsonl" });
        expect["body"] = content.unwrap_or_default().into();
    }
    expect
}

fn query(request: &Value) -> &str {
    let path = request["path"].as_str().unwrap_or_default();
    path.split_once('?').map(|(_, query)| query).unwrap_or_default()
}

/// Whether a query holds a `;` or a broken percent escape.
fn is_malformed(query: &str) -> bool {
    let escapes = query.split('%').skip(1);
    let broken = |rest: &str| rest.chars().take(2).filter(char::is_ascii_hexdigit).count() < 2;
    query.contains(';') || escapes.into_iter().any(broken)
}

fn fill(store: &Arc<Store>, case: &Value) -> anyhow::Result<()> {
    let files: BTreeMap<String, String> = serde_json::from_value(case["catalog_files"].clone())?;
    let mut paths: Vec<&str> = files.keys().map(String::as_str).collect();
    paths.sort_by(|a, b| olm_fbc::walk_order(a, b));
    let name = case["catalog_name"].as_str().unwrap_or_default();
    let mut writer = store.begin(name)?;
    let open = |path: &str| Ok(files.get(path).map(String::as_bytes).unwrap_or_default());
    ingest(&mut writer, paths.into_iter(), open, |_, _| {
        ControlFlow::Continue(())
    })?;
    let modified = case["catalog_mtime"].as_str().unwrap_or_default().parse()?;
    let commit = Commit {
        origin: Origin::default(),
        findings: Findings::default(),
        modified,
        now: modified,
    };
    writer.commit(commit)?.prepare(|| true)?;
    Ok(())
}

struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

async fn send(app: &Arc<App>, request: &Value, without: Option<&str>) -> anyhow::Result<Answer> {
    let text = |key: &str| request[key].as_str().unwrap_or_default();
    let mut builder = http::Request::builder().method(text("method")).uri(text("path"));
    for (key, value) in request["headers"].as_object().into_iter().flatten() {
        if without.is_none_or(|without| !key.eq_ignore_ascii_case(without)) {
            builder = builder.header(key, value.as_str().unwrap_or_default());
        }
    }
    let response = app.respond(builder.body(text("body").to_owned())?, None).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes().to_vec();
    Ok(Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body,
    })
}

fn check_head(expect: &Value, answer: &Answer) -> Outcome {
    let status = expect["status"].as_u64().unwrap_or_default();
    let mut outcome = Outcome::compare("status", &status, &u64::from(answer.status));
    for (key, value) in expect["headers"].as_object().into_iter().flatten() {
        outcome = outcome.and(|| {
            let actual = answer.headers.get(key).and_then(|v| v.to_str().ok());
            Outcome::compare(key, &value.as_str(), &actual)
        });
    }
    outcome
}

fn check_body(expect: &Value, request: &Value, answer: &Answer, all: &str) -> Outcome {
    if expect["syntax_error"] == "own words" {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let message = body["errors"][0]["message"].as_str().unwrap_or_default();
        let is_named = body["data"].is_null() && message.starts_with("query parse error: syntax error: ");
        return Outcome::compare("syntax error", &true, &is_named);
    }
    if let Some(expected) = expect.get("body_json") {
        let mut expected = expected.clone();
        let mut actual = serde_json::from_slice(&answer.body).unwrap_or_default();
        for path in expect["unordered"].as_array().into_iter().flatten() {
            let pointer = format!("/{}", path.as_str().unwrap_or_default().replace('.', "/"));
            for value in [&mut expected, &mut actual] {
                if let Some(Value::Array(items)) = value.pointer_mut(&pointer) {
                    items.sort_by_key(Value::to_string);
                }
            }
        }
        return Outcome::compare("body", &expected, &actual);
    }
    let Some(body) = expect["body"].as_str() else {
        return Outcome::Pass;
    };
    let mut expected: Vec<String> = body.split_inclusive('\n').map(ToOwned::to_owned).collect();
    if expect["schemaless"] == "found by name" && expect["status"] == 200 {
        expected = with_schemaless(&expected, query(request), all);
    }
    let text = answer.text();
    let mut actual: Vec<String> = text.split_inclusive('\n').map(ToOwned::to_owned).collect();
    if expect["unordered"] == true {
        expected.sort();
        actual.sort();
    }
    Outcome::compare("body", &expected, &actual)
}

/// The expected lines. If the query has a name and no schema, also the catalog's blobs without a schema with this name
/// and, if given, this package; in the order of the catalog.
fn with_schemaless(expected: &[String], query: &str, all: &str) -> Vec<String> {
    let asked = |key: &str| {
        let value = query
            .split('&')
            .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        value.filter(|value| !value.is_empty())
    };
    let (Some(name), None) = (asked("name"), asked("schema")) else {
        return expected.to_vec();
    };
    let found = |line: &&str| {
        let blob: Value = serde_json::from_str(line).unwrap_or_default();
        let of_package = asked("package").is_none_or(|package| blob["package"] == package);
        expected.iter().any(|e| e == line) || (blob["schema"].is_null() && blob["name"] == name && of_package)
    };
    all.split_inclusive('\n')
        .filter(found)
        .map(ToOwned::to_owned)
        .collect()
}
