//! The effects of a deletion for people. Pure.

use std::fmt::Write as _;

use olm_api::names::label;
use olm_api::text::counted;
use olm_plan::change::ObjectName;
use olm_plan::uninstall::{CustomResources, UninstallPlan};

use super::stays::{Remains, RoleName};

/// What is removed, what is kept and what stays, with the commands that remove it; `policy` is the value of the
/// annotation that decides.
pub(super) fn text(plan: &UninstallPlan, remains: &Remains, policy: &str) -> String {
    let name = &plan.extension;
    let mut text = format!("uninstalling {name} removes {}", count(plan.removed.len()));
    if !plan.left.is_empty() {
        let _ = write!(
            text,
            " and keeps {}, because uninstall is {policy}",
            count(plan.left.len())
        );
    }
    text.push('\n');
    for (title, sign, list) in [("Removed", '-', &plan.removed), ("Kept", ' ', &plan.left)] {
        if !list.is_empty() {
            let _ = write!(text, "\n{title}:\n");
        }
        for id in list {
            let _ = writeln!(text, "{sign} {}", object_label(id));
        }
    }
    if !plan.left.is_empty() {
        let goes = if plan.custom_resources.is_empty() {
            ""
        } else {
            ", with all custom resources"
        };
        let _ = writeln!(text, "To remove them later{goes}: {}", later(plan));
    }
    if !plan.custom_resources.is_empty() {
        text.push_str("\nCustom resources:\n");
    }
    for kind in &plan.custom_resources {
        custom_resources(&mut text, kind);
    }
    if !plan.dependents.is_empty() {
        text.push_str("\nOther extensions depend on it, so that it is not removed:\n");
    }
    for dependent in &plan.dependents {
        let _ = writeln!(text, "! {}: {}", dependent.extension, dependent.reason);
    }
    stays(&mut text, name, remains);
    text
}

fn count(objects: usize) -> String {
    match objects {
        0 => "no objects".to_owned(),
        some => counted(some, "object"),
    }
}

fn object_label(id: &ObjectName) -> String {
    let id = &id.0;
    named(&id.kind, &id.namespace, &id.name)
}

fn named(kind: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        format!("{kind} {name}")
    } else {
        format!("{kind} {namespace}/{name}")
    }
}

/// The command that removes the objects that are kept; their custom resources go with the definitions.
fn later(plan: &UninstallPlan) -> String {
    let mut kinds: Vec<String> = plan
        .left
        .iter()
        .map(|id| match (id.0.kind.to_lowercase(), id.0.group.as_str()) {
            (kind, "") => kind,
            (kind, group) => format!("{kind}.{group}"),
        })
        .collect();
    kinds.sort();
    kinds.dedup();
    let (kinds, label) = (kinds.join(","), label::OWNER_NAME);
    format!("kubectl delete {kinds} -A -l {label}={}", plan.extension)
}

fn custom_resources(text: &mut String, kind: &CustomResources) {
    let (sign, effect) = if kind.left {
        (' ', "kept")
    } else {
        ('-', "deleted")
    };
    let definition = &kind.definition;
    let _ = match kind.objects {
        Some(0) => writeln!(text, "  {definition}: none"),
        Some(count) => writeln!(text, "{sign} {definition}: {count} {effect}"),
        None => writeln!(text, "{sign} {definition}: an unknown number {effect}"),
    };
    for finalizer in &kind.finalizers {
        let _ = writeln!(
            text,
            "    ! {} of them wait for the finalizer {}, which only the operator removes: {}",
            finalizer.objects,
            finalizer.name,
            finalizer.examples.join(", ")
        );
    }
    if let Some(note) = &kind.note {
        let _ = writeln!(text, "    ! {note}");
    }
}

