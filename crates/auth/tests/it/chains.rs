//! An access key or an endpoint token (a JWT) allows something only while its whole chain does. Each limited maker and
//! each impersonator is valid and allows it. Random sequences show this: keys are created (also under impersonation),
//! narrowed, disabled, given new values and deleted. They expire and are collected, and everything is read anew.
//!
//! The test asks the kind and `postern_auth` for decisions, as the server does. It looks up the
//! expected ones in a separate table of plain data ([`Debt`]).
//!
//! `POSTERN_CHAIN_SEQUENCES` is the number of sequences (2,000 unless set), `POSTERN_NAIVE_SEED` the seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use crate::reference_model::rng::Rng;
use postern_auth::attributes::Attributes;
use postern_auth::digest::Digest;
use postern_auth::endpoint_token::{
    Bearer, Claims, GENERAL_AUDIENCE, Issuance, JwkSet, SigningKey, Verifier, impersonation_id,
    keys_of,
};
use postern_auth::identity::Identity;
use postern_auth::impersonated;
use postern_auth::policy::{Decision, Policy};
use postern_auth::principal_index::{DigestRecord, PrincipalIndex};
use postern_auth::resolved_key::ResolvedKey;
use postern_auth::scope::{Holder, ScopeRules, contains};
use postern_kinds::owned_access_key::{Fields, OwnedAccessKey, Spec};
use postern_kinds::principal::{AccessChange, UserFacts};
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange, PolicyRule};
use postern_kinds::{AnyKind, Caller, Carried, Context, Impersonation, MANAGEMENT_V1, WriterKind};
use postern_meta::Timestamp;
use postern_meta::object::Object;
use serde::Deserialize as _;
use serde_json::json;

const USERS: [&str; 3] = ["ada", "bob", "eve"];
const NAMES: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];
const START: i64 = 1_000_000;

/// Users and groups that some users may impersonate.
const NAMED: [&str; 5] = ["bob", "eve", "robot", "helpers", OPS];

/// The group that alone may read space instances.
const OPS: &str = "ops";

/// The dependency of a key on a limited key that created it, or from which it got its value.
#[derive(Clone, Debug)]
struct Debt {
    /// The uid of the limited key.
    to: String,
    /// The identity that it impersonated then.
    impersonated: Option<Impersonation>,
}

/// A user as plain data.
#[derive(Clone, Debug)]
struct User {
    uid: String,
    is_disabled: bool,
    /// Whether the user is in the group [`OPS`].
    is_ops: bool,
}

/// A request, as plain data: for a shared secret, or for a space instance, which takes the group [`OPS`].
#[derive(Clone, Copy, Debug)]
struct Ask {
    verb: &'static str,
    namespace: &'static str,
    takes_ops: bool,
}

impl Ask {
    fn random(rng: &mut Rng, verbs: &[&'static str]) -> Self {
        let verb = verbs[rng.below(verbs.len())];
        Self { verb, namespace: ["a", "b"][rng.below(2)], takes_ops: rng.percent(25) }
    }

    fn attributes(&self) -> Attributes<'static> {
        let Self { verb, namespace, takes_ops } = *self;
        let (group, subresource, name) = (MANAGEMENT_V1.group, "", "s");
        let resource = if takes_ops { "spaceinstances" } else { "sharedsecrets" };
        Attributes::Resource { verb, group, resource, subresource, namespace, name }
    }
}

/// All stored objects, as plain data, and the index and policy that are made from them.
struct World {
    now: i64,
    revision: u64,
    next_uid: usize,
    users: BTreeMap<&'static str, User>,
    /// The users and groups that each user may impersonate.
    may: BTreeSet<(&'static str, &'static str)>,
    keys: BTreeMap<String, Object>,
    /// By the uids of keys.
    debts: BTreeMap<String, Vec<Debt>>,
    index: PrincipalIndex,
    policy: Policy,
    verifier: Verifier,
    tokens: Vec<Issued>,
    noted: BTreeMap<String, (String, String, Impersonation)>,
}

/// An endpoint token, and the uid of the key that it was issued for, with the identity that the request impersonated.
struct Issued {
    text: String,
    key: String,
    impersonated: Option<Impersonation>,
}

static SIGNER: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::generate().unwrap());

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

