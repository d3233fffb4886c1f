//! Catalogs in images that lie on the disk.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{CATALOG, Files, olm};

/// Unpacks an archive of few regular files with short names.
fn unpack(archive: &Path, directory: &Path) {
    let bytes = fs::read(archive).expect("the archive is there");
    let mut rest = bytes.as_slice();
    while rest.first().is_some_and(|byte| *byte != 0) {
        let field = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).expect("headers are text");
            text.trim_matches(['\0', ' ']).to_owned()
        };
        let size = usize::from_str_radix(&field(&rest[124..136]), 8).expect("sizes are octal");
        let path = directory.join(field(&rest[..100]));
        fs::create_dir_all(path.parent().expect("it is in the directory")).expect("it can be made");
        fs::write(path, &rest[512..512 + size]).expect("it can be written");
        rest = &rest[512 + size.next_multiple_of(512)..];
    }
}

#[test]
fn an_image_is_read_as_an_archive_and_as_a_directory() {
    let files = Files::new(&[("c/catalog.json", CATALOG)]);
    let run = |arguments: &[&str]| olm(&files.path(""), arguments);
    assert_eq!(run(&["catalog", "build", "c", "-o", "c.tar"]).status, 0);
    unpack(&files.path("c.tar"), &files.path("layout"));
    assert!(files.path("layout/oci-layout").is_file());
    let expected = run(&["catalog", "render", "c", "-o", "jsonl"]).stdout;
    assert_eq!(expected.lines().count(), 6);
    for image in ["c.tar", "layout"] {
        let rendered = run(&["catalog", "render", image, "-o", "jsonl"]);
        assert_eq!(
            (rendered.status, &rendered.stdout),
            (0, &expected),
            "{image}: {}",
            rendered.stderr
        );
        let valid = run(&["catalog", "validate", image]);
        assert_eq!(
            (valid.status, valid.stderr.as_str()),
            (0, "no faults found\n"),
            "{image}"
        );
    }
}

#[test]
fn a_link_that_leads_out_of_an_image_is_refused_unless_it_is_ignored() {
    let check = |target: &str, ignore: &str, expected: &str| {
        let files = Files::new(&[
            ("c/catalog.json", CATALOG),
            ("c/.indexignore", ignore),
            ("outside.json", "{\"schema\":\"test.other\",\"name\":\"x\"}"),
        ]);
        let target = target.replace("HERE", &files.path("").display().to_string());
        symlink(target, files.path("c/leak.json")).expect("a link can be made");
        let built = olm(&files.path(""), &["catalog", "build", "c", "-o", "c.tar"]);
        assert_eq!(built.status, 0, "{built:?}");
        let run = olm(&files.path(""), &["catalog", "validate", "c.tar"]);
        let status = i32::from(!expected.starts_with("no faults"));
        assert!(run.status == status && run.stderr.contains(expected), "{run:?}");
    };
    let refused = "cannot read leak.json: it is a link that leads out of the catalog, or nowhere";
    check("HERE/outside.json", "", refused);
    check("../outside.json", "*.md\n", refused);
    check("HERE/outside.json", "leak.json\n", "no faults found");
}
