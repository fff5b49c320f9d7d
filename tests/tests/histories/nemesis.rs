//! The faults in a fleet. Each fault has an end, and afterwards everything must work again.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::etcd_cluster::{MEMBERS, member_name};
use postern_tests::links::Link;
use postern_tests::{Home, Random, wait};
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::RwLock;
use tokio::time::sleep;

use super::clients::Asker;
use super::ground::{Fleet, SERVERS, server_name};
use super::history::{Action, Cut, Outcome, Recorder, Version};
use crate::fleet::{copy_keyring, storage};

/// Bytes of one value that fills etcd.
const FILLING_BYTES: usize = 1024 * 1024;

/// The clock of a server is wrong by less than this.
const MAX_STEP_SECONDS: u64 = 2 * 60 * 60;

/// Revisions of etcd that a restore with a bump skips, in addition to the lost ones.
const BUMP: u64 = 500;

/// Puts that a bump sends at the same time.
const BUMP_WIDTH: u64 = 16;

/// A fault, or a change that clients must not notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nemesis {
    /// A server is killed and started again.
    KillServer,
    /// A server's process is stopped for a while.
    PauseServer,
    /// A member of etcd is killed and started again.
    KillMember,
    /// The same with the leader.
    KillLeader,
    /// A server does not reach some or all members of etcd.
    SplitServer,
    /// A member of etcd does not reach the others.
    SplitMember,
    /// All of these at once: a server is killed, another one is paused, the third one does not reach some members of etcd,
    /// and a member is killed.
    Together,
    /// The history of etcd is removed while a server lags behind.
    Compact,
    /// The clock of a server is wrong for a while. This needs `POSTERN_TEST_FAKETIME`.
    StepClock,
    /// The fleet gets a new at-rest key, and all values are rewrapped.
    RotateKey,
    /// The storage of etcd is full.
    Fill,
    /// An older state of etcd is restored, and its revision goes back.
    Restore,
    /// An older state of etcd is restored with a greater revision.
    RestoreWithBump,
}

/// The parts that a nemesis works with.
pub(crate) struct Scene<'a> {
    pub(crate) fleet: &'a mut Fleet,
    pub(crate) recorder: &'a Recorder,
    pub(crate) writing: &'a Arc<RwLock<()>>,
    pub(crate) random: &'a mut Random,
    pub(crate) longest: Duration,
}

impl Nemesis {
    pub(crate) const ALL: &[Self] = &[
        Self::KillServer,
        Self::PauseServer,
        Self::KillMember,
        Self::KillLeader,
        Self::SplitServer,
        Self::SplitMember,
        Self::Together,
        Self::Compact,
        Self::StepClock,
        Self::RotateKey,
        Self::Fill,
        Self::Restore,
        Self::RestoreWithBump,
    ];

    /// Begins the fault, and ends it.
    pub(crate) async fn run(self, scene: &mut Scene<'_>) {
        match self {
            Self::KillServer => kill_server(scene).await,
            Self::PauseServer => pause_server(scene).await,
            Self::KillMember => {
                let member = scene.below(MEMBERS);
                kill_member(scene, member).await;
            }
            Self::KillLeader => {
                let leader = scene.fleet.etcd.leader().await.unwrap_or(0);
                kill_member(scene, leader).await;
            }
            Self::SplitServer => split_server(scene).await,
            Self::SplitMember => split_member(scene).await,
            Self::Together => together(scene).await,
            Self::Compact => compact(scene).await,
            Self::StepClock => step_clock(scene).await,
            Self::RotateKey => rotate_key(scene).await,
            Self::Fill => fill(scene).await,
            Self::Restore => restore(scene, false).await,
            Self::RestoreWithBump => restore(scene, true).await,
        }
    }
}

impl Scene<'_> {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).unwrap()
    }

    fn note(&self, note: &str) {
        self.recorder.note(note);
    }

    /// Lets a fault last.
    async fn last(&mut self) {
        let millis = u64::try_from(self.longest.as_millis()).unwrap();
        sleep(Duration::from_millis(millis / 4 + self.random.below(millis * 3 / 4))).await;
    }
}

