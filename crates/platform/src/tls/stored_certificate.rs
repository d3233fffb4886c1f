//! A copy of the serving certificate on the local disk. With it a restarted process serves before the API server
//! answers. The Secret is read right after.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jiff::civil::Date;
use serde_json::{Value, json};

use super::issue::{Issued, Lifetimes, due};

/// A serving certificate and its key, both PEM.
pub(super) struct StoredCertificate {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// The copy, if it has these names and need not be renewed yet.
pub(super) fn read(
    path: &Path,
    names: &[String],
    lifetimes: Lifetimes,
    today: Date,
) -> Option<StoredCertificate> {
    let copy: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let text = |key: &str| copy.get(key).and_then(Value::as_str).map(str::to_owned);
    let expires: Date = text("expires")?.parse().ok()?;
    let is_usable = copy.get("names") == Some(&json!(names)) && !due(expires, lifetimes.serving_renew, today);
    is_usable.then_some(())?;
    Some(StoredCertificate {
        certificate: text("certificate")?,
        key: text("key")?,
    })
}

/// Writes a copy that only this user can read. It does not contain the authority's key.
pub(super) fn write(path: &Path, issued: &Issued, names: &[String]) -> io::Result<()> {
    let copy = json!({
        "certificate": issued.certificate(),
        "key": issued.key(),
        "expires": issued.expires().to_string(),
        "names": names,
    });
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(copy.to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use jiff::ToSpan as _;

    use super::*;
    use crate::tls::issue::{Renew, issue};

    #[test]
    fn a_copy_counts_for_its_names_until_it_is_due() {
        const SHORT: Lifetimes = Lifetimes::SHORT;
        let folder = std::env::temp_dir().join(format!("kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("copy.json");
        let names = vec!["catalogs.system.svc".to_owned()];
        let today = jiff::civil::date(2026, 3, 1);
        assert!(read(&path, &names, SHORT, today).is_none());

        let issued = issue(None, Renew::Both, &names, SHORT, today).unwrap();
        // A complete or unfinished earlier copy is replaced.
        fs::write(path.with_extension("new"), "half").unwrap();
        write(&path, &issued, &names).unwrap();
        write(&path, &issued, &names).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text.matches("PRIVATE KEY").count(),
            2,
            "only the serving key is kept"
        );

        let found =
            |names: &[String], days: i64| read(&path, names, SHORT, today.saturating_add(days.days()));
        let kept = found(&names, 0).unwrap();
        assert_eq!(
            (kept.certificate.as_str(), kept.key.as_str()),
            (issued.certificate(), issued.key())
        );
        assert!(found(&names, 59).is_some() && found(&names, 60).is_none());
        assert!(found(&["other.svc".to_owned()], 0).is_none());
        fs::write(&path, "{").unwrap();
        assert!(found(&names, 0).is_none());
        fs::remove_dir_all(folder).unwrap();
    }
}
