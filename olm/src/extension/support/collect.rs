//! The content of the archive, the most useful first: the last files may no longer fit.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::AsyncReadExt as _;
use http::Request;
use kube::Client;
use olm_api::names;
use olm_api::object::text;
use olm_api::serving::percent_encode;
use serde_json::{Value, json};

use super::archive::Archive;
use super::redact::Redactor;
use crate::output::message;

/// The timeout of one answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes.
const MAX_ANSWER: u64 = 16 << 20;
/// The number of objects on a page: a ClusterServiceVersion may have half a megabyte.
const PAGE: u32 = 25;
/// The largest log of one container, in bytes.
const MAX_LOG: u32 = 4 << 20;
/// The namespace of events about objects without a namespace.
const EVENTS_NAMESPACE: &str = "default";
/// The kinds of ours that are collected first; the large ones are collected last.
const FIRST: [&str; 4] = [
    "clusterextensions",
    "clustercatalogs",
    "changepolicies",
    "pendingchanges",
];
const LAST: &str = "clusterobjectsets";
/// Kinds in the namespace of OLM: API, plural.
const NAMESPACED: [(&str, &str); 8] = [
    ("apis/apps/v1", "deployments"),
    ("api/v1", "pods"),
    ("api/v1", "services"),
    ("apis/discovery.k8s.io/v1", "endpointslices"),
    ("apis/coordination.k8s.io/v1", "leases"),
    ("apis/policy/v1", "poddisruptionbudgets"),
    ("apis/networking.k8s.io/v1", "networkpolicies"),
    ("api/v1", "events"),
];
/// Kinds of which only metadata and keys are shown.
const KEYS_ONLY: [&str; 2] = ["secrets", "configmaps"];

/// Reads a cluster into an archive.
pub(super) struct Collector<'a> {
    client: &'a Client,
    namespace: &'a str,
    redactor: Redactor,
    archive: Archive,
    /// The missing parts, with reasons.
    warnings: Vec<String>,
    /// Lines about the collected parts.
    contents: String,
}

impl<'a> Collector<'a> {
    pub(super) const fn new(
        client: &'a Client,
        namespace: &'a str,
        redactor: Redactor,
        archive: Archive,
    ) -> Self {
        Self {
            client,
            namespace,
            redactor,
            archive,
            warnings: Vec::new(),
            contents: String::new(),
        }
    }

    /// Collects all parts; fails if the cluster does not answer at all.
    pub(super) async fn collect(mut self) -> anyhow::Result<(Archive, Vec<String>)> {
        let server = self
            .ask("/version")
            .await
            .context("the cluster does not answer")?;
        let server: Value =
            serde_json::from_slice(&server).context("the answer of the cluster is not a version")?;
        for plural in FIRST {
            self.ours(plural).await?;
        }
        let mut pods = Vec::new();
        for (api, plural) in NAMESPACED {
            let path = format!("/{api}/namespaces/{}/{plural}", self.namespace);
            let file = format!("namespace/{plural}.yaml");
            let found = self.objects(&path, &file, |_| true).await?;
            if plural == "pods" {
                pods = found;
            }
        }
        let path = format!("/api/v1/namespaces/{EVENTS_NAMESPACE}/events");
        let is_ours = |event: &Value| {
            let version = event
                .pointer("/involvedObject/apiVersion")
                .and_then(Value::as_str);
            version.is_some_and(|version| version.split('/').next() == Some(names::GROUP))
        };
        self.objects(&path, "events.yaml", is_ours).await?;
        for plural in KEYS_ONLY {
            self.keys(plural).await?;
        }
        for pod in &pods {
            self.logs(pod, "logs").await?;
            self.metrics(pod).await?;
        }
        self.ours(LAST).await?;
        self.classic().await?;
        self.summary(&server)?;
        Ok((self.archive, self.warnings))
    }

    async fn ours(&mut self, plural: &str) -> anyhow::Result<()> {
        let path = format!("/apis/{}/{}/{plural}", names::GROUP, names::VERSION);
        self.objects(&path, &format!("{plural}.yaml"), |_| true)
            .await
            .map(drop)
    }

