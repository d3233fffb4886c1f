//! The teardown records of deleted revisions, until the last status of their extension reports them.

use std::collections::{BTreeMap, HashMap};

use olm_rollout::teardown_record::TeardownRecord;
use parking_lot::Mutex;

/// The records of revisions by the UID of their extension and their name.
#[derive(Debug, Default)]
pub struct TeardownRecords(Mutex<HashMap<String, BTreeMap<String, TeardownRecord>>>);

impl TeardownRecords {
    /// Adds the record of a revision.
    pub fn note(&self, extension: &str, revision: &str, record: TeardownRecord) {
        self.0
            .lock()
            .entry(extension.to_owned())
            .or_default()
            .insert(revision.to_owned(), record);
    }

    /// The records of an extension's revisions. They are removed.
    pub fn take(&self, extension: &str) -> Vec<TeardownRecord> {
        let taken = self.0.lock().remove(extension).unwrap_or_default();
        taken.into_values().collect()
    }

    /// Drops the records of extensions that are gone.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.0.lock().retain(|extension, _| keep(extension));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_handed_out_once() {
        let records = TeardownRecords::default();
        records.note("uid", "greeter-1", TeardownRecord::default());
        records.note("uid", "greeter-1", TeardownRecord::default());
        records.note("other", "memcached-1", TeardownRecord::default());
        assert_eq!(records.take("uid").len(), 1);
        assert_eq!(records.take("uid").len(), 0);
        records.retain(|extension| extension != "other");
        assert_eq!(records.take("other").len(), 0);
    }
}
