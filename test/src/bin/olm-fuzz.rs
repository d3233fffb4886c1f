//! One program for all targets. `OLM_FUZZ_TARGET` selects one. See `make fuzz`.
#![no_main]
#![expect(clippy::panic, reason = "without a target there is nothing to run")]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use olm_test::fuzz::{TARGETS, Target};

fn target() -> Target {
    let name = std::env::var("OLM_FUZZ_TARGET").unwrap_or_default();
    *TARGETS
        .iter()
        .find(|target| target.name == name)
        .unwrap_or_else(|| panic!("OLM_FUZZ_TARGET={name:?} is no target"))
}

fuzz_target!(|bytes: &[u8]| {
    static TARGET: OnceLock<Target> = OnceLock::new();
    (TARGET.get_or_init(target).run)(bytes);
});
