//! The limits of an access key with a limited lifetime. It can create or change keys, itself included, only if they
//! expire no later than itself. Otherwise a leaked key would give access forever. See
//! `docs/reference/access-keys.md#keys-with-a-limited-lifetime`.

use postern_meta::time::Timestamp;

use crate::context::CallerKey;
use crate::principal::Lifetime;

/// An access key as a write would leave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenKey<'a> {
    /// Its uid.
    pub(crate) uid: &'a str,
    /// How long it would give access.
    pub(crate) lifetime: Lifetime,
    /// Whether it would have the type `Login`.
    pub(crate) is_login: bool,
}

/// Checks that a key would end no later than the key of the caller.
///
/// # Errors
/// The text of a 403, which gives the reason and the advice. Another caller may write the same key.
pub(crate) fn check(caller: &CallerKey, written: WrittenKey<'_>) -> Result<(), String> {
    let Some(end) = caller.ends_at().filter(|_| !caller.is_login) else { return Ok(()) };
    let refusal = |why: &str| {
        let at = Timestamp::from_unix_seconds(end);
        format!(
            "the access key of the request expires at {at}, and can create or change only keys \
             that expire no later: {why}, or use a key without expiry or of type Login"
        )
    };
    if written.is_login {
        return Err(refusal(
            "spec.type Login is not allowed, because such keys can create keys without this \
             limit: choose another type",
        ));
    }
    let lifetime = written.lifetime;
    if written.uid == caller.uid && is_no_longer(lifetime, caller.lifetime) {
        return Ok(());
    }
    if lifetime.after_last_activity {
        return Err(refusal(
            "omit spec.ttlAfterLastActivity, because each use would extend the key",
        ));
    }
    match lifetime.ends_at(None) {
        Some(written_end) if written_end <= end => Ok(()),
        _ => {
            let ttl = end.saturating_sub(lifetime.created_unix_seconds);
            Err(refusal(&match ttl {
                ..=0 => "this key would expire later: create a new one".to_owned(),
                ttl => format!("set spec.ttl to at most {ttl} seconds"),
            }))
        }
    }
}

/// Whether a key with the new lifetime always ends no later than with the old one.
fn is_no_longer(new: Lifetime, old: Lifetime) -> bool {
    new.after_last_activity == old.after_last_activity
        && new.created_unix_seconds <= old.created_unix_seconds
        && (1..=old.ttl_seconds).contains(&new.ttl_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(created: i64, ttl: i64, after_last_activity: bool) -> Lifetime {
        Lifetime {
            created_unix_seconds: created,
            ttl_seconds: ttl,
            after_last_activity,
            ..Lifetime::default()
        }
    }

    fn caller(lifetime: Lifetime, last_activity_unix_seconds: Option<i64>) -> CallerKey {
        CallerKey {
            uid: "mine".to_owned(),
            lifetime,
            last_activity_unix_seconds,
            ..CallerKey::default()
        }
    }

    #[test]
    fn a_key_with_a_limited_life_makes_and_changes_none_that_ends_later() {
        let unlimited = caller(lifetime(0, 0, false), None);
        let until_1000 = caller(lifetime(0, 1000, false), None);
        let login = CallerKey { is_login: true, ..until_1000.clone() };
        // Its last use was at 700, so it ends at 1000 unless it is used again.
        let renewed = caller(lifetime(0, 300, true), Some(700));
        for (caller, uid, written, allowed) in [
            (&unlimited, "other", lifetime(500, 0, false), true),
            (&unlimited, "other", lifetime(500, 300, true), true),
            (&login, "other", lifetime(500, 0, false), true),
            (&login, "other", lifetime(500, 300, true), true),
            (&until_1000, "other", lifetime(500, 500, false), true),
            (&until_1000, "other", lifetime(500, 501, false), false),
            (&until_1000, "other", lifetime(500, 0, false), false),
            (&until_1000, "other", lifetime(0, 900, false), true),
            (&until_1000, "other", lifetime(500, i64::MAX, false), false),
            (&until_1000, "other", lifetime(1000, 1, false), false),
            (&until_1000, "other", lifetime(500, 300, true), false),
            (&until_1000, "other", lifetime(0, 300, true), false),
            // Itself.
            (&until_1000, "mine", lifetime(0, 1000, false), true),
            (&until_1000, "mine", lifetime(0, 10, false), true),
            (&until_1000, "mine", lifetime(0, 1001, false), false),
            (&until_1000, "mine", lifetime(0, 0, false), false),
            (&until_1000, "mine", lifetime(0, 300, true), false),
            (&renewed, "mine", lifetime(0, 300, true), true),
            (&renewed, "mine", lifetime(0, 301, true), false),
            (&renewed, "mine", lifetime(0, 0, true), false),
            (&renewed, "mine", lifetime(0, 1000, false), true),
            (&renewed, "mine", lifetime(0, 1001, false), false),
            (&renewed, "other", lifetime(0, 300, true), false),
            (&renewed, "other", lifetime(700, 300, false), true),
            (&renewed, "other", lifetime(700, 301, false), false),
        ] {
            let key = WrittenKey { uid, lifetime: written, is_login: false };
            let checked = check(caller, key);
            assert_eq!(checked.is_ok(), allowed, "{caller:?}, {key:?}: {checked:?}");
        }
    }

    #[test]
    fn a_key_with_a_limited_life_makes_and_changes_no_login_keys() {
        let limited = caller(lifetime(0, 1000, false), None);
        let login = CallerKey { is_login: true, ..limited.clone() };
        let unlimited = caller(lifetime(0, 0, false), None);
        let key = WrittenKey { uid: "k", lifetime: lifetime(0, 10, false), is_login: true };
        assert!(check(&limited, key).unwrap_err().contains("spec.type"));
        assert!(check(&limited, WrittenKey { uid: "mine", ..key }).is_err());
        assert_eq!(check(&login, key), Ok(()));
        assert_eq!(check(&unlimited, key), Ok(()));
    }

    #[test]
    fn a_refusal_says_when_the_callers_key_ends_and_what_to_do() {
        let limited = caller(lifetime(0, 1000, false), None);
        let key = |lifetime| WrittenKey { uid: "k", lifetime, is_login: false };
        for (written, advice) in [
            (lifetime(400, 0, false), "set spec.ttl to at most 600 seconds, or use"),
            (lifetime(2000, 1, false), "this key would expire later: create a new one, or use"),
            (lifetime(400, 300, true), "spec.ttlAfterLastActivity"),
        ] {
            let text = check(&limited, key(written)).unwrap_err();
            assert!(text.contains("expires at 1970-01-01T00:16:40Z"), "{text}");
            assert!(text.contains(advice), "{text}");
        }
    }
}
