//! The schedule of the signing keys: pure functions of the list of keys and the time.

use postern_auth::endpoint_token::SKEW_SECONDS;
use postern_meta::time::Timestamp;

use super::{KeyList, KeyRecord, TokenPolicy};

/// The result of a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The next key, or the key that signs already.
    pub kid: String,
    /// The time from which it signs.
    pub signs_from: Timestamp,
    /// Whether the key existed before.
    pub was_announced: bool,
}

fn after(time: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(time.unix_seconds().saturating_add(seconds))
}

impl KeyList {
    /// The key that signs at a time: the last key that has started. If the clock was set back, it
    /// is the first key.
    pub(super) fn signer(&self, now: Timestamp) -> Option<&KeyRecord> {
        let begun = self.keys.iter().rfind(|key| key.signs_from <= now);
        begun.or_else(|| self.keys.first())
    }

    /// The list with a new key that takes over at a time.
    fn with_next(
        &self,
        now: Timestamp,
        signs_from: Timestamp,
        policy: &TokenPolicy,
    ) -> anyhow::Result<Self> {
        let mut next = self.clone();
        if let Some(last) = next.keys.last_mut() {
            last.end_at(signs_from, policy);
        }
        next.keys.push(KeyRecord::generate(now, signs_from)?);
        Ok(next)
    }

    /// The list as it should be at a time; `None` if it is unchanged. It removes each key after the
    /// expiry of its last token, and adds the next key when it must be published.
    ///
    /// # Errors
    /// An error if no key can be generated.
    pub(super) fn maintained(
        &self,
        now: Timestamp,
        policy: &TokenPolicy,
    ) -> anyhow::Result<Option<Self>> {
        let mut next = self.clone();
        next.keys.retain(|key| key.dropped_after.is_none_or(|end| end > now));
        for key in &mut next.keys {
            // The maximum lifetime of tokens may be longer than when the end was set.
            if let Some(end) = key.signs_until.filter(|end| *end > now) {
                key.end_at(end, policy);
            }
        }
        match next.keys.last().map(|last| last.signs_from) {
            None => next = next.with_next(now, now, policy)?,
            Some(begun) if begun <= now => {
                let due = after(begun, policy.rotation_seconds);
                let earliest = after(now, policy.max_offline_seconds);
                if due <= earliest {
                    next = next.with_next(now, due.max(earliest), policy)?;
                }
            }
            Some(_) => {}
        }
        Ok(Some(next).filter(|next| next != self))
    }

    /// The list with a new key: a published key that signs later, or with `force` a key that signs at once.
    ///
    /// # Errors
    /// An error if no key can be generated.
    pub(super) fn rotated(
        &self,
        now: Timestamp,
        policy: &TokenPolicy,
        force: bool,
    ) -> anyhow::Result<(Self, Rotation)> {
        let is_next = |key: &&KeyRecord| key.signs_from > now;
        if let (false, Some(next)) = (force, self.keys.iter().find(is_next)) {
            let rotation = Rotation { was_announced: true, ..next.as_rotation() };
            return Ok((self.clone(), rotation));
        }
        let mut list = self.clone();
        // An announced key has signed no token yet.
        list.keys.retain(|key| key.signs_from <= now);
        let signs_from = if force { now } else { after(now, policy.max_offline_seconds) };
        let list = list.with_next(now, signs_from, policy)?;
        let rotation = list.keys.last().map(KeyRecord::as_rotation);
        let rotation = rotation.ok_or_else(|| anyhow::anyhow!("no signing key was generated"))?;
        Ok((list, rotation))
    }

    /// The list without a key.
    ///
    /// # Errors
    /// An error if the key does not exist, or if it signs now.
    pub(super) fn without(&self, kid: &str, now: Timestamp) -> anyhow::Result<Self> {
        let kids: Vec<&str> = self.keys.iter().map(|key| key.kid.as_str()).collect();
        anyhow::ensure!(
            kids.contains(&kid),
            "the signing key {kid:?} does not exist; the signing keys are: {}",
            kids.join(" ")
        );
        anyhow::ensure!(
            self.signer(now).is_none_or(|signer| signer.kid != kid),
            "the signing key {kid:?} is in use: make another key sign first, with postern admin rotate-signing-key \
             --force"
        );
        let mut list = self.clone();
        list.keys.retain(|key| key.kid != kid);
        if let Some(last) = list.keys.last_mut().filter(|last| last.signs_until > Some(now)) {
            // The next key was removed, so this key continues to sign.
            (last.signs_until, last.dropped_after) = (None, None);
        }
        Ok(list)
    }
}

impl KeyRecord {
    /// Sets when the next key takes over. The last token of this key expires later.
    fn end_at(&mut self, end: Timestamp, policy: &TokenPolicy) {
        self.signs_until = Some(end);
        // The clocks of another server and of an agent may differ.
        let gone = after(end, policy.max_ttl_seconds.saturating_add(2 * SKEW_SECONDS));
        self.dropped_after = self.dropped_after.max(Some(gone));
    }

