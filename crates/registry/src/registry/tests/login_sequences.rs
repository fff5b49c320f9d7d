//! Random sequences of logins, sessions, exchanges, refreshes and logouts on two servers. After
//! each step, both servers answer as a table of plain data says ([`Table`]). The table is written
//! from `docs/reference` and asks nothing of the registry. `crates/auth/tests/it/logins` does the
//! same with millions of sequences for the decisions of the index.
//!
//! `POSTERN_LOGIN_SEQUENCES` is the number of sequences, `POSTERN_NAIVE_SEED` the seed.

use std::collections::BTreeMap;

use postern_auth::bearer::BearerToken;
use postern_auth::digest::Digest;
use postern_kinds::command_line_consent::CommandLineConsent;
use postern_kinds::connector::{self, Connector};
use postern_kinds::console_session::ConsoleSession;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::principal::ConnectorRef;
use postern_kinds::trusted_issuer::TrustedIssuer;
use postern_kinds::user::User;
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_kinds::{Owner, Principal, Principals as _, SecretText};
use postern_oidc::command_line::Asked;
use postern_store::hostile::{Faults, Remote};
use serde_json::{Map, Value, json};

use super::fleet::Fleet;
use super::logins::{ISSUER, browser, make_connector, person};
use super::*;
use crate::actions::exchanges::{accepting, exchange};
use crate::actions::logins::{Groups, LoginFor, log_in, set_groups};
use crate::actions::refreshes::{self, LoginKey, logged_out};
use crate::actions::{command_line, sessions};
use crate::cache::DEFAULT_STORE_SILENCE;
use crate::credential::Credential;

const STEPS: usize = 20;
const SUBJECTS: [&str; 2] = ["ada", "bob"];
const GROUP: &str = "corp:developers";
const DAY_SECONDS: i64 = 24 * 3600;
const SESSION_SECONDS: i64 = 12 * 3600;
const IDLE_SECONDS: i64 = 1800;
const WORKLOAD_SECONDS: i64 = 900;
const WORKLOAD: At<'_> = at(&WorkloadIdentity, "build");

/// A small random generator (`SplitMix64`), so that a seed repeats a sequence.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Debug)]
struct UserRow {
    uid: String,
    is_disabled: bool,
    /// The subject of the identity with which the user is linked.
    linked: Option<&'static str>,
    /// When the provider confirmed the group, if the user has it.
    confirmed: Option<i64>,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is independent of the others")]
struct KeyRow {
    name: String,
    uid: String,
    digest: Digest,
    user: String,
    owner_uid: String,
    is_disabled: bool,
    created: i64,
    ttl: i64,
    used: i64,
    has_scope: bool,
    is_session: bool,
    is_command_line: bool,
    parent: Option<String>,
    /// The subject and the session at the provider.
    login: Option<(&'static str, &'static str)>,
    workload: Option<String>,
}

impl KeyRow {
    fn is_over(&self, now: i64, is_idleness_counted: bool) -> bool {
        let is_idle = self.is_session && !self.is_command_line && is_idleness_counted;
        (self.ttl > 0 && self.created + self.ttl <= now)
            || (is_idle && self.used.max(self.created) + IDLE_SECONDS <= now)
    }
}

#[derive(Clone, Debug)]
struct WorkloadRow {
    uid: String,
    is_disabled: bool,
    user: String,
    owner_uid: String,
}

/// Everything that is stored, as plain data.
#[derive(Debug, Default)]
struct Table {
    users: BTreeMap<String, UserRow>,
    keys: Vec<KeyRow>,
    workload: Option<WorkloadRow>,
    is_connector_disabled: bool,
}

impl Table {
    fn key(&self, uid: &str) -> Option<&KeyRow> {
        self.keys.iter().find(|key| key.uid == uid)
    }

    fn owner(&self, key: &KeyRow) -> Option<&UserRow> {
        self.users.get(&key.user).filter(|user| user.uid == key.owner_uid)
    }

    fn has_command_line(&self, key: &KeyRow) -> bool {
        self.keys.iter().any(|one| one.is_command_line && one.parent.as_ref() == Some(&key.uid))
    }

