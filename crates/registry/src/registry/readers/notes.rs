//! `ReaderNotes`: the notes of readers that are not stored yet.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use foldhash::fast::RandomState;
use memchr::memmem::Finder;
use parking_lot::Mutex;
use postern_auth::identity::Identity;
use postern_kinds::shared_secret_readers::MAX_READERS;
use serde::{Deserialize, Serialize};

use crate::credential::Credential;

/// The maximum memory of all notes, in bytes. Beyond it, notes are lost.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The memory of one owner's notes, in bytes, and as much again for its [`Mark`]s. So one owner cannot make the notes of
/// others be lost.
const MAX_BYTES_PER_OWNER: usize = MAX_BYTES / 8;

/// The memory of a note without its texts, with its share of the maps, in bytes.
const NOTE_BYTES: usize = 512;

/// The memory of a mark without the storage key of the secret, in bytes.
const MARK_BYTES: usize = 256;

/// A secret, as it is noted.
#[derive(Clone, Copy)]
pub(crate) struct NotedSecret<'a> {
    /// Its storage key.
    pub(crate) key: &'a str,
    /// Its uid. A later secret of the same name has none of its readers.
    pub(crate) uid: &'a str,
}

/// A reader: a caller with an access key, or a copy by secret sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Reader<'a> {
    /// The name of the User.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) user: Cow<'a, str>,
    /// The name of the Team.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) team: Cow<'a, str>,
    /// Another subject.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) subject: Cow<'a, str>,
    /// The uid of the user or team.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) uid: Cow<'a, str>,
    /// The name of the access key of the request.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) access_key: Cow<'a, str>,
    /// The name of the user, team or other subject that owns the access key, if the request impersonates.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) impersonated_by: Cow<'a, str>,
    /// The namespace and name of the copy.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) object: Cow<'a, str>,
}

impl<'a> Reader<'a> {
    /// The caller of a request.
    pub(crate) fn of_request(credential: &'a Credential) -> Self {
        let bearer = credential.bearer();
        let owner = bearer.user.as_ref().or(bearer.team.as_ref()).unwrap_or(&bearer.name);
        let acting = if credential.is_acting() { owner.as_str() } else { "" };
        Self {
            access_key: Cow::Borrowed(&bearer.access_key),
            impersonated_by: Cow::Borrowed(acting),
            ..Self::of_identity(credential.identity())
        }
    }

    /// The copy with this namespace and name, whose labels an identity has written.
    pub(crate) fn of_copy(writer: &'a Identity, object: &'a str) -> Self {
        Self { object: Cow::Borrowed(object), ..Self::of_identity(writer) }
    }

    /// The agent of a cluster, which was sent the data of a copy with this namespace and name.
    pub(crate) fn of_agent(credential: &'a Credential, object: &'a str) -> Self {
        Self { object: Cow::Borrowed(object), ..Self::of_request(credential) }
    }

    fn of_identity(identity: &'a Identity) -> Self {
        let (user, team) = (identity.user.as_deref(), identity.team.as_deref());
        let is_principal = user.is_some() || team.is_some();
        Self {
            user: Cow::Borrowed(user.unwrap_or_default()),
            team: Cow::Borrowed(team.unwrap_or_default()),
            subject: Cow::Borrowed(if is_principal { "" } else { &identity.name }),
            // Any other uid is that of an impersonation.
            uid: Cow::Borrowed(if is_principal { &identity.uid } else { "" }),
            ..Self::default()
        }
    }

    fn into_owned(self) -> Reader<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Reader {
            user: owned(self.user),
            team: owned(self.team),
            subject: owned(self.subject),
            uid: owned(self.uid),
            access_key: owned(self.access_key),
            impersonated_by: owned(self.impersonated_by),
            object: owned(self.object),
        }
    }

    /// Whether both have the same owner of keys, as far as it is known: under impersonation, that of the access key.
    fn is_of_same_owner(&self, other: &Reader<'_>) -> bool {
        if !self.impersonated_by.is_empty() || !other.impersonated_by.is_empty() {
            return self.impersonated_by == other.impersonated_by;
        }
        self.user == other.user
            && self.team == other.team
            && self.subject == other.subject
            && self.uid == other.uid
    }

    fn text_bytes(&self) -> usize {
        let Self { user, team, subject, uid, access_key, impersonated_by, object } = self;
        let texts = [user, team, subject, uid, access_key, impersonated_by, object];
        texts.into_iter().map(|text| text.len()).sum()
    }
}

