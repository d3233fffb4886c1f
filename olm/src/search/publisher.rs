//! What the metadata of a bundle says about its publisher: who makes it, how mature it is, and where to read more.

use olm_api::object::{list, text};
use serde_json::{Map, Value, json};

/// The facts of a publisher. What the metadata does not say is empty.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    provider: String,
    /// The capability level, such as `Deep Insights`.
    capability: String,
    /// The address of the source repository.
    repository: String,
    links: Vec<Link>,
    maintainers: Vec<Maintainer>,
}

#[derive(Debug)]
struct Link {
    name: String,
    address: String,
}

#[derive(Debug)]
struct Maintainer {
    name: String,
    email: String,
}

impl Publisher {
    /// Reads them from metadata in the form of the property `olm.csv.metadata`.
    pub(super) fn of(metadata: &Value) -> Self {
        let owned = |value: &Value, pointer: &str| text(value, pointer).trim().to_owned();
        let links = list(metadata, "/links").iter().map(|link| Link {
            name: owned(link, "/name"),
            address: owned(link, "/url"),
        });
        let maintainers = list(metadata, "/maintainers").iter().map(|one| Maintainer {
            name: owned(one, "/name"),
            email: owned(one, "/email"),
        });
        Self {
            provider: owned(metadata, "/provider/name"),
            capability: owned(metadata, "/annotations/capabilities"),
            repository: owned(metadata, "/annotations/repository"),
            links: links.filter(|link| !link.address.is_empty()).collect(),
            maintainers: maintainers
                .filter(|one| !one.name.is_empty() || !one.email.is_empty())
                .collect(),
        }
    }

    /// The provider.
    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    /// The facts but the provider, each for a line. Unknown ones are left out.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let maintainers: Vec<String> = self.maintainers.iter().map(Maintainer::shown).collect();
        let mut lines = vec![
            ("capability", self.capability.clone()),
            ("source", self.repository.clone()),
            ("maintainers", maintainers.join(", ")),
        ];
        lines.extend(self.links.iter().map(|link| ("link", link.shown())));
        lines.retain(|(_, value)| !value.is_empty());
        lines
    }

    /// The facts for programs.
    pub(super) fn json(&self) -> Map<String, Value> {
        let links = self.links.iter();
        let links = links.map(|link| json!({"name": link.name, "url": link.address}));
        let maintainers = self.maintainers.iter();
        let maintainers = maintainers.map(|one| json!({"name": one.name, "email": one.email}));
        let facts = [
            ("provider", json!(self.provider)),
            ("capability", json!(self.capability)),
            ("repository", json!(self.repository)),
            ("links", links.collect()),
            ("maintainers", maintainers.collect()),
        ];
        facts
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

impl Link {
    fn shown(&self) -> String {
        if self.name.is_empty() {
            self.address.clone()
        } else {
            format!("{} ({})", self.address, self.name)
        }
    }
}

impl Maintainer {
    fn shown(&self) -> String {
        match (self.name.as_str(), self.email.as_str()) {
            (name, "") => name.to_owned(),
            ("", email) => email.to_owned(),
            (name, email) => format!("{name} <{email}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_are_those_of_the_metadata() {
        let metadata = json!({
            "annotations": {"capabilities": "Deep Insights", "repository": "https://git.example/db"},
            "provider": {"name": "Databases Ltd"},
            "links": [{"name": "Manual", "url": "https://docs.example"}, {"url": "https://db.example"}, {"name": "none"}],
            "maintainers": [{"name": "Ada", "email": "ada@db.example"}, {"email": "team@db.example"}, {"name": "Eve"}, {}],
        });
        let publisher = Publisher::of(&metadata);
        let shown: Vec<String> = publisher
            .lines()
            .iter()
            .map(|(what, value)| format!("{what}: {value}"))
            .collect();
        let expected = [
            "capability: Deep Insights",
            "source: https://git.example/db",
            "maintainers: Ada <ada@db.example>, team@db.example, Eve",
            "link: https://docs.example (Manual)",
            "link: https://db.example",
        ];
        assert_eq!(shown, expected);
        let value = Value::Object(publisher.json());
        assert_eq!(value["provider"], "Databases Ltd");
        assert_eq!(
            value["links"][1],
            json!({"name": "", "url": "https://db.example"})
        );
        assert_eq!(value["maintainers"][2], json!({"name": "Eve", "email": ""}));
    }

    #[test]
    fn nothing_is_said_of_a_bundle_without_metadata() {
        let publisher = Publisher::of(&Value::Null);
        assert!(publisher.lines().is_empty() && publisher.provider().is_empty());
    }
}
