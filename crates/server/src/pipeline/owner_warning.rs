//! The warning about a write of confidential data into an object of another owner. The owner may
//! have taken the name before the caller, and can read the written data.

use postern_auth::identity::Identity;
use postern_kinds::{AnyKind, Principal};
use postern_meta::decode::decode_typed;
use postern_registry::permit::Permit;
use postern_registry::registry::EncodedObject;
use serde::Deserialize;
use serde_json::Value;

/// The part of an object with its owner.
#[derive(Deserialize)]
struct Owned {
    #[serde(default)]
    spec: OwnedSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OwnedSpec {
    owner: Owner,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Owner {
    user: String,
    team: String,
}

/// Whether a body writes confidential data and leaves the owner out: an object, a merge patch, or a JSON patch.
pub(super) fn leaves_owner_out(kind: &dyn AnyKind, body: &Value) -> bool {
    let protected = kind.info().read_protected;
    if let Some(operations) = body.as_array() {
        let paths = || operations.iter().filter_map(|one| one["path"].as_str());
        let is_data = |at: &str| protected.iter().any(|path| at.starts_with(&pointer(path)));
        return paths().any(is_data) && !paths().any(|at| at.starts_with("/spec/owner"));
    }
    let has = |path: &[&str]| path.iter().try_fold(body, |at, step| at.get(step)).is_some();
    protected.iter().any(|path| has(path)) && !has(&["spec", "owner"])
}

fn pointer(path: &[&str]) -> String {
    path.iter().flat_map(|step| ["/", step]).collect()
}

/// The warning about a written object, if another user or team owns it than the caller.
pub(super) fn of_written(permit: &Permit, object: &EncodedObject) -> Option<String> {
    let identity = permit.credential().identity();
    // Most callers write their own objects, which need not be decoded. An impersonated uid alone is no user.
    let is_known = identity.user.is_some() || identity.team.is_some();
    if is_known && object.is_owned_by(&identity.uid) {
        return None;
    }
    let owner = decode_typed::<Owned>(object.json()).ok()?.spec.owner;
    let principal = match (owner.user.as_str(), owner.team.as_str()) {
        ("", "") => return None,
        ("", team) => Principal::Team(team),
        (user, _) => Principal::User(user),
    };
    if is_of_caller(identity, principal) {
        return None;
    }
    let (name, plural) = (permit.name(), permit.kind().info().plural);
    Some(format!(
        "{plural} \"{name}\" belongs to the {}, who can read what was written: to take it over, set spec.owner",
        principal.described()
    ))
}

fn is_of_caller(identity: &Identity, owner: Principal<'_>) -> bool {
    match owner {
        Principal::User(name) => identity.user.as_deref() == Some(name),
        Principal::Team(name) => {
            identity.team.as_deref() == Some(name) || identity.teams.iter().any(|team| team == name)
        }
    }
}
