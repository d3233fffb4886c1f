//! The causes of missing or unready Pods of a workload, as text.

use std::fmt::Write as _;

use olm_api::object::{list, text};
use serde_json::Value;

/// The group of the kinds that run Pods.
pub const APPS: &str = "apps";
/// The most causes that are named for one workload.
const NAMED: usize = 3;
/// The most bytes that are quoted from outside.
const QUOTED: usize = 400;
/// Waiting reasons of containers that are starting.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The state of a workload that is not ready.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadState<'a> {
    /// The workload as the cluster has it.
    pub workload: &'a Value,
    /// The Pods, or the reason why they are unknown.
    pub pods: Pods<'a>,
    /// Warning events about the workload, as far as they could be read.
    pub events: &'a [Value],
}

/// The Pods of a workload.
#[derive(Debug, Clone, Copy)]
pub enum Pods<'a> {
    /// Some or all of its Pods, as the cluster has them.
    Known(&'a [Value]),
    /// The controller may not list them.
    Hidden,
    /// The Pods could not be listed.
    Unknown,
}

/// Whether a kind runs Pods and its causes are known.
pub fn is_workload(group: &str, kind: &str) -> bool {
    group == APPS && matches!(kind, "Deployment" | "StatefulSet" | "DaemonSet")
}

