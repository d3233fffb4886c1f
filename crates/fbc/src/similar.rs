//! Suggestions for misspelled words.

use strsim::osa_distance;

/// The longest word that is compared, in bytes: catalogs choose their words, and comparing takes the product of lengths.
const LONGEST: usize = 64;

/// The candidate that is most like the word, if one is so much like it that it was probably meant. Letter case does not
/// matter, and the first of equals counts.
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

/// How many letters are wrong, where that is few enough for a slip of the hand.
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
