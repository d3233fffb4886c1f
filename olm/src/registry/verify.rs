//! `olm verify`: verifies the signatures and attestations of an image.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use kube::Client;
use olm_cluster::image_policies::ReadPolicies;
use olm_image::{AcceptedImage, Policy, Reference};
use serde_json::{Value, json};

use super::RegistryArguments;
use crate::extension::access::ClusterArguments;
use crate::hint::Hint;
use crate::output::{CommandResult, ReportFormat, Status, print_json, print_text};

/// The types of attestations that cosign has short names for.
const PREDICATE_TYPES: [(&str, &str); 10] = [
    ("custom", "https://cosign.sigstore.dev/attestation/v1"),
    ("cyclonedx", "https://cyclonedx.org/bom"),
    ("link", "https://in-toto.io/Link/v1"),
    ("openvex", "https://openvex.dev/ns"),
    ("slsaprovenance", "https://slsa.dev/provenance/v0.2"),
    ("slsaprovenance02", "https://slsa.dev/provenance/v0.2"),
    ("slsaprovenance1", "https://slsa.dev/provenance/v1"),
    ("spdx", "https://spdx.dev/Document"),
    ("spdxjson", "https://spdx.dev/Document"),
    ("vuln", "https://cosign.sigstore.dev/attestation/vuln/v1"),
];

#[derive(Debug, Args)]
#[command(
    after_help = "Looks for signatures at the tag sha256-HEX.sig and among the referrers, as OLM does, and checks them by the \
                  signature policy, or by the options above. Without --cluster it needs no cluster, and no service but the \
                  registry.\n\nThe options accept a signature of this content whatever name it has. By default a policy also \
                  asks for the name, for an image by tag; the line `note` says so where the signature does not have it.\n\n\
                  Examples:\n  \
                  olm verify registry.example/catalogs/mine:latest --signature-policy ./policy.json\n  \
                  olm verify registry.example/catalogs/mine:latest --key key.pub\n  \
                  olm verify registry.example/catalogs/mine:latest \\\n    \
                  --trusted-root trusted_root.json --certificate-identity release@example.com \\\n    \
                  --certificate-oidc-issuer https://accounts.example.com\n  \
                  olm verify registry.example/catalogs/mine:latest \\\n    \
                  --key key.pub --predicate-type slsaprovenance1 \\\n    \
                  --condition \"predicate.runDetails.builder.id == 'https://ci.example'\"\n  \
                  olm verify registry.example/bundles/mine:v1.0.0 --cluster --namespace greeter"
)]
pub(crate) struct Arguments {
    /// Reference of the image
    image: String,
    #[command(flatten)]
    signer: Signer,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    registry: RegistryArguments,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
}

/// The required signer, instead of the signature policy.
#[derive(Debug, Args)]
#[command(next_help_heading = "Signer, instead of the signature policy")]
struct Signer {
    /// File with a public key in PEM that may have signed; may be repeated
    #[arg(long = "key", value_name = "FILE", conflicts_with = "signature_policy")]
    keys: Vec<PathBuf>,
    /// File with authorities, logs and timestamp authorities to trust, `trusted_root.json` of Sigstore. With --key, its
    /// log must have the signature
    #[arg(long, value_name = "FILE", conflicts_with = "signature_policy")]
    trusted_root: Option<PathBuf>,
    /// Email address or URI that the certificate must be for
    #[arg(
        long,
        value_name = "SUBJECT",
        requires = "trusted_root",
        conflicts_with = "keys"
    )]
    certificate_identity: Option<String>,
    /// Regular expression that must match the whole identity
    #[arg(
        long,
        value_name = "PATTERN",
        requires = "trusted_root",
        conflicts_with_all = ["keys", "certificate_identity"]
    )]
    certificate_identity_regexp: Option<String>,
    /// OIDC issuer of the certificate
    #[arg(long, value_name = "URL", requires = "trusted_root", conflicts_with = "keys")]
    certificate_oidc_issuer: Option<String>,
    /// Regular expression that must match the whole issuer
    #[arg(
        long,
        value_name = "PATTERN",
        requires = "trusted_root",
        conflicts_with_all = ["keys", "certificate_oidc_issuer"]
    )]
    certificate_oidc_issuer_regexp: Option<String>,
    /// Verify an attestation with this type of predicate instead of a signature: a URI, or a short name of cosign such as
    /// slsaprovenance1, spdxjson, cyclonedx or vuln
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = predicate_type,
        conflicts_with = "signature_policy"
    )]
    predicate_type: Option<String>,
    /// Condition in CEL on the `predicate` of the attestation
    #[arg(long, value_name = "CEL", requires = "predicate_type")]
    condition: Option<String>,
}