    /// Whether a key is valid. `time` is `None` if no key expires.
    fn is_valid(&self, key: &KeyRow, time: Option<i64>, is_of_command_line: bool) -> bool {
        let Some(owner) = self.owner(key) else { return false };
        let workload = self.workload.as_ref().filter(|one| !one.is_disabled);
        let is_linked = |(subject, _): (&str, &str)| owner.linked == Some(subject);
        !key.is_disabled
            && !owner.is_disabled
            && key.login.is_none_or(|login| is_linked(login) && !self.is_connector_disabled)
            && key.workload.as_ref().is_none_or(|uid| workload.is_some_and(|one| one.uid == *uid))
            && time.is_none_or(|now| !key.is_over(now, !is_of_command_line))
            && key.parent.as_ref().is_none_or(|parent| {
                let is_of_command_line = is_of_command_line || key.is_command_line;
                self.key(parent)
                    .is_some_and(|parent| self.is_valid(parent, time, is_of_command_line))
            })
    }

    fn has_group(&self, key: &KeyRow, now: i64) -> bool {
        let confirmed = self.owner(key).and_then(|owner| owner.confirmed);
        confirmed.is_some_and(|at| at >= now - DAY_SECONDS) && !self.is_connector_disabled
    }

    /// The deletion of a key. With a valid login, the group ends, unless another login confirms it.
    fn delete(&mut self, uid: &str, now: i64) {
        let Some(key) = self.key(uid).cloned() else { return };
        let ended = key.is_over(now, !self.has_command_line(&key));
        let confirms = self.keys.iter().any(|other| {
            let owner = self.owner(other);
            other.uid != key.uid
                && other.user == key.user
                && !other.is_disabled
                && other.login.is_some_and(|(subject, _)| {
                    owner.is_some_and(|owner| owner.linked == Some(subject))
                })
                && !other.is_over(now, !self.has_command_line(other))
        });
        if key.login.is_some() && !ended && !confirms {
            self.end_group(&key.user);
        }
        self.keys.retain(|one| one.uid != uid);
    }

    fn end_group(&mut self, user: &str) {
        if let Some(user) = self.users.get_mut(user) {
            user.confirmed = None;
        }
    }
}

struct Scene {
    remote: Arc<Remote>,
    fleet: Fleet,
    connector: ConnectorRef,
    spec: connector::Spec,
    table: Table,
    /// Endpoint tokens, each with the uid of its key.
    tokens: Vec<(String, SecretText)>,
    next_name: usize,
    told: Vec<String>,
}

#[derive(Default)]
struct Counts {
    asked: usize,
    allowed: usize,
    by_group: usize,
    tokens: usize,
    cut_off: usize,
}

impl Scene {
    async fn start() -> Self {
        let faults = Faults {
            delay_microseconds: 0,
            lost_watches: 0,
            refused_commits: 0,
            unknown_outcomes: 0,
        };
        let remote = Remote::new(faults);
        let fleet = Fleet::on(2, || remote.connect()).await;
        let (connector, spec) = make_connector(fleet.one()).await;
        let issuer = json!({ "type": "Generic", "issuer": "https://ci.example.com" });
        fleet.one().make(at(&TrustedIssuer, "ci"), json!({ "spec": issuer })).await;
        fleet.current().await;
        let (table, tokens, told) = (Table::default(), Vec::new(), Vec::new());
        Self { remote, fleet, connector, spec, table, tokens, next_name: 0, told }
    }

    fn server(&self, rng: &mut Rng) -> &Fixture {
        &self.fleet.servers()[rng.below(2)]
    }

    fn now(&self) -> i64 {
        self.fleet.one().clock.now().unix_seconds()
    }

    fn by(&self) -> LoginFor<'_> {
        let (connector, connector_uid) = (&*self.connector.name, &*self.connector.uid);
        LoginFor { connector, connector_uid, spec: &self.spec, browser: None }
    }

    /// The row of a key with this value, as the server made it.
    fn row(&self, value: &SecretText, user: &str) -> KeyRow {
        let server = self.fleet.one();
        let digest = server.registry.digester().digest(&BearerToken::of_key(value));
        self.row_of(digest, user)
    }

