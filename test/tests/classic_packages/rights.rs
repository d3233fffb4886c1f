//! Rights to read packages.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::content::Package;
use crate::stage::{CLUSTER, Stage};

/// Makes a namespace with two accounts, of which `reader` may read packages, and a package.
async fn prepare(stage: &Stage, namespace: &str) -> Result<()> {
    stage.namespace(namespace)?;
    let account = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name},
        })
    };
    stage.lab.apply(&[
        account("reader"),
        account("stranger"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"namespace": namespace, "name": "reader"},
            "rules": [{
                "apiGroups": ["packages.operators.coreos.com"],
                "resources": ["packagemanifests", "packagemanifests/icon"], "verbs": ["get", "list", "watch"],
            }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
        }),
    ])?;
    stage
        .serve(namespace, "guarded", &[Package::new("guarded", &["1.0.0"])])
        .await?;
    stage
        .shows(&["-n", namespace], |table| table.contains("guarded"))
        .await
        .map(drop)
}

async fn token(stage: &Stage, namespace: &str, account: &str) -> Result<String> {
    let request = TokenRequest {
        spec: Some(TokenRequestSpec::default()),
        ..TokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(stage.lab.client.clone(), namespace);
    let made = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    made.status.and_then(|status| status.token).context("no token")
}

#[test]
fn only_those_who_may_read_packages_see_them() {
    let scenario = async |stage: &Stage| {
        prepare(stage, "guarding").await?;
        let of = |account: &str| format!("--as=system:serviceaccount:guarding:{account}");
        let ask = |arguments: &[&str], account: &str| {
            let user = of(account);
            stage
                .lab
                .kubectl(&[arguments, &["-n", "guarding", &user]].concat())
        };
        let may = [
            "auth",
            "can-i",
            "list",
            "packagemanifests.packages.operators.coreos.com",
        ];
        ensure!(ask(&may, "reader")?.trim() == "yes");
        ensure!(ask(&may, "stranger").is_err());
        ensure!(ask(&["get", "packagemanifests"], "reader")?.contains("guarded"));
        let refused = ask(&["get", "packagemanifests"], "stranger")
            .unwrap_err()
            .to_string();
        ensure!(
            refused.contains("Forbidden") && refused.contains("cannot list resource"),
            "{refused}"
        );
        let elsewhere = stage
            .lab
            .kubectl(&["get", "packagemanifests", "-n", "default", &of("reader")]);
        ensure!(elsewhere.is_err());
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn the_program_itself_admits_only_those_whom_the_api_server_knows_and_allows() {
    let scenario = async |stage: &Stage| {
        prepare(stage, "direct").await?;
        let client = reqwest::Client::builder()
            .danger_accept_invalid_certs(true)
            .build()?;
        let url = |path: &str| {
            let base = "apis/packages.operators.coreos.com/v1/namespaces/direct/packagemanifests";
            format!("https://{}/{base}{path}", stage.address)
        };
        let ask = async |request: reqwest::RequestBuilder| -> Result<(StatusCode, Value)> {
            let answer = request.send().await?;
            Ok((answer.status(), serde_json::from_str(&answer.text().await?)?))
        };
        let (reader, stranger) = (
            token(stage, "direct", "reader").await?,
            token(stage, "direct", "stranger").await?,
        );
        let (code, found) = ask(client.get(url("/guarded")).bearer_auth(&reader)).await?;
        ensure!(
            code == StatusCode::OK && found["metadata"]["name"] == "guarded",
            "{found}"
        );
        let (code, refused) = ask(client.get(url("")).bearer_auth(&stranger)).await?;
        ensure!(
            code == StatusCode::FORBIDDEN && refused["reason"] == "Forbidden",
            "{refused}"
        );
        let expected = "packagemanifests.packages.operators.coreos.com is forbidden: User \
                        \"system:serviceaccount:direct:stranger\" cannot list resource \"packagemanifests\" in API group \
                        \"packages.operators.coreos.com\" in the namespace \"direct\"";
        ensure!(refused["message"] == expected, "{refused}");
        let (code, refused) = ask(client.get(url("")).bearer_auth("made-up")).await?;
        ensure!(
            code == StatusCode::UNAUTHORIZED && refused["kind"] == "Status",
            "{refused}"
        );
        let forged = client.get(url("")).header("X-Remote-User", "admin");
        let (code, refused) = ask(forged.header("X-Remote-Group", "system:masters")).await?;
        ensure!(code == StatusCode::FORBIDDEN, "{refused}");
        ensure!(
            refused["message"].to_string().contains("system:anonymous"),
            "{refused}"
        );
        let live = client
            .get(format!("https://{}/livez", stage.address))
            .send()
            .await?;
        ensure!(live.status() == StatusCode::OK);
        let protobuf = client.get(url("")).bearer_auth(&reader);
        let protobuf = protobuf.header("Accept", "application/vnd.kubernetes.protobuf");
        let (code, refused) = ask(protobuf).await?;
        ensure!(
            code == StatusCode::NOT_ACCEPTABLE && refused["reason"] == "NotAcceptable",
            "{refused}"
        );
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}

#[test]
fn packages_are_only_read() {
    let scenario = async |stage: &Stage| {
        prepare(stage, "readonly").await?;
        for arguments in [
            ["delete", "packagemanifest", "guarded", "-n", "readonly"].as_slice(),
            &["label", "packagemanifest", "guarded", "a=b", "-n", "readonly"],
        ] {
            let refused = stage.lab.kubectl(arguments).unwrap_err().to_string();
            ensure!(refused.contains("does not allow this method"), "{refused}");
        }
        Ok(())
    };
    CLUSTER.with(scenario).unwrap();
}
