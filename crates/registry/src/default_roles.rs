//! The default ClusterRoles with their bindings. The first start creates them. Every later start restores missing
//! rules and subjects, as kube-apiserver does. To change one permanently, set its annotation `AUTOUPDATE` to `false`.
//!
//! Only the first start binds the role of every user, in the namespace `default`. An administrator may delete that binding.

use postern_kinds::access::ALL_USERS_GROUP;
use postern_kinds::cluster_role::{ClusterRole, USER_DEFAULT_ROLE};
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::rbac::RBAC_GROUP;
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::{AnyKind, COMMON_NAMESPACE, Sharing, Verb, default_namespace};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::options::{DeleteOptions, GetOptions};
use postern_meta::status::ApiError;
use serde_json::{Map, Value, json};

use crate::admit::Writing;
use crate::operations;
use crate::permit::Permit;
use crate::registry::{Registry, decoded};
use crate::storage_key;

/// The annotation that protects a default role or binding from updates.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The label of the objects that are created here, as in Kubernetes.
const BOOTSTRAPPING: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");

/// The role by which every user sees the teams, while callers may name everyone in access rules.
const DIRECTORY_ROLE: &str = "platform-directory";

/// A ClusterRole, with the groups that it is bound to in all namespaces.
struct DefaultRole {
    name: &'static str,
    rules: Value,
    groups: &'static [&'static str],
}

const READ: [&str; 3] = ["get", "list", "watch"];

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
}

fn default_roles() -> Vec<DefaultRole> {
    let management = &["management.platform.sh"][..];
    let instances = &["virtualclusterinstances", "spaceinstances"][..];
    let authorization = &["authorization.k8s.io"][..];
    let mut all = vec![
        DefaultRole {
            name: "platform-admin",
            rules: json!([
                rule(&["*"], &["*"], &["*"]),
                { "nonResourceURLs": ["*"], "verbs": ["*"] },
            ]),
            groups: &["system:masters"],
        },
        DefaultRole {
            name: "platform-user",
            rules: json!([
                rule(management, &["selves"], &["create", "get"]),
                rule(management, &["directclusterendpointtokens"], &["create"]),
                rule(management, &["selfsubjectaccessreviews"], &["create"]),
                rule(authorization, &["selfsubjectaccessreviews"], &["create"]),
                rule(authorization, &["selfsubjectrulesreviews"], &["create"]),
                rule(&["authentication.k8s.io"], &["selfsubjectreviews"], &["create"]),
            ]),
            groups: &["platform:authenticated"],
        },
        DefaultRole {
            name: USER_DEFAULT_ROLE,
            rules: json!([rule(management, &["sharedsecrets"], &["create"])]),
            groups: &[],
        },
        DefaultRole {
            name: DIRECTORY_ROLE,
            rules: json!([rule(management, &["teams"], &READ)]),
            groups: &[],
        },
        DefaultRole {
            name: "platform-viewer",
            rules: json!([
                rule(management, &["projects", "clusters", "users", "teams"], &READ),
                rule(management, &["connectors", "trustedissuers", "workloadidentities"], &READ),
                rule(
                    management,
                    &["projects/members", "projects/clusters", "projects/templates"],
                    &["get"]
                ),
                rule(management, instances, &READ),
                rule(&[""], &["namespaces", "events"], &READ),
                rule(&["events.k8s.io"], &["events"], &READ),
                rule(&["coordination.k8s.io"], &["leases"], &READ),
                rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], &READ),
                rule(&[RBAC_GROUP], &["*"], &READ),
            ]),
            groups: &[],
        },
        agent_role(),
        DefaultRole {
            name: "system:public-info-viewer",
            rules: json!([{
                "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
                "verbs": ["get"],
            }]),
            groups: &["system:authenticated", "system:unauthenticated"],
        },
    ];
    all.extend(project_roles());
    all
}

