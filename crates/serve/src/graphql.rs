//! GraphQL over a stored catalog.
//!
//! ```text
//! blobs ──► shape ──► schema          query ──► parser ──► limits ──► validation ──► resolve
//!           once per content                                                         blob by blob,
//!                                                                                    by offset
//! ```
//!
//! The schema follows the data, as in the reference implementation; filters and variables are additions.
//! apollo-compiler parses, validates and executes, and its own messages reach the client. No catalog is held in memory:
//! the query reads an object when it needs it, within limits of depth, fields, bytes and time.

mod limits;
mod resolve;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apollo_compiler::ast::Document;
use apollo_compiler::introspection::check_max_depth;
use apollo_compiler::parser::{LineColumn, Parser};
use apollo_compiler::request::RequestError;
use apollo_compiler::resolvers::Execution;
use apollo_compiler::response::{GraphQLError, JsonMap, ResponseDataPathSegment};
use apollo_compiler::validation::DiagnosticList;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use crate::graphql_schema::Graph;
use crate::store::Snapshot;
use resolve::{Budget, Query};

/// The longest body of a request, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;
/// The longest query, in bytes.
const MAX_QUERY_BYTES: usize = 100_000;
/// Levels of braces, brackets and types that the parser follows.
const MAX_NESTING: usize = 64;
/// Errors of the parser or of validation in one answer.
const MAX_ERRORS: usize = 20;
/// Bytes that a query may read and answer.
const MAX_BYTES: u64 = 32 << 20;
/// The bytes that a query may read and answer beside others. Larger queries run one at a time.
const LIGHT_BYTES: u64 = 512 << 10;
/// The timeout of a query.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// The body of a GraphQL request.
#[derive(Debug, Deserialize)]
pub(crate) struct GraphqlRequest {
    #[serde(default, deserialize_with = "or_default")]
    query: String,
    #[serde(default, deserialize_with = "or_default")]
    variables: JsonMap,
    #[serde(default, rename = "operationName")]
    operation: Option<String>,
}

/// Reads null as the default.
fn or_default<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// The turn of one query. Only a query of more than [`LIGHT_BYTES`] needs it.
#[derive(Debug)]
pub(crate) struct QueryPermit {
    heavy: Arc<Semaphore>,
    runtime: Handle,
    taken: RefCell<Option<OwnedSemaphorePermit>>,
}

impl QueryPermit {
    /// A turn that is not taken yet. `heavy` has one permit; the query runs on a blocking thread of this runtime.
    pub(crate) fn of(heavy: Arc<Semaphore>, runtime: Handle) -> Self {
        Self {
            heavy,
            runtime,
            taken: RefCell::default(),
        }
    }

    /// Waits for the turn, and keeps it until this value is dropped. `false`: `end` passed first.
    fn take(&self, end: Instant) -> bool {
        let mut taken = self.taken.borrow_mut();
        if taken.is_none() {
            let place = Arc::clone(&self.heavy).acquire_owned();
            let place = self
                .runtime
                .block_on(async { timeout_at(end.into(), place).await });
            *taken = place.ok().and_then(Result::ok);
        }
        taken.is_some()
    }
}

/// A request without a usable query; the text is the body of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRequest {
    #[error("Invalid request body")]
    Body,
    #[error("Query cannot be empty")]
    Empty,
    #[error("Query too large")]
    TooLarge,
}

impl GraphqlRequest {
    /// Reads the first JSON value of a body and ignores the rest.
    pub(crate) fn read(body: &[u8]) -> Result<Self, BadRequest> {
        let mut values = serde_json::Deserializer::from_slice(body).into_iter();
        let request: Option<Self> = match values.next() {
            Some(Ok(request)) => request,
            Some(Err(_)) | None => return Err(BadRequest::Body),
        };
        let request = request.ok_or(BadRequest::Empty)?;
        match request.query.len() {
            0 => Err(BadRequest::Empty),
            1..=MAX_QUERY_BYTES => Ok(request),
            _ => Err(BadRequest::TooLarge),
        }
    }

