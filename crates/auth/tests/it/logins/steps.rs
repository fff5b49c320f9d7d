//! The random steps, and the comparison of the table with the index.

use postern_auth::policy::Decision;
use postern_auth::writer::Writer;
use postern_kinds::principal::KeyUse;
use postern_kinds::workload_identity::WorkloadIdentity;

use crate::logins::table::*;
use crate::logins::world::*;
use crate::reference_model::rng::Rng;

pub(crate) fn pick_key(rng: &mut Rng, world: &World) -> Option<&'static str> {
    let names: Vec<&'static str> = world.table.keys.keys().copied().collect();
    (!names.is_empty()).then(|| names[rng.below(names.len())])
}

pub(crate) fn pick_key_where(
    rng: &mut Rng,
    world: &World,
    is_wanted: impl Fn(&KeyRow) -> bool,
) -> Option<&'static str> {
    let rows = world.table.keys.iter().filter(|(_, key)| is_wanted(key));
    let names: Vec<&'static str> = rows.map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| names[rng.below(names.len())])
}

pub(crate) fn change_key(rng: &mut Rng, world: &mut World, change: impl Fn(&mut KeyRow, &mut Rng)) {
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
pub(crate) fn step(rng: &mut Rng, world: &mut World) -> Option<()> {
    let user = USERS[rng.below(USERS.len())];
    let connector = CONNECTORS[rng.below(CONNECTORS.len())];
    let workload = WORKLOADS[rng.below(WORKLOADS.len())];
    match rng.below(56) {
        0..8 => log_in(rng, world, user, connector)?,
        8..14 => create_key(rng, world)?,
        14..18 => begin_session(rng, world)?,
        18..22 => log_in_command_line(rng, world)?,
        22..24 => make_workload(rng, world, workload, user),
        24..29 => exchange(rng, world)?,
        29 => change_workload(rng, world, workload)?,
        30 => {
            let row = world.table.workloads.remove(workload)?;
            world.tell(|| format!("{workload} is deleted: {row:?}"));
            world.put(&WorkloadIdentity, workload, None);
        }
        54 => replace_login(rng, world)?,
        step @ (31..38 | 44 | 55) => step_of_administrators(step, rng, world, user, connector)?,
        step @ (38..44 | 52 | 53) => step_of_providers(step, rng, world, user, connector)?,
        step => step_of_servers(step, rng, world)?,
    }
    Some(())
}

fn step_of_administrators(
    step: usize,
    rng: &mut Rng,
    world: &mut World,
    user: &'static str,
    connector: &'static str,
) -> Option<()> {
    match step {
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
        44 => {
            let pair = (USERS[rng.below(2)], ["bob", "eve", "robot", GROUPS][rng.below(4)]);
            if !world.table.may.remove(&pair) {
                world.table.may.insert(pair);
            }
            world.tell(|| format!("the right of {pair:?} changes"));
            world.set_policy();
        }
        _ => unreachable!("not a step of administrators"),
    }
    Some(())
}

/// Steps of providers, and the deletions.
fn step_of_providers(
    step: usize,
    rng: &mut Rng,
    world: &mut World,
    user: &'static str,
    connector: &'static str,
) -> Option<()> {
    match step {
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
            let name = pick_key_where(rng, world, |key| key.used_as.is_session())?;
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
        _ => unreachable!("not a step of providers"),
    }
    Some(())
}

/// Steps of the servers and of time.
fn step_of_servers(step: usize, rng: &mut Rng, world: &mut World) -> Option<()> {
    match step {
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
        _ => unreachable!("there are no more steps"),
    }
    Some(())
}

pub(crate) fn log_in(
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
        used_as: if rng.percent(70) { KeyUse::Session } else { KeyUse::Key },
        is_login_type: true,
        login: Some(login),
        ..world.row(uid, user)
    };
    world.put_key(name, key);
    Some(())
}

/// A login loses its identity or its user. Its user logs in again, and this login ends: the first one confirms nothing.
pub(crate) fn replace_login(rng: &mut Rng, world: &mut World) -> Option<()> {
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

pub(crate) fn create_key(rng: &mut Rng, world: &mut World) -> Option<()> {
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
pub(crate) fn begin_session(rng: &mut Rng, world: &mut World) -> Option<()> {
    let name = world.free_name()?;
    let by = pick_key_where(rng, world, |key| !key.used_as.is_session())?;
    world.identify(by).filter(|key| !key.used_as.is_session() && !key.identity.is_scoped())?;
    world.tell(|| format!("{by} begins the session {name}"));
    put_session(world, name, by, KeyUse::Session);
    Some(())
}

/// As the registry does it: a session of the console consents.
pub(crate) fn log_in_command_line(rng: &mut Rng, world: &mut World) -> Option<()> {
    let name = world.free_name()?;
    let by = pick_key_where(rng, world, |key| key.used_as == KeyUse::Session)?;
    world.identify(by)?;
    world.tell(|| format!("{by} allows the command line {name}"));
    put_session(world, name, by, KeyUse::CommandLine);
    Some(())
}

fn put_session(world: &mut World, name: &'static str, by: &str, used_as: KeyUse) {
    let uid = world.uid();
    let maker = world.table.keys[by].clone();
    let key = KeyRow {
        reach: maker.reach,
        ttl: SESSION_TTL,
        used_as,
        is_login_type: maker.is_login_type,
        parent: Some(Parent { uid: maker.uid, impersonated: None }),
        ..world.row(uid, maker.user)
    };
    world.put_key(name, key);
}

pub(crate) fn make_workload(
    rng: &mut Rng,
    world: &mut World,
    name: &'static str,
    user: &'static str,
) {
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
}

pub(crate) fn change_workload(rng: &mut Rng, world: &mut World, name: &'static str) -> Option<()> {
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
pub(crate) fn exchange(rng: &mut Rng, world: &mut World) -> Option<()> {
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

pub(crate) fn ask_for_sync(rng: &mut Rng, world: &mut World) {
    let Some(name) = pick_key(rng, world) else { return };
    let Some(key) = world.identify(name) else { return };
    let writer = Writer::of(&key.identity, &key.as_caller_key(None));
    let key = world.table.keys[name].clone();
    world.syncs.push(Sync { writer, key, logout: None, is_gone: false });
}

// ---------------------------------------------------------------------------------------------------------------------

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) asked: u64,
    pub(crate) allowed: u64,
    pub(crate) by_group: u64,
    pub(crate) of_makers: u64,
    pub(crate) of_workloads: u64,
    pub(crate) of_logins: u64,
    pub(crate) behind: u64,
    pub(crate) of_syncs: u64,
}

pub(crate) fn check(rng: &mut Rng, world: &World, counts: &mut Counts) {
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
pub(crate) fn check_syncs(rng: &mut Rng, world: &World, counts: &mut Counts) {
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
