//! Connectors, and what users, teams and keys have of them: identities at providers, groups, and logins.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postern_kinds::Owner;
use postern_kinds::principal::{ConnectorFacts, ConnectorRef, KeyFacts, UserFacts};

use super::{Concerned, PrincipalIndex, remove_from};

/// The part of the index that is about single sign-on.
#[derive(Debug, Default)]
pub(super) struct SsoIndex {
    connectors: BTreeMap<String, ConnectorFacts>,
    /// The keys that a connector made, by the name of the connector.
    keys: HashMap<String, BTreeSet<String>>,
    /// The keys that a workload identity made, by its uid.
    workload_keys: HashMap<String, BTreeSet<String>>,
    /// The users who have groups of a connector, by its name.
    users: HashMap<String, BTreeSet<String>>,
    /// The users who have a group.
    users_in: HashMap<String, BTreeSet<String>>,
    /// The teams that a group is in.
    teams_with: HashMap<String, BTreeSet<String>>,
    /// The user of an issuer and a subject.
    user_of: HashMap<(String, String), String>,
}

impl SsoIndex {
    /// Whether a connector is there with this uid, and enabled.
    pub(super) fn is_enabled(&self, connector: &ConnectorRef) -> bool {
        let known = self.connectors.get(&connector.name);
        known.is_some_and(|known| known.uid == connector.uid && !known.disabled)
    }

    /// The groups of a user that count: those of connectors that are there and enabled.
    pub(super) fn groups_of<'a>(&'a self, user: &'a UserFacts) -> impl Iterator<Item = &'a str> {
        let counts = user.sso.iter().filter(|of| self.is_enabled(&of.connector));
        counts.flat_map(|of| {
            // Only the server writes them, and a name of another connector would be an error of it.
            let own = |group: &&String| {
                group.strip_prefix(&*of.connector.name).is_some_and(|rest| rest.starts_with(':'))
            };
            of.groups.iter().filter(own).map(String::as_str)
        })
    }

    /// The teams of a user's groups.
    pub(super) fn teams_of<'a>(&'a self, user: &'a UserFacts) -> impl Iterator<Item = &'a str> {
        let teams = self.groups_of(user).filter_map(|group| self.teams_with.get(group));
        teams.flatten().map(String::as_str)
    }

    /// The users who have one of these groups, whether it counts or not.
    pub(super) fn users_with(&self, groups: &[String]) -> BTreeSet<String> {
        groups.iter().filter_map(|group| self.users_in.get(group)).flatten().cloned().collect()
    }

    /// The keys that a connector made.
    pub(super) fn keys_of(&self, connector: &str) -> impl Iterator<Item = &String> {
        self.keys.get(connector).into_iter().flatten()
    }

    /// The users who have groups of a connector.
    pub(super) fn users_of(&self, connector: &str) -> impl Iterator<Item = &String> {
        self.users.get(connector).into_iter().flatten()
    }

    pub(super) fn add_key(&mut self, name: &str, key: &KeyFacts) {
        if let Some(connector) = &key.connector {
            self.keys.entry(connector.name.clone()).or_default().insert(name.to_owned());
        }
        if let Some(workload) = &key.workload_uid {
            self.workload_keys.entry(workload.clone()).or_default().insert(name.to_owned());
        }
    }

    pub(super) fn remove_key(&mut self, name: &str, key: &KeyFacts) {
        if let Some(connector) = &key.connector {
            remove_from(&mut self.keys, &connector.name, name);
        }
        if let Some(workload) = &key.workload_uid {
            remove_from(&mut self.workload_keys, workload, name);
        }
    }

    pub(super) fn add_user(&mut self, name: &str, user: &UserFacts) {
        for identity in &user.identities {
            self.user_of.insert(identity.clone(), name.to_owned());
        }
        for of in &user.sso {
            self.users.entry(of.connector.name.clone()).or_default().insert(name.to_owned());
            for group in &of.groups {
                self.users_in.entry(group.clone()).or_default().insert(name.to_owned());
            }
        }
    }

