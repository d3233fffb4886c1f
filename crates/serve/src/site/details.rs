//! The parts of a page about the content, requirements and permissions of a version.

use maud::{Markup, html};
use olm_fbc::RelatedImage;
use serde_json::Value;

use super::icons::IconSize;
use super::layout::badge;
use super::markdown::is_harmless;
use super::package::{Package, day};
use super::release::{Permissions, Release, Rule};
use super::{facets, icons, install, package_path};

/// The number of rows of a table that are not collapsed.
const UNFOLDED: usize = 8;

/// The APIs that a version provides.
pub(super) fn apis(release: &Release) -> Markup {
    html! {
        @if !release.provided.is_empty() {
            section id="apis" {
                h2 { "Provided APIs " span class="number" { (release.provided.len()) } }
                ul class="apis" {
                    @for provided in &release.provided {
                        li {
                            h3 { (provided.api.kind) @if !provided.title.is_empty() && provided.title != provided.api.kind { " " span class="quiet" { (provided.title) } } }
                            p class="mono" { (provided.api.group) "/" (provided.api.version) }
                            @if !provided.about.is_empty() { p { (provided.about) } }
                        }
                    }
                }
            }
        }
    }
}

/// The requirements of a version.
pub(super) fn requirements(release: &Release) -> Markup {
    html! {
        @if !release.required.is_empty() {
            section id="requirements" {
                h2 { "Requires " span class="number" { (release.required.len()) } }
                (table("Requirements", &["What", "Requirement"], &release.required, |required| html! {
                    td { (required.what) } td class="mono" { (required.text) }
                }))
            }
        }
    }
}

/// The permissions of the operator of a version.
pub(super) fn permissions(of: &Package) -> Markup {
    let release = &of.release;
    html! {
        section id="permissions" {
            h2 { "Permissions" }
            @match &release.permissions {
                Some(Permissions { cluster, namespaces }) => {
                    @if cluster.is_empty() && namespaces.is_empty() { p { "The operator needs no permissions." } }
                    (rules("In the whole cluster", cluster))
                    (rules("In the namespaces that it watches", namespaces))
                }
                None => {
                    p { "The catalog does not list them. " code { "olm install" } " shows the least roles, and asks before it creates them." }
                    @if let Some(command) = install::roles(of) {
                        p { "This reads the bundle and prints the least roles, without a cluster:" }
                        (install::block("Command to print the least roles", &command))
                    }
                }
            }
        }
    }
}

fn rules(title: &str, rules: &[Rule]) -> Markup {
    html! {
        @if !rules.is_empty() {
            h3 { (title) }
            (table(title, &["API groups", "Resources", "Verbs"], rules, |rule| html! {
                td class="mono" { (rule.groups) } td class="mono" { (rule.resources) } td class="mono" { (rule.verbs) }
            }))
        }
    }
}

/// The images of a version: the bundle, and those of its workloads.
pub(super) fn images(release: &Release) -> Markup {
    let others = release.images.iter().filter(|image| image.image != release.image);
    let others: Vec<&RelatedImage> = others.collect();
    html! {
        section id="images" {
            h2 { "Images" }
            dl class="images" {
                dt { "Bundle" } dd class="mono" { (release.image) }
            }
            @if !others.is_empty() {
                (table("Images", &["Name", "Image"], &others, |image| html! {
                    td { (purpose(image)) } td class="mono" { (image.image) }
                }))
            }
        }
    }
}

/// The name of an image; without one, the last part of its repository.
fn purpose(image: &RelatedImage) -> &str {
    if !image.name.is_empty() {
        return &image.name;
    }
    let repository = image.image.split('@').next().unwrap_or_default();
    let last = repository.rsplit('/').next().unwrap_or_default();
    last.split(':').next().unwrap_or_default()
}

