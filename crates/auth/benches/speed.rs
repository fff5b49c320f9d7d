//! Benchmarks of decisions with many roles, bindings and entries of a scope. They also measure the
//! authentication of a key, and the verification of an endpoint token, which is a JWT.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "it fails by panicking, and prints its figures"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use postern_auth::attributes::Attributes;
use postern_auth::bearer::{self, BearerToken};
use postern_auth::digest::Digester;
use postern_auth::endpoint_token::{
    Bearer, Claims, GENERAL_AUDIENCE, Issuance, JwkSet, SigningKey, Verifier,
};
use postern_auth::identity::Identity;
use postern_auth::policy::{Decision, Policy};
use postern_auth::principal_index::{DigestRecord, PrincipalIndex};
use postern_auth::resolved_key::ResolvedKey;
use postern_auth::scope::ScopeRules;
use postern_kinds::principal::{KeyFacts, UserFacts};
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange, PolicyRule};
use postern_kinds::scope::{Scope, ScopeProject, ScopeResources, ScopeRule};
use postern_kinds::{GroupResource, Owner};
// The other tests need them.
use proptest as _;
use rustix as _;
use zeroize::Zeroizing;

const OURS: &str = "management.platform.sh";
const SECRETS: GroupResource = GroupResource::new(OURS, "sharedsecrets");
const MANY: usize = 10_000;
const USERS: usize = 1000;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// A rule of an access rule: some verbs on one secret.
fn on_secret(number: usize) -> PolicyRule {
    PolicyRule {
        verbs: texts(&["get", "list", "watch"]),
        api_groups: texts(&[OURS]),
        resources: texts(&["sharedsecrets", "sharedsecrets/status"]),
        resource_names: vec![format!("s{number}")],
        ..PolicyRule::default()
    }
}

/// A rule on a separate kind, without names.
fn on_kind(number: usize) -> PolicyRule {
    PolicyRule {
        verbs: texts(&["get", "update"]),
        api_groups: texts(&["example.com"]),
        resources: vec![format!("kind{number}")],
        ..PolicyRule::default()
    }
}

/// How the bindings of a policy are spread.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// Ten for each user, in one namespace.
    OverUsers,
    /// All through one group, in one namespace, for one object each.
    OneGroup,
    /// All through one group, everywhere, for one kind each.
    OneGroupEverywhere,
    /// All through one group, each in its own namespace.
    OneGroupInNamespaces,
    /// 4,000 for one user and 50 teams.
    FiftyTeams,
    /// All for one user.
    OneUser,
}

fn policy(spread: Spread, bindings: usize) -> Policy {
    let mut policy = Policy::clone(&Policy::built_in());
    for number in 0..100 {
        let (namespace, project) = (format!("p-{number}"), format!("project{number}"));
        policy.apply(None, &namespace, PolicyChange::Namespace(Some(project)));
    }
    let group = |name: &str| BoundSubject::Group(name.to_owned());
    for number in 0..bindings {
        let name = format!("r{number}");
        let own_namespace = format!("n{number}");
        let (namespace, rule, subject) = match spread {
            Spread::OverUsers => {
                let user = BoundSubject::User(format!("user{}", number % USERS));
                (Some("platform"), on_secret(number), user)
            }
            Spread::OneGroup => (Some("platform"), on_secret(number), group("everyone")),
            Spread::OneGroupEverywhere => (None, on_kind(number), group("everyone")),
            Spread::OneGroupInNamespaces => {
                (Some(own_namespace.as_str()), on_kind(0), group("everyone"))
            }
            Spread::OneUser => {
                let user = BoundSubject::User("user1".to_owned());
                (Some("platform"), on_secret(number), user)
            }
            Spread::FiftyTeams => {
                let subject = match number % 51 {
                    0 => BoundSubject::User("user1".to_owned()),
                    team => group(&format!("platform:team:t{team}")),
                };
                (Some("platform"), on_secret(number), subject)
            }
        };
        let is_cluster_role = namespace.is_none();
        let facts = BindingFacts { is_cluster_role, role: name.clone(), subjects: vec![subject] };
        policy.apply(namespace, &name, PolicyChange::Role(Some(vec![rule])));
        policy.apply(namespace, &name, PolicyChange::Binding(Some(facts)));
    }
    policy
}