async fn kill_server(scene: &mut Scene<'_>) {
    let number = scene.below(SERVERS);
    scene.note(&format!("server {number} is killed"));
    scene.fleet.kill_server(number);
    scene.last().await;
    scene.fleet.start_server(number).await;
}

async fn pause_server(scene: &mut Scene<'_>) {
    let number = scene.below(SERVERS);
    scene.note(&format!("server {number} is paused"));
    scene.fleet.signal(number, Signal::STOP);
    scene.last().await;
    scene.fleet.signal(number, Signal::CONT);
}

async fn kill_member(scene: &mut Scene<'_>, member: usize) {
    scene.note(&format!("member {member} is killed"));
    scene.fleet.etcd.kill(member);
    scene.last().await;
    scene.fleet.etcd.start_member(member);
}

fn any_fault(scene: &mut Scene<'_>) -> Link {
    if scene.below(2) == 0 { Link::Cut } else { Link::Stalled }
}

async fn split_server(scene: &mut Scene<'_>) {
    let server = scene.below(SERVERS);
    cut_off(scene, server);
    scene.last().await;
    scene.fleet.links.open_all();
}

/// A server does not reach some members of etcd.
fn cut_off(scene: &mut Scene<'_>, server: usize) {
    let link = any_fault(scene);
    // The fault affects one, two or all members.
    let (first, count) = (scene.below(MEMBERS), 1 + scene.below(MEMBERS));
    scene.note(&format!("server {server}: {count} members from {first} are {link:?}"));
    for member in 0..count {
        let member = member_name((first + member) % MEMBERS);
        scene.fleet.links.set(&server_name(server), &member, link);
    }
}

/// Faults that begin one after the other, and overlap.
async fn together(scene: &mut Scene<'_>) {
    let (killed, member) = (scene.below(SERVERS), scene.below(MEMBERS));
    let (paused, cut) = ((killed + 1) % SERVERS, (killed + 2) % SERVERS);
    cut_off(scene, cut);
    scene.last().await;
    scene.note(&format!(
        "server {killed} and member {member} are killed, server {paused} is paused"
    ));
    scene.fleet.kill_server(killed);
    scene.fleet.etcd.kill(member);
    scene.fleet.signal(paused, Signal::STOP);
    scene.last().await;
    scene.fleet.links.open_all();
    scene.fleet.signal(paused, Signal::CONT);
    scene.last().await;
    scene.fleet.etcd.start_member(member);
    scene.fleet.start_server(killed).await;
}

async fn split_member(scene: &mut Scene<'_>) {
    let (member, link) = (scene.below(MEMBERS), any_fault(scene));
    scene.note(&format!("member {member}: the others are {link:?}"));
    for other in (0..MEMBERS).filter(|other| *other != member) {
        scene.fleet.links.set(&member_name(member), &member_name(other), link);
    }
    scene.last().await;
    scene.fleet.links.open_all();
}

async fn compact(scene: &mut Scene<'_>) {
    let server = scene.below(SERVERS);
    scene.note(&format!("history is removed while server {server} is paused"));
    scene.fleet.signal(server, Signal::STOP);
    // Changes on the way are lost, so that the server really lags behind.
    scene.fleet.set_links(server, Link::Cut);
    scene.last().await;
    let revision = scene.fleet.etcd.revision().await;
    scene.fleet.etcd.compact(revision).await;
    scene.fleet.links.open_all();
    scene.fleet.signal(server, Signal::CONT);
}

async fn step_clock(scene: &mut Scene<'_>) {
    let number = scene.below(SERVERS);
    let seconds = i64::try_from(scene.random.below(2 * MAX_STEP_SECONDS)).unwrap();
    let seconds = seconds - i64::try_from(MAX_STEP_SECONDS).unwrap();
    scene.note(&format!("the clock of server {number} is set by {seconds} s"));
    scene.fleet.step_clock(number, seconds);
    scene.last().await;
    scene.fleet.step_clock(number, 0);
}