/// A reader with its times.
pub(super) trait Row {
    fn reader(&self) -> &Reader<'static>;

    /// The last and the first time, in seconds since 1970.
    fn times(&self) -> [i64; 2];
}

/// Removes the rows beyond [`MAX_READERS`], and returns them: each is the oldest of the owner with the most rows. An
/// owner with many keys so cannot push out other readers.
pub(super) fn push_out<R: Row>(rows: &mut Vec<R>) -> Vec<R> {
    let mut removed = Vec::new();
    if rows.len() <= MAX_READERS {
        return removed;
    }
    let of_same_owner =
        |of: &R| rows.iter().filter(|row| row.reader().is_of_same_owner(of.reader())).count();
    let mut counts: Vec<usize> = rows.iter().map(of_same_owner).collect();
    while rows.len() > MAX_READERS {
        let most = counts.iter().max().copied();
        let of_most = (0..rows.len()).filter(|index| counts.get(*index).copied() == most);
        let Some(oldest) = of_most.min_by_key(|index| rows[*index].times()) else { break };
        counts.remove(oldest);
        let row = rows.remove(oldest);
        for (other, count) in rows.iter().zip(&mut counts) {
            *count -= usize::from(other.reader().is_of_same_owner(row.reader()));
        }
        removed.push(row);
    }
    removed
}

/// The notes of one reader of a secret.
#[derive(Clone)]
pub(super) struct Note {
    pub(super) reader: Arc<Reader<'static>>,
    /// The owner whose share has the note.
    owner: Arc<str>,
    pub(super) first_unix_seconds: i64,
    pub(super) last_unix_seconds: i64,
    pub(super) count: u64,
}

impl Row for Note {
    fn reader(&self) -> &Reader<'static> {
        &self.reader
    }

    fn times(&self) -> [i64; 2] {
        [self.last_unix_seconds, self.first_unix_seconds]
    }
}

/// A secret without notes, of which a note is lost.
#[derive(Clone)]
struct Mark {
    /// The owner whose share has the mark.
    owner: Arc<str>,
    unix_seconds: i64,
}

/// The notes of one secret.
#[derive(Clone)]
pub(super) struct SecretNotes {
    /// The storage key of the secret.
    pub(super) key: Arc<str>,
    pub(super) readers: Vec<Note>,
    /// Whether there were more readers.
    pub(super) is_truncated: bool,
    mark: Option<Mark>,
}

impl SecretNotes {
    fn new(key: &str) -> Self {
        Self { key: key.into(), readers: Vec::new(), is_truncated: false, mark: None }
    }

    /// The memory of one of the notes.
    fn bytes_of(&self, reader: &Reader<'_>) -> usize {
        NOTE_BYTES + self.key.len() + reader.text_bytes()
    }

    fn mark_bytes(&self) -> usize {
        MARK_BYTES + self.key.len()
    }

    /// The time of the first note or mark.
    fn oldest(&self) -> i64 {
        let notes = self.readers.iter().map(|note| note.first_unix_seconds);
        let mark = self.mark.iter().map(|mark| mark.unix_seconds);
        notes.chain(mark).min().unwrap_or_default()
    }
}

/// Memory by the owners that it is counted for, in bytes.
#[derive(Default)]
struct Shares {
    total: usize,
    by_owner: HashMap<Arc<str>, usize>,
}

impl Shares {
    fn of(&self, owner: &str) -> usize {
        self.by_owner.get(owner).copied().unwrap_or_default()
    }

    /// Adds bytes. Returns the name of the owner.
    fn add(&mut self, owner: &str, bytes: usize) -> Arc<str> {
        self.total += bytes;
        let known = self.by_owner.get_key_value(owner).map(|(owner, _)| owner.clone());
        let owner = known.unwrap_or_else(|| owner.into());
        *self.by_owner.entry(owner.clone()).or_default() += bytes;
        owner
    }

