//! Tables of packages, as kubectl shows them.

use jiff::Timestamp;
use olm_classic::names;
use serde_json::{Value, json};

use super::super::item::Item;

/// Part of its object that a row includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Include {
    /// Nothing.
    Nothing,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the option `includeObject`; nothing where it is unknown.
    pub(super) fn read(option: &str) -> Option<Self> {
        match option {
            "None" => Some(Self::Nothing),
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// Begin of a table (JSON), up to its rows.
pub(super) fn begin(version: u64) -> String {
    let columns: Value = [
        ("Name", "name", "Name of the package."),
        ("Catalog", "", "Display name of the catalog."),
        ("Age", "", "Age of the catalog."),
    ]
    .map(|(name, format, description)| {
        json!({
            "name": name, "type": "string", "format": format, "description": description, "priority": 0,
        })
    })
    .into_iter()
    .collect();
    format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"columnDefinitions":{columns},"rows":["#
    )
}

/// End of a table.
pub(super) const END: &str = "]}";

/// A row (JSON).
pub(super) fn row(item: &Item, namespace: &str, include: Include, now: Timestamp) -> Vec<u8> {
    let cells = json!([
        &*item.name,
        item.source.display_name,
        age(item.source.created(), now)
    ]);
    let mut row = format!(r#"{{"cells":{cells},"object":"#).into_bytes();
    match include {
        Include::Nothing => row.extend_from_slice(b"null"),
        Include::Metadata => row.extend_from_slice(&item.partial(namespace)),
        Include::Object => row.extend_from_slice(&item.object(namespace, false)),
    }
    row.push(b'}');
    row
}

/// Age of a time, as kubectl shows ages.
fn age(time: Option<Timestamp>, now: Timestamp) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let Some(time) = time else {
        return "<unknown>".to_owned();
    };
    let seconds = now.duration_since(time).as_secs();
    let both = |large: i64, large_unit: &str, small: i64, small_unit: &str| {
        let rest = seconds % large / small;
        if rest == 0 {
            format!("{}{large_unit}", seconds / large)
        } else {
            format!("{}{large_unit}{rest}{small_unit}", seconds / large)
        }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => both(MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => both(HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => both(DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => both(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// The kind of the objects of a list in this form.
pub(super) fn list_of(is_partial: bool) -> (&'static str, String) {
    if is_partial {
        ("meta.k8s.io/v1", "PartialObjectMetadataList".to_owned())
    } else {
        (
            names::PACKAGE_API_VERSION,
            format!("{}List", names::PACKAGE_MANIFEST_KIND),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::item::tests::{item, source};
    use super::*;

    #[test]
    fn ages_are_those_of_kubectl() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (130, "2m10s"),
            (180, "3m"),
            (7200, "120m"),
            (10_860, "3h1m"),
            (86_400, "24h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (63_072_000 + 86_400, "2y1d"),
            (315_360_000, "10y"),
            (-60, "<invalid>"),
        ] {
            let time = Timestamp::from_second(now.as_second() - seconds).ok();
            assert_eq!(age(time, now), expected, "{seconds}");
        }
        assert_eq!(age(None, now), "<unknown>");
    }

    #[test]
    fn a_table_has_name_catalog_and_age() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let found = item(&source("olm", "c"), "p", &json!({"catalog": "c"}), "");
        for (option, kind) in [
            ("", json!("PartialObjectMetadata")),
            ("Object", json!("PackageManifest")),
            ("None", Value::Null),
        ] {
            let include = Include::read(option).unwrap();
            let row = String::from_utf8(row(&found, "n", include, now)).unwrap();
            let table: Value = serde_json::from_str(&format!("{}{row}{END}", begin(7))).unwrap();
            assert_eq!(table["rows"][0]["cells"], json!(["p", "A catalog", "10m"]));
            assert_eq!(table["rows"][0]["object"]["kind"], kind);
            assert_eq!(table["columnDefinitions"][1]["name"], "Catalog");
            assert_eq!(table["metadata"]["resourceVersion"], "7");
        }
        assert_eq!(Include::read("other"), None);
    }
}
