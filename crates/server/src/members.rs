//! This server as one of several on a store. It announces itself, and divides the limits of owners among all servers. With
//! the others, it rotates the at-rest key and raises the format.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use postern_flow::Flow;
use postern_registry::registry::{Registry, format};
use postern_store::seal::{KeyId, Sealed};
use postern_store::{ClockOffset, Fleet, Member, Store as _, clock_deviation};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::keyring::KeySource;

/// The interval in which the keyring is read again.
const KEYRING_INTERVAL: Duration = Duration::from_secs(2);

/// The keyring is read so many times between two checks that the next start can use it.
const READS_PER_CHECK: u64 = 5;

/// How long all servers must have held the prepared key before it becomes active, or must have
/// known a newer format. A server that does not respond is no longer a member after half of this
/// time. So the decision also includes a server that was cut off for a moment.
const STABLE_TIME: Duration = Duration::from_secs(12);

/// The membership of this server among the servers that share the store.
pub(crate) struct Membership {
    /// The id of this server.
    pub(crate) id: Arc<str>,
    /// The address at which the others reach it.
    pub(crate) address: String,
    /// The store.
    pub(crate) sealed: Arc<Sealed>,
    /// Where the at-rest keys come from.
    pub(crate) keys: KeySource,
    /// The at-rest keys that the others know of.
    pub(crate) announced_keys: Mutex<Vec<String>>,
    /// Gets the reason if this server may no longer use the store.
    pub(crate) unusable: watch::Sender<Option<String>>,
}

impl Membership {
    /// Announces this server to the others that share its store. Does nothing if it has the store for itself.
    ///
    /// # Errors
    /// The errors of the store; an error if the others have raised the format in the meantime.
    pub(crate) async fn announce(&self) -> anyhow::Result<()> {
        let keys = self.sealed.key_ids();
        if let Some(fleet) = self.sealed.fleet() {
            let me = Member {
                id: self.id.clone(),
                address: self.address.clone(),
                format: format::NEWEST,
                seal_keys: keys.clone(),
            };
            fleet.join(me).await.context("cannot announce this server to the others")?;
        }
        *self.announced_keys.lock() = keys;
        // The others may have raised the format before they knew of this server.
        format::check(self.sealed.as_ref()).await
    }

    /// Reads the keyring again, and uses it if it has changed.
    async fn read_keyring(&self) -> anyhow::Result<()> {
        let _changing = self.sealed.lock_keyring().await;
        let keyring = self.keys.load(&self.sealed).await?;
        if self.sealed.has_changed(&keyring) {
            // On a shared store, the marker shows whether a keyring lacks the key in use.
            anyhow::ensure!(
                self.sealed.fleet().is_some() || self.sealed.is_current_key_in(&keyring),
                "the keyring {} lacks the key that this server encrypts with: put that key back; until then, the server \
                 goes on with the keyring that it has",
                self.keys.name()
            );
            self.sealed.use_keyring(keyring).await?;
        }
        Ok(())
    }

    /// Reads the keyring again. Announces this server again if its at-rest keys have changed, by a new keyring or by the
    /// administrator's command.
    async fn follow_keyring(&self) -> anyhow::Result<()> {
        self.read_keyring().await.context("the keyring cannot be read again")?;
        let keys = self.sealed.key_ids();
        if *self.announced_keys.lock() != keys {
            self.announce().await?;
            tracing::info!(?keys, "this server has announced its at-rest keys");
        }
        Ok(())
    }

    /// Ends this server if the others write a newer format than it knows. They raise it only while
    /// this server is not a member. This server may have been stopped for a while, and come back.
    async fn check_format(&self) {
        if self.sealed.fleet().is_none() {
            return;
        }
        match format::check(self.sealed.as_ref()).await {
            Err(error) if !error.is::<postern_store::Error>() => {
                self.unusable.send_replace(Some(format!("{error:#}")));
            }
            // The store is unreachable, or a key is missing. Other code reports both.
            _ => {}
        }
    }

    /// Ends this server when the store was moved or removed, and the others may go on with another one. The engine finds
    /// that out at its next look at the store, also after a pause.
    async fn end_with_store(&self) {
        let Some(mut gone) = self.sealed.fleet().map(Fleet::gone) else { return };
        let reason = gone.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        if let Some(reason) = reason {
            self.unusable.send_replace(Some(reason.to_string()));
        }
    }

