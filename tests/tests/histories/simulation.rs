//! A store in memory that keeps all promises, and clients of it: histories that have to pass the checker.

use postern_tests::Random;

use super::checker::GUARDED;
use super::history::{
    Action, Cut, End, Event, History, Item, Kind, Moment, Operation, Outcome, Recorder, Session,
    Start, Version,
};

const CLIENTS: usize = 6;
const WATCHERS: usize = 3;
const NAMES: u64 = 4;

/// The user that needs a grant.
pub(crate) const USER: &str = "eve";

/// A client, and how far its request is.
#[derive(Clone, Default)]
struct Client {
    invoked: Option<(Moment, Action)>,
    outcome: Option<Outcome>,
}

/// A watcher, and how many changes it has seen.
struct Watcher {
    seen: usize,
    session: Session,
}

/// A change that was committed.
#[derive(Clone)]
struct Change {
    version: Version,
    kind: Kind,
    name: String,
    value: String,
}

pub(crate) struct Simulation {
    random: Random,
    recorder: Recorder,
    version: Version,
    changes: Vec<Change>,
    objects: Vec<Item>,
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
    user: Watcher,
    has_grant: bool,
    values: u64,
}

impl Simulation {
    /// A history of this many steps.
    pub(crate) fn run(seed: u64, steps: usize) -> History {
        let mut simulation = Self::new(seed);
        for _ in 0..steps {
            simulation.step();
        }
        simulation.finish()
    }

    /// Two halves, with a restore between them of the state in the midst of the first.
    pub(crate) fn run_with_restore(seed: u64, steps: usize) -> History {
        let mut simulation = Self::new(seed);
        for step in 0..steps {
            simulation.step();
            if step == steps / 4 {
                simulation.complete_all();
            }
        }
        simulation.complete_all();
        simulation.withdraw();
        // The clients have seen all that they build on.
        simulation.deliver_all();
        let middle = simulation.changes[simulation.changes.len() / 2].version;
        simulation.restore(middle);
        for _ in 0..steps {
            simulation.step();
        }
        simulation.finish()
    }

    fn new(seed: u64) -> Self {
        let recorder = Recorder::default();
        let session = |watcher: &str, user: Option<&str>| Session {
            watcher: watcher.to_owned(),
            server: 0,
            user: user.map(str::to_owned),
            start: Start::Listed,
            after: 0,
            opened: 0,
            events: Vec::new(),
            end: End::Closed,
        };
        let watcher =
            |number| Watcher { seen: 0, session: session(&format!("watcher {number}"), None) };
        let mut simulation = Self {
            random: Random::new(seed),
            recorder,
            version: 256,
            changes: Vec::new(),
            objects: Vec::new(),
            clients: vec![Client::default(); CLIENTS],
            watchers: (0..WATCHERS).map(watcher).collect(),
            user: Watcher { seen: 0, session: session(USER, Some(USER)) },
            has_grant: false,
            values: 0,
        };
        let value = simulation.value();
        simulation.at_once(&Action::Create { name: GUARDED.to_owned(), value });
        simulation
    }

    fn value(&mut self) -> String {
        self.values += 1;
        format!("v{}", self.values)
    }

    fn step(&mut self) {
        match self.random.below(10) {
            0..=6 => {
                let number = usize::try_from(self.random.below(CLIENTS as u64)).unwrap();
                self.advance(number);
            }
            _ => self.deliver(),
        }
    }

    /// Lets a client begin, have an effect, or end.
    fn advance(&mut self, number: usize) {
        let mut client = std::mem::take(&mut self.clients[number]);
        match (&client.invoked, &client.outcome) {
            (None, _) => client.invoked = Some((self.recorder.now(), self.action(number))),
            (Some((_, action)), None) => client.outcome = Some(self.effect(&action.clone())),
            (Some(_), Some(_)) => return self.complete(number, client),
        }
        self.clients[number] = client;
    }

