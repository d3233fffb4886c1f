//! The parameters of the first page, and the addresses with other parameters.

use olm_api::serving::percent_encode;

/// The query parameters of a request for the page.
#[derive(Debug, Default)]
pub(crate) struct QueryParameters(Vec<(&'static str, String)>);

impl QueryParameters {
    /// The given parameters, without the cursor: each link to a page has its own.
    pub(crate) fn new(given: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(given.into_iter().filter(|(key, _)| *key != "cursor").collect())
    }

    /// The value of a parameter; empty if it is absent.
    pub(super) fn get(&self, key: &str) -> &str {
        let mut found = self.0.iter().filter(|(name, _)| *name == key);
        found.next().map_or("", |(_, value)| value)
    }

    /// The address of the page with one parameter set, or without it.
    pub(super) fn with(&self, key: &'static str, value: Option<&str>) -> String {
        address(self.without(key).chain(value.map(|value| (key, value))))
    }

    /// The address of the page with these parameters alone, as far as they are given.
    pub(super) fn only(&self, keys: &[&str]) -> String {
        let pairs = self.0.iter().map(|(name, value)| (*name, value.as_str()));
        address(pairs.filter(|(name, _)| keys.contains(name)))
    }

    /// The given parameters but one.
    pub(super) fn without(&self, key: &str) -> impl Iterator<Item = (&'static str, &str)> {
        let pairs = self.0.iter().map(|(name, value)| (*name, value.as_str()));
        pairs.filter(move |(name, _)| *name != key)
    }
}

fn address<'a>(pairs: impl Iterator<Item = (&'static str, &'a str)>) -> String {
    let pairs: Vec<String> = pairs
        .map(|(key, value)| format!("{key}={}", percent_encode(value)))
        .collect();
    if pairs.is_empty() {
        "/".to_owned()
    } else {
        format!("/?{}", pairs.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_what_is_asked_for_but_the_place_of_the_page() {
        let given = [("q", "a b"), ("category", "<x>&\""), ("cursor", "24")];
        let parameters = QueryParameters::new(given.map(|(key, value)| (key, value.to_owned())));
        assert_eq!(
            parameters.with("api", Some("K")),
            "/?q=a%20b&category=%3Cx%3E%26%22&api=K"
        );
        assert_eq!(parameters.with("category", None), "/?q=a%20b");
        assert_eq!(parameters.get("q"), "a b");
        assert_eq!(parameters.only(&["q", "sort"]), "/?q=a%20b");
        assert_eq!(QueryParameters::default().with("q", None), "/");
    }
}
