//! GraphQL over a stored catalog.
//!
//! ```text
//! blobs ──► shape ──► schema          query ──► syntax ──► limits ──► validation ──► resolve
//!           once per content                    texts of the          apollo-      blob by blob,
//!                                               reference             compiler     by offset
//! ```
//!
//! The schema follows the data, as in the reference implementation; filters and variables are added. No catalog is held
//! in memory: an object is read when it is asked for, and what a query may read, answer and take in time is limited.

mod lexer;
mod limits;
mod resolve;
mod schema;
mod shape;
mod syntax;
mod words;

use std::cell::Cell;
use std::time::{Duration, Instant};

use apollo_compiler::ExecutableDocument;
use apollo_compiler::ast::Document;
use apollo_compiler::introspection::check_max_depth;
use apollo_compiler::parser::{LineColumn, Parser};
use apollo_compiler::request::RequestError;
use apollo_compiler::resolvers::Execution;
use apollo_compiler::response::{GraphQLError, JsonMap, ResponseDataPathSegment};
use apollo_compiler::validation::Valid;
use serde::{Deserialize, Serialize};

pub(crate) use schema::Graph;
pub(crate) use shape::Shapes;

use crate::store::Snapshot;
use resolve::{Budget, Query};

/// The longest body of a request, in bytes.
pub(crate) const LONGEST_BODY: usize = 1 << 20;
/// The longest query, in bytes.
const LONGEST_QUERY: usize = 100_000;
/// Bytes that a query may read and answer.
const BYTES: u64 = 32 << 20;
/// How long a query may take.
pub(crate) const TIME: Duration = Duration::from_secs(5);

/// A question as it stands in the body of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct Question {
    #[serde(default, deserialize_with = "or_default")]
    query: String,
    #[serde(default, deserialize_with = "or_default")]
    variables: JsonMap,
    #[serde(default, rename = "operationName")]
    operation: Option<String>,
}

/// Null is as good as nothing.
fn or_default<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Why a request is no question; the text is the answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadQuestion {
    #[error("Invalid request body")]
    Body,
    #[error("Query cannot be empty")]
    Empty,
    #[error("Query too large")]
    TooLarge,
}

impl Question {
    /// Reads a question; what follows it in the body does not count.
    pub(crate) fn read(body: &[u8]) -> Result<Self, BadQuestion> {
        let mut values = serde_json::Deserializer::from_slice(body).into_iter();
        let question: Option<Self> = match values.next() {
            Some(Ok(question)) => question,
            Some(Err(_)) | None => return Err(BadQuestion::Body),
        };
        let question = question.ok_or(BadQuestion::Empty)?;
        match question.query.len() {
            0 => Err(BadQuestion::Empty),
            1..=LONGEST_QUERY => Ok(question),
            _ => Err(BadQuestion::TooLarge),
        }
    }

    /// The answer as JSON. Reads the disk.
    pub(crate) fn answer(&self, graph: &Graph, snapshot: &Snapshot) -> Vec<u8> {
        let answer = self
            .execute(graph, snapshot)
            .unwrap_or_else(|errors| Answer { data: None, errors });
        let mut text = serde_json::to_vec(&answer).unwrap_or_default();
        text.push(b'\n');
        text
    }

    fn execute(&self, graph: &Graph, snapshot: &Snapshot) -> Result<Answer, Vec<Fault>> {
        let end = Instant::now() + TIME;
        let document = parse(&self.query).map_err(|text| vec![Fault::new(text)])?;
        limits::check(&document).map_err(|text| vec![Fault::new(text)])?;
        let document = document.to_executable_validate(&graph.schema).map_err(|broken| {
            let errors = broken.errors.iter().map(|error| error.unstable_to_json_compat());
            let told = words::told(errors.collect(), &document, &graph.schema);
            told.into_iter().map(Fault::from).collect::<Vec<_>>()
        })?;
        let refused = |error: RequestError| vec![Fault::from(error.to_graphql_error(&document.sources))];
        let name = self.operation.as_deref().filter(|name| !name.is_empty());
        let operation = document
            .operations
            .get(name)
            .map_err(|_| vec![Fault::new(no_operation(&document, name))])?;
        check_max_depth(&document, operation).map_err(refused)?;
        let budget = Budget {
            bytes: Cell::new(BYTES),
            end,
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
        Ok(Answer {
            data: done.data,
            errors: done.errors.into_iter().map(Fault::from).collect(),
        })
    }
}

fn parse(query: &str) -> Result<Document, String> {
    syntax::check(query).map_err(|fault| format!("query parse error: {fault}"))?;
    Parser::new()
        .parse_ast(query, "query.graphql")
        .map_err(|broken| format!("query parse error: {}", broken.errors))
}

fn no_operation(document: &Valid<ExecutableDocument>, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("Unknown operation named \"{name}\"."),
        None if document.operations.is_empty() => "Must provide an operation.".to_owned(),
        None => "Must provide operation name if query contains multiple operations.".to_owned(),
    }
}

#[derive(Serialize)]
struct Answer {
    data: Option<JsonMap>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Fault>,
}

/// An error as it stands in an answer.
#[derive(Serialize)]
struct Fault {
    message: String,
    locations: Vec<LineColumn>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    path: Vec<ResponseDataPathSegment>,
}

impl Fault {
    fn new(message: String) -> Self {
        Self {
            message,
            locations: Vec::new(),
            path: Vec::new(),
        }
    }
}

impl From<GraphQLError> for Fault {
    fn from(error: GraphQLError) -> Self {
        // Who noticed is of no use to the client.
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