    fn complete(&mut self, number: usize, client: Client) {
        let (Some((invoked, action)), Some(outcome)) = (client.invoked, client.outcome) else {
            return;
        };
        let client = format!("client {number}");
        let completed = self.recorder.now();
        self.recorder.operation(Operation {
            client,
            server: number % 3,
            invoked,
            completed,
            action,
            outcome,
        });
    }

    fn complete_all(&mut self) {
        for number in 0..CLIENTS {
            while self.clients[number].invoked.is_some() {
                self.advance(number);
            }
        }
    }

    fn at_once(&mut self, action: &Action) -> Outcome {
        let invoked = Some((self.recorder.now(), action.clone()));
        let outcome = self.effect(action);
        self.complete(0, Client { invoked, outcome: Some(outcome.clone()) });
        outcome
    }

    fn action(&mut self, number: usize) -> Action {
        let name = format!("n{}", self.random.below(NAMES));
        if number == 0 {
            let user = USER.to_owned();
            return if self.has_grant { Action::Withdraw { user } } else { Action::Grant { user } };
        }
        let now = self.objects.iter().find(|item| item.name == name).map(|item| item.version);
        match (self.random.below(10), now) {
            (0, _) => Action::List,
            (1..=2, _) => Action::Get { name },
            (3, _) => Action::GetAs { user: USER.to_owned() },
            (4, _) => Action::Update { name: GUARDED.to_owned(), value: self.value(), from: None },
            (_, None) => Action::Create { name, value: self.value() },
            (5..=7, from) => Action::Update { name, value: self.value(), from },
            (8, _) => Action::Update { name, value: self.value(), from: None },
            (_, Some(from)) => Action::Delete { name, from },
        }
    }

    fn effect(&mut self, action: &Action) -> Outcome {
        let outcome = self.answer(action);
        let is_write = matches!(outcome, Outcome::Written(_) | Outcome::Done);
        let is_of_user = matches!(action, Action::Grant { .. } | Action::Withdraw { .. });
        if is_write && !is_of_user && self.random.below(8) == 0 {
            return Outcome::Unknown("the answer was lost".to_owned());
        }
        outcome
    }

    fn answer(&mut self, action: &Action) -> Outcome {
        let find =
            |objects: &[Item], name: &str| objects.iter().position(|item| item.name == *name);
        match action {
            Action::Create { name, .. } if find(&self.objects, name).is_some() => {
                Outcome::Refused(409)
            }
            Action::Create { name, value } => {
                let version = self.commit(Kind::Added, name, value);
                self.objects.push(Item { name: name.clone(), version, value: value.clone() });
                Outcome::Written(version)
            }
            Action::Update { name, value, from } => {
                let Some(found) = find(&self.objects, name) else { return Outcome::Refused(404) };
                if from.is_some_and(|from| from != self.objects[found].version) {
                    return Outcome::Refused(409);
                }
                let version = self.commit(Kind::Modified, name, value);
                self.objects[found] = Item { name: name.clone(), version, value: value.clone() };
                Outcome::Written(version)
            }
            Action::Delete { name, from } => {
                let Some(found) = find(&self.objects, name) else { return Outcome::Refused(404) };
                if *from != self.objects[found].version {
                    return Outcome::Refused(409);
                }
                let item = self.objects.remove(found);
                self.commit(Kind::Deleted, name, &item.value);
                Outcome::Done
            }
            Action::Get { name } => self.get(name),
            Action::List => {
                Outcome::Listed { version: self.version + 255, items: self.objects.clone() }
            }
            Action::GetAs { .. } if self.has_grant => self.get(GUARDED),
            Action::GetAs { .. } => Outcome::Absent,
            Action::Grant { .. } => {
                self.has_grant = true;
                self.version += 256;
                self.user.seen = self.changes.len();
                Outcome::Written(self.version)
            }
            Action::Withdraw { .. } => {
                self.has_grant = false;
                self.version += 256;
                Outcome::Done
            }
        }
    }

