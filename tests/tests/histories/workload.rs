//! The operations of the fleet's clients, until they are told to stop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postern_tests::Random;
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::checker::GUARDED;
use super::clients::{Addresses, Asker};
use super::history::{Action, Outcome, Recorder, Version};
use super::watchers::{Following, Watcher};

/// The names that all writers share.
const NAMES: u64 = 8;
const WRITERS: u64 = 4;
const READERS: u64 = 3;

/// Users that can be given a grant, one after another.
pub(crate) const USERS: usize = 6;

/// The pause of a client after each request is below this.
const MAX_PAUSE_MILLIS: u64 = 60;

/// The common state of all clients.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) recorder: Recorder,
    pub(crate) is_over: Arc<AtomicBool>,
    /// Writers hold it for reading: with it for writing, there is no write.
    pub(crate) writing: Arc<RwLock<()>>,
    /// The number of the user that has grants at present.
    pub(crate) user: Arc<AtomicUsize>,
}

impl Ground {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn asker(&self, name: &str) -> Asker {
        Asker::new(name, &self.addresses, &self.recorder)
    }
}

/// The name of a user.
pub(crate) fn user_name(number: usize) -> String {
    format!("user-{number}")
}

/// The clients that run.
pub(crate) struct Workload {
    /// Writers and readers. They end when it is over.
    pub(crate) clients: JoinSet<()>,
    /// Watchers. They end at the last write.
    pub(crate) watchers: JoinSet<()>,
    pub(crate) following: Following,
}

/// Starts all clients. The keys are those of the users.
pub(crate) fn start(
    ground: &Ground,
    keys: &[String],
    after: Version,
    random: &mut Random,
) -> Workload {
    let (mut clients, mut watchers) = (JoinSet::new(), JoinSet::new());
    let mut draw = || Random::new(random.draw());
    for number in 0..WRITERS {
        let asker = ground.asker(&format!("writer {number}"));
        clients.spawn(
            Writer {
                ground: ground.clone(),
                asker,
                random: draw(),
                known: HashMap::new(),
                written: 0,
            }
            .run(),
        );
    }
    clients.spawn(keep(ground.clone(), ground.asker("keeper"), draw()));
    for number in 0..READERS {
        clients.spawn(read(ground.clone(), ground.asker(&format!("reader {number}")), draw()));
    }
    clients.spawn(grant(ground.clone(), ground.asker("granter"), draw()));
    let following = Following::new(after);
    for (number, key) in keys.iter().enumerate() {
        let mut asker = ground.asker(&user_name(number));
        asker.token = Some(key.clone());
        clients.spawn(read_as(ground.clone(), asker, draw(), number));
    }
    let servers = usize::try_from(ground.asker("").servers()).unwrap();
    for number in 0..servers {
        let asker = ground.asker(&format!("watcher {number}"));
        let watcher = Watcher::new(asker, None, number, draw(), following.clone());
        watchers.spawn(watcher.run());
    }
    for (number, key) in keys.iter().enumerate() {
        let mut asker = ground.asker(&format!("watcher of {}", user_name(number)));
        asker.token = Some(key.clone());
        let watcher =
            Watcher::new(asker, Some(user_name(number)), number, draw(), following.clone());
        watchers.spawn(watcher.run_while(ground.clone(), number));
    }
    Workload { clients, watchers, following }
}

async fn pause(random: &mut Random) {
    sleep(Duration::from_millis(random.below(MAX_PAUSE_MILLIS))).await;
}

fn any_server(asker: &Asker, random: &mut Random) -> usize {
    usize::try_from(random.below(asker.servers())).unwrap()
}

fn any_name(random: &mut Random) -> String {
    format!("n{}", random.below(NAMES))
}

/// A client that creates, changes and deletes.
struct Writer {
    ground: Ground,
    asker: Asker,
    random: Random,
    /// The version of each name when it was read last.
    known: HashMap<String, Version>,
    written: u64,
}

impl Writer {
    async fn run(mut self) {
        while self.ground.goes_on() {
            {
                let writing = Arc::clone(&self.ground.writing);
                let _writing = writing.read().await;
                self.write_once().await;
            }
            pause(&mut self.random).await;
        }
    }

