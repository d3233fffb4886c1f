//! The fields of a trust root. The reader of the library passes over names that it does not know: a misspelt log or end
//! of validity would make the trust root ask for less than it says.

use serde::Deserialize;
use serde::de::IgnoredAny;

type Text = Option<IgnoredAny>;

/// A trust root.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "only the names count")]
pub(super) struct Shape {
    media_type: Text,
    #[serde(default)]
    tlogs: Vec<TransparencyLog>,
    #[serde(default)]
    ctlogs: Vec<TransparencyLog>,
    #[serde(default)]
    certificate_authorities: Vec<Authority>,
    #[serde(default)]
    timestamp_authorities: Vec<Authority>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "only the names count")]
struct TransparencyLog {
    base_url: Text,
    hash_algorithm: Text,
    public_key: Option<LogKey>,
    log_id: Option<LogId>,
    checkpoint_key_id: Option<LogId>,
    operator: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "only the names count")]
struct LogKey {
    raw_bytes: Text,
    key_details: Text,
    valid_for: Option<Period>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "only the names count")]
struct LogId {
    key_id: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "only the names count")]
struct Authority {
    subject: Option<Subject>,
    uri: Text,
    cert_chain: Option<Chain>,
    valid_for: Option<Period>,
    operator: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "only the names count")]
struct Subject {
    organization: Text,
    common_name: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the names count")]
struct Chain {
    #[serde(default)]
    certificates: Vec<Certificate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "only the names count")]
struct Certificate {
    raw_bytes: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the names count")]
struct Period {
    start: Text,
    end: Text,
}
