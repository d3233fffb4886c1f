//! Samples of an object at every write of its status, compared with the live objects.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, pin_mut};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use olm_api::names;
use olm_test::gitops::ask;
use serde_json::Value;
use tokio::sync::watch::Receiver;

/// The delay within which a healthy status must match the live objects.
const LAG: Duration = Duration::from_secs(2);
/// The delay within which a status must become healthy: a busy machine reports later.
const LATE: Duration = Duration::from_secs(10);
/// The pause between two checks of the live objects.
const LOOK: Duration = Duration::from_millis(100);

/// An object at a write of its status.
struct Sample {
    at: Instant,
    object: Value,
}

/// The observations of an object: its samples, and its health over time.
pub(crate) struct Observations {
    begun: Instant,
    object: Option<Value>,
    samples: Vec<Sample>,
    truth: Vec<(Instant, bool)>,
}

impl Default for Observations {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            object: None,
            samples: Vec::new(),
            truth: Vec::new(),
        }
    }
}

/// The kind of ClusterExtensions or the like.
pub(crate) fn resource(kind: &str) -> ApiResource {
    ApiResource {
        group: names::GROUP.to_owned(),
        version: names::VERSION.to_owned(),
        api_version: names::API_VERSION.to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

/// The objects to follow.
pub(crate) enum Which<'a> {
    /// The one with this name.
    Name(&'a str),
    /// All that have a label of this name and value.
    Label(&'a str, &'a str),
}

/// Follows objects of a kind until `stop`; returns the observations of each by name. `truth` computes from live objects
/// whether an object is healthy now, or was when it was deleted.
pub(crate) async fn follow(
    client: &Client,
    kind: &str,
    which: Which<'_>,
    truth: impl AsyncFn(&Value) -> Result<bool>,
    mut stop: Receiver<bool>,
) -> Result<BTreeMap<String, Observations>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
    let config = watcher::Config::default();
    let config = match which {
        Which::Name(name) => config.fields(&format!("metadata.name={name}")),
        Which::Label(label, value) => config.labels(&format!("{label}={value}")),
    };
    let events = watcher(api, config);
    pin_mut!(events);
    let mut followed = BTreeMap::<String, Observations>::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = tokio::time::sleep(LOOK) => None,
            _ = stop.wait_for(|stop| *stop) => return Ok(followed),
        };
        match event.transpose()? {
            Some(Event::Apply(now) | Event::InitApply(now)) => {
                let name = now.metadata.name.clone().unwrap_or_default();
                followed
                    .entry(name)
                    .or_default()
                    .sample(serde_json::to_value(&now)?);
            }
            Some(Event::Delete(gone)) => {
                let name = gone.metadata.name.unwrap_or_default();
                followed.entry(name).or_default().object = None;
            }
            Some(Event::Init | Event::InitDone) | None => {}
        }
        for seen in followed.values_mut() {
            let well = match &seen.object {
                Some(object) => truth(object).await?,
                None => false,
            };
            seen.truth.push((Instant::now(), well));
        }
    }
}

impl Observations {
    /// Records an object as a sample if its status has changed.
    fn sample(&mut self, now: Value) {
        let status = |object: &Value| object["status"].clone();
        if self.object.as_ref().map(status) != Some(status(&now)) {
            self.samples.push(Sample {
                at: Instant::now(),
                object: now.clone(),
            });
        }
        self.object = Some(now);
    }

    /// Prints a line for each sample and fails when a tool was wrong about one.
    #[expect(clippy::print_stdout, reason = "the table of samples is the outcome")]
    fn judge(&self, name: &str) -> Result<()> {
        let objects: Vec<Value> = self.samples.iter().map(|sample| sample.object.clone()).collect();
        let mut wrong = Vec::new();
        let mut table = format!("{name}: {} samples\n", objects.len());
        let mut healthy = 0;
        for (sample, said) in self.samples.iter().zip(ask(&objects)?) {
            let ready = sample.object["status"]["conditions"]
                .as_array()
                .and_then(|all| all.iter().find(|condition| condition["type"] == "Ready"));
            let word = |key: &str| ready.and_then(|ready| ready[key].as_str()).unwrap_or("-");
            let truth = self.around(sample.at, LAG);
            let line = format!(
                "{:7.2} s  {:5} {:24} kstatus {:11} Argo CD {:11} Flux {:11} live {}",
                sample.at.duration_since(self.begun).as_secs_f64(),
                word("status"),
                word("reason"),
                said.kstatus,
                said.argo.status,
                said.flux,
                if truth.iter().all(|well| *well) {
                    "well"
                } else if truth.iter().any(|well| *well) {
                    "changing"
                } else {
                    "not well"
                }
            );
            healthy += usize::from(said.healthy()[0]);
            table.push_str(&line);
            table.push('\n');
            let was_not_well = || self.around(sample.at, LATE).contains(&false);
            let is_right = |healthy: &bool| truth.contains(healthy) || (!healthy && was_not_well());
            if !said.healthy().iter().all(is_right) {
                wrong.push(format!("{line}\n{}", sample.object["status"]));
            }
        }
        println!(
            "{table}{name}: {healthy} of {} samples are healthy, {} wrong",
            objects.len(),
            wrong.len()
        );
        ensure!(
            wrong.is_empty(),
            "{name}: wrong samples:\n{}\n{table}",
            wrong.join("\n")
        );
        ensure!(!objects.is_empty(), "{name}: no samples");
        Ok(())
    }

    /// The health at the checks from `lag` before a time to the first check after it.
    fn around(&self, at: Instant, lag: Duration) -> Vec<bool> {
        let after = self.truth.iter().find(|(time, _)| *time >= at);
        let before = self
            .truth
            .iter()
            .filter(|(time, _)| *time < at && *time + lag >= at);
        before.chain(after).map(|(_, well)| *well).collect()
    }
}

/// Fails if a tool was wrong about a sample of one of the objects, or if there are no samples.
pub(crate) fn judge(followed: &BTreeMap<String, Observations>) -> Result<()> {
    ensure!(!followed.is_empty(), "nothing was seen");
    let judged: Vec<_> = followed.iter().map(|(name, seen)| seen.judge(name)).collect();
    judged.into_iter().collect()
}

/// The kstatus of an object, after it agrees with the live objects.
pub(crate) async fn settled(
    client: &Client,
    kind: &str,
    name: &str,
    truth: impl AsyncFn(&Value) -> Result<bool>,
    expected: &str,
) -> Result<Value> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
    let object = serde_json::to_value(api.get(name).await?)?;
    let well = truth(&object).await?;
    let said = ask(std::slice::from_ref(&object))?;
    let said = said.first().context("an answer")?;
    ensure!(
        said.kstatus == expected && said.healthy() == [well; 3],
        "{said:?} while all is {}well: {}",
        if well { "" } else { "not " },
        object["status"]
    );
    Ok(object)
}
