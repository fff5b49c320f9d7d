//! An access key allows something only while everything that it depends on allows it: its makers, its login, the
//! identity and the connector of the login, its session, its WorkloadIdentity and the groups that a provider has confirmed.
//! Random sequences show this on two servers, one of which sometimes knows the changes later.
//!
//! The objects are real, and the kinds and `postern_auth` decide, as in the server. A table of plain data ([`Table`]) says
//! what must be allowed and what must not. It is written from the pages of `docs/reference` about access keys, sessions,
//! single sign-on and workload identity, and it never asks the index. Both must say the same.
//!
//! `POSTERN_CHAIN_SEQUENCES` is the number of sequences (1,500 unless set), `POSTERN_NAIVE_SEED` the seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use aws_lc_rs as _;
use base64 as _;
use foldhash as _;
use hex as _;
use http as _;
use parking_lot as _;
use percent_encoding as _;
use postern_auth::attributes::Attributes;
use postern_auth::digest::Digest;
use postern_auth::impersonated;
use postern_auth::policy::{Decision, Policy};
use postern_auth::principal_index::{DigestRecord, PrincipalIndex};
use postern_auth::resolved_key::ResolvedKey;
use postern_auth::scope::contains;
use postern_auth::writer::{Logout, Writer};
use postern_kinds::connector::Connector;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::principal::AccessChange;
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange, PolicyRule};
use postern_kinds::team::Team;
use postern_kinds::user::{User, take_groups};
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_kinds::{AnyKind, Caller, Carried, Context, Impersonation, MANAGEMENT_V1};
use postern_meta::Timestamp;
use postern_meta::object::Object;
use proptest as _;
use rpds as _;
use rustix as _;
use serde as _;
use serde_json::{Value, json};
use zeroize as _;

#[path = "reference_model/rng.rs"]
#[expect(dead_code, reason = "another test needs the rest")]
mod rng;

use rng::Rng;

const STEPS: usize = 14;
const USERS: [&str; 3] = ["ada", "bob", "eve"];
const CONNECTORS: [&str; 2] = ["corp", "hub"];
const WORKLOADS: [&str; 2] = ["build", "deploy"];
const NAMES: [&str; 12] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "ka", "kb"];
const START: i64 = 1_000_000;

/// The time after which groups that no provider has confirmed do not count.
const GROUPS_MAX_AGE: i64 = 900;
const SESSION_TTL: i64 = 1500;
const IDLE_SECONDS: i64 = 400;

/// The right to impersonate users who are in groups of the connectors.
const GROUPS: &str = "groups";

/// What a key may do at most, as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reach {
    verbs: &'static [&'static str],
    namespaces: &'static [&'static str],
}

const EVERYTHING: Reach = Reach { verbs: &[], namespaces: &[] };

impl Reach {
    fn random(rng: &mut Rng) -> Self {
        match rng.below(8) {
            0..4 => EVERYTHING,
            4 => Self { verbs: &["get"], ..EVERYTHING },
            5 => Self { namespaces: &["a"], ..EVERYTHING },
            6 => Self { verbs: &["get", "create", "update"], ..EVERYTHING },
            _ => Self { verbs: &["get"], namespaces: &["a"] },
        }
    }

    fn scope(self) -> Value {
        let mut rule = json!({});
        if !self.verbs.is_empty() {
            rule["verbs"] = json!(self.verbs);
        }
        if !self.namespaces.is_empty() {
            rule["namespaces"] = json!(self.namespaces);
        }
        json!({ "rules": [rule] })
    }

    fn allows(self, ask: Ask) -> bool {
        (self.verbs.is_empty() || self.verbs.contains(&ask.verb))
            && (self.namespaces.is_empty() || self.namespaces.contains(&ask.namespace))
    }
}

/// A request, as plain data: for a shared secret, which all users may read and write, or for an object that only
/// members of the group `dev` of a connector may.
#[derive(Clone, Copy, Debug)]
struct Ask {
    verb: &'static str,
    namespace: &'static str,
    group_of: Option<&'static str>,
}

impl Ask {
    fn random(rng: &mut Rng) -> Self {
        let group_of = rng.percent(40).then(|| CONNECTORS[rng.below(2)]);
        Self {
            verb: ["get", "update"][rng.below(2)],
            namespace: ["a", "b"][rng.below(2)],
            group_of,
        }
    }

    fn attributes(self) -> Attributes<'static> {
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
// The table: what must be allowed.

#[derive(Clone, Debug, Default)]
struct UserRow {
    uid: String,
    is_disabled: bool,
    /// The identities with which the user is linked: the connector, and the number of the identity there.
    linked: BTreeSet<(&'static str, usize)>,
    /// The connectors whose group `dev` the user has: the uid of the connector, and when it was confirmed.
    groups: BTreeMap<&'static str, (String, i64)>,
}

#[derive(Clone, Debug)]
struct ConnectorRow {
    uid: String,
    is_disabled: bool,
}

#[derive(Clone, Debug)]
struct WorkloadRow {
    uid: String,
    is_disabled: bool,
    user: &'static str,
    owner_uid: String,
    reach: Reach,
    ttl: i64,
    maker: Option<Parent>,
}

/// The key that another one ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    uid: String,
    impersonated: Option<&'static str>,
}

#[derive(Clone, Debug)]
struct LoginRow {
    connector: &'static str,
    connector_uid: String,
    /// The number of the identity at the provider.
    subject: usize,
    /// The session at the provider.
    sid: usize,
}

#[derive(Clone, Debug)]
struct KeyRow {
    uid: String,
    user: &'static str,
    owner_uid: String,
    reach: Option<Reach>,
    created: i64,
    ttl: i64,
    counts_uses: bool,
    used: i64,
    is_disabled: bool,
    is_session: bool,
    is_command_line: bool,
    is_login_type: bool,
    parent: Option<Parent>,
    login: Option<LoginRow>,
    /// The uid of the WorkloadIdentity.
    workload: Option<String>,
}

impl KeyRow {
    /// Whether the key has expired.
    fn is_over(&self, now: i64, longest: Option<i64>, is_idleness_counted: bool) -> bool {
        let ttl = match (self.ttl, longest) {
            (0, longest) => longest.unwrap_or(0),
            (ttl, longest) => longest.map_or(ttl, |longest| longest.min(ttl)),
        };
        let last = self.used.max(self.created);
        let from = if self.counts_uses { last } else { self.created };
        let is_idle = self.is_session && !self.is_command_line && last + IDLE_SECONDS <= now;
        (ttl > 0 && from + ttl <= now) || (is_idleness_counted && is_idle)
    }
}

/// Everything that is stored, as plain data.
#[derive(Clone, Debug, Default)]
struct Table {
    users: BTreeMap<&'static str, UserRow>,
    connectors: BTreeMap<&'static str, ConnectorRow>,
    workloads: BTreeMap<&'static str, WorkloadRow>,
    keys: BTreeMap<&'static str, KeyRow>,
    /// What each user may impersonate.
    may: BTreeSet<(&'static str, &'static str)>,
}

impl Table {
    fn key(&self, uid: &str) -> Option<&KeyRow> {
        self.keys.values().find(|key| key.uid == uid)
    }

