//! Streams of several documents.

use std::io::Read;

use olm_yaml::{DocumentContent, Limits, documents};

/// The documents of a stream, each with its line; an error as its text.
fn read(stream: &str) -> Vec<String> {
    documents(stream.as_bytes(), &Limits::default())
        .map(|document| match document {
            Ok(document) => match document.content {
                DocumentContent::Json(text) => format!("{} json {text}", document.line),
                DocumentContent::Yaml(value) => format!("{} yaml {value}", document.line),
            },
            Err(fault) => format!("error {fault}"),
        })
        .collect()
}

fn check(stream: &str, expected: &[&str]) {
    assert_eq!(read(stream), expected, "{stream:?}");
}

#[test]
fn yaml_is_separated_by_dashes() {
    check("", &[]);
    check("\n", &["1 yaml null"]);
    check("a: 1", &[r#"1 yaml {"a":1}"#]);
    check(
        "---\na: 1\n---\n---\nb: 2\n---\n",
        &[r#"2 yaml {"a":1}"#, r#"5 yaml {"b":2}"#],
    );
    check(
        "a: 1\n--- # comment\n# only\n---\nb: 2",
        &[r#"1 yaml {"a":1}"#, "3 yaml null", r#"5 yaml {"b":2}"#],
    );
    check(
        "a: 1\r\n---\r\nb: |\r\n  x",
        &[r#"1 yaml {"a":1}"#, r#"3 yaml {"b":"x\n"}"#],
    );
    check("a: |\n  ---\n", &[r#"1 yaml {"a":"---\n"}"#]);
}

#[test]
fn text_after_the_document_marker_is_refused() {
    check(
        "a: 1\n--- b\n",
        &["error line 2, column 4: invalid Yaml document separator: b"],
    );
}

#[test]
fn json_is_a_row_of_values_kept_as_written() {
    check(
        "{\"b\":1.0,\n \"a\":2}\n\n{}[1]",
        &["1 json {\"b\":1.0,\n \"a\":2}", "4 json {}", "4 json [1]"],
    );
    check("  {\"a\":\"}{\\\"\"} ", &[r#"1 json {"a":"}{\""}"#]);
}

#[test]
fn json_that_is_none_is_read_as_yaml() {
    check(
        "{a: 1}\n---\n{b: 2}\n",
        &[r#"1 yaml {"a":1}"#, r#"3 yaml {"b":2}"#],
    );
    check(
        "{\"a\": 1}\n---\nb: 2\n",
        &[r#"1 json {"a": 1}"#, r#"3 yaml {"b":2}"#],
    );
    check(
        "{\"a\": 1}\n{}\nb: 2\n",
        &[
            r#"1 json {"a": 1}"#,
            "2 json {}",
            "error line 3, column 1: not valid JSON: expected value",
        ],
    );
    check(
        "{\"a\": 1} # words\n",
        &[
            r#"1 json {"a": 1}"#,
            "error line 1, column 1: not valid JSON: expected value",
        ],
    );
    check("{\"a\": 1}\n# words\n", &[r#"1 json {"a": 1}"#, "2 yaml null"]);
    check(
        "{\"a\": ",
        &["error line 1, column 6: not valid JSON: EOF while parsing a value"],
    );
}

#[test]
fn faults_count_lines_over_the_whole_stream() {
    check(
        "a: 1\n---\nb: 2\nc: [\n---\nd: 1\n",
        &[
            r#"1 yaml {"a":1}"#,
            "error line 4, column 4: unclosed bracket '['",
        ],
    );
}

#[test]
fn values_of_a_json_document_are_bounded() {
    let limits = Limits {
        nodes: 6,
        ..Limits::default()
    };
    let read = |text: &str| {
        let read: Vec<_> = documents(text.as_bytes(), &limits).collect();
        read.iter().map(Result::is_ok).collect::<Vec<_>>()
    };
    assert_eq!(read(r#"{"a":[1,2,3],"b":",[{"}{"a":[{},{}]}"#), [true, true]);
    assert_eq!(read(r#"{"a":[1,2,3,4,5,6]}"#), [false]);
    assert_eq!(read(r#"{"a":1}{"a":[[],[],[]]}"#), [true, false]);
    // A value is refused when it exceeds the limit, not at its end.
    let endless = r#"{"a":["#.to_owned() + &"0,".repeat(10);
    assert!(
        documents(endless.as_bytes(), &limits)
            .any(|read| { read.is_err_and(|fault| fault.to_string().contains("more than 6 values")) })
    );
}

#[test]
fn one_document_is_bounded_and_not_the_stream() {
    let limits = Limits {
        bytes: 64,
        depth: 4,
        ..Limits::default()
    };
    let stream = "a: 1\n---\n".repeat(1000);
    assert_eq!(documents(stream.as_bytes(), &limits).flatten().count(), 1000);
    let json = "{\"a\":1}\n".repeat(1000);
    assert_eq!(documents(json.as_bytes(), &limits).flatten().count(), 1000);
    for hostile in [
        "a: 1\n".repeat(20),
        "a".repeat(100),
        format!("{{\"a\":\"{}", "a".repeat(100)),
    ] {
        let fault = documents(hostile.as_bytes(), &limits)
            .find_map(Result::err)
            .expect("refused");
        assert!(
            fault
                .to_string()
                .ends_with("the document is larger than 64 bytes"),
            "{fault}"
        );
    }
    let fault = documents(&b"{\"a\":[[[[1]]]]}"[..], &limits)
        .find_map(Result::err)
        .expect("refused");
    assert_eq!(
        fault.to_string(),
        "line 1, column 1: more than 4 levels of nesting"
    );
}

#[test]
fn a_fault_of_the_stream_is_passed_on() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("cable cut"))
        }
    }
    let reader = std::io::BufReader::new((&b"a: 1\n---\nb: 2\n"[..]).chain(Broken));
    let read: Vec<_> = documents(reader, &Limits::default())
        .map(|document| document.is_ok())
        .collect();
    assert_eq!(read, [true, false]);
}