impl World {
    fn new(rng: &mut Rng) -> Self {
        let verifier = Verifier::new("issuer", [GENERAL_AUDIENCE.to_owned()]);
        verifier.set_keys(&JwkSet { keys: vec![SIGNER.public()] });
        let mut world = Self {
            now: START,
            revision: 1,
            next_uid: 0,
            users: BTreeMap::new(),
            may: BTreeSet::new(),
            keys: BTreeMap::new(),
            debts: BTreeMap::new(),
            index: PrincipalIndex::default(),
            policy: Policy::default(),
            verifier,
            tokens: Vec::new(),
            noted: BTreeMap::new(),
        };
        for user in USERS {
            let (uid, is_ops) = (world.uid(), rng.percent(50));
            world.users.insert(user, User { uid, is_disabled: false, is_ops });
        }
        for name in NAMED {
            if rng.percent(70) {
                world.may.insert(("ada", name));
            }
            if rng.percent(20) {
                world.may.insert(("bob", name));
            }
        }
        world.read_anew();
        // Each user has a key that is not limited.
        for (name, user) in NAMES.into_iter().zip(USERS) {
            let spec = json!({ "user": user });
            assert!(world.write(name, &spec, None, None, false));
        }
        world
    }

    fn uid(&mut self) -> String {
        self.next_uid += 1;
        format!("uid-{}", self.next_uid)
    }

    /// Rebuilds the index and the policy from the stored objects, as after a restart.
    fn read_anew(&mut self) {
        self.index = PrincipalIndex::default();
        for user in USERS {
            self.index_user(user);
        }
        for name in self.keys.keys().cloned().collect::<Vec<_>>() {
            self.index_key(&name);
        }
        self.set_policy();
    }

    fn index_user(&mut self, user: &str) {
        let User { uid, is_disabled, is_ops } = self.users[user].clone();
        let groups = if is_ops { vec![OPS.to_owned()] } else { Vec::new() };
        let disabled = is_disabled;
        let facts = UserFacts { uid, groups, disabled, ..UserFacts::default() };
        self.index.set_user(user, Some(facts));
    }

    fn set_policy(&mut self) {
        let mut policy = Policy::default();
        let all = ["ownedaccesskeys", "sharedsecrets"];
        let all = vec![rule(&["*"], MANAGEMENT_V1.group, &all, &[])];
        policy.apply(None, "all", PolicyChange::Role(Some(all)));
        let of_ops = vec![rule(&["*"], MANAGEMENT_V1.group, &["spaceinstances"], &[])];
        policy.apply(None, OPS, PolicyChange::Role(Some(of_ops)));
        policy.apply(None, OPS, bound(BoundSubject::Group(OPS.to_owned()), OPS));
        let users = BoundSubject::Group("platform:authenticated".to_owned());
        policy.apply(None, "all", bound(users, "all"));
        for user in USERS {
            let names = self.may.iter().filter(|(who, _)| *who == user).map(|(_, name)| *name);
            let names: Vec<&str> = names.collect();
            let rules = vec![rule(&["impersonate"], "", &["users", "groups"], &names)];
            let rules = if names.is_empty() { Vec::new() } else { rules };
            policy.apply(None, user, PolicyChange::Role(Some(rules)));
            policy.apply(None, user, bound(BoundSubject::User(user.to_owned()), user));
        }
        self.policy = policy;
        self.revoke_ended();
    }

    /// Revokes the tokens of ended impersonations, as the server's controller does.
    fn revoke_ended(&mut self) {
        self.revision += 1;
        for (id, (key, uid, wanted)) in &self.noted {
            if !self.index.may_impersonate(key, uid, wanted, self.now, &self.policy) {
                self.verifier.revoke(id, self.revision);
            }
        }
    }

    /// Revokes the tokens of a key, or all tokens of the keys of its owner, as the server does for owners of many keys.
    fn revoke_key(&mut self, key: &Object, is_folded: bool) {
        self.revision += 1;
        let owner_uid = key.fields["status"]["ownerUid"].as_str().filter(|_| is_folded);
        let of_owner = owner_uid.map(keys_of);
        let revoked = of_owner.unwrap_or_else(|| key.metadata.uid.clone());
        self.verifier.revoke(&revoked, self.revision);
    }

    fn index_key(&mut self, name: &str) {
        let object = self.keys.get(name);
        let json = object.map(Object::to_json_bytes);
        let Some(AccessChange::Key(facts)) = OwnedAccessKey.access_change(json.as_deref()) else {
            panic!("a key is a key")
        };
        let record = facts.as_ref().map(|facts| DigestRecord {
            name: name.to_owned(),
            uid: facts.uid.clone(),
            owner_uid: facts.owner_uid.clone(),
        });
        self.index.set_record(digest_of(name), record);
        self.index.set_key(name, facts);
    }

