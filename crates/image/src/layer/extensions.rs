//! Extension headers: entries of an archive that describe the next one.

use std::io::{self, Read};

use tar::EntryType;

use super::LayerError;

/// The most bytes of an extension header (long names, PAX records).
pub(super) const EXTENSION_BYTES: u64 = 1 << 20;

/// Values of extension headers for the entry that follows them.
#[derive(Default)]
pub(super) struct Extensions {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
}

impl Extensions {
    /// Takes an entry that only describes the next one. Says whether it was one.
    pub(super) fn take<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<bool, LayerError> {
        match entry.header().entry_type() {
            EntryType::GNULongName => self.path = Some(read_name(entry)?),
            EntryType::GNULongLink => self.link = Some(read_name(entry)?),
            EntryType::XHeader => {
                let bytes = read_extension(entry)?;
                for record in tar::PaxExtensions::new(&bytes) {
                    let record = record.map_err(LayerError::Corrupt)?;
                    match record.key_bytes() {
                        b"path" => self.path = Some(record.value_bytes().to_vec()),
                        b"linkpath" => self.link = Some(record.value_bytes().to_vec()),
                        b"size" => {
                            let size = record.value().ok().and_then(|text| text.parse().ok());
                            self.size = Some(size.ok_or_else(|| {
                                LayerError::Corrupt(io::Error::other("a size is not a number"))
                            })?);
                        }
                        _ => {}
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn read_name<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Vec<u8>, LayerError> {
    let mut bytes = read_extension(entry)?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(bytes)
}

fn read_extension<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Vec<u8>, LayerError> {
    if entry.size() > EXTENSION_BYTES {
        return Err(LayerError::Corrupt(io::Error::other(
            "an extension header is too long",
        )));
    }
    let mut bytes = Vec::new();
    entry
        .take(EXTENSION_BYTES)
        .read_to_end(&mut bytes)
        .map_err(LayerError::Corrupt)?;
    Ok(bytes)
}
