//! What all pages have in common.

use maud::{DOCTYPE, Markup, html};

/// A page with its title and content; `words` is what stands in the search field.
pub(super) fn page(title: &str, words: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                link rel="stylesheet" href="/style.css";
            }
            body {
                header {
                    a href="/" { "Catalogs" }
                    form role="search" action="/" {
                        label for="q" { "Search packages" }
                        input id="q" type="search" name="q" value=(words);
                        button { "Search" }
                    }
                }
                main { (content) }
            }
        }
    }
}
