//! The rights that a change of the owner and the access rules requires, and its validation. Callers
//! give only verbs that they hold, and only to users and teams that they may name. See
//! `docs/reference/access-rules.md#no-escalation`.

use std::collections::{BTreeSet, HashMap};

use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::names::dns1123_subdomain;

use super::{ALL, Access, MAX_ACCESS_ENTRIES, MAX_GRANTEES, Owned, Ownership, UserOrTeam, VERBS};
use crate::context::Context;
use crate::kind::Info;
use crate::kind::ownership::UNSERVED_SUBRESOURCES;
use crate::names::MANAGEMENT_V1;
use crate::principal::Principal;
use crate::right::{RequiredRight, Right};

/// Maximum number of verbs, and of subresources, of one access rule.
const MAX_WORDS: usize = 50;

/// To whom an access rule gives verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Grantee<'a> {
    AllUsers,
    User(&'a str),
    Team(&'a str),
}

impl<'a> Grantee<'a> {
    /// The grantees of a rule, each as often as the rule names them.
    pub(super) fn of(rule: &'a Access) -> impl Iterator<Item = Self> {
        let user = |name: &'a String| if name == ALL { Self::AllUsers } else { Self::User(name) };
        let users = rule.users.iter().map(user);
        users.chain(rule.teams.iter().map(|name| Self::Team(name)))
    }

    /// The user or team; `None` for all users.
    pub(super) fn principal(self) -> Option<Principal<'a>> {
        match self {
            Self::AllUsers => None,
            Self::User(name) => Some(Principal::User(name)),
            Self::Team(name) => Some(Principal::Team(name)),
        }
    }

    /// The right that a caller needs to give anything to them by an object in a namespace; `None` for users and teams that
    /// the caller may name. The admins of a project may name its members.
    fn right_to_bind(self, namespace: &str, ctx: &Context<'_>) -> Option<RequiredRight> {
        let Some(principal) = self.principal() else {
            let of_all = Right::cluster("bind", MANAGEMENT_V1.group, "users", "");
            let hint = "access for all users (`*`) requires the verb bind on all users";
            return Some(RequiredRight::from(of_all).because(hint.to_owned()));
        };
        if ctx.may_name(principal) {
            return None;
        }
        let by_bind = RequiredRight::from(principal.right("bind"));
        let whom = principal.described();
        let Some(project) = ctx.project_of_namespace else {
            let hint = format!(
                "access for the {whom} requires a common team, or the verb bind on this {}",
                principal.kind()
            );
            return Some(by_bind.because(hint));
        };
        let is_member = ctx.named.is_member(project, principal);
        let hint = format!(
            "access for the {whom} requires a common team, or the verb bind on this {}; members and \
             admins of the project \"{project}\" need neither for its members",
            principal.kind()
        );
        let of_admins = Right::on_members("bind", project, namespace);
        Some(if is_member { by_bind.or(of_admins) } else { by_bind }.because(hint))
    }
}

/// The verbs of a rule, in order and each once; `*` alone where it is among them.
pub(super) fn verbs_of(rule: &Access) -> BTreeSet<&str> {
    let verbs: BTreeSet<&str> = rule.verbs.iter().map(String::as_str).collect();
    if verbs.contains(ALL) { BTreeSet::from([ALL]) } else { verbs }
}

/// The subresources of a rule, in order and each once; all that the kind has, for `*`.
pub(super) fn subresources_of<'a>(rule: &'a Access, info: &'static Info) -> BTreeSet<&'a str> {
    let all = rule.subresources.iter().map(String::as_str);
    let mut names: BTreeSet<&str> =
        all.filter(|name| !UNSERVED_SUBRESOURCES.contains(name)).collect();
    if names.remove(ALL) {
        for name in info.subresources() {
            names.insert(name);
        }
    }
    names
}

/// The verbs and the subresources that a rule gives, apart from its grantees.
type Given<'a> = (BTreeSet<&'a str>, BTreeSet<&'a str>);

/// The additions to the owner and the access rules of an object. Rules in another order, or divided in another way, are
/// no additions.
pub(crate) struct Change<'a> {
    info: &'static Info,
    new: &'a Ownership,
    is_create: bool,
    old_owner: Option<&'a UserOrTeam>,
    /// For each rule, the users and teams that get something new from it; not beyond the limits.
    added: Vec<Vec<Grantee<'a>>>,
    /// For each rule, whether it is unchanged.
    is_kept: Vec<bool>,
}

