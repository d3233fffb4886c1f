//! Webhooks of an operator.

use olm_api::crd::meta::label_selector;
use olm_api::crd::schema::{Schema, choice, integer, object, string};
use serde_json::json;

use crate::crds::words::{atomic_texts, bare, int_or_string, int32, list, text, texts};

/// A webhook.
pub(super) fn webhook() -> Schema {
    let types = [
        "ValidatingAdmissionWebhook",
        "MutatingAdmissionWebhook",
        "ConversionWebhook",
    ];
    let rule = bare()
        .properties(
            &["apiGroups", "apiVersions", "operations", "resources"],
            &atomic_texts(),
        )
        .property("scope", text());
    object("A webhook that a Deployment of the operator serves.")
        .required("admissionReviewVersions", texts())
        .required("generateName", string("The name of the webhook."))
        .required("sideEffects", text())
        .required("type", choice("What the webhook does.", &types))
        .property(
            "containerPort",
            integer("The port of the Service.", "int32")
                .range(1, 65_535)
                .default_value(json!(443)),
        )
        .property("conversionCRDs", texts())
        .property(
            "deploymentName",
            string("The Deployment that serves the webhook."),
        )
        .properties(
            &[
                "failurePolicy",
                "matchPolicy",
                "reinvocationPolicy",
                "webhookPath",
            ],
            &text(),
        )
        .property("objectSelector", label_selector(""))
        .property("rules", list(rule))
        .property("targetPort", int_or_string())
        .property("timeoutSeconds", int32())
}