    fn row_of(&self, digest: Digest, user: &str) -> KeyRow {
        let principals = self.fleet.one().registry.cache().principals();
        let name = principals.key_of(&digest).unwrap().to_owned();
        let mut keys = principals.keys_of_user(user);
        let uid = keys.find(|(key, _)| *key == name).unwrap().1.to_owned();
        KeyRow {
            name,
            uid,
            digest,
            user: user.to_owned(),
            owner_uid: self.table.users[user].uid.clone(),
            is_disabled: false,
            created: self.now(),
            ttl: 0,
            used: 0,
            has_scope: false,
            is_session: false,
            is_command_line: false,
            parent: None,
            login: None,
            workload: None,
        }
    }

    fn pick(&self, rng: &mut Rng, is_wanted: impl Fn(&KeyRow) -> bool) -> Option<KeyRow> {
        let keys: Vec<&KeyRow> = self.table.keys.iter().filter(|key| is_wanted(key)).collect();
        keys.get(rng.below(keys.len())).map(|key| (*key).clone())
    }

    fn pick_user(&self, rng: &mut Rng) -> Option<String> {
        let users: Vec<&String> = self.table.users.keys().collect();
        users.get(rng.below(users.len())).map(|user| (*user).clone())
    }

    fn tell(&mut self, what: impl std::fmt::Display) {
        self.told.push(format!("{}: {what}", self.now() - START_UNIX_SECONDS));
    }

    /// A permit of the caller with a key; `None` if the key is not valid.
    fn permit_of(&self, server: &Fixture, key: &KeyRow, permit: Permit) -> Option<Permit> {
        let found = server.identify(&key.digest, self.now()).ok()?;
        Some(permit.with_credential(Credential::of_key(found.identity.clone(), key.digest)))
    }

    async fn log_in(&mut self, rng: &mut Rng) {
        let (subject, sid) = (SUBJECTS[rng.below(2)], ["", "one", "two"][rng.below(3)]);
        let linked = self.table.users.values().find(|user| user.linked == Some(subject)).cloned();
        let is_refused = linked.as_ref().is_some_and(|user| user.is_disabled);
        if self.table.is_connector_disabled {
            return;
        }
        let (is_session, is_in) = (rng.percent(70), rng.percent(85));
        let groups = is_in.then(|| "developers".to_owned()).into_iter().collect();
        let person = person(subject, sid, groups);
        let by = LoginFor { browser: is_session.then(browser), ..self.by() };
        let made = log_in(&self.server(rng).registry, &by, person).await;
        if linked.is_none() && made.as_ref().is_err_and(|error| error.code() == 403) {
            // The names that a new user would get are those of keys of earlier users.
            return;
        }
        assert_eq!(made.is_err(), is_refused, "{:?}\n{}", made.err(), self.told.join("\n"));
        let Ok(made) = made else { return };
        self.fleet.current().await;
        self.tell(format!("{} logs in: {} {sid:?} {is_in}", made.user, made.access_key));
        let uid = {
            let principals = self.fleet.one().registry.cache().principals();
            principals.uid(Principal::User(&made.user)).unwrap()
        };
        let confirmed = is_in.then(|| self.now());
        let user = UserRow { uid, is_disabled: false, linked: Some(subject), confirmed };
        self.table.users.insert(made.user.clone(), user);
        let row = self.row(&made.value, &made.user);
        let login = Some((subject, sid));
        self.table.keys.push(KeyRow { ttl: SESSION_SECONDS, is_session, login, ..row });
    }

    async fn create_key(&mut self, rng: &mut Rng) -> Option<()> {
        let user = self.pick_user(rng)?;
        let (name, has_scope) = (format!("own-{}", self.next_name), rng.percent(30));
        self.next_name += 1;
        let ttl = if rng.percent(30) { 3600 } else { 0 };
        let mut spec = json!({ "ttl": ttl });
        if has_scope {
            spec["scope"] = json!({});
        }
        let digest = self.server(rng).key_of(&name, &user, spec).await;
        self.fleet.current().await;
        self.tell(format!("{user} has the key {name}"));
        let row = self.row_of(digest, &user);
        self.table.keys.push(KeyRow { ttl, has_scope, ..row });
        Some(())
    }

