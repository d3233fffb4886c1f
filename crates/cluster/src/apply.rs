//! Requests for one object: read, apply, dry run, patch, delete.

use std::time::Duration;

use kube::{
    Client,
    api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    client::Body,
    core::Request,
    core::Status,
};
use olm_api::names;
use olm_preflight::dry_run;
use olm_rollout::failure::{FailureKind, RequestFailure};
use olm_rollout::ownership::{Guard, finalizers};
use serde_json::Value;

use crate::{discover::Resource, identity::IdentityError};

/// The timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The object of a request and the account that makes it.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// A client with the account's token.
    pub client: &'a Client,
    /// The kind.
    pub resource: &'a Resource,
    /// The namespace; ignored for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

/// Whether the API server persists an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// The API server persists it.
    Yes,
    /// A dry run.
    DryRun,
}

impl Target<'_> {
    fn request(&self) -> Request {
        Request::new(self.resource.path(self.namespace))
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Value, RequestFailure> {
        let answer = in_time(self.client.request::<Value>(well_formed(request)?));
        answer.await
    }

    /// The object, or `None` when it does not exist.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn read(&self) -> Result<Option<Value>, RequestFailure> {
        match self
            .send(self.request().get(self.name, &GetParams::default()))
            .await
        {
            Ok(live) => Ok(Some(live)),
            Err(failure) if failure.kind == FailureKind::MissingNamespace => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// A server-side apply that takes over the fields of the body from other managers. The body contains the
    /// resourceVersion that it requires.
    ///
    /// # Errors
    /// The object was not applied, or it is not known whether it was.
    pub async fn apply(&self, body: &Value, commit: Commit) -> Result<Value, RequestFailure> {
        self.apply_as(names::field_manager::OBJECTS, body, commit).await
    }

    /// A server-side apply with another field manager.
    ///
    /// # Errors
    /// The object was not applied, or it is not known whether it was.
    pub async fn apply_as(
        &self,
        manager: &str,
        body: &Value,
        commit: Commit,
    ) -> Result<Value, RequestFailure> {
        let params = PatchParams {
            dry_run: commit == Commit::DryRun,
            force: true,
            field_manager: Some(manager.to_owned()),
            field_validation: None,
        };
        let applied = self.send(self.request().patch(self.name, &params, &Patch::Apply(body)));
        applied.await.map_err(misfit)
    }

    /// The same, with the warnings of the server.
    ///
    /// # Errors
    /// The object was not applied, or it is not known whether it was.
    pub async fn apply_with_warnings(
        &self,
        manager: &str,
        body: &Value,
    ) -> Result<(Value, Vec<String>), RequestFailure> {
        let params = PatchParams {
            force: true,
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let request = self.request().patch(self.name, &params, &Patch::Apply(body));
        self.send_with_warnings(request).await.map_err(misfit)
    }

    /// Sends a request; with the warnings of the server.
    async fn send_with_warnings(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(Value, Vec<String>), RequestFailure> {
        let request = well_formed(request)?;
        let asking = async {
            let answer = self.client.send(request.map(Body::from)).await?;
            let (status, warnings) = (answer.status(), warnings(answer.headers()));
            let body = answer.into_body().collect_bytes().await?;
            if status.is_success() {
                let object = serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
                return Ok((object, warnings));
            }
            let said = serde_json::from_slice::<Status>(&body);
            let said = said.unwrap_or_else(|_| {
                Status::failure(&String::from_utf8_lossy(&body), "").with_code(status.as_u16())
            });
            Err(kube::Error::Api(said.boxed()))
        };
        in_time(asking).await
    }

    /// Creates the object. If the body has `metadata.generateName` and no name, the server chooses the name.
    ///
    /// # Errors
    /// The object was not created, or it is not known whether it was. [`FailureKind::Conflict`] means that it exists.
    pub async fn create(&self, body: &Value) -> Result<Value, RequestFailure> {
        let body = written(body)?;
        let created = self.send(self.request().create(&PostParams::default(), body));
        created.await.map_err(misfit)
    }

    /// The same, with the warnings of the server.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub async fn create_with_warnings(&self, body: &Value) -> Result<(Value, Vec<String>), RequestFailure> {
        let body = written(body)?;
        let request = self.request().create(&PostParams::default(), body);
        self.send_with_warnings(request).await.map_err(misfit)
    }

    /// Replaces the object by the body, which contains the required resourceVersion. The status is unchanged.
    ///
    /// # Errors
    /// The object was not replaced, or it is not known whether it was.
    pub async fn replace_object(&self, body: &Value) -> Result<Value, RequestFailure> {
        let body = written(body)?;
        let replaced = self.send(self.request().replace(self.name, &PostParams::default(), body));
        replaced.await.map_err(misfit)
    }

    /// Replaces the status of the object by that of the body, which contains the required resourceVersion.
    ///
    /// # Errors
    /// The status was not replaced, or it is not known whether it was.
    pub async fn replace_status(&self, body: &Value) -> Result<Value, RequestFailure> {
        let body = written(body)?;
        let params = PostParams::default();
        let request = self
            .request()
            .replace_subresource("status", self.name, &params, body);
        self.send(request).await.map_err(misfit)
    }

    /// A merge patch. It contains the resourceVersion that it requires.
    ///
    /// # Errors
    /// The object was not changed, or it is not known whether it was.
    pub async fn merge(&self, patch: &Value) -> Result<Value, RequestFailure> {
        self.merge_as(names::field_manager::OBJECTS, patch).await
    }

    /// A merge patch with another field manager.
    ///
    /// # Errors
    /// As [`Self::merge`].
    pub async fn merge_as(&self, manager: &str, patch: &Value) -> Result<Value, RequestFailure> {
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        self.send(self.request().patch(self.name, &params, &Patch::Merge(patch)))
            .await
    }

    /// Deletes the object if it matches the guard. `None` if it is gone, otherwise the object that finalizers hold.
    ///
    /// # Errors
    /// The object does not match the guard, or was not deleted.
    pub async fn delete(&self, guard: &Guard) -> Result<Option<Value>, RequestFailure> {
        let Guard::Seen {
            uid,
            resource_version,
        } = guard
        else {
            return Ok(None);
        };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid.clone()),
                resource_version: Some(resource_version.clone()),
            }),
            ..DeleteParams::default()
        };
        match self.send(self.request().delete(self.name, &params)).await {
            Ok(answer) => Ok(still_there(&answer).then_some(answer)),
            Err(failure) if failure.kind == FailureKind::MissingNamespace => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

fn well_formed<T>(request: Result<T, kube::core::request::Error>) -> Result<T, RequestFailure> {
    request.map_err(|error| RequestFailure::new(FailureKind::Invalid, error.to_string()))
}

async fn in_time<T>(asking: impl Future<Output = Result<T, kube::Error>>) -> Result<T, RequestFailure> {
    match tokio::time::timeout(TIMEOUT, asking).await {
        Ok(answer) => answer.map_err(|error| classify(&error)),
        Err(_) => Err(RequestFailure::new(
            FailureKind::Transient,
            format!("no answer within {} s", TIMEOUT.as_secs()),
        )),
    }
}

/// The texts of the headers `Warning: 299 - "TEXT"`.
fn warnings(headers: &http::HeaderMap) -> Vec<String> {
    let values = headers.get_all(http::header::WARNING).iter();
    let texts = values.filter_map(|value| {
        let (_, quoted) = value.to_str().ok()?.split_once('"')?;
        let text = quoted.rsplit_once('"').map_or(quoted, |(text, _)| text);
        Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
    });
    texts.collect()
}

fn written(body: &Value) -> Result<Vec<u8>, RequestFailure> {
    serde_json::to_vec(body).map_err(|error| RequestFailure::new(FailureKind::Invalid, error.to_string()))
}

/// Whether the answer to a deletion is an object that still exists. For some kinds the server returns the object
/// although nothing holds it.
fn still_there(answer: &Value) -> bool {
    let seconds = answer.pointer("/metadata/deletionGracePeriodSeconds");
    answer.get("kind").and_then(Value::as_str) != Some("Status")
        && (!finalizers(answer).is_empty()
            || seconds.and_then(Value::as_i64).is_some_and(|seconds| seconds > 0))
}

/// The failure of an error of the client. An unknown kind must be confirmed: the server only said that the path does
/// not exist, which may pass.
pub fn classify(error: &kube::Error) -> RequestFailure {
    match error {
        kube::Error::Api(status) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            RequestFailure {
                kind: kind_of(status),
                message: status.message.clone(),
                code: status.code,
                reason: status.reason.clone(),
                fields: causes.map(|cause| cause.field.clone()).collect(),
            }
        }
        kube::Error::Service(error) => match error.downcast_ref::<IdentityError>() {
            Some(identity) => RequestFailure::new(FailureKind::Transient, identity.to_string()),
            None => RequestFailure::new(FailureKind::Transient, error.to_string()),
        },
        other => RequestFailure::new(FailureKind::Transient, other.to_string()),
    }
}

