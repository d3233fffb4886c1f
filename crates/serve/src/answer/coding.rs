//! Which coding of a body the client accepts.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// Bodies below this many bytes are never compressed.
pub(crate) const COMPRESS_FROM: u64 = 1024;

/// How the bytes of a body are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
}

/// The coding to answer with: gzip where the client names it and does not like the plain body better.
pub(crate) fn accepted(headers: &HeaderMap) -> Coding {
    let (mut gzip, mut identity) = (None, None);
    for value in headers.get_all(ACCEPT_ENCODING) {
        for item in value.to_str().unwrap_or_default().split(',') {
            let mut parts = item.split(';');
            let weight = || -> f32 {
                let quality = item.split(';').skip(1).find_map(|p| p.trim().strip_prefix("q="));
                quality.map_or(1.0, |q| q.trim().parse().unwrap_or(0.0))
            };
            match parts
                .next()
                .unwrap_or_default()
                .trim()
                .to_ascii_lowercase()
                .as_str()
            {
                "gzip" | "x-gzip" => gzip = Some(weight()),
                "identity" => identity = Some(weight()),
                _ => {}
            }
        }
    }
    match (gzip, identity) {
        (Some(gzip), _) if gzip <= 0.0 => Coding::Identity,
        (Some(gzip), Some(identity)) if identity > gzip => Coding::Identity,
        (Some(_), _) => Coding::Gzip,
        (None, _) => Coding::Identity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_taken_where_it_is_named_with_weight() {
        let check = |value: &'static str, expected| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, http::HeaderValue::from_static(value));
            assert_eq!(accepted(&headers), expected, "{value}");
        };
        check("gzip", Coding::Gzip);
        check("deflate, GZIP;q=0.5, br", Coding::Gzip);
        check("gzip; q=1.0, identity;q=0.5", Coding::Gzip);
        check("gzip;q=0", Coding::Identity);
        check("gzip;q=nonsense", Coding::Identity);
        check("gzip;q=0.5, identity", Coding::Identity);
        check("identity", Coding::Identity);
        check("br, zstd, *", Coding::Identity);
        check("", Coding::Identity);
        assert_eq!(accepted(&HeaderMap::new()), Coding::Identity);
    }
}