/// The roles of members of projects.
fn project_roles() -> [DefaultRole; 3] {
    let management = &["management.platform.sh"][..];
    let instances = &["virtualclusterinstances", "spaceinstances"][..];
    [
        DefaultRole {
            name: "platform-project-admin",
            rules: json!([
                rule(management, &["*"], &["*"]),
                rule(&[""], &["secrets", "configmaps", "events"], &["*"]),
                rule(&["events.k8s.io"], &["events"], &["*"]),
                rule(&[""], &["namespaces"], &["get"]),
                rule(&["coordination.k8s.io"], &["leases"], &["*"]),
                rule(&[RBAC_GROUP], &["roles", "rolebindings"], &["*"]),
            ]),
            groups: &[],
        },
        DefaultRole {
            name: "platform-project-user",
            rules: json!([
                rule(management, instances, &["get", "list", "watch", "create", "use"]),
                rule(&["", "events.k8s.io"], &["events"], &READ),
                rule(&[""], &["namespaces"], &["get"]),
            ]),
            groups: &[],
        },
        DefaultRole {
            name: "platform-project-viewer",
            rules: json!([
                rule(management, instances, &READ),
                rule(&["", "events.k8s.io"], &["events"], &READ),
                rule(&[""], &["namespaces"], &["get"]),
            ]),
            groups: &[],
        },
    ]
}

/// The role of agents. The scope of an agent's key limits it to its own cluster.
fn agent_role() -> DefaultRole {
    let management = &["management.platform.sh"];
    DefaultRole {
        name: "platform-agent",
        rules: json!([
            rule(management, &["clusters/agentconfig"], &["get", "watch"]),
            // Agents of one version back patch the annotations of the direct endpoint. Without `update`, they can
            // patch nothing else.
            rule(management, &["clusters"], &["get", "patch"]),
            rule(management, &["clusters/endpoint"], &["create"]),
            // For its condition.
            rule(management, &["clusters/status"], &["get", "patch"]),
            rule(management, &["clusters/auditevents"], &["create"]),
            // Only the agent of the cluster gets deliveries: the server compares the subject of the key.
            rule(management, &["clusters/secretsubscriptions"], &["create"]),
            rule(management, &["clusters/tunnel"], &["connect"]),
        ]),
        groups: &[],
    }
}

/// Creates the default roles and bindings that are missing or corrupt, and adds missing rules and subjects. Failures
/// are logged, and do not block the others.
pub async fn restore(registry: &Registry) {
    if let Err(error) = bind_role_of_every_user(registry).await {
        let (name, inner) = (USER_DEFAULT_ROLE, error.inner());
        // Without default roles, the next start is again the first one.
        tracing::error!(name, inner, "the default roles could not be created: {error}");
        return;
    }
    for DefaultRole { name, rules, groups } in default_roles() {
        let fields = Map::from_iter([("rules".to_owned(), rules)]);
        ensure(registry, &ClusterRole, name, fields, "rules").await;
        if groups.is_empty() {
            continue;
        }
        ensure(registry, &ClusterRoleBinding, name, binding(name, groups), "subjects").await;
    }
    bind_directory(registry).await;
}

/// Binds the role for the teams to every user while callers may name everyone. With another setting, a binding that the
/// server made is removed.
async fn bind_directory(registry: &Registry) {
    let (kind, name) = (&ClusterRoleBinding, DIRECTORY_ROLE);
    if registry.user_policy().sharing == Sharing::Everyone {
        ensure(registry, kind, name, binding(name, &[ALL_USERS_GROUP]), "subjects").await;
        return;
    }
    let key = storage_key::object(kind.info(), None, name);
    let Ok(Some(found)) = registry.cache().of(kind.info()).get(&key) else { return };
    let (label, value) = BOOTSTRAPPING;
    let labels = found.decode().map(|object| object.metadata.labels).unwrap_or_default();
    if labels.get(label).is_none_or(|found| found != value) {
        return;
    }
    let permit = Permit::for_server(kind, Verb::Delete, None, name);
    match operations::delete(registry, &permit, &DeleteOptions::default()).await {
        Err(error) if error.code() != 404 => {
            let (kind, inner) = (kind.info().kind, error.inner());
            tracing::error!(kind, name, inner, "a default binding could not be removed: {error}");
        }
        _ => tracing::info!(name, "a default binding was removed: --sharing is no longer everyone"),
    }
}