    fn get(&self, name: &str) -> Outcome {
        let found = self.objects.iter().find(|item| item.name == *name);
        found.map_or(Outcome::Absent, |item| Outcome::Found {
            version: item.version,
            value: item.value.clone(),
        })
    }

    fn commit(&mut self, kind: Kind, name: &str, value: &str) -> Version {
        self.version += 256;
        let (version, name, value) = (self.version, name.to_owned(), value.to_owned());
        self.changes.push(Change { version, kind, name, value });
        version
    }

    /// Delivers a change to a watcher, or ends its stream.
    fn deliver(&mut self) {
        let number = usize::try_from(self.random.below(WATCHERS as u64 + 1)).unwrap();
        let seen = self.recorder.now();
        let event = |change: &Change| Event {
            seen,
            kind: change.kind,
            name: change.name.clone(),
            version: change.version,
            value: change.value.clone(),
        };
        let Some(watcher) = self.watchers.get_mut(number) else {
            if let Some(change) = self.changes.get(self.user.seen).filter(|_| self.has_grant) {
                self.user.seen += 1;
                if change.name == GUARDED {
                    self.user.session.events.push(event(change));
                }
            }
            return;
        };
        if self.random.below(20) == 0 {
            let after =
                watcher.session.events.last().map_or(watcher.session.after, |one| one.version);
            let next = Session {
                after,
                start: Start::Resumed,
                opened: seen,
                events: Vec::new(),
                ..watcher.session.clone()
            };
            self.recorder.session(std::mem::replace(&mut watcher.session, next));
        } else if let Some(change) = self.changes.get(watcher.seen) {
            watcher.seen += 1;
            watcher.session.events.push(event(change));
        }
    }

    fn deliver_all(&mut self) {
        while self.watchers.iter().any(|watcher| watcher.seen < self.changes.len()) {
            self.deliver();
        }
    }

    fn withdraw(&mut self) {
        if self.has_grant {
            self.at_once(&Action::Withdraw { user: USER.to_owned() });
        }
    }

    /// Goes back to the state at a version.
    fn restore(&mut self, kept: Version) {
        let (began, last) = (self.recorder.now(), self.version + 255);
        let survives = |change: &Change| change.version <= kept;
        let changes: Vec<Change> =
            self.changes.iter().filter(|one| survives(one)).cloned().collect();
        self.objects.clear();
        for change in &changes {
            self.objects.retain(|item| item.name != change.name);
            if change.kind != Kind::Deleted {
                let (name, value) = (change.name.clone(), change.value.clone());
                self.objects.push(Item { name, version: change.version, value });
            }
        }
        self.version += 1 << 20;
        let ended = self.recorder.now();
        self.recorder.cut(Cut { kept, last, began, ended });
        self.changes = changes;
        for watcher in self.watchers.iter_mut().chain([&mut self.user]) {
            let next = Session {
                after: self.version,
                start: Start::Listed,
                opened: ended,
                events: Vec::new(),
                ..watcher.session.clone()
            };
            let before = std::mem::replace(&mut watcher.session, next);
            self.recorder.session(Session { end: End::Expired, ..before });
            watcher.seen = self.changes.len();
        }
    }

    fn finish(mut self) -> History {
        self.complete_all();
        let value = self.value();
        let last = self.at_once(&Action::Create { name: "last".to_owned(), value });
        self.deliver_all();
        self.at_once(&Action::List);
        for watcher in self.watchers {
            self.recorder.session(watcher.session);
        }
        self.recorder.session(self.user.session);
        let mut history = self.recorder.history();
        // A lost response contains no version, but the change exists.
        history.last = match last {
            Outcome::Written(version) => version,
            _ => self.changes.last().map_or(0, |change| change.version),
        };
        history
    }
}
