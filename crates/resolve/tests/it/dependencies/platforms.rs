//! The version, the APIs and the nodes of the cluster.

use super::*;

#[test]
fn the_cluster_has_to_be_new_enough_and_of_the_right_architecture() {
    let metadata = |value: Value| json!({"type": "olm.csv.metadata", "value": value});
    let red = book("red")
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &[metadata(json!({"minKubeVersion": "1.30.0"}))])
        .bundle("3.0.0", &[metadata(json!({"minKubeVersion": "1.36"}))])
        .package();
    let at = |version: &str| Cluster {
        kubernetes: version.parse().ok(),
        ..Cluster::default()
    };
    at("1.29.9").gives(&red, "red", None, "red.v1.0.0");
    at("1.30.0-gke.100").gives(&red, "red", None, "red.v2.0.0");
    at("1.36.1+k3s1").gives(&red, "red", None, "red.v3.0.0");
    // Unknown facts are not obstacles.
    Cluster::default().gives(&red, "red", None, "red.v3.0.0");
    // Catalogs of the older form carry the manifests themselves.
    let manifest = "kind: ClusterServiceVersion\nspec: {minKubeVersion: 1.36.0}\n";
    let carried = olm_fbc::Property::for_object(manifest.as_bytes());
    let carried =
        json!({"type": carried.kind, "value": serde_json::from_str::<Value>(&carried.value).unwrap()});
    let old = book("red")
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &[carried])
        .package();
    at("1.30.0").gives(&old, "red", None, "red.v1.0.0");
    at("1.36.0").gives(&old, "red", None, "red.v2.0.0");
    let new = book("red")
        .bundle("3.0.0", &[metadata(json!({"minKubeVersion": "1.36.0"}))])
        .package();
    at("1.30.2").refused(
        &new,
        "red",
        &["it needs Kubernetes 1.36.0 or later, and the cluster is at 1.30.2"],
    );

    let labels = json!({"labels": {"operatorframework.io/arch.arm64": "supported", "operatorframework.io/arch.amd64": "unsupported"}});
    let arm = book("red").bundle("1.0.0", &[metadata(labels)]).package();
    let nodes = |architectures: &[&str]| Cluster {
        architectures: architectures.iter().map(ToString::to_string).collect(),
        ..Cluster::default()
    };
    nodes(&["amd64", "arm64"]).gives(&arm, "red", None, "red.v1.0.0");
    nodes(&[]).gives(&arm, "red", None, "red.v1.0.0");
    // A user who requests the bundle gets it.
    nodes(&["amd64"]).gives(&arm, "red", None, "red.v1.0.0");
}

#[test]
fn missing_apis_and_processors_make_a_bundle_second_choice() {
    let metadata = |value: Value| json!({"type": "olm.csv.metadata", "value": value});
    let native = |kind: &str| {
        metadata(json!({"nativeAPIs": [{"group": "example.com", "version": "v1", "kind": kind}]}))
    };
    let plain = Cluster::default();
    let serving = Cluster {
        served: HashSet::from([gvk("Native", "v1")]),
        ..Cluster::default()
    };

    let some = book("red")
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &[native("Native")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    serving.gives(&some, "red", None, "red.v2.0.0");
    plain.gives(&some, "red", None, "red.v1.0.0");
    plain.resolution(&some, "red", Some("1.0.0"), |found| {
        let found = found.unwrap();
        assert_eq!(found.bundle.name, "red.v1.0.0");
        assert_eq!(
            found.blocked[0].blockers[0].to_string(),
            "the cluster does not serve the API \"example.com/v1 Native\" that it needs"
        );
    });

    // If every bundle lacks something, the newest is chosen, with and without an installed bundle.
    let all = book("red")
        .bundle("1.0.0", &[native("Native")])
        .bundle("2.0.0", &[native("Native")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    plain.gives(&all, "red", None, "red.v2.0.0");
    plain.gives(&all, "red", Some("1.0.0"), "red.v2.0.0");
    plain.resolution(&all, "red", None, |found| {
        assert!(found.unwrap().blocked.is_empty());
    });

    // A forbidden bundle is never chosen, and is listed.
    let new = metadata(json!({"minKubeVersion": "1.36.0"}));
    let mixed = book("red")
        .bundle("1.0.0", &[native("Native")])
        .bundle("2.0.0", &[new]);
    let mixed = mixed.package();
    let old = Cluster {
        kubernetes: "1.30.0".parse().ok(),
        ..Cluster::default()
    };
    old.resolution(&mixed, "red", None, |found| {
        let found = found.unwrap();
        assert_eq!(found.bundle.name, "red.v1.0.0");
        assert_eq!(found.blocked.len(), 1);
        assert_eq!(found.blocked[0].bundle.name, "red.v2.0.0");
    });
    // An invalid version forbids nothing.
    let unreadable = book("red").bundle("1.0.0", &[metadata(json!({"minKubeVersion": "latest"}))]);
    old.gives(&unreadable.package(), "red", None, "red.v1.0.0");
}
