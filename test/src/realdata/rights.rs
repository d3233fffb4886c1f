//! `olm-test real-rights DIR`: the roles from `olm rbac` are sufficient and minimal for the installation of each real
//! bundle.
//!
//! Sufficient: an account with only these roles applies every object of the bundle on an API server, as a dry run.
//! Minimal: without any single verb of a rule, the check before an installation reports a missing right.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use kube::discovery::{ApiGroup, Discovery, Scope};
use olm_bundle::config::with_own_namespace;
use olm_bundle::{CertificateProvider, Dependencies, Request, prepare};
use olm_preflight::permissions::{
    self, AccountRights, Completeness, Environment, Planned, Presence, RequiredRights, granted_rules, needed,
};
use olm_preflight::rules::PolicyRule;
use olm_rollout::certificates::layout;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::bundles::{directories, read};
use super::cluster::choose::key;
use crate::world::{Lab, binary, kubectl};

const ACCOUNT: &str = "installer";

/// Prints a line for each bundle like a test, of these packages only when some are named, and returns whether all
/// passed.
///
/// # Errors
/// When the data cannot be read, has not all named packages, or the cluster does not start.
pub async fn run(dir: &Path, packages: &[String]) -> Result<bool> {
    let lab = Lab::empty().await?;
    let served = served(&Discovery::new(lab.client.clone()).run().await?);
    let (mut passed, mut failed) = (0, 0);
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    let mut verbs = 0;
    let mut out = std::io::stdout();
    let root = dir.join("bundles");
    let known = directories(&root);
    let unknown: Vec<&String> = packages
        .iter()
        .filter(|package| !known.contains(package.as_str()))
        .collect();
    ensure!(unknown.is_empty(), "no bundles of {unknown:?}");
    let wanted = |package: &String| packages.is_empty() || packages.contains(package);
    for package in known.into_iter().filter(wanted) {
        for version in directories(&root.join(&package)) {
            let bundle = Bundle {
                folder: root.join(&package).join(&version),
                namespace: format!("rights-{}", passed + failed),
            };
            let outcome = match bundle.installation() {
                Ok(installation) => bundle.check(&lab, &served, &installation),
                Err(refused) => {
                    *left_out.entry(refused).or_default() += 1;
                    continue;
                }
            };
            match outcome {
                Ok(count) => {
                    passed += 1;
                    verbs += count;
                    writeln!(out, "test {package} {version} ... ok")?;
                }
                Err(error) => {
                    failed += 1;
                    writeln!(out, "test {package} {version} ... FAILED\n{error:#}")?;
                }
            }
        }
    }
    for (reason, count) in left_out {
        writeln!(out, "  {count:5}  {reason}")?;
    }
    writeln!(
        out,
        "\n{passed} passed, {failed} failed; {verbs} verbs of rules were taken away, one at a time"
    )?;
    Ok(failed == 0 && passed > 0)
}

/// The resources of an API server.
fn served(discovery: &Discovery) -> permissions::Discovery {
    let resources = discovery.groups().flat_map(ApiGroup::recommended_resources);
    resources
        .map(|(resource, capabilities)| {
            let scope = match capabilities.scope {
                Scope::Cluster => permissions::Scope::Cluster,
                Scope::Namespaced => permissions::Scope::Namespaced,
            };
            let plural = resource.plural;
            (
                (resource.group, resource.kind),
                permissions::Resource { plural, scope },
            )
        })
        .collect()
}

struct Bundle {
    folder: PathBuf,
    namespace: String,
}

/// The parts of the installation of a bundle.
struct Installation {
    /// The configuration, for an operator that watches its own namespace alone.
    config: Option<Value>,
    /// All applied objects.
    objects: Vec<Value>,
}

impl Bundle {
    /// The installation, or the reason why the bundle cannot be installed.
    fn installation(&self) -> Result<Installation, String> {
        let files = read(&self.folder).map_err(|error| format!("{error:#}"))?;
        let kind = |refusal: olm_bundle::PrepareError| format!("refused: {}", refusal.kind());
        let bundle = olm_bundle::parse(&files, &BTreeMap::new())
            .map_err(|error| format!("refused: {}", error.kind()))?;
        let config = with_own_namespace(&bundle.csv().install_modes(), None, &self.namespace);
        let request = Request {
            config: config.as_ref(),
            certificates: Some(CertificateProvider::SelfSigned),
            dependencies: Dependencies::Evaluated,
            ..Request::new(&self.namespace)
        };
        let prepared = prepare(&files, &BTreeMap::new(), &request).map_err(kind)?;
        let mut objects = prepared.rendered.into_objects();
        let secrets = layout::secrets(objects.iter());
        objects.extend(secrets);
        Ok(Installation { config, objects })
    }