impl<'a> Change<'a> {
    /// Compares the owner and the rules with those from before; `None` for a new object.
    pub(crate) fn between(
        info: &'static Info,
        new: &'a Ownership,
        old: Option<&'a Ownership>,
    ) -> Self {
        let given = |rule| (verbs_of(rule), subresources_of(rule, info));
        let old_rules: Vec<&'a Access> = old.into_iter().flat_map(Ownership::rules).collect();
        let mut before: HashMap<Given<'a>, HashMap<Grantee<'a>, usize>> = HashMap::new();
        for rule in old_rules.iter().copied() {
            let to = before.entry(given(rule)).or_default();
            Grantee::of(rule).for_each(|grantee| *to.entry(grantee).or_default() += 1);
        }
        let mut added_of = |rule: &'a Access| {
            let mut to = before.get_mut(&given(rule));
            let mut is_added = |grantee: &Grantee<'a>| {
                let count = to.as_mut().and_then(|to| to.get_mut(grantee));
                let Some(count) = count.filter(|count| **count > 0) else { return true };
                *count -= 1;
                false
            };
            Grantee::of(rule).take(2 * MAX_GRANTEES).filter(&mut is_added).collect()
        };
        let rules = || new.rules().take(MAX_ACCESS_ENTRIES);
        Self {
            info,
            new,
            is_create: old.is_none(),
            old_owner: old.and_then(|old| old.owner.as_ref()),
            added: rules().map(&mut added_of).collect(),
            is_kept: rules().map(|rule| old_rules.contains(&rule)).collect(),
        }
    }

    /// The rights that the write requires for its additions.
    pub(crate) fn required_rights(&self, of: Owned<'_>, ctx: &Context<'_>) -> Vec<RequiredRight> {
        let mut rights: Vec<RequiredRight> = self.right_to_make_owner(ctx).into_iter().collect();
        let is_owner = self.is_create && self.new.owner.as_ref().is_some_and(|o| is_of(o, ctx));
        for (verb, subresource) in self.verbs_given() {
            let right = |verb, name: &str| Right {
                namespace: of.metadata.namespace.clone(),
                ..Right::cluster(verb, of.info.version.group, of.info.plural, name)
            };
            let subresource = subresource.to_owned();
            let held = Right { subresource, ..right(verb, &of.metadata.name) };
            let required = RequiredRight::from(held).or(right("escalate", ""));
            rights.push(if is_owner { required.as_owner() } else { required });
        }
        let to: BTreeSet<Grantee<'_>> = self.added.iter().flatten().copied().collect();
        let namespace = &of.metadata.namespace;
        rights.extend(to.into_iter().filter_map(|grantee| grantee.right_to_bind(namespace, ctx)));
        rights
    }

    /// The right that a change of the owner requires: `makeowner` on the new owner. Without a new owner, it is
    /// `makeowner` on the old one. The old owner needs none to remove themselves.
    fn right_to_make_owner(&self, ctx: &Context<'_>) -> Option<RequiredRight> {
        let new = self.new.owner.as_ref().and_then(UserOrTeam::principal);
        let old = self.old_owner.and_then(UserOrTeam::principal);
        let is_own = |owner: Option<&UserOrTeam>| owner.is_some_and(|owner| is_of(owner, ctx));
        let to = match (new, old) {
            (new, old) if new == old => None,
            (Some(_), _) if self.is_create && is_own(self.new.owner.as_ref()) => None,
            (None, Some(_)) if is_own(self.old_owner) => None,
            (new, old) => new.or(old),
        };
        to.map(|principal| principal.right("makeowner").into())
    }

    /// All verbs that are given anew, each with its subresource, or without one.
    fn verbs_given(&self) -> BTreeSet<(&'static str, &'a str)> {
        let mut given = BTreeSet::new();
        let rules = self.new.rules().zip(&self.added);
        for (rule, _) in rules.filter(|(_, added)| !added.is_empty()) {
            let verbs = verbs_of(rule);
            for known in VERBS.iter().filter(|known| verbs.contains(*known)) {
                given.insert((*known, ""));
                let subresources = subresources_of(rule, self.info).into_iter();
                // A subresource that the kind does not have is invalid, and gives nothing.
                let served = subresources.filter(|name| self.is_served(name));
                given.extend(served.map(|name| (*known, name)));
            }
        }
        given
    }

    fn is_served(&self, subresource: &str) -> bool {
        self.info.subresources().any(|served| served == subresource)
    }

    /// Adds the invalid fields to `errors`.
    pub(crate) fn validate(&self, ctx: &Context<'_>, errors: &mut FieldErrors) {
        self.validate_owner(ctx, errors);
        let count = self.new.rules().count();
        errors.check_count("spec.access", count, MAX_ACCESS_ENTRIES);
        let rules = self.new.rules().enumerate().zip(&self.is_kept);
        for ((index, rule), _) in rules.filter(|(_, is_kept)| !**is_kept) {
            let path = self.new.path_of(index);
            self.validate_words(&path, rule, errors);
            validate_grantees(&path, rule, &self.added[index], ctx, errors);
        }
    }

    fn validate_owner(&self, ctx: &Context<'_>, errors: &mut FieldErrors) {
        let Some(owner) = &self.new.owner else { return };
        if !owner.user.is_empty() && !owner.team.is_empty() {
            errors.push(FieldError::forbidden("spec.owner", "may name a user or a team, not both"));
            return;
        }
        let Some(principal) = owner.principal() else { return };
        let is_new = self.old_owner != Some(owner);
        if is_new && !exists(principal, ctx) {
            let (path, name) = match principal {
                Principal::User(name) => ("spec.owner.user", name),
                Principal::Team(name) => ("spec.owner.team", name),
            };
            errors.push(FieldError::not_found(path, name));
        }
    }

    fn validate_words(&self, path: &str, rule: &Access, errors: &mut FieldErrors) {
        if rule.verbs.is_empty() {
            let detail = "verbs must contain at least one value";
            errors.push(FieldError::required(format!("{path}.verbs"), detail));
        }
        for (field, list) in [("verbs", &rule.verbs), ("subresources", &rule.subresources)] {
            if list.len() > MAX_WORDS {
                let path = format!("{path}.{field}");
                errors.push(FieldError::too_many(path, list.len(), MAX_WORDS));
            }
        }
        for (index, verb) in rule.verbs.iter().enumerate().take(MAX_WORDS) {
            if !VERBS.contains(&verb.as_str()) {
                let path = format!("{path}.verbs[{index}]");
                errors.push(FieldError::not_supported(path, verb, VERBS));
            }
        }
        for (index, name) in rule.subresources.iter().enumerate().take(MAX_WORDS) {
            if name != ALL
                && !UNSERVED_SUBRESOURCES.contains(&name.as_str())
                && !self.is_served(name)
            {
                let path = format!("{path}.subresources[{index}]");
                let served: Vec<_> = std::iter::once(ALL).chain(self.info.subresources()).collect();
                errors.push(FieldError::not_supported(path, name, &served));
            }
        }
    }
}