/// The policies of a cluster beside the signature policy.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
struct Policies {
    /// Follow the ClusterImagePolicies of a cluster, too
    #[arg(long, conflicts_with_all = ["keys", "trusted_root", "predicate_type"])]
    cluster: bool,
    /// Follow the ImagePolicies of this namespace, too, as for a bundle that is installed into it
    #[arg(long, value_name = "NAME", requires = "cluster")]
    namespace: Option<String>,
    /// Path to the kubeconfig file [default: $KUBECONFIG, then that of kubectl]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", requires = "cluster")]
    context: Option<String>,
}

/// The type of a predicate by its URI or by a short name.
fn predicate_type(text: &str) -> Result<String, String> {
    let mut known = PREDICATE_TYPES.iter();
    if let Some((_, uri)) = known.find(|(name, _)| *name == text) {
        return Ok((*uri).to_owned());
    }
    if text.contains([':', '/']) {
        return Ok(text.to_owned());
    }
    let names = PREDICATE_TYPES.map(|(name, _)| name).join(", ");
    Err(format!("it is neither a URI nor one of {names}"))
}

impl Policies {
    /// The policies of the cluster. All that apply must be readable.
    async fn read(&self) -> anyhow::Result<Option<ReadPolicies>> {
        if !self.cluster {
            return Ok(None);
        }
        let access = ClusterArguments {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        };
        let client = Client::try_from(access.config().await?)?;
        let policies = ReadPolicies::read(&client, self.namespace.as_deref()).await;
        if policies.unread.is_empty() {
            return Ok(Some(policies));
        }
        bail!("{}", policies.unread.join("; "))
    }
}

/// The reason why no rule asks for a signature of an image, and the remedy. `policies` are those of the cluster where
/// they are followed, for bundles of the namespace.
fn unasked(policies: Option<&ReadPolicies>, namespace: Option<&str>) -> (String, &'static str) {
    match (policies, namespace) {
        (None, _) => (
            "no signature is asked for".to_owned(),
            "set --signature-policy to a policy that asks for a signature of this image, or set --key, --trusted-root or \
             --cluster",
        ),
        (Some(policies), _) if !policies.is_served => (
            "the cluster does not serve ClusterImagePolicy, and no other policy asks for a signature"
                .to_owned(),
            "set --signature-policy to the policy of the managers, or set --key or --trusted-root without --cluster",
        ),
        (Some(_), None) => (
            "no ClusterImagePolicy covers it".to_owned(),
            "set --namespace NAMESPACE to follow the ImagePolicies of that namespace, too, or add the image to the scopes \
             of a ClusterImagePolicy",
        ),
        (Some(_), Some(namespace)) => (
            format!("no ClusterImagePolicy covers it, and no ImagePolicy of namespace {namespace:?}"),
            "add the image to the scopes of one of them",
        ),
    }
}

