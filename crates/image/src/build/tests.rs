use std::io::Read as _;

use super::*;

#[test]
fn an_archive_is_an_oci_layout() {
    let directory = tempfile::tempdir().unwrap();
    let mut layer = LayerBuilder::new();
    layer.bytes("/configs/catalog.json", "{}", 0o644).unwrap();
    let image = ImageBuilder::new(Platform {
        os: "linux".into(),
        architecture: "amd64".into(),
    })
    .label("a", "b")
    .entrypoint(["/run"])
    .user("65532:65532")
    .layer(layer.build().unwrap())
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
