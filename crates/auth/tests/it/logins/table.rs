//! The expected decisions: a table of plain data, and the random parts of keys and requests.

use std::collections::{BTreeMap, BTreeSet};

use postern_auth::attributes::Attributes;
use postern_kinds::MANAGEMENT_V1;
use postern_kinds::principal::KeyUse;
use serde_json::{Value, json};

use crate::reference_model::rng::Rng;

pub(crate) const USERS: [&str; 3] = ["ada", "bob", "eve"];
pub(crate) const CONNECTORS: [&str; 2] = ["corp", "hub"];
pub(crate) const WORKLOADS: [&str; 2] = ["build", "deploy"];
pub(crate) const NAMES: [&str; 12] =
    ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "ka", "kb"];
pub(crate) const START: i64 = 1_000_000;

/// The time after which groups that no provider has confirmed do not count.
pub(crate) const GROUPS_MAX_AGE: i64 = 900;
pub(crate) const SESSION_TTL: i64 = 1500;
pub(crate) const IDLE_SECONDS: i64 = 400;

/// The right to impersonate users with groups of the connectors.
pub(crate) const GROUPS: &str = "groups";

/// The maximum permissions of a key, as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    pub(crate) verbs: &'static [&'static str],
    pub(crate) namespaces: &'static [&'static str],
}

pub(crate) const EVERYTHING: Reach = Reach { verbs: &[], namespaces: &[] };

impl Reach {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        match rng.below(8) {
            0..4 => EVERYTHING,
            4 => Self { verbs: &["get"], ..EVERYTHING },
            5 => Self { namespaces: &["a"], ..EVERYTHING },
            6 => Self { verbs: &["get", "create", "update"], ..EVERYTHING },
            _ => Self { verbs: &["get"], namespaces: &["a"] },
        }
    }

    pub(crate) fn scope(self) -> Value {
        let mut rule = json!({});
        if !self.verbs.is_empty() {
            rule["verbs"] = json!(self.verbs);
        }
        if !self.namespaces.is_empty() {
            rule["namespaces"] = json!(self.namespaces);
        }
        json!({ "rules": [rule] })
    }

    pub(crate) fn allows(self, ask: Ask) -> bool {
        (self.verbs.is_empty() || self.verbs.contains(&ask.verb))
            && (self.namespaces.is_empty() || self.namespaces.contains(&ask.namespace))
    }
}

/// A request, as plain data: for a shared secret, which all users may read and write, or for an object that only
/// members of the group `dev` of a connector may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) verb: &'static str,
    pub(crate) namespace: &'static str,
    pub(crate) group_of: Option<&'static str>,
}

impl Ask {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let group_of = rng.percent(40).then(|| CONNECTORS[rng.below(2)]);
        Self {
            verb: ["get", "update"][rng.below(2)],
            namespace: ["a", "b"][rng.below(2)],
            group_of,
        }
    }

    pub(crate) fn attributes(self) -> Attributes<'static> {
        let Self { verb, namespace, group_of } = self;
        let (group, subresource, name) = (MANAGEMENT_V1.group, "", "s");
        let resource = match group_of {
            None => "sharedsecrets",
            Some("corp") => "spaceinstances",
            Some(_) => "virtualclusterinstances",
        };
        Attributes::Resource { verb, group, resource, subresource, namespace, name }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The table of the expected decisions.