    fn user(&self, name: &str, uid: &str) -> Option<&UserRow> {
        self.users.get(name).filter(|user| user.uid == uid)
    }

    /// Whether the user is linked with the identity of a login, and the connector is the same and enabled.
    fn is_login_kept(&self, key: &KeyRow) -> bool {
        let Some(login) = &key.login else { return true };
        let connector = self.connectors.get(login.connector);
        let is_linked = self.users[key.user].linked.contains(&(login.connector, login.subject));
        is_linked && connector.is_some_and(|one| one.uid == login.connector_uid && !one.is_disabled)
    }

    /// Whether a key is valid and its scope allows a request, and so for all that it depends on.
    fn is_allowed(&self, key: &KeyRow, ask: Ask, now: i64, is_of_command_line: bool) -> bool {
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
            let is_of_command_line = is_of_command_line || key.is_command_line;
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
    fn may_act(&self, key: &KeyRow, parent: &Parent, now: i64) -> bool {
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
    fn is_in_reach(&self, key: &KeyRow, ask: Ask) -> bool {
        let workload = key.workload.as_ref();
        let workload = workload.and_then(|uid| self.workloads.values().find(|one| one.uid == *uid));
        let parent = key.parent.as_ref().and_then(|parent| self.key(&parent.uid));
        key.reach.is_none_or(|reach| reach.allows(ask))
            && workload.is_none_or(|workload| workload.reach.allows(ask))
            && parent.is_none_or(|parent| self.is_in_reach(parent, ask))
    }

    /// Whether a key or one of its makers has a scope. The keys of a workload have one.
    fn is_scoped(&self, key: &KeyRow) -> bool {
        let parent = key.parent.as_ref().and_then(|parent| self.key(&parent.uid));
        key.reach.is_some() || parent.is_some_and(|parent| self.is_scoped(parent))
    }

    fn has_group(&self, user: &UserRow, connector: &str, now: i64) -> bool {
        let enabled = self.connectors.get(connector).filter(|one| !one.is_disabled);
        let Some((uid, confirmed)) = user.groups.get(connector) else { return false };
        enabled.is_some_and(|one| one.uid == *uid) && *confirmed >= now - GROUPS_MAX_AGE
    }

    fn holds(&self, key: &KeyRow, ask: Ask, now: i64) -> bool {
        let user = &self.users.get(key.user);
        let has_group = |of| user.is_some_and(|user| self.has_group(user, of, now));
        self.is_allowed(key, ask, now, false) && ask.group_of.is_none_or(has_group)
    }

    /// Whether a login other than the one with a uid confirms the groups of a connector.
    fn confirms(&self, user: &str, connector_uid: &str, but: &str, now: i64) -> bool {
        self.keys.values().any(|key| {
            let of = key.login.as_ref().filter(|login| login.connector_uid == connector_uid);
            // The idleness of a session does not end its logins of the command line.
            let has_command_line = self.keys.values().any(|one| {
                one.is_command_line && one.parent.as_ref().is_some_and(|of| of.uid == key.uid)
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
    fn delete(&mut self, name: &str, now: i64) {
        let key = self.keys[name].clone();
        let has_command_line = self.keys.values().any(|one| {
            one.is_command_line && one.parent.as_ref().is_some_and(|of| of.uid == key.uid)
        });
        if let Some(login) = &key.login
            && !key.is_over(now, None, !has_command_line)
            && !self.confirms(key.user, &login.connector_uid, &key.uid, now)
        {
            self.end_groups(key.user, login.connector, &login.connector_uid);
        }
        self.keys.remove(name);
    }

    fn end_groups(&mut self, user: &str, connector: &'static str, uid: &str) {
        if let Some(user) = self.users.get_mut(user)
            && user.groups.get(connector).is_some_and(|(of, _)| of == uid)
        {
            user.groups.remove(connector);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The servers.

/// A change of a stored object, by its name.
type Stored = (&'static str, AccessChange);

/// A server: its index, and the changes that it does not know yet.
struct Server {
    index: PrincipalIndex,
    /// The table as of the last change that the server knows, if it is cut off.
    behind: Option<Box<(Table, Vec<Stored>, Policy)>>,
}

struct World {
    now: i64,
    next_uid: usize,
    table: Table,
    /// By kind and name.
    objects: BTreeMap<(&'static str, &'static str), (Object, AccessChange)>,
    policy: Policy,
    servers: Vec<Server>,
    syncs: Vec<Sync>,
    told: Vec<String>,
}

/// A secret that takes data from another one, as a key has asked for.
struct Sync {
    writer: Writer,
    /// The key as it was when it was there last.
    key: KeyRow,
    logout: Option<Logout>,
    is_gone: bool,
}

fn digest_of(name: &str) -> Digest {
    let number = NAMES.iter().position(|one| *one == name).unwrap();
    Digest::from_hex(&format!("{number:02x}").repeat(32)).unwrap()
}

fn rule(verbs: &[&str], group: &str, resources: &[&str], names: &[&str]) -> PolicyRule {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PolicyRule {
        verbs: texts(verbs),
        api_groups: texts(&[group]),
        resources: texts(resources),
        resource_names: texts(names),
        ..PolicyRule::default()
    }
}

fn bound(subject: BoundSubject, role: &str) -> PolicyChange {
    let (role, subjects) = (role.to_owned(), vec![subject]);
    PolicyChange::Binding(Some(BindingFacts { is_cluster_role: true, role, subjects }))
}

/// The group of one connector has its permissions through a team, that of the other one by itself.
static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let mut policy = Policy::default();
    for (name, resources, group) in [
        (
            "all",
            &["ownedaccesskeys", "sharedsecrets", "workloadidentities"][..],
            "platform:authenticated",
        ),
        ("corp", &["spaceinstances"], "platform:team:devs"),
        ("hub", &["virtualclusterinstances"], "hub:dev"),
    ] {
        let rules = vec![rule(&["*"], MANAGEMENT_V1.group, resources, &[])];
        policy.apply(None, name, PolicyChange::Role(Some(rules)));
        policy.apply(None, name, bound(BoundSubject::Group(group.to_owned()), name));
    }
    for user in USERS {
        policy.apply(None, user, bound(BoundSubject::User(user.to_owned()), user));
    }
    policy
});

impl Server {
    fn apply(&mut self, (name, change): &Stored) {
        if let AccessChange::Key(facts) = change {
            let record = facts.as_ref().map(|facts| DigestRecord {
                name: (*name).to_owned(),
                uid: facts.uid.clone(),
                owner_uid: facts.owner_uid.clone(),
            });
            self.index.set_record(digest_of(name), record);
        }
        self.index.apply(name, change.clone());
        while self.index.resolve_next() {}
    }
}

impl World {
    /// A team, the connectors, the users, and two keys without limits.
    fn first() -> Self {
        let mut world = Self {
            now: START,
            next_uid: 0,
            table: Table::default(),
            objects: BTreeMap::new(),
            policy: POLICY.clone(),
            servers: vec![Server { index: PrincipalIndex::default(), behind: None }],
            syncs: Vec::new(),
            told: Vec::new(),
        };
        let team = json!({ "spec": { "ssoGroups": ["corp:dev"] } });
        world.store(&Team, "devs", "uid-of-devs", team);
        for connector in CONNECTORS {
            world.make_connector(connector);
        }
        for user in USERS {
            world.make_user(user);
        }
        for (name, user) in NAMES.into_iter().zip(USERS).take(2) {
            let uid = world.uid();
            let key = world.row(uid, user);
            world.put_key(name, key);
        }
        world
    }

    fn new(rng: &mut Rng, first: &Self) -> Self {
        let count = if rng.percent(25) { 2 } else { 1 };
        let servers = (0..count).map(|_| Server { index: PrincipalIndex::default(), behind: None });
        let mut world = Self {
            now: START,
            next_uid: first.next_uid,
            table: first.table.clone(),
            objects: first.objects.clone(),
            policy: POLICY.clone(),
            servers: servers.collect(),
            syncs: Vec::new(),
            told: Vec::new(),
        };
        for number in 0..count {
            world.read_anew(number);
        }
        for what in ["bob", "eve", "robot", GROUPS] {
            if rng.percent(70) {
                world.table.may.insert(("ada", what));
            }
        }
        world.set_policy();
        world
    }

    fn uid(&mut self) -> String {
        self.next_uid += 1;
        format!("uid-{}", self.next_uid)
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if *IS_TOLD {
            self.told.push(format!("{}: {}", self.now, what()));
        }
    }

    /// Each server lets groups become too old by its own clock, also while it is cut off.
    fn tick(&mut self) {
        for server in &mut self.servers {
            server.index.set_oldest_groups(self.now - GROUPS_MAX_AGE);
            while server.index.resolve_next() {}
        }
    }

    fn object(&self, kind: &'static dyn AnyKind, name: &str, uid: &str, fields: Value) -> Object {
        let mut whole = json!({
            "apiVersion": MANAGEMENT_V1.to_string(), "kind": kind.info().kind,
            "metadata": {
                "name": name, "uid": uid,
                "creationTimestamp": Timestamp::from_unix_seconds(self.now).to_string(),
            },
        });
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Object::from_value(whole).unwrap()
    }

    /// Stores an object of the server as the kind prepares it.
    fn store(&mut self, kind: &'static dyn AnyKind, name: &'static str, uid: &str, fields: Value) {
        let old = self.objects.get(&(kind.info().kind, name)).map(|(old, _)| old.clone());
        let old = old.filter(|old| old.metadata.uid == uid);
        let mut new = self.object(kind, name, uid, fields);
        if let Some(old) = &old {
            new.metadata = old.metadata.clone();
        }
        let caller = Caller::default();
        let context = Context {
            is_server: true,
            ..Context::of(&caller, Timestamp::from_unix_seconds(self.now), &self.servers[0].index)
        };
        kind.prepare(&mut new, old.as_ref(), &context).unwrap();
        self.put(kind, name, Some(new));
    }

    fn put(&mut self, kind: &'static dyn AnyKind, name: &'static str, object: Option<Object>) {
        let at = (kind.info().kind, name);
        let json = object.as_ref().map(Object::to_json_bytes);
        let change = kind.access_change(json.as_deref()).unwrap();
        match object {
            Some(object) => _ = self.objects.insert(at, (object, change.clone())),
            None => _ = self.objects.remove(&at),
        }
        let stored = (name, change);
        for server in &mut self.servers {
            match &mut server.behind {
                None => server.apply(&stored),
                Some(behind) => behind.1.push(stored.clone()),
            }
        }
    }

    fn set_policy(&mut self) {
        let mut policy = POLICY.clone();
        for user in USERS {
            let of_user = self.table.may.iter().filter(|(who, _)| *who == user);
            let names = of_user.flat_map(|(_, what)| match *what {
                GROUPS => vec!["corp:dev", "hub:dev", "platform:team:devs"],
                name => vec![name],
            });
            let names: Vec<&str> = names.collect();
            let rules = vec![rule(&["impersonate"], "", &["users", "groups"], &names)];
            let rules = if names.is_empty() { Vec::new() } else { rules };
            policy.apply(None, user, PolicyChange::Role(Some(rules)));
        }
        self.policy = policy;
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Users, connectors and workload identities: the table and the objects change together.

    fn make_user(&mut self, name: &'static str) {
        let uid = self.uid();
        let linked = CONNECTORS.into_iter().flat_map(|one| [(one, 0), (one, 1)]).collect();
        self.table.users.insert(name, UserRow { uid, linked, ..UserRow::default() });
        let fields = json!({ "spec": self.user_spec(name) });
        let uid = self.table.users[name].uid.clone();
        self.store(&User, name, &uid, fields);
    }

    fn user_spec(&self, name: &str) -> Value {
        let user = &self.table.users[name];
        let identity = |(connector, subject): &(&str, usize)| {
            let subject = format!("{name}-{subject}");
            json!({ "connector": connector, "issuer": connector, "subject": subject })
        };
        let identities: Vec<Value> = user.linked.iter().map(identity).collect();
        json!({ "disabled": user.is_disabled, "identities": identities })
    }

    /// Writes the spec of a user. The status is as it was, and the kind changes it.
    fn write_user(&mut self, name: &'static str) {
        let (old, _) = &self.objects[&("User", name)];
        let status = old.fields.get("status").cloned().unwrap_or_default();
        let fields = json!({ "spec": self.user_spec(name), "status": status });
        let uid = self.table.users[name].uid.clone();
        self.store(&User, name, &uid, fields);
    }

    /// Writes what a provider says about the groups, as a login and a refresh do. The table has the same.
    fn confirm_groups(&mut self, name: &'static str, connector: &'static str, is_in: bool) {
        let uid = self.table.connectors[connector].uid.clone();
        let groups = &mut self.table.users.get_mut(name).unwrap().groups;
        if is_in {
            groups.insert(connector, (uid.clone(), self.now));
        } else {
            groups.remove(connector);
        }
        let mut object = self.objects[&("User", name)].0.clone();
        let status = object.fields.entry("status").or_insert_with(|| json!({}));
        let mut all = status["sso"].as_array().cloned().unwrap_or_default();
        all.retain(|one| one["connector"] != connector);
        let groups = if is_in { vec![format!("{connector}:dev")] } else { Vec::new() };
        let refreshed = Timestamp::from_unix_seconds(self.now).to_string();
        all.push(json!({
            "connector": connector, "connectorUid": uid, "groups": groups, "refreshed": refreshed,
        }));
        status["sso"] = json!(all);
        self.put(&User, name, Some(object));
    }

    fn make_connector(&mut self, name: &'static str) {
        let uid = self.uid();
        self.table.connectors.insert(name, ConnectorRow { uid, is_disabled: false });
        self.write_connector(name);
    }

    fn write_connector(&mut self, name: &'static str) {
        let ConnectorRow { uid, is_disabled } = self.table.connectors[name].clone();
        let spec = json!({ "issuer": name, "clientId": "c", "disabled": is_disabled });
        self.store(&Connector, name, &uid, json!({ "spec": spec }));
    }

    fn write_workload(&mut self, name: &'static str) {
        let WorkloadRow { uid, is_disabled, user, owner_uid, reach, ttl, maker } =
            self.table.workloads[name].clone();
        let spec = json!({
            "issuer": "ci", "owner": { "user": user }, "scope": reach.scope(), "ttl": ttl,
            "disabled": is_disabled,
        });
        let mut object = self.object(&WorkloadIdentity, name, &uid, json!({ "spec": spec }));
        object.fields.insert("status".to_owned(), json!({ "maker": maker_of(maker.as_ref()) }));
        object.metadata.owner_references = owner_references(user, &owner_uid);
        self.put(&WorkloadIdentity, name, Some(object));
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Keys.

    fn row(&self, uid: String, user: &'static str) -> KeyRow {
        KeyRow {
            uid,
            user,
            owner_uid: self.table.users[user].uid.clone(),
            reach: None,
            created: self.now,
            ttl: 0,
            counts_uses: false,
            used: 0,
            is_disabled: false,
            is_session: false,
            is_command_line: false,
            is_login_type: false,
            parent: None,
            login: None,
            workload: None,
        }
    }

    /// Stores a key that the server makes, or that an administrator changes.
    fn put_key(&mut self, name: &'static str, key: KeyRow) {
        let mut spec = spec_of(&key);
        let mut status = json!({});
        if let Some(parent) = &key.parent {
            status["maker"] = maker_of(Some(parent));
        }
        if key.is_session {
            let idle = if key.is_command_line { 0 } else { IDLE_SECONDS };
            status["session"] = json!({ "idleSeconds": idle });
            if key.is_command_line {
                status["session"]["commandLine"] = json!({ "host": "laptop" });
            }
        }
        if let Some(login) = &key.login {
            status["login"] = json!({
                "connector": login.connector, "connectorUid": login.connector_uid,
                "issuer": login.connector, "subject": format!("{}-{}", key.user, login.subject),
            });
        }
        if let Some(uid) = &key.workload {
            spec["type"] = json!("Other");
            status["workload"] = json!({ "identity": "w", "uid": uid });
        }
        let fields = json!({ "spec": spec, "status": status });
        self.store(&OwnedAccessKey, name, &key.uid, fields);
        self.table.keys.insert(name, key);
    }

    fn identify(&self, name: &str) -> Option<std::sync::Arc<ResolvedKey>> {
        self.servers[0].index.identify(&digest_of(name), self.now, &self.policy).ok()
    }

    fn free_name(&self) -> Option<&'static str> {
        NAMES.into_iter().find(|name| !self.table.keys.contains_key(name))
    }

    /// A key creates a key, as a client does: the kind and the policy admit it or not.
    fn create_by(
        &mut self,
        by: &'static str,
        wanted: Option<&'static str>,
        mut key: KeyRow,
    ) -> bool {
        let (Some(bearer), Some(name)) = (self.identify(by), self.free_name()) else {
            return false;
        };
        let impersonation =
            wanted.map(|user| Impersonation { user: user.to_owned(), ..Impersonation::default() });
        let index = &self.servers[0].index;
        let mut identity = (*bearer.identity).clone();
        if let Some(wanted) = &impersonation {
            let acting = index.impersonate(wanted, &bearer.identity);
            if !impersonated::may(&bearer.identity, wanted, &acting, &self.policy) {
                return false;
            }
            identity = acting.identity;
        }
        let caller = Caller {
            user: identity.user.clone(),
            team: None,
            uid: identity.user.as_ref().map(|_| identity.uid.clone()).unwrap_or_default(),
        };
        let caller_key = bearer.as_caller_key(impersonation);
        let context = Context {
            caller_key: Some(&caller_key),
            ..Context::of(&caller, Timestamp::from_unix_seconds(self.now), index)
        };
        let fields = json!({ "spec": spec_of(&key) });
        let mut new = self.object(&OwnedAccessKey, name, &key.uid, fields);
        let Ok(prepared) = OwnedAccessKey.prepare(&mut new, None, &context) else { return false };
        let is_carried = match &prepared.carried {
            Some(Carried::Scope(scope)) => {
                contains(&identity.scopes, scope, self.policy.projects()).is_ok()
            }
            _ => !identity.is_scoped(),
        };
        let attributes = Attributes::Resource {
            verb: "create",
            group: MANAGEMENT_V1.group,
            resource: "ownedaccesskeys",
            subresource: "",
            namespace: "",
            name: "",
        };
        let is_admitted = self.policy.decide(&identity, &attributes) == Decision::Allow
            && prepared.required_rights.iter().all(|right| self.policy.satisfies(&identity, right))
            && is_carried
            && prepared.verdict.is_ok_and(|errors| errors.is_empty());
        if !is_admitted {
            return false;
        }
        // A session acts as the key of its login, and a login of the command line as its session.
        let acting = self.acting_row(by).clone();
        // The scope of the session itself limits it as well.
        let is_scoped = self.table.is_scoped(&self.table.keys[by]);
        let is_limited = acting.parent.is_some() || is_scoped || wanted.is_some();
        key.parent = is_limited.then(|| Parent { uid: acting.uid.clone(), impersonated: wanted });
        if acting.ttl > 0 && !acting.is_login_type && !acting.counts_uses {
            let ends = key.ttl > 0 && !key.counts_uses;
            assert!(
                ends && key.created + key.ttl <= acting.created + acting.ttl,
                "{by} made a key that outlives it: {key:?}\n{}",
                self.told.join("\n")
            );
        }
        self.put(&OwnedAccessKey, name, Some(new));
        self.table.keys.insert(name, key);
        true
    }

    /// The key as which a key creates others.
    fn acting_row(&self, name: &str) -> &KeyRow {
        let mut row = &self.table.keys[name];
        if row.is_command_line {
            row = self.table.key(&row.parent.as_ref().unwrap().uid).unwrap();
        }
        match row.parent.as_ref().filter(|_| row.is_session) {
            Some(parent) => self.table.key(&parent.uid).unwrap(),
            None => row,
        }
    }

    /// Deletes a key. `is_by_logout`: the user logs out of the console.
    fn delete(&mut self, rng: &mut Rng, name: &'static str, is_by_logout: bool) {
        let Some(key) = self.table.keys.get(name).cloned() else { return };
        let index = &self.servers[0].index;
        // As the admission of the registry does.
        if let Some(login) = key.login.as_ref().filter(|_| !is_by_logout) {
            let has_ended = index.has_ended_before(name, self.now + 1);
            let confirms =
                index.has_other_login(key.user, &login.connector_uid, &key.uid, self.now);
            if !has_ended && !confirms {
                self.take_groups(key.user, &login.connector_uid);
            }
        }
        if is_by_logout {
            self.table.keys.remove(name);
        } else {
            self.table.delete(name, self.now);
        }
        for sync in self.syncs.iter_mut().filter(|sync| sync.key.uid == key.uid) {
            sync.is_gone = true;
            if is_by_logout && !key.is_disabled && key.parent.is_none() {
                let scope = key.reach.map(|reach| serde_json::from_value(reach.scope()).unwrap());
                sync.logout = Some(Logout { scope });
            }
        }
        self.put(&OwnedAccessKey, name, None);
        // The collector deletes what ends with the key, or comes later.
        if rng.percent(40) {
            let is_child =
                |row: &KeyRow| row.parent.as_ref().is_some_and(|parent| parent.uid == key.uid);
            let children = self.table.keys.iter().filter(|(_, row)| is_child(row));
            for child in children.map(|(name, _)| *name).collect::<Vec<_>>() {
                self.delete(rng, child, false);
            }
        }
    }

    fn take_groups(&mut self, user: &'static str, connector_uid: &str) {
        let Some((object, _)) = self.objects.get(&("User", user)) else { return };
        let mut object = object.clone();
        take_groups(&mut object.fields, connector_uid);
        self.put(&User, user, Some(object));
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Servers that know the changes later, and that read everything anew.

    fn cut_off(&mut self) {
        let behind = Box::new((self.table.clone(), Vec::new(), self.policy.clone()));
        if let [_, server] = &mut self.servers[..] {
            server.behind.get_or_insert(behind);
        }
    }

    fn reconnect(&mut self, is_anew: bool) {
        let [_, server] = &mut self.servers[..] else { return };
        let Some(behind) = server.behind.take() else { return };
        if is_anew {
            self.read_anew(1);
        } else {
            for stored in &behind.1 {
                server.apply(stored);
            }
        }
        // The uses that others have stored meanwhile.
        let [_, server] = &mut self.servers[..] else { return };
        for (name, key) in self.table.keys.iter().filter(|(_, key)| key.used > 0) {
            server.index.set_last_activity(name, &key.uid, key.used);
        }
    }

    /// Builds the index of a server from what is stored, in any order of the kinds.
    fn read_anew(&mut self, number: usize) {
        let mut server = Server { index: PrincipalIndex::default(), behind: None };
        server.index.set_oldest_groups(self.now - GROUPS_MAX_AGE);
        for ((_, name), (_, change)) in &self.objects {
            server.apply(&(name, change.clone()));
        }
        for (name, uid, at) in self.servers[number].index.activities() {
            server.index.note_activity(name, uid, at);
        }
        self.servers[number] = server;
    }

    fn note_use(&mut self, name: &'static str) {
        if self.identify(name).is_none() {
            return;
        }
        let key = self.table.keys.get_mut(name).unwrap();
        key.used = key.used.max(self.now);
        for server in self.servers.iter_mut().filter(|server| server.behind.is_none()) {
            server.index.set_last_activity(name, &key.uid, self.now);
        }
    }
}

/// Whether the steps are recorded.
static IS_TOLD: LazyLock<bool> = LazyLock::new(|| std::env::var("POSTERN_CHAIN_TOLD").is_ok());

fn maker_of(parent: Option<&Parent>) -> Value {
    let Some(parent) = parent else { return Value::Null };
    let mut maker = json!({ "name": "maker", "uid": parent.uid });
    if let Some(user) = parent.impersonated {
        maker["impersonated"] = json!({ "user": user });
    }
    maker
}

fn owner_references(user: &str, uid: &str) -> Vec<postern_meta::object::OwnerReference> {
    let api_version = MANAGEMENT_V1.to_string();
    let (kind, name, uid) = ("User".to_owned(), user.to_owned(), uid.to_owned());
    vec![postern_meta::object::OwnerReference {
        api_version,
        kind,
        name,
        uid,
        ..Default::default()
    }]
}

fn spec_of(key: &KeyRow) -> Value {
    let mut spec = json!({
        "user": key.user, "ttl": key.ttl, "disabled": key.is_disabled,
        "ttlAfterLastActivity": key.counts_uses,
    });
    if let Some(reach) = key.reach {
        spec["scope"] = reach.scope();
    }
    if key.is_login_type {
        spec["type"] = json!("Login");
    }
    spec
}

// ---------------------------------------------------------------------------------------------------------------------
// The steps.

fn pick_key(rng: &mut Rng, world: &World) -> Option<&'static str> {
    let names: Vec<&'static str> = world.table.keys.keys().copied().collect();
    (!names.is_empty()).then(|| names[rng.below(names.len())])
}

fn pick_key_where(
    rng: &mut Rng,
    world: &World,
    is_wanted: impl Fn(&KeyRow) -> bool,
) -> Option<&'static str> {
    let rows = world.table.keys.iter().filter(|(_, key)| is_wanted(key));
    let names: Vec<&'static str> = rows.map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| names[rng.below(names.len())])
}

fn change_key(rng: &mut Rng, world: &mut World, change: impl Fn(&mut KeyRow, &mut Rng)) {
    let Some(name) = pick_key(rng, world) else { return };
    let mut key = world.table.keys[name].clone();
    change(&mut key, rng);
    world.tell(|| format!("an administrator makes of {name} {key:?}"));
    for sync in world.syncs.iter_mut().filter(|sync| sync.key.uid == key.uid) {
        sync.key = key.clone();
    }
    world.put_key(name, key);
}

/// One step of users, workloads, administrators, providers, servers and time. Returns `None` if it was not possible.
fn step(rng: &mut Rng, world: &mut World) -> Option<()> {
    let user = USERS[rng.below(USERS.len())];
    let connector = CONNECTORS[rng.below(CONNECTORS.len())];
    let workload = WORKLOADS[rng.below(WORKLOADS.len())];
    match rng.below(56) {
        0..8 => log_in(rng, world, user, connector)?,
        8..14 => create_key(rng, world)?,
        14..18 => begin_session(rng, world)?,
        18..22 => log_in_command_line(rng, world)?,
        22..24 => make_workload(rng, world, workload, user)?,
        24..29 => exchange(rng, world)?,
        29 => change_workload(rng, world, workload)?,
        30 => {
            let row = world.table.workloads.remove(workload)?;
            world.tell(|| format!("{workload} is deleted: {row:?}"));
            world.put(&WorkloadIdentity, workload, None);
        }
        31 | 32 => change_key(rng, world, |key, rng| key.reach = Some(Reach::random(rng))),
        33 => change_key(rng, world, |key, _| key.is_disabled = !key.is_disabled),
        34 => {
            let row = world.table.users.get_mut(user)?;
            row.is_disabled = !row.is_disabled;
            world.tell(|| format!("{user} is disabled or enabled"));
            world.write_user(user);
        }
        35 => {
            let row = world.table.connectors.get_mut(connector)?;
            row.is_disabled = !row.is_disabled;
            world.tell(|| format!("{connector} is disabled or enabled"));
            world.write_connector(connector);
        }
        36 => {
            world.tell(|| format!("{connector} or {user} is made anew"));
            if rng.percent(50) { world.make_connector(connector) } else { world.make_user(user) }
        }
        37 | 55 => {
            let identity = (connector, rng.below(2));
            let row = world.table.users.get_mut(user)?;
            if row.linked.remove(&identity) {
                // The kind removes them all.
                row.groups.clear();
            } else {
                row.linked.insert(identity);
            }
            world.tell(|| format!("{user} is linked with {identity:?} no longer, or again"));
            world.write_user(user);
        }
        38..40 => {
            // A refresh: the provider confirms the group, or takes it away.
            let row = &world.table.users[user];
            if !row.linked.contains(&(connector, 0)) || row.is_disabled {
                return None;
            }
            let is_in = rng.percent(60);
            world.tell(|| format!("{connector} says of {user}: is in the group: {is_in}"));
            world.confirm_groups(user, connector, is_in);
        }
        40 => {
            let name = pick_key_where(rng, world, |key| key.is_session)?;
            world.tell(|| format!("a logout of the console: {name}"));
            world.delete(rng, name, true);
        }
        41 => {
            // The provider says that the user is gone, or has logged out everywhere.
            let subject = rng.below(2);
            world.tell(|| format!("{connector} says that {user}-{subject} is gone"));
            let uid = world.table.connectors[connector].uid.clone();
            let is_linked = world.table.users[user].linked.contains(&(connector, subject));
            let is_named =
                |login: &LoginRow| login.connector_uid == uid && login.subject == subject;
            let is_of = |key: &KeyRow| key.user == user && key.login.as_ref().is_some_and(is_named);
            while let Some(name) = pick_key_where(rng, world, is_of) {
                world.delete(rng, name, false);
            }
            if is_linked {
                world.take_groups(user, &uid);
                world.table.end_groups(user, connector, &uid);
            }
        }
        42 => {
            let sid = rng.below(3);
            world.tell(|| format!("a logout of session {sid}"));
            let is_of = |key: &KeyRow| key.login.as_ref().is_some_and(|login| login.sid == sid);
            while let Some(name) = pick_key_where(rng, world, is_of) {
                world.delete(rng, name, false);
            }
        }
        43 | 52 | 53 => {
            // A deletion by an administrator, and `invalid_grant`.
            let is_login = rng.percent(60);
            let name = pick_key_where(rng, world, |key| key.login.is_some() || !is_login)?;
            world.tell(|| format!("{name} is deleted"));
            world.delete(rng, name, false);
        }
        44 => {
            let pair = (USERS[rng.below(2)], ["bob", "eve", "robot", GROUPS][rng.below(4)]);
            if !world.table.may.remove(&pair) {
                world.table.may.insert(pair);
            }
            world.tell(|| format!("the right of {pair:?} changes"));
            world.set_policy();
        }
        45 | 46 => {
            world.now += [1, 60, 300, 450][rng.below(4)];
            world.tell(|| "time goes on".to_owned());
        }
        47 => world.now -= i64::try_from(rng.below(30)).unwrap(),
        48 => {
            let name = pick_key(rng, world)?;
            world.tell(|| format!("{name} is used"));
            world.note_use(name);
        }
        49 => world.cut_off(),
        50 => world.reconnect(rng.percent(50)),
        51 => {
            let number = rng.below(world.servers.len());
            if world.servers[number].behind.is_none() {
                world.read_anew(number);
            }
        }
        54 => replace_login(rng, world)?,
        _ => unreachable!("there are no more steps"),
    }
    Some(())
}

fn log_in(
    rng: &mut Rng,
    world: &mut World,
    user: &'static str,
    connector: &'static str,
) -> Option<()> {
    let name = world.free_name()?;
    let of = world.table.connectors.get(connector)?.clone();
    let (row, subject) = (&world.table.users[user], rng.below(2));
    if of.is_disabled || row.is_disabled || !row.linked.contains(&(connector, subject)) {
        return None;
    }
    world.tell(|| format!("{user} logs in by {connector}: {name}"));
    world.confirm_groups(user, connector, rng.percent(80));
    let uid = world.uid();
    let login = LoginRow { connector, connector_uid: of.uid, subject, sid: rng.below(3) };
    let key = KeyRow {
        ttl: SESSION_TTL,
        is_session: rng.percent(70),
        is_login_type: true,
        login: Some(login),
        ..world.row(uid, user)
    };
    world.put_key(name, key);
    Some(())
}

/// A login loses its identity or its user. Its user logs in again, and this login ends: the first one confirms nothing.
fn replace_login(rng: &mut Rng, world: &mut World) -> Option<()> {
    let name = pick_key_where(rng, world, |key| key.login.is_some())?;
    let KeyRow { user, login, .. } = world.table.keys[name].clone();
    let LoginRow { connector, subject, .. } = login?;
    if rng.percent(50) {
        world.tell(|| format!("{user} is made anew"));
        world.make_user(user);
    } else {
        let row = world.table.users.get_mut(user)?;
        if row.linked.remove(&(connector, subject)) {
            row.groups.clear();
        }
        world.tell(|| format!("{user} is linked with {connector} {subject} no longer"));
        world.write_user(user);
    }
    let new = world.free_name()?;
    log_in(rng, world, user, connector)?;
    world.tell(|| format!("{new} is deleted"));
    world.delete(rng, new, false);
    Some(())
}

fn create_key(rng: &mut Rng, world: &mut World) -> Option<()> {
    let by = pick_key(rng, world)?;
    let of = world.table.keys[by].user;
    let user = if rng.percent(75) { of } else { USERS[rng.below(USERS.len())] };
    let wanted = rng.percent(35).then(|| ["bob", "eve", "robot"][rng.below(3)]);
    let uid = world.uid();
    let key = KeyRow {
        reach: rng.percent(45).then(|| Reach::random(rng)),
        ttl: if rng.percent(40) { [100, 300, 700][rng.below(3)] } else { 0 },
        ..world.row(uid, user)
    };
    let counts_uses = key.ttl >= 300 && rng.percent(30);
    let key = KeyRow { counts_uses, ..key };
    world.tell(|| format!("{by} creates, as {wanted:?}, {key:?}"));
    world.create_by(by, wanted, key).then_some(())
}

/// As the registry does it: a key that is no session and has no scope begins one.
fn begin_session(rng: &mut Rng, world: &mut World) -> Option<()> {
    let name = world.free_name()?;
    let by = pick_key_where(rng, world, |key| !key.is_session)?;
    world.identify(by).filter(|key| !key.is_session && !key.identity.is_scoped())?;
    world.tell(|| format!("{by} begins the session {name}"));
    let uid = world.uid();
    let maker = world.table.keys[by].clone();
    let key = KeyRow {
        reach: maker.reach,
        ttl: SESSION_TTL,
        is_session: true,
        is_login_type: maker.is_login_type,
        parent: Some(Parent { uid: maker.uid, impersonated: None }),
        ..world.row(uid, maker.user)
    };
    world.put_key(name, key);
    Some(())
}

/// As the registry does it: a session of the console consents.
fn log_in_command_line(rng: &mut Rng, world: &mut World) -> Option<()> {
    let name = world.free_name()?;
    let by = pick_key_where(rng, world, |key| key.is_session && !key.is_command_line)?;
    world.identify(by)?;
    world.tell(|| format!("{by} allows the command line {name}"));
    let uid = world.uid();
    let maker = world.table.keys[by].clone();
    let key = KeyRow {
        reach: maker.reach,
        ttl: SESSION_TTL,
        is_session: true,
        is_command_line: true,
        is_login_type: maker.is_login_type,
        parent: Some(Parent { uid: maker.uid, impersonated: None }),
        ..world.row(uid, maker.user)
    };
    world.put_key(name, key);
    Some(())
}

fn make_workload(
    rng: &mut Rng,
    world: &mut World,
    name: &'static str,
    user: &'static str,
) -> Option<()> {
    let by = pick_key_where(rng, world, |key| key.reach.is_some() && key.user == user);
    let by = by.filter(|by| rng.percent(50) && world.identify(by).is_some());
    let maker = by.map(|by| {
        let acting = world.acting_row(by);
        Parent { uid: acting.uid.clone(), impersonated: None }
    });
    let row = WorkloadRow {
        uid: world.uid(),
        is_disabled: false,
        user,
        owner_uid: world.table.users[user].uid.clone(),
        reach: Reach::random(rng),
        ttl: [300, 900, 3600][rng.below(3)],
        maker,
    };
    world.tell(|| format!("{name} is made: {row:?}"));
    world.table.workloads.insert(name, row);
    world.write_workload(name);
    Some(())
}

fn change_workload(rng: &mut Rng, world: &mut World, name: &'static str) -> Option<()> {
    let row = world.table.workloads.get_mut(name)?;
    match rng.below(3) {
        0 => row.is_disabled = !row.is_disabled,
        1 => row.reach = Reach::random(rng),
        _ => row.ttl = [100, 300, 900][rng.below(3)],
    }
    let now = format!("{row:?}");
    world.tell(|| format!("{name} changes: {now}"));
    world.write_workload(name);
    Some(())
}

/// As the registry does it: a token of a workload gives a key, while the workload identity and its maker are valid.
fn exchange(rng: &mut Rng, world: &mut World) -> Option<()> {
    let workloads: Vec<_> = world.table.workloads.keys().copied().collect();
    let workload = *workloads.get(rng.below(workloads.len()))?;
    let (name, row) = (world.free_name()?, world.table.workloads[workload].clone());
    let user = world.table.user(row.user, &row.owner_uid)?;
    if row.is_disabled || user.is_disabled {
        return None;
    }
    world.tell(|| format!("{workload} gives {name}"));
    let uid = world.uid();
    let key = KeyRow {
        reach: Some(row.reach),
        ttl: row.ttl,
        parent: row.maker.clone(),
        workload: Some(row.uid),
        ..world.row(uid, row.user)
    };
    world.put_key(name, key);
    Some(())
}

fn ask_for_sync(rng: &mut Rng, world: &mut World) {
    let Some(name) = pick_key(rng, world) else { return };
    let Some(key) = world.identify(name) else { return };
    let writer = Writer::of(&key.identity, &key.as_caller_key(None));
    let key = world.table.keys[name].clone();
    world.syncs.push(Sync { writer, key, logout: None, is_gone: false });
}

// ---------------------------------------------------------------------------------------------------------------------

#[derive(Default)]
struct Counts {
    asked: u64,
    allowed: u64,
    by_group: u64,
    of_makers: u64,
    of_workloads: u64,
    of_logins: u64,
    behind: u64,
    of_syncs: u64,
}

fn check(rng: &mut Rng, world: &World, counts: &mut Counts) {
    for (number, server) in world.servers.iter().enumerate() {
        let (table, policy) = match &server.behind {
            None => (&world.table, &world.policy),
            Some(behind) => (&behind.0, &behind.2),
        };
        for (name, key) in &table.keys {
            let ask = Ask::random(rng);
            let found = server.index.identify(&digest_of(name), world.now, policy);
            let is_allowed = found.as_ref().is_ok_and(|found| {
                policy.decide(&found.identity, &ask.attributes()) == Decision::Allow
            });
            let expected = table.holds(key, ask, world.now);
            assert!(
                is_allowed == expected,
                "server {number}, {name}, {ask:?}, at {}: {is_allowed}, and the table says {expected}\n{found:?}\n{table:#?}\n{}",
                world.now,
                world.told.join("\n")
            );
            counts.asked += 1;
            if expected {
                counts.allowed += 1;
                counts.by_group += u64::from(ask.group_of.is_some());
                counts.of_makers += u64::from(key.parent.is_some());
                counts.of_workloads += u64::from(key.workload.is_some());
                counts.of_logins += u64::from(key.login.is_some());
                counts.behind += u64::from(server.behind.is_some());
            }
        }
    }
    check_syncs(rng, world, counts);
}

/// A sync ends with its key. Only the end of a login, or a logout, does not end it.
fn check_syncs(rng: &mut Rng, world: &World, counts: &mut Counts) {
    for sync in &world.syncs {
        let ask = Ask::random(rng);
        let index = &world.servers[0].index;
        let now = world.now;
        let found = sync.writer.identity_now(index, &world.policy, sync.logout.as_ref(), now);
        let is_allowed = found.is_some_and(|identity| {
            world.policy.decide(&identity, &ask.attributes()) == Decision::Allow
        });
        if !is_allowed {
            continue;
        }
        let (table, key) = (&world.table, &sync.key);
        let outlives = key.is_login_type
            && key.parent.is_none()
            && !key.is_disabled
            && (!sync.is_gone || sync.logout.is_some())
            && (sync.is_gone || table.is_login_kept(key))
            && key.reach.is_none_or(|reach| reach.allows(ask));
        let user = table.user(key.user, &key.owner_uid).filter(|user| !user.is_disabled);
        let has_group = |of| user.is_some_and(|user| table.has_group(user, of, now));
        let is_held = outlives && user.is_some() && ask.group_of.is_none_or(has_group);
        let current = table.key(&key.uid);
        assert!(
            is_held || current.is_some_and(|key| table.holds(key, ask, now)),
            "a sync of {key:?} with {ask:?} at {now}\n{table:#?}\n{}",
            world.told.join("\n")
        );
        counts.of_syncs += 1;
    }
}

#[test]
fn a_key_allows_what_its_login_its_session_and_its_workload_allow_at_that_moment() {
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let sequences = variable("POSTERN_CHAIN_SEQUENCES").unwrap_or(1_500);
    let seed = variable("POSTERN_NAIVE_SEED").unwrap_or(1);
    let mut counts = Counts::default();
    let first = World::first();
    for number in 0..sequences {
        // Each sequence has a seed of its own, so that one can be run alone.
        let mut rng = Rng::new(seed.wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut world = World::new(&mut rng, &first);
        world.tell(|| format!("sequence {number}"));
        for _ in 0..STEPS {
            // A step that is not possible is another one.
            for _ in 0..3 {
                if step(&mut rng, &mut world).is_some() {
                    break;
                }
            }
            world.tick();
            if rng.percent(10) {
                ask_for_sync(&mut rng, &mut world);
            }
            check(&mut rng, &world, &mut counts);
        }
    }
    let Counts { asked, allowed, .. } = counts;
    eprintln!(
        "{sequences} sequences: {allowed} of {asked} allowed, {} of them by groups, {} by keys with makers, {} by keys of workloads, \
         {} by keys of logins, {} on servers that are behind; {} more by syncs",
        counts.by_group,
        counts.of_makers,
        counts.of_workloads,
        counts.of_logins,
        counts.behind,
        counts.of_syncs
    );
    assert!(allowed * 10 >= asked * 3, "only {allowed} of {asked} are allowed");
    for (what, part) in [
        ("groups", counts.by_group),
        ("makers", counts.of_makers),
        ("workloads", counts.of_workloads),
        ("logins", counts.of_logins),
    ] {
        assert!(part * 100 >= allowed, "only {part} of {allowed} by {what}");
    }
}
