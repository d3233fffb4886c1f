//! `olm trust-root update` against a TUF repository: the newest trust root replaces the file, and whatever is wrong
//! with the repository leaves it as it is.

use std::path::Path;
use std::process::Command;

use olm_test::registry::signatures;
use olm_test::registry::tuf::{TufKeys, TufRepository, signed};
use olm_test::world::binary;
use sha2::{Digest as _, Sha256};

use super::*;

const LATER: &str = "2099-01-01T00:00:00Z";
const EARLIER: &str = "2020-01-01T00:00:00Z";

/// A trust root with a log of its own.
fn trust_root() -> Result<Vec<u8>> {
    let (pem, _) = signatures::key()?;
    let key: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let id = STANDARD.encode(Sha256::digest(STANDARD.decode(&key)?));
    let root = json!({
        "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
        "tlogs": [{
            "baseUrl": "https://log.example", "hashAlgorithm": "SHA2_256",
            "publicKey": { "rawBytes": key, "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": { "start": EARLIER } },
            "logId": { "keyId": id },
        }],
    });
    Ok(root.to_string().into_bytes())
}

/// A repository, and a folder with its first root and the updated file.
struct Lab {
    repository: TufRepository,
    keys: TufKeys,
    folder: tempfile::TempDir,
}

impl Lab {
    /// A repository with one root and one version.
    async fn start(content: &[u8]) -> Result<Self> {
        let lab = Self {
            repository: TufRepository::start().await?,
            keys: TufKeys::new()?,
            folder: tempfile::tempdir()?,
        };
        let root = signed(&lab.keys.root(1, LATER), &lab.keys.root[..2])?;
        std::fs::write(lab.path("root.json"), root)?;
        lab.publish(1, content)?;
        Ok(lab)
    }

