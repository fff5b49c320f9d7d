//! Connectors, and the data of users, teams and keys from them: identities at providers, groups,
//! and logins.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postern_kinds::Owner;
use postern_kinds::principal::{
    ConnectorFacts, ConnectorRef, KeyFacts, SsoGroups, TeamFacts, UserFacts,
};

use super::{Concerned, PrincipalIndex, remove_from};

/// The part of the index that is about single sign-on.
#[derive(Debug, Default)]
pub(super) struct SsoIndex {
    connectors: BTreeMap<String, ConnectorFacts>,
    /// The keys that a connector made, by the name of the connector.
    keys: HashMap<String, BTreeSet<String>>,
    /// The users with groups of a connector, by its name.
    users: HashMap<String, BTreeSet<String>>,
    /// The users with a group.
    users_in: HashMap<String, BTreeSet<String>>,
    /// The teams that a group is in, each with the uid of the group's connector; `None` if the name alone counts.
    teams_with: HashMap<String, BTreeMap<String, Option<String>>>,
    /// The user of an issuer and a subject.
    user_of: HashMap<(String, String), String>,
    /// The users with groups, by the time at which a provider confirmed the groups.
    confirmed: BTreeSet<(i64, String)>,
    /// Groups that were confirmed before this time do not count, in seconds since 1970.
    oldest: i64,
}

impl SsoIndex {
    /// Whether a connector exists with this uid, and is enabled.
    pub(super) fn is_enabled(&self, connector: &ConnectorRef) -> bool {
        let known = self.connectors.get(&connector.name);
        known.is_some_and(|known| known.uid == connector.uid && !known.disabled)
    }

    /// The groups of a user that count: those that are recent enough, of existing and enabled
    /// connectors.
    pub(super) fn groups_of<'a>(&'a self, user: &'a UserFacts) -> impl Iterator<Item = &'a str> {
        self.confirmed_groups(user).map(|(group, _)| group)
    }

    /// The groups of a user that count, each with its connector.
    fn confirmed_groups<'a>(
        &'a self,
        user: &'a UserFacts,
    ) -> impl Iterator<Item = (&'a str, &'a ConnectorRef)> {
        let is_recent = |of: &&SsoGroups| of.confirmed_unix_seconds >= self.oldest;
        let counts = user.sso.iter().filter(is_recent);
        let counts = counts.filter(|of| self.is_enabled(&of.connector));
        counts.flat_map(|of| {
            // Only the server writes them, and a name of another connector would be an error of it.
            let own = |group: &&String| {
                group.strip_prefix(&*of.connector.name).is_some_and(|rest| rest.starts_with(':'))
            };
            of.groups.iter().filter(own).map(|group| (group.as_str(), &of.connector))
        })
    }

    /// Whether a user is the same to others after a change. Groups that are confirmed again change nothing.
    pub(super) fn is_same(&self, old: Option<&UserFacts>, new: Option<&UserFacts>) -> bool {
        let (Some(old), Some(new)) = (old, new) else { return old.is_none() && new.is_none() };
        let without_groups = |user: &UserFacts| UserFacts { sso: Vec::new(), ..user.clone() };
        without_groups(old) == without_groups(new) && self.groups_of(old).eq(self.groups_of(new))
    }

    /// Sets the time since which groups must have been confirmed to count. The result is the users
    /// for which groups begin or cease to count.
    fn set_oldest(&mut self, oldest: i64) -> Vec<String> {
        let (from, to) = (self.oldest.min(oldest), self.oldest.max(oldest));
        self.oldest = oldest;
        let changed = self.confirmed.range((from, String::new())..(to, String::new()));
        changed.map(|(_, user)| user.clone()).collect()
    }

    /// The teams of a user's groups.
    pub(super) fn teams_of<'a>(&'a self, user: &'a UserFacts) -> impl Iterator<Item = &'a str> {
        self.confirmed_groups(user).flat_map(|(group, of)| self.teams_with(group, &of.uid))
    }

    /// The teams that a group of the connector with this uid is in.
    fn teams_with<'a>(
        &'a self,
        group: &str,
        connector_uid: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        let teams = self.teams_with.get(group).into_iter().flatten();
        let trusts =
            move |uid: &Option<String>| uid.as_deref().is_none_or(|uid| uid == connector_uid);
        teams.filter(move |(_, uid)| trusts(uid)).map(|(team, _)| team.as_str())
    }

    /// The users with one of these groups, even if it does not count. A user with several of them occurs as often.
    pub(super) fn users_with<'a>(
        &'a self,
        groups: &'a [String],
    ) -> impl Iterator<Item = &'a String> {
        groups.iter().filter_map(|group| self.users_in.get(group)).flatten()
    }

    /// The keys that a connector made.
    pub(super) fn keys_of(&self, connector: &str) -> impl Iterator<Item = &String> {
        self.keys.get(connector).into_iter().flatten()
    }

    /// The users with groups of a connector.
    pub(super) fn users_of(&self, connector: &str) -> impl Iterator<Item = &String> {
        self.users.get(connector).into_iter().flatten()
    }

    pub(super) fn add_key(&mut self, name: &str, key: &KeyFacts) {
        if let Some(connector) = &key.connector {
            self.keys.entry(connector.name.clone()).or_default().insert(name.to_owned());
        }
    }

    pub(super) fn remove_key(&mut self, name: &str, key: &KeyFacts) {
        if let Some(connector) = &key.connector {
            remove_from(&mut self.keys, &connector.name, name);
        }
    }

    pub(super) fn add_user(&mut self, name: &str, user: &UserFacts) {
        for identity in &user.identities {
            self.user_of.insert(identity.clone(), name.to_owned());
        }
        for of in &user.sso {
            if !of.groups.is_empty() {
                self.confirmed.insert((of.confirmed_unix_seconds, name.to_owned()));
            }
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
            self.confirmed.remove(&(of.confirmed_unix_seconds, name.to_owned()));
            remove_from(&mut self.users, &of.connector.name, name);
            for group in &of.groups {
                remove_from(&mut self.users_in, group, name);
            }
        }
    }

    /// Replaces the groups that give membership in a team.
    pub(super) fn set_team(
        &mut self,
        name: &str,
        old: Option<&TeamFacts>,
        new: Option<&TeamFacts>,
    ) {
        for group in old.iter().flat_map(|old| &old.sso_groups) {
            if let Some(teams) = self.teams_with.get_mut(group) {
                teams.remove(name);
                if teams.is_empty() {
                    self.teams_with.remove(group);
                }
            }
        }
        let Some(team) = new else { return };
        for group in &team.sso_groups {
            let is_of = |one: &&ConnectorRef| {
                group.strip_prefix(&*one.name).is_some_and(|rest| rest.starts_with(':'))
            };
            let uid = team.connectors.iter().find(is_of).map(|one| one.uid.clone());
            self.teams_with.entry(group.clone()).or_default().insert(name.to_owned(), uid);
        }
    }
}