    /// Reads a name at one server, and writes it at another one or the same.
    async fn write_once(&mut self) {
        let name = any_name(&mut self.random);
        let server = any_server(&self.asker, &mut self.random);
        // Now and then a version that is old, or of a name that is gone.
        let known = self.known.get(&name).copied().filter(|_| self.random.below(6) == 0);
        let version = match known {
            Some(known) => Some(known),
            None => match self.asker.ask(server, Action::Get { name: name.clone() }).await {
                Some(Outcome::Found { version, .. }) => Some(version),
                Some(Outcome::Absent) => None,
                _ => return,
            },
        };
        if let Some(version) = version {
            self.known.insert(name.clone(), version);
        }
        self.written += 1;
        let value = format!("{}-{}", self.asker.name.replace(' ', "-"), self.written);
        let action = match (version, self.random.below(10)) {
            (None, _) => Action::Create { name: name.clone(), value },
            (Some(from), 0..=2) => Action::Delete { name: name.clone(), from },
            (Some(_), 3..=4) => Action::Update { name: name.clone(), value, from: None },
            (from, _) => Action::Update { name: name.clone(), value, from },
        };
        let server = any_server(&self.asker, &mut self.random);
        let outcome = self.asker.ask(server, action).await;
        let Some(Outcome::Written(_) | Outcome::Done) = outcome else { return };
        // The next read at another server contains the acknowledged write.
        let server = any_server(&self.asker, &mut self.random);
        self.asker.ask(server, Action::Get { name }).await;
    }
}

/// Changes the guarded object, which is never deleted.
async fn keep(ground: Ground, mut asker: Asker, mut random: Random) {
    let mut written = 0;
    while ground.goes_on() {
        {
            let _writing = ground.writing.read().await;
            let server = any_server(&asker, &mut random);
            written += 1;
            let (name, value) = (GUARDED.to_owned(), format!("keeper-{written}"));
            asker.ask(server, Action::Update { name, value, from: None }).await;
        }
        pause(&mut random).await;
    }
}

async fn read(ground: Ground, mut asker: Asker, mut random: Random) {
    while ground.goes_on() {
        let server = any_server(&asker, &mut random);
        let action = match random.below(5) {
            0 => Action::List,
            _ => Action::Get { name: any_name(&mut random) },
        };
        asker.ask(server, action).await;
        pause(&mut random).await;
    }
}

/// Reads the guarded object as a user, while this user is the one with grants.
async fn read_as(ground: Ground, mut asker: Asker, mut random: Random, number: usize) {
    while ground.goes_on() {
        if ground.user.load(Ordering::Relaxed) == number {
            let server = any_server(&asker, &mut random);
            asker.ask(server, Action::GetAs { user: user_name(number) }).await;
        }
        pause(&mut random).await;
    }
}

/// Grants the user access and takes it away. A grant with an unknown outcome may still happen: then
/// the function goes on with another user.
async fn grant(ground: Ground, mut asker: Asker, mut random: Random) {
    while ground.goes_on() {
        let number = ground.user.load(Ordering::Relaxed);
        if number == USERS {
            return;
        }
        let writing = ground.writing.read().await;
        let user = user_name(number);
        let server = any_server(&asker, &mut random);
        let granted = asker.ask(server, Action::Grant { user: user.clone() }).await;
        if matches!(granted, Some(Outcome::Written(_))) {
            sleep(Duration::from_millis(200 + random.below(1_000))).await;
        }
        if granted.is_some() {
            withdraw(&mut asker, &mut random, &user).await;
        }
        if matches!(granted, Some(Outcome::Unknown(_))) {
            ground.user.store(number + 1, Ordering::Relaxed);
        }
        drop(writing);
        sleep(Duration::from_millis(100 + random.below(500))).await;
    }
}

/// Withdraws until a server has acknowledged it.
async fn withdraw(asker: &mut Asker, random: &mut Random, user: &str) {
    loop {
        let server = any_server(asker, random);
        let withdrawn = asker.ask(server, Action::Withdraw { user: user.to_owned() }).await;
        if withdrawn == Some(Outcome::Done) {
            return;
        }
        pause(random).await;
    }
}