    pub(super) fn remove_user(&mut self, name: &str, user: &UserFacts) {
        for identity in &user.identities {
            // It may be another user's by now.
            if self.user_of.get(identity).is_some_and(|of| of == name) {
                self.user_of.remove(identity);
            }
        }
        for of in &user.sso {
            remove_from(&mut self.users, &of.connector.name, name);
            for group in &of.groups {
                remove_from(&mut self.users_in, group, name);
            }
        }
    }

    /// Replaces the groups whose members are in a team.
    pub(super) fn set_team(&mut self, team: &str, had: &[String], has: &[String]) {
        for group in had {
            remove_from(&mut self.teams_with, group, team);
        }
        for group in has {
            self.teams_with.entry(group.clone()).or_default().insert(team.to_owned());
        }
    }
}

impl PrincipalIndex {
    /// The name of the user who has an identity at a provider.
    pub fn user_of_identity(&self, issuer: &str, subject: &str) -> Option<&str> {
        let identity = (issuer.to_owned(), subject.to_owned());
        self.sso.user_of.get(&identity).map(String::as_str)
    }

    /// The teams whose members are in one of these groups of providers.
    pub fn teams_with_groups(&self, groups: &[String]) -> BTreeSet<&str> {
        let teams = groups.iter().filter_map(|group| self.sso.teams_with.get(group));
        teams.flatten().map(String::as_str).collect()
    }

    /// The names of the keys that a connector made.
    pub fn keys_of_connector(&self, connector: &str) -> impl Iterator<Item = &str> {
        self.sso.keys_of(connector).map(String::as_str)
    }

    /// The names of the users who have groups of a connector.
    pub fn users_of_connector(&self, connector: &str) -> impl Iterator<Item = &str> {
        self.sso.users_of(connector).map(String::as_str)
    }

    /// How many keys of a workload identity, by its uid, have not ended at a time, in seconds since 1970.
    pub fn workload_key_count(&self, uid: &str, now_unix_seconds: i64) -> usize {
        let names = self.sso.workload_keys.get(uid).into_iter().flatten();
        names.filter(|name| !self.has_ended_before(name, now_unix_seconds)).count()
    }

    /// Whether a workload identity made a key.
    pub fn is_of_workload(&self, name: &str) -> bool {
        self.keys.get(name).is_some_and(|key| key.workload_uid.is_some())
    }

    /// How many keys of an owner workload identities have made. They do not count for the limit of the owner.
    pub fn keys_of_workloads(&self, owner: &Owner) -> usize {
        let names = self.keys_of.get(owner).into_iter().flatten();
        names.filter(|name| self.is_of_workload(name)).count()
    }

    /// Whether a connector is there with this uid, and enabled.
    pub fn is_connector_enabled(&self, connector: &ConnectorRef) -> bool {
        self.sso.is_enabled(connector)
    }

    /// Sets a connector, with all that follows; `None` removes it.
    pub fn set_connector(&mut self, name: &str, connector: Option<ConnectorFacts>) {
        self.change_connector(name, connector);
        while self.resolve_next() {}
    }

    pub(super) fn change_connector(&mut self, name: &str, connector: Option<ConnectorFacts>) {
        let old = self.sso.connectors.remove(name);
        let is_same = old == connector;
        if let Some(connector) = connector {
            self.sso.connectors.insert(name.to_owned(), connector);
        }
        if is_same {
            return;
        }
        let users: Vec<String> = self.sso.users_of(name).cloned().collect();
        for user in users {
            let subject = self.users.get(&user).map(|user| user.subject.clone());
            self.note_names([user.as_str(), subject.as_deref().unwrap_or_default()]);
            self.concerned.push_back(Concerned::KeysOf(Owner::User(user)));
        }
        let keys = self.sso.keys_of(name).cloned().map(Concerned::Key);
        self.concerned.extend(keys.collect::<Vec<_>>());
    }

    pub(super) fn uids_of_users(&self, names: impl IntoIterator<Item = String>) -> Vec<String> {
        let users = names.into_iter().filter_map(|name| self.users.get(&name));
        users.map(|user| user.uid.clone()).collect()
    }
}
