//! The codings of a body that the client accepts.

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};

use crate::compression::Encoding;

/// Bodies below this many bytes are never compressed.
pub(crate) const COMPRESS_FROM: u64 = 1024;

impl Encoding {
    /// The name in `Content-Encoding`.
    pub(crate) fn token(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The same as a header's value.
    pub(crate) fn header(self) -> HeaderValue {
        HeaderValue::from_static(self.token())
    }
}

/// The codings for the answer, best first: those that the client prefers at least as much as the plain body. Among
/// equals, zstd is first.
pub(crate) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = Encoding> + use<> {
    let (mut gzip, mut zstd, mut identity) = (None, None, None);
    for value in headers.get_all(ACCEPT_ENCODING) {
        for item in value.to_str().unwrap_or_default().split(',') {
            let mut parts = item.split(';');
            let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
            let weight: f32 = parts
                .find_map(|part| part.trim().strip_prefix("q="))
                .map_or(1.0, |weight| weight.trim().parse().unwrap_or(0.0));
            match name.as_str() {
                "gzip" | "x-gzip" => gzip = Some(weight),
                "zstd" => zstd = Some(weight),
                "identity" => identity = Some(weight),
                _ => {}
            }
        }
    }
    let wanted = |weight: Option<f32>| weight.filter(|w| *w > 0.0 && identity.is_none_or(|i| i <= *w));
    let (gzip, zstd) = (wanted(gzip), wanted(zstd));
    let [gzip, zstd] = [
        gzip.map(|weight| (Encoding::Gzip, weight)),
        zstd.map(|weight| (Encoding::Zstd, weight)),
    ];
    let order = match (zstd, gzip) {
        (Some((_, zstd_weight)), Some((_, gzip_weight))) if gzip_weight > zstd_weight => [gzip, zstd],
        _ => [zstd, gzip],
    };
    order.into_iter().flatten().map(|(encoding, _)| encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coding_is_taken_where_it_is_named_with_weight() {
        let check = |value: &'static str, expected: &[Encoding]| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(accepted(&headers).collect::<Vec<_>>(), expected, "{value}");
        };
        check("gzip", &[Encoding::Gzip]);
        check("deflate, GZIP;q=0.5, br", &[Encoding::Gzip]);
        check("gzip; q=1.0, identity;q=0.5", &[Encoding::Gzip]);
        check("gzip, deflate, br, zstd", &[Encoding::Zstd, Encoding::Gzip]);
        check("gzip, zstd;q=0.5", &[Encoding::Gzip, Encoding::Zstd]);
        check("zstd;q=0, gzip", &[Encoding::Gzip]);
        check("gzip;q=0", &[]);
        check("gzip;q=nonsense", &[]);
        check("gzip;q=0.5, identity", &[]);
        check("identity", &[]);
        check("br, *", &[]);
        check("", &[]);
        assert_eq!(accepted(&HeaderMap::new()).count(), 0);
    }
}
