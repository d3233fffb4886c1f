//! The steps of unpacked bundles in a resolution.

use serde_json::{Value, json};

use crate::cluster::{put, text};
use crate::install_plan::{
    BundleContent, Origin, Step, StepsError, bundle_steps, is_installable, referring_steps,
};
use crate::names;
use crate::subscription::{Resolution, Unpacked};

/// The state of the bundle of a lookup.
#[derive(Debug, Clone)]
pub enum Bundle {
    /// Its objects.
    Content(BundleContent),
    /// Reason why they are not here yet, as a condition of the lookup.
    Condition(Value),
    /// They cannot be asked for.
    Error(String),
    /// They may not be installed.
    Refused(String),
}

/// Takes the steps of unpacked bundles into a resolution. `bundles` has one element for each lookup, and so has the
/// result. A lookup without an image is gone afterwards where its bundle is here: its steps hold the objects.
pub fn take_bundles(resolution: &mut Resolution, bundles: Vec<Bundle>, namespace: &str) -> Vec<Unpacked> {
    let mut unpacked = Vec::new();
    let lookups = std::mem::take(&mut resolution.bundle_lookups);
    for (mut lookup, bundle) in lookups.into_iter().zip(bundles) {
        let is_inline = text(&lookup, "/path").is_empty();
        let steps = match bundle {
            Bundle::Error(error) => Err(Unpacked::Error(error)),
            Bundle::Refused(why) => Err(Unpacked::Fatal(why)),
            Bundle::Condition(condition) => Err(Unpacked::Conditions(vec![condition])),
            Bundle::Content(content) if is_inline => {
                inline_steps(&content, &lookup, namespace).map_err(|error| refused(&error))
            }
            Bundle::Content(content) => {
                referring_steps(&content, &lookup, namespace).map_err(|error| refused(&error))
            }
        };
        match steps.and_then(|steps| installable(steps, &lookup)) {
            Ok(steps) => {
                resolution.steps.extend(steps);
                unpacked.push(Unpacked::Conditions(Vec::new()));
                if is_inline {
                    continue;
                }
                if let Some(lookup) = lookup.as_object_mut() {
                    lookup.remove("conditions");
                    // The field is required.
                    lookup.entry("replaces").or_insert_with(|| "".into());
                }
            }
            Err(not) => {
                if let Unpacked::Conditions(conditions) = &not {
                    put(&mut lookup, &[], "conditions", json!(conditions));
                }
                unpacked.push(not);
            }
        }
        resolution.bundle_lookups.push(lookup);
    }
    resolution
        .steps
        .sort_by_key(|step| match text(step, "/resource/kind") {
            names::CSV_KIND => 0,
            names::CRD_KIND => 1,
            _ => 2,
        });
    unpacked
}

/// The steps of a bundle, unless one has a kind that no plan installs: such a plan would fail halfway.
fn installable(steps: Vec<Value>, lookup: &Value) -> Result<Vec<Value>, Unpacked> {
    let kind = |step: &Value| text(step, "/resource/kind").to_owned();
    match steps.iter().find(|step| !is_installable(&kind(step))) {
        Some(step) => Err(Unpacked::Fatal(format!(
            "bundle {} contains {} {}, a kind that OLM classic does not install",
            text(lookup, "/identifier"),
            kind(step),
            text(step, "/resource/name")
        ))),
        None => Ok(steps),
    }
}

fn inline_steps(content: &BundleContent, lookup: &Value, namespace: &str) -> Result<Vec<Value>, StepsError> {
    let of = |pointer: &str| text(lookup, pointer).to_owned();
    let origin = Origin {
        namespace: namespace.to_owned(),
        replaces: of("/replaces"),
        catalog: of("/catalogSourceRef/name"),
        catalog_namespace: of("/catalogSourceRef/namespace"),
    };
    Ok(bundle_steps(content, &origin)?
        .iter()
        .map(Step::to_value)
        .collect())
}