    fn subtract(&mut self, owner: &str, bytes: usize) {
        self.total -= bytes;
        if let Some(of) = self.by_owner.get_mut(owner) {
            *of -= bytes;
            if *of == 0 {
                self.by_owner.remove(owner);
            }
        }
    }
}

/// The notes by the uids of secrets.
#[derive(Default)]
struct Notes {
    // No client chooses a uid.
    secrets: HashMap<Arc<str>, SecretNotes, RandomState>,
    note_bytes: Shares,
    mark_bytes: Shares,
    are_lost: bool,
}

impl Notes {
    fn bytes(&self) -> usize {
        self.note_bytes.total + self.mark_bytes.total
    }

    fn add(&mut self, secret: NotedSecret<'_>, owner: &str, reader: Reader<'_>, now: i64) {
        let uid = self.secrets.get_key_value(secret.uid).map(|(uid, _)| uid.clone());
        let uid = uid.unwrap_or_else(|| secret.uid.into());
        let of = self.secrets.entry(uid).or_insert_with(|| SecretNotes::new(secret.key));
        let owner = self.note_bytes.add(owner, of.bytes_of(&reader));
        of.readers.push(Note {
            reader: Arc::new(reader.into_owned()),
            owner,
            first_unix_seconds: now,
            last_unix_seconds: now,
            count: 1,
        });
        for removed in push_out(&mut of.readers) {
            of.is_truncated = true;
            self.note_bytes.subtract(&removed.owner, of.bytes_of(&removed.reader));
        }
    }

    /// Notes that a note of an owner is lost: for this secret, or for all secrets if there is no memory for a mark.
    fn lose(&mut self, secret: NotedSecret<'_>, owner: &str, now: i64) {
        if let Some(of) = self.secrets.get_mut(secret.uid) {
            of.is_truncated = true;
            return;
        }
        if self.bytes() >= MAX_BYTES || self.mark_bytes.of(owner) >= MAX_BYTES_PER_OWNER {
            self.are_lost = true;
            return;
        }
        let mut of = SecretNotes::new(secret.key);
        let owner = self.mark_bytes.add(owner, of.mark_bytes());
        of.is_truncated = true;
        of.mark = Some(Mark { owner, unix_seconds: now });
        self.secrets.insert(secret.uid.into(), of);
    }

    /// Takes the notes of a secret out of the map and of the shares.
    fn take(&mut self, uid: &str) -> Option<SecretNotes> {
        let of = self.secrets.remove(uid)?;
        for note in &of.readers {
            self.note_bytes.subtract(&note.owner, of.bytes_of(&note.reader));
        }
        if let Some(mark) = &of.mark {
            self.mark_bytes.subtract(&mark.owner, of.mark_bytes());
        }
        Some(of)
    }
}

/// The notes of readers that are not stored yet.
#[derive(Default)]
pub(crate) struct ReaderNotes {
    notes: Mutex<Notes>,
    /// Held while notes are stored or read together with their records, so that none counts twice.
    pub(super) storing: tokio::sync::Mutex<()>,
}

impl ReaderNotes {
    /// Notes that a reader is sent values of a secret, in seconds since 1970. Only the first note of a reader of a secret
    /// takes memory, of the share of this owner.
    pub(crate) fn note(&self, secret: NotedSecret<'_>, owner: &str, reader: Reader<'_>, now: i64) {
        let mut notes = self.notes.lock();
        let known = notes.secrets.get_mut(secret.uid);
        let known = known.and_then(|of| of.readers.iter_mut().find(|note| *note.reader == reader));
        if let Some(note) = known {
            note.last_unix_seconds = note.last_unix_seconds.max(now);
            note.count += 1;
            return;
        }
        if notes.bytes() >= MAX_BYTES || notes.note_bytes.of(owner) >= MAX_BYTES_PER_OWNER {
            notes.lose(secret, owner, now);
        } else {
            notes.add(secret, owner, reader, now);
        }
    }

    /// Forgets the notes of a secret that is removed.
    pub(crate) fn forget(&self, uid: &str) {
        self.notes.lock().take(uid);
    }

