//! Both managers behind proxies, and packages under ever new names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use olm_test::extensions::catalog;
use olm_test::faults::{Plan, Proxy};
use olm_test::samples;
use olm_test::world::{Lab, Options, World};

use super::state::CATALOG;
use super::truth::Truth;
use super::workloads::Target;

/// The number of packages in one catalog.
const PACKAGES: usize = 20;
/// The versions of each.
const VERSIONS: &[&str] = &["1.0.0", "1.0.1", "1.1.0"];

/// Both managers behind proxies.
pub(crate) struct Stage {
    pub(crate) world: World,
    operator_controller: Proxy,
    catalogd: Proxy,
    pub(crate) truth: Arc<Truth>,
    /// The number of assigned names.
    count: usize,
    /// The number of catalogs with many packages.
    catalogs: usize,
    /// Published and not used yet.
    packages: VecDeque<String>,
    /// The catalog of each package without its own.
    places: BTreeMap<String, String>,
}

impl Stage {
    pub(crate) async fn start() -> Result<Self> {
        let lab = Lab::with_manifests("manifests/base").await?;
        let truth = Arc::new(Truth::new(lab.client.clone()));
        let operator_controller = Proxy::start(&lab.cluster, Arc::clone(&truth).observer()).await?;
        let catalogd = Proxy::start(&lab.cluster, Arc::clone(&truth).observer()).await?;
        let options = Options {
            catalogd_server: Some(catalogd.url().to_owned()),
            operator_controller_server: Some(operator_controller.url().to_owned()),
            ..Options::default()
        };
        Ok(Self {
            world: World::over(lab, options).await?,
            operator_controller,
            catalogd,
            truth,
            count: 0,
            catalogs: 0,
            packages: VecDeque::new(),
            places: BTreeMap::new(),
        })
    }

    pub(crate) fn proxy(&self, target: Target) -> &Proxy {
        match target {
            Target::OperatorController => &self.operator_controller,
            Target::Catalogd => &self.catalogd,
        }
    }

    pub(crate) fn proxies(&self) -> [&Proxy; 2] {
        [&self.operator_controller, &self.catalogd]
    }

    /// Stops all faults.
    pub(crate) fn calm(&self) {
        for proxy in self.proxies() {
            proxy.follow(Plan::default());
        }
    }

    /// A name that no extension had before, all of one length.
    pub(crate) fn name(&mut self) -> String {
        self.count += 1;
        format!("fault-{:04}", self.count)
    }

    /// The name of a published package.
    pub(crate) async fn package(&mut self) -> Result<String> {
        if self.packages.is_empty() {
            self.publish_more().await?;
        }
        self.packages.pop_front().context("no package is left")
    }

    async fn publish_more(&mut self) -> Result<()> {
        let names: Vec<String> = (0..PACKAGES).map(|_| self.name()).collect();
        let world = &self.world;
        let pushed = names
            .iter()
            .map(|name| world.push_bundles(name, VERSIONS, samples::OPERATOR_IMAGE));
        let blobs: Vec<String> = stream::iter(pushed).buffered(4).try_collect().await?;
        self.catalogs += 1;
        let place = format!("{CATALOG}{}", self.catalogs);
        let reference = world
            .push_catalog(&format!("{place}:latest"), &blobs.concat())
            .await?;
        world.apply(&[catalog(&place, &reference)])?;
        let own = format!("clustercatalog/{place}");
        world.kubectl(&["wait", "--for=condition=Serving", "--timeout=120s", &own])?;
        for name in &names {
            self.places.insert(name.clone(), place.clone());
        }
        self.packages.extend(names);
        Ok(())
    }

    /// The catalog with a package. Extensions select it: others come and go with other runs.
    pub(crate) fn catalog_of<'a>(&'a self, package: &'a str) -> &'a str {
        self.places.get(package).map_or(package, String::as_str)
    }

    /// Ends a manager that is to die and starts it again.
    pub(crate) fn revive(&mut self) -> Result<()> {
        if self.operator_controller.has_crashed() {
            self.world.operator_controller.kill();
            self.operator_controller.recover();
            self.world.start_operator_controller()?;
        }
        if self.catalogd.has_crashed() {
            self.world.catalogd.kill();
            self.catalogd.recover();
            self.world.start_catalogd()?;
        }
        Ok(())
    }

    /// Waits a moment, not longer than until a manager is to die.
    pub(crate) async fn pause(&self, time: Duration) {
        tokio::select! {
            () = self.operator_controller.crash() => {}
            () = self.catalogd.crash() => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}
