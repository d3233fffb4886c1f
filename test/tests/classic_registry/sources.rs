//! Sources without an image: an address, a ConfigMap.

use std::sync::Arc;

use anyhow::Result;
use olm_test::registry::proxy::{Issued, named as terms};
use rcgen::KeyPair;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::stage::{CLUSTER, blobs, named, slice, source};

const CSV: &str = "
- apiVersion: operators.coreos.com/v1alpha1
  kind: ClusterServiceVersion
  metadata: {name: NAME.v1}
  spec:
    version: 1.0.0
    customresourcedefinitions:
      owned: [{name: dbs.db.example, version: v1, kind: Db}]
";

#[test]
fn a_source_with_an_address_is_connected_to() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("elsewhere")?;
        let image = stage.lab.push_catalog("elsewhere:v1", &blobs(&["e"])).await?;
        let served = stage.source(
            "elsewhere",
            "served",
            json!({"sourceType": "grpc", "image": image}),
        )?;
        stage.connected(&served, "READY").await?;
        let address = stage.endpoint("elsewhere", "served").await?;

        let spec = |address: &str| json!({"sourceType": "grpc", "address": address});
        let source = stage.source("elsewhere", "dialled", spec(&address))?;
        let found = stage.connected(&source, "READY").await?;
        assert_eq!(found["status"]["connectionState"]["address"], address.as_str());
        assert_eq!(found["status"]["registryService"]["protocol"], "grpc");
        assert_eq!(found["status"]["registryService"].get("serviceName"), None);
        assert!(
            stage
                .get(&named("v1", "Service", "elsewhere", "dialled"))
                .await?
                .is_none()
        );

        // The registry goes, and its address with it.
        stage.delete(&served).await?;
        let found = stage.connected(&source, "TRANSIENT_FAILURE").await?;
        let message = found["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(&address), "{message}");

        stage.source("elsewhere", "dialled", spec("nothing"))?;
        stage
            .becomes("the address is refused", &source, |found| {
                let message = found["status"]["message"].as_str().unwrap_or_default();
                message.contains("it must be HOST:PORT")
            })
            .await
            .map(drop)
    })
}

