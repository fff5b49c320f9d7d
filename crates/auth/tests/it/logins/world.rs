//! The objects, as the server keeps them, with the policy and two servers that read them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

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
use postern_kinds::principal::{AccessChange, KeyUse};
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange, PolicyRule};
use postern_kinds::team::Team;
use postern_kinds::user::{User, take_groups};
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_kinds::{AnyKind, Caller, Carried, Context, Impersonation, MANAGEMENT_V1, WriterKind};
use postern_meta::Timestamp;
use postern_meta::object::Object;
use serde_json::{Value, json};

use crate::logins::table::*;
use crate::reference_model::rng::Rng;

pub(crate) type Stored = (&'static str, AccessChange);

/// A server: its index, and the changes that it does not know yet.
pub(crate) struct Server {
    pub(crate) index: PrincipalIndex,
    /// The table as of the last change that the server knows, if it is cut off.
    pub(crate) behind: Option<Box<(Table, Vec<Stored>, Policy)>>,
}

pub(crate) struct World {
    pub(crate) now: i64,
    pub(crate) next_uid: usize,
    pub(crate) table: Table,
    /// By kind and name.
    pub(crate) objects: BTreeMap<(&'static str, &'static str), (Object, AccessChange)>,
    pub(crate) policy: Policy,
    pub(crate) servers: Vec<Server>,
    pub(crate) syncs: Vec<Sync>,
    pub(crate) told: Vec<String>,
}

/// A secret that takes data from another one, as a key has asked for.
pub(crate) struct Sync {
    pub(crate) writer: Writer,
    /// The key as it was when it was there last.
    pub(crate) key: KeyRow,
    pub(crate) logout: Option<Logout>,
    pub(crate) is_gone: bool,
}

pub(crate) fn digest_of(name: &str) -> Digest {
    let number = NAMES.iter().position(|one| *one == name).unwrap();
    Digest::from_hex(&format!("{number:02x}").repeat(32)).unwrap()
}

pub(crate) fn rule(verbs: &[&str], group: &str, resources: &[&str], names: &[&str]) -> PolicyRule {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PolicyRule {
        verbs: texts(verbs),
        api_groups: texts(&[group]),
        resources: texts(resources),
        resource_names: texts(names),
        ..PolicyRule::default()
    }
}

pub(crate) fn bound(subject: BoundSubject, role: &str) -> PolicyChange {
    let (role, subjects) = (role.to_owned(), vec![subject]);
    PolicyChange::Binding(Some(BindingFacts { is_cluster_role: true, role, subjects }))
}

/// The group of one connector has its permissions through a team, and the group of the other
/// directly.
pub(crate) static POLICY: LazyLock<Policy> = LazyLock::new(|| {
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
    pub(crate) fn apply(&mut self, (name, change): &Stored) {
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
    pub(crate) fn first() -> Self {
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

    pub(crate) fn new(rng: &mut Rng, first: &Self) -> Self {
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

    pub(crate) fn uid(&mut self) -> String {
        self.next_uid += 1;
        format!("uid-{}", self.next_uid)
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if *IS_TOLD {
            self.told.push(format!("{}: {}", self.now, what()));
        }
    }

    /// Each server lets groups become too old by its own clock, also while it is cut off.
    pub(crate) fn tick(&mut self) {
        for server in &mut self.servers {
            server.index.set_oldest_groups(self.now - GROUPS_MAX_AGE);
            while server.index.resolve_next() {}
        }
    }

    pub(crate) fn object(
        &self,
        kind: &'static dyn AnyKind,
        name: &str,
        uid: &str,
        fields: Value,
    ) -> Object {
        let mut whole = json!({
            "apiVersion": MANAGEMENT_V1.to_string(), "kind": kind.info().kind,
            "metadata": {
                "name": name, "uid": uid,
                "creationTimestamp": Timestamp::from_unix_seconds(self.now).to_string(),
            },
        });
        let Value::Object(fields) = fields else { panic!("the fields are an object") };
        whole.as_object_mut().unwrap().extend(fields);
        Object::from_value(whole).unwrap()
    }

    /// Stores an object of the server as the kind prepares it.
    pub(crate) fn store(
        &mut self,
        kind: &'static dyn AnyKind,
        name: &'static str,
        uid: &str,
        fields: Value,
    ) {
        let old = self.objects.get(&(kind.info().kind, name)).map(|(old, _)| old.clone());
        let old = old.filter(|old| old.metadata.uid == uid);
        let mut new = self.object(kind, name, uid, fields);
        if let Some(old) = &old {
            new.metadata = old.metadata.clone();
        }
        let caller = Caller::default();
        let context = Context {
            writer: WriterKind::Server,
            ..Context::of(&caller, Timestamp::from_unix_seconds(self.now), &self.servers[0].index)
        };
        kind.prepare(&mut new, old.as_ref(), &context).unwrap();
        self.put(kind, name, Some(new));
    }

    pub(crate) fn put(
        &mut self,
        kind: &'static dyn AnyKind,
        name: &'static str,
        object: Option<Object>,
    ) {
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

    pub(crate) fn set_policy(&mut self) {
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

    pub(crate) fn make_user(&mut self, name: &'static str) {
        let uid = self.uid();
        let linked = CONNECTORS.into_iter().flat_map(|one| [(one, 0), (one, 1)]).collect();
        self.table.users.insert(name, UserRow { uid, linked, ..UserRow::default() });
        let fields = json!({ "spec": self.user_spec(name) });
        let uid = self.table.users[name].uid.clone();
        self.store(&User, name, &uid, fields);
    }

    pub(crate) fn user_spec(&self, name: &str) -> Value {
        let user = &self.table.users[name];
        let identity = |(connector, subject): &(&str, usize)| {
            let subject = format!("{name}-{subject}");
            json!({ "connector": connector, "issuer": connector, "subject": subject })
        };
        let identities: Vec<Value> = user.linked.iter().map(identity).collect();
        json!({ "disabled": user.is_disabled, "identities": identities })
    }

    /// Writes the spec of a user. The status is as it was, and the kind changes it.
    pub(crate) fn write_user(&mut self, name: &'static str) {
        let (old, _) = &self.objects[&("User", name)];
        let status = old.fields.get("status").cloned().unwrap_or_default();
        let fields = json!({ "spec": self.user_spec(name), "status": status });
        let uid = self.table.users[name].uid.clone();
        self.store(&User, name, &uid, fields);
    }

    /// Writes the groups from a provider, as a login and a refresh do. The table has the same.
    pub(crate) fn confirm_groups(
        &mut self,
        name: &'static str,
        connector: &'static str,
        is_in: bool,
    ) {
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

    pub(crate) fn make_connector(&mut self, name: &'static str) {
        let uid = self.uid();
        self.table.connectors.insert(name, ConnectorRow { uid, is_disabled: false });
        self.write_connector(name);
    }

    pub(crate) fn write_connector(&mut self, name: &'static str) {
        let ConnectorRow { uid, is_disabled } = self.table.connectors[name].clone();
        let spec = json!({ "issuer": name, "clientId": "c", "disabled": is_disabled });
        self.store(&Connector, name, &uid, json!({ "spec": spec }));
    }

    pub(crate) fn write_workload(&mut self, name: &'static str) {
        let WorkloadRow { uid, is_disabled, user, owner_uid, reach, ttl, maker } =
            self.table.workloads[name].clone();
        let spec = json!({
            "issuer": "ci", "owner": { "user": user }, "scope": reach.scope(), "ttl": ttl,
            "disabled": is_disabled,
        });
        let mut object = self.object(&WorkloadIdentity, name, &uid, json!({ "spec": spec }));
        let status = json!({ "maker": maker_of(maker.as_ref()), "ownerUid": owner_uid });
        object.fields.insert("status".to_owned(), status);
        self.put(&WorkloadIdentity, name, Some(object));
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Keys.

    pub(crate) fn row(&self, uid: String, user: &'static str) -> KeyRow {
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
            used_as: KeyUse::Key,
            is_login_type: false,
            parent: None,
            login: None,
            workload: None,
        }
    }

    /// Stores a key that the server makes, or that an administrator changes.
    pub(crate) fn put_key(&mut self, name: &'static str, key: KeyRow) {
        let mut spec = spec_of(&key);
        let mut status = json!({});
        if let Some(parent) = &key.parent {
            status["maker"] = maker_of(Some(parent));
        }
        match key.used_as {
            KeyUse::Session => status["session"] = json!({ "idleSeconds": IDLE_SECONDS }),
            KeyUse::CommandLine => {
                status["session"] =
                    json!({ "idleSeconds": 0, "commandLine": { "host": "laptop" } });
            }
            _ => {}
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

    pub(crate) fn identify(&self, name: &str) -> Option<std::sync::Arc<ResolvedKey>> {
        self.servers[0].index.identify(&digest_of(name), self.now, &self.policy).ok()
    }

    pub(crate) fn free_name(&self) -> Option<&'static str> {
        NAMES.into_iter().find(|name| !self.table.keys.contains_key(name))
    }

    /// A key creates a key, as a client does: the kind and the policy admit it or not.
    pub(crate) fn create_by(
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
        let Some(new) = self.admitted(name, &key, &identity, &context) else { return false };
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

    /// The key as the kind prepares it, if the kind and the policy admit it.
    fn admitted(
        &self,
        name: &'static str,
        key: &KeyRow,
        identity: &postern_auth::identity::Identity,
        context: &Context<'_>,
    ) -> Option<Object> {
        let fields = json!({ "spec": spec_of(key) });
        let mut new = self.object(&OwnedAccessKey, name, &key.uid, fields);
        let prepared = OwnedAccessKey.prepare(&mut new, None, context).ok()?;
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
        let is_admitted = self.policy.decide(identity, &attributes) == Decision::Allow
            && prepared.required_rights.iter().all(|right| self.policy.satisfies(identity, right))
            && is_carried
            && prepared.verdict.is_ok_and(|errors| errors.is_empty());
        is_admitted.then_some(new)
    }

    /// The key as which a key creates others.
    pub(crate) fn acting_row(&self, name: &str) -> &KeyRow {
        let mut row = &self.table.keys[name];
        if row.used_as == KeyUse::CommandLine {
            row = self.table.key(&row.parent.as_ref().unwrap().uid).unwrap();
        }
        match row.parent.as_ref().filter(|_| row.used_as == KeyUse::Session) {
            Some(parent) => self.table.key(&parent.uid).unwrap(),
            None => row,
        }
    }

    /// Deletes a key. `is_by_logout`: the user logs out of the console.
    pub(crate) fn delete(&mut self, rng: &mut Rng, name: &'static str, is_by_logout: bool) {
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

    pub(crate) fn take_groups(&mut self, user: &'static str, connector_uid: &str) {
        let Some((object, _)) = self.objects.get(&("User", user)) else { return };
        let mut object = object.clone();
        take_groups(&mut object.fields, connector_uid);
        self.put(&User, user, Some(object));
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Servers that know the changes later, and that read everything anew.

    pub(crate) fn cut_off(&mut self) {
        let behind = Box::new((self.table.clone(), Vec::new(), self.policy.clone()));
        if let [_, server] = &mut self.servers[..] {
            server.behind.get_or_insert(behind);
        }
    }

    pub(crate) fn reconnect(&mut self, is_anew: bool) {
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

    /// Builds the index of a server from the stored objects, in any order of the kinds.
    pub(crate) fn read_anew(&mut self, number: usize) {
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

    pub(crate) fn note_use(&mut self, name: &'static str) {
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

pub(crate) static IS_TOLD: LazyLock<bool> =
    LazyLock::new(|| std::env::var("POSTERN_CHAIN_TOLD").is_ok());

pub(crate) fn maker_of(parent: Option<&Parent>) -> Value {
    let Some(parent) = parent else { return Value::Null };
    let mut maker = json!({ "name": "maker", "uid": parent.uid });
    if let Some(user) = parent.impersonated {
        maker["impersonated"] = json!({ "user": user });
    }
    maker
}

pub(crate) fn spec_of(key: &KeyRow) -> Value {
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
