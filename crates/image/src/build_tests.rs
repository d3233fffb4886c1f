use super::*;
use crate::layer::{Selection, Unpacker};
use crate::limits::Limits;
use crate::tree::{Node, Storage};

fn sample() -> LayerBuilder {
    let mut layer = LayerBuilder::new();
    layer.bytes("/configs/b/catalog.json", "{}", 0o644).unwrap();
    layer.bytes("configs/a.yaml", "a: 1", 0o600).unwrap();
    layer.link("configs/link", "a.yaml").unwrap();
    layer
        .bytes(&format!("configs/{}/long", "d".repeat(150)), "x", 0o644)
        .unwrap();
    layer
}

#[test]
fn the_same_files_give_the_same_bytes_and_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let memory = sample().build().unwrap();
    let file = sample().build_in(directory.path()).unwrap();
    assert_eq!(memory.blob, file.blob);
    for layer in [memory, file] {
        let mut unpacker =
            Unpacker::new(&Selection::Everything, &Storage::Memory, &Limits::bundle()).unwrap();
        let reader = io::BufReader::new(layer.source.open().unwrap());
        unpacker.apply(reader, layer.blob.size).unwrap();
        let tree = unpacker.finish().unwrap();
        let found: Vec<_> = tree
            .entries()
            .map(|(path, node)| match node {
                Node::Directory => format!("{path}/"),
                Node::File(content) => {
                    format!("{path}={}", String::from_utf8_lossy(&content.read_all().unwrap()))
                }
                Node::Link(target) => format!("{path}->{target}"),
            })
            .collect();
        let long = "d".repeat(150);
        assert_eq!(
            found,
            [
                "configs/",
                "configs/a.yaml=a: 1",
                "configs/b/",
                "configs/b/catalog.json={}",
                &format!("configs/{long}/"),
                &format!("configs/{long}/long=x"),
                "configs/link->a.yaml"
            ]
        );
    }
}

#[test]
fn a_directory_becomes_a_layer() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("sub/deep")).unwrap();
    std::fs::write(directory.path().join("sub/deep/file"), "1").unwrap();
    std::fs::write(directory.path().join("run"), "#!").unwrap();
    std::fs::set_permissions(
        directory.path().join("run"),
        std::fs::Permissions::from_mode(0o700),
    )
    .unwrap();
    std::os::unix::fs::symlink("run", directory.path().join("link")).unwrap();
    let mut layer = LayerBuilder::new();
    layer.tree("/", directory.path()).unwrap();
    let found: Vec<_> = layer
        .entries
        .iter()
        .map(|(key, entry)| match entry {
            Entry::Directory { mode } | Entry::File { mode, .. } => format!("{} {mode:o}", path_of(key)),
            Entry::Link { target } => format!("{}->{target}", path_of(key)),
            Entry::Bytes { .. } => unreachable!(),
        })
        .collect();
    assert_eq!(
        found,
        [
            "link->run",
            "run 755",
            "sub 755",
            "sub/deep 755",
            "sub/deep/file 644"
        ]
    );
    assert!(matches!(
        layer.bytes("../escape", "", 0o644),
        Err(BuildError::Path { .. })
    ));
    assert!(matches!(
        layer.bytes("/", "", 0o644),
        Err(BuildError::Path { .. })
    ));
}

#[test]
fn an_archive_is_an_oci_layout() {
    let directory = tempfile::tempdir().unwrap();
    let image = ImageBuilder::new(Platform {
        os: "linux".into(),
        architecture: "amd64".into(),
    })
    .label("a", "b")
    .entrypoint(["/run"])
    .user("65532:65532")
    .layer(sample().build().unwrap())
    .build();
    let path = directory.path().join("image.tar");
    image.write_archive(&path, Some("example.com/a/b:v1")).unwrap();
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(std::fs::File::open(&path).unwrap())
        .entries()
        .unwrap()
    {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(name, bytes);
    }
    let json = |name: &str| serde_json::from_slice::<serde_json::Value>(&files[name]).unwrap();
    assert_eq!(json("oci-layout")["imageLayoutVersion"], "1.0.0");
    let entry = &json("index.json")["manifests"][0];
    assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], "v1");
    assert_eq!(
        entry["annotations"]["io.containerd.image.name"],
        "example.com/a/b:v1"
    );
    let blob = |digest: &serde_json::Value| format!("blobs/{}", digest.as_str().unwrap().replace(':', "/"));
    let manifest = json(&blob(&entry["digest"]));
    let config = json(&blob(&manifest["config"]["digest"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/run");
    assert_eq!(config["config"]["Labels"]["a"], "b");
    assert!(files.contains_key(&blob(&manifest["layers"][0]["digest"])));
    for (name, bytes) in files.iter().filter(|(name, _)| name.starts_with("blobs/")) {
        assert_eq!(*name, format!("blobs/sha256/{}", Digest::of(bytes).hex()));
    }
}
