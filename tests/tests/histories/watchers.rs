//! Watchers: they follow all changes through the ends of streams and of servers, and list again only after a 410.

use std::sync::atomic::Ordering;
use std::time::Duration;

use postern_tests::Random;
use postern_tests::objects::{name_of, secrets, value_of};
use postern_tests::watching::{Event as RawEvent, Watch};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::clients::{Asker, NAMESPACE};
use super::history::{Action, End, Event, Kind, Outcome, Session, Start, Version};
use super::workload::Ground;

/// The pause before the next attempt at a server that does not answer.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest time of a stream, and how long one may be silent beyond that.
const MAX_SECONDS: u64 = 6;
const MAX_SILENCE: Duration = Duration::from_secs(20);

/// Where watchers begin, and the last version that they wait for, once it is known.
#[derive(Clone)]
pub(crate) struct Following {
    begin: Version,
    last: watch::Sender<Version>,
}

impl Following {
    pub(crate) fn new(begin: Version) -> Self {
        Self { begin, last: watch::Sender::new(Version::MAX) }
    }

    /// Lets the watchers end at a version.
    pub(crate) fn end_at(&self, last: Version) {
        self.last.send_replace(last);
    }

    fn is_over(&self, position: Version) -> bool {
        position >= *self.last.borrow()
    }
}

/// A client that watches.
pub(crate) struct Watcher {
    asker: Asker,
    /// The user, if it needs a grant.
    user: Option<String>,
    /// The server that it prefers.
    home: usize,
    random: Random,
    following: Following,
}

impl Watcher {
    pub(crate) fn new(
        asker: Asker,
        user: Option<String>,
        home: usize,
        random: Random,
        following: Following,
    ) -> Self {
        Self { asker, user, home, random, following }
    }

    /// Watches until the last version.
    pub(crate) async fn run(mut self) {
        let begin = self.following.begin;
        let mut position = Some((Start::Listed, begin));
        while position.is_none_or(|(_, at)| !self.following.is_over(at)) {
            position = self.follow(position).await;
        }
    }

    /// Watches while this user is the one with grants.
    pub(crate) async fn run_while(mut self, ground: Ground, number: usize) {
        let mut position = None;
        while !ground.is_over.load(Ordering::Relaxed) {
            if ground.user.load(Ordering::Relaxed) == number {
                position = self.follow(position).await;
            } else {
                sleep(PAUSE).await;
            }
        }
    }

    /// Follows one stream from a position, or from a list. Returns where to go on.
    async fn follow(&mut self, position: Option<(Start, Version)>) -> Option<(Start, Version)> {
        let server = match self.random.below(4) {
            0 => usize::try_from(self.random.below(self.asker.servers())).unwrap(),
            _ => self.home % usize::try_from(self.asker.servers()).unwrap(),
        };
        let Some((start, after)) = position else {
            let listed = self.list(server).await;
            if listed.is_none() {
                sleep(PAUSE).await;
            }
            return listed.map(|version| (Start::Listed, version));
        };
        let opened = self.asker.recorder.now();
        let watch = match self.open(server, after).await {
            Ok(watch) => watch,
            Err(why) if why.starts_with("410") => return None,
            Err(_) => {
                sleep(PAUSE).await;
                return position;
            }
        };
        let mut session = Session {
            watcher: self.asker.name.clone(),
            server,
            user: self.user.clone(),
            start,
            after,
            opened,
            events: Vec::new(),
            end: End::Closed,
        };
        session.end = self.read(watch, &mut session).await;
        let last = session.events.last().map_or(after, |event| event.version.max(after));
        let end = session.end;
        self.asker.recorder.session(session);
        (end == End::Closed).then_some((Start::Resumed, last))
    }

    async fn list(&mut self, server: usize) -> Option<Version> {
        // The list of a user is filtered, so it is not recorded as an operation.
        if self.user.is_some() {
            let client = self.asker.client(server)?;
            let reply = client.get(&secrets(NAMESPACE)).try_send();
            let reply = timeout(MAX_SILENCE, Box::pin(reply)).await.ok()?.ok()?;
            let Outcome::Listed { version, .. } =
                (reply.status == 200).then(|| super::clients::listed(&reply.json()))?
            else {
                return None;
            };
            return Some(version);
        }
        match self.asker.ask(server, Action::List).await {
            Some(Outcome::Listed { version, .. }) => Some(version),
            _ => None,
        }
    }

    async fn open(&mut self, server: usize, after: Version) -> Result<Watch, String> {
        let client = self.asker.client(server).ok_or("the server is down")?;
        let seconds = 1 + self.random.below(MAX_SECONDS);
        let query = format!(
            "?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={after}"
        );
        let path = format!("{}{query}", secrets(NAMESPACE));
        let opened = timeout(MAX_SILENCE, Box::pin(client.get(&path).try_stream())).await;
        opened.map_err(|_| "no answer in time".to_owned())?.map(Watch::new)
    }

    /// Reads a stream to its end, or to the last version.
    async fn read(&mut self, mut watch: Watch, session: &mut Session) -> End {
        let mut last = self.following.last.subscribe();
        loop {
            let position = session.events.last().map_or(session.after, |event| event.version);
            let read = tokio::select! {
                read = timeout(MAX_SILENCE, watch.try_next()) => read,
                Ok(_) = last.wait_for(|last| position >= *last) => return End::Closed,
            };
            let Ok(Ok(Some(event))) = read else { return End::Closed };
            if event.kind == "ERROR" {
                return if event.object["code"] == 410 { End::Expired } else { End::Closed };
            }
            session.events.push(self.event(&event));
        }
    }

    fn event(&self, event: &RawEvent) -> Event {
        let kind = match event.kind.as_str() {
            "ADDED" => Kind::Added,
            "MODIFIED" => Kind::Modified,
            "DELETED" => Kind::Deleted,
            "BOOKMARK" => Kind::Bookmark,
            other => panic!("an event of the kind {other}"),
        };
        let is_object = kind != Kind::Bookmark;
        Event {
            seen: self.asker.recorder.now(),
            kind,
            name: if is_object { name_of(&event.object).to_owned() } else { String::new() },
            version: event.version(),
            value: if is_object { value_of(&event.object) } else { String::new() },
        }
    }
}
