//! Reads of clients.

use std::time::Instant;

use anyhow::{Result, ensure};
use kube::api::ListParams;
use serde_json::Value;

use crate::content::{PICTURE, Package};
use crate::stage::{CLUSTER, Stage, source};

/// The rows of a table without its head, each as its columns.
fn rows(table: &str) -> Vec<Vec<&str>> {
    let rows = table.lines().skip(1);
    rows.map(|row| row.split_whitespace().collect()).collect()
}

fn raw(stage: &Stage, path: &str) -> Result<String> {
    let path = format!("/apis/packages.operators.coreos.com/v1{path}");
    stage.lab.kubectl(&["get", "--raw", &path])
}

#[test]
fn kubectl_lists_the_packages_of_a_namespace_and_those_of_all() {
    let scenario = async |stage: &Stage| {
        stage.namespace("reading")?;
        stage
            .serve("olm", "everybody", &[Package::new("shared", &["1.0.0"])])
            .await?;
        let own = [
            Package::new("own", &["1.0.0"]),
            Package::new("second", &["1.0.0"]),
        ];
        stage.serve("reading", "mine", &own).await?;
        let table = stage
            .shows(&["-n", "reading"], |table| {
                table.contains("own") && table.contains("shared")
            })
            .await?;
        ensure!(table.starts_with("NAME"), "{table}");
        let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
        ensure!(head == ["NAME", "CATALOG", "AGE"], "{table}");
        let found = rows(&table).into_iter().find(|row| row[0] == "own").unwrap();
        ensure!(found[1..3] == ["Catalog", "mine"], "{table}");
        let all = stage.shows(&["-A"], |table| table.contains("own")).await?;
        let own = rows(&all).into_iter().find(|row| row[1] == "own").unwrap();
        ensure!(own[0] == "reading", "{all}");
        let shared = rows(&all).into_iter().find(|row| row[1] == "shared").unwrap();
        ensure!(shared[0] == "olm", "{all}");
        let elsewhere = stage
            .shows(&["-n", "default", "-o", "wide"], |table| table.contains("shared"))
            .await?;
        ensure!(!elsewhere.contains("second"), "{elsewhere}");
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn packages_are_selected_by_label_and_name() {
    let scenario = async |stage: &Stage| {
        stage.namespace("selecting")?;
        let packages = ["first", "second"].map(|name| Package::new(name, &["1.0.0"]));
        stage.serve("selecting", "chosen", &packages).await?;
        stage
            .serve("selecting", "other", &[Package::new("third", &["1.0.0"])])
            .await?;
        let ready = |table: &str| table.contains("first") && table.contains("third");
        stage.shows(&["-n", "selecting"], ready).await?;
        let names = |arguments: &[&str]| -> Result<Vec<String>> {
            let all = [
                &["get", "packagemanifests", "-n", "selecting", "-o", "name"],
                arguments,
            ]
            .concat();
            let names = stage.lab.kubectl(&all)?;
            Ok(names
                .lines()
                .filter_map(|name| Some(name.split_once('/')?.1.to_owned()))
                .collect())
        };
        ensure!(names(&["-l", "catalog=chosen"])? == ["first", "second"]);
        ensure!(names(&["-l", "catalog in (other),team=other"])? == ["third"]);
        ensure!(names(&["-l", "catalog-namespace=selecting,catalog!=chosen"])? == ["third"]);
        ensure!(names(&["--field-selector", "metadata.name=second"])? == ["second"]);
        let refused = names(&["--field-selector", "status.x=y"])
            .unwrap_err()
            .to_string();
        ensure!(
            refused.contains("field label not supported: status.x"),
            "{refused}"
        );
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn a_package_says_what_can_be_installed_and_shows_its_picture() {
    let scenario = async |stage: &Stage| {
        stage.namespace("single")?;
        let package = Package::new("pictured", &["1.0.0", "1.1.0"]).with_picture();
        let bare = Package::new("bare", &["1.0.0"]);
        stage.serve("single", "one", &[package, bare]).await?;
        stage
            .shows(&["-n", "single"], |table| table.contains("pictured"))
            .await?;
        let json =
            stage
                .lab
                .kubectl(&["get", "packagemanifest", "pictured", "-n", "single", "-o", "json"])?;
        let found: Value = serde_json::from_str(&json)?;
        ensure!(found["status"]["catalogSource"] == "one", "{found}");
        ensure!(found["metadata"]["namespace"] == "single", "{found}");
        let channel = &found["status"]["channels"][0];
        ensure!(channel["currentCSV"] == "pictured.v1.1.0", "{channel}");
        ensure!(
            channel["currentCSVDesc"]["displayName"] == "The pictured",
            "{channel}"
        );
        ensure!(channel["entries"][0]["version"] == "1.1.0", "{channel}");
        ensure!(channel["currentCSVDesc"].get("icon").is_none(), "{channel}");
        let missing = stage
            .lab
            .kubectl(&["get", "packagemanifest", "nothing", "-n", "single"]);
        let missing = missing.unwrap_err().to_string();
        let expected = "packagemanifests.packages.operators.coreos.com \"nothing\" not found";
        ensure!(missing.contains(expected), "{missing}");
        let icon = raw(stage, "/namespaces/single/packagemanifests/pictured/icon")?;
        ensure!(icon.as_bytes() == PICTURE, "{icon}");
        let icon = raw(stage, "/namespaces/single/packagemanifests/bare/icon")?;
        ensure!(icon.starts_with("<svg"), "{icon}");
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn kubectl_discovers_and_explains_the_api() {
    let scenario = async |stage: &Stage| {
        let found = stage.lab.kubectl(&[
            "api-resources",
            "--api-group=packages.operators.coreos.com",
            "-o",
            "wide",
            "--no-headers",
        ])?;
        let columns: Vec<&str> = found.split_whitespace().collect();
        ensure!(
            columns[0] == "packagemanifests" && columns[2] == "true",
            "{found}"
        );
        ensure!(
            columns[3] == "PackageManifest" && columns[4] == "get,list,watch",
            "{found}"
        );
        let explained = olm_test::world::eventually("kubectl explain", crate::stage::SOON, async || {
            let explained = stage
                .lab
                .kubectl(&["explain", "packagemanifests.status.channels.currentCSV"])?;
            Ok(Some(explained))
        });
        let explained = explained.await?;
        ensure!(explained.contains("head of the channel"), "{explained}");
        let resources: Value = serde_json::from_str(&raw(stage, "")?)?;
        ensure!(
            resources["resources"][1]["name"] == "packagemanifests/icon",
            "{resources}"
        );
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn packages_come_and_go_with_their_catalog_and_no_catalog_disturbs_another() {
    let scenario = async |stage: &Stage| {
        stage.namespace("broken")?;
        stage.lab.apply(&[source("broken", "lost", "127.0.0.1:1")])?;
        stage
            .serve("broken", "flaky", &[Package::new("steady", &["1.0.0"])])
            .await?;
        stage
            .shows(&["-n", "broken"], |table| table.contains("steady"))
            .await?;
        stage
            .connection("broken", "flaky", "TRANSIENT_FAILURE", 2)
            .await?;
        let of_flaky = ["-n", "broken", "-l", "catalog=flaky"];
        stage.shows(&of_flaky, |table| !table.contains("steady")).await?;
        stage.connection("broken", "flaky", "READY", 3).await?;
        stage.shows(&of_flaky, |table| table.contains("steady")).await?;
        stage.delete("broken", "flaky")?;
        stage.shows(&of_flaky, |table| !table.contains("steady")).await?;
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn of_several_packages_with_one_name_that_of_the_own_namespace_is_got() {
    let scenario = async |stage: &Stage| {
        stage.namespace("twice")?;
        stage
            .serve("olm", "common", &[Package::new("twin", &["1.0.0"])])
            .await?;
        stage
            .serve("twice", "near", &[Package::new("twin", &["2.0.0"])])
            .await?;
        stage
            .shows(&["-n", "twice", "-l", "catalog in (common,near)"], |table| {
                table.matches("twin").count() == 2
            })
            .await?;
        let near = stage.packages("twice").get("twin").await?;
        ensure!(near.data["status"]["catalogSource"] == "near", "{:?}", near.data);
        let common = stage.packages("default").get("twin").await?;
        ensure!(
            common.data["status"]["catalogSource"] == "common",
            "{:?}",
            common.data
        );
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn three_hundred_packages_are_listed_at_once() {
    let scenario = async |stage: &Stage| {
        stage.namespace("many")?;
        let packages: Vec<Package> = (0..300)
            .map(|number| Package {
                description: 20_000,
                ..Package::new(&format!("package-{number:03}"), &["1.0.0", "1.1.0"])
            })
            .collect();
        stage.serve("many", "large", &packages).await?;
        stage
            .shows(&["-n", "many", "-l", "catalog=large"], |table| {
                table.lines().count() == 301
            })
            .await?;
        let of_large = ListParams::default().labels("catalog=large");
        let begin = Instant::now();
        let bytes = raw(
            stage,
            "/namespaces/many/packagemanifests?labelSelector=catalog%3Dlarge",
        )?
        .len();
        println!(
            "300 packages, {bytes} bytes, through kubectl: {:?}",
            begin.elapsed()
        );
        let begin = Instant::now();
        let listed = stage.packages("many").list(&of_large).await?;
        println!("300 packages through the API server: {:?}", begin.elapsed());
        ensure!(listed.items.len() == 300, "{}", listed.items.len());
        let version = listed.metadata.resource_version.unwrap_or_default();
        ensure!(version.parse::<u64>().is_ok(), "{version}");
        let partial = stage.packages("many").list_metadata(&of_large).await?;
        ensure!(partial.items.len() == 300, "{}", partial.items.len());
        let pid = stage.server.pid().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let memory = status.lines().find(|line| line.starts_with("VmRSS"));
        println!("memory of the program: {}", memory.unwrap_or_default());
        stage.delete("many", "large")
    };
    CLUSTER.with(scenario).unwrap();
}
