//! Authentication and authorization of requests for catalogs, if enabled.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use olm_api::names;
use olm_platform::gate::{Gate, ProtectedResource};
use olm_serve::{App, ResponseBody};

/// Answers an authorised request; without a gate every request is.
pub(crate) async fn respond<B>(
    gate: Option<&Gate>,
    app: &Arc<App>,
    request: Request<B>,
    peer: SocketAddr,
) -> Response<ResponseBody>
where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    if let Some(gate) = gate
        && let Err(refused) = gate.admit(request.headers(), asked(request.uri().path())).await
    {
        let status = refused.status();
        let mut response = app.reject(request, Some(peer), status, &refused.to_string());
        if status == StatusCode::UNAUTHORIZED {
            let headers = response.headers_mut();
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        return response;
    }
    app.respond(request, Some(peer)).await
}

/// The catalog of a path; a request for more than one needs access to all of them.
fn asked(path: &str) -> ProtectedResource {
    let name = path
        .strip_prefix("/catalogs/")
        .and_then(|rest| rest.split_once('/'))
        .map(|(name, _)| name)
        .filter(|name| {
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
            !name.is_empty() && *name != "." && *name != ".." && name.bytes().all(plain)
        });
    ProtectedResource::Part {
        group: names::GROUP,
        resource: names::CLUSTER_CATALOGS,
        subresource: names::CONTENT,
        name: name.unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_about_one_catalog_or_about_all() {
        let check = |path: &str, expected: &str| match asked(path) {
            ProtectedResource::Part { name, .. } => assert_eq!(name, expected, "{path}"),
            ProtectedResource::Path(_) => panic!("{path}"),
        };
        check("/catalogs/cat/api/v1/all", "cat");
        check("/catalogs/my.cat-2/api/v1/metas", "my.cat-2");
        check("/catalogs/cat", "");
        check("/catalogs", "");
        check("/", "");
        check("/catalogs/../catalogs/cat/api/v1/all", "");
        check("/catalogs/c%61t/api/v1/all", "");
        check("//catalogs/cat/api/v1/all", "");
        check("/packages/cat/x", "");
    }
}
