//! The filters in the side column.

use maud::{Markup, html};

use super::icons;
use super::query_parameters::QueryParameters;
use crate::search_page::{Facet, FacetValue, Facets};

/// The number of values of a filter that are not collapsed; the others expand, up to [`ALL`]. A single one more is not
/// worth a click.
const SHOWN: usize = 7;
const ALL: usize = 60;
/// The capability levels, the lowest first.
const LEVELS: [&str; 5] = [
    "Basic Install",
    "Seamless Upgrades",
    "Full Lifecycle",
    "Deep Insights",
    "Auto Pilot",
];

/// The position of a capability level, from 1 to 5.
pub(super) fn level(name: &str) -> Option<usize> {
    let at = LEVELS.iter().position(|level| *level == name);
    at.map(|at| at + 1)
}

/// The heading of a filter by its parameter.
pub(super) fn title(parameter: &str) -> &'static str {
    match parameter {
        "catalog" => "Catalog",
        "category" => "Category",
        "installMode" => "Install mode",
        "api" => "Provided API",
        "capability" => "Capability level",
        "deprecated" => "Deprecated",
        "keyword" => "Keyword",
        _ => "Name",
    }
}

/// The static name of a parameter.
pub(super) fn known(parameter: &str) -> &'static str {
    let mut names = Facet::ALL.map(Facet::parameter).into_iter().chain(["keyword"]);
    names.find(|name| *name == parameter).unwrap_or("name")
}

/// The label of a value.
pub(super) fn shown<'a>(parameter: &str, value: &'a str) -> &'a str {
    match (parameter, value) {
        ("deprecated", "true") => "deprecated only",
        ("deprecated", "false") => "not deprecated",
        ("installMode", "OwnNamespace") => "Own namespace",
        ("installMode", "SingleNamespace") => "Single namespace",
        ("installMode", "MultiNamespace") => "Several namespaces",
        ("installMode", "AllNamespaces") => "All namespaces",
        (_, value) => value,
    }
}

/// All filters. Each value is a link that sets it, or removes it if it is set.
pub(super) fn aside(parameters: &QueryParameters, facets: &Facets) -> Markup {
    html! {
        aside id="filters" aria-label="Filters" {
            a class="skip" href="#results" { "Skip filters" }
            div class="filters-head" {
                h2 { "Filters" }
                a class="button small" href="#results" { "Done" }
            }
            @for facet in Facet::ALL {
                @let values = ordered(facet, facets);
                @let is_set = !parameters.get(facet.parameter()).is_empty();
                @if values.len() > 1 || is_set || facet == Facet::Api && !values.is_empty() {
                    (group(facet, parameters, &values))
                }
            }
        }
    }
}

/// The values of a filter in the order of the page: levels as they rise, all others by their number of packages.
fn ordered(facet: Facet, facets: &Facets) -> Vec<&FacetValue> {
    let mut values = facets.values(facet);
    if facet == Facet::Capability {
        values.sort_by_key(|value| level(&value.name).unwrap_or(usize::MAX));
    }
    values
}

fn group(facet: Facet, parameters: &QueryParameters, values: &[&FacetValue]) -> Markup {
    let parameter = facet.parameter();
    let set = parameters.get(parameter);
    // The set value is among the first.
    let (chosen, others): (Vec<&FacetValue>, Vec<&FacetValue>) = values
        .iter()
        .partition(|value| !set.is_empty() && value.name.eq_ignore_ascii_case(set));
    let mut first = others;
    let shown = if first.len() == SHOWN + 1 {
        SHOWN + 1
    } else {
        SHOWN
    };
    let rest = first.split_off(first.len().min(shown));
    let rest: Vec<&FacetValue> = rest.into_iter().take(ALL).collect();
    html! {
        section class="facet" {
            h3 { (title(parameter)) }
            @if facet == Facet::Api { (field(parameters, set)) }
            ul {
                @for value in chosen.iter().chain(&first) { li { (link(facet, parameters, value)) } }
            }
            @if !rest.is_empty() {
                details {
                    summary { (rest.len()) " more" span class="hidden" { " values of " (title(parameter)) } }
                    ul { @for value in &rest { li { (link(facet, parameters, value)) } } }
                }
            }
        }
    }
}

/// The input field for an API: there are too many for a list.
fn field(parameters: &QueryParameters, set: &str) -> Markup {
    html! {
        form action="/" {
            @for (key, value) in parameters.without("api") { input type="hidden" name=(key) value=(value); }
            label class="hidden" for="api" { "Kind or group of a provided API" }
            input id="api" name="api" value=(set) placeholder="Kind or group" autocomplete="off" spellcheck="false" maxlength="300";
            button class="small" { "Apply" }
        }
    }
}

fn link(facet: Facet, parameters: &QueryParameters, value: &FacetValue) -> Markup {
    let parameter = facet.parameter();
    let is_set = parameters.get(parameter).eq_ignore_ascii_case(&value.name);
    html! {
        a href=(parameters.with(parameter, (!is_set).then_some(&value.name))) aria-current=[is_set.then_some("true")] {
            span class="value" { (shown(parameter, &value.name)) }
            @if is_set { (icons::symbol("close")) span class="hidden" { "Remove" } }
            @else { span class="number" { (value.count) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_more_than_fits_is_shown_at_once() {
        let values: Vec<FacetValue> = (0..SHOWN + 2)
            .map(|number| FacetValue {
                name: format!("category {number}"),
                count: 1,
            })
            .collect();
        let more = |count: usize| {
            let values: Vec<&FacetValue> = values.iter().take(count).collect();
            group(Facet::Category, &QueryParameters::default(), &values).into_string()
        };
        assert!(!more(SHOWN + 1).contains("<summary>"));
        assert!(more(SHOWN + 2).contains("<summary>2 more"));
    }
}
