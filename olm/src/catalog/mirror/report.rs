//! The report of `olm mirror` about the images, before they are copied.

use std::fmt::Write as _;

use olm_api::text::first_of;
use olm_image::Outline;
use serde_json::{Value, json};

use super::{Arguments, CATALOG, InspectedImage};
use crate::output::table::table;

/// The longest list of bundles that is named for an image.
const NAMED: usize = 2;

/// The images to copy, those already copied and those that the source lacks.
pub(super) fn report(arguments: &Arguments, known: &[InspectedImage]) -> anyhow::Result<()> {
    let images: Vec<Value> = known.iter().map(json).collect();
    // The built catalog is in no registry yet.
    let images_of_source = known.iter().filter(|known| known.item.built.is_none());
    let names = images_of_source.map(|known| known.item.reference.to_string());
    arguments.output.print(&images, names, || text(known))
}

fn json(known: &InspectedImage) -> Value {
    let (outline, lacking) = match &known.found {
        Ok((outline, lacking)) => (Some(outline), Some(lacking)),
        Err(_) => (None, None),
    };
    json!({
        "image": known.item.reference.to_string(),
        "role": known.item.role,
        "built": known.item.built.is_some(),
        "digest": outline.map(|outline| outline.digest().to_string()),
        "attached": outline.map(Outline::attached),
        "bytes": outline.map(Outline::bytes),
        "bytesToCopy": lacking.map(|lacking| lacking.bytes),
        "missing": known.found.as_ref().err(),
        "usedBy": known.item.used_by,
    })
}

/// A table of the images, the reasons why some are missing, and the counts.
fn text(known: &[InspectedImage]) -> String {
    let (mut rows, mut missing) = (Vec::new(), String::new());
    let (mut bytes, mut there, mut lost) = (0, 0_usize, 0_usize);
    for known in known {
        let state = match &known.found {
            Ok((_, lacking)) if lacking.parts == 0 => {
                there += 1;
                "present".to_owned()
            }
            Ok((_, lacking)) => {
                bytes += lacking.bytes;
                format!("copy {}", size(lacking.bytes))
            }
            Err(why) => {
                lost += 1;
                let _ = writeln!(missing, "missing: {why}");
                "missing".to_owned()
            }
        };
        let users = match (known.item.role, &known.item.built) {
            (CATALOG, Some(built)) if !built.is_whole => "the catalog (selected packages)".to_owned(),
            (CATALOG, _) => "the catalog".to_owned(),
            _ => first_of(known.item.used_by.iter(), NAMED),
        };
        rows.push(vec![known.item.reference.to_string(), state, users]);
    }
    let images = known.len();
    format!(
        "{}{missing}{images} images: {} to copy, {there} present, {lost} missing; {} to send at most\n",
        table(&["IMAGE", "STATE", "USED BY"], &rows),
        images - there - lost,
        size(bytes)
    )
}

pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
