//! The places that a reference is fetched from: the registry itself, or the mirrors and locations of a configuration.

mod conf;

use std::collections::BTreeSet;

pub use conf::RegistriesError;

use crate::reference::{Reference, usual_spelling};
use conf::Rule;

/// Transport security of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Security {
    /// HTTPS with a verified certificate.
    Verified,
    /// HTTPS with any certificate, or plain HTTP where no TLS is spoken. Only for registries that were named as
    /// insecure, and for no other host that they lead to.
    Insecure,
    /// Plain HTTP. Only for registries that were named so.
    PlainHttp,
}

/// One place to fetch a reference from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The reference as this place knows it.
    pub reference: Reference,
    /// Transport security of the place.
    pub security: Security,
}

/// Error of a reference that has no place to be fetched from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The configuration blocks it.
    #[error("the configuration of registries blocks `{prefix}`")]
    Blocked {
        /// The rule that does.
        prefix: String,
    },
    /// The place that the configuration names gives no reference.
    #[error(
        "the configuration of registries leads from `{prefix}` to `{text}`, which is not an image reference"
    )]
    Rewritten {
        /// The rule that does.
        prefix: String,
        /// The result of the rule.
        text: String,
    },
}

/// Configuration of registries. The default is every registry itself over verified HTTPS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registries {
    insecure: BTreeSet<String>,
    plain_http: BTreeSet<String>,
    /// The longest prefix first.
    rules: Vec<Rule>,
}

impl Registries {
    /// Reads files in the format `registries.conf` (version 2), each given with its name for messages; a later file's
    /// rule replaces an earlier one's of the same prefix.
    pub fn parse<'files>(
        files: impl IntoIterator<Item = (&'files str, &'files str)>,
    ) -> Result<Self, RegistriesError> {
        let rules = conf::parse(files)?;
        Ok(Self {
            rules,
            ..Self::default()
        })
    }

    /// Allows any certificate, or none, of a registry (`host[:port]`).
    #[must_use]
    pub fn insecure(mut self, registry: impl Into<String>) -> Self {
        self.insecure.insert(registry.into());
        self
    }

    /// Uses plain HTTP for a registry (`host[:port]`).
    #[must_use]
    pub fn plain_http(mut self, registry: impl Into<String>) -> Self {
        self.plain_http.insert(registry.into());
        self
    }

    /// The places to try for a reference, in order: the mirrors, then the registry itself or its replacement. Never
    /// empty.
    pub fn endpoints(&self, reference: &Reference) -> Result<Vec<Endpoint>, PlaceError> {
        let text = usual_spelling(&reference.to_string());
        let Some((rule, covered)) = self.rule(&text)? else {
            return Ok(vec![self.at_home(reference, Security::Verified)]);
        };
        let rest = text.get(covered..).unwrap_or_default();
        let place = |location: &str, otherwise: Security| {
            let text = format!("{location}{rest}");
            let reference = Reference::parse_familiar(&text).map_err(|_| PlaceError::Rewritten {
                prefix: rule.prefix.clone(),
                text,
            })?;
            let security = self.security(&reference, otherwise);
            Ok(Endpoint { reference, security })
        };
        let mirrors = rule.mirrors.iter().filter(|mirror| mirror.serves(reference));
        let mut places = mirrors
            .map(|mirror| place(&mirror.location, mirror.security))
            .collect::<Result<Vec<_>, _>>()?;
        places.push(match &rule.location {
            Some(location) => place(location, rule.security)?,
            None => self.at_home(reference, rule.security),
        });
        Ok(places)
    }

    /// The registry that a reference names, whatever mirrors it: where images are pushed to.
    pub fn home(&self, reference: &Reference) -> Result<Endpoint, PlaceError> {
        let rule = self.rule(&usual_spelling(&reference.to_string()))?;
        let security = rule.map_or(Security::Verified, |(rule, _)| rule.security);
        Ok(self.at_home(reference, security))
    }

    fn at_home(&self, reference: &Reference, otherwise: Security) -> Endpoint {
        Endpoint {
            reference: reference.clone(),
            security: self.security(reference, otherwise),
        }
    }

    /// The rule for a reference in the usual spelling, and how much of its text the rule's prefix covers.
    fn rule(&self, text: &str) -> Result<Option<(&Rule, usize)>, PlaceError> {
        let covering = |rule| Rule::covers(rule, text).map(|covered| (rule, covered));
        match self.rules.iter().find_map(covering) {
            Some((rule, _)) if rule.blocked => Err(PlaceError::Blocked {
                prefix: rule.prefix.clone(),
            }),
            found => Ok(found),
        }
    }

    /// Transport security of a place. `otherwise` applies unless its registry was named as insecure or plain HTTP.
    fn security(&self, reference: &Reference, otherwise: Security) -> Security {
        if self.plain_http.contains(reference.registry()) {
            Security::PlainHttp
        } else if self.insecure.contains(reference.registry()) {
            Security::Insecure
        } else {
            otherwise
        }
    }
}
