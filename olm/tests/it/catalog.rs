//! `olm catalog` as users run it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use crate::support::{ANNOTATIONS, CATALOG, Files, binary, olm};
use serde_json::Value;

#[test]
fn a_valid_catalog_passes_in_silence() {
    let files = Files::new(&[
        ("foo/catalog.json", CATALOG),
        (".indexignore", "*.md\n"),
        ("README.md", "# words\n"),
    ]);
    let run = olm(&files.path(""), &["catalog", "validate", "."]);
    assert_eq!(
        (run.status, run.stdout.as_str(), run.stderr.as_str()),
        (0, "", "no problems found\n")
    );
}

#[test]
fn every_fault_is_reported_with_its_place() {
    let broken = CATALOG.replace(r#""defaultChannel":"stable""#, r#""defaultChannel":"none""#);
    let files = Files::new(&[("catalog.json", &broken), ("notes/README.md", "plain words\n")]);
    let run = olm(&files.path(""), &["catalog", "validate", "."]);
    assert_eq!(run.status, 1, "{run:?}");
    assert_eq!(
        run.stdout,
        "catalog.json:1: error: default channel \"none\" not found in channels list [default-channel-unknown]\n  \
         package foo\n  hint: add the channel, or name another one in defaultChannel\n\
         notes/README.md:1: error: expected an object, got a string [syntax]\n  \
         hint: list files that do not belong to the catalog in .indexignore\n"
    );
    assert_eq!(run.stderr, "2 errors\n");
}

#[test]
fn unknown_content_is_reported_and_the_catalog_stays_valid() {
    let files = Files::new(&[
        (
            "a.json",
            &CATALOG.replace(
                "{\"schema\":\"olm.package\",",
                "{\"schema\":\"olm.package\",\"defalutChannel\":1,",
            ),
        ),
        (
            "b.yaml",
            "schema: olm.bundel\n---\n\nschema: example.com.v1\nname: a\nname: b\n",
        ),
    ]);
    let run = olm(&files.path(""), &["catalog", "validate", "."]);
    assert_eq!(
        (run.status, run.stdout.as_str(), run.stderr.as_str()),
        (
            0,
            "a.json:1: warning: unknown field \"defalutChannel\"; did you mean \"defaultChannel\"? [field-unknown]\n  \
             package foo\n\
             b.yaml:1: warning: unknown schema \"olm.bundel\"; did you mean \"olm.bundle\"? [schema-unknown]\n\
             b.yaml:6: warning: duplicate key \"name\": the last value counts [key-repeated]\n",
            "valid, with 3 warnings\n"
        )
    );
    let run = olm(
        &Files::new(&[]).path(""),
        &["catalog", "validate", ".", "-o", "json"],
    );
    let report: Value = serde_json::from_str(&run.stdout).expect("it is JSON");
    assert_eq!(
        (run.status, &report["passed"], &report["findings"][0]["rule"]),
        (0, &Value::Bool(true), &Value::from("catalog-empty"))
    );
}

#[test]
fn programs_get_the_report_as_json() {
    let files = Files::new(&[("catalog.json", &CATALOG.replace("1.1.0\"}}", "1.1\"}}"))]);
    let run = olm(&files.path(""), &["catalog", "validate", ".", "-o", "json"]);
    assert_eq!(run.status, 1, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).expect("the report is JSON");
    assert_eq!(report["passed"], false);
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(1), "{report:#}");
    let finding = &report["findings"][0];
    for (key, expected) in [
        ("rule", "version"),
        ("bundle", "foo.v1.1.0"),
        ("file", "catalog.json"),
        ("severity", "error"),
    ] {
        assert_eq!(finding[key], expected, "{report:#}");
    }
    assert_eq!(finding["line"], 5);
    let message = report["error"]["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with("catalog.json:5: error: error parsing bundle \"foo.v1.1.0\" version \"1.1\""),
        "{message}"
    );

    let files = Files::new(&[("catalog.json", CATALOG)]);
    let run = olm(&files.path(""), &["catalog", "validate", ".", "-o", "json"]);
    let report: Value = serde_json::from_str(&run.stdout).expect("the report is JSON");
    assert_eq!(
        (run.status, &report["passed"], &report["error"]),
        (0, &Value::Bool(true), &Value::Null)
    );
}