    fn identify(&self, name: &str) -> Option<Arc<ResolvedKey>> {
        self.index.identify(&digest_of(name), self.now, &self.policy).ok()
    }

    /// Writes a key as the server admits it. Returns whether it was admitted.
    fn write(
        &mut self,
        name: &str,
        spec: &serde_json::Value,
        by: Option<&str>,
        wanted: Option<&Impersonation>,
        is_new_value: bool,
    ) -> bool {
        let old = self.keys.get(name).cloned();
        let resolved = match by.map(|by| self.identify(by)) {
            Some(None) => return false,
            Some(Some(resolved)) => Some(resolved),
            None => None,
        };
        let mut metadata = json!({ "name": name });
        if let Some(old) = &old {
            metadata = serde_json::to_value(&old.metadata).unwrap();
        } else {
            metadata["uid"] = self.uid().into();
            let created = Timestamp::from_unix_seconds(self.now);
            metadata["creationTimestamp"] = created.to_string().into();
        }
        let mut new = Object::from_value(json!({
            "apiVersion": MANAGEMENT_V1.to_string(), "kind": "OwnedAccessKey",
            "metadata": metadata, "spec": spec,
        }))
        .unwrap();
        let identity = resolved.as_ref().map(|key| self.acting(key, wanted));
        let Some(identity) = identity.map_or(Some(None), |acting| acting.map(Some)) else {
            return false;
        };
        if !self.is_admitted(
            &mut new,
            old.as_ref(),
            resolved.as_deref(),
            identity.as_ref(),
            wanted,
            is_new_value,
        ) {
            return false;
        }
        let uid = new.metadata.uid.clone();
        let debts = self.debts.entry(uid.clone()).or_default();
        if let Some(key) = &resolved {
            let is_limited =
                key.identity.is_scoped() || wanted.is_some() || !key.ancestors.is_empty();
            let groups_of = |key: &Object| spec_of(key).groups;
            let had = old.as_ref().map(groups_of).unwrap_or_default();
            let gains = groups_of(&new).iter().any(|group| !had.contains(group));
            if is_limited && (old.is_none() || is_new_value || gains) {
                debts.push(Debt { to: key.uid.clone(), impersonated: wanted.cloned() });
            }
        }
        self.revoke_key(old.as_ref().unwrap_or(&new), self.revision.is_multiple_of(3));
        self.keys.insert(name.to_owned(), new);
        self.index_key(name);
        true
    }

    /// The identity of a request; `None` when it may not impersonate so.
    fn acting(&self, key: &ResolvedKey, wanted: Option<&Impersonation>) -> Option<Identity> {
        let Some(wanted) = wanted else { return Some((*key.identity).clone()) };
        let acting = self.index.impersonate(wanted, &key.identity);
        let may = impersonated::may(&key.identity, wanted, &acting, &self.policy);
        may.then_some(acting.identity)
    }

    fn is_admitted(
        &self,
        new: &mut Object,
        old: Option<&Object>,
        key: Option<&ResolvedKey>,
        identity: Option<&Identity>,
        wanted: Option<&Impersonation>,
        has_new_credential: bool,
    ) -> bool {
        let is_principal = identity.is_some_and(|identity| identity.user.is_some());
        let caller = Caller {
            user: identity.and_then(|identity| identity.user.clone()),
            team: None,
            uid: identity.filter(|_| is_principal).map(|one| one.uid.clone()).unwrap_or_default(),
        };
        let caller_key = key.map(|key| key.as_caller_key(wanted.cloned()));
        let now = Timestamp::from_unix_seconds(self.now);
        let context = Context {
            caller_key: caller_key.as_ref(),
            writer: if identity.is_none() { WriterKind::Server } else { WriterKind::Client },
            has_new_credential,
            ..Context::of(&caller, now, &self.index)
        };
        let Ok(prepared) = OwnedAccessKey.prepare(new, old, &context) else { return false };
        let Some(identity) = identity else { return true };
        let verb = if old.is_none() { "create" } else { "update" };
        let name = if old.is_none() { "" } else { &new.metadata.name };
        let rights = prepared.required_rights.iter();
        let carried = match &prepared.carried {
            Some(Carried::Scope(scope)) => {
                contains(&identity.scopes, scope, self.policy.projects()).is_ok()
            }
            _ => !identity.is_scoped(),
        };
        let attributes = Attributes::Resource {
            verb,
            group: MANAGEMENT_V1.group,
            resource: "ownedaccesskeys",
            subresource: "",
            namespace: "",
            name,
        };
        self.allows(identity, &attributes)
            && rights.clone().all(|right| self.policy.satisfies(identity, right))
            && carried
            && prepared.verdict.is_ok_and(|errors| errors.is_empty())
    }

