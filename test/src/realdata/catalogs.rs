//! Every real catalog loads, is stored unchanged, and is found by its index.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use olm_fbc::{
    Catalog, Checker, Filter, Ignore, IndexBuilder, Meta, canonical, ignore, meta, metas, walk_order,
};
use serde_json::Value;

use super::{Kind, guarded, walk};

/// Runs the catalogs below `dir/fbc`, each a folder or a file.
pub fn run(dir: &Path) -> Kind {
    let mut kind = Kind {
        name: "fbc",
        ..Kind::default()
    };
    let names: BTreeSet<String> = std::fs::read_dir(dir.join("fbc"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    for name in names {
        let case = format!("fbc/{name}");
        let outcome = guarded(|| examine(&dir.join(&case)));
        let outcome = outcome.map(|findings| {
            let label = if findings.is_empty() {
                "valid"
            } else {
                "loads, but is not valid"
            };
            for (rule, count) in findings {
                *kind.findings.entry(rule).or_default() += count;
            }
            label.to_owned()
        });
        kind.cases.push((case, outcome));
    }
    kind
}

/// Loads a catalog in all ways and returns the number of findings of each rule.
fn examine(root: &Path) -> Result<BTreeMap<String, usize>, String> {
    let files = files(root)?;
    let mut read = Read::default();
    for path in &files {
        read.file(root, path).map_err(|why| format!("{path}: {why}"))?;
    }
    if read.metas.is_empty() {
        return Err("there is no blob in it".to_owned());
    }
    check_index(&read.metas)?;
    check_written(&read.catalog)?;
    let mut counts = BTreeMap::new();
    for finding in read.checker.finish().findings {
        *counts.entry(finding.rule.id().to_owned()).or_default() += 1;
    }
    Ok(counts)
}

/// The files of a catalog in the order in which they are read, without the ignored ones.
pub(super) fn files(root: &Path) -> Result<Vec<String>, String> {
    if root.is_file() {
        return Ok(vec![String::new()]);
    }
    let walked = walk(root).map_err(|error| error.to_string())?;
    let mut files = walked.clone();
    files.sort_by(|left, right| walk_order(left, right));
    if files != walked {
        return Err("the order of files is not that of a walk".to_owned());
    }
    let mut ignored = Ignore::new();
    for path in files
        .iter()
        .filter(|path| path.rsplit('/').next() == Some(ignore::FILE_NAME))
    {
        let text = std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
        ignored.add(path, &text);
    }
    files.retain(|path| !ignored.is_ignored(path));
    Ok(files)
}

#[derive(Default)]
struct Read {
    metas: Vec<Meta>,
    catalog: Catalog,
    checker: Checker,
}

impl Read {
    /// Reads one file as blobs, by type, and as plain documents, and compares them.
    fn file(&mut self, root: &Path, path: &str) -> Result<(), String> {
        let open = || {
            let full = if path.is_empty() {
                root.to_path_buf()
            } else {
                root.join(path)
            };
            File::open(full)
                .map(BufReader::new)
                .map_err(|error| error.to_string())
        };
        let limits = meta::limits();
        let mut documents = olm_yaml::documents(open()?, &limits);
        for blob in metas(open()?, &limits) {
            let blob = blob.map_err(|error| format!("line {}: {error}", error.line))?;
            let document = documents
                .next()
                .ok_or("there are more blobs than documents")?
                .and_then(olm_yaml::Document::into_value)
                .map_err(|error| error.to_string())?;
            check_line(&blob, &document).map_err(|why| format!("line {}: {why}", blob.position))?;
            self.checker.add(path, &blob);
            self.catalog
                .add(blob.clone())
                .map_err(|error| format!("line {}: {error}", error.line()))?;
            self.metas.push(blob);
        }
        match documents.next() {
            Some(_) => Err("there are more documents than blobs".to_owned()),
            None => Ok(()),
        }
    }
}

/// Checks that the stored line is canonical, one line, and equal to the document.
fn check_line(blob: &Meta, document: &Value) -> Result<(), String> {
    if blob.line.is_empty() {
        return if document.is_null() {
            Ok(())
        } else {
            Err("a blob is not stored".to_owned())
        };
    }
    let json = blob.json();
    if json.contains('\n') || blob.line.len() != json.len() + 1 {
        return Err("the stored blob is not one line".to_owned());
    }
    if canonical(json) != json {
        return Err("the stored line is not canonical".to_owned());
    }
    let stored: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    if stored == *document {
        Ok(())
    } else {
        Err("the stored line does not say what the document says".to_owned())
    }
}

/// The index, written and read again, answers every question about a schema, a package or a name as a look at each
/// blob does.
fn check_index(metas: &[Meta]) -> Result<(), String> {
    let mut builder = IndexBuilder::new();
    for meta in metas {
        builder.add(&meta.schema, &meta.package, &meta.name, meta.line.len() as u64);
    }
    let built = builder.finish();
    let index = olm_fbc::Index::decode(&built.encode()).map_err(|error| error.to_string())?;
    if index.len() != metas.len() {
        return Err("the index does not hold every blob".to_owned());
    }
    let text: String = metas.iter().map(|meta| meta.line.as_str()).collect();
    let mut questions = BTreeSet::new();
    for meta in metas {
        questions.insert((meta.schema.as_str(), "", ""));
        questions.insert(("", meta.package.as_str(), ""));
        questions.insert((meta.schema.as_str(), meta.package.as_str(), meta.name.as_str()));
    }
    for (schema, package, name) in questions {
        let filter = Filter {
            schema,
            package,
            name,
        };
        let wanted = |asked: &str, found: &str| asked.is_empty() || asked == found;
        let expected: String = metas
            .iter()
            .filter(|meta| {
                wanted(schema, &meta.schema) && wanted(package, &meta.package) && wanted(name, &meta.name)
            })
            // Asked by package alone, a blob without a schema is left out.
            .filter(|meta| package.is_empty() || !name.is_empty() || !meta.schema.is_empty())
            .map(|meta| meta.line.as_str())
            .collect();
        let mut found = String::new();
        for range in index.query(&filter) {
            let bounds = usize::try_from(range.start)
                .ok()
                .zip(usize::try_from(range.end).ok());
            let part = bounds.and_then(|(start, end)| text.get(start..end));
            found.push_str(part.ok_or("the index points outside the catalog")?);
        }
        if found != expected {
            return Err(format!("the index answers {filter:?} wrongly"));
        }
    }
    Ok(())
}

/// A written catalog can be read, and is identical when written again, as JSON and as YAML.
fn check_written(catalog: &Catalog) -> Result<(), String> {
    for (form, write) in [
        ("JSON", olm_author::write::json as fn(&Catalog) -> String),
        ("YAML", olm_author::write::yaml),
    ] {
        let written = write(catalog);
        let mut again = Catalog::default();
        again
            .load(written.as_bytes(), &meta::limits())
            .map_err(|error| format!("written as {form}, line {}: {error}", error.line()))?;
        if write(&again) != written {
            return Err(format!("written as {form} and read again, it is another catalog"));
        }
    }
    Ok(())
}