/// The account, its roles and the namespace.
fn stays(text: &mut String, name: &str, remains: &Remains) {
    let _ = writeln!(
        text,
        "\nStays, because OLM needs the account until {name} is gone:"
    );
    let with = |what: String, others: &[String]| match others {
        [] => what,
        others => format!("{what}, which {} uses too", others.join(", ")),
    };
    if let Some(account) = &remains.account {
        let label = named("ServiceAccount", &account.namespace, &account.name);
        let _ = writeln!(text, "  {}", with(label, &account.used_by));
    }
    for role in &remains.roles {
        let _ = writeln!(text, "  {}", named(&role.kind, &role.namespace, &role.name));
    }
    for one in &remains.bindings {
        let RoleName {
            kind,
            namespace,
            name,
        } = &one.object;
        let also = if one.is_alone { "" } else { " and others" };
        let _ = writeln!(
            text,
            "  {}, which gives it{also} the {}",
            named(kind, namespace, name),
            one.role
        );
    }
    if !remains.namespace.is_empty() {
        let label = named("Namespace", "", &remains.namespace);
        let _ = writeln!(text, "  {}", with(label, &remains.neighbours));
    }
    for why in &remains.unread {
        let _ = writeln!(text, "  ! {why}");
    }
    let commands = remains.commands(name);
    if !commands.is_empty() {
        let _ = writeln!(text, "To remove it afterwards:");
    }
    for command in commands {
        let _ = writeln!(text, "  {command}");
    }
}

#[cfg(test)]
mod tests {
    use olm_rollout::object::ObjectId;

    use super::*;
    use crate::extension::uninstall::stays::{AccountPlace, Binding};

    fn id(group: &str, kind: &str, name: &str) -> ObjectName {
        ObjectName(ObjectId {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            ..ObjectId::of(&serde_json::Value::Null)
        })
    }

    #[test]
    fn the_text_says_what_is_removed_what_stays_why_and_what_removes_it() {
        let kind = |definition: &str, objects| CustomResources {
            definition: definition.to_owned(),
            left: true,
            objects,
            ..CustomResources::default()
        };
        let plan = UninstallPlan {
            extension: "greeter".to_owned(),
            removed: vec![id("apps", "Deployment", "greeter")],
            left: vec![
                id("apiextensions.k8s.io", "CustomResourceDefinition", "a.x"),
                id("apiextensions.k8s.io", "CustomResourceDefinition", "b.x"),
            ],
            custom_resources: vec![kind("a.x", Some(0)), kind("b.x", Some(2))],
            dependents: Vec::new(),
        };
        let remains = Remains {
            namespace: "greeter".to_owned(),
            account: Some(AccountPlace {
                namespace: "greeter".to_owned(),
                name: "installer".to_owned(),
                used_by: Vec::new(),
            }),
            roles: vec![RoleName {
                kind: "ClusterRole".to_owned(),
                namespace: String::new(),
                name: "greeter-needs-1".to_owned(),
            }],
            bindings: vec![Binding {
                object: RoleName {
                    kind: "RoleBinding".to_owned(),
                    namespace: "greeter".to_owned(),
                    name: "view".to_owned(),
                },
                role: "ClusterRole view".to_owned(),
                is_alone: true,
            }],
            neighbours: vec!["other".to_owned()],
            are_others_known: true,
            unread: Vec::new(),
        };
        assert_eq!(
            text(&plan, &remains, "keep-crds"),
            "uninstalling greeter removes 1 object and keeps 2 objects, because uninstall is keep-crds\n\
             \nRemoved:\n- Deployment greeter\n\
             \nKept:\n  CustomResourceDefinition a.x\n  CustomResourceDefinition b.x\n\
             To remove them later, with all custom resources: kubectl delete customresourcedefinition.apiextensions.k8s.io -A -l \
             olm.operatorframework.io/owner-name=greeter\n\
             \nCustom resources:\n  a.x: none\n  b.x: 2 kept\n\
             \nStays, because OLM needs the account until greeter is gone:\n  \
             ServiceAccount greeter/installer\n  ClusterRole greeter-needs-1\n  RoleBinding greeter/view, which gives it the ClusterRole view\n  \
             Namespace greeter, which other uses too\n\
             To remove it afterwards:\n  kubectl delete \
             clusterroles,clusterrolebindings,roles,rolebindings -A -l olm.operatorframework.io/rights-of=greeter\n  \
             kubectl delete rolebinding view -n greeter\n  kubectl delete serviceaccount installer -n greeter\n"
        );
    }
}