fn identity(spread: Spread, user: usize) -> Identity {
    let mut groups = texts(&["everyone", "ops", "platform:authenticated", "system:authenticated"]);
    groups.extend([format!("platform:user:user{user}"), "platform:user:*".to_owned()]);
    let mut uids = vec![format!("uid-{user}")];
    let teams = if matches!(spread, Spread::FiftyTeams) { 50 } else { 2 };
    for team in 1..=teams {
        groups.push(format!("platform:team:t{team}"));
        uids.push(format!("uid-t{team}"));
    }
    Identity {
        name: format!("user{user}"),
        uid: uids[0].clone(),
        groups,
        user: Some(format!("user{user}")),
        principal_uids: uids,
        ..Identity::default()
    }
}

fn scopes() -> [(&'static str, Option<Scope>); 4] {
    let projects = (0..100).map(|number| ScopeProject { project: format!("project{number}") });
    let rule = |number: usize, namespaces: Vec<String>, names: Vec<String>| ScopeRule {
        verbs: texts(&["get", "list", "update"]),
        resources: vec![ScopeResources {
            group: OURS.to_owned(),
            resources: texts(&["sharedsecrets", "users"]),
            resource_names: names,
        }],
        namespaces,
        request_targets: vec![["Management", "Cluster"][number % 2].to_owned()],
        ..ScopeRule::default()
    };
    let by_name =
        (0..100).map(|number| rule(number, texts(&["platform"]), vec![format!("s{number}")]));
    let by_namespace = (0..100).map(|number| rule(number, vec![format!("p-{number}")], Vec::new()));
    let rules = |rules: Vec<ScopeRule>| Some(Scope { rules, ..Scope::default() });
    [
        ("no scope", None),
        ("100 projects", Some(Scope { projects: projects.collect(), ..Scope::default() })),
        ("100 rules by name", rules(by_name.collect())),
        ("100 rules by namespace", rules(by_namespace.collect())),
    ]
}

/// The time of each decision in nanoseconds, sorted, and how many were allowed.
fn measure(policy: &Policy, spread: Spread, scope: Option<&Scope>) -> (Vec<u128>, usize) {
    let scopes: Vec<_> = scope.map(|scope| Arc::new(ScopeRules::new(scope))).into_iter().collect();
    let identities: Vec<Identity> = (0..USERS)
        .map(|user| Identity { scopes: scopes.clone(), ..identity(spread, user) })
        .collect();
    let names: Vec<String> = (0..MANY).map(|number| format!("s{number}")).collect();
    let kinds: Vec<String> = (0..MANY).map(|number| format!("kind{number}")).collect();
    let places: Vec<String> = (0..MANY).map(|number| format!("n{number}")).collect();
    let (mut times, mut allowed) = (Vec::with_capacity(100_000), 0);
    let mut random = 88_172_645_463_325_252_u64;
    for _ in 0..100_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let number = usize::try_from(random % 10_000).unwrap_or_default();
        let user = match spread {
            Spread::OverUsers if random & (1 << 40) != 0 => number % USERS,
            Spread::FiftyTeams | Spread::OneUser => 1,
            _ => (number * 7) % USERS,
        };
        let is_denied = random & (1 << 41) != 0;
        let verb = if is_denied { "delete" } else { "get" };
        let (group, resource, namespace, name) = match spread {
            Spread::OneGroupEverywhere => ("example.com", kinds[number].as_str(), "", "x"),
            Spread::OneGroupInNamespaces => ("example.com", "kind0", places[number].as_str(), "x"),
            _ => (OURS, "sharedsecrets", "platform", names[number].as_str()),
        };
        let question =
            Attributes::Resource { verb, group, resource, subresource: "", namespace, name };
        let identity = &identities[user];
        let start = Instant::now();
        let decision = black_box(policy.decide(black_box(identity), black_box(&question)));
        times.push(start.elapsed().as_nanos());
        allowed += usize::from(decision == Decision::Allow);
    }
    times.sort_unstable();
    (times, allowed)
}

fn decisions_with_ten_thousand_roles_and_bindings() {
    for spread in [
        Spread::OverUsers,
        Spread::OneGroup,
        Spread::OneGroupEverywhere,
        Spread::OneGroupInNamespaces,
        Spread::FiftyTeams,
    ] {
        let policy = policy(spread, if matches!(spread, Spread::FiftyTeams) { 4000 } else { MANY });
        for (name, scope) in scopes() {
            let (times, allowed) = measure(&policy, spread, scope.as_ref());
            let at = |share: usize| times[times.len() * share / 1000];
            println!(
                "{spread:?}, {name}: median {} ns, p99 {} ns, p99.9 {} ns, {allowed} of {} allowed",
                at(500),
                at(990),
                at(999),
                times.len()
            );
        }
        let ada = identity(spread, 1);
        let start = Instant::now();
        let readable = policy.readable(&ada, "get", OURS, "sharedsecrets");
        println!("{spread:?}: readable in {:?}, {}", start.elapsed(), readable.is_empty());
        let start = Instant::now();
        let may_have_permission = policy.may_have_permission(&ada, OURS, "sharedsecrets");
        println!("{spread:?}: may_have_permission in {:?}, {may_have_permission}", start.elapsed());
    }
}

