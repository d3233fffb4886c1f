//! The parts of a page about the content, requirements and permissions of a version.

use maud::{Markup, html};
use serde_json::Value;

use super::layout::badge;
use super::markdown::is_harmless;
use super::package::Package;
use super::release::{Permissions, Release, Rule};
use super::{facets, icons, package_path};

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
                None => p {
                    "The catalog does not list them. Once the extension exists, "
                    code { "olm rbac " (of.name) } " prints them."
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

/// The images of a version.
pub(super) fn images(release: &Release) -> Markup {
    html! {
        section id="images" {
            h2 { "Images" }
            dl class="images" {
                dt { "Bundle" } dd class="mono" { (release.image) }
            }
            @if !release.images.is_empty() {
                (table("Images", &["Name", "Image"], &release.images, |image| html! {
                    td { @if image.name.is_empty() { "—" } @else { (image.name) } } td class="mono" { (image.image) }
                }))
            }
        }
    }
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
        .take(30)
        .collect();
    let row = of.row(&release.name);
    let created = row.map_or("", |row| row.day());
    let repository = metadata.annotation("repository");
    html! {
        aside class="facts" aria-label="Facts" {
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
                (fact("Links", &html! { ul class="plain" { @for link in &links { li { (outside(text(link, "url"), text(link, "name"))) } } } }, !links.is_empty()))
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

/// The head of a page about a package or one of its versions.
pub(super) fn head(of: &Package, is_version: bool) -> Markup {
    let release = &of.release;
    let icon = of
        .has_icon
        .then(|| format!("{}/icon", package_path(&of.catalog, &of.name)));
    let publisher = release.metadata.text("/provider/name");
    html! {
        nav class="crumbs" aria-label="You are here" {
            ol {
                li { a href="/" { "Packages" } }
                li { a href={ "/?catalog=" (of.catalog) } { (of.catalog) } }
                @if is_version { li { a href=(package_path(&of.catalog, &of.name)) { (of.name) } } }
            }
        }
        div class="hero" {
            (icons::of_package(icon.as_deref(), of.title(), "large"))
            div {
                h1 { (of.title()) @if release.version.is_some() { " " span class="badge version" { (release.title()) } } }
                p class="about" {
                    code { (of.name) }
                    @if !publisher.is_empty() { span { (icons::symbol("person")) (publisher) } }
                    span { (icons::symbol("layers")) (of.catalog) }
                }
                @if !release.summary().is_empty() { p class="lead" { (release.summary()) } }
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
