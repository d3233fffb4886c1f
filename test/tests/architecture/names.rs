//! Every name once.

use std::collections::BTreeMap;

use olm_api::names;

use crate::tokens::{Token, production};
use crate::{Kind, crates, root, sources};

/// Texts about names that are no names.
const EXCEPT: &[(&str, &str)] = &[(
    "https://olm.operatorframework.io/docs/best-practices/channel-naming",
    "a page on the web",
)];

/// Labels, annotations, finalizers and types that begin with our API group stand in `api/src/names.rs` and nowhere else,
/// not even within a longer text.
#[test]
fn names_of_ours_stand_once() {
    let ours = format!("{}/", names::GROUP);
    let home = root().join("api/src/names.rs");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, manifest) in crates(&[Kind::Pure, Kind::Edge, Kind::Program]) {
        for (file, source) in sources(&manifest.folder.join("src")) {
            for token in production(&source) {
                let Token::Text(text) = token else { continue };
                if text.contains(&ours) && !EXCEPT.iter().any(|(except, _)| text.contains(except)) {
                    let place = if file == home {
                        String::new()
                    } else {
                        file.display().to_string()
                    };
                    found.entry(text).or_default().push(place);
                }
            }
        }
    }
    assert!(found.len() > 30, "only {} names were found", found.len());
    found.retain(|_, places| *places != [String::new()]);
    assert!(
        found.is_empty(),
        "these do not stand in api/src/names.rs alone: {found:#?}"
    );
}
