//! Addresses of failed connections, removed from condition messages.

use olm_api::conditions::without_ephemeral_addresses;
use serde_json::Value;

use super::Outcome;

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    let (Some(input), Some(expected)) = (case["input"].as_str(), case["expect"].as_str()) else {
        return Outcome::Fail("the case has no input or no expectation".to_owned());
    };
    Outcome::compare("text", &expected.to_owned(), &without_ephemeral_addresses(input))
}