    /// The answer as JSON. Reads the disk. Keep `turn` until the answer is no longer in memory twice.
    pub(crate) fn answer(&self, graph: &Graph, snapshot: &Snapshot, turn: &QueryPermit) -> Vec<u8> {
        let answer = self
            .execute(graph, snapshot, turn)
            .unwrap_or_else(|errors| GraphqlResponse { data: None, errors });
        let mut text = serde_json::to_vec(&answer).unwrap_or_default();
        text.push(b'\n');
        text
    }

    fn execute(
        &self,
        graph: &Graph,
        snapshot: &Snapshot,
        turn: &QueryPermit,
    ) -> Result<GraphqlResponse, Vec<ErrorEntry>> {
        let end = Instant::now() + TIMEOUT;
        let document = parse(&self.query)?;
        limits::check(&document).map_err(|text| vec![ErrorEntry::new(text)])?;
        let document = document
            .to_executable_validate(&graph.schema)
            .map_err(|invalid| entries(&invalid.errors))?;
        let refused = |error: RequestError| vec![ErrorEntry::from(error.to_graphql_error(&document.sources))];
        let name = self.operation.as_deref().filter(|name| !name.is_empty());
        let operation = document.operations.get(name).map_err(refused)?;
        check_max_depth(&document, operation).map_err(refused)?;
        let budget = Budget {
            bytes: Cell::new(MAX_BYTES),
            end,
            turn,
        };
        let query = Query {
            graph,
            snapshot,
            budget: &budget,
        };
        let done = Execution::new(&graph.schema, &document)
            .operation(operation)
            .raw_variable_values(&self.variables)
            .enable_schema_introspection(true)
            .execute_sync(&query)
            .map_err(refused)?;
        Ok(GraphqlResponse {
            data: done.data,
            errors: done.errors.into_iter().map(ErrorEntry::from).collect(),
        })
    }
}

fn parse(query: &str) -> Result<Document, Vec<ErrorEntry>> {
    let parsed = Parser::new()
        .recursion_limit(MAX_NESTING)
        .parse_ast(query, "query.graphql");
    parsed.map_err(|invalid| {
        let mut entries = entries(&invalid.errors);
        for entry in &mut entries {
            entry.message.insert_str(0, "query parse error: ");
        }
        entries
    })
}

/// The first errors of a list.
fn entries(errors: &DiagnosticList) -> Vec<ErrorEntry> {
    let errors = errors.iter().take(MAX_ERRORS);
    errors
        .map(|error| error.unstable_to_json_compat().into())
        .collect()
}

/// The response to a query, as GraphQL specifies it.
#[derive(Serialize)]
struct GraphqlResponse {
    data: Option<JsonMap>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ErrorEntry>,
}

/// An error of a response.
#[derive(Serialize)]
struct ErrorEntry {
    message: String,
    locations: Vec<LineColumn>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    path: Vec<ResponseDataPathSegment>,
}

impl ErrorEntry {
    fn new(message: String) -> Self {
        Self {
            message,
            locations: Vec::new(),
            path: Vec::new(),
        }
    }
}

impl From<GraphQLError> for ErrorEntry {
    fn from(error: GraphQLError) -> Self {
        let message = error
            .message
            .strip_prefix("resolver error: ")
            .map(ToOwned::to_owned);
        Self {
            message: message.unwrap_or(error.message),
            locations: error.locations,
            path: error.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_queries_that_take_much_one_is_in_work_at_a_time() {
        let (heavy, runtime) = (Arc::new(Semaphore::new(1)), Handle::current());
        let work = move || {
            let turns = [(); 2].map(|()| QueryPermit::of(Arc::clone(&heavy), runtime.clone()));
            let [first, second] = turns;
            let soon = || Instant::now() + Duration::from_millis(50);
            assert!(first.take(soon()));
            assert!(first.take(soon()), "it is kept");
            assert!(!second.take(soon()));
            drop(first);
            assert!(second.take(soon()));
        };
        tokio::task::spawn_blocking(work).await.unwrap();
    }
}