/// The failure of an apply, which the server may also refuse because the object does not match its schema.
fn misfit(failure: RequestFailure) -> RequestFailure {
    if dry_run::does_not_fit(failure.code, &failure.reason) {
        return RequestFailure {
            kind: FailureKind::Invalid,
            ..failure
        };
    }
    failure
}

fn kind_of(status: &kube::core::Status) -> FailureKind {
    let details = status.details.as_ref();
    match status.code {
        // The path is missing on the server, not an object.
        404 if status.reason != "NotFound" && details.is_none_or(|details| details.name.is_empty()) => {
            FailureKind::UnknownKind
        }
        // For a read or a deletion the object is missing, for an apply its namespace.
        404 => FailureKind::MissingNamespace,
        409 => FailureKind::Conflict,
        403 if details.is_some_and(|d| {
            d.causes
                .iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
        }) =>
        {
            FailureKind::Transient
        }
        403 => FailureKind::Forbidden,
        400 | 405 | 406 | 413 | 415 | 422 => FailureKind::Invalid,
        _ => FailureKind::Transient,
    }
}

/// Whether a refused dry run only means that a dry run was not possible.
pub fn cannot_dry_run(failure: &RequestFailure) -> bool {
    failure.kind == FailureKind::Invalid
        && failure.fields.is_empty()
        && dry_run::cannot_be_made(&failure.reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn warnings_are_read_from_their_headers() {
        let mut headers = http::HeaderMap::new();
        for value in [
            r#"299 - "spec.x: unknown field \"y\"""#,
            "299",
            r#"299 kube "a\\b""#,
        ] {
            headers.append(http::header::WARNING, value.parse().unwrap());
        }
        assert_eq!(warnings(&headers), ["spec.x: unknown field \"y\"", "a\\b"]);
    }

    #[test]
    fn answers_to_a_deletion_tell_whether_the_object_is_gone() {
        for (answer, expected) in [
            (json!({"kind": "Status", "status": "Success"}), false),
            (
                json!({"kind": "ServiceAccount", "metadata": {"name": "a"}}),
                false,
            ),
            (
                json!({"kind": "CustomResourceDefinition", "metadata": {"finalizers": ["f"]}}),
                true,
            ),
            (
                json!({"kind": "Pod", "metadata": {"deletionGracePeriodSeconds": 30}}),
                true,
            ),
            (
                json!({"kind": "Pod", "metadata": {"deletionGracePeriodSeconds": 0}}),
                false,
            ),
            (
                json!({"kind": "Namespace", "metadata": {}, "spec": {"finalizers": ["kubernetes"]}}),
                true,
            ),
            (
                json!({"kind": "Namespace", "metadata": {}, "spec": {"finalizers": []}}),
                false,
            ),
            (
                json!({"kind": "Other", "metadata": {}, "spec": {"finalizers": ["x"]}}),
                false,
            ),
        ] {
            assert_eq!(still_there(&answer), expected, "{answer}");
        }
    }

    #[test]
    fn errors_are_sorted_by_their_consequence() {
        let status = |code: u16, name: &str, cause: &str| {
            serde_json::from_value::<kube::core::Status>(json!({
                "code": code, "message": "m", "reason": if cause == "NotFound" { cause } else { "r" },
                "details": {"name": name, "causes": [{"reason": cause}]},
            }))
            .unwrap()
        };
        for (code, name, cause, expected) in [
            (404, "", "", FailureKind::UnknownKind),
            (404, "", "NotFound", FailureKind::MissingNamespace),
            (404, "x", "", FailureKind::MissingNamespace),
            (409, "x", "", FailureKind::Conflict),
            (403, "x", "", FailureKind::Forbidden),
            (403, "x", "NamespaceTerminating", FailureKind::Transient),
            (422, "x", "", FailureKind::Invalid),
            (429, "x", "", FailureKind::Transient),
            (500, "x", "", FailureKind::Transient),
            (401, "x", "", FailureKind::Transient),
        ] {
            assert_eq!(
                kind_of(&status(code, name, cause)),
                expected,
                "{code} {name} {cause}"
            );
        }
    }

    #[test]
    fn an_object_that_does_not_fit_its_kind_is_refused_and_a_server_error_is_not() {
        let failed = |reason: &str| {
            let status = json!({"code": 500, "message": "m", "reason": reason});
            let error = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
            misfit(classify(&error)).kind
        };
        assert_eq!(failed(""), FailureKind::Invalid);
        assert_eq!(failed("InternalError"), FailureKind::Transient);
    }

    #[test]
    fn a_dry_run_that_cannot_be_made_is_known_by_its_reason() {
        let failed = |code: u16, reason: &str, causes: serde_json::Value| {
            let status =
                json!({"code": code, "message": "m", "reason": reason, "details": {"causes": causes}});
            cannot_dry_run(&classify(&kube::Error::Api(Box::new(
                serde_json::from_value(status).unwrap(),
            ))))
        };
        assert!(failed(400, "BadRequest", json!([])));
        assert!(!failed(400, "BadRequest", json!([{"field": "spec.a"}])));
        assert!(!failed(422, "Invalid", json!([])));
    }
}
