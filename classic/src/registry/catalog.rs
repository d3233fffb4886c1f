//! A stored catalog as the registry API shows it: read package by package, never as a whole.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::Arc;

use olm_classic::registry::{
    BundleMessage, ChannelEntryMessage, PackageMessage, Registry, RegistryError, SchemaQueryError,
    custom_schemas,
};
use olm_classic::resolve::EntryIndex;
use olm_fbc::index::Filter;
use olm_fbc::{Catalog, Gvk, SCHEMA_BUNDLE, SCHEMA_PACKAGE, property};
use olm_serve::Snapshot;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// Bytes of a package that are read from the disk at once.
const PIECE: u64 = 64 << 10;

/// A call fails.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It finds nothing.
    #[error(transparent)]
    Unknown(#[from] RegistryError),
    /// Its query is not possible.
    #[error(transparent)]
    Argument(#[from] SchemaQueryError),
    /// The disk fails.
    #[error("cannot read the catalog")]
    Read(#[from] io::Error),
}

/// A stored catalog. All functions block.
#[derive(Debug)]
pub struct StoredCatalog {
    snapshot: Arc<Snapshot>,
    /// The content of recent resolutions, and the time of the last one.
    listing: Mutex<Option<(Arc<EntryIndex>, Instant)>>,
}

/// Bundles that are read with their manifests.
#[derive(Debug, Clone, Copy)]
enum Manifests<'a> {
    All,
    /// Those without an image.
    Inline,
    Of(&'a str),
}

impl StoredCatalog {
    /// The catalog in stored content.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self {
            snapshot,
            listing: Mutex::new(None),
        }
    }

    /// The stored content.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The names of the packages, sorted.
    pub fn packages(&self) -> Vec<String> {
        let found = self.snapshot.index().iter();
        let mut names: Vec<String> = found
            .filter(|blob| blob.schema == SCHEMA_PACKAGE)
            .map(|blob| blob.name.to_owned())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// `GetPackage`.
    ///
    /// # Errors
    /// When there is no such package, or the disk fails.
    pub fn get_package(&self, name: &str) -> Result<PackageMessage, CallError> {
        let catalog = self.load(name, Manifests::Inline)?;
        Ok(Registry::new(&catalog).get_package(name)?)
    }

    /// `ListBundles` for one package.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn list_bundles(&self, package: &str) -> Result<Vec<BundleMessage>, CallError> {
        let catalog = self.load(package, Manifests::Inline)?;
        Ok(Registry::new(&catalog).list_bundles())
    }

    /// `GetBundle`.
    ///
    /// # Errors
    /// When there is no such bundle in the channel, or the disk fails.
    pub fn get_bundle(&self, package: &str, channel: &str, name: &str) -> Result<BundleMessage, CallError> {
        let catalog = self.load(package, Manifests::Of(name))?;
        Ok(Registry::new(&catalog).get_bundle(package, channel, name)?)
    }

    /// `GetBundleForChannel`.
    ///
    /// # Errors
    /// When there is no such channel, or the disk fails.
    pub fn get_bundle_for_channel(&self, package: &str, channel: &str) -> Result<BundleMessage, CallError> {
        let catalog = self.load(package, Manifests::All)?;
        Ok(Registry::new(&catalog).get_bundle_for_channel(package, channel)?)
    }

    /// `GetBundleThatReplaces`.
    ///
    /// # Errors
    /// When there is none, or the disk fails.
    pub fn get_bundle_that_replaces(
        &self,
        name: &str,
        package: &str,
        channel: &str,
    ) -> Result<BundleMessage, CallError> {
        let catalog = self.load(package, Manifests::All)?;
        Ok(Registry::new(&catalog).get_bundle_that_replaces(name, package, channel)?)
    }

    /// `GetChannelEntriesThatReplace`.
    ///
    /// # Errors
    /// When there is none, or the disk fails.
    pub fn entries_that_replace(&self, name: &str) -> Result<Vec<ChannelEntryMessage>, CallError> {
        self.collect(|registry| registry.entries_that_replace(name))
    }

    /// `GetChannelEntriesThatProvide`.
    ///
    /// # Errors
    /// When there is none, or the disk fails.
    pub fn entries_that_provide(&self, api: &Gvk) -> Result<Vec<ChannelEntryMessage>, CallError> {
        self.collect(|registry| registry.entries_that_provide(api))
    }

    /// `GetLatestChannelEntriesThatProvide`.
    ///
    /// # Errors
    /// When there is none, or the disk fails.
    pub fn latest_entries_that_provide(&self, api: &Gvk) -> Result<Vec<ChannelEntryMessage>, CallError> {
        self.collect(|registry| registry.latest_entries_that_provide(api))
    }

    /// `GetDefaultBundleThatProvides`.
    ///
    /// # Errors
    /// When there is none, or the disk fails.
    pub fn default_bundle_that_provides(&self, api: &Gvk) -> Result<BundleMessage, CallError> {
        let Gvk { group, version, kind } = api.clone();
        let mut missing = RegistryError::Providing(group, version, kind);
        for package in self.packages() {
            let catalog = self.load(&package, Manifests::All)?;
            match Registry::new(&catalog).default_bundle_that_provides(api) {
                Ok(found) => return Ok(found),
                // A head that is not that of a default channel counts for the error.
                Err(error @ RegistryError::Default(..)) => missing = error,
                Err(_) => {}
            }
        }
        Err(missing.into())
    }

    /// `ExperimentalListPackageCustomSchemas`.
    ///
    /// # Errors
    /// When the query is not one, or the disk fails.
    pub fn custom_schemas(
        &self,
        schema: &str,
        package: &str,
        is_acknowledged: bool,
    ) -> Result<Vec<Value>, CallError> {
        let mut catalog = Catalog::default();
        if is_acknowledged && !schema.is_empty() {
            let wanted = Filter {
                schema,
                package,
                name: "",
            };
            let ranges: Vec<Range<u64>> = self.snapshot.index().query(&wanted).collect();
            self.read(ranges, &mut catalog, Manifests::Inline)?;
        }
        Ok(custom_schemas(&catalog, schema, package, is_acknowledged)?)
    }

    /// Content for a resolution, kept for those that follow soon.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn listing(&self) -> Result<Arc<EntryIndex>, CallError> {
        let mut known = self.listing.lock();
        if let Some((listing, used)) = known.as_mut() {
            *used = Instant::now();
            return Ok(Arc::clone(listing));
        }
        let (mut bundles, mut packages) = (Vec::new(), BTreeMap::new());
        for name in self.packages() {
            let catalog = self.load(&name, Manifests::Inline)?;
            let registry = Registry::new(&catalog);
            packages.insert(name.clone(), registry.get_package(&name)?);
            bundles.extend(registry.list_bundles().into_iter().map(without_manifests));
        }
        let listing = Arc::new(EntryIndex::new(bundles, &packages));
        *known = Some((Arc::clone(&listing), Instant::now()));
        Ok(listing)
    }

    /// Forgets the content if no resolution has asked for it since that time.
    pub fn forget_listing(&self, since: Instant) {
        // Locked while it is made, that is: used.
        let Some(mut known) = self.listing.try_lock() else {
            return;
        };
        if known.as_ref().is_some_and(|(_, used)| *used < since) {
            *known = None;
        }
    }

    /// Results of a call in all packages together.
    fn collect(
        &self,
        call: impl Fn(&Registry<'_>) -> Result<Vec<ChannelEntryMessage>, RegistryError>,
    ) -> Result<Vec<ChannelEntryMessage>, CallError> {
        let (mut entries, mut missing) = (Vec::new(), None);
        for package in self.packages() {
            let catalog = self.load(&package, Manifests::Inline)?;
            match call(&Registry::new(&catalog)) {
                Ok(found) => entries.extend(found),
                Err(error) => missing = Some(error),
            }
        }
        match missing {
            Some(error) if entries.is_empty() => Err(error.into()),
            None if entries.is_empty() => {
                let catalog = Catalog::default();
                Ok(call(&Registry::new(&catalog))?)
            }
            _ => Ok(entries),
        }
    }

    /// The blobs of a package.
    fn load(&self, package: &str, manifests: Manifests<'_>) -> io::Result<Catalog> {
        let mut catalog = Catalog::default();
        if package.is_empty() {
            return Ok(catalog);
        }
        let own = Filter {
            schema: SCHEMA_PACKAGE,
            package: "",
            name: package,
        };
        let of = Filter {
            schema: "",
            package,
            name: "",
        };
        let index = self.snapshot.index();
        let ranges = index.query(&own).chain(index.query(&of)).collect();
        self.read(ranges, &mut catalog, manifests)?;
        Ok(catalog)
    }

    fn read(
        &self,
        ranges: Vec<Range<u64>>,
        catalog: &mut Catalog,
        manifests: Manifests<'_>,
    ) -> io::Result<()> {
        for range in ranges {
            let reader = BufReader::new(ChunkReader {
                snapshot: &self.snapshot,
                range,
                piece: io::Cursor::default(),
            });
            for meta in olm_fbc::metas(reader, &olm_fbc::meta::limits()) {
                // It could be read when it was stored.
                let meta = meta.map_err(|error| io::Error::other(error.to_string()))?;
                let is_bundle = meta.schema == SCHEMA_BUNDLE;
                if let Err(fault) = catalog.add_readable(meta) {
                    tracing::debug!(%fault, "a blob of a catalog is left out");
                    continue;
                }
                if let Some(bundle) = catalog.bundles.last_mut().filter(|_| is_bundle) {
                    let is_whole = match manifests {
                        Manifests::All => true,
                        Manifests::Inline => bundle.image.is_empty(),
                        Manifests::Of(name) => bundle.name == name,
                    };
                    if !is_whole {
                        let kept = bundle.properties.iter().filter(|found| {
                            found.kind != property::TYPE_BUNDLE_OBJECT
                                && found.kind != property::TYPE_CSV_METADATA
                        });
                        bundle.properties = kept.cloned().collect::<Vec<_>>().into();
                        bundle.related_images = Vec::new().into();
                    }
                }
            }
        }
        Ok(())
    }
}