/// A table whose rows beyond the first are collapsed. `title` is its label for screen readers.
pub(super) fn table<T>(title: &str, heads: &[&str], rows: &[T], row: impl Fn(&T) -> Markup) -> Markup {
    let (first, rest) = rows.split_at(rows.len().min(UNFOLDED));
    let part = |title: &str, rows: &[T]| {
        html! {
            div class="scroll" tabindex="0" role="region" aria-label=(title) {
                table {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody { @for one in rows { tr { (row(one)) } } }
                }
            }
        }
    };
    html! {
        (part(title, first))
        @if !rest.is_empty() {
            details { summary { (rest.len()) " more" } (part(&format!("{title}, continued"), rest)) }
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A link to a web page; plain text for any other address.
fn outside(address: &str, shown: &str) -> Markup {
    html! {
        @if is_harmless(address) { a href=(address) rel="nofollow noreferrer noopener" { (shown) } }
        @else { (shown) }
    }
}

/// A link of the metadata, by its name if it has one.
fn named_link(link: &Value) -> Markup {
    let (address, name) = (text(link, "url"), text(link, "name"));
    let shown = if name.trim().is_empty() {
        short(address)
    } else {
        name
    };
    outside(address, shown)
}

/// An address without its common prefix.
fn short(address: &str) -> &str {
    let rest = address
        .strip_prefix("https://")
        .or_else(|| address.strip_prefix("http://"));
    rest.unwrap_or(address).trim_end_matches('/')
}

/// The facts in the side column.
pub(super) fn facts(of: &Package) -> Markup {
    let release = &of.release;
    let metadata = &release.metadata;
    let modes: Vec<&str> = metadata.install_modes().collect();
    let maintainers: Vec<&Value> = metadata.items("/maintainers").take(20).collect();
    let links: Vec<&Value> = metadata.items("/links").take(20).collect();
    let keywords: Vec<&str> = metadata
        .items("/keywords")
        .filter_map(Value::as_str)
        .filter(|word| !word.trim().is_empty())
        .take(30)
        .collect();
    let row = of.row(&release.name);
    let created = row.map_or("", |row| row.day());
    // Only the shown bundle is parsed; manifests in YAML have no date among the versions.
    let created = if created.is_empty() {
        day(metadata.annotation("createdAt"))
    } else {
        created
    };
    let repository = metadata.annotation("repository");
    html! {
        aside class="facts" id="facts" aria-label="Facts" {
            dl {
                (fact("Version", &html! { (release.title()) }, release.version.is_some()))
                (fact("Published", &html! { (created) }, !created.is_empty()))
                (fact("Capability level", &html! { (capability(metadata.annotation("capabilities"))) }, !metadata.annotation("capabilities").is_empty()))
                (fact("Install modes", &html! { ul class="plain" { @for mode in &modes { li { (facets::shown("installMode", mode)) } } } }, !modes.is_empty()))
                (fact("Kubernetes", &html! { (metadata.text("/minKubeVersion")) " or newer" }, !metadata.text("/minKubeVersion").is_empty()))
                (fact("OpenShift", &html! { "up to " (release.max_openshift) }, !release.max_openshift.is_empty()))
                (fact("Maturity", &html! { (metadata.text("/maturity")) }, !metadata.text("/maturity").is_empty()))
                (fact("Publisher", &html! { (metadata.text("/provider/name")) }, !metadata.text("/provider/name").is_empty()))
                (fact("Maintainers", &html! { ul class="plain" { @for one in &maintainers { li { (maintainer(one)) } } } }, !maintainers.is_empty()))
                (fact("Source", &html! { (outside(repository, short(repository))) }, !repository.is_empty()))
                (fact("Links", &html! { ul class="plain" { @for link in &links { li { (named_link(link)) } } } }, !links.is_empty()))
                (fact("Catalog", &html! { a href={ "/?catalog=" (of.catalog) } { (of.catalog) } }, true))
                (fact("Keywords", &html! {
                    ul class="words" { @for word in &keywords { li { a href={ "/?keyword=" (olm_api::serving::percent_encode(word)) } { (word) } } } }
                }, !keywords.is_empty()))
            }
            p class="feed" { a href={ (package_path(&of.catalog, &of.name)) "/feed.xml" } { (icons::symbol("feed")) "Feed of new versions" } }
        }
    }
}

fn fact(name: &str, value: &Markup, is_known: bool) -> Markup {
    html! { @if is_known { div { dt { (name) } dd { (value) } } } }
}

fn maintainer(one: &Value) -> Markup {
    let (name, email) = (text(one, "name"), text(one, "email"));
    let is_address = email.contains('@')
        && email
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'@' | b'.' | b'-' | b'_' | b'+'));
    let shown = if name.is_empty() { email } else { name };
    html! {
        @if is_address { a href={ "mailto:" (email) } { (shown) } }
        @else { (shown) }
    }
}

/// A capability level, with its position on the scale.
fn capability(level: &str) -> Markup {
    let at = facets::level(level);
    html! {
        (level)
        @if let Some(at) = at {
            span class="meter" role="img" aria-label={ "level " (at) " of 5" } {
                @for step in 1..=5 { span class=[(step <= at).then_some("on")] {} }
            }
        }
    }
}

/// Links to the parts of a page: of each the identifier, the title and whether the page has it. The facts are beside the
/// text on wide screens only.
pub(super) fn tabs(parts: &[(&str, &str, bool)]) -> Markup {
    html! {
        nav class="tabs" aria-label="On this page" {
            a class="narrow" href="#facts" { "Facts" }
            @for (id, title, _) in parts.iter().filter(|(.., is_there)| *is_there) {
                a href={ "#" (id) } { (title) }
            }
        }
    }
}

/// The head of a page about a package or one of its versions.
pub(super) fn head(of: &Package, is_version: bool) -> Markup {
    let release = &of.release;
    let icon = of
        .has_icon
        .then(|| format!("{}/icon", package_path(&of.catalog, &of.name)));
    let publisher = release.metadata.text("/provider/name");
    let summary = of.summary();
    html! {
        nav class="crumbs" aria-label="You are here" {
            ol {
                li { a href="/" { "Packages" } }
                li { a href={ "/?catalog=" (of.catalog) } { (of.catalog) } }
                @if is_version { li { a href=(package_path(&of.catalog, &of.name)) { (of.name) } } }
            }
        }
        div class="hero" {
            (icons::of_package(icon.as_deref(), of.title(), IconSize::Head))
            div {
                h1 { (of.title()) @if release.version.is_some() { " " span class="badge version" { (release.title()) } } }
                p class="about" {
                    code { (of.name) }
                    @if !publisher.is_empty() { span { (icons::symbol("person")) (publisher) } }
                    span { (icons::symbol("layers")) (of.catalog) }
                }
                @if !summary.is_empty() { p class="lead" { (summary) } }
                p class="badges" {
                    @for category in release.metadata.listed("categories").take(8) {
                        a class="badge" href={ "/?category=" (olm_api::serving::percent_encode(category)) } { (category) }
                    }
                    @if release.metadata.annotation("certified") == "true" { (badge("good", "certified")) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_image_is_listed_once_and_has_a_name() {
        let image = |name: &str, image: &str| RelatedImage {
            name: name.to_owned(),
            image: image.to_owned(),
        };
        let release = Release {
            image: "r.example/db-bundle:v1".to_owned(),
            images: vec![
                image("", "r.example/db-bundle:v1"),
                image("", "r.example:5000/org/db@sha256:00"),
                image("", "r.example/org/proxy:v2"),
                image("tool", "r.example/x:v1"),
            ],
            ..Release::default()
        };
        let page = images(&release).into_string();
        assert_eq!(page.matches("db-bundle").count(), 1, "{page}");
        for name in ["db", "proxy", "tool"] {
            assert!(page.contains(&format!("<td>{name}</td>")), "{name}: {page}");
        }
    }

    #[test]
    fn a_link_without_a_name_shows_its_address() {
        let link = serde_json::json!({"name": " ", "url": "https://docs.example/db/"});
        assert!(named_link(&link).into_string().ends_with(">docs.example/db</a>"));
    }
}
