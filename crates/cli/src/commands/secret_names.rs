//! The secret that `NAME.KEY` names: secrets and their keys may both have dots.
//!
//! `NAME` ends at the first dot if a secret of that name exists. So one request is enough, and no
//! user can change the values that a command reads by creating a secret with a longer name. If
//! there is none, longer names are tried. A secret that the caller may not read does not count as
//! absent.

use postern_client::Error;
use postern_meta::status::Reason;

use crate::error::CliError;
use crate::parse::{self, SecretPath};

/// How many longer names are tried. Each takes a request.
const LONGER_NAMES_MAX: usize = 8;

/// Why a secret, or its key, was not found.
#[derive(Debug)]
pub(super) struct NotFound {
    pub(super) reason: FindError,
    /// A longer name that may be meant. The caller may not know whether it exists.
    pub(super) unknown: Option<String>,
}

impl NotFound {
    /// Whether it is certain that there is no such secret or key.
    pub(super) fn is_certain(&self) -> bool {
        let is_missing = match &self.reason {
            FindError::NoKey(_) => true,
            FindError::Request(error) => error.reason() == Some(Reason::NotFound),
        };
        is_missing && self.unknown.is_none()
    }
}

/// The result of the first request that matters.
#[derive(Debug)]
pub(super) enum FindError {
    /// The request failed.
    Request(Error),
    /// The secret has no such key.
    NoKey(CliError),
}

impl FindError {
    fn alone(self) -> NotFound {
        NotFound { reason: self, unknown: None }
    }
}

/// Why a secret is not created.
#[derive(Debug)]
pub(super) enum NotUnique {
    /// Another one may be meant.
    Name(CliError),
    /// The request that checks the names failed.
    Request(Error),
}

/// A path as the command line has it.
pub(super) struct GivenPath {
    /// The path, with the shortest name where it can be read in several ways.
    pub(super) path: SecretPath,
    /// Whether a flag says where the name ends.
    is_exact: bool,
}

impl GivenPath {
    /// The path that the arguments name. With `key` or `whole`, the argument is the whole name.
    pub(super) fn new(
        path: &SecretPath,
        key: Option<&String>,
        whole: bool,
    ) -> Result<Self, CliError> {
        if key.is_none() && !whole {
            return Ok(Self { path: path.clone(), is_exact: false });
        }
        let name = parse::name(&path.written()).map_err(CliError::usage)?;
        Ok(Self { path: SecretPath { name, key: key.cloned() }, is_exact: true })
    }

    /// The paths to try next, or `None` where there are too many.
    pub(super) fn others(&self) -> Option<Vec<SecretPath>> {
        if self.is_exact {
            return Some(Vec::new());
        }
        Some(self.path.with_longer_names()).filter(|others| others.len() <= LONGER_NAMES_MAX)
    }