    /// Checks the roles without each verb. Returns the number of verbs.
    fn check(
        &self,
        lab: &Lab,
        served: &permissions::Discovery,
        installation: &Installation,
    ) -> Result<usize> {
        let objects = &installation.objects;
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": ACCOUNT, "namespace": self.namespace },
        });
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace } });
        apply(lab, &[], &format!("{namespace}\n{account}"))?;
        let roles = self.printed_roles(installation.config.as_ref())?;
        // Roles for namespaces that the bundle's objects name.
        for namespace in namespaces(objects) {
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            apply(lab, &[], &namespace.to_string())?;
        }
        // A bundle without objects needs nothing.
        if objects.is_empty() && roles.is_empty() {
            return Ok(0);
        }
        let applied: Value = serde_json::from_str(&apply(lab, &["-o", "json"], &roles)?)?;
        self.dry_run(lab, served, objects)?;
        self.take_away(served, objects, &rules(&applied))
    }

    fn printed_roles(&self, config: Option<&Value>) -> Result<String> {
        let mut command = Command::new(binary("olm")?);
        command
            .args([
                "rbac",
                "--service-account",
                ACCOUNT,
                "--namespace",
                &self.namespace,
            ])
            .arg("--bundle")
            .arg(&self.folder);
        let file = NamedTempFile::new()?;
        if let Some(config) = config {
            std::fs::write(file.path(), config.to_string())?;
            command.arg("--config").arg(file.path());
        }
        let ran = command.output()?;
        ensure!(
            ran.status.success(),
            "olm rbac: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
        Ok(String::from_utf8(ran.stdout)?)
    }

    /// Applies all objects as the account. A refusal for another reason is not about rights.
    fn dry_run(&self, lab: &Lab, served: &permissions::Discovery, objects: &[Value]) -> Result<()> {
        let known = objects.iter().filter(|object| {
            let [group, kind, ..] = key(object);
            served.contains_key(&(group, kind))
        });
        let known: String = known.map(|object| format!("{object}\n")).collect();
        let user = format!("--as=system:serviceaccount:{}:{ACCOUNT}", self.namespace);
        let Err(error) = apply(lab, &["--dry-run=server", &user, "-n", &self.namespace], &known) else {
            return Ok(());
        };
        let text = format!("{error:#}");
        let forbidden: Vec<&str> = text.lines().filter(|line| line.contains("orbidden")).collect();
        ensure!(
            forbidden.is_empty(),
            "the account may not:\n{}",
            forbidden.join("\n")
        );
        Ok(())
    }

    fn take_away(&self, served: &permissions::Discovery, objects: &[Value], rules: &Rules) -> Result<usize> {
        let planned: Vec<Planned<'_>> = objects
            .iter()
            .map(|object| Planned {
                object,
                presence: Presence::Absent,
            })
            .collect();
        let mut discovery = served.clone();
        for object in objects {
            let [group, kind, ..] = key(object);
            // Bundles have namespaced kinds that no API server has by itself, ServiceMonitor for example.
            let plural = format!("{}s", kind.to_lowercase());
            let scope = permissions::Scope::Namespaced;
            let resource = permissions::Resource { plural, scope };
            discovery.entry((group, kind)).or_insert(resource);
        }
        let needs = needed(
            &planned,
            &Environment {
                discovery: &discovery,
                watched: &BTreeSet::new(),
                roles: &[],
                namespace: &self.namespace,
            },
        );
        let missing = needs.missing(&rights(&needs, rules));
        ensure!(missing.is_empty(), "rights are missing: {missing:?}");
        let mut count = 0;
        for (scope, list) in rules {
            for (at, rule) in list.iter().enumerate() {
                for verb in &rule.verbs {
                    let mut fewer = rules.clone();
                    let fewer_rules = fewer.get_mut(scope).and_then(|list| list.get_mut(at));
                    fewer_rules
                        .context("the rule is there")?
                        .verbs
                        .retain(|other| other != verb);
                    if needs.missing(&rights(&needs, &fewer)).is_empty() {
                        bail!("nothing needs {verb} of {rule:?} in {scope:?}");
                    }
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

/// Rules by namespace; `None` for those of the whole cluster.
type Rules = BTreeMap<Option<String>, Vec<PolicyRule>>;

fn rules(applied: &Value) -> Rules {
    let one = [applied.clone()];
    let items = applied
        .get("items")
        .and_then(Value::as_array)
        .map_or(one.as_slice(), Vec::as_slice);
    let mut rules = Rules::new();
    for role in items {
        let [_, kind, namespace, _] = key(role);
        let scope = match kind.as_str() {
            "Role" => Some(namespace),
            "ClusterRole" => None,
            _ => continue,
        };
        rules.entry(scope).or_default().extend(granted_rules(role));
    }
    rules
}

/// The rights of an account with these rules.
fn rights(needs: &RequiredRights, rules: &Rules) -> AccountRights {
    let mut rights = AccountRights::new();
    for scope in needs.scopes() {
        rights.add_rules(scope, Vec::new(), Completeness::Complete);
    }
    for (scope, list) in rules {
        rights.add_rules(scope.as_deref(), list.clone(), Completeness::Complete);
    }
    rights
}

fn namespaces(objects: &[Value]) -> BTreeSet<String> {
    let named = objects.iter().map(|object| {
        let [_, _, namespace, _] = key(object);
        namespace
    });
    named.filter(|namespace| !namespace.is_empty()).collect()
}

fn apply(lab: &Lab, more: &[&str], objects: &str) -> Result<String> {
    let arguments = [&["apply", "--server-side", "--force-conflicts", "-f", "-"], more].concat();
    kubectl(&lab.cluster, &arguments, Some(objects))
}
