//! Replays the seeds of every reader of foreign bytes, and changes of them for about a second each. The changes are the
//! same in every run of the same build; `make fuzz` looks further.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use olm_test::fuzz::{TARGETS, Target};

/// The duration for each target.
const TIME: Duration = Duration::from_millis(800);
/// The time limit of one input on any machine.
const SLOW: Duration = Duration::from_secs(20);
/// The most bytes of a changed input.
const LENGTH: usize = 64 << 10;

/// The folder of a target's seeds.
fn seeds(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(target)
}

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or_default() % limit.max(1)
    }
}

/// Fragments with a meaning for one of the parsers.
const WORDS: &[&[u8]] = &[
    b"\0",
    b"\n",
    b"---\n",
    "\u{feff}".as_bytes(),
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b"&a ",
    b"*a",
    b"!!binary ",
    b"..",
    b"/",
    b"//",
    b"*",
    b"**",
    b"!",
    b"@sha256:",
    b">=",
    b"||",
    b" - ",
    b"~",
    b"^",
    b"x",
    b"-0",
    b"1e999",
    b"18446744073709551616",
    b"null",
    b"%00",
    b"%zz",
    b";",
    b".wh.",
    b".wh..wh..opq",
    b"blocked = true\n",
    b"[[registry]]\n",
    b"\xff\xfe",
    b"Range: bytes=0-,-1",
];

fn changed(numbers: &mut Numbers, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = corpus[numbers.below(corpus.len())].clone();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(input.len() + 1);
        let end = (at + numbers.below(32)).min(input.len());
        match numbers.below(7) {
            0 if at < input.len() => input[at] ^= 1 << numbers.below(8),
            1 => drop(input.drain(at..end)),
            2 => drop(input.splice(at..at, WORDS[numbers.below(WORDS.len())].iter().copied())),
            3 => {
                let piece = input[at..end].to_vec();
                let times = 1 + numbers.below(40);
                drop(input.splice(at..at, piece.repeat(times)));
            }
            4 => {
                let other = &corpus[numbers.below(corpus.len())];
                let from = numbers.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            5 => input.truncate(at),
            _ => drop(input.splice(at..end, WORDS[numbers.below(WORDS.len())].iter().copied())),
        }
    }
    input.truncate(LENGTH);
    input
}

/// Runs one input; a failure names it.
fn run(target: Target, input: &[u8], origin: &str) {
    let begin = Instant::now();
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let shown = String::from_utf8_lossy(input);
    assert!(result.is_ok(), "{} fails on {origin}: {:?}", target.name, shown);
    assert!(
        begin.elapsed() < SLOW,
        "{} takes {:?} on {origin}: {shown:?}",
        target.name,
        begin.elapsed()
    );
}

#[test]
fn no_bytes_break_a_reader() {
    for target in TARGETS {
        let folder = seeds(target.name);
        let mut paths: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        paths.sort();
        assert!(!paths.is_empty(), "{} has no seeds", target.name);
        let mut corpus = Vec::new();
        for path in paths {
            let seed = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            run(*target, &seed, &path.display().to_string());
            corpus.push(seed);
        }
        run(*target, b"", "nothing");
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let (begin, mut runs) = (Instant::now(), 0);
        while begin.elapsed() < TIME {
            let input = changed(&mut numbers, &corpus);
            run(*target, &input, "a changed seed");
            runs += 1;
        }
        println!("{}: {} seeds, {runs} changes of them", target.name, corpus.len());
    }
}
