//! This server's knowledge of the others: their external URLs, and how far their clocks are from
//! its own.
//!
//! Each server writes its time into its announcement. This server looks each second, so it knows
//! between which two moments of this server's clock an announcement was written. The time between these
//! two moments is the error of the comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postern_store::{ClockOffset, Member, Peer};

/// A server writes its time at most so long before etcd has it: the longest time of a call. An etcd that is so slow that it
/// does the call later can add some seconds, until the next announcement.
const WRITE_MILLISECONDS: i64 = 2_000;

/// A comparison with a greater error says too little, and is not used.
const MAX_ERROR_MILLISECONDS: i64 = 4_000;

/// External URLs of which the log has warned.
const MAX_WARNINGS: usize = 16;

/// An announcement as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Announced {
    pub(crate) member: Member,
    /// `None` if the server has not introduced itself.
    pub(crate) external_url: Option<String>,
    /// The clock of the server when it wrote this.
    pub(crate) unix_milliseconds: Option<i64>,
    /// The revision of etcd of the first announcement.
    pub(crate) created: i64,
    /// The revision of etcd of this one.
    pub(crate) written: i64,
}

impl Announced {
    /// Whether this is another server than a member, at its address.
    pub(crate) fn has_address_of(&self, me: &Member) -> bool {
        self.member.id != me.id && self.member.address == me.address
    }
}

/// The other servers, as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    known: BTreeMap<Arc<str>, Known>,
    /// When the last look began.
    last_look: Option<i64>,
    warned: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Known {
    peer: Peer,
    written: i64,
}

impl Peers {
    /// The other servers.
    pub(crate) fn peers(&self) -> Vec<Peer> {
        self.known.values().map(|known| known.peer.clone()).collect()
    }

    /// Notes the announcements that a look has found. `own` is the id of this server. `look` has
    /// the moments of this server's clock at which the look began and ended, if it has a clock.
    pub(crate) fn note(&mut self, announced: &[Announced], own: Option<&str>, look: Option<Look>) {
        let since = self.last_look;
        let others = announced.iter().filter(|one| own != Some(&*one.member.id));
        let known = |one: &Announced| {
            let before = self.known.get(&one.member.id);
            let is_new = before.is_none_or(|before| before.written != one.written);
            let clock = if is_new {
                // An announcement from before the first look at this server is of an unknown age.
                let since = since.filter(|_| before.is_some());
                let measured = since.zip(look).and_then(|(since, look)| offset(one, since, look));
                measured.or_else(|| before.and_then(|before| before.peer.clock))
            } else {
                before.and_then(|before| before.peer.clock)
            };
            let peer = Peer {
                id: Arc::clone(&one.member.id),
                address: one.member.address.clone(),
                external_url: one.external_url.clone(),
                clock,
            };
            (Arc::clone(&one.member.id), Known { peer, written: one.written })
        };
        self.known = others.map(known).collect();
        self.last_look = look.map(|look| look.begun);
    }

    /// The external URLs that other servers have and this one has not, with their addresses. Each is returned once.
    pub(crate) fn take_new_urls(&mut self, own: &str) -> Vec<(String, String)> {
        let mut new = Vec::new();
        for Known { peer, .. } in self.known.values() {
            let Some(url) = peer.external_url.as_ref().filter(|url| *url != own) else { continue };
            if self.warned.len() < MAX_WARNINGS && self.warned.insert(url.clone()) {
                new.push((peer.address.clone(), url.clone()));
            }
        }
        new
    }
}

/// When a look began and ended, by the clock of this server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) begun: i64,
    pub(crate) ended: i64,
}

/// How far a clock is from that of this server, if its announcement was written since a look that began at this moment.
/// `None` if the error would be too great, or this clock was set back meanwhile.
fn offset(one: &Announced, since: i64, look: Look) -> Option<ClockOffset> {
    let announced = one.unix_milliseconds?;
    let (earliest, latest) = (since.saturating_sub(WRITE_MILLISECONDS), look.ended);
    let error = latest.saturating_sub(earliest) / 2 + 1;
    if look.begun < since || look.ended < look.begun || error > MAX_ERROR_MILLISECONDS {
        return None;
    }
    let milliseconds = announced.saturating_sub(i64::midpoint(earliest, latest));
    Some(ClockOffset { milliseconds, error_milliseconds: error.unsigned_abs() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(id: &str, time: i64, written: i64) -> Announced {
        Announced {
            member: Member {
                id: id.into(),
                address: format!("{id}:1"),
                format: 1,
                seal_keys: Vec::new(),
            },
            external_url: Some(format!("https://{id}")),
            unix_milliseconds: Some(time).filter(|time| *time != 0),
            created: 1,
            written,
        }
    }

    fn look(begun: i64) -> Look {
        Look { begun, ended: begun + 10 }
    }

    fn offset_of(peers: &Peers) -> Option<(i64, u64)> {
        let clock = peers.peers().first().and_then(|peer| peer.clock);
        clock.map(|clock| (clock.milliseconds, clock.error_milliseconds))
    }

    #[test]
    fn a_clock_is_known_with_its_error_once_an_announcement_is_written_between_two_looks() {
        let mut peers = Peers::default();
        let own = announced("me", 1, 1);
        // Its age is unknown at the first look.
        peers.note(&[announced("a", 500_000, 1), own.clone()], Some("me"), Some(look(100_000)));
        assert_eq!((peers.peers().len(), offset_of(&peers)), (1, None));
        peers.note(&[announced("a", 500_000, 1), own.clone()], Some("me"), Some(look(101_000)));
        assert_eq!(offset_of(&peers), None);
        // Written between 101,000 and 102,010, and its time is at most 2 s older.
        peers.note(&[announced("a", 161_000, 2), own.clone()], Some("me"), Some(look(102_000)));
        let (offset, error) = offset_of(&peers).unwrap();
        assert_eq!((offset, error), (161_000 - 100_505, 1_506));
        // It stays until the next one. A look that took too long, and one after this clock was set back, say nothing.
        peers.note(&[announced("a", 161_000, 2)], Some("me"), Some(look(103_000)));
        peers.note(&[announced("a", 175_000, 3)], Some("me"), Some(look(123_000)));
        peers.note(&[announced("a", 176_000, 4)], Some("me"), Some(look(90_000)));
        assert_eq!(offset_of(&peers), Some((offset, error)));
        // A server that does not tell its time, as those of the version before.
        peers.note(&[announced("b", 0, 9)], Some("me"), Some(look(91_000)));
        peers.note(&[announced("b", 0, 10)], Some("me"), Some(look(92_000)));
        assert_eq!(offset_of(&peers), None);
    }

    #[test]
    fn each_external_url_of_others_is_told_once() {
        let mut peers = Peers::default();
        peers.note(&[announced("a", 1, 1), announced("b", 1, 1)], None, None);
        let urls = peers.take_new_urls("https://a");
        assert_eq!(urls, [("b:1".to_owned(), "https://b".to_owned())]);
        assert!(peers.take_new_urls("https://a").is_empty());
    }
}