    fn as_rotation(&self) -> Rotation {
        Rotation { kid: self.kid.clone(), signs_from: self.signs_from, was_announced: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;
    const START: i64 = 1_700_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_seconds(START + seconds)
    }

    fn maintained(list: &KeyList, seconds: i64) -> KeyList {
        let next = list.maintained(at(seconds), &TokenPolicy::default()).unwrap();
        next.unwrap_or_else(|| list.clone())
    }

    fn signer(list: &KeyList, seconds: i64) -> usize {
        let kid = &list.signer(at(seconds)).unwrap().kid;
        list.keys.iter().position(|key| key.kid == *kid).unwrap()
    }

    #[test]
    fn a_new_key_is_published_a_day_before_it_signs_and_the_old_one_a_day_after() {
        let first = maintained(&KeyList::default(), 0);
        assert_eq!((first.keys.len(), signer(&first, 0)), (1, 0));
        assert_eq!(maintained(&first, 29 * DAY - 1), first);
        let both = maintained(&first, 29 * DAY);
        assert_eq!(both.keys.len(), 2);
        assert_eq!(both.keys[1].created, at(29 * DAY));
        assert_eq!(both.keys[1].signs_from, at(30 * DAY));
        assert_eq!(both.keys[0].signs_until, Some(at(30 * DAY)));
        assert_eq!((signer(&both, 30 * DAY - 1), signer(&both, 30 * DAY)), (0, 1));
        let last_token_ends = 31 * DAY + 2 * SKEW_SECONDS;
        assert_eq!(maintained(&both, last_token_ends - 1), both);
        let second = maintained(&both, last_token_ends);
        assert_eq!(second.keys, both.keys[1..]);
        assert_eq!(maintained(&second, 59 * DAY).keys.len(), 2);
    }

    #[test]
    fn a_server_that_was_off_for_long_announces_the_next_key_all_the_same() {
        let first = maintained(&KeyList::default(), 0);
        let both = maintained(&first, 100 * DAY);
        assert_eq!(both.keys[1].signs_from, at(101 * DAY));
        assert_eq!((signer(&both, 101 * DAY - 1), signer(&both, 101 * DAY)), (0, 1));
    }

    #[test]
    fn a_longer_life_of_tokens_keeps_a_key_that_still_signs() {
        let both = maintained(&maintained(&KeyList::default(), 0), 29 * DAY);
        let longer = TokenPolicy { max_ttl_seconds: 7 * DAY, ..TokenPolicy::default() };
        let kept = both.maintained(at(29 * DAY + 5), &longer).unwrap().unwrap();
        assert_eq!(kept.keys[0].dropped_after, Some(at(37 * DAY + 2 * SKEW_SECONDS)));
        assert_eq!(maintained(&kept, 29 * DAY + 9), kept, "a shorter one does not drop it early");
    }

    #[test]
    fn a_rotation_announces_and_a_forced_one_signs_at_once() {
        let policy = TokenPolicy::default();
        let first = maintained(&KeyList::default(), 0);
        let (announced, next) = first.rotated(at(10), &policy, false).unwrap();
        assert_eq!((next.signs_from, next.was_announced), (at(10 + DAY), false));
        assert_eq!(signer(&announced, 20), 0);
        let (same, again) = announced.rotated(at(20), &policy, false).unwrap();
        assert_eq!((&same, again.kid, again.was_announced), (&announced, next.kid.clone(), true));
        let (forced, now) = announced.rotated(at(30), &policy, true).unwrap();
        assert_eq!((forced.keys.len(), signer(&forced, 30)), (2, 1));
        assert_eq!((&forced.keys[1].kid, now.signs_from), (&now.kid, at(30)));
        assert!(forced.keys.iter().all(|key| key.kid != next.kid));
        assert_eq!(forced.keys[0].signs_until, Some(at(30)));
    }

    #[test]
    fn the_key_that_signs_is_not_dropped_and_any_other_is() {
        let policy = TokenPolicy::default();
        let first = maintained(&KeyList::default(), 0);
        let kid = first.keys[0].kid.clone();
        assert!(first.without(&kid, at(5)).unwrap_err().to_string().contains("--force"));
        assert!(first.without("x", at(5)).unwrap_err().to_string().contains(&kid));
        let (forced, _) = first.rotated(at(10), &policy, true).unwrap();
        assert_eq!(forced.without(&kid, at(11)).unwrap().keys, forced.keys[1..]);
        let (announced, next) = first.rotated(at(10), &policy, false).unwrap();
        assert_eq!(announced.without(&next.kid, at(11)).unwrap(), first);
    }

    #[test]
    fn a_key_prints_nothing_of_itself() {
        let list = maintained(&KeyList::default(), 0);
        let private = list.keys[0].private_key.expose().to_owned();
        assert!(!format!("{list:?}").contains(&private[..40]));
        let stored = serde_json::to_vec(&list).unwrap();
        let read = super::super::SigningKeys::read(&stored);
        assert!(!format!("{read:?}").contains(&private[..40]));
        assert_eq!(read.signer(at(0)).unwrap().id(), list.keys[0].kid);
        assert_eq!(read.public().keys.len(), 1);
    }
}
