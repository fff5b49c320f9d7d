//! The path of a kind's objects, from the kind's own names.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use postern_kinds::{Info, Kind};
use postern_meta::names::path_segment;

use crate::error::Error;

/// Escapes the characters that a path's segment may not contain.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// All objects of a kind, or those in one namespace.
#[derive(Clone, Copy, Debug)]
pub struct Collection<'a> {
    info: &'static Info,
    namespace: Option<&'a str>,
}

impl<'a> Collection<'a> {
    /// The objects of a kind. `None` is all namespaces; for a kind without namespaces the
    /// namespace is ignored.
    pub fn of<K: Kind>(namespace: Option<&'a str>) -> Self {
        Self::new(&K::INFO, namespace)
    }

    /// The same for a kind that is known at run time only.
    pub fn new(info: &'static Info, namespace: Option<&'a str>) -> Self {
        Self { info, namespace: namespace.filter(|_| info.is_namespaced()) }
    }

    /// The kind's names.
    pub fn info(&self) -> &'static Info {
        self.info
    }

    /// The namespace, unless it is all of them or the kind has none.
    pub fn namespace(&self) -> Option<&'a str> {
        self.namespace
    }

    /// The path below the server's base path.
    pub(crate) fn path(&self) -> Result<String, Error> {
        let version = self.info.version;
        let root = if version.group.is_empty() { "/api" } else { "/apis" };
        let plural = self.info.plural;
        match self.namespace {
            None => Ok(format!("{root}/{version}/{plural}")),
            Some(namespace) => {
                Ok(format!("{root}/{version}/namespaces/{}/{plural}", segment(namespace)?))
            }
        }
    }

    /// One object's path below the server's base path.
    pub(crate) fn path_of(&self, name: &str) -> Result<String, Error> {
        Ok(format!("{}/{}", self.path()?, segment(name)?))
    }
}

/// A name as one segment of a path. An empty one, and dots, would change the path.
fn segment(name: &str) -> Result<String, Error> {
    if name.is_empty() || path_segment(name).is_err() {
        return Err(Error::Name(name.to_owned()));
    }
    Ok(utf8_percent_encode(name, SEGMENT).to_string())
}

#[cfg(test)]
mod tests {
    use postern_kinds::namespace::Namespace;
    use postern_kinds::shared_secret::SharedSecret;
    use postern_kinds::user::User;

    use super::*;

    #[test]
    fn paths() {
        let secrets = Collection::of::<SharedSecret>(Some("platform"));
        let path = "/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets/db";
        assert_eq!(secrets.path_of("db").unwrap(), path);
        let everywhere = Collection::of::<SharedSecret>(None).path().unwrap();
        assert_eq!(everywhere, "/apis/management.platform.sh/v1/sharedsecrets");
        let users = Collection::of::<User>(Some("platform"));
        assert_eq!(users.path().unwrap(), "/apis/management.platform.sh/v1/users");
        assert_eq!(Collection::of::<Namespace>(None).path().unwrap(), "/api/v1/namespaces");
    }

    #[test]
    fn a_name_cannot_change_the_path() {
        let secrets = Collection::of::<SharedSecret>(Some("platform"));
        for name in ["", ".", "..", "a/b", "a%2fb"] {
            assert!(secrets.path_of(name).is_err(), "{name:?}");
        }
        assert!(secrets.path_of("a?b#c").unwrap().ends_with("/a%3Fb%23c"));
        assert!(Collection::of::<SharedSecret>(Some("..")).path().is_err());
    }
}
