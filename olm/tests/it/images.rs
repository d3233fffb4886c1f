//! Catalogs in images on the disk.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use olm_image::{ImageBuilder, LayerBuilder, Platform};

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
            (0, "no problems found\n"),
            "{image}"
        );
    }
}

/// An image with all content of a directory.
fn image_of(directory: &Path, archive: &Path) {
    let mut layer = LayerBuilder::new();
    layer.tree("/configs", directory).expect("it can be read");
    ImageBuilder::new(Platform::host())
        .label("operators.operatorframework.io.index.configs.v1", "/configs")
        .layer(layer.build().expect("it can be built"))
        .build()
        .write_archive(archive, None)
        .expect("it can be written");
}

#[test]
fn a_link_that_leads_out_of_an_image_is_refused_unless_it_is_ignored() {
    let check = |target: &str, ignore: &str, good: bool| {
        let files = Files::new(&[
            ("c/catalog.json", CATALOG),
            ("c/.indexignore", ignore),
            ("outside.json", "{\"schema\":\"test.other\",\"name\":\"x\"}"),
        ]);
        let target = target.replace("HERE", &files.path("").display().to_string());
        symlink(&target, files.path("c/leak.json")).expect("a link can be made");
        let status = i32::from(!good);
        image_of(&files.path("c"), &files.path("c.tar"));
        let run = olm(&files.path(""), &["catalog", "validate", "c.tar"]);
        let expected = if good {
            "no problems found"
        } else {
            "cannot read leak.json: it is a link that leads out of the catalog, or nowhere"
        };
        assert!(run.status == status && run.stderr.contains(expected), "{run:?}");
        // Nor is such an image built.
        for arguments in [
            ["catalog", "build", "c", "-o", "built.tar"].as_slice(),
            &["catalog", "push", "c", "127.0.0.1:1/c:v1"],
        ] {
            let run = olm(&files.path(""), arguments);
            let refusal = format!(
                "error: c/leak.json is a link to {target:?}, which whoever reads the image cannot follow: put the file \
                 itself in its place\nhint: to exclude a file from the catalog, add a line to .indexignore\n"
            );
            assert_eq!(run.stderr.contains(&refusal), !good, "{arguments:?}: {run:?}");
        }
        assert_eq!(files.path("built.tar").exists(), good);
    };
    check("HERE/outside.json", "", false);
    check("../outside.json", "*.md\n", false);
    check("HERE/outside.json", "leak.json\n", true);
    check("catalog.json", "leak.json\n", true);
}

#[test]
fn a_directory_that_kubernetes_mounts_is_a_catalog_when_its_copies_are_left_out() {
    let files = Files::new(&[
        ("c/..2026_01_02/catalog.json", CATALOG),
        ("c/..2026_01_02/.indexignore", "..*\n"),
    ]);
    let link = |target: &str, name: &str| symlink(target, files.path(name)).expect("a link can be made");
    link("..2026_01_02", "c/..data");
    link("..data/catalog.json", "c/catalog.json");
    let refused = olm(&files.path(""), &["catalog", "build", "c"]);
    assert!(
        refused.status == 1 && refused.stderr.contains("error: c/..data is a link to "),
        "{refused:?}"
    );
    link("..data/.indexignore", "c/.indexignore");
    let built = olm(&files.path(""), &["catalog", "build", "c"]);
    assert_eq!(built.status, 0, "{built:?}");
    for source in ["c", "c.tar"] {
        let valid = olm(&files.path(""), &["catalog", "validate", source]);
        assert_eq!(
            (valid.status, valid.stderr.as_str()),
            (0, "no problems found\n"),
            "{source}"
        );
    }
}
