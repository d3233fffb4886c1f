//! Any configuration and any manifest.

use super::*;
use proptest::prelude::*;

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-zA-Z./'\" -]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        let key = prop_oneof![
            Just("watchNamespace".to_owned()),
            Just("deploymentConfig".to_owned()),
            Just("env".to_owned()),
            Just("affinity".to_owned()),
            Just("nodeAffinity".to_owned()),
            Just("volumes".to_owned()),
            "[a-z]{1,4}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_configuration_is_refused_or_rendered_the_same_twice(config in json_value()) {
        let files = fixture("backup");
        let request = Request { config: Some(&config), ..Request::new("samples") };
        let attempt = || prepare(&files, &BTreeMap::new(), &request)
            .map(|prepared| prepared.rendered.into_objects())
            .map_err(|refusal| refusal.to_string());
        prop_assert_eq!(attempt(), attempt());
    }

    #[test]
    fn any_text_in_a_manifest_is_refused_or_rendered(text in "[a-zA-Z0-9:{}\\[\\],'\"\n -]{0,80}") {
        let files = plus(fixture("backup"), "manifests/z.yaml", &text);
        let attempt = || prepare(&files, &BTreeMap::new(), &Request::new("samples"))
            .map(|prepared| prepared.rendered.into_objects())
            .map_err(|refusal| refusal.to_string());
        prop_assert_eq!(attempt(), attempt());
    }
}
