//! Asks the signature policy about an image that is in use.

use crate::access::Access;
use crate::access::verification::SignatureStatus;
use crate::pull::{Images, Nodes, PullError};
use crate::reference::Pinned;

impl Images {
    /// The verdict of the policy about an image; `None` if it asks for no signature.
    pub async fn signature_status(&self, image: &Pinned, access: &Access) -> Option<SignatureStatus> {
        match self.approvals(image, Nodes::Own, access).await {
            Ok(approvals) => SignatureStatus::accepted(image, &approvals),
            Err(PullError::Policy { source, .. }) => Some(SignatureStatus {
                accepted: Some(false),
                message: format!("{image} stays in use, but {source}. Sign the image, or change the policy"),
            }),
            Err(error) => Some(SignatureStatus::unknown(image, &olm_transport::chain(&error))),
        }
    }
}
