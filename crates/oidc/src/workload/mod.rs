//! The identity of a pipeline or a workload: which tokens (JWTs) of a trusted issuer are accepted.
//!
//! A workload identity lists claims and the values that they must have. All of them must match
//! exactly. The platform decides which claims a list must have: a list without them would accept
//! the tokens of other users of the platform.

use std::fmt;

use serde_json::{Map, Value};

/// Claims that a list names, and values of one of them.
pub const MAX_CLAIMS: usize = 16;

/// Values of one claim.
pub const MAX_VALUES: usize = 50;

/// Bytes of a value.
const MAX_VALUE_BYTES: usize = 1024;

/// The only claim with values that may end with `*`.
const REF: &str = "ref";

/// The claim of GitHub with the event that has started a run.
const EVENT: &str = "event_name";

/// Events of GitHub with this beginning run for changes of others.
const PULL_REQUEST: &str = "pull_request";

/// The platform that issues the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssuerType {
    /// GitHub Actions.
    GitHubActions,
    /// GitLab CI/CD.
    GitLab,
    /// The service accounts of a Kubernetes cluster.
    Kubernetes,
    /// Any other issuer.
    Generic,
}

impl IssuerType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::GitHubActions, Self::GitLab, Self::Kubernetes, Self::Generic];

    /// Its name in an object.
    pub fn name(self) -> &'static str {
        match self {
            Self::GitHubActions => "GitHubActions",
            Self::GitLab => "GitLab",
            Self::Kubernetes => "Kubernetes",
            Self::Generic => "Generic",
        }
    }

    /// The type of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The claims of which each list must have one of each group.
    pub fn mandatory(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::GitHubActions => {
                &[&["repository_id"], &["ref", "environment", "job_workflow_ref"]]
            }
            Self::GitLab => &[&["project_id"], &["ref"], &["ref_protected"]],
            Self::Kubernetes => &[&["namespace"], &["serviceaccount"]],
            Self::Generic => &[&["sub"]],
        }
    }

    /// Why a claim is never matched; `None` if it may be.
    fn unusable(self, claim: &str) -> Option<&'static str> {
        match (self, claim) {
            (Self::GitHubActions, "sub") => Some(
                "its form changed for repositories since July 2026: use repository_id with ref, environment or \
                 job_workflow_ref",
            ),
            // Every token has them, and they are checked anyway.
            (_, "iss" | "aud" | "exp" | "nbf" | "iat" | "jti") => {
                Some("it is checked for each token")
            }
            _ => None,
        }
    }
}

/// A claim, and the values of which it must have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimMatch {
    /// The name of the claim. For Kubernetes, `namespace`, `serviceaccount`, `serviceaccount_uid`, `pod` and `node` are
    /// those below `kubernetes.io`.
    pub claim: String,
    /// The values. One of `ref` may end with `*`.
    pub values: Vec<String>,
}

/// The list of a WorkloadIdentity.
pub fn list_of(list: &[postern_kinds::ClaimMatch]) -> Vec<ClaimMatch> {
    let of = |one: &postern_kinds::ClaimMatch| ClaimMatch {
        claim: one.claim.clone(),
        values: one.values.clone(),
    };
    list.iter().map(of).collect()
}

/// The reason why a list is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidMatch {
    /// None of these claims is in it.
    Missing(&'static [&'static str]),
    /// The claim with this index cannot be used, for this reason.
    Claim(usize, String),
    /// The value with this index of the claim with this index cannot be used, for this reason.
    Value(usize, usize, &'static str),
}

impl fmt::Display for InvalidMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing([one]) => write!(f, "must match the claim {one}"),
            Self::Missing(any) => write!(f, "must match one of the claims {}", any.join(", ")),
            Self::Claim(_, why) => f.write_str(why),
            Self::Value(_, _, why) => f.write_str(why),
        }
    }
}

/// Everything that is wrong with a list.
pub fn problems(of: IssuerType, list: &[ClaimMatch]) -> Vec<InvalidMatch> {
    let mut problems = Vec::new();
    for any in of.mandatory() {
        if !list.iter().any(|entry| any.contains(&entry.claim.as_str())) {
            problems.push(InvalidMatch::Missing(any));
        }
    }
    for (index, entry) in list.iter().enumerate() {
        let claim = |why: &str| InvalidMatch::Claim(index, why.to_owned());
        if index >= MAX_CLAIMS {
            problems.push(claim("there are more than 16 claims"));
            break;
        }
        if entry.claim.is_empty() {
            problems.push(claim("a claim has no name"));
        } else if let Some(why) = of.unusable(&entry.claim) {
            problems.push(claim(&format!("the claim {} cannot be matched: {why}", entry.claim)));
        } else if list.iter().take(index).any(|other| other.claim == entry.claim) {
            problems.push(claim(&format!("the claim {} is there twice", entry.claim)));
        }
        if entry.values.is_empty() || entry.values.len() > MAX_VALUES {
            problems.push(claim("a claim has between 1 and 50 values"));
        }
        for (number, value) in entry.values.iter().take(MAX_VALUES).enumerate() {
            if let Some(why) = unusable_value(&entry.claim, value) {
                problems.push(InvalidMatch::Value(index, number, why));
            }
        }
    }
    problems
}

