//! The fields that a client applies and owns are in the object. This includes an explicit `false`,
//! `0`, `""`, and an empty list or map, in every field of every kind of Postern's own group. A
//! value is returned as sent, rejected, or replaced by a default. When its owner no longer applies
//! it, it is gone.

use postern_kinds::project::Project;
use postern_kinds::trusted_issuer::TrustedIssuer;
use postern_kinds::user::User;
use postern_kinds::{AnyKind, MANAGEMENT_V1, all, is_zero};
use postern_meta::apply::FieldSet;
use postern_meta::object::Operation;

use super::*;
use crate::admit::Part;
use crate::operations::Applied;

/// The spec that an object of a kind needs to be valid.
fn minimal(kind: &str) -> Value {
    match kind {
        "OwnedAccessKey" => json!({ "user": "ada" }),
        "Connector" => json!({
            "issuer": "https://login.example.com", "clientId": "postern",
            "clientSecret": { "secretName": "corp", "secretNamespace": "platform" },
            "allow": { "everyone": true },
        }),
        "TrustedIssuer" => json!({ "type": "GitHubActions" }),
        "WorkloadIdentity" => json!({
            "issuer": "github", "owner": { "user": "ada" },
            "match": [{ "claim": "repository_id", "values": ["4711"] }, { "claim": "ref", "values": ["refs/heads/main"] }],
            "scope": { "projects": [{ "project": "web" }] },
        }),
        _ => json!({}),
    }
}

/// Why a field is not returned with a zero value, or does not go with its owner.
fn exception(kind: &dyn AnyKind, path: &str) -> Option<&'static str> {
    if kind.info().write_only.iter().any(|field| field.path.join(".") == path) {
        return Some("a write-only field without a value keeps what is stored");
    }
    Some(match path {
        "spec.stringData" => "it is written into spec.data, and never stored",
        "spec.owner.user" => "an owner without a name is the caller",
        "spec.config.key" | "spec.config.secretName" | "spec.config.secretNamespace" => {
            "an empty reference is an absent one"
        }
        "spec.allowedClusters" => "an absent list means none, too, and is shown",
        path if path.starts_with("spec.scope.") => "an apply cannot remove a scope",
        _ => return None,
    })
}

/// The paths of the fields below `spec` that have a zero value, with it. Items of lists are left out.
fn zeros(kind: &'static dyn AnyKind) -> Vec<(Vec<String>, Value)> {
    fn collect(
        kind: &'static dyn AnyKind,
        at: &'static Value,
        path: &[String],
        found: &mut Vec<(Vec<String>, Value)>,
    ) {
        let at = kind.schema().resolve(at);
        let zero = match at["type"].as_str() {
            Some("boolean") => json!(false),
            Some("integer" | "number") => json!(0),
            Some("string") => json!(""),
            Some("array") => json!([]),
            Some("object") if at.get("additionalProperties").is_some() => json!({}),
            _ => {
                for (name, field) in at["properties"].as_object().into_iter().flatten() {
                    let path: Vec<String> = path.iter().chain([name]).cloned().collect();
                    collect(kind, field, &path, found);
                }
                return;
            }
        };
        found.push((path.to_vec(), zero));
    }
    let mut found = Vec::new();
    let root = kind.schema().resolve(kind.schema().root());
    collect(kind, &root["properties"]["spec"], &["spec".to_owned()], &mut found);
    found
}

impl Fixture {
    async fn applied(
        &self,
        kind: &'static dyn AnyKind,
        name: &str,
        spec: &Value,
    ) -> Result<Value, ApiError> {
        let namespace = kind.info().is_namespaced().then_some("p-web");
        let at = At { kind, namespace, name };
        let configuration = at.object(&json!({ "spec": spec }));
        let writing = Writing {
            manager: "terraform".to_owned(),
            operation: Operation::Apply,
            part: Part::Main,
            dry_run: false,
        };
        let applied = Applied {
            configuration: &configuration,
            nulls: &FieldSet::new(),
            writing: &writing,
            force: false,
        };
        let (object, _) =
            operations::apply(&self.registry, &at.permit(Verb::Patch), &applied).await?;
        Ok(postern_meta::decode::decode_typed(object.json()).unwrap())
    }
}

fn set(spec: &mut Value, path: &[String], value: Value) {
    let inside = path[1..].iter().fold(spec, |at, name| &mut at[name.as_str()]);
    *inside = value;
}

fn field<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |at, name| at.get(name))
}

#[tokio::test]
async fn what_a_client_applies_and_owns_is_there_until_it_applies_it_no_more() {
    let fixture = fixture().await;
    fixture.make(at(&User, "ada"), json!({})).await;
    fixture.make(at(&Project, "web"), json!({})).await;
    let issuer = json!({ "spec": { "type": "GitHubActions" } });
    fixture.make(at(&TrustedIssuer, "github"), issuer).await;
    fixture.current().await;
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    let is_applied = |info: &postern_kinds::Info| {
        info.version == MANAGEMENT_V1 && info.is_stored() && info.serves(Verb::Patch)
    };
    for kind in all().iter().copied().filter(|kind| is_applied(kind.info())) {
        // Without a specification that is accepted, every zero would seem to be refused.
        fixture.applied(kind, "valid", &minimal(kind.info().kind)).await.unwrap();
        for (number, (path, zero)) in zeros(kind).into_iter().enumerate() {
            let name = format!("z{number}");
            let place = format!("{} {}", kind.info().kind, path.join("."));
            let mut spec = minimal(kind.info().kind);
            if exception(kind, &path.join(".")).is_some() {
                continue;
            }
            if kind.has_ownership() {
                spec["owner"] = json!({ "user": "ada" });
            }
            let left = spec.clone();
            set(&mut spec, &path, zero.clone());
            // A rejected value is not lost.
            let Ok(made) = fixture.applied(kind, &name, &spec).await else { continue };
            match field(&made, &path) {
                Some(value) if *value == zero => kept.push(place.clone()),
                Some(value) if !is_zero(value) => {}
                other => lost.push(format!("{place}: {other:?}")),
            }
            match fixture.applied(kind, &name, &left).await {
                Ok(left) if field(&left, &path).is_some_and(is_zero) => {
                    lost.push(format!("{place} stays"));
                }
                Ok(_) => {}
                Err(error) => lost.push(format!("{place} cannot be removed: {error}")),
            }
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    for place in [
        "User spec.disabled",
        "User spec.groups",
        "SharedSecret spec.description",
        "SharedSecret spec.data",
        "SharedSecret spec.access",
        "Project spec.quotas.project",
        "Project spec.members",
        "OwnedAccessKey spec.ttl",
        "OwnedAccessKey spec.disabled",
        "VirtualClusterInstance spec.extraAccessRules",
        "Cluster spec.displayName",
    ] {
        assert!(kept.iter().any(|kept| kept == place), "{place}: {kept:?}");
    }
}
