//! The fields of a trust root. The reader of the library passes over names that it does not know: a misspelt log or end
//! of validity would make the trust root ask for less than it says.

use crate::json::Shape;
use crate::json::Shape::{Any, List, Object};

/// A trust root.
pub(super) const ROOT: Shape = Object(&[
    ("mediaType", Any),
    ("tlogs", List(&LOG)),
    ("ctlogs", List(&LOG)),
    ("certificateAuthorities", List(&AUTHORITY)),
    ("timestampAuthorities", List(&AUTHORITY)),
]);

const LOG: Shape = Object(&[
    ("baseUrl", Any),
    ("hashAlgorithm", Any),
    ("publicKey", LOG_KEY),
    ("logId", LOG_ID),
    ("checkpointKeyId", LOG_ID),
    ("operator", Any),
]);

const LOG_KEY: Shape = Object(&[("rawBytes", Any), ("keyDetails", Any), ("validFor", PERIOD)]);

const LOG_ID: Shape = Object(&[("keyId", Any)]);

const AUTHORITY: Shape = Object(&[
    ("subject", Object(&[("organization", Any), ("commonName", Any)])),
    ("uri", Any),
    (
        "certChain",
        Object(&[("certificates", List(&Object(&[("rawBytes", Any)])))]),
    ),
    ("validFor", PERIOD),
    ("operator", Any),
]);

const PERIOD: Shape = Object(&[("start", Any), ("end", Any)]);
