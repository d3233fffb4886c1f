//! The roles that give an account what it lacks, as users apply them.

use olm_api::names::label;
use sha2::{Digest as _, Sha256};

use super::missing::{Account, Missing};

/// Roles and bindings as YAML documents, called after the extension and a digest of what is in them: applying them never
/// takes away what earlier ones gave. Every value is data, whatever a bundle has in it.
#[must_use]
pub fn roles(missing: &Missing, extension: &str, account: Account<'_>) -> String {
    let missing = missing.without_covered();
    let digest = hex::encode(Sha256::digest(missing.yaml("", &[], account)));
    let name = format!("{extension}-needs-{}", digest.get(..8).unwrap_or(&digest));
    let labels = [(label::RIGHTS_OF, extension)];
    // A set by itself may have a name that is too long for a label.
    let count = usize::from(extension.len() <= label::MAX_VALUE);
    missing.yaml(&name, labels.get(..count).unwrap_or_default(), account)
}