    /// Adds the objects of a list for which `keep` holds, and returns them without credentials.
    async fn objects(
        &mut self,
        path: &str,
        file: &str,
        keep: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Vec<Value>> {
        let (listed, error) = self.list(path, keep).await;
        if let Some(error) = error {
            self.warn(file, &error);
        }
        self.documents(file, &listed)?;
        Ok(listed)
    }

    /// Adds a file of these objects, if there are any.
    pub(super) fn documents(&mut self, file: &str, objects: &[Value]) -> anyhow::Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let documents: Vec<String> = objects.iter().map(olm_yaml::to_yaml).collect();
        self.add(file, &documents, "---\n")
    }

    /// The objects of a list, read page by page, and the reason if it ended early. The path may have a query.
    pub(super) async fn list(
        &self,
        path: &str,
        keep: impl Fn(&Value) -> bool,
    ) -> (Vec<Value>, Option<anyhow::Error>) {
        let query = if path.contains('?') { '&' } else { '?' };
        let (mut found, mut next, mut bytes) = (Vec::new(), String::new(), 0);
        loop {
            let page = async {
                let answer = self
                    .ask(&format!(
                        "{path}{query}limit={PAGE}&continue={}",
                        percent_encode(&next)
                    ))
                    .await?;
                let page = serde_json::from_slice::<Value>(&answer).context("the answer is not a list")?;
                anyhow::Ok((answer.len() as u64, page))
            };
            let (size, mut page) = match page.await {
                Ok(read) => read,
                Err(error) => return (found, Some(error)),
            };
            let field = |name: &str| page.get(name).cloned().unwrap_or_default();
            let (kind, version) = (field("kind"), field("apiVersion"));
            let items = page
                .get_mut("items")
                .and_then(Value::as_array_mut)
                .map(std::mem::take);
            for mut item in items.unwrap_or_default() {
                if let Some(fields) = item.as_object_mut() {
                    // Objects in a list have no kind.
                    let kind = kind
                        .as_str()
                        .and_then(|kind| kind.strip_suffix("List"))
                        .unwrap_or_default();
                    fields.entry("kind").or_insert_with(|| kind.into());
                    fields.entry("apiVersion").or_insert_with(|| version.clone());
                }
                if keep(&item) {
                    self.redactor.object(&mut item);
                    found.push(item);
                }
            }
            bytes += size;
            let token = page.pointer("/metadata/continue").and_then(Value::as_str);
            token.unwrap_or_default().clone_into(&mut next);
            if next.is_empty() {
                return (found, None);
            }
            if bytes > self.archive.left() {
                return (
                    found,
                    Some(anyhow!("there are more objects than fit; set --max-size")),
                );
            }
        }
    }

    /// Adds the metadata and the keys of Secrets or ConfigMaps.
    async fn keys(&mut self, plural: &str) -> anyhow::Result<()> {
        let file = format!("namespace/{plural}.yaml");
        let path = format!("/api/v1/namespaces/{}/{plural}", self.namespace);
        let (listed, error) = self.list(&path, |_| true).await;
        if let Some(error) = error {
            self.warn(&file, &error);
        }
        let documents: Vec<String> = listed
            .iter()
            .map(|object| {
                let data = object.get("data").and_then(Value::as_object);
                let keys: Vec<&String> = data.into_iter().flatten().map(|(key, _)| key).collect();
                olm_yaml::to_yaml(&json!({
                    "metadata": object.get("metadata"), "type": object.get("type"), "keys": keys,
                }))
            })
            .collect();
        if documents.is_empty() {
            return Ok(());
        }
        self.add(&file, &documents, "---\n")
    }

