//! The proxy of an OpenShift cluster, as variables for the containers of operators.

use serde_json::{Value, json};

use crate::cluster::{Cluster, items, text};
use crate::names;

/// The one object that counts.
const NAME: &str = "cluster";
/// Variables with the fields of the status that they come from.
const VARIABLES: [(&str, &str); 3] = [
    ("HTTP_PROXY", "/status/httpProxy"),
    ("HTTPS_PROXY", "/status/httpsProxy"),
    ("NO_PROXY", "/status/noProxy"),
];

/// The variables of the cluster's proxy, without empty ones; none where the configuration of a Subscription sets one of
/// them.
pub(super) fn variables(cluster: &Cluster, config: Option<&Value>) -> Vec<Value> {
    let is_set = |name: &str| {
        config.is_some_and(|config| items(config, "/env").any(|variable| text(variable, "/name") == name))
    };
    let Some(proxy) = cluster.get(names::PROXY_KIND, "", NAME) else {
        return Vec::new();
    };
    if VARIABLES.iter().any(|(name, _)| is_set(name)) {
        return Vec::new();
    }
    VARIABLES
        .iter()
        .map(|(name, field)| (name, text(proxy, field)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_that_sets_one_variable_sets_all() {
        let proxy = json!({
            "kind": "Proxy", "metadata": {"name": "cluster"},
            "spec": {"httpsProxy": "not yet valid"},
            "status": {"httpProxy": "http://p.example", "noProxy": ".example", "httpsProxy": ""},
        });
        let cluster: Cluster = [proxy].into_iter().collect();
        let all = [
            json!({"name": "HTTP_PROXY", "value": "http://p.example"}),
            json!({"name": "NO_PROXY", "value": ".example"}),
        ];
        assert_eq!(variables(&cluster, None), all);
        let config = |name: &str| json!({"env": [{"name": name, "value": ""}]});
        assert_eq!(variables(&cluster, Some(&config("LEVEL"))), all);
        assert!(variables(&cluster, Some(&config("HTTPS_PROXY"))).is_empty());
        assert!(variables(&Cluster::default(), None).is_empty());
    }
}
