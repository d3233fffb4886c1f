//! `indexignore`: which files belong to a catalog.

use olm_fbc::Ignore;
use serde_json::Value;

use crate::conformance::Outcome;

/// Compares the files that remain.
pub fn run(case: &Value) -> Outcome {
    let mut ignore = Ignore::new();
    for (path, text) in case
        .get("ignore_files")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        ignore.add(path, text.as_str().unwrap_or_default());
    }
    let strings = |list: Option<&Value>| -> Vec<String> {
        let list = list.and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut loaded = strings(case.get("other_paths"));
    loaded.retain(|path| !ignore.is_ignored(path));
    loaded.sort();
    let expected = strings(case.get("expect").and_then(|expect| expect.get("loaded_paths")));
    Outcome::compare("the files", &expected, &loaded)
}