#[test]
fn constraints_and_icons_are_looked_into() {
    let check = |old: &str, new: &str, status: i32, expected: &str| {
        assert!(CATALOG.contains(old));
        let files = Files::new(&[("catalog.json", &CATALOG.replacen(old, new, 1))]);
        let run = olm(&files.path(""), &["catalog", "validate", "."]);
        assert!(run.status == status && run.stdout.contains(expected), "{run:?}");
    };
    let end = r#""version":"1.0.0"}}"#;
    let constraint = |value: &str| format!(r#"{end},{{"type":"olm.constraint","value":{value}}}"#);
    for good in [
        r#"{"package":{"packageName":"p","versionRange":">=1.0.0"}}"#,
        r#"{"package":{"name":"p","version":">=1.0.0"}}"#,
        r#"{"any":{"constraints":[{"cel":{"rule":"true"}}]}}"#,
    ] {
        check(end, &constraint(good), 0, "");
    }
    let long = format!(
        r#"{{"failureMessage":"{}","cel":{{"rule":"true"}}}}"#,
        "m".repeat(64 << 10)
    );
    for (bad, expected) in [
        (
            r#"{"package":{"name":"p"}}"#,
            "Package version is empty [constraint]",
        ),
        (r#"{"cel":{"rule":"1"}}"#, "Invalid CEL expression"),
        (r#"{"any":{"constraints":[]}}"#, "any lists no constraints"),
        (r#"{"other":{}}"#, "is not a field of a constraint"),
        (long.as_str(), "greater than max constraint size 65536 bytes"),
    ] {
        check(end, &constraint(bad), 1, expected);
    }
    let name = r#""name":"foo","#;
    let icon = |icon: &str| format!(r#"{name}"icon":{icon},"#);
    check(
        name,
        &icon(r#"{"base64data":"R0lGODlh","mediatype":"image/gif"}"#),
        0,
        "",
    );
    for (bad, expected) in [
        (
            r#"{"base64data":"R0lGODlh","mediatype":"image/png"}"#,
            "data is image/gif [package-icon]",
        ),
        (
            r#"{"base64data":"aGVsbG8=","mediatype":"image/png"}"#,
            "is not an image",
        ),
    ] {
        // Users see no picture; the catalog works.
        check(name, &icon(bad), 0, expected);
    }
}

#[test]
fn nothing_that_a_catalog_says_is_a_command_to_the_terminal() {
    let evil = r#"{"schema":"olm.package","name":"x\u001b[31m\u009b1mred","defaultChannel":"\u0007","description":"\u202e\u001b[2J"}"#;
    let files = Files::new(&[("catalog.json", evil), ("other.json", "{}\n")]);
    for arguments in [
        &["catalog", "validate", "catalog.json"][..],
        &["catalog", "list", "packages", "catalog.json"],
        &["catalog", "diff", "other.json", "catalog.json"],
        &["catalog", "graph", "catalog.json"],
        &["search", "x", "--catalog", "catalog.json"],
        &["show", "x\u{1b}[31m\u{9b}1mred", "--catalog", "catalog.json"],
        &["resolve", "x\u{1b}[31m", "--catalog", "catalog.json"],
    ] {
        let run = olm(&files.path(""), arguments);
        let said = run.stdout + &run.stderr;
        assert!(!said.is_empty(), "{arguments:?}");
        let is_hidden = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
        assert!(!said.contains(is_hidden), "{arguments:?}: {said:?}");
    }
    let find = ["search", "x", "--catalog", "catalog.json", "--output", "json"];
    let run = olm(&files.path(""), &find);
    assert!(!run.stdout.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{run:?}");
    let found: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    let (name, description) = (&found[0]["package"], &found[0]["description"]);
    assert_eq!(
        (name, description),
        (&"x\u{1b}[31m\u{9b}1mred".into(), &"\u{202e}\u{1b}[2J".into())
    );
}

#[test]
fn a_file_is_validated_as_a_directory_is() {
    let files = Files::new(&[("catalog.json", CATALOG)]);
    let run = olm(&files.path(""), &["catalog", "validate", "catalog.json"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, "no problems found\n"));
    let run = olm(&files.path(""), &["catalog", "validate", "nowhere"]);
    assert!(
        run.status == 1
            && run
                .stderr
                .starts_with("error: \"nowhere\" is not a file or directory"),
        "{run:?}"
    );
}

#[test]
fn catalogs_render_the_same_whatever_their_files() {
    let lines: Vec<&str> = CATALOG.lines().collect();
    let one = Files::new(&[("all.json", CATALOG)]);
    let two = Files::new(&[
        ("b/x.json", &lines[..3].join("")),
        ("a.json", &lines[3..].join("\n")),
    ]);
    for form in ["json", "jsonl", "yaml"] {
        let left = olm(&one.path(""), &["catalog", "render", ".", "-o", form]);
        let right = olm(&two.path(""), &["catalog", "render", "a.json", "b", "-o", form]);
        assert_eq!((left.status, left.stderr.as_str()), (0, ""));
        assert_eq!(left.stdout, right.stdout, "{form}");
        let again = Files::new(&[("again", &left.stdout)]);
        assert_eq!(
            olm(&again.path(""), &["catalog", "render", "again", "-o", form]).stdout,
            left.stdout,
            "{form}"
        );
    }
    let json = olm(&one.path(""), &["catalog", "render", "."]).stdout;
    assert!(
        json.starts_with("{\n    \"schema\": \"olm.package\",\n    \"name\": \"foo\",\n"),
        "{json}"
    );
}

#[test]
fn a_catalog_that_cannot_be_rendered_is_named() {
    let files = Files::new(&[(
        "a/b.json",
        "{\"schema\":\"x\"}\n{\"schema\":\"olm.bundle\",\"image\":1}\n",
    )]);
    let run = olm(&files.path(""), &["catalog", "render", "a"]);
    assert_eq!(run.status, 1);
    assert_eq!(
        run.stderr,
        "error: render reference \"a\": b.json:2: parse bundle: `image` must be a string, not a number\n\
         hint: `olm catalog validate a` shows every error; list files that do not belong to the catalog in .indexignore\n"
    );
}

/// A catalog that catalogd serves, with one faulty object.
fn with_package(icon: &str) -> Files {
    let package =
        format!("{{\"schema\":\"olm.package\",\"name\":\"bar\",\"defaultChannel\":\"c\",\"icon\":{icon}}}\n");
    Files::new(&[("c/foo.json", CATALOG), ("c/bar.json", &package)])
}

#[test]
fn the_served_content_can_be_printed() {
    let check = |icon: &str, warning: &str| {
        let files = with_package(icon);
        for arguments in [
            &["catalog", "list", "packages", "c"][..],
            &["catalog", "graph", "c", "foo"],
            &["catalog", "diff", "c", "c"],
            &["search", "foo", "--catalog", "c"],
            &["show", "foo", "--catalog", "c"],
        ] {
            let run = olm(&files.path(""), arguments);
            assert_eq!(run.status, 0, "{arguments:?}: {run:?}");
            let lines = format!(
                "warning: c: bar.json:1: package bar: {warning}\nhint: `olm catalog validate c` shows every error; list files \
                 that do not belong to the catalog in .indexignore\n"
            );
            assert!(run.stderr.starts_with(&lines), "{arguments:?}: {run:?}");
        }
        let run = olm(&files.path(""), &["resolve", "foo", "--catalog", "c"]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
        for arguments in [
            &["catalog", "validate", "c"][..],
            &["catalog", "build", "c", "-o", "c.tar"],
        ] {
            let run = olm(&files.path(""), arguments);
            assert!(run.status == 1, "{arguments:?}: {run:?}");
            assert!(
                (run.stdout + &run.stderr).contains("bar.json:1: "),
                "{arguments:?}"
            );
        }
    };
    check(
        r#"{"base64data":"%%%","mediatype":"image/png"}"#,
        "parse package: `icon.base64data` must be base64: Invalid symbol 37, offset 0.",
    );
    check(
        r#"{"base64data":"aGk=","mediatype":7}"#,
        "left out: parse package: `icon.mediatype` must be a string, not a number",
    );
}

#[test]
fn only_lossless_content_is_rendered() {
    let render = |icon: &str| {
        olm(
            &with_package(icon).path(""),
            &["catalog", "render", "c", "-o", "jsonl"],
        )
    };
    let run = render(r#"{"base64data":"%%%","mediatype":"image/png"}"#);
    assert!(
        run.status == 0
            && run
                .stdout
                .contains(r#"{"base64data":"%%%","mediatype":"image/png"}"#)
            && run.stderr.starts_with("warning: c: bar.json:1: package bar: "),
        "{run:?}"
    );
    let run = render(r#"{"base64data":"aGk=","mediatype":7}"#);
    assert!(
        run.status == 1
            && run.stdout.is_empty()
            && run
                .stderr
                .starts_with("error: render reference \"c\": bar.json:1: "),
        "{run:?}"
    );
}

#[test]
fn an_empty_catalog_lists_the_files_found() {
    let check = |files: &[(&str, &str)], source: &str, expected: &str| {
        let files = Files::new(files);
        let said = format!(
            "warning: {source}: the catalog is empty: {expected}\nhint: name the directory that holds the catalog"
        );
        for arguments in [
            &["catalog", "list", "packages", source][..],
            &["catalog", "render", source],
            &["search", "foo", "--catalog", source],
            &["catalog", "build", source, "-o", "c.tar"],
        ] {
            if arguments[1] == "build" && files.path(source).is_file() {
                continue;
            }
            let run = olm(&files.path(""), arguments);
            assert!(run.stderr.starts_with(&said), "{arguments:?}: {run:?}");
        }
        let run = olm(&files.path(""), &["catalog", "validate", source]);
        let said = format!("warning: the catalog is empty: {expected} [catalog-empty]\n  hint: ");
        assert!(run.status == 0 && run.stdout.starts_with(&said), "{run:?}");
    };
    check(
        &[("c/.indexignore", "*.json\n"), ("c/a.json", CATALOG)],
        "c",
        ".indexignore leaves out 1 file (a.json)",
    );
    check(
        &[("c/.indexignore", "*.md\n"), ("c/a", ""), ("c/b.md", "# b\n")],
        "c",
        "no object in 1 file (a), .indexignore leaves out 1 file (b.md)",
    );
    check(&[("c/.indexignore", "")], "c", "there are no files");
    check(&[("a.json", "")], "a.json", "no object in 1 file (a.json)");
    // Of two catalogs, the warning names the right one.
    let files = Files::new(&[("old/.indexignore", ""), ("new/.indexignore", "")]);
    let run = olm(&files.path(""), &["catalog", "diff", "old", "new"]);
    let warnings: Vec<&str> = run
        .stderr
        .lines()
        .filter(|line| line.starts_with("warning"))
        .collect();
    assert_eq!(
        warnings,
        ["old", "new"].map(|source| format!("warning: {source}: the catalog is empty: there are no files"))
    );
}

#[test]
fn a_path_of_the_wrong_kind_names_the_expected_one() {
    let files = Files::new(&[
        ("cat/c.json", CATALOG),
        ("file", ""),
        ("bundle/manifests/a.yaml", "a: 1\n"),
        ("bundle/metadata/annotations.yaml", ANNOTATIONS),
        ("links/c.json", CATALOG),
    ]);
    for (target, link) in [("nowhere", "links/broken"), (".", "links/round")] {
        std::os::unix::fs::symlink(target, files.path(link)).expect("a link can be made");
    }
    for (arguments, expected) in [
        (
            &["catalog", "push", "file", "r.example/c"][..],
            "error: \"file\" is not a directory\nhint: name the directory that holds the files of the catalog\n",
        ),
        (
            &["catalog", "dockerfile", "file"],
            "error: \"file\" is not a directory\nhint: name the directory that holds the files of the catalog\n",
        ),
        (
            &["bundle", "push", "file", "r.example/b"],
            "error: \"file\" is not a directory\nhint: name the directory of the bundle, with the directories manifests and \
             metadata in it\n",
        ),
        (
            &["bundle", "push", "none", "r.example/b"],
            "error: cannot read none: No such file or directory (os error 2)\n",
        ),
        (
            &["catalog", "template", "any", "cat"],
            "error: cat is a directory; name a file\n",
        ),
        (
            &["catalog", "build", "-f", "cat"],
            "error: cat is a directory; name a file\n",
        ),
        (
            &["catalog", "build", "-f", "file"],
            "error: file is not a composition of name, repo, tag and references: invalid type: null, expected an object\n",
        ),
        (
            &["catalog", "template", "any", "cat/c.json"],
            "error: cannot use cat/c.json: unknown template schema: olm.package\nhint: this is a catalog already; `olm catalog \
             convert-template` makes a template of one\n",
        ),
        (
            &["crd", "check", "cat", "cat"],
            "error: \"cat\" has no custom resource definition\nhint: name a file of YAML or JSON documents",
        ),
        (
            &["catalog", "graph", "cat", "-c", "stabel"],
            "error: no package of cat has a channel \"stabel\"\nhint: did you mean \"stable\"?\n",
        ),
        (
            &["bundle", "convert", "cat/c.json"],
            "error: cannot convert \"cat/c.json\": \"cat/c.json\" is not a bundle",
        ),
        (
            &["bundle", "convert", "bundle"],
            "error: cannot convert \"bundle\": ",
        ),
        (
            &["catalog", "validate", "links"],
            "error: links/broken is a link that leads nowhere\nlinks/round is a link to a directory\n",
        ),
    ] {
        let run = olm(&files.path(""), arguments);
        assert!(
            run.status == 1 && run.stderr.starts_with(expected),
            "{arguments:?}: {run:?}"
        );
    }
}

#[test]
fn a_wrong_command_line_is_another_status_than_a_fault() {
    let files = Files::new(&[]);
    let run = olm(&files.path(""), &["catalog", "validate"]);
    assert!(
        run.status == 2 && run.stderr.contains("Usage: olm catalog validate"),
        "{run:?}"
    );
    for arguments in [
        &["show", "", "--catalog", "c"][..],
        &["resolve", "", "--catalog", "c"],
        &["catalog", "init", ""],
    ] {
        let run = olm(&files.path(""), arguments);
        assert!(
            run.status == 2 && run.stderr.contains("a value is required for '<PACKAGE>'"),
            "{run:?}"
        );
    }
    let run = olm(&files.path(""), &["catalog", "validate", "--help"]);
    assert!(
        run.status == 0 && run.stdout.contains("Catalog: a file, directory"),
        "{run:?}"
    );
}

#[test]
fn the_version_holds_nothing_unknown() {
    let run = olm(&Files::new(&[]).path(""), &["version"]);
    let expected = format!("version: \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(
        run.status == 0 && run.stdout.starts_with(&expected) && !run.stdout.contains("unknown"),
        "{run:?}"
    );
    let run = olm(&Files::new(&[]).path(""), &["version", "-o", "json"]);
    let facts: serde_json::Value = serde_json::from_str(&run.stdout).expect("it is JSON");
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        facts.get("managers").is_none() && run.stderr.is_empty(),
        "{run:?}"
    );
}

#[test]
fn as_a_plugin_of_kubectl_it_speaks_of_itself_so() {
    let files = Files::new(&[]);
    let plugin = files.path("kubectl-olm");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_olm"), &plugin).expect("a link can be made");
    let output = std::process::Command::new(plugin)
        .args(["catalog", "validate"])
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("Usage: kubectl olm catalog validate"), "{stderr}");
}

#[test]
fn a_catalog_is_served_as_catalogd_serves_it() {
    let files = Files::new(&[("foo/catalog.json", CATALOG)]);
    let mut child = binary()
        .current_dir(files.path(""))
        .args(["catalog", "serve", "mine=foo", "--addr", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output is piped"))
        .read_line(&mut line)
        .expect("it says where");
    let answer = get(line.trim(), "?schema=olm.bundle&package=foo&name=foo.v1.1.0");
    // For another catalog or a taken address, the error quotes the server.
    let address = line
        .trim()
        .trim_start_matches("http://")
        .split('/')
        .next()
        .unwrap_or_default();
    let wrong = format!("http://{address}/catalogs/M_ine");
    let refused = olm(&files.path(""), &["catalog", "list", "packages", &wrong]);
    let taken = olm(&files.path(""), &["catalog", "serve", "foo", "--addr", address]);
    child.kill().expect("it can be stopped");
    child.wait().expect("it ends");
    assert!(
        refused.status == 1
            && refused
                .stderr
                .contains("the server answers 400 Bad Request: invalid catalog name: "),
        "{refused:?}"
    );
    assert!(
        taken.status == 1 && taken.stderr.contains("\nhint: another program listens there"),
        "{taken:?}"
    );
    let answer = answer.expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body)
        .unwrap_or_default();
    assert_eq!(
        body,
        "{\"image\":\"reg.example/foo:1.1.0\",\"name\":\"foo.v1.1.0\",\"package\":\"foo\",\"properties\":[{\"type\":\
         \"olm.package\",\"value\":{\"packageName\":\"foo\",\"version\":\"1.1.0\"}}],\"schema\":\"olm.bundle\"}\n"
    );
}

#[test]
fn the_place_of_a_fault_is_reported_once() {
    let check = |name: &str, text: &str, place: &str, fault: &str| {
        let files = Files::new(&[(&format!("c/{name}"), text)]);
        let run = olm(&files.path(""), &["catalog", "validate", "c"]);
        let expected = format!("{place}: error: {fault} [syntax]\n");
        assert!(run.status == 1 && run.stdout.contains(&expected), "{run:?}");
        for arguments in [
            &["catalog", "render", "c"][..],
            &["resolve", "foo", "--catalog", "c"],
        ] {
            let run = olm(&files.path(""), arguments);
            let expected = format!(": {place}: {fault}\nhint: ");
            assert!(
                run.status == 1 && run.stderr.contains(&expected),
                "{arguments:?}: {run:?}"
            );
        }
    };
    check(
        "a.yaml",
        "schema: olm.package\nname: foo\n---\nschema: [1\n",
        "a.yaml:4",
        "column 9: unclosed bracket '['",
    );
    check(
        "a.json",
        "{\"schema\":\"x\",\"name\":\"a\"}\n{\"a\" 1}\n",
        "a.json:2",
        "column 6: not valid JSON: expected `:`",
    );
    check(
        "b.json",
        "{\"schema\":\"x\",\"name\":\"a\"}\n{\"schema\": 1}\n",
        "b.json:2",
        "expected value for key \"schema\" to be a string, got a number: 1",
    );
}

/// Asks the server at `url`, which ends in `all`, for `metas`.
fn get(url: &str, query: &str) -> std::io::Result<String> {
    let (authority, path) = url
        .trim_start_matches("http://")
        .split_once('/')
        .unwrap_or_default();
    assert_eq!(path, "catalogs/mine/api/v1/all");
    let mut stream = TcpStream::connect(authority)?;
    write!(
        stream,
        "GET /catalogs/mine/api/v1/metas{query} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