/// A bundle as resolutions need it.
pub fn without_manifests(mut bundle: BundleMessage) -> BundleMessage {
    bundle.csv_json = String::new();
    bundle.object = Vec::new();
    bundle
}

/// Reads a stretch of stored content piece by piece.
struct ChunkReader<'a> {
    snapshot: &'a Snapshot,
    range: Range<u64>,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for ChunkReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.piece.read(into)?;
        if read > 0 || self.range.is_empty() {
            return Ok(read);
        }
        let end = self.range.end.min(self.range.start + PIECE);
        self.piece = io::Cursor::new(self.snapshot.read(self.range.start..end)?);
        self.range.start = end;
        self.piece.read(into)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_classic::resolve::Entry;
    use olm_serve::{Commit, Findings, Origin, Store, StoreLimits};
    use serde_json::json;

    use super::*;

    /// A package with a bundle that has an image and one that has its manifests inline.
    fn stored(folder: &std::path::Path) -> StoredCatalog {
        let metadata = json!({"type": "olm.csv.metadata", "value": {"displayName": "Db"}});
        let version = |version: &str| json!({"type": "olm.package", "value": {"packageName": "db", "version": version}});
        let blobs = [
            json!({"schema": "olm.package", "name": "db", "defaultChannel": "a"}),
            json!({"schema": "olm.channel", "package": "db", "name": "a", "entries": [
                {"name": "db.v1"}, {"name": "db.v2", "replaces": "db.v1"},
            ]}),
            json!({"schema": "olm.bundle", "package": "db", "name": "db.v1", "image": "r.example/db:1",
                   "properties": [version("1.0.0"), metadata]}),
            json!({"schema": "olm.bundle", "package": "db", "name": "db.v2", "properties": [version("2.0.0"), metadata]}),
        ];
        let store = Arc::new(Store::open(folder, StoreLimits::default()).unwrap());
        let mut writer = store.begin("db").unwrap();
        for blob in blobs {
            let [schema, package, name] =
                ["schema", "package", "name"].map(|key| blob[key].as_str().unwrap_or_default());
            writer
                .push(schema, package, name, blob.to_string().as_bytes())
                .unwrap();
        }
        let snapshot = writer.commit(Commit {
            origin: Origin::default(),
            findings: Findings::default(),
            modified: Timestamp::UNIX_EPOCH,
            now: Timestamp::UNIX_EPOCH,
        });
        StoredCatalog::new(snapshot.unwrap())
    }

    #[test]
    fn bundles_have_manifests_where_they_are_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = stored(folder.path());
        let sizes = |bundles: &[BundleMessage]| -> Vec<usize> {
            bundles.iter().map(|found| found.csv_json.len()).collect()
        };
        let listed = catalog.list_bundles("db").unwrap();
        assert!(
            matches!(sizes(&listed)[..], [0, inline] if inline > 0),
            "{listed:?}"
        );
        let listing = catalog.listing().unwrap();
        let inline = |entry: &Entry| entry.inline.as_ref().map(|bundle| bundle.csv_json.len());
        let inline: Vec<Option<usize>> = listing.entries().iter().map(inline).collect();
        assert_eq!(inline, [None, Some(0)]);
        assert!(listing.entries().iter().all(|entry| entry.is_default_channel));
        for name in ["db.v1", "db.v2"] {
            let whole = catalog.get_bundle("db", "a", name).unwrap();
            assert!(
                whole.csv_json.contains("\"displayName\":\"Db\""),
                "{}",
                whole.csv_json
            );
        }
    }

    #[test]
    fn what_resolutions_read_is_kept_until_none_asks_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = stored(folder.path());
        let first = catalog.listing().unwrap();
        assert!(Arc::ptr_eq(&first, &catalog.listing().unwrap()));
        catalog.forget_listing(Instant::now() - std::time::Duration::from_mins(1));
        assert!(Arc::ptr_eq(&first, &catalog.listing().unwrap()));
        catalog.forget_listing(Instant::now());
        assert!(!Arc::ptr_eq(&first, &catalog.listing().unwrap()));
    }
}