#[derive(Clone, Debug, Default)]
pub(crate) struct UserRow {
    pub(crate) uid: String,
    pub(crate) is_disabled: bool,
    /// The identities with which the user is linked: the connector, and the number of the identity there.
    pub(crate) linked: BTreeSet<(&'static str, usize)>,
    /// The connectors from which the user has the group `dev`: the uid of the connector, and the
    /// time of the confirmation.
    pub(crate) groups: BTreeMap<&'static str, (String, i64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct ConnectorRow {
    pub(crate) uid: String,
    pub(crate) is_disabled: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct WorkloadRow {
    pub(crate) uid: String,
    pub(crate) is_disabled: bool,
    pub(crate) user: &'static str,
    pub(crate) owner_uid: String,
    pub(crate) reach: Reach,
    pub(crate) ttl: i64,
    pub(crate) maker: Option<Parent>,
}

/// The key that another one ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) uid: String,
    pub(crate) impersonated: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(crate) struct LoginRow {
    pub(crate) connector: &'static str,
    pub(crate) connector_uid: String,
    /// The number of the identity at the provider.
    pub(crate) subject: usize,
    /// The session at the provider.
    pub(crate) sid: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct KeyRow {
    pub(crate) uid: String,
    pub(crate) user: &'static str,
    pub(crate) owner_uid: String,
    pub(crate) reach: Option<Reach>,
    pub(crate) created: i64,
    pub(crate) ttl: i64,
    pub(crate) counts_uses: bool,
    pub(crate) used: i64,
    pub(crate) is_disabled: bool,
    pub(crate) used_as: KeyUse,
    pub(crate) is_login_type: bool,
    pub(crate) parent: Option<Parent>,
    pub(crate) login: Option<LoginRow>,
    /// The uid of the WorkloadIdentity.
    pub(crate) workload: Option<String>,
}

impl KeyRow {
    /// Whether the key has expired.
    pub(crate) fn is_over(
        &self,
        now: i64,
        longest: Option<i64>,
        is_idleness_counted: bool,
    ) -> bool {
        let ttl = match (self.ttl, longest) {
            (0, longest) => longest.unwrap_or(0),
            (ttl, longest) => longest.map_or(ttl, |longest| longest.min(ttl)),
        };
        let last = self.used.max(self.created);
        let from = if self.counts_uses { last } else { self.created };
        let is_idle = self.used_as == KeyUse::Session && last + IDLE_SECONDS <= now;
        (ttl > 0 && from + ttl <= now) || (is_idleness_counted && is_idle)
    }
}

/// Everything that is stored, as plain data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) users: BTreeMap<&'static str, UserRow>,
    pub(crate) connectors: BTreeMap<&'static str, ConnectorRow>,
    pub(crate) workloads: BTreeMap<&'static str, WorkloadRow>,
    pub(crate) keys: BTreeMap<&'static str, KeyRow>,
    /// What each user may impersonate.
    pub(crate) may: BTreeSet<(&'static str, &'static str)>,
}

impl Table {
    pub(crate) fn key(&self, uid: &str) -> Option<&KeyRow> {
        self.keys.values().find(|key| key.uid == uid)
    }

    pub(crate) fn user(&self, name: &str, uid: &str) -> Option<&UserRow> {
        self.users.get(name).filter(|user| user.uid == uid)
    }

    /// Whether the user is linked with the identity of a login, and the connector is the same and enabled.
    pub(crate) fn is_login_kept(&self, key: &KeyRow) -> bool {
        let Some(login) = &key.login else { return true };
        let connector = self.connectors.get(login.connector);
        let is_linked = self.users[key.user].linked.contains(&(login.connector, login.subject));
        is_linked && connector.is_some_and(|one| one.uid == login.connector_uid && !one.is_disabled)
    }

    /// Whether a key is valid and its scope allows a request, and so for all that it depends on.
    pub(crate) fn is_allowed(
        &self,
        key: &KeyRow,
        ask: Ask,
        now: i64,
        is_of_command_line: bool,
    ) -> bool {
        let mut longest = None;
        if let Some(uid) = &key.workload {
            let workload = self.workloads.values().find(|one| one.uid == *uid);
            let Some(workload) = workload.filter(|one| !one.is_disabled) else { return false };
            if !workload.reach.allows(ask) {
                return false;
            }
            longest = Some(workload.ttl);
        }
        let is_of_parent = |parent: &Parent| {
            let Some(maker) = self.key(&parent.uid) else { return false };
            let is_of_command_line = is_of_command_line || key.used_as == KeyUse::CommandLine;
            self.is_allowed(maker, ask, now, is_of_command_line) && self.may_act(maker, parent, now)
        };
        !key.is_disabled
            && self.user(key.user, &key.owner_uid).is_some_and(|user| !user.is_disabled)
            && self.is_login_kept(key)
            && !key.is_over(now, longest, !is_of_command_line)
            && key.reach.is_none_or(|reach| reach.allows(ask))
            && key.parent.as_ref().is_none_or(is_of_parent)
    }

    /// Whether the owner of a key may still impersonate as it did.
    pub(crate) fn may_act(&self, key: &KeyRow, parent: &Parent, now: i64) -> bool {
        let Some(wanted) = parent.impersonated else { return true };
        let act = Ask { verb: "impersonate", namespace: "", group_of: None };
        let user = self.users.get(wanted);
        let has_groups = user.is_some_and(|user| {
            CONNECTORS.iter().any(|connector| self.has_group(user, connector, now))
        });
        self.may.contains(&(key.user, wanted))
            && self.is_in_reach(key, act)
            && !user.is_some_and(|user| user.is_disabled)
            && (!has_groups || self.may.contains(&(key.user, GROUPS)))
    }

    /// Whether the scopes of a key and of its makers allow a request.
    pub(crate) fn is_in_reach(&self, key: &KeyRow, ask: Ask) -> bool {
        let workload = key.workload.as_ref();
        let workload = workload.and_then(|uid| self.workloads.values().find(|one| one.uid == *uid));
        let parent = key.parent.as_ref().and_then(|parent| self.key(&parent.uid));
        key.reach.is_none_or(|reach| reach.allows(ask))
            && workload.is_none_or(|workload| workload.reach.allows(ask))
            && parent.is_none_or(|parent| self.is_in_reach(parent, ask))
    }

    /// Whether a key or one of its makers has a scope. The keys of a workload have one.
    pub(crate) fn is_scoped(&self, key: &KeyRow) -> bool {
        let parent = key.parent.as_ref().and_then(|parent| self.key(&parent.uid));
        key.reach.is_some() || parent.is_some_and(|parent| self.is_scoped(parent))
    }

    pub(crate) fn has_group(&self, user: &UserRow, connector: &str, now: i64) -> bool {
        let enabled = self.connectors.get(connector).filter(|one| !one.is_disabled);
        let Some((uid, confirmed)) = user.groups.get(connector) else { return false };
        enabled.is_some_and(|one| one.uid == *uid) && *confirmed >= now - GROUPS_MAX_AGE
    }

    pub(crate) fn holds(&self, key: &KeyRow, ask: Ask, now: i64) -> bool {
        let user = &self.users.get(key.user);
        let has_group = |of| user.is_some_and(|user| self.has_group(user, of, now));
        self.is_allowed(key, ask, now, false) && ask.group_of.is_none_or(has_group)
    }

    /// Whether a login other than the one with a uid confirms the groups of a connector.
    pub(crate) fn confirms(&self, user: &str, connector_uid: &str, but: &str, now: i64) -> bool {
        self.keys.values().any(|key| {
            let of = key.login.as_ref().filter(|login| login.connector_uid == connector_uid);
            // The idleness of a session does not end its logins of the command line.
            let has_command_line = self.keys.values().any(|one| {
                one.used_as == KeyUse::CommandLine
                    && one.parent.as_ref().is_some_and(|of| of.uid == key.uid)
            });
            key.user == user
                && key.uid != but
                && !key.is_disabled
                && self.user(user, &key.owner_uid).is_some()
                && of.is_some_and(|login| {
                    self.users[user].linked.contains(&(login.connector, login.subject))
                })
                && !key.is_over(now, None, !has_command_line)
        })
    }

    /// The deletion of a key: the groups that its login confirmed end, unless another login confirms them.
    pub(crate) fn delete(&mut self, name: &str, now: i64) {
        let key = self.keys[name].clone();
        let has_command_line = self.keys.values().any(|one| {
            one.used_as == KeyUse::CommandLine
                && one.parent.as_ref().is_some_and(|of| of.uid == key.uid)
        });
        if let Some(login) = &key.login
            && !key.is_over(now, None, !has_command_line)
            && !self.confirms(key.user, &login.connector_uid, &key.uid, now)
        {
            self.end_groups(key.user, login.connector, &login.connector_uid);
        }
        self.keys.remove(name);
    }

    pub(crate) fn end_groups(&mut self, user: &str, connector: &'static str, uid: &str) {
        if let Some(user) = self.users.get_mut(user)
            && user.groups.get(connector).is_some_and(|(of, _)| of == uid)
        {
            user.groups.remove(connector);
        }
    }
}