    async fn begin_session(&mut self, rng: &mut Rng) -> Option<()> {
        let key = self.pick(rng, |key| key.login.is_none() || !key.is_session)?;
        let server = self.server(rng);
        let permit = at(&ConsoleSession, "").permit(Verb::Create);
        let permit = self.permit_of(server, &key, permit)?;
        let begun = sessions::begin(&server.registry, &permit, browser()).await;
        let is_allowed =
            self.table.is_valid(&key, Some(self.now()), false) && !key.is_session && !key.has_scope;
        assert_eq!(begun.is_ok(), is_allowed, "{key:?}\n{}", self.told.join("\n"));
        let begun = begun.ok()?;
        self.fleet.current().await;
        let row = self.row(&begun.value, &key.user);
        self.tell(format!("{} begins {}", key.name, row.name));
        let parent = Some(key.uid);
        let ttl = SESSION_SECONDS;
        self.table.keys.push(KeyRow { ttl, is_session: true, parent, ..row });
        Some(())
    }

    async fn log_in_command_line(&mut self, rng: &mut Rng) -> Option<()> {
        let session = self.pick(rng, |key| key.is_session && !key.is_command_line)?;
        let server = self.server(rng);
        let permit = at(&CommandLineConsent, "").permit(Verb::Create);
        let permit = self.permit_of(server, &session, permit)?;
        let asked = Asked { challenge: String::new(), host: "laptop".to_owned(), ttl_seconds: 0 };
        let stored = || SecretText::from(format!("{:0>40}", self.next_name));
        command_line::allow(&server.registry, &permit, &asked, stored()).await.unwrap();
        let code = command_line::code_of(&server.registry, &stored()).await.unwrap().unwrap();
        let (value, _) = command_line::redeem(&server.registry, &code, browser()).await.unwrap();
        self.next_name += 1;
        self.fleet.current().await;
        let row = self.row(&value, &session.user);
        self.tell(format!("{} allows {}", session.name, row.name));
        let (parent, ttl) = (Some(session.uid), SESSION_SECONDS);
        let row = KeyRow { ttl, is_session: true, is_command_line: true, parent, ..row };
        self.table.keys.push(row);
        Some(())
    }

    async fn exchange(&mut self, rng: &mut Rng) -> Option<()> {
        let server = self.server(rng);
        let claims: Map<String, Value> = json!({ "sub": "job" }).as_object().unwrap().clone();
        let made = async {
            let by = accepting(&server.registry, "build").await.ok()?;
            exchange(&server.registry, &by, &claims).await.ok()
        };
        let made = made.await;
        let row = self.table.workload.clone();
        let is_allowed = row.as_ref().is_some_and(|row| {
            let user = self.table.users.get(&row.user);
            let is_owned = user.is_some_and(|user| user.uid == row.owner_uid && !user.is_disabled);
            !row.is_disabled && is_owned
        });
        assert_eq!(made.is_some(), is_allowed, "{row:?}\n{}", self.told.join("\n"));
        let (made, workload) = (made?, row?);
        self.fleet.current().await;
        self.tell(format!("an exchange: {}", made.access_key));
        let row = self.row(&made.value, &workload.user);
        let workload = Some(workload.uid);
        self.table.keys.push(KeyRow { ttl: WORKLOAD_SECONDS, workload, has_scope: true, ..row });
        Some(())
    }

    async fn change_workload(&mut self, rng: &mut Rng) -> Option<()> {
        let Some(row) = &mut self.table.workload else {
            let user = self.pick_user(rng)?;
            let spec = json!({
                "issuer": "ci", "owner": { "user": user }, "scope": {},
                "match": [{ "claim": "sub", "values": ["job"] }],
            });
            let made = self.server(rng).make(WORKLOAD, json!({ "spec": spec })).await;
            self.tell(format!("a workload identity of {user}"));
            let owner_uid = self.table.users[&user].uid.clone();
            let uid = made.metadata.uid;
            self.table.workload = Some(WorkloadRow { uid, is_disabled: false, user, owner_uid });
            return Some(());
        };
        if rng.percent(50) {
            self.table.workload = None;
            self.tell("the workload identity is deleted");
            self.server(rng).delete(WORKLOAD).await;
        } else {
            row.is_disabled = !row.is_disabled;
            let is_disabled = row.is_disabled;
            self.tell(format!("the workload identity is disabled: {is_disabled}"));
            set_disabled(self.server(rng), WORKLOAD, is_disabled).await;
        }
        Some(())
    }