/// The fields of a binding of a ClusterRole to groups.
fn binding(role: &str, groups: &[&str]) -> Map<String, Value> {
    let subject = |group: &&str| json!({ "kind": "Group", "apiGroup": RBAC_GROUP, "name": group });
    let subjects: Vec<Value> = groups.iter().map(subject).collect();
    let role = json!({ "apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role });
    Map::from_iter([("roleRef".to_owned(), role), ("subjects".to_owned(), Value::Array(subjects))])
}

/// Binds the role of every user in the namespace `default`, in a database without any default role: at its first start. It
/// comes before the roles, so that a start that ends early is still followed by a first one. Nothing is bound if the home of
/// shared secrets is that namespace: a user could take a name there before an administrator does.
async fn bind_role_of_every_user(registry: &Registry) -> Result<(), ApiError> {
    let is_known = |role: &DefaultRole| {
        let key = storage_key::object(ClusterRole.info(), None, role.name);
        !matches!(registry.cache().of(ClusterRole.info()).get(&key), Ok(None))
    };
    if default_namespace() == COMMON_NAMESPACE || default_roles().iter().any(is_known) {
        return Ok(());
    }
    let fields = binding(USER_DEFAULT_ROLE, &[ALL_USERS_GROUP]);
    let namespace = Some(COMMON_NAMESPACE);
    match create(registry, &RoleBinding, namespace, USER_DEFAULT_ROLE, fields).await {
        // Another server was faster.
        Err(error) if error.code() != 409 => Err(error),
        _ => Ok(()),
    }
}

/// Creates one object, or adds the missing items to its list `list`. If several servers start at once, any of them
/// may do it.
async fn ensure(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    name: &str,
    fields: Map<String, Value>,
    list: &str,
) {
    if let Err(error) = try_ensure(registry, kind, name, fields, list).await {
        let (kind, inner) = (kind.info().kind, error.inner());
        tracing::error!(kind, name, inner, "a default role could not be restored: {error}");
    }
}

async fn try_ensure(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    name: &str,
    fields: Map<String, Value>,
    list: &str,
) -> Result<(), ApiError> {
    if operations::remove_corrupt(registry, kind, name).await? {
        let kind = kind.info().kind;
        tracing::warn!(kind, name, "a corrupt default role was created again");
    }
    let reading = Permit::for_server(kind, Verb::Get, None, name);
    let done = match registry.get(&reading, &GetOptions::default()).await {
        Ok(found) => add_missing(registry, kind, &decoded(&found)?, &fields, list).await,
        Err(error) if error.code() == 404 => create(registry, kind, None, name, fields).await,
        Err(error) => Err(error),
    };
    match done {
        Err(error) if error.code() != 409 => Err(error),
        _ => Ok(()),
    }
}

async fn create(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    namespace: Option<&str>,
    name: &str,
    fields: Map<String, Value>,
) -> Result<(), ApiError> {
    let (label, value) = BOOTSTRAPPING;
    let metadata = ObjectMeta {
        name: name.to_owned(),
        namespace: namespace.unwrap_or_default().to_owned(),
        labels: [(label.to_owned(), value.to_owned())].into(),
        annotations: [(AUTOUPDATE.to_owned(), "true".to_owned())].into(),
        ..ObjectMeta::default()
    };
    let info = kind.info();
    let (api_version, kind_name) = (info.version.to_string(), info.kind.to_owned());
    let object = Object { api_version, kind: kind_name, metadata, fields };
    let permit = Permit::for_server(kind, Verb::Create, namespace, name);
    operations::create(registry, &permit, object, &Writing::by_server()).await.map(|_| ())
}

async fn add_missing(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    found: &Object,
    wanted: &Map<String, Value>,
    list: &str,
) -> Result<(), ApiError> {
    let is_kept = found.metadata.annotations.get(AUTOUPDATE).is_some_and(|value| value == "false");
    let lacks = missing(found, wanted, list);
    if is_kept || lacks.is_empty() {
        return Ok(());
    }
    let name = found.metadata.name.as_str();
    tracing::warn!(kind = kind.info().kind, name, "a changed default role was restored");
    let permit = Permit::for_server(kind, Verb::Update, None, name);
    let writing = Writing::by_server();
    let updated = operations::update(registry, &permit, &writing, |current| {
        let mut object = current.clone();
        let lacks = missing(current, wanted, list);
        match object.fields.entry(list).or_insert_with(|| Value::Array(Vec::new())) {
            Value::Array(there) => there.extend(lacks),
            other => *other = Value::Array(lacks),
        }
        Ok(object)
    });
    updated.await.map(|_| ())
}

fn missing(found: &Object, wanted: &Map<String, Value>, list: &str) -> Vec<Value> {
    let of = |fields: &Map<String, Value>| -> Vec<Value> {
        fields.get(list).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let there = of(&found.fields);
    of(wanted).into_iter().filter(|one| !there.contains(one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/reference/access-rules.md");

    /// The rows of the table of the page that has this head.
    fn rows(head: &str) -> Vec<&'static str> {
        let lines = PAGE.lines().skip_while(|line| *line != head).skip(2);
        lines.take_while(|line| line.starts_with('|')).collect()
    }

    /// The texts between backticks.
    fn code_spans(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }

    fn in_code_spans(list: &Value) -> String {
        let items = list.as_array().unwrap().iter().map(|item| match item.as_str().unwrap() {
            "" => "core".to_owned(),
            text => format!("`{text}`"),
        });
        items.collect::<Vec<_>>().join(", ")
    }

    /// A row of the table of rules.
    fn table_row(name: &str, rule: &Value) -> String {
        let fields = rule.as_object().unwrap();
        let cell = |field: &str| fields.get(field).map(in_code_spans).unwrap_or_default();
        let cells = ["apiGroups", "resources", "nonResourceURLs", "verbs"].map(cell);
        let known = cells.iter().filter(|cell| !cell.is_empty()).count();
        assert_eq!(known, fields.len(), "the table has no column for a field of {rule}");
        let [groups, resources, paths, verbs] = cells;
        let row = format!("| `{name}` | {groups} | {resources}{paths} | {verbs} |");
        row.replace("|  |", "| |")
    }

    #[test]
    fn the_reference_lists_the_default_roles_and_their_groups() {
        let listed = rows("| ClusterRole | grants | bound to |").into_iter().map(|row| {
            let (name, cells) = row.trim_start_matches("| `").split_once("` | ").unwrap();
            (name.to_owned(), code_spans(cells.split(" | ").nth(1).unwrap()))
        });
        let made = default_roles();
        let made = made.iter().map(|role| (role.name.to_owned(), role.groups.to_vec()));
        let sorted = |mut roles: Vec<(String, Vec<&'static str>)>| {
            roles.sort_unstable();
            roles
        };
        assert_eq!(sorted(listed.collect()), sorted(made.collect()));
    }

    #[test]
    fn the_reference_lists_the_rules_of_the_default_roles() {
        let expected: Vec<_> = default_roles()
            .iter()
            .flat_map(|role| {
                let rules = role.rules.as_array().unwrap().iter();
                rules.map(|rule| table_row(role.name, rule)).collect::<Vec<_>>()
            })
            .collect();
        let listed = rows("| ClusterRole | API groups | resources or paths | verbs |");
        assert_eq!(listed, expected, "these are the rows:\n{}", expected.join("\n"));
    }
}
