//! Software bills of materials in the format CycloneDX 1.6: the parts of a program or an image, and their origin.
//!
//! The same content gives the same bytes: there is no time but that of `SOURCE_DATE_EPOCH`, and the serial number comes
//! from the content.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::images::authorities;
use super::images::contents::Contents;
use super::licences::licence;
use super::packages::{self, Graph, Id, Package};

/// The ending of the names of the files.
pub(super) const SUFFIX: &str = ".cdx.json";

/// Facts about packages, the toolchain and the time, for all bills of a release.
pub(super) struct Bills {
    packages: BTreeMap<Id, Package>,
    checksums: BTreeMap<Id, String>,
    /// The version of Rust.
    toolchain: String,
    time: Option<Timestamp>,
}

/// A program as it is shipped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program<'a> {
    pub(super) name: &'a str,
    /// The name of the system in Rust.
    pub(super) target: &'a str,
    pub(super) bytes: &'a [u8],
}

/// Components and the edges between them, by reference.
#[derive(Default)]
struct Parts {
    components: BTreeMap<String, Value>,
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Bills {
    /// Reads what all bills need. `time` is put into them.
    pub(super) fn read(root: &Path, time: Option<Timestamp>) -> Result<Self> {
        Ok(Self {
            packages: packages::all(root)?,
            checksums: packages::checksums(root)?,
            toolchain: super::toolchain(root)?,
            time,
        })
    }

    /// The bill of a program. `graph` is that of its build.
    pub(super) fn of_program(&self, program: Program<'_>, graph: &Graph) -> Result<String> {
        let mut parts = Parts::default();
        let reference = self.add(&mut parts, program, graph)?;
        let subject = parts
            .components
            .remove(&reference)
            .context("the program is a part")?;
        self.write(subject, parts)
    }

    /// The bill of an image with this program: the program with its packages, and every other file.
    pub(super) fn of_image(&self, program: Program<'_>, graph: &Graph, image: &Contents) -> Result<String> {
        let mut parts = Parts::default();
        let reference = self.add(&mut parts, program, graph)?;
        let (authorities, component) = self.authorities()?;
        let mut needed = BTreeSet::from([reference, authorities.clone()]);
        parts.components.insert(authorities, component);
        for file in image.files().filter(|file| file.path != program.name) {
            let reference = format!("file:/{}", file.path);
            let mut component = json!({
                "type": "file", "bom-ref": reference, "name": format!("/{}", file.path),
            });
            if let Some(bytes) = &file.bytes {
                component["hashes"] = sha256(&hex::encode(Sha256::digest(bytes)));
            }
            parts.components.insert(reference.clone(), component);
            needed.insert(reference);
        }
        let digest = &image.digest;
        let hash = digest
            .strip_prefix("sha256:")
            .context("the digest is a SHA-256")?;
        let purl = format!(
            "pkg:oci/{}@sha256%3A{hash}?arch={}",
            program.name,
            image.architecture()?
        );
        parts.edges.insert(purl.clone(), needed);
        let subject = json!({
            "type": "container", "bom-ref": purl, "name": program.name, "version": env!("CARGO_PKG_VERSION"),
            "hashes": sha256(hash), "licenses": expression(env!("CARGO_PKG_LICENSE")), "purl": purl,
        });
        self.write(subject, parts)
    }

    /// Adds a program, its packages and what is linked besides; returns the reference of the program.
    fn add(&self, parts: &mut Parts, program: Program<'_>, graph: &Graph) -> Result<String> {
        let mut own = String::new();
        for (id, needed) in graph.part(program.name)? {
            let package = self
                .packages
                .get(id)
                .with_context(|| format!("cargo metadata lacks {id:?}"))?;
            let reference = purl(id);
            let is_program = id.0 == program.name && package.source.is_none();
            let mut component = self.package(package)?;
            let mut needed: BTreeSet<String> = needed.iter().map(purl).collect();
            if is_program {
                component["type"] = json!("application");
                component["hashes"] = sha256(&hex::encode(Sha256::digest(program.bytes)));
                component["properties"] = json!([{ "name": "cargo:target", "value": program.target }]);
                for (reference, component) in self.besides(program.target)? {
                    parts.components.insert(reference.clone(), component);
                    parts.edges.entry(reference.clone()).or_default();
                    needed.insert(reference);
                }
                own.clone_from(&reference);
            }
            parts.components.insert(reference.clone(), component);
            parts.edges.insert(reference, needed);
        }
        Ok(own)
    }

    /// A package as a component.
    fn package(&self, package: &Package) -> Result<Value> {
        let id = (package.name.clone(), package.version.clone());
        let reference = purl(&id);
        let mut component = json!({
            "type": "library", "bom-ref": reference, "name": id.0, "version": id.1, "purl": reference,
        });
        if let Some(licence) = licence(package) {
            component["licenses"] = expression(&licence);
        }
        if let Some(place) = &package.repository {
            component["externalReferences"] = json!([{ "type": "vcs", "url": place }]);
        }
        if package.source.is_some() {
            let sum = self.checksums.get(&id);
            component["hashes"] =
                sha256(sum.with_context(|| format!("Cargo.lock has no checksum of {id:?}"))?);
        }
        Ok(component)
    }

    /// The package that the certificate authorities of an image come from.
    fn authorities(&self) -> Result<(String, Value)> {
        let (id, package) = self
            .packages
            .iter()
            .find(|((name, _), _)| name == authorities::PACKAGE)
            .context("the package of the certificate authorities is not in Cargo.lock")?;
        Ok((purl(id), self.package(package)?))
    }

    /// The parts of a program that are not packages of Cargo: Rust's standard library and, for Linux, the C library.
    fn besides(&self, target: &str) -> Result<Vec<(String, Value)>> {
        let rust = format!("pkg:generic/rust@{}", self.toolchain);
        let standard = json!({
            "type": "library", "bom-ref": rust, "name": "rust", "version": self.toolchain, "purl": rust,
            "licenses": expression("MIT OR Apache-2.0"),
        });
        let standard = (rust, standard);
        let (library, licence) = match target.rsplit_once('-').context("a target has three parts")?.1 {
            "musl" => ("musl", "MIT"),
            "darwin" => return Ok(vec![standard]),
            _ => ("glibc", "LGPL-2.1-or-later"),
        };
        let c = format!("pkg:generic/{library}");
        let c_library = json!({
            "type": "library", "bom-ref": c, "name": library, "purl": c, "licenses": expression(licence),
        });
        Ok(vec![standard, (c, c_library)])
    }

    fn write(&self, subject: Value, parts: Parts) -> Result<String> {
        for needed in parts.edges.values().flatten() {
            ensure!(
                parts.components.contains_key(needed),
                "the bill of materials lacks {needed}"
            );
        }
        let edges: Vec<Value> = parts
            .edges
            .iter()
            .map(|(reference, needed)| json!({ "ref": reference, "dependsOn": needed }))
            .collect();
        let tool = json!({ "type": "application", "name": "olm-test", "version": env!("CARGO_PKG_VERSION") });
        let mut metadata = json!({ "tools": { "components": [tool] }, "component": subject });
        if let Some(time) = self.time {
            metadata["timestamp"] = json!(time.to_string());
        }
        let mut bill = json!({
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": "",
            "version": 1,
            "metadata": metadata,
            "components": parts.components.into_values().collect::<Vec<_>>(),
            "dependencies": edges,
        });
        bill["serialNumber"] = json!(serial(&serde_json::to_vec(&bill)?));
        Ok(serde_json::to_string_pretty(&bill)? + "\n")
    }
}

/// A UUID of the form for own purposes (version 8 of RFC 9562), from the content.
fn serial(content: &[u8]) -> String {
    let mut bytes: Vec<u8> = Sha256::digest(content).iter().take(16).copied().collect();
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = hex::encode(bytes);
    let group = |from: usize, to: usize| &digits[from..to];
    let groups = [
        group(0, 8),
        group(8, 12),
        group(12, 16),
        group(16, 20),
        group(20, 32),
    ];
    format!("urn:uuid:{}", groups.join("-"))
}

/// The address of a package, which also is its reference in the bill.
fn purl((name, version): &Id) -> String {
    // Metadata of a build follows a plus sign.
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn sha256(digits: &str) -> Value {
    json!([{ "alg": "SHA-256", "content": digits }])
}

fn expression(licence: &str) -> Value {
    json!([{ "expression": licence }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_a_uuid_that_depends_on_the_content() {
        let found = serial(b"a");
        assert_eq!(found, "urn:uuid:ca978112-ca1b-8dca-bac2-31b39a23dc4d");
        assert_ne!(found, serial(b"b"));
    }

    #[test]
    fn addresses_escape_the_plus_sign() {
        let id = ("zstd-sys".to_owned(), "2.0.16+zstd.1.5.7".to_owned());
        assert_eq!(purl(&id), "pkg:cargo/zstd-sys@2.0.16%2Bzstd.1.5.7");
    }
}
