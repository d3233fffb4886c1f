//! A service account acts only for users who may impersonate it.

use anyhow::{Context as _, Result, bail, ensure};
use olm_api::names::{self, user};
use olm_test::extensions::{SOON, extensions};
use olm_test::world::World;
use serde_json::{Value, json};

use super::CLUSTER;

/// A ClusterExtension and a ClusterObjectSet as a user writes them.
fn written(extension: &str, account: Option<&str>, owner: Option<Value>) -> [Value; 2] {
    let mut one = json!({
        "apiVersion": names::API_VERSION,
        "kind": "ClusterExtension",
        "metadata": { "name": extension },
        "spec": {
            "namespace": "attack",
            "source": { "sourceType": "Catalog", "catalog": { "packageName": "none-such" } },
        },
    });
    let mut two = json!({
        "apiVersion": names::API_VERSION,
        "kind": "ClusterObjectSet",
        "metadata": { "name": format!("{extension}-1") },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    });
    if let Some(account) = account {
        one["spec"]["serviceAccount"] = json!({ "name": account });
        two["metadata"]["annotations"] =
            json!({ names::annotation::SERVICE_ACCOUNT: format!("attack/{account}") });
    }
    if let Some(owner) = owner {
        two["metadata"]["ownerReferences"] = json!([owner]);
    }
    [one, two]
}

/// Whether alice may do it, as a dry run.
fn alice(world: &World, arguments: &[&str], object: Option<&Value>) -> Result<bool> {
    let path = world.folder().join("alice.json");
    let place = path.display().to_string();
    let mut all = vec!["--as=alice", "--dry-run=server"];
    all.extend(arguments);
    if let Some(object) = object {
        std::fs::write(&path, object.to_string())?;
        all.extend(["-f", &place]);
    }
    match world.kubectl(&all) {
        Ok(_) => Ok(true),
        Err(error) if format!("{error:#}").contains("ValidatingAdmissionPolicy") => Ok(false),
        Err(error) => Err(error),
    }
}

/// Alice may write extensions and sets; another user has an extension with a strong account. Gives the reference to it.
async fn stage(world: &World) -> Result<Value> {
    let rbac = "rbac.authorization.k8s.io";
    world.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "attack"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "strong", "namespace": "attack"}}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "extension-writer"},
            "rules": [{"apiGroups": [names::GROUP], "resources": ["*"], "verbs": ["*"]}],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "extension-writer"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "extension-writer"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "alice"}],
        }),
    ])?;
    let [victim, _] = written("victim", Some("strong"), None);
    world.apply(&[victim])?;
    let uid = extensions(world)
        .get("victim")
        .await?
        .metadata
        .uid
        .context("uid")?;
    Ok(json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterExtension", "name": "victim", "uid": uid, "controller": true,
    }))
}

/// Sets that would count as a revision of another user's extension, or as complete.
fn impostors(owner: &Value) -> Vec<(&'static str, Value)> {
    let disguised = |field: &str, value: &str| {
        let mut owner = owner.clone();
        owner[field] = value.into();
        let [_, set] = written("victim", None, Some(owner));
        set
    };
    let [_, mut migrated] = written("victim", None, None);
    migrated["metadata"]["labels"] = json!({ names::label::MIGRATED_FROM_HELM: "true" });
    vec![
        (
            "a revision is given another kind of owner",
            disguised("kind", "Foo"),
        ),
        (
            "a revision is given an owner of another group",
            disguised("apiVersion", "x.io/v1"),
        ),
        ("a set says that its objects were there", migrated),
    ]
}

