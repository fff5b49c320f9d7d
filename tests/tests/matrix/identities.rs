//! The identities that ask: the columns of the tables.

use serde_json::{Value, json};

use crate::matrix::fixture::Fixture;

/// A credential, and whom its bearer impersonates.
pub(crate) struct Column {
    /// The head of the column.
    pub(crate) code: &'static str,
    /// The identity in words, for the legend.
    pub(crate) words: &'static str,
    /// The spec of the access key; `None` is the administrator's own key.
    pub(crate) key: Option<Value>,
    /// The user that is impersonated.
    pub(crate) impersonated: Option<&'static str>,
}

fn column(code: &'static str, words: &'static str, key: Value) -> Column {
    Column { code, words, key: Some(key), impersonated: None }
}

/// A key of the administrator with every right, so its scope alone decides.
fn scoped(code: &'static str, words: &'static str, scope: &Value) -> Column {
    column(code, words, json!({ "user": "admin", "scope": scope }))
}

/// All columns of the table of one kind.
pub(crate) fn columns(fixture: &Fixture) -> Vec<Column> {
    let admin = Column { code: "admin", words: "the administrator", key: None, impersonated: None };
    let as_other = Column {
        code: "as other",
        words: "the administrator, who impersonates `other`",
        key: None,
        impersonated: Some("other"),
    };
    let mut columns = vec![admin];
    columns.extend(people());
    columns.push(as_other);
    columns.extend(scopes(fixture));
    columns.extend(stopped());
    columns
}

fn people() -> Vec<Column> {
    let user = |name| json!({ "user": name });
    vec![
        column("owner", "a user: whatever is called *own* is theirs", user("owner")),
        column("other", "a user who has been given nothing", user("other")),
        column(
            "member",
            "a user in the team `red`, which has been given get, list, watch and update on *shared*",
            user("member"),
        ),
        column("team", "a key of the team `red`", json!({ "team": "red" })),
        column("subject", "a key of a subject that is no user", json!({ "subject": "robot" })),
        column("viewer", "a user with the ClusterRole platform-viewer", user("viewer")),
        column("maker", "a user whose one right is to create objects of the kind", user("maker")),
        column(
            "worker",
            "a member of the project `alpha` with the role platform-project-user",
            user("worker"),
        ),
        column(
            "leader",
            "a member of the project `alpha` with the role platform-project-admin",
            user("leader"),
        ),
    ]
}

fn scopes(fixture: &Fixture) -> Vec<Column> {
    let mut columns = entries();
    columns.extend(rules(fixture));
    columns.extend(with_owner_or_impersonated());
    columns
}

/// The entries of a scope that are no rules.
fn entries() -> Vec<Column> {
    vec![
        scoped("empty", "a key of the administrator with an empty scope", &json!({})),
        scoped(
            "projects",
            "the same with the scope: project `alpha`",
            &json!({ "projects": [{ "project": "alpha" }] }),
        ),
        scoped(
            "spaces",
            "the same with the scope: space `theirs` of `alpha`",
            &json!({ "spaces": [{ "project": "alpha", "space": "theirs" }] }),
        ),
        scoped(
            "clusters",
            "the same with the scope: virtual cluster `theirs` of `alpha`",
            &json!({ "virtualClusters": [{ "project": "alpha", "virtualCluster": "theirs" }] }),
        ),
        scoped("cli", "the same with allowPlatformCli", &json!({ "allowPlatformCli": true })),
    ]
}

fn rule(rule: &Value) -> Value {
    json!({ "rules": [rule] })
}

fn reading() -> Value {
    rule(&json!({ "verbs": ["get", "list", "watch"] }))
}

fn rules(fixture: &Fixture) -> Vec<Column> {
    let resources = json!([{ "group": fixture.group, "resources": [fixture.plural] }]);
    let named = json!([{
        "group": fixture.group, "resources": [fixture.plural],
        "resourceNames": [fixture.theirs()],
    }]);
    vec![
        scoped("read", "the same with a rule: get, list and watch", &reading()),
        scoped(
            "kind",
            "the same with a rule: this kind, without its subresources",
            &rule(&json!({ "resources": resources })),
        ),
        scoped(
            "name",
            "the same with a rule: *theirs* of this kind",
            &rule(&json!({ "resources": named })),
        ),
        scoped(
            "namespaces",
            "the same with a rule: the namespaces of what is *elsewhere* (`apart` and `p-beta`)",
            &rule(&json!({ "namespaces": ["apart", "p-beta"] })),
        ),
        scoped(
            "urls",
            "the same with a rule: the paths `/metrics` and `/version`",
            &rule(&json!({ "nonResourceURLs": ["/metrics", "/version"] })),
        ),
        scoped(
            "cluster",
            "the same with a rule: requests to the cluster `east`",
            &rule(&json!({ "cluster": "east" })),
        ),
    ]
}

/// A scoped key of another user, and scoped keys of the administrator that impersonate.
fn with_owner_or_impersonated() -> Vec<Column> {
    let own = column(
        "own in projects",
        "a key of `owner` with the scope: project `alpha`",
        json!({ "user": "owner", "scope": { "projects": [{ "project": "alpha" }] } }),
    );
    let mut refused =
        scoped("read as owner", "the key of the column *read*, impersonating `owner`", &reading());
    refused.impersonated = Some("owner");
    let verbs = json!({ "verbs": ["get", "list", "watch", "impersonate"] });
    let mut allowed = scoped(
        "imp as owner",
        "a key of the administrator with a rule: get, list, watch and impersonate; impersonating `owner`",
        &rule(&verbs),
    );
    allowed.impersonated = Some("owner");
    vec![own, refused, allowed]
}

/// Keys that are not valid any more.
fn stopped() -> Vec<Column> {
    vec![
        column(
            "disabled",
            "a disabled key of the administrator",
            json!({ "user": "admin", "disabled": true }),
        ),
        column(
            "expired",
            "an expired key of the administrator",
            json!({ "user": "admin", "ttl": 1 }),
        ),
        column("blocked", "a key of a disabled user", json!({ "user": "blocked" })),
    ]
}
