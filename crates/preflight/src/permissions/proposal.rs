//! Roles that grant an account the rights that it lacks, to be applied by users.

use olm_api::names::label;
use sha2::{Digest as _, Sha256};

use super::missing::{Account, Missing};

/// Roles and bindings as YAML documents. Their name contains the extension and a digest of the rules, so that applying
/// them never removes earlier rules. Every value is escaped, whatever a bundle contains.
#[must_use]
pub fn roles(missing: &Missing, extension: &str, account: Account<'_>) -> String {
    let missing = missing.without_covered();
    let digest = hex::encode(Sha256::digest(missing.yaml("", &[], account)));
    let name = format!("{extension}-needs-{}", digest.get(..8).unwrap_or(&digest));
    let labels = [(label::RIGHTS_OF, extension)];
    // A ClusterObjectSet without an extension may have a name that is too long for a label.
    let count = usize::from(extension.len() <= label::MAX_VALUE);
    missing.yaml(&name, labels.get(..count).unwrap_or_default(), account)
}