    fn allows(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        self.policy.decide(identity, attributes) == Decision::Allow
    }

    fn key(&self, uid: &str) -> Option<&Object> {
        self.keys.values().find(|key| key.metadata.uid == uid)
    }

    /// Looks up whether a key or one that it owes to has a scope, in the plain data.
    fn is_scoped(&self, uid: &str, depth: usize) -> bool {
        let has_scope = self.key(uid).is_some_and(|key| spec_of(key).scope.is_some());
        let mut debts = self.debts.get(uid).into_iter().flatten();
        has_scope || (depth < 20 && debts.any(|debt| self.is_scoped(&debt.to, depth + 1)))
    }

    /// Looks up whether a key is valid and allows a request, and the same of all that it owes to; from the plain data
    /// alone. A maker must be in the group if it has a scope and the owner of the key. A key of another owner was created
    /// by the right to create that owner's keys.
    fn holds(&self, uid: &str, ask: Ask, depth: usize) -> bool {
        let Some(key) = self.key(uid) else { return false };
        let spec = spec_of(key);
        let created = key.metadata.creation_timestamp.unwrap().unix_seconds();
        let is_over = spec.ttl > 0 && created + spec.ttl <= self.now;
        let owner = self.users.get(spec.user.as_str());
        let is_owned = owner.is_some_and(|User { uid, is_disabled, .. }| {
            !is_disabled && key.fields["status"]["ownerUid"] == *uid
        });
        let is_ops =
            owner.is_some_and(|owner| owner.is_ops) || spec.groups.iter().any(|group| group == OPS);
        let in_scope = spec.scope.as_ref().is_none_or(|scope| {
            let request = postern_auth::attributes::Request::management(ask.attributes());
            let rules = ScopeRules::new(scope);
            rules.allows(&request, &Holder::default(), self.policy.projects())
        });
        let debts = self.debts.get(uid).into_iter().flatten();
        let is_held = |debt: &Debt| {
            let is_of_owner =
                self.key(&debt.to).is_some_and(|maker| spec_of(maker).user == spec.user);
            let takes_ops = ask.takes_ops && is_of_owner && self.is_scoped(&debt.to, 0);
            self.holds(&debt.to, Ask { takes_ops, ..ask }, depth + 1) && self.may_act(debt)
        };
        depth < 20
            && !spec.disabled
            && !is_over
            && is_owned
            && in_scope
            && (is_ops || !ask.takes_ops)
            && debts.clone().all(is_held)
    }

    fn told(&self) -> String {
        let keys = self.keys.values().map(|key| {
            let debts = self.debts.get(&key.metadata.uid);
            format!("{} {debts:?}\n", String::from_utf8_lossy(&key.to_json_bytes()))
        });
        let keys: String = keys.collect();
        format!("{keys}{:?} {:?} at {}", self.users, self.may, self.now)
    }

    /// Looks up whether the owner of a key may impersonate as it did, in the table.
    fn may_act(&self, debt: &Debt) -> bool {
        let Some(wanted) = &debt.impersonated else { return true };
        let Some(key) = self.key(&debt.to) else { return false };
        let owner = spec_of(key).user;
        let may = |name: &String| self.may.iter().any(|(who, whom)| *who == owner && whom == name);
        let stored = self.users.get(wanted.user.as_str()).filter(|_| wanted.groups.is_empty());
        let is_refused =
            stored.is_some_and(|user| user.is_disabled || (user.is_ops && !may(&OPS.to_owned())));
        may(&wanted.user) && wanted.groups.iter().all(may) && !is_refused
    }
}

fn spec_of(key: &Object) -> Spec {
    Fields::deserialize(&key.fields).unwrap().spec
}