/// Adds an at-rest key on one server, copies the keyring to the others, and rewraps on one of them.
async fn rotate_key(scene: &mut Scene<'_>) {
    let first = scene.below(SERVERS);
    scene.note(&format!("server {first} gets a new at-rest key"));
    let homes: Vec<&Home> = (0..SERVERS).map(|number| scene.fleet.home(number)).collect();
    storage(homes[first], &["rotate-key"]).await.unwrap();
    for other in (0..SERVERS).filter(|other| *other != first) {
        copy_keyring(homes[first], homes[other]);
    }
    let last = homes[(first + 1) % SERVERS];
    wait::until("the new key to become active", async || {
        (storage(last, &["rewrap"]).await.unwrap() != "0").then_some(())
    })
    .await;
}

/// Fills etcd until it takes no write, and makes room again.
async fn fill(scene: &mut Scene<'_>) {
    scene.note("etcd is filled");
    let etcd = &scene.fleet.etcd;
    let value = STANDARD.encode(vec![b'x'; FILLING_BYTES]);
    let key = STANDARD.encode("/filling");
    let body = json!({ "key": key, "value": value });
    let mut is_full = false;
    while !is_full {
        let put = etcd.call(0, "kv/put", &body).await;
        is_full = put.is_err_and(|error| error.contains("space exceeded"));
    }
    scene.last().await;
    scene.note("etcd gets room again");
    let etcd = &scene.fleet.etcd;
    etcd.call_any("kv/deleterange", &json!({ "key": key })).await;
    let revision = etcd.revision().await;
    etcd.compact(revision).await;
    for member in 0..MEMBERS {
        etcd.call(member, "maintenance/defragment", &json!({})).await.unwrap();
    }
    let alarms = etcd.call_any("maintenance/alarm", &json!({ "action": "GET" })).await;
    for alarm in alarms["alarms"].as_array().into_iter().flatten() {
        let body = json!({
            "action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"],
        });
        etcd.call_any("maintenance/alarm", &body).await;
    }
}

/// Saves the state, lets the clients write on, and goes back.
async fn restore(scene: &mut Scene<'_>, with_bump: bool) {
    let kept = save(scene).await;
    scene.last().await;
    let quiet = Arc::clone(scene.writing).write_owned().await;
    let last = newest(scene).await;
    let before = scene.fleet.etcd.revision().await;
    scene.note(&format!("etcd goes back, with a bump: {with_bump}"));
    let began = scene.recorder.now();
    if with_bump {
        for server in 0..SERVERS {
            scene.fleet.set_links(server, Link::Cut);
        }
    }
    scene.fleet.etcd.restore().await;
    if with_bump {
        bump(scene, before + BUMP).await;
    }
    scene.fleet.links.open_all();
    scene.fleet.wait_until_well().await;
    let ended = scene.recorder.now();
    scene.recorder.cut(Cut { kept, last, began, ended });
    scene.note("etcd has gone back");
    drop(quiet);
}

/// Saves the state of etcd while no client writes. Returns its newest version.
async fn save(scene: &mut Scene<'_>) -> Version {
    let quiet = Arc::clone(scene.writing).write_owned().await;
    let version = newest(scene).await;
    scene.note("etcd is saved");
    scene.fleet.etcd.save().await;
    scene.fleet.wait_until_well().await;
    drop(quiet);
    version
}

/// The newest version, once all is well.
async fn newest(scene: &mut Scene<'_>) -> Version {
    scene.fleet.wait_until_well().await;
    let mut asker = Asker::new("saver", &scene.fleet.addresses, scene.recorder);
    let Some(Outcome::Listed { version, .. }) = asker.ask(0, Action::List).await else {
        panic!("a server that is well lists");
    };
    version
}

/// Raises the revision of etcd, and removes the history before it, as etcd's own restore can.
async fn bump(scene: &mut Scene<'_>, to: u64) {
    let body = json!({ "key": STANDARD.encode("/bump"), "value": STANDARD.encode("x") });
    let etcd = &scene.fleet.etcd;
    loop {
        let missing = to.saturating_sub(etcd.revision().await);
        if missing == 0 {
            break;
        }
        let puts = (0..missing.min(BUMP_WIDTH)).map(|_| etcd.call(0, "kv/put", &body));
        futures_util::future::join_all(puts).await;
    }
    let revision = etcd.revision().await;
    etcd.compact(revision).await;
}