    /// The number of secrets with notes.
    pub(crate) fn len(&self) -> usize {
        self.notes.lock().secrets.len()
    }

    /// Notes that notes of any secret are lost.
    pub(crate) fn lose(&self) {
        self.notes.lock().are_lost = true;
    }

    /// The uids of the secrets with the oldest notes. The oldest is the first.
    pub(super) fn oldest(&self, limit: usize) -> Vec<Arc<str>> {
        let notes = self.notes.lock();
        let mut all: Vec<_> =
            notes.secrets.iter().map(|(uid, of)| (of.oldest(), uid.clone())).collect();
        drop(notes);
        if all.len() > limit {
            all.select_nth_unstable(limit);
            all.truncate(limit);
        }
        all.sort_unstable();
        all.into_iter().map(|(_, uid)| uid).collect()
    }

    /// The notes of the secret with a uid.
    pub(super) fn of(&self, uid: &str) -> Option<SecretNotes> {
        self.notes.lock().secrets.get(uid).cloned()
    }

    /// Removes notes that are stored. Those that were added since then stay.
    pub(super) fn remove(&self, uid: &str, stored: &SecretNotes) {
        let mut notes = self.notes.lock();
        let Some(mut of) = notes.take(uid) else { return };
        for note in &mut of.readers {
            let stored = stored.readers.iter().find(|one| one.reader == note.reader);
            note.count -= stored.map_or(0, |stored| stored.count).min(note.count);
        }
        of.readers.retain(|note| note.count > 0);
        of.is_truncated &= !stored.is_truncated;
        of.mark = None;
        if of.readers.is_empty() && !of.is_truncated {
            return;
        }
        for note in &of.readers {
            notes.note_bytes.add(&note.owner, of.bytes_of(&note.reader));
        }
        notes.secrets.insert(uid.into(), of);
    }

    /// Whether notes were lost since the last call of [`ReaderNotes::forget_losses`].
    pub(super) fn have_losses(&self) -> bool {
        self.notes.lock().are_lost
    }

    /// Forgets that notes were lost, once it is stored.
    pub(super) fn forget_losses(&self) {
        self.notes.lock().are_lost = false;
    }
}