    /// A provider says something about the groups of a user at a refresh.
    async fn refresh(&mut self, rng: &mut Rng) -> Option<()> {
        let name = self.pick_user(rng)?;
        let groups = ["developers".to_owned()];
        let is_in = rng.percent(60);
        let groups = if is_in { &groups[..] } else { &[] };
        let user = self.table.users[&name].clone();
        // With the user refused, no group is added, and the others are taken.
        let is_refused = rng.percent(30);
        let said = if is_refused { Groups::AtMost(groups) } else { Groups::Are(groups) };
        let subject = user.linked.unwrap_or("ada");
        let by = self.by();
        let written = set_groups(&self.server(rng).registry, &by, (subject, said), &name).await;
        let is_written = written.is_ok();
        assert_eq!(is_written, user.linked.is_some() && !user.is_disabled);
        self.tell(format!("a refresh of {name}: {is_in}, refused: {is_refused}"));
        let now = self.now();
        let user = self.table.users.get_mut(&name).filter(|_| is_written)?;
        user.confirmed = match (is_refused, is_in) {
            (false, true) => Some(now),
            (true, true) => user.confirmed,
            (_, false) => None,
        };
        Some(())
    }

    async fn end_keys(&mut self, rng: &mut Rng) -> Option<()> {
        let now = self.now();
        match rng.below(4) {
            0 => {
                let session = self.pick(rng, |key| key.is_session)?;
                let server = self.server(rng);
                let permit = at(&OwnedAccessKey, &session.name).permit(Verb::Delete);
                let permit = self.permit_of(server, &session, permit)?;
                sessions::end(&server.registry, &permit).await.unwrap();
                self.tell(format!("a logout of {}", session.name));
                self.table.keys.retain(|key| key.uid != session.uid);
            }
            1 => {
                let is_login = rng.percent(80);
                let key = self.pick(rng, |key| key.login.is_some() || !is_login)?;
                let end = LoginKey { name: key.name.clone(), uid: key.uid.clone() };
                refreshes::end(&self.server(rng).registry, &end).await.unwrap();
                self.tell(format!("{} ends", key.name));
                self.table.delete(&key.uid, now);
            }
            which => {
                let subject = SUBJECTS[rng.below(2)];
                let sid = (which == 2).then(|| ["one", "two"][rng.below(2)]);
                let subject = sid.is_none().then_some(subject);
                self.tell(format!("a logout token: {subject:?} {sid:?}"));
                let registry = self.server(rng).registry.clone();
                let keys = logged_out(&registry, &self.connector, ISSUER, subject, sid);
                let is_of = |key: &&KeyRow| {
                    let is_named = |(of, session)| {
                        subject.is_none_or(|one| one == of) && sid.is_none_or(|one| one == session)
                    };
                    key.login.is_some_and(is_named)
                };
                let expected = self.table.keys.iter().filter(is_of);
                let mut expected: Vec<String> = expected.map(|key| key.uid.clone()).collect();
                let mut ended: Vec<String> = keys.iter().map(|key| key.uid.clone()).collect();
                expected.sort_unstable();
                ended.sort_unstable();
                assert_eq!(ended, expected, "{}", self.told.join("\n"));
                for key in keys {
                    refreshes::end(&registry, &key).await.unwrap();
                    registry.cache().wait_until_current().await.unwrap();
                    self.table.delete(&key.uid, now);
                }
                if let Some(subject) = subject {
                    let taken = refreshes::take_groups(&registry, &self.connector, ISSUER, subject);
                    taken.await.unwrap();
                    let mut users = self.table.users.values_mut();
                    let user = users.find(|user| user.linked == Some(subject));
                    user?.confirmed = None;
                }
            }
        }
        Some(())
    }

