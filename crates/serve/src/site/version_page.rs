//! The page of one version.

use maud::{Markup, html};
use olm_fbc::{Channel, ChannelEntry, SCHEMA_BUNDLE, SCHEMA_PACKAGE};
use olm_version::blang::Range;

use super::layout::{Frame, badge, deprecated, page};
use super::package::Package;
use super::package_page::about;
use super::release::Release;
use super::{details, install, package_path, version_path};

/// Names in a cell.
const MOST: usize = 20;

/// The page of a version: its installation, its place in channels, and its metadata.
pub(crate) fn version(of: &Package) -> Markup {
    let release = &of.release;
    let text = release.metadata.text("/description");
    let exact = release
        .version
        .as_ref()
        .map(|version| version.version.to_string());
    let content = html! {
        div class="page package" {
            (details::head(of, true))
            @if let Some(why) = of.deprecated(SCHEMA_BUNDLE, Some(&release.name)).or_else(|| of.deprecated(SCHEMA_PACKAGE, None)) {
                (deprecated(why))
            }
            (neighbours(of))
            (details::tabs(&[
                ("install", "Install", true),
                ("channels", "Updates", true),
                ("apis", "APIs", !release.provided.is_empty()),
                ("requirements", "Requires", !release.required.is_empty()),
                ("permissions", "Permissions", true),
                ("images", "Images", true),
                ("about", "About", !text.is_empty()),
            ]))
            div class="columns" {
                div class="text" {
                    (install::section(of, exact.as_deref()))
                    (channels(of, exact.is_some() && install::is_nameable(of)))
                    (details::apis(release))
                    (details::requirements(release))
                    (details::permissions(of))
                    (details::images(release))
                    @if !text.is_empty() { (about(text)) }
                }
                (details::facts(of))
            }
        }
    };
    let title = format!("{} {}", of.title(), release.title());
    let frame = Frame {
        title: &title,
        feed: Some(format!("{}/feed.xml", package_path(&of.catalog, &of.name))),
        ..Frame::default()
    };
    page(&frame, &content)
}

/// Links to the versions before and after.
fn neighbours(of: &Package) -> Markup {
    let at = of.bundles.iter().position(|row| row.name == of.release.name);
    let newer = at.and_then(|at| of.bundles.get(at.checked_sub(1)?));
    let older = at.and_then(|at| of.bundles.get(at + 1));
    let path = package_path(&of.catalog, &of.name);
    html! {
        nav class="neighbours" aria-label="Versions" {
            @if let Some(row) = older { a class="button small" rel="prev" href=(version_path(&of.catalog, &of.name, &row.name)) { "← " (row.title()) } }
            a class="button small" href={ (path) "/versions" } { "All versions" }
            @if let Some(row) = newer { a class="button small" rel="next" href=(version_path(&of.catalog, &of.name, &row.name)) { (row.title()) " →" } }
            @else { (badge("good", "newest")) }
        }
    }
}

/// The channels with the version, and the updates to and from it. `has_commands`: the page shows commands that install it.
fn channels(of: &Package, has_commands: bool) -> Markup {
    let name = of.release.name.as_str();
    let entries: Vec<(&Channel, &ChannelEntry)> = of
        .parts
        .channels
        .iter()
        .filter_map(|channel| Some((channel, channel.entries.iter().find(|entry| entry.name == name)?)))
        .collect();
    html! {
        section id="channels" {
            h2 { "Updates" }
            @if entries.is_empty() { (outside_channels(of, has_commands)) }
            @else {
                div class="scroll" tabindex="0" role="region" aria-label="Updates" {
                    table {
                        thead { tr { th scope="col" { "Channel" } th scope="col" { "Updates from" } th scope="col" { "Updates to" } } }
                        tbody {
                            @for (channel, entry) in &entries {
                                tr {
                                    td { strong { (channel.name) } @if channel.name == of.default_channel() { " " (badge("good", "default")) } }
                                    td {
                                        (names(of, entry.replaces().into_iter().chain(entry.skips.iter().map(String::as_str))))
                                        @if let Some(range) = entry.skip_range() { p class="mono" { (range) } }
                                    }
                                    td { (names(of, successors(channel, &of.release))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A version in no channel: resolution considers it where no channel is requested, and follows the edges of the
/// channels from it.
fn outside_channels(of: &Package, has_commands: bool) -> Markup {
    let onward: Vec<(&Channel, Vec<&str>)> = of
        .parts
        .channels
        .iter()
        .map(|channel| (channel, successors(channel, &of.release).collect::<Vec<_>>()))
        .filter(|(_, to)| !to.is_empty())
        .collect();
    html! {
        p {
            "No channel holds this version. An extension gets it only if " code { "spec.source.catalog.channels" }
            " is empty" @if has_commands { ", as with the commands above" } "."
        }
        @if onward.is_empty() { p { "No channel has an update from it." } }
        @for (channel, to) in onward {
            p { "Channel " strong { (channel.name) } " updates it to " (names(of, to.into_iter())) }
        }
    }
}

/// The bundles of a channel to which this one can be updated: they replace it, skip it, or have it in their range.
fn successors<'of>(channel: &'of Channel, release: &Release) -> impl Iterator<Item = &'of str> {
    let name = release.name.as_str();
    let version = release.version.as_ref().map(|version| &version.version);
    let is_in_range = move |entry: &ChannelEntry| {
        let range = entry.skip_range().and_then(|range| Range::parse(range).ok());
        range.is_some_and(|range| version.is_some_and(|version| range.contains(version)))
    };
    let entries = channel.entries.iter().filter(move |entry| entry.name != name);
    let to = entries.filter(move |entry| {
        entry.replaces() == Some(name)
            || entry.skips.iter().any(|skipped| skipped == name)
            || is_in_range(entry)
    });
    to.map(|entry| entry.name.as_str())
}

fn names<'of>(of: &Package, names: impl Iterator<Item = &'of str>) -> Markup {
    let names: Vec<&str> = names.collect();
    html! {
        @for name in names.iter().take(MOST) {
            @match of.row(name) {
                Some(row) => a class="mono item" href=(version_path(&of.catalog, &of.name, name)) { (row.title()) },
                None => span class="mono item" { (name) },
            }
            " "
        }
        @if names.len() > MOST { "and " (names.len() - MOST) " more" }
    }
}