fn scope(rng: &mut Rng) -> serde_json::Value {
    let rule = match rng.below(10) {
        0..4 => json!({}),
        4..6 => json!({ "verbs": ["get"] }),
        6..8 => json!({ "namespaces": ["a", ""] }),
        8 => json!({ "verbs": ["get", "create", "update"] }),
        _ => json!({ "verbs": ["list"] }),
    };
    json!({ "rules": [rule] })
}

fn wanted(rng: &mut Rng) -> Option<Impersonation> {
    let user = match rng.below(10) {
        0..5 => return None,
        5..7 => "bob",
        7 => "eve",
        _ => "robot",
    };
    let groups = if rng.percent(40) { vec!["helpers".to_owned()] } else { Vec::new() };
    Some(Impersonation { user: user.to_owned(), groups, ..Impersonation::default() })
}

/// The name of an existing key: mostly a key that another key created.
fn name_of_one(rng: &mut Rng, world: &World) -> String {
    let is_late = rng.percent(60);
    let is_first = |name: &str| NAMES[..USERS.len()].contains(&name);
    let names = world.keys.keys().filter(|name| !(is_late && is_first(name)));
    let names: Vec<&String> = names.collect();
    names.get(rng.below(names.len())).map_or_else(|| "k0".to_owned(), |name| (*name).clone())
}

/// One step: what clients, administrators, the collector and time do.
fn step(rng: &mut Rng, world: &mut World) {
    let name = name_of_one(rng, world);
    let free = NAMES.iter().find(|one| !world.keys.contains_key(**one)).copied();
    match rng.below(20) {
        0..9 => {
            let Some(free) = free else { return };
            let wanted = wanted(rng);
            let bearer = world.keys.get(&name).map(|key| spec_of(key).user).unwrap_or_default();
            let user = if rng.percent(70) { bearer } else { rng.text(&USERS) };
            let mut spec = json!({ "user": user });
            if rng.percent(70) {
                spec["scope"] = scope(rng);
            }
            if rng.percent(20) {
                spec["ttl"] = json!(50 + rng.below(200));
            }
            if rng.percent(15) {
                spec["groups"] = json!([OPS]);
            }
            world.write(free, &spec, Some(&name), wanted.as_ref(), false);
        }
        9 => change(rng, world, &name, |spec, rng| spec["scope"] = scope(rng)),
        10 => change(rng, world, &name, |spec, _| spec["disabled"] = json!(true)),
        11 => change(rng, world, &name, |spec, _| spec["disabled"] = json!(false)),
        // A caller gives another key a new value, or another scope.
        // Or other groups.
        12..15 => {
            let by = name_of_one(rng, world);
            let wanted = wanted(rng);
            let Some(key) = world.keys.get(&name) else { return };
            let mut spec = serde_json::to_value(spec_of(key)).unwrap();
            let is_new_value = rng.percent(60);
            if rng.percent(if is_new_value { 50 } else { 10 }) {
                spec["scope"] = scope(rng);
            }
            if rng.percent(if is_new_value { 10 } else { 80 }) {
                spec["groups"] = if rng.percent(70) { json!([OPS]) } else { json!([]) };
            }
            world.write(&name, &spec, Some(&by), wanted.as_ref(), is_new_value);
        }
        15 => delete(rng, world, &name),
        16 => world.now += 60,
        17 => {
            let pair = (["ada", "bob"][rng.below(2)], NAMED[rng.below(NAMED.len())]);
            if !world.may.remove(&pair) {
                world.may.insert(pair);
            }
            world.set_policy();
        }
        18 => {
            let user = USERS[rng.below(USERS.len())];
            let uid = world.uid();
            let of_user = world.users.get_mut(user).unwrap();
            world.verifier.revoke(&of_user.uid, world.revision + 1);
            match rng.below(5) {
                0 | 1 => of_user.is_ops = !of_user.is_ops,
                2 => of_user.uid = uid,
                _ => of_user.is_disabled = !of_user.is_disabled,
            }
            world.revision += 1;
            // The index gets the change, or is rebuilt.
            if rng.percent(50) { world.index_user(user) } else { world.read_anew() }
        }
        _ => world.read_anew(),
    }
    world.revoke_ended();
}

/// A change by an administrator without limits.
fn change(
    rng: &mut Rng,
    world: &mut World,
    name: &str,
    change: impl Fn(&mut serde_json::Value, &mut Rng),
) {
    let Some(key) = world.keys.get(name) else { return };
    let mut spec = serde_json::to_value(spec_of(key)).unwrap();
    change(&mut spec, rng);
    world.write(name, &spec, None, None, false);
}

