//! The identity of this process inside a cluster.

use std::path::Path;

use base64::Engine as _;

/// The directory of a Pod's credentials.
const CREDENTIALS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The namespace given by a flag, otherwise that of the Pod, otherwise `fallback`.
pub fn system_namespace(flag: &str, fallback: &str) -> String {
    if !flag.is_empty() {
        return flag.to_owned();
    }
    std::fs::read_to_string(Path::new(CREDENTIALS).join("namespace"))
        .map(|text| text.trim().to_owned())
        .ok()
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| fallback.to_owned())
}

/// Namespace and name of the Pod's service account, from its mounted token; `None` outside a cluster.
pub fn service_account() -> Option<(String, String)> {
    subject(&std::fs::read_to_string(Path::new(CREDENTIALS).join("token")).ok()?)
}

/// Namespace and name in a token's subject. The signature is not checked: the token is our own.
fn subject(token: &str) -> Option<(String, String)> {
    let payload = token.trim().split('.').nth(1)?;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(payload)
        .ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    let mut parts = claims.get("sub")?.as_str()?.split(':');
    match (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) {
        (Some("system"), Some("serviceaccount"), Some(namespace), Some(name), None)
            if !namespace.is_empty() && !name.is_empty() =>
        {
            Some((namespace.to_owned(), name.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(subject: &str) -> String {
        let claims = serde_json::json!({ "sub": subject }).to_string();
        format!(
            "e30.{}.sig",
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims)
        )
    }

    #[test]
    fn a_service_accounts_token_names_it() {
        assert_eq!(
            subject(&token("system:serviceaccount:olm:manager")),
            Some(("olm".to_owned(), "manager".to_owned()))
        );
    }

    #[test]
    fn any_other_subject_is_no_service_account() {
        for other in [
            "system:node:a",
            "system:serviceaccount:olm",
            "system:serviceaccount::x",
            "system:serviceaccount:a:b:c",
        ] {
            assert_eq!(subject(&token(other)), None, "{other}");
        }
        assert_eq!(subject("not a token"), None);
    }
}