    /// Adds the logs of the containers of a Pod to a folder, also those from before a restart.
    pub(super) async fn logs(&mut self, pod: &Value, folder: &str) -> anyhow::Result<()> {
        let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
        let statuses = statuses
            .into_iter()
            .filter_map(|pointer| pod.pointer(pointer)?.as_array());
        for status in statuses.flatten() {
            let container = text(status, "/name");
            let restarts = status
                .get("restartCount")
                .and_then(Value::as_u64)
                .unwrap_or_default();
            for (is_previous, suffix) in [(false, ""), (true, ".previous")] {
                if is_previous && restarts == 0 {
                    continue;
                }
                let name = text(pod, "/metadata/name");
                let namespace = text(pod, "/metadata/namespace");
                let file = format!("{folder}/{name}.{container}{suffix}.log");
                let path = format!(
                    "/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&previous={is_previous}\
                     &tailLines=50000&limitBytes={MAX_LOG}&timestamps=true"
                );
                self.text(&file, &path).await?;
            }
        }
        Ok(())
    }

    /// Adds the metrics of a Pod that has a port for them and admits the API server.
    async fn metrics(&mut self, pod: &Value) -> anyhow::Result<()> {
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let ports = containers
            .into_iter()
            .flatten()
            .filter_map(|one| one.get("ports")?.as_array())
            .flatten();
        let port = ports
            .filter(|port| text(port, "/name") == "metrics")
            .find_map(|port| port.get("containerPort")?.as_u64());
        let Some(port) = port else {
            return Ok(());
        };
        let name = text(pod, "/metadata/name");
        let path = format!(
            "/api/v1/namespaces/{}/pods/https:{name}:{port}/proxy/metrics",
            self.namespace
        );
        self.text(&format!("metrics/{name}.txt"), &path).await
    }

    /// Adds a text.
    async fn text(&mut self, file: &str, path: &str) -> anyhow::Result<()> {
        match self.ask(path).await {
            Ok(bytes) => {
                let text = self.redactor.text(&String::from_utf8_lossy(&bytes));
                self.add(file, &[text], "")
            }
            Err(error) => {
                self.warn(file, &error);
                Ok(())
            }
        }
    }

    /// Adds a file of as many parts as fit.
    fn add(&mut self, file: &str, parts: &[String], separator: &str) -> anyhow::Result<()> {
        let (mut content, mut count) = (String::new(), 0);
        for part in parts {
            let needed = content.len() + separator.len() + part.len();
            if needed as u64 > self.archive.left() {
                break;
            }
            if count > 0 {
                content.push_str(separator);
            }
            content.push_str(part);
            count += 1;
        }
        if count < parts.len() {
            let why = anyhow!(
                "{} of {} do not fit; set --max-size",
                parts.len() - count,
                parts.len()
            );
            self.warn(file, &why);
        }
        if count > 0 && self.archive.add(file, content.as_bytes())? {
            writeln!(self.contents, "{file}  {} bytes", content.len())?;
        }
        Ok(())
    }

    pub(super) fn warn(&mut self, file: &str, error: &anyhow::Error) {
        self.warnings
            .push(format!("{file}: {}", self.redactor.text(&message(error, None))));
    }

    fn summary(&mut self, server: &Value) -> anyhow::Result<()> {
        let mut text = format!(
            "olm         {}\nKubernetes  {} ({})\nnamespace   {}\ntime        {}\n\nFiles:\n{}",
            olm_platform::version::known(env!("CARGO_PKG_VERSION")),
            self::text(server, "/gitVersion"),
            self::text(server, "/platform"),
            self.namespace,
            jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            self.contents
        );
        if !self.warnings.is_empty() {
            write!(text, "\nMissing:\n{}\n", self.warnings.join("\n"))?;
        }
        self.archive.write("summary.txt", text.as_bytes())
    }

    /// An answer of the API server, up to the limit.
    pub(super) async fn ask(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let asked = async {
            let request = Request::get(path).body(Vec::new())?;
            let answer = self.client.request_stream(request).await?;
            let mut bytes = Vec::new();
            std::pin::pin!(answer)
                .take(MAX_ANSWER + 1)
                .read_to_end(&mut bytes)
                .await?;
            if bytes.len() as u64 > MAX_ANSWER {
                return Err(anyhow!("the answer has more than {MAX_ANSWER} bytes"));
            }
            Ok(bytes)
        };
        let answered = tokio::time::timeout(PATIENCE, asked).await;
        answered.map_err(|_| anyhow!("no answer within {} s", PATIENCE.as_secs()))?
    }
}
