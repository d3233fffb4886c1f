//! Calls of the API server: their effect, their object and their user.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method};
use serde_json::Value;

/// Groups whose calls ask a question and store nothing.
const QUESTIONS: &[&str] = &["authentication.k8s.io", "authorization.k8s.io"];

/// The kind and object in a path of the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The API group; empty for the core.
    pub group: String,
    /// The namespace; empty for kinds of the cluster.
    pub namespace: String,
    /// The plural of the kind.
    pub resource: String,
    /// The object; empty for a whole kind.
    pub name: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
}

impl Place {
    /// The place in a path; `None` for a path without a kind.
    pub fn of(path: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let _version = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..]
                if !rest.is_empty() && !matches!(rest, ["status" | "finalize"]) =>
            {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        let place = Self {
            group: group.to_owned(),
            namespace: namespace.to_owned(),
            resource: part(0),
            name: part(1),
            subresource: part(2),
        };
        Some(place).filter(|place| !place.resource.is_empty())
    }
}

/// A mutating call and its result.
#[derive(Debug, Clone)]
pub struct Call {
    /// The time of its arrival.
    pub at: Instant,
    /// The method.
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The place in the path.
    pub place: Place,
    /// The user that the token names, `system:serviceaccount:NAMESPACE:NAME`; empty without a token.
    pub user: String,
    /// Whether it is a dry run, so that nothing is stored.
    pub dry_run: bool,
    /// The number among the counted calls, from 1.
    pub number: Option<usize>,
    /// The status code of the API server, once it has answered.
    pub code: Option<u16>,
    /// The body as it came.
    pub body: Vec<u8>,
}

impl Call {
    /// The call in a request; `None` for requests that tests ignore: reads, reviews, tokens, leases and events.
    pub fn of(head: &Parts, body: &[u8]) -> Option<Self> {
        if !matches!(
            head.method,
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE
        ) {
            return None;
        }
        let place = Place::of(head.uri.path())?;
        let is_aside = QUESTIONS.contains(&place.group.as_str())
            || place.subresource == "token"
            || place.resource == "events"
            || place.resource == "leases";
        if is_aside {
            return None;
        }
        let query = head.uri.query().unwrap_or_default();
        Some(Self {
            at: Instant::now(),
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            place,
            user: user(&head.headers),
            dry_run: query.split('&').any(|part| part == "dryRun=All"),
            number: None,
            code: None,
            body: body.to_vec(),
        })
    }

    /// Whether the path or the body contains this name.
    pub fn is_about(&self, name: &str) -> bool {
        self.path.contains(name) || String::from_utf8_lossy(&self.body).contains(name)
    }

    /// The body; `null` if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The call as one line.
    pub fn line(&self) -> String {
        let number = self
            .number
            .map_or_else(String::new, |number| format!("{number}. "));
        let dry_run = if self.dry_run { " (dry run)" } else { "" };
        let code = self
            .code
            .map_or_else(|| "no answer".to_owned(), |code| code.to_string());
        format!(
            "{number}{} {}{dry_run} by {}: {code}",
            self.method, self.path, self.user
        )
    }
}

/// The subject of a token, which the API server checks and this does not.
fn user(headers: &HeaderMap) -> String {
    let subject = || {
        let token = headers
            .get(AUTHORIZATION)?
            .to_str()
            .ok()?
            .strip_prefix("Bearer ")?;
        let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        Some(claims.get("sub")?.as_str()?.to_owned())
    };
    subject().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_path_names_a_kind_an_object_and_a_subresource() {
        let check = |path: &str, expected: [&str; 5]| {
            let [group, namespace, resource, name, subresource] = expected.map(str::to_owned);
            let expected = Place {
                group,
                namespace,
                resource,
                name,
                subresource,
            };
            assert_eq!(Place::of(path), Some(expected), "{path}");
        };
        check("/api/v1/namespaces", ["", "", "namespaces", "", ""]);
        check("/api/v1/namespaces/a", ["", "", "namespaces", "a", ""]);
        check(
            "/api/v1/namespaces/a/status",
            ["", "", "namespaces", "a", "status"],
        );
        check("/api/v1/namespaces/a/secrets", ["", "a", "secrets", "", ""]);
        check(
            "/apis/apps/v1/namespaces/a/deployments/b/scale",
            ["apps", "a", "deployments", "b", "scale"],
        );
        check(
            "/apis/olm.operatorframework.io/v1/clusterextensions/b/status",
            ["olm.operatorframework.io", "", "clusterextensions", "b", "status"],
        );
        for path in ["/readyz", "/apis/apps/v1", "/"] {
            assert_eq!(Place::of(path), None, "{path}");
        }
    }

    #[test]
    fn a_mutating_call_has_a_user_and_questions_are_none() {
        let claims = URL_SAFE_NO_PAD.encode(r#"{"sub":"system:serviceaccount:a:b"}"#);
        let call = |method: &str, uri: &str| {
            let request = Request::builder()
                .method(method)
                .uri(uri)
                .header(AUTHORIZATION, format!("Bearer head.{claims}.mark"));
            let (head, ()) = request.body(()).unwrap().into_parts();
            Call::of(&head, b"{\"name\":\"x\"}")
        };
        for (method, uri) in [
            ("GET", "/api/v1/namespaces/a/secrets"),
            ("POST", "/api/v1/namespaces/a/serviceaccounts/b/token"),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"),
            ("POST", "/apis/events.k8s.io/v1/namespaces/a/events"),
        ] {
            assert!(call(method, uri).is_none(), "{method} {uri}");
        }
        let found = call("PATCH", "/api/v1/namespaces/a/secrets/b?force=true&dryRun=All").unwrap();
        assert!(found.dry_run && found.is_about("x") && !found.is_about("y"));
        assert_eq!(found.user, "system:serviceaccount:a:b");
        let found = call("DELETE", "/api/v1/namespaces/a/secrets/b").unwrap();
        assert!(!found.dry_run);
    }
}
