//! Where things stand in the store.
//!
//! ```text
//! /objects/<group>/<plural>/[<namespace>/]<name>   an object
//! /digests/<hex>                                   which access key has this digest
//! /withheld/<plural>/<name>                        what an object has that is never shown
//! /claims/<plural>/<claim>                         who has what nobody else may have
//! /activity/<name>                                 when an access key was used last
//! /postern/…                                       the server's own: digest key, seal marker
//! ```
//!
//! Names cannot hold `/`, so no name can reach into another's place; they are validated before a
//! key is made of them.

use std::sync::Arc;

use postern_auth::digest::Digest;
use postern_kinds::Info;

/// Records of which access key has which digest.
pub(crate) const DIGESTS: &str = "/digests/";

/// Records of what nobody else may have.
pub(crate) const UNIQUE_KEYS: &str = "/claims/";

/// Records of when access keys were used last.
pub(crate) const ACTIVITY: &str = "/activity/";

/// The server's key for digests.
pub(crate) const DIGEST_KEY: &str = "/postern/digest-key";

const OBJECTS: &str = "/objects/";

/// What all keys of a kind begin with.
pub(crate) fn collection(info: &Info) -> String {
    let group = if info.version.group.is_empty() { "core" } else { info.version.group };
    format!("{OBJECTS}{group}/{}/", info.plural)
}

/// What all keys of a kind in a namespace begin with; in all namespaces, when it is `None`.
pub(crate) fn in_namespace(collection: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{collection}{namespace}/"),
        None => collection.to_owned(),
    }
}

/// The key of one object.
pub(crate) fn object(info: &Info, namespace: Option<&str>, name: &str) -> Arc<str> {
    in_collection(&collection(info), namespace, name).into()
}

/// The key of one object, given its kind's collection.
pub(crate) fn in_collection(collection: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => [collection, namespace, "/", name].concat(),
        None => [collection, name].concat(),
    }
}

/// The key of a digest's record.
pub(crate) fn digest(digest: Digest) -> Arc<str> {
    format!("{DIGESTS}{}", digest.to_hex()).into()
}

/// The key of the record of what an object has that is never shown.
pub(crate) fn secret_record(info: &Info, name: &str) -> Arc<str> {
    format!("/withheld/{}/{name}", info.plural).into()
}

/// The key of a claim's record.
pub(crate) fn unique_key(info: &Info, unique_key: &str) -> Arc<str> {
    format!("{UNIQUE_KEYS}{}/{unique_key}", info.plural).into()
}

/// The key of the record of an access key's last use.
pub(crate) fn activity(name: &str) -> Arc<str> {
    format!("{ACTIVITY}{name}").into()
}

/// Namespace and name in an object's key, given the kind's collection.
pub(crate) fn split<'a>(collection: &str, key: &'a str) -> (Option<&'a str>, &'a str) {
    let rest = key.strip_prefix(collection).unwrap_or(key);
    match rest.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, rest),
    }
}

/// A key as people are shown it.
pub(crate) fn display_name(key: &str) -> &str {
    key.strip_prefix(OBJECTS).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use postern_kinds::{AnyKind as _, namespace::Namespace, shared_secret::SharedSecret};

    use super::*;

    #[test]
    fn keys_take_apart_as_they_were_made() {
        let secrets = SharedSecret.info();
        let key = object(secrets, Some("platform"), "db.password");
        assert_eq!(&*key, "/objects/management.platform.sh/sharedsecrets/platform/db.password");
        assert_eq!(split(&collection(secrets), &key), (Some("platform"), "db.password"));
        let key = object(Namespace.info(), None, "default");
        assert_eq!(&*key, "/objects/core/namespaces/default");
        assert_eq!(split(&collection(Namespace.info()), &key), (None, "default"));
    }
}
