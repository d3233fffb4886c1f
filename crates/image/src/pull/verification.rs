//! Asks the signature policy about an image, without a pull.

use super::{AcceptedImage, Images, PullError, RESOLVE_TIME};
use crate::access::Access;
use crate::access::policy::Approval;
use crate::access::verification::SignatureStatus;
use crate::limits::Limits;
use crate::reference::{Pinned, Reference};

/// The nodes that run an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nodes {
    /// Those of this program's platform.
    Own,
    /// Those of any platform.
    All,
}

impl Images {
    /// Checks an image against the signature policy and nothing more, as a pull does: the manifest of the platform, or
    /// the index when there is one, must be signed. Returns one approval per requirement; none where the policy asks
    /// for no signature.
    pub async fn verify(&self, reference: &Reference, access: &Access) -> Result<AcceptedImage, PullError> {
        let pinned = self.resolve(reference, access).await?;
        let approvals = self.approvals(&pinned, Nodes::Own, access).await?;
        Ok(AcceptedImage { pinned, approvals })
    }

    /// [`Images::verify`] for an image that nodes of any platform run: of an index, the index itself must be signed,
    /// since a signature of one platform's manifest says nothing about the others.
    pub async fn verify_for_all_nodes(
        &self,
        reference: &Reference,
        access: &Access,
    ) -> Result<AcceptedImage, PullError> {
        let pinned = self.resolve(reference, access).await?;
        let approvals = self.approvals(&pinned, Nodes::All, access).await?;
        Ok(AcceptedImage { pinned, approvals })
    }

    /// The signature for each requirement of the signature policy on an image with a known digest.
    pub(super) async fn approvals(
        &self,
        pinned: &Pinned,
        nodes: Nodes,
        access: &Access,
    ) -> Result<Vec<Approval>, PullError> {
        let limits = Limits::bundle();
        let asking = async {
            let signed = self.admitted(access, &pinned.requested())?;
            if signed.is_empty() {
                return Ok(Vec::new());
            }
            let mut digests = vec![pinned.digest().clone()];
            if nodes == Nodes::Own {
                match self.platform_manifest(pinned, access, &limits).await {
                    Ok((_, manifest)) => digests.push(manifest),
                    // An image for other nodes: the index decides.
                    Err(PullError::Platform { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            self.check_signatures(&signed, pinned, &digests, access).await
        };
        let late = |_| PullError::Time {
            reference: pinned.to_string(),
            seconds: RESOLVE_TIME.as_secs(),
        };
        tokio::time::timeout(RESOLVE_TIME, asking).await.map_err(late)?
    }

    /// The verdict of the policy about an image that is in use; `None` if it asks for no signature.
    pub async fn signature_status(&self, image: &Pinned, access: &Access) -> Option<SignatureStatus> {
        match self.approvals(image, Nodes::Own, access).await {
            Ok(approvals) => SignatureStatus::accepted(image, &approvals),
            Err(PullError::Policy { source, .. }) => Some(SignatureStatus {
                accepted: Some(false),
                message: match source.remedy() {
                    Some(remedy) => format!("{image} stays in use, but {source}; {remedy}"),
                    None => format!("{image} stays in use, but {source}"),
                },
            }),
            Err(error) => Some(SignatureStatus::unknown(image, &olm_transport::chain(&error))),
        }
    }
}