/// The median of the times of many calls.
fn median<T>(calls: usize, call: impl Fn(usize) -> T) -> Duration {
    median_with(calls, |number| number, |number| call(*number))
}

/// The median time of many calls. The time to create the inputs is not included.
fn median_with<I, T>(calls: usize, input: impl Fn(usize) -> I, call: impl Fn(&I) -> T) -> Duration {
    let mut times: Vec<_> = (0..calls)
        .map(|number| {
            let input = input(number);
            let start = Instant::now();
            let result = black_box(call(&input));
            let time = start.elapsed();
            drop(result);
            time
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn readable_by_many_bindings() {
    let readable = |spread| {
        let (policy, ada) = (policy(spread, 4000), identity(spread, 1));
        median(20, |_| policy.readable(&ada, "get", OURS, "sharedsecrets"))
    };
    let direct = readable(Spread::OneUser);
    let through_teams = readable(Spread::FiftyTeams);
    let ratio = through_teams.as_secs_f64() / direct.as_secs_f64();
    println!("4000 objects: {direct:?} direct, {through_teams:?} through 50 teams: {ratio:.2}");
}

fn changes_of_one_binding() {
    for spread in [Spread::OverUsers, Spread::OneGroup, Spread::OneGroupEverywhere] {
        let mut of_few = None;
        for bindings in [100, 10_000, 100_000] {
            let policy = policy(spread, bindings);
            let is_cluster_role = matches!(spread, Spread::OneGroupEverywhere);
            let namespace = (!is_cluster_role).then_some("platform");
            let subjects = vec![BoundSubject::Group("everyone".to_owned())];
            let changes: Vec<_> = (0..100)
                .map(|number| {
                    let (role, subjects) = (format!("r{number}"), subjects.clone());
                    let facts = BindingFacts { is_cluster_role, role, subjects };
                    [(namespace, "new", PolicyChange::Binding(Some(facts)))]
                })
                .collect();
            let time = median(1000, |number| policy.with(&changes[number % 100]));
            let few = *of_few.get_or_insert(time);
            let ratio = time.as_secs_f64() / few.as_secs_f64();
            println!("{spread:?}, {bindings} bindings: a change in {time:?}, {ratio:.2}");
        }
    }
}

/// Adds secrets that users own, ten of them each, or all of one user.
fn own(policy: &mut Policy, objects: usize, of_one: bool) {
    for number in 0..objects {
        let user = if of_one { 1 } else { number / 10 };
        let change = PolicyChange::Owner(SECRETS, Some(format!("uid-{user}")));
        policy.apply(Some("platform"), &format!("s{number}"), change);
    }
}

/// The memory of this process in bytes.
#[expect(clippy::disallowed_methods, reason = "a measurement reads what the system says of it")]
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or_default() * 4096
}

fn owners_of_many_objects() {
    let before = resident_bytes();
    let mut many = Policy::default();
    own(&mut many, 1_000_000, false);
    println!("{} bytes for each object", (resident_bytes() - before) / 1_000_000);
    drop(many);
    for objects in [100, 10_000, 100_000] {
        let mut policy = policy(Spread::OverUsers, MANY);
        own(&mut policy, objects, false);
        let (times, allowed) = measure(&policy, Spread::OverUsers, None);
        let change = |number: usize| {
            let uid = Some(format!("uid-{}", number % 10));
            [(Some("platform"), "new", PolicyChange::Owner(SECRETS, uid))]
        };
        let changes: Vec<_> = (0..100).map(change).collect();
        let time = median(1000, |number| policy.with(&changes[number % 100]));
        println!(
            "{objects} objects: median {} ns, p99 {} ns, {allowed} allowed; a change in {time:?}",
            times[times.len() / 2],
            times[times.len() * 99 / 100],
        );
    }
    let mut policy = Policy::default();
    own(&mut policy, MANY, true);
    let ada = identity(Spread::OneUser, 1);
    let time = median(20, |_| policy.readable(&ada, "get", OURS, "sharedsecrets"));
    println!("{MANY} objects of one owner: readable in {time:?}");
}

/// An index of so many keys of 1,000 users, and the keys' values.
fn many_keys(digester: &Digester, keys: usize) -> (PrincipalIndex, Vec<String>) {
    let mut index = PrincipalIndex::default();
    for number in 0..USERS {
        let uid = format!("uid-{number}");
        let user = UserFacts { uid, ..UserFacts::default() };
        index.set_user(&format!("user{number}"), Some(user));
    }
    let values: Vec<_> = (0..keys).map(|number| format!("pk_{number:0>48}")).collect();
    for (number, value) in values.iter().enumerate() {
        let (name, uid) = (format!("key{number}"), format!("uid-of-key{number}"));
        let owner_uid = format!("uid-{}", number % USERS);
        let digest = digester.digest(&BearerToken::of_key(&value.clone().into()));
        let facts = KeyFacts {
            uid: uid.clone(),
            owner: Some(Owner::User(format!("user{}", number % USERS))),
            owner_uid: owner_uid.clone(),
            ..KeyFacts::default()
        };
        index.set_key(&name, Some(facts));
        index.set_record(digest, Some(DigestRecord { name, uid, owner_uid }));
    }
    (index, values)
}

fn authentication_with_a_hundred_thousand_keys() {
    let (digester, policy) = (Digester::new(&Zeroizing::new([7; 32])), Policy::default());
    for keys in [100, 100_000] {
        let (index, values) = many_keys(&digester, keys);
        let authenticate = |header: &str| {
            let token = bearer::parse(std::iter::once(header.as_bytes())).ok()?;
            index.identify(&digester.digest(&token), 1, &policy).ok()
        };
        // A header was just read from a connection. The order of the keys is none that memory could
        // foresee.
        let header = |number: usize| format!("Bearer {}", values[number * 7919 % keys]);
        assert!((0..keys).all(|number| authenticate(&header(number)).is_some()));
        let of_many = median_with(100_000, header, |header| authenticate(header));
        let of_one = median_with(100_000, |_| header(0), |header| authenticate(header));
        let digests = median_with(100_000, header, |header| {
            bearer::parse(std::iter::once(header.as_bytes())).map(|token| digester.digest(&token))
        });
        println!(
            "{keys} keys: {of_many:?} in turn, {of_one:?} for the same; {digests:?} is the digest"
        );
    }
}

/// Tokens that differ by their ids.
fn endpoint_tokens(signing: &SigningKey, tokens: usize) -> Vec<String> {
    let key = ResolvedKey {
        uid: "uid-of-key".to_owned(),
        identity: Arc::new(identity(Spread::OverUsers, 1)),
        ..ResolvedKey::default()
    };
    let bearer = Bearer { key: &key, identity: &key.identity, wanted: None, scope: None };
    let token = |number: usize| {
        let issuance = Issuance {
            issuer: "https://postern.test".to_owned(),
            audiences: vec![GENERAL_AUDIENCE.to_owned()],
            issued_at: 1,
            ttl_seconds: 3600,
            token_id: format!("id-{number}"),
            revocation_revision: 1,
        };
        signing.issue(&Claims::of(&bearer, issuance)).unwrap().expose().to_owned()
    };
    (0..tokens).map(token).collect()
}

fn verification_of_endpoint_tokens() {
    let signing = SigningKey::generate().unwrap();
    let point = |text: &str| BASE64URL.decode(text).unwrap();
    let public = signing.public();
    let point = [vec![4], point(&public.x), point(&public.y)].concat();
    let bare = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point).unwrap();
    let tokens = endpoint_tokens(&signing, 2000);
    let verifier = Verifier::new("https://postern.test", [GENERAL_AUDIENCE.to_owned()]);
    verifier.set_keys(&JwkSet { keys: vec![public] });
    let split = |token: &str| {
        let (signed, signature) = token.rsplit_once('.').unwrap();
        (signed.to_owned(), BASE64URL.decode(signature).unwrap())
    };
    let bare = median_with(
        2000,
        |number| split(&tokens[number]),
        |(signed, signature)| bare.verify_sig(signed.as_bytes(), signature).is_ok(),
    );
    let first = median_with(
        2000,
        |number| &tokens[number],
        |token| {
            assert!(verifier.verify(token, 2).is_ok());
        },
    );
    let seen = median_with(
        100_000,
        |number| tokens[1000 + number % 1000].clone(),
        |token| verifier.verify(token, 2).map(drop),
    );
    let ratio = first.as_secs_f64() / bare.as_secs_f64();
    println!("ES256 alone {bare:?}; a token {first:?} ({ratio:.2}); seen before {seen:?}");
}

fn main() {
    decisions_with_ten_thousand_roles_and_bindings();
    readable_by_many_bindings();
    changes_of_one_binding();
    owners_of_many_objects();
    authentication_with_a_hundred_thousand_keys();
    verification_of_endpoint_tokens();
}