/// Changes of an existing revision: only the garbage collector may change its owner, and no user its account.
async fn owner_and_account_of_a_revision_stay(world: &World, owner: Value) -> Result<()> {
    let [_, mut revision] = written("victim", Some("strong"), Some(owner));
    revision["metadata"]["name"] = "victim-7".into();
    world.apply(&[revision])?;
    for (field, value, allowed) in [
        ("blockOwnerDeletion", "false", true),
        ("controller", "false", false),
        ("uid", r#""other""#, false),
    ] {
        let patch =
            format!(r#"[{{"op":"add","path":"/metadata/ownerReferences/0/{field}","value":{value}}}]"#);
        let change = [
            "patch",
            "clusterobjectset",
            "victim-7",
            "--type=json",
            "-p",
            &patch,
        ];
        let found = alice(world, &change, None).with_context(|| field.to_owned())?;
        ensure!(found == allowed, "{field} is changed: allowed is {found}");
    }
    let key = names::annotation::SERVICE_ACCOUNT;
    for change in [format!("{key}=attack/other"), format!("{key}-")] {
        world
            .eventually("the account stays", SOON, async || {
                let set = [
                    "annotate",
                    "clusterobjectset",
                    "victim-7",
                    "--overwrite",
                    "--dry-run=server",
                ];
                let outcome = world.kubectl(&[&set[..], &[&change]].concat());
                let refused = outcome
                    .err()
                    .filter(|error| format!("{error:#}").contains("never changes"));
                Ok(refused.map(drop))
            })
            .await?;
    }
    world
        .kubectl(&["delete", "clusterobjectset", "victim-7", "--wait=false"])
        .map(drop)
}

/// Objects that a user wants to keep are not deleted in the foreground, where Kubernetes deletes owned objects.
async fn objects_that_are_kept_survive_a_foreground_deletion(world: &World) -> Result<()> {
    let delete = |cascade: &str| {
        let cascade = format!("--cascade={cascade}");
        world.kubectl(&[
            "delete",
            "clusterextension",
            "victim",
            "--dry-run=server",
            &cascade,
        ])
    };
    let key = user::UNINSTALL;
    for (value, refused) in [
        ("=keep-crds", true),
        ("=orphan", true),
        ("=delete", false),
        ("-", false),
    ] {
        let change = format!("{key}{value}");
        world.kubectl(&["annotate", "--overwrite", "clusterextension", "victim", &change])?;
        world
            .eventually("the policy looks at deletions", SOON, async || {
                let outcome = delete("foreground");
                let error = outcome.as_ref().err().map(|error| format!("{error:#}"));
                let is_explained =
                    error.is_some_and(|error| error.contains("delete it without --cascade=foreground"));
                ensure!(
                    is_explained == refused && outcome.is_err() == refused,
                    "{value}: {outcome:?}"
                );
                Ok(Some(()))
            })
            .await?;
        delete("background").context("in the background")?;
    }
    Ok(())
}

#[test]
fn only_users_who_may_impersonate_an_account_may_name_it() -> Result<()> {
    CLUSTER.with(async |world| {
        let owner = stage(world).await?;
        let creations = |account| written("hers", account, None);
        world
            .eventually("the policy is in force", SOON, async || {
                let [extension, _] = creations(Some("strong"));
                Ok((!alice(world, &["create"], Some(&extension))?).then_some(()))
            })
            .await?;
        let check = |what: &str, arguments: &[&str], object: Option<&Value>, allowed: bool| -> Result<()> {
            match alice(world, arguments, object) {
                Ok(found) if found == allowed => Ok(()),
                Ok(found) => bail!("{what}: allowed is {found}"),
                Err(error) => Err(error.context(what.to_owned())),
            }
        };
        let [_, set] = creations(Some("strong"));
        check("a set names the account", &["create"], Some(&set), false)?;
        let mut malformed = set.clone();
        malformed["metadata"]["annotations"] = json!({ names::annotation::SERVICE_ACCOUNT: "strong" });
        check(
            "a set names half an account",
            &["create"],
            Some(&malformed),
            false,
        )?;
        for object in creations(None) {
            check("no account is named", &["create"], Some(&object), true)?;
        }
        let [_, revision] = written("victim", None, Some(owner.clone()));
        check("a revision is slipped in", &["create"], Some(&revision), false)?;
        owner_and_account_of_a_revision_stay(world, owner.clone()).await?;
        objects_that_are_kept_survive_a_foreground_deletion(world).await?;
        for (what, set) in impostors(&owner) {
            check(what, &["create"], Some(&set), false)?;
        }
        let spec = r#"{"spec":{"source":{"catalog":{"version":"1.0.0"}}}}"#;
        let account = r#"{"spec":{"serviceAccount":null}}"#;
        let orphan = format!(
            r#"{{"metadata":{{"annotations":{{"{}":"orphan"}}}}}}"#,
            user::UNINSTALL
        );
        let label = r#"{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}"#;
        let change = ["patch", "clusterextension", "victim", "--type=merge", "-p"];
        let with = |patch| -> Vec<&str> { change.iter().copied().chain([patch]).collect() };
        check("the spec is changed", &with(spec), None, false)?;
        check("the account is taken away", &with(account), None, false)?;
        check("an annotation is set", &with(&orphan), None, false)?;
        check("other metadata is changed", &with(label), None, true)?;
        let ours = format!(
            r#"{{"metadata":{{"labels":{{"{}":"other"}}}}}}"#,
            names::label::OWNER_NAME
        );
        check("a label of ours is set", &with(&ours), None, false)?;

        world.kubectl(&[
            "create",
            "role",
            "strong-user",
            "-n",
            "attack",
            "--verb=impersonate",
            "--resource=serviceaccounts",
            "--resource-name=strong",
        ])?;
        world.kubectl(&[
            "create",
            "rolebinding",
            "strong-user",
            "-n",
            "attack",
            "--role=strong-user",
            "--user=alice",
        ])?;
        world
            .eventually("the right counts", SOON, async || {
                let [extension, _] = creations(Some("strong"));
                Ok(alice(world, &["create"], Some(&extension))?.then_some(()))
            })
            .await?;
        check("a set names the account", &["create"], Some(&set), true)?;
        check("the spec is changed", &with(spec), None, true)?;
        check("a revision is slipped in", &["create"], Some(&revision), false)?;
        let [other, _] = creations(Some("stronger"));
        check("another account is named", &["create"], Some(&other), false)?;

        // With a default account, a spec without an account uses it.
        world.apply_file("manifests/overlays/default-account-guarded/policy.yaml")?;
        world
            .eventually("the policy of the overlay is in force", SOON, async || {
                let [extension, _] = creations(None);
                Ok((!alice(world, &["create"], Some(&extension))?).then_some(()))
            })
            .await?;
        let [_, none] = creations(None);
        check("a set names no account", &["create"], Some(&none), false)?;
        check("the account is taken away", &with(account), None, false)?;
        check("a set names the account", &["create"], Some(&set), true)?;
        check("the spec is changed", &with(spec), None, true)
    })
}