impl PrincipalIndex {
    /// The name of the user that is linked with an identity at a provider.
    pub fn user_of_identity(&self, issuer: &str, subject: &str) -> Option<&str> {
        let identity = (issuer.to_owned(), subject.to_owned());
        self.sso.user_of.get(&identity).map(String::as_str)
    }

    /// The users with an identity of an issuer, if their name in access decisions has no prefix
    /// with the connector. These are users from before logins used the prefix, and users that an
    /// administrator linked. Sorted.
    pub fn users_without_prefix(&self, issuer: &str, connector: &str) -> BTreeSet<&str> {
        let of_issuer = self.sso.user_of.iter().filter(|((of, _), _)| of == issuer);
        let has_prefix = |user: &&str| {
            let subject = self.users.get(*user).map_or("", |user| user.subject.as_str());
            subject.strip_prefix(connector).is_some_and(|rest| rest.starts_with(':'))
        };
        of_issuer.map(|(_, user)| user.as_str()).filter(|user| !has_prefix(user)).collect()
    }

    /// The teams that have the members of one of these groups of the connector with this uid.
    pub fn teams_with_groups<'a>(
        &'a self,
        groups: &[String],
        connector_uid: &'a str,
    ) -> BTreeSet<&'a str> {
        groups.iter().flat_map(|group| self.sso.teams_with(group, connector_uid)).collect()
    }

    /// The names of the keys that a connector made.
    pub fn keys_of_connector(&self, connector: &str) -> impl Iterator<Item = &str> {
        self.sso.keys_of(connector).map(String::as_str)
    }

    /// The names of the users with groups that are too old to count.
    pub fn users_with_old_groups(&self) -> impl Iterator<Item = &str> {
        let old = self.sso.confirmed.range(..(self.sso.oldest, String::new()));
        old.map(|(_, user)| user.as_str())
    }

    /// Sets the time since which groups of single sign-on must have been confirmed to count, in seconds since 1970.
    /// [`PrincipalIndex::resolve_next`] resolves the keys that it affects. Returns whether there are any.
    pub fn set_oldest_groups(&mut self, unix_seconds: i64) -> bool {
        let users = self.sso.set_oldest(unix_seconds);
        let is_changed = !users.is_empty();
        self.note_users(users);
        is_changed
    }

    /// Notes that the groups of these users have changed.
    fn note_users(&mut self, users: Vec<String>) {
        self.noted.clear();
        for user in users {
            let subject = self.users.get(&user).map(|user| user.subject.clone());
            self.note_names([user.as_str(), subject.as_deref().unwrap_or_default()]);
            self.concerned.push_back(Concerned::keys_of(Owner::User(user)));
        }
    }

    /// Whether a connector exists with this uid, and is enabled.
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
        let users = self.sso.users_of(name).cloned().collect();
        self.note_users(users);
        let keys = self.sso.keys_of(name).cloned().map(Concerned::Key);
        self.concerned.extend(keys.collect::<Vec<_>>());
    }

    pub(super) fn uids_of_users(&self, names: impl IntoIterator<Item = String>) -> Vec<String> {
        let users = names.into_iter().filter_map(|name| self.users.get(&name));
        users.map(|user| user.uid.clone()).collect()
    }
}
