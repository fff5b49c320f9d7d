//! Maps the claims of an ID token (a JWT) to a user: the name of a new user, and the groups.
//!
//! A user is found by issuer and subject alone, never by a name or an address. Names are for new users only.

use std::collections::HashSet;
use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use postern_meta::names::identity_name;
use serde_json::{Map, Value};

use super::jwt::texts;

/// Groups of one login.
pub const MAX_GROUPS: usize = 500;

/// Bytes of the name of a group, without the connector.
pub const MAX_GROUP_BYTES: usize = 256;

/// Characters of the name of a new user, without the suffix.
const MAX_NAME_CHARS: usize = 56;

/// Characters of a suffix.
const SUFFIX_CHARS: usize = 6;

/// The name of a new user that a provider does not name.
const NAMELESS: &str = "user";

/// Why a login is refused, although its token is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefused {
    /// The claim of the user's name is missing or empty.
    NoUsername,
    /// The claim of the groups is missing. Without it, the user would lose all rights of their groups.
    NoGroups,
    /// The token states that the groups did not fit into it.
    GroupsElsewhere,
    /// The claim of the groups is neither a text nor a list of texts.
    GroupsForm,
    /// There are more than [`MAX_GROUPS`].
    TooManyGroups,
    /// A group has more than [`MAX_GROUP_BYTES`].
    LongGroup,
    /// The connector does not allow the user.
    NotAllowed,
    /// The connector allows users by their addresses, and the provider has not verified this one.
    EmailNotVerified,
}

impl fmt::Display for LoginRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoUsername => {
                "the claim of the username is missing or empty: set usernameClaim, or the scopes that add the claim"
            }
            Self::NoGroups => {
                "the claim of the groups is missing: let the provider send it, or leave groupsClaim empty"
            }
            Self::GroupsElsewhere => {
                "the user has more groups than the provider puts into a token: let it send only the groups that the \
                 application has"
            }
            Self::GroupsForm => "the claim of the groups is neither a text nor a list of texts",
            Self::TooManyGroups => "the user has more than 500 groups",
            Self::LongGroup => "a group has more than 256 bytes",
            Self::NotAllowed => "the connector does not allow this user: see allow",
            Self::EmailNotVerified => {
                "the connector does not allow this user: it needs an address in allow.emailDomains, and the provider does \
                 not say that it has verified one (email_verified)"
            }
        })
    }
}

impl std::error::Error for LoginRefused {}

/// The users that a connector allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// All users of the provider.
    Everyone,
    /// Members of one of these groups, as the provider names them.
    Groups(Vec<String>),
    /// Users with a verified address in one of these domains.
    EmailDomains(Vec<String>),
}

impl Allow {
    /// Checks that a user may log in.
    ///
    /// # Errors
    /// [`LoginRefused::NotAllowed`], [`LoginRefused::EmailNotVerified`].
    pub fn check(&self, claims: &Map<String, Value>, groups: &[&str]) -> Result<(), LoginRefused> {
        let is_allowed = match self {
            Self::Everyone => true,
            Self::Groups(allowed) => {
                groups.iter().any(|group| allowed.iter().any(|one| one == group))
            }
            Self::EmailDomains(domains) => {
                let domain = verified_domain(claims).ok_or(LoginRefused::EmailNotVerified)?;
                domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(domain))
            }
        };
        if is_allowed { Ok(()) } else { Err(LoginRefused::NotAllowed) }
    }
}

/// The domain of the address, if the provider has verified it.
fn verified_domain(claims: &Map<String, Value>) -> Option<&str> {
    let is_verified = match claims.get("email_verified")? {
        Value::Bool(is_verified) => *is_verified,
        // Some providers write it as a text.
        Value::String(text) => text == "true",
        _ => false,
    };
    let (local, domain) = claims.get("email")?.as_str()?.rsplit_once('@')?;
    (is_verified && !local.is_empty()).then_some(domain)
}