fn refused(error: &StepsError) -> Unpacked {
    match error {
        StepsError::NoApiVersion(_) | StepsError::NoKind(_) => Unpacked::Fatal(error.to_string()),
        _ => Unpacked::Error(format!("failed to turn bundle into steps: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::items;
    use crate::install_plan::bundle_name;

    fn lookup(path: &str) -> Value {
        json!({
            "path": path, "identifier": "a.v1", "catalogSourceRef": {"namespace": "olm", "name": "c"},
            "conditions": [{"type": "BundleLookupPending", "status": "True"}],
        })
    }

    fn content() -> BundleContent {
        let csv = json!({
            "apiVersion": names::CSV_API_VERSION, "kind": names::CSV_KIND, "metadata": {"name": "a.v1"},
            "spec": {"install": {"strategy": "deployment"}},
        });
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": names::CRD_KIND, "metadata": {"name": "x.y"},
        });
        BundleContent {
            csv: csv.to_string(),
            objects: vec![service.to_string(), definition.to_string(), csv.to_string()],
            properties: Vec::new(),
        }
    }

    #[test]
    fn steps_of_an_image_refer_to_it_and_those_of_a_catalog_hold_the_objects() {
        let mut resolution = Resolution {
            bundle_lookups: vec![lookup("image"), lookup("")],
            ..Resolution::default()
        };
        let bundles = vec![Bundle::Content(content()), Bundle::Content(content())];
        let unpacked = take_bundles(&mut resolution, bundles, "n");
        assert_eq!(
            unpacked,
            [Unpacked::Conditions(vec![]), Unpacked::Conditions(vec![])]
        );
        let kinds: Vec<&str> = resolution
            .steps
            .iter()
            .map(|step| text(step, "/resource/kind"))
            .collect();
        let expected = [
            names::CSV_KIND,
            names::CSV_KIND,
            names::CRD_KIND,
            names::CRD_KIND,
            "Service",
            "Service",
        ];
        assert_eq!(kinds, expected);
        let manifest = |index: usize| -> Value {
            serde_json::from_str(text(&resolution.steps[index], "/resource/manifest")).unwrap()
        };
        assert_eq!(manifest(0)["name"], bundle_name("image"));
        assert_eq!(manifest(0)["kind"], "ConfigMap");
        assert_eq!(manifest(1)["kind"], names::CSV_KIND);
        assert_eq!(resolution.bundle_lookups.len(), 1);
        assert_eq!(items(&resolution.bundle_lookups[0], "/conditions").count(), 0);
    }

    #[test]
    fn a_bundle_with_a_kind_that_no_plan_installs_is_refused() {
        for path in ["image", ""] {
            let mut resolution = Resolution {
                bundle_lookups: vec![lookup(path)],
                ..Resolution::default()
            };
            let mut content = content();
            let ingress =
                json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}});
            content.objects.push(ingress.to_string());
            let unpacked = take_bundles(&mut resolution, vec![Bundle::Content(content)], "n");
            let why = "bundle a.v1 contains Ingress i, a kind that OLM classic does not install";
            assert_eq!(unpacked, [Unpacked::Fatal(why.to_owned())]);
            assert_eq!(resolution.steps, Vec::<Value>::new());
        }
    }

    #[test]
    fn a_bundle_that_is_not_here_keeps_its_lookup_with_the_reason() {
        let mut resolution = Resolution {
            bundle_lookups: vec![lookup("image"), lookup("other")],
            ..Resolution::default()
        };
        let waiting = json!({"type": "BundleLookupPending", "reason": "JobIncomplete"});
        let bundles = vec![Bundle::Condition(waiting.clone()), Bundle::Error("no".to_owned())];
        let unpacked = take_bundles(&mut resolution, bundles, "n");
        assert_eq!(
            unpacked,
            [
                Unpacked::Conditions(vec![waiting.clone()]),
                Unpacked::Error("no".to_owned())
            ]
        );
        assert_eq!(resolution.bundle_lookups[0]["conditions"], json!([waiting]));
        assert_eq!(resolution.steps, Vec::<Value>::new());
    }
}
