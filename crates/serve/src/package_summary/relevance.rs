//! The relevance of a package for the searched words.

use std::cmp::Reverse;

use super::PackageSummary;

/// The position of a package in the results of a search: by relevance, then by the priority of its catalog, the highest
/// first as in a resolution, then by the names of package and catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SearchPlace<'a> {
    relevance: u32,
    priority: Reverse<i32>,
    package: &'a str,
    catalog: &'a str,
}

impl<'a> SearchPlace<'a> {
    /// The position of a package in a catalog with this priority, given its [`PackageSummary::relevance`].
    pub fn new(relevance: u32, package: &'a str, catalog: &'a str, priority: i32) -> Self {
        Self {
            relevance,
            priority: Reverse(priority),
            package,
            catalog,
        }
    }
}

impl PackageSummary {
    /// The rank of the package for words in lower case; lower is better. `None` if one of them occurs nowhere in its
    /// name, display name, keywords, categories, provided APIs, provider or summary.
    pub fn relevance<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Option<u32> {
        let mut words = words.into_iter().peekable();
        if words.peek().is_none() {
            return Some(0);
        }
        let fields = self.fields();
        words.map(|word| best(&fields, word)).sum()
    }

    /// The searched texts in lower case, each with the ranks of a word that equals it, begins it, or occurs in it.
    fn fields(&self) -> Vec<(String, [u32; 3])> {
        let apis = self.provided_apis.iter();
        let apis = apis.flat_map(|api| [&api.kind, &api.group]);
        let ranked = [
            (vec![&self.name], [0, 1, 3]),
            (vec![&self.display_name], [0, 2, 3]),
            (self.keywords.iter().collect(), [4, 5, 5]),
            (self.categories.iter().collect(), [4, 5, 5]),
            (apis.collect(), [4, 5, 5]),
            (vec![&self.provider], [5, 6, 6]),
            (vec![&self.summary], [6, 7, 7]),
        ];
        let ranked = ranked.into_iter();
        ranked
            .flat_map(|(texts, ranks)| texts.into_iter().map(move |text| (text.to_lowercase(), ranks)))
            .collect()
    }
}

/// The best rank of a word in any of the texts.
fn best(fields: &[(String, [u32; 3])], word: &str) -> Option<u32> {
    let rank = |(text, [is, begins, holds]): &(String, [u32; 3])| match () {
        () if text == word => Some(*is),
        () if text.starts_with(word) => Some(*begins),
        () if text.contains(word) => Some(*holds),
        () => None,
    };
    fields.iter().filter_map(rank).min()
}

#[cfg(test)]
mod tests {
    use super::super::Api;
    use super::*;

    #[test]
    fn relevance_goes_before_the_priority_of_the_catalog_and_that_before_names() {
        let ordered = [
            SearchPlace::new(0, "z", "low", -1),
            SearchPlace::new(1, "b", "high", 10),
            SearchPlace::new(1, "a", "low", -1),
            SearchPlace::new(1, "b", "a-low", -1),
            SearchPlace::new(1, "b", "low", -1),
        ];
        assert!(ordered.is_sorted());
    }

    #[test]
    fn names_go_before_other_finds_and_every_word_has_to_occur() {
        let facts = PackageSummary {
            name: "cert-manager".to_owned(),
            display_name: "Certificates".to_owned(),
            summary: "Issues things.".to_owned(),
            provider: "The Makers".to_owned(),
            keywords: vec!["TLS".to_owned()],
            categories: vec!["Security".to_owned()],
            provided_apis: [Api {
                group: "g.io".to_owned(),
                version: "v1".to_owned(),
                kind: "Issuer".to_owned(),
            }]
            .into(),
            ..PackageSummary::default()
        };
        let check = |words: &str, expected: Option<u32>| {
            assert_eq!(facts.relevance(words.split_whitespace()), expected, "{words}");
        };
        check("", Some(0));
        check("cert-manager", Some(0));
        check("certificates", Some(0));
        check("cert", Some(1));
        check("manager", Some(3));
        check("tls", Some(4));
        check("issuer", Some(4));
        check("secur", Some(5));
        check("makers", Some(6));
        check("things", Some(7));
        check("cert tls", Some(5));
        check("cert nothing", None);
    }
}
