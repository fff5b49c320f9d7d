//! The at-rest keys of an open store, and the key that several servers on it encrypt with.
//!
//! If one server has the store for itself, it encrypts with the current key of its keyring. Servers that share a store
//! encrypt with the key that the encryption marker is encrypted with. So they agree on it through the store:
//!
//! 1. *Prepared*: the operator adds a key to each server's keyring as its current one. Nothing uses it yet.
//! 2. *Active*: once all servers hold it, one of them encrypts the marker with it. The others see that in their watch.
//! 3. *Retired*: the marker names the keys that were active before. They decrypt, and never become active again. So two
//!    servers with different current keys cannot go back and forth.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::envelope::{self, OpenError};
use super::{KeyId, Keyring, MARKER, MARKER_VALUE};
use crate::{Error, Position, Result};

/// Separates the retired keys in the marker.
const RETIRED: &str = "\nretired ";

/// The keys of a store, which its watches share.
pub(super) struct Keys {
    /// Whether several servers share the store.
    is_shared: bool,
    /// The keyring of this server. Its current key is the active one.
    in_use: RwLock<Arc<Keyring>>,
    rotation: Mutex<Rotation>,
}

/// Where a rotation stands.
struct Rotation {
    /// The current key in the file of this server.
    wanted: KeyId,
    /// The newest marker that this server has seen.
    marker: Option<Marker>,
}

/// The contents of the marker.
pub(super) struct Marker {
    active: KeyId,
    retired: Vec<KeyId>,
    /// Its last change.
    position: Position,
}

impl Marker {
    /// Decrypts the marker.
    pub(super) fn open(
        keyring: &Keyring,
        sealed: Bytes,
        position: Position,
    ) -> std::result::Result<Self, OpenError> {
        let active = envelope::key_id(&sealed).ok_or(OpenError::NotSealed)?;
        let value = envelope::open(|id| keyring.find(id), MARKER, sealed)?;
        let retired = retired_keys(&value).ok_or(OpenError::Forged(active))?;
        Ok(Self { active, retired, position })
    }

    /// The value of the marker that makes another key the active one.
    fn followed_by(&self) -> Vec<u8> {
        let mut value = MARKER_VALUE.to_vec();
        for id in self.retired.iter().chain([&self.active]) {
            value.extend_from_slice(format!("{RETIRED}{id}").as_bytes());
        }
        value
    }
}

/// The retired keys in the value of the marker; `None` for any other value.
fn retired_keys(value: &[u8]) -> Option<Vec<KeyId>> {
    let list = std::str::from_utf8(value.strip_prefix(MARKER_VALUE)?).ok()?;
    let mut parts = list.split(RETIRED);
    let is_known = parts.next().is_some_and(str::is_empty);
    parts.map(|id| id.parse().ok()).collect::<Option<_>>().filter(|_| is_known)
}

impl Keys {
    pub(super) fn new(keyring: Keyring, is_shared: bool) -> Self {
        let rotation = Rotation { wanted: keyring.current(), marker: None };
        let in_use = RwLock::new(Arc::new(keyring));
        Self { is_shared, in_use, rotation: Mutex::new(rotation) }
    }

    /// Whether several servers share the store.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The keyring that is in use now.
    pub(super) fn in_use(&self) -> Arc<Keyring> {
        Arc::clone(&self.in_use.read())
    }

    /// Uses another keyring, which has decrypted the marker.
    ///
    /// # Errors
    /// [`Error::UnknownSealKey`] if it lacks the key that is active now. The old keyring then stays in use.
    pub(super) fn replace(&self, keyring: Keyring, marker: Marker) -> Result<()> {
        let mut rotation = self.rotation.lock();
        let wanted = keyring.current();
        let agreed = if self.is_shared {
            rotation.note(marker);
            let active = rotation.marker.as_ref().map_or(wanted, |marker| marker.active);
            let lacks = || Error::UnknownSealKey { id: active.to_string() };
            keyring.with_current(active).ok_or_else(lacks)?
        } else {
            keyring
        };
        rotation.wanted = wanted;
        // In one step: the prepared key is never the current one, not even for a moment.
        *self.in_use.write() = Arc::new(agreed);
        Ok(())
    }

