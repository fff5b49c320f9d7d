//! Tokens that are kept between two calls of kubectl: one file each, readable by its owner alone.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use postern_kinds::SecretText;
use postern_meta::decode::decode_typed;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::error::CliError;
use crate::locked_file::FileLock;
use crate::process::{Process, read_file};

/// The largest file that is read: a token has 8 KiB at most.
const MAX_BYTES: usize = 16 * 1024;

/// A token is renewed when less than one part in so many of its life is left.
const RENEWED_IN_LAST_PART: i64 = 5;

/// A token is not used in these last seconds of its lifetime.
const MARGIN_SECONDS: i64 = 10;

/// The age after which a file that was not written again counts as unused.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(14 * 24);

/// A token, and how long it counts.
pub(crate) struct CachedToken {
    /// The token.
    pub(crate) token: SecretText,
    /// When it was issued, in seconds since 1970.
    pub(crate) issued: i64,
    /// Until when it counts, in seconds since 1970.
    pub(crate) expires: i64,
    /// The process that it was given to last.
    pub(crate) given_to: u32,
}

impl CachedToken {
    /// Whether it is still valid.
    pub(crate) fn counts(&self, now: i64) -> bool {
        self.issued <= now + MARGIN_SECONDS && now + MARGIN_SECONDS < self.expires
    }

    /// Whether it is as good as a new one. If a process asks again before the end, a server has
    /// refused it with this token: the token has been revoked.
    pub(crate) fn is_good_for(&self, caller: u32, now: i64) -> bool {
        let life = self.expires - self.issued;
        caller != self.given_to && (self.expires - now) * RENEWED_IN_LAST_PART >= life
    }
}

/// The file of one token.
pub(crate) struct TokenCache {
    file: PathBuf,
}

impl TokenCache {
    /// The file of this name in the user's cache; `None` when the user has none.
    pub(crate) fn of(process: &Process, name: &str) -> Option<Self> {
        let given = process.variable("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || process.variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let directory = given.filter(|path| path.is_absolute()).or_else(home)?;
        Some(Self { file: directory.join("postern/tokens").join(name) })
    }

    /// The token; `None` when there is none that can be read.
    pub(crate) fn read(&self) -> Option<CachedToken> {
        let bytes = read_file(&self.file, MAX_BYTES).ok()?;
        let value: Value = decode_typed(&bytes).ok()?;
        Some(CachedToken {
            token: SecretText::from(value["token"].as_str()?.to_owned()),
            issued: value["issued"].as_i64()?,
            expires: value["expires"].as_i64()?,
            given_to: u32::try_from(value["givenTo"].as_u64()?).ok()?,
        })
    }

    /// Writes the token, and removes unused files.
    pub(crate) fn write(&self, token: &CachedToken, now: i64) -> Result<(), CliError> {
        let content = json!({
            "token": token.token.expose(),
            "issued": token.issued,
            "expires": token.expires,
            "givenTo": token.given_to,
        });
        let content = Zeroizing::new(content.to_string());
        let lock = FileLock::take(&self.file)?;
        self.remove_forgotten(now);
        lock.replace(content.as_bytes())
    }

    /// Removes unused files. The next call tries those again that cannot be removed.
    fn remove_forgotten(&self, now: i64) {
        let Some(Ok(entries)) = self.file.parent().map(fs::read_dir) else { return };
        let now = std::time::UNIX_EPOCH + Duration::from_secs(u64::try_from(now).unwrap_or(0));
        for entry in entries.flatten() {
            let written = entry.metadata().and_then(|metadata| metadata.modified());
            let age = written.ok().and_then(|written| now.duration_since(written).ok());
            if age.is_some_and(|age| age > FORGOTTEN_AFTER) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn token(given_to: u32) -> CachedToken {
        let token = SecretText::from("header.payload.signature".to_owned());
        CachedToken { token, issued: 1000, expires: 2000, given_to }
    }

    #[test]
    fn a_token_is_renewed_in_the_last_fifth_of_its_life() {
        for (now, counts, is_good) in [
            (980, false, true),
            (1000, true, true),
            (1800, true, true),
            (1801, true, false),
            (1989, true, false),
            (1990, false, false),
        ] {
            assert_eq!(token(7).counts(now), counts, "{now}");
            assert_eq!(token(7).is_good_for(8, now), is_good, "{now}");
        }
    }

    #[test]
    fn a_process_that_asks_again_gets_another_token() {
        assert!(!token(7).is_good_for(7, 1100));
    }

    #[test]
    fn a_file_is_private_and_read_as_it_was_written() {
        let home = tempfile::tempdir().unwrap();
        let process = Process::with(&[("HOME", home.path().to_str().unwrap())]);
        let cache = TokenCache::of(&process, "name").unwrap();
        assert!(cache.read().is_none());
        cache.write(&token(7), 1500).unwrap();
        let read = cache.read().unwrap();
        assert_eq!((read.issued, read.expires, read.given_to), (1000, 2000, 7));
        assert_eq!(read.token.expose(), "header.payload.signature");
        let file = home.path().join(".cache/postern/tokens/name");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let directory = fs::metadata(file.parent().unwrap()).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    }
}
