//! `olm events`.

use anyhow::{Context as _, anyhow};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use olm_api::names::{self, label};
use olm_api::{ClusterExtension, ClusterObjectSet, Time};

use super::{NONE, age, first_line, list, max_line};
use crate::extension::access::ClusterArguments;
use crate::extension::cluster::Cluster;
use crate::extension::lookup::others;
use crate::output::table::table;
use crate::output::{CommandResult, ObjectFormat, Status, note};

/// The namespace of events about objects without a namespace.
const NAMESPACE: &str = "default";

#[derive(Debug, Args)]
#[command(
    after_help = "Shows the events about a ClusterExtension and its revisions, the oldest first, also after it was deleted; without \
                  a name, those about all ClusterExtensions, revisions and ClusterCatalogs. The API server keeps events for an hour \
                  unless it is set up otherwise.\n\nExamples:\n  olm events\n  olm events greeter"
)]
pub(crate) struct Arguments {
    /// ClusterExtension to look at [default: all]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let found = match &arguments.extension {
        Some(name) => of_extension(&cluster, name)?,
        None => all(&cluster)?,
    };
    if found.is_empty() && arguments.output == ObjectFormat::Table {
        note("there are no events");
        return Ok(Status::Success);
    }
    let names = found
        .iter()
        .map(|event| format!("event/{}", event.metadata.name.as_deref().unwrap_or_default()));
    arguments.output.print(&list(&found, false)?, names, || {
        text(&found, Timestamp::now(), max_line())
    })?;
    Ok(Status::Success)
}

/// The events about an extension and its revisions; an error if there are none, nor an extension of that name.
fn of_extension(cluster: &Cluster, name: &str) -> anyhow::Result<Vec<Event>> {
    let found = events(cluster, name)?;
    if found.is_empty() && cluster.find(name)?.is_none() {
        let extensions: Api<ClusterExtension> = Api::all(cluster.client.clone());
        let error = anyhow!("there are no events about a ClusterExtension {name:?}");
        return Err(error.context(cluster.runtime.block_on(others(&extensions, name))));
    }
    Ok(found)
}

/// The events about all objects of ours, the oldest first.
fn all(cluster: &Cluster) -> anyhow::Result<Vec<Event>> {
    let mut found = Vec::new();
    for kind in [
        names::CLUSTER_EXTENSION,
        names::CLUSTER_OBJECT_SET,
        names::CLUSTER_CATALOG,
    ] {
        found.extend(selected(cluster, &format!("involvedObject.kind={kind}"))?);
    }
    found.sort_by_key(last_seen);
    Ok(found)
}

/// The events about an extension and its revisions, the oldest first.
pub(crate) fn events(cluster: &Cluster, name: &str) -> anyhow::Result<Vec<Event>> {
    let mut found = about(cluster, names::CLUSTER_EXTENSION, name)?;
    let sets: Api<ClusterObjectSet> = Api::all(cluster.client.clone());
    if let Some(selector) = label::selector(label::OWNER_NAME, name) {
        let labelled = ListParams::default().labels(&selector);
        let listed = cluster.runtime.block_on(sets.list(&labelled));
        let listed = listed.context("cannot list the revisions")?;
        for set in listed {
            found.extend(about(cluster, names::CLUSTER_OBJECT_SET, set.name())?);
        }
    }
    found.sort_by_key(last_seen);
    Ok(found)
}

fn about(cluster: &Cluster, kind: &str, name: &str) -> anyhow::Result<Vec<Event>> {
    selected(
        cluster,
        &format!("involvedObject.kind={kind},involvedObject.name={name}"),
    )
}

/// The events that a field selector selects.
fn selected(cluster: &Cluster, fields: &str) -> anyhow::Result<Vec<Event>> {
    let api: Api<Event> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let listed = cluster
        .runtime
        .block_on(api.list(&ListParams::default().fields(fields)));
    Ok(listed
        .with_context(|| format!("cannot list the events in namespace {NAMESPACE}"))?
        .items)
}

/// The last occurrence of an event: clients write it to different fields.
pub(crate) fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let moments = [
        series.map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
    ];
    moments.into_iter().flatten().next()
}

fn text(events: &[Event], now: Timestamp, max_line: usize) -> String {
    let rows: Vec<Vec<String>> = events
        .iter()
        .map(|event| {
            let cell = |text: Option<&str>| text.unwrap_or(NONE).to_owned();
            let about = &event.involved_object;
            let (kind, name) = (cell(about.kind.as_deref()), cell(about.name.as_deref()));
            vec![
                age(last_seen(event).map(Time).as_ref(), now),
                cell(event.type_.as_deref()),
                cell(event.reason.as_deref()),
                format!("{kind}/{name}"),
                first_line(event.message.as_deref().unwrap_or(NONE), max_line),
            ]
        })
        .collect();
    table(&["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"], &rows)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    #[test]
    fn a_row_has_time_reason_object_and_message() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let event = Event {
            type_: Some("Normal".to_owned()),
            reason: Some("Installed".to_owned()),
            message: Some("greeter.v1\x1b[2J".to_owned()),
            last_timestamp: Some(Time(at(10))),
            involved_object: ObjectReference {
                kind: Some("ClusterExtension".to_owned()),
                name: Some("greeter".to_owned()),
                ..ObjectReference::default()
            },
            ..Event::default()
        };
        assert_eq!(
            text(&[event], at(25), usize::MAX),
            "LAST SEEN  TYPE    REASON     OBJECT                    MESSAGE\n\
             15s        Normal  Installed  ClusterExtension/greeter  greeter.v1\\u001b[2J\n"
        );
    }
}