    fn publish(&self, version: u64, content: &[u8]) -> Result<()> {
        self.repository
            .publish(&self.keys.online, version, LATER, content)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Updates the file: the output, or the errors.
    fn update(&self, more: &[&str]) -> Result<Result<String, String>> {
        let run = Command::new(binary("olm")?)
            .current_dir(self.folder.path())
            .args(["trust-root", "update", "--root", "root.json", "--mirror"])
            .arg(self.repository.url())
            .args(more)
            .output()?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(if run.status.success() {
            Ok(text(&run.stdout))
        } else {
            Err(text(&run.stderr))
        })
    }

    /// Whether an update is refused for this reason, and the file stays.
    fn refused(&self, said: &str, content: &[u8], what: &str) -> Result<()> {
        let error = self
            .update(&[])?
            .err()
            .with_context(|| format!("{what}: accepted"))?;
        ensure!(error.contains(said), "{what}: wanted {said:?}, got {error}");
        ensure!(
            error.contains("trusted_root.json stays as it is"),
            "{what}: no hint: {error}"
        );
        ensure!(
            std::fs::read(self.path("trusted_root.json"))? == content,
            "{what}: the file changed"
        );
        Ok(())
    }

    fn updated(&self, said: &str, content: &[u8]) -> Result<String> {
        let printed = self.update(&[])?.map_err(anyhow::Error::msg)?;
        ensure!(
            printed.starts_with(&format!("trusted_root.json: {said}\n")),
            "{printed}"
        );
        ensure!(std::fs::read(self.path("trusted_root.json"))? == content);
        Ok(printed)
    }
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let names = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trust_root_follows_its_repository_and_never_goes_back() -> Result<()> {
    let (first, second) = (trust_root()?, trust_root()?);
    let lab = Lab::start(&first).await?;
    let printed = lab.updated("updated", &first)?;
    ensure!(
        printed.contains("  timestamp  version 1, until 2099-01-01T00:00:00Z\n"),
        "{printed}"
    );
    lab.updated("unchanged", &first)?;
    ensure!(
        names(lab.folder.path())? == ["root.json", "trusted_root.json", "trusted_root.json.tuf"],
        "other files are left: {:?}",
        names(lab.folder.path())?
    );
    let old = lab.repository.files();
    lab.publish(2, &second)?;
    lab.updated("updated", &second)?;

    let new = lab.repository.files();
    lab.repository.restore(old);
    lab.refused("rollback detected for timestamp", &second, "an older version")?;
    // A new timestamp that leads to an older snapshot.
    let snapshot = json!({
        "_type": "timestamp", "spec_version": "1.0.31", "version": 3, "expires": LATER,
        "meta": { "snapshot.json": { "version": 1 } },
    });
    lab.repository
        .put("timestamp.json", signed(&snapshot, [&lab.keys.online])?);
    lab.refused("rollback detected for snapshot", &second, "an older snapshot")?;
    lab.repository.restore(new);
    lab.updated("unchanged", &second)?;

    // As JSON, to another file.
    let printed = lab
        .update(&["--out", "other.json", "--state", "seen", "-o", "json"])?
        .map_err(anyhow::Error::msg)?;
    let printed: Value = serde_json::from_str(&printed)?;
    ensure!(
        printed["changed"] == true && printed["timestampVersion"] == 2 && printed["rootVersion"] == 1,
        "{printed}"
    );
    ensure!(std::fs::read(lab.path("other.json"))? == second && lab.path("seen/timestamp.json").is_file());
    // Without its state it does not recognise older metadata, so it fails.
    std::fs::write(lab.path("file"), "")?;
    let error = lab.update(&["--state", "file"])?.err().context("accepted")?;
    ensure!(error.contains("cannot update trusted_root.json"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_is_followed_by_one_that_enough_of_its_keys_sign() -> Result<()> {
    let (first, second) = (trust_root()?, trust_root()?);
    let lab = Lab::start(&first).await?;
    lab.updated("updated", &first)?;
    let next = TufKeys::new()?;
    let root = next.root(2, LATER);
    let both = [&lab.keys.root[0], &lab.keys.root[1], &next.root[1], &next.root[2]];
    for (signers, what) in [
        (&both[1..], "one key of the old root"),
        (&both[..3], "one key of the new root"),
        (&[both[0], both[0], both[2], both[3]][..], "one key twice"),
    ] {
        lab.repository
            .put("2.root.json", signed(&root, signers.iter().copied())?);
        let said = if what == "one key twice" {
            "duplicate signature key id"
        } else {
            "signature threshold not met for role root: 1/2"
        };
        lab.refused(said, &first, what)?;
    }
    lab.repository.put("2.root.json", signed(&root, both)?);
    lab.refused(
        "threshold not met for role timestamp",
        &first,
        "metadata by a key that was replaced",
    )?;
    lab.repository.publish(&next.online, 1, LATER, &second)?;
    let printed = lab.updated("updated", &second)?;
    ensure!(printed.contains("  root       version 2\n"), "{printed}");

    // A client fetches every version, and the last root must be valid.
    let root = |version, expires| signed(&next.root(version, expires), &next.root[..2]);
    lab.repository.put("3.root.json", root(4, LATER)?);
    lab.refused(
        "root version must increment by one",
        &second,
        "a version is missing",
    )?;
    lab.repository.put("3.root.json", root(3, EARLIER)?);
    lab.refused("root metadata expired at 2020-01-01", &second, "an expired root")?;
    for version in 4..=40 {
        lab.repository
            .put(&format!("{version}.root.json"), root(version, LATER)?);
    }
    lab.refused("exceeded 32 root rotations", &second, "too many roots at once")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_stale_forged_or_too_large_leaves_the_trust_root_as_it_is() -> Result<()> {
    let first = trust_root()?;
    let lab = Lab::start(&first).await?;
    lab.updated("updated", &first)?;
    let second = trust_root()?;
    let large = vec![b' '; 2 << 20];
    let publish = |version: u64, expires: &str, content: &[u8]| {
        lab.repository
            .publish(&lab.keys.online, version, expires, content)
    };
    let hash = hex::encode(Sha256::digest(&second));
    let target = format!("targets/{hash}.trusted_root.json");
    let good = lab.repository.files();
    let stranger = TufKeys::new()?;

    publish(2, EARLIER, &second)?;
    lab.refused(
        "timestamp metadata expired at 2020-01-01",
        &first,
        "an expired timestamp",
    )?;
    lab.repository.publish(&stranger.online, 2, LATER, &second)?;
    lab.refused(
        "threshold not met for role timestamp: 0/1",
        &first,
        "a stranger's signature",
    )?;
    publish(2, LATER, &second)?;
    let mut forged = second.clone();
    forged.reverse();
    lab.repository.put(&target, forged);
    lab.refused("integrity check failed", &first, "another content")?;
    lab.repository.put(&target, [&second[..], b" "].concat());
    lab.refused(
        "is larger than",
        &first,
        "a longer content than the metadata says",
    )?;
    publish(3, LATER, &large)?;
    lab.refused(
        "exceeds configured max 1048576",
        &first,
        "a trust root that is too large",
    )?;
    publish(4, LATER, b"{}")?;
    lab.refused(
        "trusted_root.json is no trust root",
        &first,
        "a file of another kind",
    )?;
    let mut files = lab.repository.files();
    files.insert("timestamp.json".to_owned(), large);
    lab.repository.restore(files);
    lab.refused(
        "timestamp.json is larger than 16384 bytes",
        &first,
        "a timestamp that is too large",
    )?;
    lab.repository.restore(BTreeMap::new());
    lab.refused("timestamp.json not found", &first, "an empty repository")?;
    lab.repository.restore(good);

    // The first root is what the user gave; another one is another repository.
    std::fs::write(
        lab.path("root.json"),
        signed(&stranger.root(1, LATER), &stranger.root[..2])?,
    )?;
    lab.refused(
        "threshold not met for role timestamp",
        &first,
        "the root of another repository",
    )?;
    std::fs::write(lab.path("root.json"), "{}")?;
    lab.refused(
        "root.json is not a root of a TUF repository",
        &first,
        "a root that is none",
    )
}
