//! Events of clients that watch.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, pin_mut};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{Config, Event, watcher};

use crate::content::Package;
use crate::stage::{CLUSTER, SOON, Stage};

/// Kills a process when it is dropped.
struct Kubectl(std::process::Child);

impl Drop for Kubectl {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn kubectl_watches_packages_come_change_and_go() {
    let scenario = async |stage: &Stage| {
        stage.namespace("watching")?;
        let first = Package::new("first", &["1.0.0"]);
        stage
            .serve("watching", "watched", std::slice::from_ref(&first))
            .await?;
        stage
            .shows(&["-n", "watching"], |table| table.contains("first"))
            .await?;
        let mut command = stage.lab.cluster.exec("kubectl");
        let arguments = [
            "get",
            "packagemanifests",
            "-n",
            "watching",
            "-l",
            "catalog=watched",
            "--watch",
        ];
        command
            .args(arguments)
            .args(["--output-watch-events", "--no-headers"]);
        let mut child = Kubectl(command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?);
        let output = child.0.stdout.take().context("no output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split_whitespace().take(2).collect();
                if sender.send(words.join(" ")).is_err() {
                    return;
                }
            }
        });
        let next = || lines.recv_timeout(SOON).context("kubectl says no more");
        ensure!(next()? == "ADDED first");
        let packages = [
            Package::new("first", &["1.0.0", "1.1.0"]),
            Package::new("second", &["1.0.0"]),
        ];
        stage.serve("watching", "watched", &packages).await?;
        let mut both = [next()?, next()?];
        both.sort();
        ensure!(both == ["ADDED second", "MODIFIED first"], "{both:?}");
        stage.serve("watching", "watched", &packages[1..]).await?;
        ensure!(next()? == "DELETED first");
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn a_watch_continues_from_a_list_and_one_from_elsewhere_is_expired() {
    let scenario = async |stage: &Stage| {
        stage.namespace("informed")?;
        stage
            .serve("informed", "told", &[Package::new("old", &["1.0.0"])])
            .await?;
        stage
            .shows(&["-n", "informed"], |table| table.contains("old"))
            .await?;
        let (api, selected) = (stage.packages("informed"), "catalog=told");
        let listed = api.list(&ListParams::default().labels(selected)).await?;
        let version = listed.metadata.resource_version.context("no resourceVersion")?;
        stage
            .serve("informed", "told", &[Package::new("new", &["1.0.0"])])
            .await?;
        let params = WatchParams::default().labels(selected).timeout(20);
        let events = api.watch(&params, &version).await?;
        let events: Vec<String> = events
            .take(2)
            .map_ok(|event| match event {
                WatchEvent::Added(object) => format!("added {}", object.metadata.name.unwrap_or_default()),
                WatchEvent::Deleted(object) => {
                    format!("deleted {}", object.metadata.name.unwrap_or_default())
                }
                other => format!("{other:?}"),
            })
            .try_collect()
            .await?;
        ensure!(events == ["added new", "deleted old"], "{events:?}");
        let expired = api.watch(&params, "12").await.err().context("not expired")?;
        ensure!(
            expired.to_string().contains("too old resource version"),
            "{expired}"
        );
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn controllers_keep_a_true_copy_with_and_without_streamed_lists() {
    let scenario = async |stage: &Stage| {
        stage.namespace("mirrored")?;
        stage
            .serve("mirrored", "copied", &[Package::new("kept", &["1.0.0"])])
            .await?;
        stage
            .shows(&["-n", "mirrored"], |table| table.contains("kept"))
            .await?;
        for config in [Config::default(), Config::default().streaming_lists()] {
            let events = watcher(stage.packages("mirrored"), config.labels("catalog=copied"));
            pin_mut!(events);
            let mut names = Vec::new();
            loop {
                let event = tokio::time::timeout(SOON, events.try_next()).await??;
                match event.context("the watch ends")? {
                    Event::InitApply(object) => names.push(object.metadata.name.unwrap_or_default()),
                    Event::InitDone => break,
                    Event::Init | Event::Apply(_) | Event::Delete(_) => {}
                }
            }
            ensure!(names == ["kept"], "{names:?}");
            let quiet = tokio::time::timeout(Duration::from_secs(1), events.try_next()).await;
            ensure!(quiet.is_err(), "{quiet:?}");
        }
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}