    /// Keeps the keyring up to date with its source. When all servers have held the prepared key for a while, it becomes
    /// active. Ends this server when the store is gone. Runs until it is dropped.
    pub(crate) async fn rotate(self: Arc<Self>) {
        tokio::join!(self.end_with_store(), self.rotate_keys());
    }

    async fn rotate_keys(&self) {
        let mut ticks = tokio::time::interval(KEYRING_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut held_since: Option<(KeyId, Instant)> = None;
        let mut last_error = String::new();
        for read in 0_u64.. {
            ticks.tick().await;
            self.check_format().await;
            if read.is_multiple_of(READS_PER_CHECK)
                && let Err(error) = self.keys.check(&self.sealed).await
            {
                tracing::warn!("this server continues, but the next start would fail: {error:#}");
            }
            if let Err(error) = self.follow_keyring().await {
                let error = format!("{error:#}");
                // An error that lasts is logged once.
                if error != last_error {
                    tracing::warn!("{error}");
                    last_error = error;
                }
                continue;
            }
            last_error.clear();
            let prepared = self.sealed.prepared_key();
            let prepared = prepared.filter(|key| self.all_servers_have(*key));
            held_since = match (prepared, held_since) {
                (Some(key), Some((known, since))) if key == known => Some((key, since)),
                (prepared, _) => prepared.map(|key| (key, Instant::now())),
            };
            if held_since.is_some_and(|(_, since)| since.elapsed() >= STABLE_TIME) {
                held_since = None;
                self.activate().await;
            }
        }
    }

    /// Whether all servers have an at-rest key. Not known while this server itself is not announced: then others may not
    /// be, either.
    fn all_servers_have(&self, key: KeyId) -> bool {
        let Some(fleet) = self.sealed.fleet() else { return true };
        let (members, key) = (fleet.members(), key.to_string());
        let members = members.borrow();
        members.iter().any(|member| member.id == self.id)
            && members.iter().all(|member| member.seal_keys.contains(&key))
    }

    async fn activate(&self) {
        match self.sealed.activate_prepared_key().await {
            Ok(()) => tracing::info!("new values are encrypted with another at-rest key"),
            Err(error) => {
                tracing::warn!("the prepared at-rest key cannot be made active: {error}");
            }
        }
    }
}

/// The time between two comparisons of the clocks.
const CLOCKS_INTERVAL: Duration = Duration::from_secs(5);

/// A clock that is further from those of most servers is in the log.
const CLOCK_WARNING_MILLISECONDS: i64 = 10_000;

/// The least number of other clocks that can tell which one is wrong: of two clocks, either may be.
const LEAST_OTHER_CLOCKS: usize = 2;

/// Compares the clock of this server with those of the others. Runs until it is dropped.
pub(crate) async fn follow_clocks(registry: Arc<Registry>) {
    let mut is_warned = false;
    loop {
        tokio::time::sleep(CLOCKS_INTERVAL).await;
        let Some(fleet) = registry.store().fleet() else { return };
        let peers = fleet.peers();
        let deviation = clock_deviation(&peers).map(certain_milliseconds);
        let others = peers.iter().filter(|peer| peer.clock.is_some()).count();
        registry.servers().set_clock(deviation, others >= LEAST_OTHER_CLOCKS);
        let is_far = deviation.is_some_and(|off| off.abs() > CLOCK_WARNING_MILLISECONDS);
        if is_far && !is_warned {
            tracing::warn!(
                milliseconds = deviation,
                "the clock of this server differs from those of the other servers: synchronize it"
            );
        }
        is_warned = is_far;
    }
}

/// The part of a deviation that is certain.
fn certain_milliseconds(deviation: ClockOffset) -> i64 {
    let error = i64::try_from(deviation.error_milliseconds).unwrap_or(i64::MAX);
    let certain = deviation.milliseconds.saturating_abs().saturating_sub(error).max(0);
    certain * deviation.milliseconds.signum()
}

/// Divides the limits of owners among all servers, whenever their number changes. When all servers can write a newer
/// format, it becomes the format of the store. Runs until it is dropped.
pub(crate) async fn follow(registry: Arc<Registry>, flow: Arc<Flow>) {
    let Some(mut members) = registry.servers().members() else {
        return std::future::pending().await;
    };
    let mut known = 0;
    loop {
        let (count, can_write) = {
            let members = members.borrow_and_update();
            let oldest = members.iter().map(|member| member.format).min();
            (members.len(), oldest.is_some_and(|oldest| oldest >= format::NEWEST))
        };
        flow.divide_among(count);
        if count != known {
            tracing::info!(servers = count, "servers share the store");
            known = count;
        }
        // A server that was cut off for a moment may come back with an older version.
        if tokio::time::timeout(STABLE_TIME, members.changed()).await.is_ok() {
            continue;
        }
        if can_write && let Err(error) = format::raise(&**registry.store()).await {
            tracing::warn!("the format of the store cannot be raised: {error:#}");
            continue;
        }
        if members.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postern_store::hostile::{Faults, Remote};
    use postern_store::seal::Keyring;
    use postern_store::{Change, Txn};

    use super::*;
    use crate::KeyringSetting;
    use crate::data_dir::DataDir;

    async fn write_format(sealed: &Sealed, record: &'static str) {
        let value = Bytes::from_static(record.as_bytes());
        let change = Change::Put { key: "/postern/format".into(), value };
        sealed.commit(Txn { conditions: vec![], changes: vec![change] }).await.unwrap();
    }

    async fn membership(remote: &Arc<Remote>, home: &tempfile::TempDir) -> Membership {
        let sealed = Sealed::open(remote.connect(), Keyring::generate().unwrap()).await.unwrap();
        let dir = DataDir::open(home.path(), None).unwrap();
        Membership {
            id: "a".into(),
            address: "a:1".to_owned(),
            sealed: Arc::new(sealed),
            keys: KeySource::new(&KeyringSetting::KeyDirectory, &dir),
            announced_keys: Mutex::default(),
            unusable: watch::Sender::new(None),
        }
    }

    #[tokio::test]
    async fn a_server_ends_when_the_format_has_risen_beyond_it() {
        let remote = Remote::new(Faults::default());
        let home = tempfile::tempdir().unwrap();
        let membership = membership(&remote, &home).await;
        write_format(&membership.sealed, "1").await;
        membership.check_format().await;
        assert_eq!(*membership.unusable.borrow(), None);
        write_format(&membership.sealed, r#"{"current":2,"minReader":1,"minWriter":2}"#).await;
        membership.check_format().await;
        let reason = membership.unusable.borrow().clone().unwrap();
        assert!(reason.contains("has format 2, and this server knows formats up to 1"), "{reason}");
    }

    #[tokio::test]
    async fn a_key_counts_as_that_of_all_only_while_this_server_is_announced() {
        let remote = Remote::new(Faults::default());
        let home = tempfile::tempdir().unwrap();
        let membership = membership(&remote, &home).await;
        let key = membership.sealed.active_key();
        let member = |id: &str, keys: Vec<String>| Member {
            id: id.into(),
            address: format!("{id}:1"),
            format: format::NEWEST,
            seal_keys: keys,
        };
        let fleet = membership.sealed.fleet().unwrap();
        assert!(!membership.all_servers_have(key), "no server is announced");
        let other = remote.connect();
        let others = other.fleet().unwrap();
        others.join(member("b", vec![key.to_string()])).await.unwrap();
        assert!(!membership.all_servers_have(key), "this server is not announced");
        fleet.join(member("a", vec![key.to_string()])).await.unwrap();
        assert!(membership.all_servers_have(key));
        others.join(member("b", Vec::new())).await.unwrap();
        assert!(!membership.all_servers_have(key), "another one lacks it");
    }

    #[tokio::test]
    async fn a_server_ends_when_the_store_was_moved() {
        let remote = Remote::new(Faults::default());
        let home = tempfile::tempdir().unwrap();
        let membership = Arc::new(membership(&remote, &home).await);
        let mut reason = membership.unusable.subscribe();
        remote.move_away("moved to another place");
        tokio::select! {
            () = membership.rotate() => panic!("it does not end by itself"),
            told = reason.wait_for(Option::is_some) => {
                assert_eq!(told.unwrap().as_deref(), Some("moved to another place"));
            }
        }
    }
}