/// The label selector of a workload in the form of list requests; `None` if it has an unknown operator.
pub fn selector(workload: &Value) -> Option<String> {
    let selector = workload.pointer("/spec/selector")?;
    let owned = |value: &Value| value.as_str().map(str::to_owned);
    let mut parts = Vec::new();
    for (key, value) in selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        parts.push(format!("{key}={}", owned(value)?));
    }
    for expression in list(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        let values: Option<Vec<String>> = list(expression, "/values").iter().map(owned).collect();
        let values = values?.join(",");
        parts.push(match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

/// Whether a Pod belongs to a workload, and not only matches its selector: its controller is the workload or, for a
/// Deployment, one of its ReplicaSets, which are named after the Deployment and the hash of the template.
pub fn is_pod_of(workload: &Value, pod: &Value) -> bool {
    let owners = list(pod, "/metadata/ownerReferences");
    let Some(controller) = owners
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
    else {
        return false;
    };
    if text(pod, "/metadata/namespace") != text(workload, "/metadata/namespace") {
        return false;
    }
    if text(workload, "/kind") != "Deployment" {
        let uid = text(controller, "/uid");
        return !uid.is_empty() && uid == text(workload, "/metadata/uid");
    }
    let hash = text(pod, "/metadata/labels/pod-template-hash");
    let name = text(workload, "/metadata/name");
    text(controller, "/apiVersion").starts_with("apps/")
        && text(controller, "/kind") == "ReplicaSet"
        && !hash.is_empty()
        && text(controller, "/name") == format!("{name}-{hash}")
}

/// The number of a workload's available Pods, and the causes of the others.
pub fn sentence(facts: &WorkloadState<'_>) -> String {
    let workload = facts.workload;
    let kind = text(workload, "/kind");
    let [wanted, available] = match kind {
        "DaemonSet" => ["/status/desiredNumberScheduled", "/status/numberAvailable"],
        _ => ["/spec/replicas", "/status/availableReplicas"],
    };
    // Kubernetes leaves zero out, and one replica is the default.
    let wanted = number(workload, wanted).unwrap_or(u64::from(kind != "DaemonSet"));
    let available = number(workload, available).unwrap_or_default();
    let (namespace, name) = (
        text(workload, "/metadata/namespace"),
        text(workload, "/metadata/name"),
    );
    let mut text = format!("{kind} {namespace}/{name} has {available} of {wanted} Pods available");
    let mut causes = refused(workload, facts.events);
    if let Pods::Known(pods) = facts.pods {
        causes.extend(pods.iter().flat_map(of_pod));
    }
    causes.dedup();
    if causes.is_empty() && matches!(facts.pods, Pods::Hidden) && available < wanted {
        let selector = selector(workload).unwrap_or_default();
        causes.push(format!(
            "operator-controller may not list its Pods; to see the cause, run `kubectl get pods -n {namespace} -l \
             '{selector}'`"
        ));
    }
    let more = causes.len().saturating_sub(NAMED);
    causes.truncate(NAMED);
    if !causes.is_empty() {
        text.push_str(": ");
        text.push_str(&causes.join("; "));
    }
    if more > 0 {
        let _ = write!(text, "; and {more} more");
    }
    text
}

/// The reason why Pods cannot be created: a quota, PodSecurity, a webhook or a policy refuses them. Their messages are
/// quoted.
fn refused(workload: &Value, events: &[Value]) -> Vec<String> {
    let condition = list(workload, "/status/conditions").iter().find(|condition| {
        text(condition, "/type") == "ReplicaFailure" && text(condition, "/status") == "True"
    });
    // For other kinds than Deployments only events contain the reason.
    let event = || {
        let failed = |event: &&Value| text(event, "/reason") == "FailedCreate";
        events.iter().filter(failed).max_by_key(|event| last_seen(event))
    };
    condition
        .or_else(event)
        .map(|said| {
            let (reason, message) = (text(said, "/reason"), quoted(text(said, "/message")));
            format!("Pods cannot be created ({reason}): {message}")
        })
        .into_iter()
        .collect()
}

fn last_seen(event: &Value) -> &str {
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"];
    let times = times.iter().map(|pointer| text(event, pointer));
    times.max().unwrap_or_default()
}

/// The reason why a Pod is not ready.
fn of_pod(pod: &Value) -> Vec<String> {
    let name = text(pod, "/metadata/name");
    let conditions = list(pod, "/status/conditions");
    let is = |condition: &&Value, kind: &str, status: &str| {
        text(condition, "/type") == kind && text(condition, "/status") == status
    };
    if conditions.iter().any(|condition| is(&condition, "Ready", "True"))
        || pod.pointer("/metadata/deletionTimestamp").is_some()
    {
        return Vec::new();
    }
    if let Some(unscheduled) = conditions
        .iter()
        .find(|condition| is(condition, "PodScheduled", "False"))
    {
        let (reason, message) = (
            text(unscheduled, "/reason"),
            quoted(text(unscheduled, "/message")),
        );
        return vec![format!("Pod {name} cannot be scheduled ({reason}): {message}")];
    }
    if text(pod, "/status/phase") == "Failed" {
        let (reason, message) = (text(pod, "/status/reason"), quoted(text(pod, "/status/message")));
        let details = [reason, &message].map(str::to_owned);
        let details: Vec<String> = details.into_iter().filter(|text| !text.is_empty()).collect();
        return vec![format!("Pod {name} failed{}", in_brackets(&details.join(": ")))];
    }
    let containers = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let statuses = containers.iter().flat_map(|pointer| list(pod, pointer));
    statuses.filter_map(|status| of_container(name, status)).collect()
}

/// The reason why a container is not ready.
fn of_container(pod: &str, status: &Value) -> Option<String> {
    let container = format!("container {} of Pod {pod}", text(status, "/name"));
    if let Some(waiting) = status.pointer("/state/waiting") {
        let (reason, message) = (text(waiting, "/reason"), text(waiting, "/message"));
        return match reason {
            _ if STARTING.contains(&reason) || reason.is_empty() => None,
            // The pause until the next restart would change the text each time.
            "CrashLoopBackOff" => {
                let end = status.pointer("/lastState/terminated").map(ended);
                let end = end.map_or(String::new(), |end| format!(": it {end}"));
                Some(format!("{container} keeps crashing ({reason}){end}"))
            }
            // The kubelet alternates between both.
            "ErrImagePull" | "ImagePullBackOff" => {
                let detail = message
                    .split_once("ErrImagePull: ")
                    .map_or("", |(_, detail)| detail);
                let detail = if reason == "ErrImagePull" { message } else { detail };
                let detail = if detail.is_empty() {
                    String::new()
                } else {
                    format!(": {}", quoted(detail))
                };
                let image = text(status, "/image");
                Some(format!(
                    "{container} cannot pull its image {image} (ImagePullBackOff){detail}"
                ))
            }
            _ => Some(format!(
                "{container} does not start ({reason}): {}",
                quoted(message)
            )),
        };
    }
    if let Some(terminated) = status.pointer("/state/terminated") {
        let succeeded = number(terminated, "/exitCode") == Some(0);
        return (!succeeded).then(|| format!("{container} {}", ended(terminated)));
    }
    let runs_unready =
        status.pointer("/state/running").is_some() && status.pointer("/ready") == Some(&Value::Bool(false));
    runs_unready.then(|| {
        let end = status.pointer("/lastState/terminated").map(ended);
        let end = end.map_or(String::new(), |end| format!("; it last {end}"));
        format!("{container} is running but not ready{end}")
    })
}

/// The end of a container, without its message: that may be the end of the log, which not every reader of the status
/// may read.
fn ended(terminated: &Value) -> String {
    let code = number(terminated, "/exitCode").unwrap_or_default();
    format!(
        "ended with exit code {code}{}",
        in_brackets(text(terminated, "/reason"))
    )
}

fn in_brackets(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(" ({text})")
    }
}

/// Text from outside, on one line and truncated.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.get(..line.floor_char_boundary(QUOTED)) {
        Some(head) if head.len() < line.len() => format!("{head}…"),
        _ => line,
    }
}

