//! Suggestions for misspelled words.

use strsim::osa_distance;

/// The longest compared word, in bytes. Catalogs choose their words, and the cost of a comparison is the product of the
/// lengths.
const LONGEST: usize = 64;

/// The candidate that is closest to the word, if it was probably meant. Letter case does not matter, and the first of
/// equals counts.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let Some(distance) = distance(word, candidate) else {
            continue;
        };
        if best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The number of wrong letters, if it is small enough for a typo.
pub fn distance(word: &str, candidate: &str) -> Option<usize> {
    if word.len() > LONGEST || candidate.len() > LONGEST {
        return None;
    }
    let most = match candidate.len() {
        0..=2 => return None,
        3..=5 => 1,
        6..=11 => 2,
        _ => 3,
    };
    let distance = osa_distance(&word.to_lowercase(), &candidate.to_lowercase());
    (distance <= most).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_hand_is_recognised_and_another_word_is_not() {
        let fields = ["name", "package", "image", "properties", "relatedImages"];
        for (word, expected) in [
            ("relatedImage", Some("relatedImages")),
            ("relatedimgaes", Some("relatedImages")),
            ("proprties", Some("properties")),
            ("nmae", Some("name")),
            ("imgae", Some("image")),
            ("icon", None),
            ("description", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, fields), expected, "{word}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(nearest(&long, [long.as_str()]), None);
    }
}