    /// Uses the active key of a marker, if the keyring has it. A watch that resumes delivers older markers again, which
    /// change nothing.
    fn note(&self, rotation: &mut Rotation, marker: Marker) {
        if !self.is_shared {
            return;
        }
        rotation.note(marker);
        let mut in_use = self.in_use.write();
        let active = rotation.marker.as_ref().and_then(|marker| in_use.with_current(marker.active));
        if let Some(keyring) = active {
            *in_use = Arc::new(keyring);
        }
    }

    /// Forgets the marker, since the store was restored, and so the marker may be an older one. Until it is read again,
    /// nothing may be encrypted.
    pub(super) fn forget_marker(&self) {
        if self.is_shared {
            self.rotation.lock().marker = None;
        }
    }

    /// The keyring to encrypt with on a shared store, and the position of the marker that names its current key. `None`
    /// if the marker must be read before.
    pub(super) fn agreed(&self) -> Option<(Arc<Keyring>, Position)> {
        let rotation = self.rotation.lock();
        let marker = rotation.marker.as_ref()?;
        let keyring = self.in_use();
        (keyring.current() == marker.active).then_some((keyring, marker.position))
    }

    /// Whether a key cannot become active any more. On a shared store, a key that was never active may be made active by
    /// another server at any moment.
    pub(super) fn is_retired(&self, id: KeyId) -> bool {
        let rotation = self.rotation.lock();
        !self.is_shared
            || rotation.marker.as_ref().is_some_and(|marker| marker.retired.contains(&id))
    }

    /// Notes a change of the marker.
    ///
    /// # Errors
    /// [`Error::UnknownSealKey`] if this server lacks the key that is active now; [`Error::Corrupt`] if the marker does
    /// not decrypt.
    pub(super) fn note_change(&self, sealed: Bytes, position: Position) -> Result<()> {
        let marker = Marker::open(&self.in_use(), sealed, position);
        let marker = marker.map_err(|error| self.open_error(MARKER.into(), error))?;
        self.note(&mut self.rotation.lock(), marker);
        Ok(())
    }

    /// The key that becomes active when all servers hold it.
    pub(super) fn prepared(&self) -> Option<KeyId> {
        self.rotation.lock().prepared()
    }

    /// The change of the marker that makes the prepared key the active one: its keyring, and its value. `None` if there
    /// is nothing to do.
    pub(super) fn next(&self) -> Option<(Keyring, Vec<u8>)> {
        let rotation = self.rotation.lock();
        let keyring = self.in_use().with_current(rotation.prepared()?)?;
        Some((keyring, rotation.marker.as_ref()?.followed_by()))
    }

    /// Whether a keyring has other keys than the one in use, or another current key than it had.
    pub(super) fn has_changed(&self, keyring: &Keyring) -> bool {
        let [mut new, mut old] = [keyring.ids(), self.in_use().ids()];
        new.sort_unstable();
        old.sort_unstable();
        new != old || self.rotation.lock().wanted != keyring.current()
    }

    /// The error for a value that does not decrypt. Another server may have encrypted it with a key that this one does
    /// not have yet. If this server has the store for itself, the key is lost.
    pub(super) fn open_error(&self, key: Arc<str>, error: OpenError) -> Error {
        match error {
            OpenError::UnknownKey(id) if self.is_shared => {
                Error::UnknownSealKey { id: id.to_string() }
            }
            error => Error::Corrupt { key: Some(key), reason: error.to_string() },
        }
    }
}

impl Rotation {
    fn note(&mut self, marker: Marker) {
        if self.marker.as_ref().is_none_or(|known| known.position <= marker.position) {
            self.marker = Some(marker);
        }
    }

    fn prepared(&self) -> Option<KeyId> {
        let Marker { active, retired, .. } = self.marker.as_ref()?;
        (*active != self.wanted && !retired.contains(&self.wanted)).then_some(self.wanted)
    }
}