/// The claims about a user: those of the ID token, and those that only the UserInfo response has.
pub fn with_user_info(
    id_token: &Map<String, Value>,
    mut user_info: Map<String, Value>,
) -> Map<String, Value> {
    // Whether an address is verified says nothing about the other address.
    if id_token.contains_key("email") {
        user_info.remove("email_verified");
    }
    let claims = id_token.iter().map(|(name, value)| (name.clone(), value.clone()));
    user_info.extend(claims);
    user_info
}

/// The groups of a person as the provider names them, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderGroups {
    /// Those that can be names of groups here.
    pub accepted: Vec<String>,
    /// Those that cannot: with a comma, a blank at an end, a control character, or letters that are not NFC.
    pub rejected: Vec<String>,
}

/// The groups of a login.
///
/// # Errors
/// See [`LoginRefused`]. A login without its groups is refused, because it would silently demote the user.
pub fn groups(
    claims: &Map<String, Value>,
    groups_claim: &str,
) -> Result<ProviderGroups, LoginRefused> {
    let is_elsewhere =
        claims.get("_claim_names").is_some_and(|names| names.get(groups_claim).is_some())
            || claims.get("hasgroups").is_some_and(|has| *has == Value::Bool(true));
    let listed = match claims.get(groups_claim) {
        _ if is_elsewhere => return Err(LoginRefused::GroupsElsewhere),
        None | Some(Value::Null) => return Err(LoginRefused::NoGroups),
        Some(claim) => claim,
    };
    let is_empty = listed.as_array().is_some_and(Vec::is_empty);
    let mut found = texts(Some(listed));
    let mut seen = HashSet::new();
    found.retain(|group| seen.insert(*group));
    if found.is_empty() && !is_empty {
        return Err(LoginRefused::GroupsForm);
    }
    if found.len() > MAX_GROUPS {
        return Err(LoginRefused::TooManyGroups);
    }
    if found.iter().any(|group| group.len() > MAX_GROUP_BYTES) {
        return Err(LoginRefused::LongGroup);
    }
    let is_valid = |group: &String| identity_name(group).is_ok();
    let (accepted, rejected) = found.into_iter().map(str::to_owned).partition(is_valid);
    Ok(ProviderGroups { accepted, rejected })
}

/// The name of a provider's group in Postern: it begins with the connector, so it is never a name of the system.
pub fn group_name(connector: &str, group: &str) -> String {
    format!("{connector}:{group}")
}

/// The name of a new user, from the claim of the username: lower case letters, digits, dots and hyphens.
///
/// # Errors
/// [`LoginRefused::NoUsername`].
pub fn user_name(claims: &Map<String, Value>, claim: &str) -> Result<String, LoginRefused> {
    let given = claims.get(claim).and_then(Value::as_str).filter(|name| !name.trim().is_empty());
    let given = given.ok_or(LoginRefused::NoUsername)?;
    let mut name = String::with_capacity(given.len().min(MAX_NAME_CHARS));
    for character in given.chars() {
        let character = match character.to_ascii_lowercase() {
            safe if safe.is_ascii_alphanumeric() || safe == '.' => safe,
            _ => '-',
        };
        // A label begins and ends with a letter or digit.
        let follows_mark = name.ends_with(['-', '.']) || name.is_empty();
        match character {
            '.' if name.ends_with('-') => {
                name.pop();
                if !name.ends_with('.') && !name.is_empty() {
                    name.push('.');
                }
            }
            '-' | '.' if follows_mark => {}
            character => name.push(character),
        }
        if name.len() == MAX_NAME_CHARS {
            break;
        }
    }
    let name = name.trim_end_matches(['-', '.']);
    Ok(if name.is_empty() { NAMELESS.to_owned() } else { name.to_owned() })
}

/// The name of a new user if another user has the name: it gets a suffix from the issuer and the
/// subject.
pub fn with_suffix(name: &str, issuer: &str, subject: &str) -> String {
    let mut context = Context::new(&SHA256);
    for part in [issuer, subject] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let hash = hex::encode(context.finish());
    format!("{name}-{}", hash.get(..SUFFIX_CHARS).unwrap_or_default())
}
