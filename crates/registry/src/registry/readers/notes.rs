//! `ReaderNotes`: the notes of readers that are not stored yet.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use memchr::memmem;
use parking_lot::Mutex;
use postern_auth::identity::Identity;
use postern_kinds::shared_secret_readers::MAX_READERS;
use serde::{Deserialize, Serialize};

use crate::credential::Credential;

/// The maximum memory of all notes, in bytes. Beyond it, notes are lost.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The memory of a note without its texts, with its share of the maps, in bytes.
const NOTE_BYTES: usize = 512;

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
    /// The owner of the access key, if the request impersonates.
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
        let acting = if credential.is_acting() { bearer.name.as_str() } else { "" };
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

    fn text_bytes(&self) -> usize {
        let Self { user, team, subject, uid, access_key, impersonated_by, object } = self;
        let texts = [user, team, subject, uid, access_key, impersonated_by, object];
        texts.into_iter().map(|text| text.len()).sum()
    }
}

/// The notes of one reader of a secret.
#[derive(Clone)]
pub(super) struct Note {
    pub(super) reader: Arc<Reader<'static>>,
    pub(super) first_unix_seconds: i64,
    pub(super) last_unix_seconds: i64,
    pub(super) count: u64,
}

/// The notes of one secret.
#[derive(Clone)]
pub(super) struct SecretNotes {
    /// The storage key of the secret.
    pub(super) key: Arc<str>,
    pub(super) readers: Vec<Note>,
    /// Whether there were more readers.
    pub(super) is_truncated: bool,
}

impl SecretNotes {
    /// The memory of one of the notes.
    fn bytes_of(&self, reader: &Reader<'_>) -> usize {
        NOTE_BYTES + self.key.len() + reader.text_bytes()
    }

    fn bytes(&self) -> usize {
        self.readers.iter().map(|note| self.bytes_of(&note.reader)).sum()
    }

    /// The time of the first note.
    fn oldest(&self) -> i64 {
        self.readers.iter().map(|note| note.first_unix_seconds).min().unwrap_or_default()
    }
}

/// The notes by the uids of secrets.
#[derive(Default)]
struct Notes {
    secrets: HashMap<Arc<str>, SecretNotes>,
    bytes: usize,
    are_lost: bool,
}

impl Notes {
    fn add(&mut self, secret: NotedSecret<'_>, reader: Reader<'_>, now: i64) {
        let uid = self.secrets.get_key_value(secret.uid).map(|(uid, _)| uid.clone());
        let uid = uid.unwrap_or_else(|| secret.uid.into());
        let of = self.secrets.entry(uid).or_insert_with(|| SecretNotes {
            key: secret.key.into(),
            readers: Vec::with_capacity(1),
            is_truncated: false,
        });
        if of.readers.len() == MAX_READERS {
            of.is_truncated = true;
            let last = of.readers.iter().enumerate().min_by_key(|(_, note)| note.last_unix_seconds);
            if let Some((index, _)) = last {
                let removed = of.readers.swap_remove(index);
                self.bytes -= of.bytes_of(&removed.reader);
            }
        }
        self.bytes += of.bytes_of(&reader);
        of.readers.push(Note {
            reader: Arc::new(reader.into_owned()),
            first_unix_seconds: now,
            last_unix_seconds: now,
            count: 1,
        });
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
    /// takes memory.
    pub(crate) fn note(&self, secret: NotedSecret<'_>, reader: Reader<'_>, now: i64) {
        let mut notes = self.notes.lock();
        let known = notes.secrets.get_mut(secret.uid);
        let known = known.and_then(|of| of.readers.iter_mut().find(|note| *note.reader == reader));
        if let Some(note) = known {
            note.last_unix_seconds = note.last_unix_seconds.max(now);
            note.count += 1;
            return;
        }
        if notes.bytes >= MAX_BYTES {
            notes.are_lost = true;
            return;
        }
        notes.add(secret, reader, now);
    }

    /// The uids of the secrets with the oldest notes.
    pub(super) fn oldest(&self, limit: usize) -> Vec<Arc<str>> {
        let notes = self.notes.lock();
        let mut all: Vec<_> =
            notes.secrets.iter().map(|(uid, of)| (of.oldest(), uid.clone())).collect();
        drop(notes);
        if all.len() > limit {
            all.select_nth_unstable(limit);
            all.truncate(limit);
        }
        all.into_iter().map(|(_, uid)| uid).collect()
    }

    /// The notes of the secret with a uid.
    pub(super) fn of(&self, uid: &str) -> Option<SecretNotes> {
        self.notes.lock().secrets.get(uid).cloned()
    }

    /// Removes notes that are stored. Those that were added since then stay.
    pub(super) fn remove(&self, uid: &str, stored: &SecretNotes) {
        let mut notes = self.notes.lock();
        let Some(mut of) = notes.secrets.remove(uid) else { return };
        notes.bytes -= of.bytes();
        for note in &mut of.readers {
            let stored = stored.readers.iter().find(|one| one.reader == note.reader);
            note.count -= stored.map_or(0, |stored| stored.count).min(note.count);
        }
        of.readers.retain(|note| note.count > 0);
        of.is_truncated = false;
        if !of.readers.is_empty() {
            notes.bytes += of.bytes();
            notes.secrets.insert(uid.into(), of);
        }
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
    let start = memmem::find(json, FIELD)? + FIELD.len();
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

    #[test]
    fn the_last_readers_of_a_secret_are_kept_and_the_memory_is_counted() {
        let notes = ReaderNotes::default();
        let names: Vec<String> = (0..60).map(|number| format!("u{number}")).collect();
        for (time, name) in (1..).zip(&names) {
            notes.note(secret("1"), reader(name), time);
        }
        let of = notes.of("1").unwrap();
        assert!(of.is_truncated && of.readers.len() == MAX_READERS);
        assert!(of.readers.iter().all(|note| note.last_unix_seconds > 10), "the oldest are gone");
        assert_eq!(notes.notes.lock().bytes, of.bytes());
        notes.note(secret("1"), reader("u59"), 99);
        notes.remove("1", &of);
        let of = notes.of("1").unwrap();
        assert_eq!((of.readers.len(), of.readers[0].count, of.is_truncated), (1, 1, false));
        assert_eq!(notes.notes.lock().bytes, of.bytes());
        notes.remove("1", &of);
        assert!(notes.of("1").is_none() && notes.notes.lock().bytes == 0);
    }

    #[test]
    fn notes_beyond_the_memory_are_lost_and_known_readers_still_count() {
        let notes = ReaderNotes::default();
        let uids: Vec<String> = (0..MAX_BYTES / NOTE_BYTES).map(|uid| uid.to_string()).collect();
        for uid in &uids {
            notes.note(secret(uid), reader("ada"), 1);
        }
        assert!(notes.have_losses() && notes.notes.lock().bytes < MAX_BYTES + 2 * NOTE_BYTES);
        assert!(notes.of(uids.last().unwrap()).is_none());
        notes.note(secret("0"), reader("ada"), 2);
        assert_eq!(notes.of("0").unwrap().readers[0].count, 2);
        assert_eq!(notes.oldest(3).len(), 3);
    }

    #[test]
    fn the_uid_is_that_of_the_object() {
        let json = br#"{"metadata":{"name":"uid","uid":"u-1","ownerReferences":[{"uid":"u-2"}]}}"#;
        assert_eq!(uid_of(json), Some("u-1"));
        assert_eq!(uid_of(b"{}"), None);
    }
}