impl Signer {
    /// The policy that the options mean, where there are any. The digest is enough: who calls names the image himself.
    fn policy(&self) -> anyhow::Result<Option<Policy>> {
        let mut requirement = serde_json::Map::new();
        let mut set = |name: &str, value: Value| requirement.insert(name.to_owned(), value);
        if let Some(kind) = &self.predicate_type {
            set("type", json!("sigstoreAttested"));
            set("predicateType", json!(kind));
            if let Some(condition) = &self.condition {
                set("condition", json!(condition));
            }
        } else {
            set("type", json!("sigstoreSigned"));
            set("signedIdentity", json!({ "type": "matchDigest" }));
        }
        let identity = [
            ("subject", &self.certificate_identity),
            ("subjectRegExp", &self.certificate_identity_regexp),
            ("issuer", &self.certificate_oidc_issuer),
            ("issuerRegExp", &self.certificate_oidc_issuer_regexp),
        ];
        let identity: serde_json::Map<String, Value> = identity
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))))
            .collect();
        match (self.keys.is_empty(), identity.len()) {
            (false, _) => drop(set("keyPaths", json!(self.keys))),
            (true, 0) if self.trusted_root.is_none() => {
                if self.predicate_type.is_some() {
                    bail!(
                        "cannot verify an attestation: name its signer with --key, or with \
                         --trusted-root, --certificate-identity and --certificate-oidc-issuer"
                    );
                }
                return Ok(None);
            }
            (true, 2) => drop(set("identities", json!([identity]))),
            (true, _) => bail!(
                "cannot verify by a certificate: name both its identity and its issuer, with --certificate-identity and \
                 --certificate-oidc-issuer or their patterns"
            ),
        }
        if let Some(root) = &self.trusted_root {
            set("trustedRootPath", json!(root));
        }
        let policy = Policy::of_requirement(self.option(), &requirement, |file| std::fs::read(file));
        policy.map(Some).context("cannot verify by these options")
    }

    /// The option that names the signer, for messages.
    const fn option(&self) -> &'static str {
        if !self.keys.is_empty() {
            "--key"
        } else if self.certificate_identity.is_some() {
            "--certificate-identity"
        } else {
            "--certificate-identity-regexp"
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let written = &arguments.image;
    let reference = Reference::parse_familiar(written)
        .with_context(|| format!("{written:?} is not an image reference"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let policies = runtime.block_on(arguments.policies.read());
    let policies = policies.with_context(|| format!("cannot verify {written}"))?;
    let rules = policies.as_ref().map(|policies| policies.rules.clone());
    let registry = arguments.registry.with_rules(rules.unwrap_or_default());
    let mut access = registry.access(&reference)?;
    let given = arguments.signer.policy()?;
    let by_options = given.is_some();
    if let Some(policy) = given {
        access.policy = Arc::new(policy);
    }
    let verdict = runtime.block_on(arguments.registry.images().verify(&reference, &access))?;
    if verdict.approvals.is_empty() {
        let (why, remedy) = unasked(policies.as_ref(), arguments.policies.namespace.as_deref());
        let error = anyhow!("cannot verify {}: {why}", verdict.pinned);
        return Err(error.context(Hint(remedy.to_owned())));
    }
    match arguments.output {
        ReportFormat::Text => print_text(&text(&verdict, written, by_options))?,
        ReportFormat::Json => print_json(&document(&verdict))?,
    }
    Ok(Status::Success)
}

/// The report about the image with this name. `by_options` says that the name was not asked for.
fn text(verdict: &AcceptedImage, written: &str, by_options: bool) -> String {
    let mut text = format!("{}\n", verdict.pinned);
    for approval in &verdict.approvals {
        let verified = &approval.verified;
        let entry = verified.proof.log.as_ref();
        let entry = entry.map(|entry| format!("entry {} of transparency log {}", entry.index, entry.log));
        let proof = match (entry, verified.proof.time) {
            (Some(entry), true) => format!("{entry}, and time"),
            (Some(entry), false) => entry,
            (None, true) => "time".to_owned(),
            (None, false) => "none but the key or certificate".to_owned(),
        };
        let time = verified
            .time
            .map_or("not proven".to_owned(), |time| time.to_string());
        let name = verified.claim.name.as_deref().unwrap_or("none, only the digest");
        let mut rows = vec![("rule", approval.rule.to_string())];
        rows.extend(approval.predicate_type.clone().map(|kind| ("statement", kind)));
        rows.extend([
            ("signed by", verified.signer.to_string()),
            ("signed at", time),
            ("proof", proof),
            ("digest", verified.claim.digest.clone()),
            ("name", name.to_owned()),
        ]);
        if by_options && approval.names(&verdict.pinned) == Some(false) {
            let note = format!(
                "the signature does not name {written}, so that a policy refuses it by default; sign it with that name, or set \
                 `signedIdentity` to `matchDigest`"
            );
            rows.push(("note", note));
        }
        for (label, value) in rows {
            let _ = writeln!(text, "  {label:<9}  {value}");
        }
    }
    text
}

fn document(verdict: &AcceptedImage) -> Value {
    let approvals = verdict.approvals.iter().map(|approval| {
        let verified = &approval.verified;
        json!({
            "rule": approval.rule.to_string(),
            "predicateType": approval.predicate_type,
            "signer": verified.signer.to_string(),
            "time": verified.time.map(|time| time.to_string()),
            "proof": {
                "log": verified.proof.log.as_ref().map(|entry| json!({ "id": entry.log, "index": entry.index })),
                "time": verified.proof.time,
            },
            "digest": verified.claim.digest,
            "name": verified.claim.name,
            "namesImage": approval.names(&verdict.pinned),
        })
    });
    json!({ "image": verdict.pinned.to_string(), "verified": approvals.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_attestation_has_the_short_name_of_cosign() {
        let found = |text| predicate_type(text).unwrap();
        assert_eq!(found("slsaprovenance1"), "https://slsa.dev/provenance/v1");
        assert_eq!(found("spdxjson"), "https://spdx.dev/Document");
        assert_eq!(found("https://a.example/x"), "https://a.example/x");
        let error = predicate_type("slsa").unwrap_err();
        assert!(
            error.starts_with("it is neither a URI nor one of custom, cyclonedx, "),
            "{error}"
        );
    }

    #[test]
    fn an_image_that_no_rule_covers_is_told_apart_by_what_was_followed() {
        let of = |is_served| ReadPolicies {
            is_served,
            ..ReadPolicies::default()
        };
        for (policies, namespace, why, remedy) in [
            (None, None, "no signature is asked for", "--signature-policy"),
            (
                Some(of(false)),
                Some("a"),
                "the cluster does not serve ClusterImagePolicy",
                "--signature-policy",
            ),
            (
                Some(of(true)),
                None,
                "no ClusterImagePolicy covers it",
                "set --namespace NAMESPACE",
            ),
            (
                Some(of(true)),
                Some("a"),
                "no ClusterImagePolicy covers it, and no ImagePolicy of namespace \"a\"",
                "add the image",
            ),
        ] {
            let (said, advised) = unasked(policies.as_ref(), namespace);
            assert!(
                said.starts_with(why) && advised.contains(remedy),
                "{said}: {advised}"
            );
        }
    }
}