/// A deletion: the collector deletes the keys that end with the key at once, or later.
fn delete(rng: &mut Rng, world: &mut World, name: &str) {
    let Some(key) = world.keys.remove(name) else { return };
    world.revoke_key(&key, rng.percent(30));
    world.index_key(name);
    let is_collected = rng.percent(50);
    for other in world.keys.keys().cloned().collect::<Vec<_>>() {
        let ties = OwnedAccessKey.ties(&world.keys[&other]);
        if is_collected && ties.iter().any(|one| one.uid == key.metadata.uid) {
            world.keys.remove(&other);
        }
        world.index_key(&other);
    }
}

/// Issues a token, as the server does.
fn issue(rng: &mut Rng, world: &mut World) {
    let name = name_of_one(rng, world);
    let Some(key) = world.identify(&name) else { return };
    let wanted = wanted(rng);
    let Some(identity) = world.acting(&key, wanted.as_ref()) else { return };
    let bearer = Bearer { key: &key, identity: &identity, wanted: wanted.as_ref(), scope: None };
    for (uid, wanted) in bearer.impersonations() {
        let maker = key.ancestors.iter().find(|maker| maker.uid == uid);
        let of = maker.map_or(name.clone(), |maker| maker.name.clone());
        world.noted.insert(impersonation_id(uid, wanted), (of, uid.to_owned(), wanted.clone()));
    }
    let issuance = Issuance {
        issuer: "issuer".to_owned(),
        audiences: vec![GENERAL_AUDIENCE.to_owned()],
        issued_at: world.now,
        ttl_seconds: 100_000,
        token_id: world.uid(),
        revocation_revision: world.revision,
    };
    let text = SIGNER.issue(&Claims::of(&bearer, issuance)).unwrap();
    let text = text.expose().to_owned();
    world.tokens.push(Issued { text, key: key.uid.clone(), impersonated: wanted });
}

#[test]
fn what_a_key_or_a_token_allows_each_in_its_chain_allows() {
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let sequences = variable("POSTERN_CHAIN_SEQUENCES").unwrap_or(2_000);
    let mut rng = Rng::new(variable("POSTERN_NAIVE_SEED").unwrap_or(1));
    let (mut asked, mut allowed, mut owing, mut by_group, mut by_token) =
        (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    for number in 0..sequences {
        let mut world = World::new(&mut rng);
        let has_tokens = number % 16 == 0;
        for _ in 0..10 {
            step(&mut rng, &mut world);
            if has_tokens {
                issue(&mut rng, &mut world);
            }
        }
        for name in world.keys.keys() {
            let ask = Ask::random(&mut rng, &["get", "update", "list"]);
            asked += 1;
            let Some(key) = world.identify(name) else { continue };
            if !world.allows(&key.identity, &ask.attributes()) {
                continue;
            }
            allowed += 1;
            by_group += u64::from(ask.takes_ops);
            owing += u64::from(!world.debts[&key.uid].is_empty());
            let told = || format!("sequence {number}: {name} {ask:?}\n{}", world.told());
            assert!(world.holds(&key.uid, ask, 0), "{}", told());
        }
        for token in &world.tokens {
            let ask = Ask::random(&mut rng, &["get", "update"]);
            // The clocks of agents may be behind by a minute.
            let Ok(verified) = world.verifier.verify(&token.text, world.now + 60) else { continue };
            if world.allows(&verified.identity, &ask.attributes()) {
                let told = || {
                    let claims = &verified.claims;
                    format!("sequence {number}: {ask:?}\n{claims:?}\n{}", world.told())
                };
                let takes_ops = ask.takes_ops && token.impersonated.is_none();
                assert!(world.holds(&token.key, Ask { takes_ops, ..ask }, 0), "{}", told());
                let to = token.key.clone();
                let debt = Debt { to, impersonated: token.impersonated.clone() };
                assert!(world.may_act(&debt), "{}", told());
                by_token += 1;
            }
        }
    }
    eprintln!(
        "{sequences} sequences: {allowed} of {asked} allowed, {owing} of them by keys with makers, {by_group} by the \
         group; {by_token} more by tokens"
    );
    assert!(allowed * 10 >= asked * 3, "only {allowed} of {asked} are allowed");
    assert!(owing * 20 >= allowed, "only {owing} of {allowed} have makers");
}
