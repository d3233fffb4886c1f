//! Checks of the documentation: links resolve, names exist, manifests fit the API, generated pages are current.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_constraint::cel::{self, Budget, Program, Variable};
use olm_test::docs::{Page, generated, page, pages};
use olm_test::run::Shell;
use olm_test::world::repository;
use serde_json::{Value, json};

/// The kind of Open Cluster Management in the docs.
const REPLICA_SET: &str = "ManifestWorkReplicaSet";
const WIDTH: usize = 120;
const README_LINES: usize = 120;
/// Options of other programs that pages name in their text.
const OPTIONS_OF_OTHERS: &[&str] = &[
    "--all",
    "--cascade",
    "--help",
    "--insecure-ignore-tlog",
    "--new-bundle-format",
    "--use-signing-config",
];
/// Names in our group in manifests or the API, in addition to those in `names.rs`, and one that a prefix there begins.
const NAMES_ELSEWHERE: &[&str] = &["v1", "acknowledged-webhooks"];

/// The anchor of a heading, as GitHub and mdbook make it.
fn anchor(heading: &str) -> String {
    heading
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

fn anchors(page: &Page) -> BTreeSet<String> {
    let prose = page.prose();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

/// The targets of the links of a page.
fn links(page: &Page) -> Vec<String> {
    let prose = page.prose();
    // Code is not a link.
    let prose: String = prose.split('`').step_by(2).collect();
    let rest = prose.split("](").skip(1);
    rest.filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// A path without `..`; `None` if it leaves the repository.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => out.pop().then_some(())?,
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    Some(out)
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() -> Result<()> {
    let pages = pages()?;
    for page in &pages {
        let folder = page.path.parent().context("it is in a folder")?;
        for link in links(page) {
            if link.starts_with("https://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                page.path.clone()
            } else {
                let target = resolved(&folder.join(file));
                target.with_context(|| format!("{}: {link}", page.path.display()))?
            };
            if target.extension().is_some_and(|kind| kind == "png") {
                ensure!(
                    repository().join(&target).is_file(),
                    "{}: no picture {link}",
                    page.path.display()
                );
                continue;
            }
            let found = pages.iter().find(|page| page.path == target);
            let found = found.with_context(|| format!("{}: no page {link}", page.path.display()))?;
            ensure!(
                heading.is_empty() || anchors(found).contains(heading),
                "{}: no heading {link}",
                page.path.display()
            );
            // The site contains no other files.
            ensure!(
                !page.path.starts_with("docs") || target.starts_with("docs"),
                "{}: {link} is not on the site",
                page.path.display()
            );
        }
    }
    Ok(())
}

#[test]
fn the_summary_lists_every_page() -> Result<()> {
    let pages = pages()?;
    let summary = pages
        .iter()
        .find(|page| page.path == Path::new("docs/SUMMARY.md"))
        .context("the summary")?;
    let listed: BTreeSet<PathBuf> = links(summary)
        .iter()
        .map(|link| Path::new("docs").join(link))
        .collect();
    let there: BTreeSet<PathBuf> = pages
        .iter()
        .map(|page| page.path.clone())
        .filter(|path| path.starts_with("docs") && *path != summary.path)
        .collect();
    assert_eq!(listed, there);
    Ok(())
}

#[test]
fn lines_are_short_and_the_readme_too() -> Result<()> {
    for page in pages()? {
        for (number, line) in page.prose().lines().enumerate() {
            ensure!(
                line.starts_with('|') || line.chars().count() <= WIDTH,
                "{}:{}: {} characters",
                page.path.display(),
                number + 1,
                line.chars().count()
            );
        }
        if page.path == Path::new("README.md") {
            let lines = page.text.lines().count();
            ensure!(lines <= README_LINES, "README.md has {lines} lines");
        }
    }
    Ok(())
}

/// The manifests of a page: its YAML blocks, and the input of its kubectl commands.
fn manifests(page: &Page) -> Vec<String> {
    let blocks = page.blocks().into_iter();
    blocks
        .filter_map(|block| match block.mark.as_str() {
            "yaml" => Some(block.text),
            mark if mark.starts_with("sh") => {
                let (_, rest) = block.text.split_once("<<EOF\n")?;
                let (text, _) = rest.split_once("EOF\n")?;
                Some(text.replace("$REGISTRY", "registry.example"))
            }
            _ => None,
        })
        .collect()
}

/// Checks a value against a schema as far as manifests in docs need it: known fields, required ones, types, enums.
fn check(value: &Value, schema: &Value, path: &str) -> Result<()> {
    let wanted = schema["type"].as_str().unwrap_or_default();
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        _ => true,
    };
    ensure!(fits, "{path} is no {wanted}: {value}");
    if let Some(choices) = schema["enum"].as_array() {
        ensure!(choices.contains(value), "{path} cannot be {value}");
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        let name = required.as_str().context("a name")?;
        ensure!(value.get(name).is_some(), "{path} lacks {name}");
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return Ok(());
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let at = format!("{path}.{name}");
        let known = schema["properties"].get(name);
        let known = known.or_else(|| schema.get("additionalProperties"));
        check(
            member,
            known.with_context(|| format!("there is no field {at}"))?,
            &at,
        )?;
    }
    for item in value.as_array().into_iter().flatten() {
        check(item, &schema["items"], &format!("{path}[]"))?;
    }
    Ok(())
}

#[test]
fn manifests_fit_the_api() -> Result<()> {
    let definitions = olm_api::crd::files();
    let definitions = definitions.iter().map(|file| olm_yaml::to_json(&file.yaml));
    let definitions = definitions.collect::<Result<Vec<Value>, _>>()?;
    let mut checked = 0;
    for page in pages()? {
        for text in manifests(&page) {
            for document in text.split("\n---\n") {
                let place = || format!("{}:\n{document}", page.path.display());
                let object = olm_yaml::to_json(document).with_context(place)?;
                if object["apiVersion"] != olm_api::names::API_VERSION {
                    continue;
                }
                let definition = definitions
                    .iter()
                    .find(|definition| definition["spec"]["names"]["kind"] == object["kind"]);
                let schema =
                    &definition.with_context(place)?["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
                check(&object["spec"], &schema["properties"]["spec"], "spec").with_context(place)?;
                checked += 1;
            }
        }
    }
    ensure!(checked >= 6, "only {checked} manifests of ours were found");
    Ok(())
}

/// The words of a page that begin with `prefix`, as far as they consist of letters, digits, dots and hyphens.
fn words<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(prefix).map(move |(start, _)| {
        let rest = &text[start + prefix.len()..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.')
            .unwrap_or(rest.len());
        rest[..end].trim_end_matches(['.', '-'])
    })
}

#[test]
fn names_of_annotations_and_labels_exist() -> Result<()> {
    let names = ["api/src/names.rs", "crates/classic/src/names.rs"]
        .map(|path| std::fs::read_to_string(repository().join(path)));
    let names: String = names.into_iter().collect::<Result<_, _>>()?;
    let ours = format!("{}/", olm_api::names::GROUP);
    for page in pages()? {
        for name in words(&page.text, &ours).filter(|name| !name.is_empty()) {
            ensure!(
                names.contains(&format!("\"{ours}{name}\"")) || NAMES_ELSEWHERE.contains(&name),
                "{}: {ours}{name}",
                page.path.display()
            );
        }
    }
    Ok(())
}

/// The names of all fields below a schema, but for conditions and label selectors, which Kubernetes defines.
fn fields(schema: &Value, found: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        found.insert(name.clone());
        if !["conditions", "matchExpressions"].contains(&name.as_str()) {
            fields(field, found);
            fields(&field["items"], found);
        }
    }
}

#[test]
fn the_glossary_names_every_field_of_the_api() -> Result<()> {
    let page = page("concepts.md")?;
    let words: BTreeSet<&str> = page.text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    for file in olm_api::crd::files() {
        let definition: Value = olm_yaml::to_json(&file.yaml)?;
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let mut found = BTreeSet::new();
        for part in ["spec", "status"] {
            fields(&schema[part], &mut found);
        }
        ensure!(found.len() > 10, "{definition}");
        for field in found {
            ensure!(
                words.contains(field.as_str()),
                "{}: {field}",
                definition["spec"]["names"]["kind"]
            );
        }
    }
    Ok(())
}

/// The minor versions of Kubernetes that tests can run, from the oldest on: of each there is a Go module.
fn minors() -> Result<Vec<String>> {
    let cluster = repository().join("test/cluster");
    let mut minors = Vec::new();
    for entry in std::fs::read_dir(&cluster)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        minors.extend(name.strip_prefix("kubernetes-").map(str::to_owned));
    }
    let modules = std::fs::read_to_string(cluster.join("go.mod"))?;
    let (_, version) = modules
        .split_once("k8s.io/kubernetes v")
        .context("the module of the control plane")?;
    minors.push(version.split('.').take(2).collect::<Vec<_>>().join("."));
    minors.sort();
    Ok(minors)
}

#[test]
fn pages_name_the_kubernetes_that_the_tests_run() -> Result<()> {
    let minors = minors()?;
    let (oldest, newest) = (minors.first(), minors.last());
    let (oldest, newest) = oldest.zip(newest).context("no minor version")?;
    let tested = format!("tested with {oldest} to {newest}");
    let support = std::fs::read_to_string(repository().join("docs/reference/support.md"))?;
    for minor in &minors {
        let row = support
            .lines()
            .find(|line| line.starts_with("| 1.") && line.contains(minor));
        ensure!(
            row.is_some_and(|row| row.contains("tests")),
            "support.md: {minor}"
        );
    }
    for path in ["docs/how-to/install-olm.md", "README.md"] {
        let text = std::fs::read_to_string(repository().join(path))?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(text.contains(&tested), "{path} does not say {tested:?}");
    }
    Ok(())
}

/// The names of tests that a page names: `a_name_of_several_words`.
fn tests_of(page: &Page) -> BTreeSet<String> {
    let code = page.prose();
    let spans = code.split('`').skip(1).step_by(2);
    spans
        .filter(|span| span.matches('_').count() > 2)
        .filter(|span| {
            span.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn tests_that_pages_name_exist() -> Result<()> {
    let listed = Command::new("git")
        .args(["grep", "-hoE", r"\bfn [a-z_0-9]+", "--", "*.rs"])
        .current_dir(repository())
        .output()?;
    let functions = String::from_utf8(listed.stdout)?;
    let functions: BTreeSet<&str> = functions
        .lines()
        .filter_map(|line| line.strip_prefix("fn "))
        .collect();
    for path in ["design/security.md", "design/reliability.md"] {
        let named = tests_of(&page(path)?);
        ensure!(named.len() > 2, "{path} names {named:?}");
        let gone: Vec<&String> = named
            .iter()
            .filter(|name| !functions.contains(name.as_str()))
            .collect();
        ensure!(gone.is_empty(), "{path} names tests that do not exist: {gone:?}");
    }
    Ok(())
}

#[test]
fn options_and_make_verbs_exist() -> Result<()> {
    let pages = pages()?;
    let of = |path: &str| {
        let page = pages.iter().find(|page| page.path == Path::new(path));
        page.map(|page| {
            page.blocks()
                .into_iter()
                .map(|block| block.text)
                .collect::<String>()
        })
        .with_context(|| path.to_owned())
    };
    let known = of("docs/reference/olm.md")? + &of("docs/reference/managers.md")?;
    let makefile = std::fs::read_to_string(repository().join("Makefile"))?;
    for page in &pages {
        let prose = page.prose();
        for span in prose.split('`').skip(1).step_by(2) {
            let option = span.split([' ', '\n', '=', ',']).next().unwrap_or_default();
            let is_known = |option: &str| {
                known
                    .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                    .any(|word| word == option)
            };
            if option.starts_with("--") && option.is_ascii() {
                ensure!(
                    is_known(option) || OPTIONS_OF_OTHERS.contains(&option),
                    "{}: {option}",
                    page.path.display()
                );
            }
        }
        let commands: String = page
            .blocks()
            .into_iter()
            .filter(|block| block.mark.starts_with("sh"))
            .map(|block| block.text)
            .collect();
        let spans: String = prose
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|span| format!("{span}\n"))
            .collect();
        for line in spans.lines().chain(commands.lines()) {
            for verb in line
                .strip_prefix("make ")
                .into_iter()
                .flat_map(|rest| rest.split(' '))
            {
                if verb.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
                    ensure!(
                        makefile.contains(&format!("\n{verb}:")),
                        "{}: make {verb}",
                        page.path.display()
                    );
                }
            }
        }
    }
    Ok(())
}

/// The colours of a style sheet, such as `#1a1f29`.
fn colours(style: &str) -> BTreeSet<&str> {
    let values = style.split('#').skip(1);
    values
        .filter_map(|text| text.get(..6))
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .collect()
}

#[test]
fn the_documentation_has_the_colours_of_the_site() -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(repository().join(path));
    let site = read("crates/serve/src/site/style.css")?;
    let docs = read("docs/theme/olm.css")?;
    let (site, docs) = (colours(&site), colours(&docs));
    ensure!(docs.len() > 10, "only {docs:?}");
    let other: Vec<_> = docs.difference(&site).collect();
    ensure!(
        other.is_empty(),
        "crates/serve/src/site/style.css lacks {other:?}"
    );
    Ok(())
}

#[test]
fn pages_about_flags_are_the_generated_ones() -> Result<()> {
    for (path, text) in generated()? {
        let committed = std::fs::read_to_string(repository().join("docs").join(path))?;
        ensure!(committed == text, "docs/{path} differs: run `make crds`");
    }
    Ok(())
}

/// The object of a kind in the manifests of a page.
fn manifest(page: &Page, kind: &str) -> Result<Value> {
    for block in page.blocks().iter().filter(|block| block.mark == "yaml") {
        for document in olm_yaml::documents(block.text.as_bytes(), &olm_yaml::Limits::default()) {
            let value = document?.into_value()?;
            if value["kind"] == kind {
                return Ok(value);
            }
        }
    }
    anyhow::bail!("no {kind}")
}

#[test]
fn a_rollout_with_open_cluster_management_waits_until_objects_are_ready() -> Result<()> {
    let template = manifest(&page("how-to/fleet.md")?, REPLICA_SET)?["spec"]["manifestWorkTemplate"].take();
    let list = |value: &Value| value.as_array().cloned().context("a list");
    let manifests = list(&template["workload"]["manifests"])?;
    let configs = list(&template["manifestConfigs"])?;
    ensure!(manifests.len() == configs.len(), "{configs:?}");
    for (manifest, config) in manifests.iter().zip(&configs) {
        let (kind, of) = (
            manifest["kind"].as_str().context("a kind")?,
            &config["resourceIdentifier"],
        );
        ensure!(
            of["name"] == manifest["metadata"]["name"]
                && of["resource"] == format!("{}s", kind.to_lowercase()),
            "{of} is not about {manifest}"
        );
        let rule = &config["conditionRules"][0];
        ensure!(
            rule["type"] == "CEL" && rule["condition"] == "Progressing",
            "{rule}"
        );
        let text = rule["celExpressions"][0].as_str().context("an expression")?;
        // The evaluator knows a value out of JSON by this name.
        let program = Program::over(Variable::Predicate, &text.replace("object.", "predicate."))?;
        let ready = |status: &str, generation: u64| {
            let condition = json!({"type": "Ready", "status": status, "observedGeneration": generation});
            json!({"conditions": [{"type": "Other", "status": "True"}, condition]})
        };
        for (status, is_progressing) in [
            (Value::Null, true),
            (json!({}), true),
            (json!({"conditions": []}), true),
            (ready("False", 2), true),
            (ready("Unknown", 2), true),
            (ready("True", 1), true),
            (ready("True", 2), false),
        ] {
            let mut object = json!({"metadata": {"generation": 2}});
            if !status.is_null() {
                object["status"] = status;
            }
            let value = cel::Value::from_json(&object.to_string())?;
            let found = program.evaluate(&value, &mut Budget::new(10_000))?;
            ensure!(found == is_progressing, "{object}");
        }
    }
    Ok(())
}

#[test]
fn the_line_of_make_run_sets_all_variables_that_pages_use() -> Result<()> {
    let shell = Shell {
        kubeconfig: "/k".to_owned(),
        path: "/p:/q".to_owned(),
        registry: "127.0.0.1:1".to_owned(),
        authorities: "/ca".to_owned(),
    };
    let line = shell.export();
    assert_eq!(
        line,
        "export KUBECONFIG=/k PATH=/p:/q:$PATH REGISTRY=127.0.0.1:1 CA_DIR=/ca SSL_CERT_FILE=/ca/ca.crt"
    );
    let blocks = pages()?.into_iter().flat_map(|page| page.marked("sh cluster"));
    let mut used = 0;
    for block in blocks {
        for variable in block.split('$').skip(1) {
            let variable = variable.trim_start_matches(['{', '(']);
            let end = variable.find(|c: char| !c.is_ascii_uppercase() && c != '_');
            let variable = &variable[..end.unwrap_or(variable.len())];
            if !variable.is_empty() && !block.contains(&format!("{variable}=")) {
                assert!(
                    line.contains(&format!(" {variable}=")),
                    "{variable} is not set: {block}"
                );
                used += 1;
            }
        }
    }
    assert!(used > 5, "only {used} variables were found");
    Ok(())
}