    /// Finds a secret with `read`: at the shortest name, or else at the longest that exists and has the key. `read`
    /// returns an inner error for a secret without the key. `with_key` leaves out the path that is a name alone.
    pub(super) async fn find<T>(
        &self,
        with_key: bool,
        mut read: impl AsyncFnMut(SecretPath) -> Result<Result<T, CliError>, Error>,
    ) -> Result<T, NotFound> {
        let first = match read(self.path.clone()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(no_key)) => FindError::NoKey(no_key),
            Err(error) if error.reason() == Some(Reason::NotFound) => FindError::Request(error),
            // The secret does not count as absent: the caller may have lost the permission to read
            // it.
            Err(error) => return Err(FindError::Request(error).alone()),
        };
        for other in self.others().unwrap_or_default() {
            if with_key && other.key.is_none() {
                continue;
            }
            let name = other.name.clone();
            match read(other).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(_)) => {}
                Err(error) if error.reason() == Some(Reason::NotFound) => {}
                Err(error) if error.reason() == Some(Reason::Forbidden) => {
                    return Err(NotFound { reason: first, unknown: Some(name) });
                }
                Err(error) => return Err(FindError::Request(error).alone()),
            }
        }
        Err(first.alone())
    }

    /// Adds how to say where the name ends, where that has not been said.
    pub(super) fn with_flags_hint(&self, error: CliError) -> CliError {
        if self.is_exact || self.path.key.is_none() {
            return error;
        }
        error.hint(format!(
            "if the name of the secret has a dot: postern get secret NAME --key KEY, or {} --whole",
            self.path.written()
        ))
    }

    /// Checks that no other secret can be meant, before one is created. `ask` asks whether there is
    /// a secret of a name.
    pub(super) async fn check_unique(
        &self,
        mut ask: impl AsyncFnMut(&str) -> Result<(), Error>,
    ) -> Result<(), NotUnique> {
        let Some(others) = self.others() else {
            let message = format!(
                "{} is ambiguous: pass the name of the secret and --key KEY",
                self.path.written()
            );
            return Err(NotUnique::Name(self.refuse_create(CliError::new(message))));
        };
        for other in others {
            let SecretPath { name, key } = &other;
            let message = match ask(name).await {
                Ok(()) => format!(
                    "there is no secret {} that you can change; did you mean {name}?",
                    self.path.name
                ),
                Err(error) => match (error.reason(), key) {
                    // A path without a key cannot be the entry to set, though the secret may exist.
                    (Some(Reason::NotFound), _) | (Some(Reason::Forbidden), None) => continue,
                    (Some(Reason::Forbidden), Some(_)) => {
                        format!("no permission to check whether the secret {name} exists")
                    }
                    _ => return Err(NotUnique::Request(error)),
                },
            };
            let key = key.as_deref().unwrap_or("KEY");
            return Err(NotUnique::Name(
                self.refuse_create(CliError::new(message))
                    .hint(format!("to set a key of {name}: postern set secret {name} --key {key}")),
            ));
        }
        Ok(())
    }

    fn refuse_create(&self, error: CliError) -> CliError {
        let SecretPath { name, key } = &self.path;
        let key = key.as_deref().unwrap_or("KEY");
        error.hint(format!(
            "nothing was changed; to create {name}: postern set secret {name} --key {key}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use postern_meta::status::Status;

    use super::*;

    /// The stored secrets, by name: a secret's only key, or a reason why it is refused.
    type Stored = &'static [(&'static str, Result<&'static str, Reason>)];

    fn refused(reason: Reason) -> Error {
        Error::Status(Box::new(Status::failure(400, reason, "no")))
    }

    fn stored(all: Stored, name: &str) -> Result<&'static str, Error> {
        let one = all.iter().find(|(stored, _)| *stored == name);
        one.map_or(Err(Reason::NotFound), |(_, found)| *found).map_err(refused)
    }

    fn given(text: &str) -> GivenPath {
        GivenPath::new(&parse::secret_path(text).unwrap(), None, false).unwrap()
    }

    async fn find(all: Stored, text: &str) -> Result<String, NotFound> {
        let read = async |path: SecretPath| {
            let stored_key = stored(all, &path.name)?;
            match &path.key {
                Some(key) if key != stored_key => Ok(Err(CliError::new("no key"))),
                _ => Ok(Ok(path.describe())),
            }
        };
        given(text).find(false, read).await
    }

    #[tokio::test]
    async fn the_shortest_name_comes_first_and_then_the_longest() {
        let all: Stored = &[("a", Ok("b.c")), ("a.b", Ok("c")), ("a.b.c", Ok("d"))];
        assert_eq!(
            find(all, "a.b.c").await.unwrap(),
            "the argument names the key b.c of the secret a"
        );
        assert_eq!(find(&all[1..], "a.b.c").await.unwrap(), "the argument names the secret a.b.c");
        assert_eq!(
            find(&all[1..2], "a.b.c").await.unwrap(),
            "the argument names the key c of the secret a.b"
        );
        let other_key: Stored = &[("a", Ok("x")), ("a.b", Ok("c"))];
        let found = find(other_key, "a.b.c").await.unwrap();
        assert_eq!(found, "the argument names the key c of the secret a.b");
    }

    #[tokio::test]
    async fn a_secret_that_may_not_be_read_is_not_absent() {
        let first: Stored = &[("a", Err(Reason::Forbidden)), ("a.b", Ok("c"))];
        let missing = find(first, "a.b.c").await.unwrap_err();
        assert!(!missing.is_certain());
        let NotFound { reason, unknown } = missing;
        assert!(
            matches!(reason, FindError::Request(error) if error.reason() == Some(Reason::Forbidden))
        );
        assert_eq!(unknown, None);
        let later: Stored = &[("a", Ok("x")), ("a.b.c", Err(Reason::Forbidden)), ("a.b", Ok("c"))];
        let missing = find(later, "a.b.c").await.unwrap_err();
        assert!(!missing.is_certain());
        assert!(find(&later[..1], "a.b.c").await.unwrap_err().is_certain());
        assert!(find(&[], "a.b.c").await.unwrap_err().is_certain());
        let NotFound { reason, unknown } = missing;
        assert!(matches!(reason, FindError::NoKey(_)));
        assert_eq!(unknown.as_deref(), Some("a.b.c"));
    }

    #[tokio::test]
    async fn nothing_is_created_where_another_secret_may_be_meant() {
        let check = async |all: Stored, text: &str| {
            let ask = async |name: &str| stored(all, name).map(drop);
            match given(text).check_unique(ask).await {
                Ok(()) => String::new(),
                Err(NotUnique::Name(error)) => error.message,
                Err(NotUnique::Request(error)) => format!("{error:?}"),
            }
        };
        assert_eq!(check(&[], "a.b.c").await, "");
        assert!(check(&[("a.b.c", Ok("x"))], "a.b.c").await.ends_with("did you mean a.b.c?"));
        assert!(check(&[("a.b", Ok("c"))], "a.b.c").await.ends_with("did you mean a.b?"));
        let hidden: Stored = &[("a.b", Err(Reason::Forbidden))];
        let message = check(hidden, "a.b.c").await;
        assert_eq!(message, "no permission to check whether the secret a.b exists");
        assert_eq!(check(hidden, "a.b").await, "", "it has no key that could be set");
        let busy: Stored = &[("a.b", Err(Reason::TooManyRequests))];
        assert!(check(busy, "a.b").await.contains("TooManyRequests"));
    }
}
