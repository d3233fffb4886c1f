use std::io::Write as _;

use super::*;
use crate::layer::tree::Resolved;

/// One entry of a layer in a test.
#[derive(Clone, Copy)]
enum Item<'item> {
    Dir(&'item str),
    File(&'item str, &'item str),
    Sym(&'item str, &'item str),
    Hard(&'item str, &'item str),
    Pipe(&'item str),
}
use Item::{Dir, File, Hard, Pipe, Sym};

fn tar_of(items: &[Item<'_>]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for item in items {
        let (path, kind, link, text) = match *item {
            Dir(path) => (path, EntryType::Directory, None, ""),
            File(path, text) => (path, EntryType::Regular, None, text),
            Sym(path, target) => (path, EntryType::Symlink, Some(target), ""),
            Hard(path, target) => (path, EntryType::Link, Some(target), ""),
            Pipe(path) => (path, EntryType::Fifo, None, ""),
        };
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        // The library refuses hostile names, so they are written as raw bytes.
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        if let Some(link) = link {
            header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_cksum();
        archive.append(&header, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn unpack_with(layers: &[Vec<u8>], selection: &Selection, limits: &Limits) -> Result<Tree, LayerError> {
    let mut unpacker = Unpacker::new(selection, &Storage::Memory, limits)?;
    for layer in layers {
        unpacker.apply(io::BufReader::new(layer.as_slice()), layer.len() as u64)?;
    }
    unpacker.finish()
}

fn show(tree: &Tree) -> Vec<String> {
    tree.entries()
        .map(|(path, node)| match node {
            Node::Directory => format!("{path}/"),
            Node::File(content) => {
                format!("{path}={}", String::from_utf8_lossy(&content.read_all().unwrap()))
            }
            Node::Link(target) => format!("{path}->{target}"),
        })
        .collect()
}

fn check(layers: &[&[Item<'_>]], expected: &[&str]) {
    check_below(&[], layers, expected);
}

fn check_below(directories: &[&str], layers: &[&[Item<'_>]], expected: &[&str]) {
    let layers: Vec<_> = layers.iter().map(|layer| tar_of(layer)).collect();
    let selection = if directories.is_empty() {
        Selection::Everything
    } else {
        Selection::Below(
            directories
                .iter()
                .map(|directory| (*directory).to_owned())
                .collect(),
        )
    };
    let tree = unpack_with(&layers, &selection, &Limits::bundle()).unwrap();
    assert_eq!(show(&tree), expected);
}

#[test]
fn upper_layers_replace_hide_and_add() {
    check(
        &[
            &[
                Dir("d"),
                File("d/a", "1"),
                File("d/b", "1"),
                File("gone", "1"),
                File("kept", "1"),
            ],
            &[File("d/a", "2"), File(".wh.gone", ""), File("d/c", "2")],
        ],
        &["d/", "d/a=2", "d/b=1", "d/c=2", "kept=1"],
    );
}

#[test]
fn a_whiteout_hides_a_whole_directory_of_lower_layers_only() {
    check(
        &[
            &[Dir("d"), File("d/a", "1"), Dir("d/e"), File("d/e/f", "1")],
            // The order within a layer does not matter: its own entries stay.
            &[Dir("d"), File("d/new", "2"), File(".wh.d", "")],
        ],
        &["d/", "d/new=2"],
    );
}

#[test]
fn an_opaque_directory_shows_its_own_layer_only() {
    check(
        &[
            &[
                Dir("d"),
                File("d/a", "1"),
                Dir("d/e"),
                File("d/e/f", "1"),
                File("x", "1"),
            ],
            &[
                Dir("d"),
                File("d/b", "2"),
                File("d/.wh..wh..opq", ""),
                File("d/c", "2"),
            ],
        ],
        &["d/", "d/b=2", "d/c=2", "x=1"],
    );
}

#[test]
fn bookkeeping_of_old_storage_drivers_hides_nothing() {
    check(
        &[
            &[File("plnk", "1")],
            &[File(".wh..wh.plnk", ""), Dir(".wh..wh.aufs")],
        ],
        &["plnk=1"],
    );
}

#[test]
fn a_file_takes_the_place_of_a_directory_and_the_other_way_round() {
    check(
        &[
            &[Dir("d"), File("d/a", "1"), File("f", "1")],
            &[File("d", "2"), Dir("f"), File("f/x", "2")],
        ],
        &["d=2", "f/", "f/x=2"],
    );
}

#[test]
fn names_are_cleaned_and_parents_are_made() {
    check(
        &[&[Dir("./"), File("./a//b/./c", "1"), File("/abs", "1")]],
        &["a/", "a/b/", "a/b/c=1", "abs=1"],
    );
}

#[test]
fn hard_links_share_content_within_the_tree() {
    check(
        &[
            &[File("a", "1"), Hard("b", "a")],
            &[Hard("c", "/b"), File("a", "2")],
        ],
        &["a=2", "b=1", "c=1"],
    );
}

#[test]
fn entries_below_a_linked_directory_land_where_the_link_leads() {
    check(
        &[
            &[Dir("real"), Sym("link", "real"), Sym("abs", "/real")],
            &[File("link/a", "1"), File("abs/b", "1")],
        ],
        &["abs->/real", "link->real", "real/", "real/a=1", "real/b=1"],
    );
}

#[test]
fn links_that_leave_the_image_take_nothing_with_them() {
    check(
        &[&[
            Sym("out", "../../tmp"),
            File("out/planted", "x"),
            Sym("loop", "loop"),
            File("loop/x", "x"),
        ]],
        &["loop->loop", "out->../../tmp"],
    );
}

#[test]
fn only_selected_files_are_kept() {
    check_below(
        &["/configs/"],
        &[
            &[
                Dir("configs"),
                File("configs/a", "1"),
                File("configs-not/a", "1"),
                File("bin", "program"),
            ],
            &[File("configs/b", "2"), Sym("etc", "configs"), File("etc/c", "2")],
        ],
        &["configs/", "configs/a=1", "configs/b=2"],
    );
    check_below(
        &["a/b"],
        &[
            &[File("a/b/c", "1"), File("a/x", "1")],
            &[File(".wh.a", ""), File("a/b/d", "2")],
        ],
        &["a/b/", "a/b/d=2"],
    );
    check_below(
        &["a/b"],
        &[&[File("a/b/c", "1")], &[File("a", "now a file")]],
        &[],
    );
    check_below(
        &["a/b"],
        &[&[File("a/b/c", "1")], &[Dir("a"), File("a/.wh..wh..opq", "")]],
        &[],
    );
    check_below(
        &["manifests", "metadata"],
        &[&[File("manifests/m", "1"), File("metadata/n", "2"), Pipe("dev/p")]],
        &["manifests/", "manifests/m=1", "metadata/", "metadata/n=2"],
    );
}

#[test]
fn every_compression_gives_the_same_tree() {
    let plain = tar_of(&[File("a", "1"), File("b", &"x".repeat(100_000))]);
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let (first, second) = plain.split_at(777);
    let members = [gzip(first), gzip(second)].concat();
    let zstd = zstd::encode_all(plain.as_slice(), 3).unwrap();
    let skippable = [[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9].as_slice(), &zstd].concat();
    let expected = show(
        &unpack_with(
            std::slice::from_ref(&plain),
            &Selection::Everything,
            &Limits::bundle(),
        )
        .unwrap(),
    );
    assert_eq!(expected.len(), 2);
    for layer in [gzip(&plain), members, zstd, skippable] {
        let tree = unpack_with(&[layer], &Selection::Everything, &Limits::bundle()).unwrap();
        assert_eq!(show(&tree), expected);
    }
    let check = |start: &[u8], name: &str| {
        let error = unpack_with(&[start.to_vec()], &Selection::Everything, &Limits::bundle()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the layer is compressed with {name}, which is not supported")
        );
    };
    check(b"BZh91AY&SY", "bzip2");
    check(b"\xfd7zXZ\0\0", "xz");
}

#[test]
fn a_layer_is_read_to_its_last_byte_even_behind_the_archive() {
    let mut layer = tar_of(&[File("a", "1")]);
    layer.extend_from_slice(&[7; 10_000]);
    let mut reader = io::BufReader::new(layer.as_slice());
    let mut unpacker = Unpacker::new(&Selection::Everything, &Storage::Memory, &Limits::bundle()).unwrap();
    unpacker.apply(&mut reader, layer.len() as u64).unwrap();
    assert!(reader.fill_buf().unwrap().is_empty());
}

#[test]
fn broken_layers_are_refused() {
    let plain = tar_of(&[File("a", &"1".repeat(5000)), File("b", "2")]);
    let gzip = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&plain).unwrap();
        encoder.finish().unwrap()
    };
    let mut wrong_checksum = plain.clone();
    wrong_checksum[0] ^= 1;
    for (what, layer) in [
        ("cut in a file", plain[..1000].to_vec()),
        ("cut in a header", plain[..5700].to_vec()),
        ("cut gzip", gzip[..gzip.len() / 2].to_vec()),
        ("wrong checksum", wrong_checksum),
        ("no archive", vec![b'x'; 2000]),
        (
            "cut zstd",
            zstd::encode_all(plain.as_slice(), 3).unwrap()[..30].to_vec(),
        ),
    ] {
        let result = unpack_with(&[layer], &Selection::Everything, &Limits::bundle());
        assert!(
            matches!(result, Err(LayerError::Corrupt(_))),
            "{what}: {}",
            result.is_ok()
        );
    }
}

#[test]
fn names_that_leave_the_image_are_refused() {
    for item in [
        File("../a", ""),
        File("a/../../b", ""),
        File("a/..", ""),
        Hard("a", "../b"),
        File("\u{7f}/../x", ""),
    ] {
        let result = unpack_with(&[tar_of(&[item])], &Selection::Everything, &Limits::bundle());
        assert!(matches!(result, Err(LayerError::Escape { .. })), "{result:?}");
    }
    let mut layer = tar_of(&[File("abcd", "")]);
    layer[0] = 0xff;
    let mut header = tar::Header::from_byte_slice(&layer[..512]).clone();
    header.set_cksum();
    layer[..512].copy_from_slice(header.as_bytes());
    let result = unpack_with(&[layer], &Selection::Everything, &Limits::bundle());
    assert!(matches!(result, Err(LayerError::Escape { .. })), "{result:?}");
}

#[test]
fn a_path_that_is_no_regular_file_is_refused() {
    let result = unpack_with(&[tar_of(&[Pipe("p")])], &Selection::Everything, &Limits::bundle());
    assert!(matches!(result, Err(LayerError::Kind { .. })), "{result:?}");
    let result = unpack_with(
        &[tar_of(&[Hard("a", "missing")])],
        &Selection::Everything,
        &Limits::bundle(),
    );
    assert!(matches!(result, Err(LayerError::HardLink { .. })), "{result:?}");
}

#[test]
fn every_limit_has_an_error_of_its_own() {
    let limits = Limits {
        entries: 3,
        unpacked_bytes: 1 << 20,
        kept_bytes: 1500,
        file_bytes: 1000,
        depth: 2,
        name_bytes: 10,
        path_bytes: 40,
        ..Limits::bundle()
    };
    let check = |items: &[Item<'_>], expected: &str| {
        let error = unpack_with(&[tar_of(items)], &Selection::Everything, &limits).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(
        &[Dir("1"), Dir("2"), Dir("3"), Dir("4")],
        "the image has more than 3 entries",
    );
    let (big, half) = ("x".repeat(1001), "x".repeat(800));
    check(&[File("big", &big)], "file `big` is larger than 1000 bytes");
    check(
        &[File("a", &half), File("b", &half)],
        "the files to keep are larger than 1500 bytes together",
    );
    check(
        &[File("a/b/c/d", "")],
        "path `a/b/c/d` is deeper than 2 directories",
    );
    check(
        &[File("elevenchars", "")],
        "a name in `elevenchars` is longer than 10 bytes",
    );
    let long = "a/".repeat(21);
    check(&[Dir(&long)], &format!("path `{long}` is longer than 40 bytes"));
    // Parents that no entry names cost as much as those that one does.
    let few = Limits {
        paths_bytes: 100,
        ..Limits::catalog()
    };
    let deep = format!("{}x", "d/".repeat(20));
    let error = unpack_with(&[tar_of(&[File(&deep, "")])], &Selection::Everything, &few).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the paths of the files to keep have more than 100 bytes together"
    );
    let result = unpack_with(
        &[tar_of(&[File("other", &"x".repeat(1 << 20))])],
        &Selection::Below(vec!["wanted".to_owned()]),
        &limits,
    );
    assert_eq!(
        result.unwrap_err().to_string(),
        "the image unpacks to more than 1048576 bytes"
    );
    let zeros = zstd::encode_all(io::repeat(0).take(RATIO_FREE_BYTES + 4096), 3).unwrap();
    let bomb = {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_path("zeros").unwrap();
        header.set_size(RATIO_FREE_BYTES + 2048);
        header.set_cksum();
        [zstd::encode_all(header.as_bytes().as_slice(), 3).unwrap(), zeros].concat()
    };
    let result = unpack_with(
        &[bomb],
        &Selection::Below(vec!["wanted".to_owned()]),
        &Limits::catalog(),
    );
    assert_eq!(
        result.unwrap_err().to_string(),
        "a layer unpacks to more than 200 times its compressed size"
    );
}

#[test]
fn extension_headers_name_the_next_entry_and_are_bounded() {
    let long = "n".repeat(200);
    let mut archive = tar::Builder::new(Vec::new());
    archive
        .append_pax_extensions([("path", long.as_bytes()), ("mtime", b"1.5".as_slice())])
        .unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(1);
    header.set_entry_type(EntryType::Regular);
    header.set_path("short").unwrap();
    header.set_cksum();
    archive.append(&header, b"1".as_slice()).unwrap();
    archive
        .append_pax_extensions([("linkpath", long.as_bytes())])
        .unwrap();
    header.set_size(0);
    header.set_entry_type(EntryType::Symlink);
    header.set_path("link").unwrap();
    header.set_cksum();
    archive.append(&header, io::empty()).unwrap();
    let layer = archive.into_inner().unwrap();
    let tree = unpack_with(&[layer], &Selection::Everything, &Limits::bundle()).unwrap();
    assert_eq!(show(&tree), [format!("link->{long}"), format!("{long}=1")]);
    assert!(matches!(tree.resolve("link"), Resolved::File(_)));

    for (key, value, expected) in [
        ("size", "5", "an entry has two sizes"),
        ("size", "many", "a size is not a number"),
    ] {
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_pax_extensions([(key, value.as_bytes())]).unwrap();
        header.set_size(1);
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        archive.append(&header, b"1".as_slice()).unwrap();
        let layer = archive.into_inner().unwrap();
        match unpack_with(&[layer], &Selection::Everything, &Limits::bundle()) {
            Err(LayerError::Corrupt(error)) => assert_eq!(error.to_string(), expected),
            other => panic!("{other:?}"),
        }
    }

    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_path("x").unwrap();
    header.set_size(extensions::EXTENSION_BYTES + 1);
    header.set_cksum();
    let layer = [header.as_bytes().as_slice(), &vec![b'a'; 2 << 20]].concat();
    match unpack_with(&[layer], &Selection::Everything, &Limits::bundle()) {
        Err(LayerError::Corrupt(error)) => assert_eq!(error.to_string(), "an extension header is too long"),
        other => panic!("{other:?}"),
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_break_the_unpacker(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..2048)) {
        let _ = unpack_with(&[bytes], &Selection::Everything, &Limits::bundle());
    }

    #[test]
    fn no_damage_to_an_archive_breaks_the_unpacker(position in 0_usize..4096, value in 1_u8..) {
        let mut layer = tar_of(&[Dir("d"), File("d/a", "1"), Sym("d/l", "a"), Hard("d/h", "d/a"), File("d/.wh.a", "")]);
        let position = position % layer.len();
        layer[position] ^= value;
        let _ = unpack_with(&[layer], &Selection::Everything, &Limits::bundle());
    }
}

#[test]
fn links_count_as_the_files_they_lead_to() {
    let limits = Limits {
        kept_bytes: 1000,
        ..Limits::bundle()
    };
    let text = "x".repeat(300);
    let check = |links: &[Item<'_>], expected: Option<&str>| {
        let items: Vec<_> = [File("a", &text)]
            .into_iter()
            .chain(links.iter().copied())
            .collect();
        let found = unpack_with(&[tar_of(&items)], &Selection::Everything, &limits);
        assert_eq!(
            found.err().map(|error| error.to_string()).as_deref(),
            expected,
            "{} links",
            links.len()
        );
    };
    let too_large = Some("the files to keep and the links to them are larger than 1000 bytes together");
    check(&[Sym("b", "a"), Sym("c", "b")], None);
    check(&[Sym("b", "a"), Sym("c", "/a"), Sym("d", "b")], too_large);
    check(&[Hard("b", "a"), Hard("c", "a")], None);
    check(&[Hard("b", "a"), Hard("c", "a"), Hard("d", "b")], too_large);
    check(&[Hard("b", "a"), Sym("c", "b"), Hard("d", "c")], too_large);
    check(&[Sym("b", "nowhere"), Sym("c", "c"), Sym("d", "/")], None);
    // An entry that a later one replaces does not count.
    check(
        &[Hard("b", "a"), Hard("b", "a"), Hard("b", "a"), Hard("b", "a")],
        None,
    );
}

#[test]
fn targets_of_links_count_as_paths() {
    let limits = Limits {
        paths_bytes: 100,
        ..Limits::bundle()
    };
    let target = "t".repeat(60);
    let check = |items: &[Item<'_>], fits: bool| {
        let found = unpack_with(&[tar_of(items)], &Selection::Everything, &limits);
        assert_eq!(found.is_ok(), fits, "{found:?}");
    };
    check(&[Sym("a", &target)], true);
    check(&[Sym("a", &target), Sym("b", &target)], false);
}

#[test]
fn hiding_looks_at_a_directory_once_a_layer() {
    let names: Vec<String> = (0..50).map(|number| format!("d/e/{number}")).collect();
    let hiding = [
        "d/.wh..wh..opq",
        "d/e/.wh..wh..opq",
        ".wh.d",
        "d/.wh.e",
        "d/.wh..wh..opq",
    ];
    let layer: Vec<_> = names
        .iter()
        .map(|name| File(name, ""))
        .chain(hiding.iter().cycle().take(200).map(|name| File(name, "")))
        .collect();
    let layer = tar_of(&layer);
    let mut unpacker = Unpacker::new(&Selection::Everything, &Storage::Memory, &Limits::bundle()).unwrap();
    for expected in [101, 202] {
        unpacker.apply(layer.as_slice(), layer.len() as u64).unwrap();
        assert!(unpacker.looked_at <= expected, "{} paths", unpacker.looked_at);
    }
    assert_eq!(unpacker.finish().unwrap().entries().count(), 52);
}

#[test]
fn a_bomb_of_links_is_refused_before_it_costs_time() {
    // A chain as long as may be followed, and links that lead to its beginning.
    let chain: Vec<(String, String)> = (0..38)
        .map(|number| (format!("c{number}"), format!("c{}", number + 1)))
        .collect();
    let bomb: Vec<(String, String)> = (0..60_000)
        .map(|number| (format!("l{number}"), "c0".to_owned()))
        .collect();
    let unpack = |links: &[(String, String)]| {
        let links = links.iter().map(|(path, target)| Sym(path, target));
        let items: Vec<Item<'_>> = std::iter::once(File("c38", "1")).chain(links).collect();
        unpack_with(&[tar_of(&items)], &Selection::Everything, &Limits::catalog())
    };
    let few: Vec<_> = chain.iter().chain(&bomb[..1000]).cloned().collect();
    let tree = unpack(&few).unwrap();
    assert!(matches!(tree.resolve("/l7"), Resolved::File(_)));
    let all: Vec<_> = chain.into_iter().chain(bomb).collect();
    let error = unpack(&all).unwrap_err();
    assert!(matches!(error, LayerError::LinkSteps { .. }), "{error}");
}

#[test]
fn entries_below_a_bomb_of_links_are_refused_as_well() {
    let chain: Vec<(String, String)> = (0..38)
        .map(|number| (format!("c{number}"), format!("c{}", number + 1)))
        .collect();
    let files: Vec<String> = (0..60_000).map(|number| format!("c0/f{number}")).collect();
    let links = chain.iter().map(|(path, target)| Sym(path, target));
    let files = files.iter().map(|path| File(path, ""));
    let items: Vec<Item<'_>> = std::iter::once(Dir("c38")).chain(links).chain(files).collect();
    let error = unpack_with(&[tar_of(&items)], &Selection::Everything, &Limits::catalog()).unwrap_err();
    assert!(matches!(error, LayerError::LinkSteps { .. }), "{error}");
}

#[test]
fn the_thread_that_unpacks_stops_by_itself_when_time_is_over() {
    let limits = Limits {
        time: std::time::Duration::ZERO,
        ..Limits::bundle()
    };
    let layer = tar_of(&[File("a", "1")]);
    let error = unpack_with(&[layer], &Selection::Everything, &limits).unwrap_err();
    assert!(matches!(error, LayerError::Time { seconds: 0 }), "{error}");
}