/// The uid in the JSON of an object. In JSON from the store, only texts of the API come before it.
pub(crate) fn uid_of(json: &[u8]) -> Option<&str> {
    const FIELD: &[u8] = b"\"uid\":\"";
    // Building a searcher takes longer than the search.
    static SEARCHER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(FIELD));
    let start = SEARCHER.find(json)? + FIELD.len();
    let rest = json.get(start..)?;
    std::str::from_utf8(rest.get(..memchr::memchr(b'"', rest)?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(name: &str) -> Reader<'_> {
        Reader { user: name.into(), ..Reader::default() }
    }

    fn secret(uid: &str) -> NotedSecret<'_> {
        NotedSecret { key: "/objects/g/sharedsecrets/n/s", uid }
    }

    /// The memory of all notes, after a check that it is that of the owners together.
    fn counted_bytes(notes: &ReaderNotes) -> usize {
        let notes = notes.notes.lock();
        for shares in [&notes.note_bytes, &notes.mark_bytes] {
            assert_eq!(shares.total, shares.by_owner.values().sum::<usize>());
        }
        let of_notes = |of: &SecretNotes| -> usize {
            of.readers.iter().map(|note| of.bytes_of(&note.reader)).sum()
        };
        assert_eq!(notes.note_bytes.total, notes.secrets.values().map(of_notes).sum::<usize>());
        notes.bytes()
    }

    #[test]
    fn the_last_readers_of_a_secret_are_kept_and_the_memory_is_counted() {
        let notes = ReaderNotes::default();
        let names: Vec<String> = (0..60).map(|number| format!("u{number}")).collect();
        for (time, name) in (1..).zip(&names) {
            notes.note(secret("1"), name, reader(name), time);
        }
        let of = notes.of("1").unwrap();
        assert!(of.is_truncated && of.readers.len() == MAX_READERS);
        assert!(of.readers.iter().all(|note| note.last_unix_seconds > 10), "the oldest are gone");
        assert!(counted_bytes(&notes) > 0);
        notes.note(secret("1"), "u59", reader("u59"), 99);
        notes.remove("1", &of);
        let of = notes.of("1").unwrap();
        assert_eq!((of.readers.len(), of.readers[0].count, of.is_truncated), (1, 1, false));
        assert!(counted_bytes(&notes) > 0);
        notes.remove("1", &of);
        assert!(notes.of("1").is_none() && counted_bytes(&notes) == 0);
    }

    #[test]
    fn an_owner_with_many_keys_pushes_out_its_own_rows() {
        let notes = ReaderNotes::default();
        notes.note(secret("1"), "ada", reader("ada"), 1);
        let keys: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
        for (time, key) in (2..).zip(&keys) {
            let of_eve = Reader { access_key: key.into(), ..reader("eve") };
            notes.note(secret("1"), "eve", of_eve, time);
            // One key impersonates others.
            let of_bob = Reader { impersonated_by: "bob".into(), ..reader(key) };
            notes.note(secret("1"), "bob", of_bob, time);
        }
        let of = notes.of("1").unwrap();
        assert!(of.readers.iter().any(|note| note.reader.user == "ada"), "ada stays");
        let of_eve = of.readers.iter().filter(|note| note.reader.user == "eve");
        assert!((24..=25).contains(&of_eve.clone().count()) && of.readers.len() == MAX_READERS);
        assert!(of_eve.clone().all(|note| note.last_unix_seconds > 30), "the last keys stay");
        assert!(counted_bytes(&notes) > 0);
    }

    #[test]
    fn notes_beyond_the_memory_are_lost_for_their_owner_and_known_readers_still_count() {
        let notes = ReaderNotes::default();
        let numbers = 0..MAX_BYTES_PER_OWNER / NOTE_BYTES;
        let uids: Vec<String> = numbers.map(|uid| uid.to_string()).collect();
        for uid in &uids {
            notes.note(secret(uid), "eve", reader("eve"), 1);
        }
        let last = uids.last().unwrap();
        let of_last = || notes.of(last).unwrap();
        assert!(of_last().is_truncated && of_last().readers.is_empty(), "it is beyond the share");
        assert!(!notes.have_losses(), "other secrets have no losses");
        // Others have their own shares.
        for uid in [last, "ada"] {
            notes.note(secret(uid), "ada", reader("ada"), 2);
        }
        assert!(of_last().readers.len() == 1 && !notes.of("ada").unwrap().is_truncated);
        notes.note(secret("ada"), "eve", reader("eve"), 2);
        let of_ada = notes.of("ada").unwrap();
        assert!(of_ada.is_truncated && of_ada.readers.len() == 1);
        notes.note(secret("0"), "eve", reader("eve"), 2);
        assert_eq!(notes.of("0").unwrap().readers[0].count, 2);
        assert_eq!(notes.oldest(3).len(), 3);
        assert!(counted_bytes(&notes) < 2 * MAX_BYTES_PER_OWNER);
        // Without memory for marks, the losses are those of any secret.
        let numbers = 0..MAX_BYTES_PER_OWNER / MARK_BYTES;
        let others: Vec<String> = numbers.map(|uid| format!("other-{uid}")).collect();
        for uid in &others {
            notes.note(secret(uid), "eve", reader("eve"), 1);
        }
        assert!(notes.have_losses() && counted_bytes(&notes) < 3 * MAX_BYTES_PER_OWNER);
        // What is stored or removed frees its share.
        for uid in uids.iter().chain(&others).map(String::as_str).chain(["ada"]) {
            match notes.of(uid) {
                Some(of) if uid.ends_with('1') => notes.remove(uid, &of),
                _ => notes.forget(uid),
            }
        }
        assert_eq!((counted_bytes(&notes), notes.len()), (0, 0));
    }

    #[test]
    fn the_uid_is_that_of_the_object() {
        let json = br#"{"metadata":{"name":"uid","uid":"u-1","ownerReferences":[{"uid":"u-2"}]}}"#;
        assert_eq!(uid_of(json), Some("u-1"));
        assert_eq!(uid_of(b"{}"), None);
    }
}
