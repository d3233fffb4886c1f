//! The page of a package, and the one with all its versions.

use maud::{Markup, html};
use olm_fbc::{SCHEMA_CHANNEL, SCHEMA_PACKAGE, graph::head};

use super::layout::{Frame, badge, deprecated, page};
use super::package::{BundleMarks, Package, Row};
use super::{details, graph, icons, install, markdown, package_path, version_path};

/// Versions on the page of a package; the others have a page of their own.
const NEWEST: usize = 10;
/// The number of letters beyond which a description is collapsed.
const LONG: usize = 2_500;

/// The page of a package: its description, the commands to install it, and the data of its newest version.
pub(crate) fn package(of: &Package) -> Markup {
    let release = &of.release;
    let path = package_path(&of.catalog, &of.name);
    let text = release.metadata.text("/description");
    let text = if text.is_empty() { &of.description } else { text };
    let content = html! {
        div class="page package" {
            (details::head(of, false))
            @if let Some(why) = of.deprecated(SCHEMA_PACKAGE, None) { (deprecated(why)) }
            (tabs(of))
            div class="columns" {
                div class="text" {
                    (install::section(of, None))
                    (about(text))
                    (channels(of))
                    (graph::section(of, graph::NEWEST))
                    section id="versions" {
                        h2 { "Versions " span class="number" { (of.bundles.len()) @if of.omitted { "+" } } }
                        (table(of, &of.bundles, NEWEST))
                        @if of.bundles.len() > NEWEST {
                            p { a class="button" href={ (path) "/versions" } { "All " (of.bundles.len()) " versions" } }
                        }
                    }
                    (details::apis(release))
                    (details::requirements(release))
                    (details::permissions(of))
                    (details::images(release))
                }
                (details::facts(of))
            }
        }
    };
    page(&frame(of, of.title(), &path), &content)
}

fn frame<'of>(of: &'of Package, title: &'of str, path: &str) -> Frame<'of> {
    Frame {
        title,
        feed: (!of.bundles.is_empty()).then(|| format!("{path}/feed.xml")),
        ..Frame::default()
    }
}

/// The page with all versions.
pub(crate) fn versions(of: &Package) -> Markup {
    let path = package_path(&of.catalog, &of.name);
    let content = html! {
        div class="page" {
            (details::head(of, true))
            (graph::section(of, graph::ROWS))
            section id="versions" {
                h2 { "Versions " span class="number" { (of.bundles.len()) @if of.omitted { "+" } } }
                (table(of, &of.bundles, usize::MAX))
                @if of.omitted { p { "There are more versions than this page shows." } }
            }
        }
    };
    let title = format!("Versions of {}", of.title());
    page(&frame(of, &title, &path), &content)
}

fn tabs(of: &Package) -> Markup {
    let release = &of.release;
    details::tabs(&[
        ("install", "Install", true),
        ("about", "About", true),
        ("channels", "Channels", true),
        ("updates", "Update graph", !of.parts.channels.is_empty()),
        ("versions", "Versions", true),
        ("apis", "APIs", !release.provided.is_empty()),
        ("requirements", "Requires", !release.required.is_empty()),
        ("permissions", "Permissions", true),
        ("images", "Images", true),
    ])
}

/// The description; a long one unfolds.
pub(super) fn about(text: &str) -> Markup {
    html! {
        section id="about" class="prose" {
            h2 { "About" }
            @if text.trim().is_empty() { p class="quiet" { "The catalog does not describe it." } }
            @else if text.len() > LONG {
                details class="long" {
                    summary { span class="more" { "Show all" } span class="less" { "Show less" } }
                    (markdown::render(text))
                }
            }
            @else { (markdown::render(text)) }
        }
    }
}

fn channels(of: &Package) -> Markup {
    html! {
        section id="channels" {
            h2 { "Channels " span class="number" { (of.parts.channels.len()) } }
            (details::table("Channels", &["Channel", "Newest", "Versions"], &of.parts.channels, |channel| html! {
                td {
                    strong { (channel.name) }
                    @if channel.name == of.default_channel() { " " (badge("good", "default")) }
                    @if let Some(why) = of.deprecated(SCHEMA_CHANNEL, Some(&channel.name)) {
                        " " (badge("warn", "deprecated")) p class="why" { (why) }
                    }
                }
                td {
                    @if let Ok(head) = head(&channel.entries) {
                        @match of.row(&head.name) {
                            Some(row) => a class="mono" href=(version_path(&of.catalog, &of.name, &row.name)) { (row.title()) },
                            None => span class="mono" { (head.name) },
                        }
                    } @else { "several heads" }
                }
                td { (channel.entries.len()) }
            }))
        }
    }
}

/// The table of versions, with at most `most` rows.
fn table(of: &Package, rows: &[Row], most: usize) -> Markup {
    let marks = BundleMarks::of(of);
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Versions" {
            table class="versions" {
                thead { tr { th scope="col" { "Version" } th scope="col" { "Published" } th scope="col" { "Channels" } th scope="col" { "Bundle" } } }
                tbody {
                    @for row in rows.iter().take(most) {
                        tr {
                            td {
                                a class="mono" href=(version_path(&of.catalog, &of.name, &row.name)) { (row.title()) }
                                @if let Some(why) = marks.deprecated.get(row.name.as_str()) {
                                    " " (badge("warn", "deprecated")) p class="why" { (why) }
                                }
                            }
                            td class="nowrap" { (row.day()) }
                            td { (marks.channels(&row.name)) }
                            td class="mono" { (row.name) }
                        }
                    }
                }
            }
        }
        @if rows.is_empty() { p class="quiet" { (icons::symbol("package")) "The catalog has no bundle of this package." } }
    }
}