/// Adds the invalid names of a rule's users and teams to `errors`. `added` are the new ones.
fn validate_grantees(
    path: &str,
    rule: &Access,
    added: &[Grantee<'_>],
    ctx: &Context<'_>,
    errors: &mut FieldErrors,
) {
    let added: BTreeSet<_> = added.iter().copied().collect();
    for (field, names) in [("users", &rule.users), ("teams", &rule.teams)] {
        let path = format!("{path}.{field}");
        if !errors.check_count(&path, names.len(), MAX_GRANTEES) {
            continue;
        }
        for (index, name) in names.iter().enumerate() {
            let is_user = field == "users";
            if is_user && name == ALL {
                continue;
            }
            let grantee = if is_user { Grantee::User(name) } else { Grantee::Team(name) };
            let is_unknown = || {
                let principal = grantee.principal().filter(|_| added.contains(&grantee));
                principal.is_some_and(|principal| !exists(principal, ctx))
            };
            let path = format!("{path}[{index}]");
            match dns1123_subdomain(name) {
                Err(detail) => errors.push(FieldError::invalid(path, name, detail)),
                Ok(()) if is_unknown() => errors.push(FieldError::not_found(path, name)),
                Ok(()) => {}
            }
        }
    }
}

/// Whether this owner is the caller, or a team of the caller.
pub(crate) fn is_of(owner: &UserOrTeam, ctx: &Context<'_>) -> bool {
    let Some(principal) = owner.principal() else { return false };
    let caller = ctx.caller;
    let is_own_team = || match (principal, &caller.user) {
        (Principal::Team(team), Some(user)) => {
            ctx.principals.teams_of(user).iter().any(|one| one == team)
        }
        _ => false,
    };
    caller.is(principal) || is_own_team()
}

/// Whether the user or team exists. The caller exists: they were authenticated.
fn exists(principal: Principal<'_>, ctx: &Context<'_>) -> bool {
    ctx.caller.is(principal) || ctx.principals.uid(principal).is_some()
}