/// Why a value cannot be used.
fn unusable_value(claim: &str, value: &str) -> Option<&'static str> {
    let exact = if claim == REF { value.strip_suffix('*').unwrap_or(value) } else { value };
    if value.is_empty() {
        Some("a value is empty")
    } else if value.len() > MAX_VALUE_BYTES {
        Some("a value has more than 1024 bytes")
    } else if exact.is_empty() {
        Some("the value * matches every ref: name a beginning")
    } else if exact.contains('*') {
        Some("only a value of ref can have *, and only at its end")
    } else {
        None
    }
}

/// The claim for which a token is refused. The value is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The name of the claim.
    pub claim: String,
    /// The reason for the mismatch.
    pub what: Wrong,
}

/// The reason why a claim does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The token does not have it.
    Missing,
    /// It has another value.
    Value,
    /// It is a list, an object, or a number with a fraction, which are not compared.
    Type,
    /// The list names it wrongly, or lacks it, for the present type of the issuer.
    List,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = &self.claim;
        match self.what {
            Wrong::Missing => write!(f, "the claim {claim} is missing"),
            Wrong::Value => write!(f, "the claim {claim} has another value"),
            Wrong::Type => {
                write!(f, "the claim {claim} is not a text, a whole number or a boolean")
            }
            Wrong::List => {
                write!(f, "spec.match does not fit the type of the trusted issuer: claim {claim}")
            }
        }
    }
}

/// Checks that the claims of a token have the values of a list.
///
/// # Errors
/// The first claim that does not match. For a list with [`problems`], nothing matches.
pub fn check(
    of: IssuerType,
    list: &[ClaimMatch],
    claims: &Map<String, Value>,
) -> Result<(), Mismatch> {
    let mismatch = |claim: &str, what| Mismatch { claim: claim.to_owned(), what };
    if let Some(problem) = problems(of, list).first() {
        let claim = match problem {
            InvalidMatch::Missing(any) => any.first().copied().unwrap_or_default(),
            InvalidMatch::Claim(index, _) | InvalidMatch::Value(index, _, _) => {
                list.get(*index).map_or("", |entry| entry.claim.as_str())
            }
        };
        return Err(mismatch(claim, Wrong::List));
    }
    for entry in list {
        let found = claim_of(of, claims, &entry.claim);
        let found = found.ok_or_else(|| mismatch(&entry.claim, Wrong::Missing))?;
        let found = text_of(found).ok_or_else(|| mismatch(&entry.claim, Wrong::Type))?;
        let has_value = entry.values.iter().any(|value| match value.strip_suffix('*') {
            Some(beginning) if entry.claim == REF => found.starts_with(beginning),
            _ => *value == found,
        });
        if !has_value {
            return Err(mismatch(&entry.claim, Wrong::Value));
        }
    }
    check_event(of, list, claims)
}

/// Refuses runs for changes of others, unless the list names their event.
fn check_event(
    of: IssuerType,
    list: &[ClaimMatch],
    claims: &Map<String, Value>,
) -> Result<(), Mismatch> {
    if of != IssuerType::GitHubActions || list.iter().any(|entry| entry.claim == EVENT) {
        return Ok(());
    }
    let event = claims.get(EVENT).and_then(Value::as_str);
    match event {
        Some(event) if !event.starts_with(PULL_REQUEST) => Ok(()),
        // A token without the claim is not from a run that we know of.
        Some(_) => Err(Mismatch { claim: EVENT.to_owned(), what: Wrong::Value }),
        None => Err(Mismatch { claim: EVENT.to_owned(), what: Wrong::Missing }),
    }
}

/// The claim of a name.
fn claim_of<'a>(of: IssuerType, claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if of != IssuerType::Kubernetes {
        return claims.get(name);
    }
    let bound = || claims.get("kubernetes.io");
    match name {
        "namespace" => bound()?.get("namespace"),
        "serviceaccount" => bound()?.get("serviceaccount")?.get("name"),
        "serviceaccount_uid" => bound()?.get("serviceaccount")?.get("uid"),
        "pod" => bound()?.get("pod")?.get("name"),
        "node" => bound()?.get("node")?.get("name"),
        name => claims.get(name),
    }
}

/// The text that a claim is compared as. Lists and objects have none.
fn text_of(claim: &Value) -> Option<String> {
    match claim {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