fn number(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer)?.as_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(status: &Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "greeter", "namespace": "demo"},
            "spec": {"selector": {"matchLabels": {"app": "greeter"}}}, "status": status,
        })
    }

    #[track_caller]
    fn check(workload: &Value, pods: &[Value], events: &[Value], expected: &str) {
        let facts = WorkloadState {
            workload,
            pods: Pods::Known(pods),
            events,
        };
        assert_eq!(sentence(&facts), expected);
    }

    #[track_caller]
    fn check_pod(status: &Value, expected: &str) {
        let pod = json!({"metadata": {"name": "greeter-1"}, "status": status});
        let text = match expected {
            "" => String::new(),
            cause => format!(": {cause}"),
        };
        let expected = format!("Deployment demo/greeter has 0 of 1 Pods available{text}");
        check(&deployment(&json!({})), &[pod], &[], &expected);
    }

    fn container(state: &Value, last: &Value) -> Value {
        let status = json!({
            "name": "manager", "image": "reg/manager:1", "ready": false, "state": state, "lastState": last,
        });
        json!({"phase": "Pending", "containerStatuses": [status]})
    }

    #[test]
    fn a_pod_says_why_it_is_not_ready() {
        check_pod(
            &json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available:\n 1 node(s) had no room."}]}),
            "Pod greeter-1 cannot be scheduled (Unschedulable): 0/1 nodes are available: 1 node(s) had no room.",
        );
        let image =
            "container manager of Pod greeter-1 cannot pull its image reg/manager:1 (ImagePullBackOff)";
        for (reason, message, expected) in [
            ("ErrImagePull", "not found", format!("{image}: not found")),
            (
                "ImagePullBackOff",
                "Back-off pulling image \"reg/manager:1\": ErrImagePull: not found",
                format!("{image}: not found"),
            ),
            (
                "ImagePullBackOff",
                "Back-off pulling image \"reg/manager:1\"",
                image.to_owned(),
            ),
        ] {
            let waiting = json!({"waiting": {"reason": reason, "message": message}});
            check_pod(&container(&waiting, &json!({})), &expected);
        }
        let crash = |message: &str| json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        let end = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "no memory\n"}});
        // The pause until the next attempt grows; the text stays.
        for pause in ["back-off 10s restarting", "back-off 20s restarting"] {
            check_pod(
                &container(&crash(pause), &end),
                "container manager of Pod greeter-1 keeps crashing (CrashLoopBackOff): it ended with exit \
                 code 137 (OOMKilled)",
            );
        }
        let config =
            json!({"waiting": {"reason": "CreateContainerConfigError", "message": "secret \"s\" not found"}});
        check_pod(
            &container(&config, &json!({})),
            "container manager of Pod greeter-1 does not start (CreateContainerConfigError): secret \"s\" not found",
        );
        check_pod(
            &container(&json!({"running": {}}), &json!({"terminated": {"exitCode": 1}})),
            "container manager of Pod greeter-1 is running but not ready; it last ended with exit code 1",
        );
        check_pod(
            &json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}),
            "Pod greeter-1 failed (Evicted: The node was low on memory.)",
        );
        // Starting.
        check_pod(
            &container(&json!({"waiting": {"reason": "ContainerCreating"}}), &json!({})),
            "",
        );
        check_pod(&json!({"conditions": [{"type": "Ready", "status": "True"}]}), "");
    }

    #[test]
    fn a_pod_with_a_matching_label_belongs_to_its_controller_alone() {
        let pod = |namespace: &str, hash: &str, kind: &str, owner: &str, uid: &str, is_controller: bool| {
            let owner = json!({
                "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": uid, "controller": is_controller,
            });
            json!({"metadata": {
                "name": "p", "namespace": namespace, "labels": {"pod-template-hash": hash}, "ownerReferences": [owner],
            }})
        };
        let workload = |kind: &str| json!({"kind": kind, "metadata": {"name": "greeter", "namespace": "demo", "uid": "u"}});
        let check = |kind: &str, pod: Value, expected: bool| {
            assert_eq!(is_pod_of(&workload(kind), &pod), expected, "{kind} {pod}");
        };
        check(
            "Deployment",
            pod("demo", "5d", "ReplicaSet", "greeter-5d", "r", true),
            true,
        );
        for other in [
            pod("other", "5d", "ReplicaSet", "greeter-5d", "r", true),
            pod("demo", "5d", "ReplicaSet", "greeter-other-5d", "r", true),
            pod("demo", "6e", "ReplicaSet", "greeter-5d", "r", true),
            pod("demo", "", "ReplicaSet", "greeter-", "r", true),
            pod("demo", "5d", "ReplicaSet", "greeter-5d", "r", false),
            pod("demo", "5d", "Job", "greeter-5d", "r", true),
            json!({"metadata": {"namespace": "demo", "labels": {"pod-template-hash": "5d"}}}),
        ] {
            check("Deployment", other, false);
        }
        for kind in ["StatefulSet", "DaemonSet"] {
            check(kind, pod("demo", "", kind, "greeter", "u", true), true);
            check(kind, pod("demo", "", kind, "greeter", "another", true), false);
        }
    }

    #[test]
    fn who_refuses_pods_is_quoted() {
        let refused = "pods \"greeter-1\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0, \
                       limited: pods=0";
        let condition = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refused}]);
        check(
            &deployment(&json!({"conditions": condition})),
            &[],
            &[],
            &format!(
                "Deployment demo/greeter has 0 of 1 Pods available: Pods cannot be created (FailedCreate): {refused}"
            ),
        );
        let set = json!({
            "kind": "StatefulSet", "metadata": {"name": "greeter", "namespace": "demo"},
            "spec": {"replicas": 3}, "status": {"availableReplicas": 1},
        });
        let event = |reason: &str, at: &str, message: &str| json!({"reason": reason, "lastTimestamp": at, "message": message});
        check(
            &set,
            &[],
            &[
                event("FailedCreate", "2026-01-02T00:00:00Z", "the webhook says no"),
                event("FailedCreate", "2026-01-01T00:00:00Z", "earlier"),
                event("Other", "2026-01-03T00:00:00Z", "later"),
            ],
            "StatefulSet demo/greeter has 1 of 3 Pods available: Pods cannot be created (FailedCreate): the webhook \
             says no",
        );
        let daemons = json!({
            "kind": "DaemonSet", "metadata": {"name": "greeter", "namespace": "demo"},
            "status": {"desiredNumberScheduled": 2},
        });
        check(
            &daemons,
            &[],
            &[],
            "DaemonSet demo/greeter has 0 of 2 Pods available",
        );
    }

    #[test]
    fn causes_that_may_not_be_seen_come_as_a_command() {
        let workload = deployment(&json!({}));
        let facts = WorkloadState {
            workload: &workload,
            pods: Pods::Hidden,
            events: &[],
        };
        assert_eq!(
            sentence(&facts),
            "Deployment demo/greeter has 0 of 1 Pods available: operator-controller may not list its \
             Pods; to see the cause, run `kubectl get pods -n demo -l 'app=greeter'`"
        );
    }

    #[test]
    fn many_and_long_causes_are_bounded() {
        let pods: Vec<Value> = (0..5)
            .map(|number| {
                json!({"metadata": {"name": format!("greeter-{number}")}, "status": {"conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "ö".repeat(1000)},
                ]}})
            })
            .collect();
        let workload = deployment(&json!({}));
        let text = sentence(&WorkloadState {
            workload: &workload,
            pods: Pods::Known(&pods),
            events: &[],
        });
        assert!(text.ends_with("; and 2 more") && text.len() < 1500, "{text}");
    }

    #[test]
    fn a_selector_is_one_that_lists_take() {
        let check = |selector: Value, expected: Option<&str>| {
            let workload = json!({"spec": {"selector": selector}});
            assert_eq!(super::selector(&workload).as_deref(), expected);
        };
        check(
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["d", "e"]},
                {"key": "f", "operator": "Exists"},
                {"key": "g", "operator": "DoesNotExist"},
            ]}),
            Some("a=b,c in (d,e),f,!g"),
        );
        check(
            json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}),
            None,
        );
        check(json!({}), None);
    }
}