    async fn administer(&mut self, rng: &mut Rng) -> Option<()> {
        match rng.below(5) {
            0 => {
                let key = self.pick(rng, |_| true)?;
                let is_disabled = !key.is_disabled;
                self.tell(format!("{} is disabled: {is_disabled}", key.name));
                let at = at(&OwnedAccessKey, &key.name);
                set_disabled(self.server(rng), at, is_disabled).await;
                let mut keys = self.table.keys.iter_mut();
                keys.find(|one| one.uid == key.uid)?.is_disabled = is_disabled;
            }
            1 => {
                let name = self.pick_user(rng)?;
                let user = self.table.users.get_mut(&name)?;
                user.is_disabled = !user.is_disabled;
                let is_disabled = user.is_disabled;
                self.tell(format!("{name} is disabled: {is_disabled}"));
                set_disabled(self.server(rng), at(&User, &name), is_disabled).await;
            }
            2 => {
                let is_disabled = !self.table.is_connector_disabled;
                self.table.is_connector_disabled = is_disabled;
                self.tell(format!("the connector is disabled: {is_disabled}"));
                set_disabled(self.server(rng), at(&Connector, "corp"), is_disabled).await;
            }
            3 => {
                let name = self.pick_user(rng)?;
                self.tell(format!("{name} is unlinked"));
                let unlink = |user: &mut Value| user["spec"]["identities"] = json!([]);
                self.server(rng).change(at(&User, &name), unlink).await;
                let user = self.table.users.get_mut(&name)?;
                (user.linked, user.confirmed) =
                    (None, user.confirmed.filter(|_| user.linked.is_none()));
            }
            _ => {
                let name = self.pick_user(rng)?;
                self.tell(format!("{name} is deleted"));
                self.server(rng).delete(at(&User, &name)).await;
                self.table.users.remove(&name);
            }
        }
        Some(())
    }

    async fn step(&mut self, rng: &mut Rng) -> Option<()> {
        match rng.below(30) {
            0..5 => self.log_in(rng).await,
            5..8 => self.create_key(rng).await?,
            8..10 => self.begin_session(rng).await?,
            10..12 => self.log_in_command_line(rng).await?,
            12..14 | 28..30 => self.exchange(rng).await?,
            14 | 27 => self.change_workload(rng).await?,
            15 | 26 => self.refresh(rng).await?,
            16..18 | 24..26 => self.end_keys(rng).await?,
            18..20 => self.administer(rng).await?,
            20 => {
                let seconds = [1, 600, 1790, 6 * 3600, DAY_SECONDS][rng.below(5)];
                let seconds = if rng.percent(20) { -20 } else { seconds };
                self.fleet.one().pass_seconds(seconds);
                self.tell(format!("{seconds} seconds pass"));
            }
            21 => {
                let key = self.pick(rng, |key| key.is_session)?;
                let (server, now) = (self.server(rng), self.now());
                server.identify(&key.digest, now).ok()?;
                server.use_key(&key.digest);
                server.registry.store_activity().await.unwrap();
                self.tell(format!("{} is used", key.name));
                let mut keys = self.table.keys.iter_mut();
                let key = keys.find(|one| one.uid == key.uid)?;
                key.used = key.used.max(now);
            }
            22 => {
                let key = self.pick(rng, |_| true)?;
                let server = self.server(rng);
                server.identify(&key.digest, self.now()).ok()?;
                let token = server.token(&key.digest).await;
                self.tell(format!("a token of {}", key.name));
                self.tokens.push((key.uid, token));
            }
            // Removing groups that are too old changes no response.
            _ => refreshes::drop_stale_groups(&self.server(rng).registry).await.unwrap(),
        }
        Some(())
    }