/// Speaks TLS for a registry that does not, and returns its address.
async fn secured(target: String, certificate: &Issued) -> Result<String> {
    let chain = vec![CertificateDer::from_pem_slice(certificate.pem().as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(certificate.key()?.serialize_pem().as_bytes())?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, target) = (acceptor.clone(), target.clone());
            tokio::spawn(async move {
                let mut client = acceptor.accept(stream).await?;
                let mut server = TcpStream::connect(&target).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    Ok(address)
}

#[test]
fn a_registry_elsewhere_that_speaks_tls_is_verified() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("secure")?;
        let image = stage.lab.push_catalog("secure:v1", &blobs(&["s"])).await?;
        let served = stage.source("secure", "served", json!({"sourceType": "grpc", "image": image}))?;
        stage.connected(&served, "READY").await?;
        let terms = terms("registry", &["127.0.0.1"])?;
        let certificate = Issued::alone(terms, KeyPair::generate()?)?;
        let plain = stage.endpoint("secure", "served").await?;
        let address = secured(plain, &certificate).await?;

        let mut source = source(
            "secure",
            "dialled",
            json!({"sourceType": "grpc", "address": address}),
        );
        source["metadata"]["annotations"] = json!({"olm.operatorframework.io/registry-tls": "true"});
        stage.lab.apply(std::slice::from_ref(&source))?;
        let found = stage.connected(&source, "TRANSIENT_FAILURE").await?;
        let message = found["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("--pull-cas-dir"), "{message}");
        let file = stage.lab.authorities().join("secure.crt");
        std::fs::write(&file, certificate.pem())?;
        let found = stage.connected(&source, "READY").await?;
        assert_eq!(found["status"]["connectionState"]["address"], address.as_str());
        Ok(())
    })
}

#[test]
fn the_image_follows_a_template_with_the_version_of_the_api_server() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("template")?;
        let version = stage.lab.client.apiserver_version().await?;
        let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
        let tag = format!("template:v{}.{minor}", version.major);
        let image = stage.lab.push_catalog(&tag, &blobs(&["t"])).await?;
        let template = format!(
            "{}/template:v{{kube_major_version}}.{{kube_minor_version}}",
            stage.lab.registry()?
        );
        let mut source = source("template", "catalog", json!({"sourceType": "grpc"}));
        source["metadata"]["annotations"] = json!({"olm.catalogImageTemplate": template});
        source["spec"]["image"] = "registry.example/placeholder:v1".into();
        stage.lab.apply(std::slice::from_ref(&source))?;
        let found = stage.connected(&source, "READY").await?;
        assert_eq!(found["spec"]["image"], image.as_str());
        let says = |found: &serde_json::Value, kind: &str| {
            let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
            let condition = conditions.find(|condition| condition["type"] == kind);
            condition.map(|found| {
                [
                    found["status"].clone(),
                    found["reason"].clone(),
                    found["message"].clone(),
                ]
            })
        };
        let resolved = "catalog image reference was successfully resolved";
        let expected = [json!("True"), json!("AllTemplatesResolved"), json!(resolved)];
        assert_eq!(says(&found, "TemplatesHaveResolved"), Some(expected));
        assert_eq!(
            says(&found, "ResolvedImage").map(|found| found[2].clone()),
            Some(json!(image))
        );

        let template = format!("{}/template:{{foo}}", stage.lab.registry()?);
        let patch = json!({"metadata": {"annotations": {"olm.catalogImageTemplate": template}}});
        let patch = format!("--patch={patch}");
        stage.lab.kubectl(&[
            "patch",
            "catsrc",
            "catalog",
            "-n",
            "template",
            "--type=merge",
            &patch,
        ])?;
        let found = stage
            .becomes("the template is refused", &source, |found| {
                says(found, "TemplatesHaveResolved").is_some_and(|found| found[1] == "UnableToResolve")
            })
            .await?;
        // The image that it has is served on.
        assert_eq!(found["spec"]["image"], image.as_str());
        assert_eq!(found["status"]["connectionState"]["lastObservedState"], "READY");
        Ok(())
    })
}

#[test]
fn a_config_map_is_served_and_followed() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("mapped")?;
        let map = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "mapped", "name": "content"},
                "data": {
                    "packages": format!("- {{packageName: {name}, channels: [{{name: alpha, currentCSV: {name}.v1}}]}}"),
                    "clusterServiceVersions": CSV.replace("NAME", name),
                    "customResourceDefinitions": "[]",
                },
            })
        };
        let spec = json!({"sourceType": "configmap", "configMap": "content"});
        let source = stage.source("mapped", "catalog", spec)?;
        let found = stage.connected(&source, "TRANSIENT_FAILURE").await?;
        assert_eq!(found["status"]["reason"], "ConfigMapError");
        stage.lab.apply(&[map("db")])?;
        let found = stage.connected(&source, "READY").await?;
        assert_eq!(found["status"]["configMapReference"]["name"], "content");
        assert_eq!(found["status"].get("reason"), None);
        let client = stage.client("mapped", "catalog").await?;
        let head = client.get_bundle_for_channel("db", "alpha").await?;
        assert!(head.csv_json.contains("dbs.db.example"), "{}", head.csv_json);
        assert_eq!(head.provided_apis[0].kind, "Db");

        let version = found["status"]["configMapReference"]["resourceVersion"].clone();
        stage.lab.apply(&[map("cache")])?;
        stage
            .becomes("the new content is noted", &source, |found| {
                found["status"]["configMapReference"]["resourceVersion"] != version
            })
            .await?;
        assert_eq!(client.list_packages().await?, ["cache"]);
        // Users keep their ConfigMap.
        let kept = stage.get(&map("cache")).await?.unwrap_or_default();
        assert_eq!(kept["metadata"].get("ownerReferences"), None);
        stage.delete(&source).await?;
        stage.goes(&slice("mapped", "catalog")).await?;
        assert!(stage.get(&map("cache")).await?.is_some());
        Ok(())
    })
}