    /// Checks that both servers answer as the table says.
    async fn check(&self, rng: &mut Rng, counts: &mut Counts) {
        let now = self.now();
        let told = || format!("at {now}\n{:#?}\n{}", self.table, self.told.join("\n"));
        let silence = match rng.below(12) {
            0 => DEFAULT_STORE_SILENCE + Duration::from_millis(1),
            1 => DEFAULT_STORE_SILENCE,
            _ => Duration::ZERO,
        };
        let is_cut_off = silence > DEFAULT_STORE_SILENCE;
        for server in self.fleet.current().await {
            // Each server does so once in a second.
            server.registry.forget_old_groups();
            self.remote.set_silence(silence);
            let cache = server.registry.cache();
            for key in &self.table.keys {
                let credential = Credential::of_key(Arc::default(), key.digest);
                let found = credential.current(cache, &cache.policy(), server.clock.now());
                let is_valid = self.table.is_valid(key, Some(now), false) && !is_cut_off;
                let code = found.as_ref().err().map(ApiError::code);
                let expected = (!is_valid).then_some(if is_cut_off { 503 } else { 401 });
                assert_eq!(code, expected, "{}: {}", key.name, told());
                counts.asked += 1;
                counts.cut_off += usize::from(is_cut_off);
                let Ok(Some(found)) = found else { continue };
                let has_group = self.table.has_group(key, now);
                assert_eq!(found.identity().is_in(GROUP), has_group, "{}: {}", key.name, told());
                counts.allowed += 1;
                counts.by_group += usize::from(has_group);
            }
            self.remote.set_silence(Duration::ZERO);
            self.check_counts(server, now, &told);
            for (uid, token) in &self.tokens {
                let is_valid =
                    self.table.key(uid).is_some_and(|key| self.table.is_valid(key, None, false));
                let is_accepted = server.verified(token).is_none();
                assert!(is_valid || !is_accepted, "a token of {uid}: {}", told());
                counts.tokens += usize::from(is_accepted);
            }
        }
    }

    fn check_counts(&self, server: &Fixture, now: i64, told: &dyn Fn() -> String) {
        let principals = server.registry.cache().principals();
        let is_open = |key: &&KeyRow| {
            // An idle session stays for its logins of the command line.
            now < key.created + key.ttl && !key.is_over(now - 1, !self.table.has_command_line(key))
        };
        let keys = || self.table.keys.iter();
        for key in keys() {
            let is_child = |one: &&KeyRow| one.parent.as_ref() == Some(&key.uid);
            let open = keys().filter(is_child).filter(is_open).count();
            let all = keys().filter(is_child).filter(|one| !one.is_over(now - 1, false)).count();
            let found = principals.session_count(&key.uid, now);
            assert!((open..=all).contains(&found), "{}: {found} sessions: {}", key.name, told());
        }
        for user in self.table.users.keys() {
            let of_user = |key: &&KeyRow| key.user == *user && key.login.is_some();
            let open = keys().filter(of_user).filter(is_open).count();
            let all = keys().filter(of_user).filter(|one| !one.is_over(now - 1, false)).count();
            let owner = Owner::User(user.clone());
            let found = principals.login_count(&owner, &self.connector.uid, now);
            assert!((open..=all).contains(&found), "{user}: {found} logins: {}", told());
        }
    }
}

async fn set_disabled(server: &Fixture, at: At<'_>, is_disabled: bool) {
    server.change(at, |object| object["spec"]["disabled"] = json!(is_disabled)).await;
}

#[tokio::test]
async fn both_servers_allow_a_key_what_its_login_and_its_workload_allow() {
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let sequences = variable("POSTERN_LOGIN_SEQUENCES").unwrap_or(40);
    let seed = variable("POSTERN_NAIVE_SEED").unwrap_or(1);
    let mut counts = Counts::default();
    for number in 0..sequences {
        let mut rng = Rng(seed.wrapping_add(number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut scene = Scene::start().await;
        scene.tell(format!("sequence {number}"));
        scene.log_in(&mut rng).await;
        scene.create_key(&mut rng).await;
        scene.change_workload(&mut rng).await;
        for _ in 0..STEPS {
            for _ in 0..3 {
                if scene.step(&mut rng).await.is_some() {
                    break;
                }
            }
            scene.check(&mut rng, &mut counts).await;
        }
    }
    let Counts { asked, allowed, by_group, tokens, cut_off } = counts;
    eprintln!(
        "{sequences} sequences: {allowed} of {asked} allowed, {by_group} with the group, {cut_off} at a server that is cut \
         off; {tokens} more by tokens"
    );
    assert!(allowed * 10 >= asked * 3, "only {allowed} of {asked} are allowed");
    assert!(by_group * 5 >= allowed && tokens > 0, "only {by_group} of {allowed} have the group");
}
