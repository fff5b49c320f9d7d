//! Storage keys: the key of each record in the store.
//!
//! ```text
//! /objects/<group>/<plural>/[<namespace>/]<name>    an object, and the uid of its owner
//! /secrets/<group>/<plural>/[<namespace>/]<name>    the secret record of an object: the stored part of its
//!                                                   write-only fields
//! /unique/<group>/<plural>/<key>                    the object that has a unique key
//! /counts/<group>/<plural>/<namespace>              the number of creates that a project's quota counted
//! /counts/<group>/ownedaccesskeys/<number>          the number of creates that a limit on access keys counted
//! /activity/<group>/<plural>/<name>                 the last use of an access key
//! /readers/<group>/<plural>/<namespace>/<name>      the readers of a secret
//! /digests/<hex>                                    the access key with this digest
//! /bound-names/<group>/<plural>/[<namespace>/]<name>
//!                                                   the users and teams in access rules and members of an object
//! /sync-writers/<id>                                the writer that requested a secret sync
//! /logged-out-keys/<uid of an access key>           an access key that was deleted by a logout
//! /revocations/<id>                                 a revocation of endpoint tokens
//! /issued-tokens/<uid of an access key>             the time until which its endpoint tokens can be valid
//! /issued-tokens/all                                the same for all endpoint tokens
//! /issued-tokens/unknown                            the same for tokens that were issued without a note
//! /postern/…                                        records of the server: format, digest key, encryption marker,
//!                                                   signing keys, certificate authority
//! ```
//!
//! The group of core/v1 is written `core`. Names have no `/`, so no name can form the key of another object. Names
//! are validated before they become part of a key.

use std::sync::Arc;

use postern_auth::digest::Digest;
use postern_kinds::Info;

/// The prefix of the digest records.
pub const DIGESTS: &str = "/digests/";

/// The prefix of the records of unique keys.
pub(crate) const UNIQUE_KEYS: &str = "/unique/";

/// The prefix of the records of last uses.
pub(crate) const ACTIVITY: &str = "/activity/";

/// The prefix of the readers of secrets.
const READERS: &str = "/readers/";

/// What is known about the notes of all readers.
pub(crate) const READER_LOG: &str = "/postern/readers";

/// The prefix of the counts for quotas.
const COUNTS: &str = "/counts/";

/// The prefix of the secret records.
pub(crate) const SECRETS: &str = "/secrets/";

/// The prefix of the records of bound names.
pub(crate) const BOUND_NAMES: &str = "/bound-names/";

/// The prefix of the records of sync writers.
pub(crate) const SYNC_WRITERS: &str = "/sync-writers/";

/// The prefix of the records of access keys that were deleted by a logout. They stay while secret syncs depend on
/// them.
pub(crate) const LOGGED_OUT_KEYS: &str = "/logged-out-keys/";

/// The keys that sign endpoint tokens.
pub(crate) const SIGNING_KEYS: &str = "/postern/signing-keys";

/// The prefix of the revocation records.
pub(crate) const REVOCATIONS: &str = "/revocations/";

/// The prefix of the issued-token notes.
pub(crate) const ISSUED_TOKENS: &str = "/issued-tokens/";

/// The key of the note for all endpoint tokens. It does not have the form of a uid.
pub(crate) const ALL_ISSUED_TOKENS: &str = "/issued-tokens/all";

/// The key of the note for tokens that the store does not know: they were issued after the backup that was restored.
pub(crate) const UNKNOWN_ISSUED_TOKENS: &str = "/issued-tokens/unknown";

/// The server's key for digests.
pub(crate) const DIGEST_KEY: &str = "/postern/digest-key";

/// The version of this layout.
pub(crate) const FORMAT: &str = "/postern/format";

/// The certificate authority of servers that share a store.
pub(crate) const AUTHORITY: &str = "/postern/certificate-authority";

/// The key of the names of namespaces from the first start.
pub(crate) const NAMESPACE_NAMES: &str = "/postern/namespace-names";

/// The key of the note that all objects have the roles of their access rules.
pub(crate) const ROLES_OF_ALL: &str = "/postern/roles-of-all";

const OBJECTS: &str = "/objects/";

/// The prefix of all keys of objects of a kind.
pub fn collection(info: &Info) -> String {
    under(OBJECTS, info)
}

/// The prefix `ROOT<group>/<plural>/`.
fn under(root: &str, info: &Info) -> String {
    let group = if info.version.group.is_empty() { "core" } else { info.version.group };
    [root, group, "/", info.plural, "/"].concat()
}

/// The prefix of all keys of a kind in a namespace, or in all namespaces for `None`.
pub(crate) fn in_namespace(collection: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => [collection, namespace, "/"].concat(),
        None => collection.to_owned(),
    }
}

/// The key of one object.
pub fn object(info: &Info, namespace: Option<&str>, name: &str) -> Arc<str> {
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
    [DIGESTS, &digest.to_hex()].concat().into()
}

/// The key of the bound names of an object.
pub(crate) fn bound_names(info: &Info, namespace: Option<&str>, name: &str) -> Arc<str> {
    in_collection(&under(BOUND_NAMES, info), namespace, name).into()
}

/// The key of the record of a sync writer.
pub(crate) fn sync_writer(id: &str) -> Arc<str> {
    [SYNC_WRITERS, id].concat().into()
}

/// The key of the record of an access key that was deleted by a logout.
pub(crate) fn logged_out_key(uid: &str) -> Arc<str> {
    [LOGGED_OUT_KEYS, uid].concat().into()
}

/// The key of an object's secret record.
pub(crate) fn secret_record(info: &Info, namespace: Option<&str>, name: &str) -> Arc<str> {
    in_collection(&under(SECRETS, info), namespace, name).into()
}

/// The holder of a unique key, as its record has it: `NAMESPACE/NAME`, or `NAME` if the kind is cluster-scoped.
pub(crate) fn holder(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| [namespace, "/", name].concat())
}

/// The key of the record of a unique key. With an empty unique key, it is the prefix of all records of the kind.
pub fn unique_key(info: &Info, unique_key: &str) -> Arc<str> {
    [&under(UNIQUE_KEYS, info), unique_key].concat().into()
}

/// Whether a key is that of a count.
pub(crate) fn is_count(key: &str) -> bool {
    key.starts_with(COUNTS)
}

/// The key of the count of the objects of a kind in a project's namespace, or of a group of limits.
pub(crate) fn count(info: &Info, namespace: &str) -> Arc<str> {
    [&under(COUNTS, info), namespace].concat().into()
}

/// The key of the record of an access key's last use.
pub(crate) fn activity(info: &Info, name: &str) -> Arc<str> {
    [&under(ACTIVITY, info), name].concat().into()
}

/// The key of the record of the readers of a secret with a storage key.
pub(crate) fn readers(secret: &str) -> Arc<str> {
    [READERS, display_name(secret)].concat().into()
}

/// The key of the revocation record with this id.
pub(crate) fn revocation(id: &str) -> Arc<str> {
    [REVOCATIONS, id].concat().into()
}

/// The key of the issued-token note for an access key, by its uid.
pub(crate) fn issued_tokens(uid: &str) -> Arc<str> {
    [ISSUED_TOKENS, uid].concat().into()
}

/// The name of the access key in the key of its last-use record.
pub(crate) fn key_of_activity(key: &str) -> Option<&str> {
    key.strip_prefix(ACTIVITY)?.split('/').nth(2)
}

/// The namespace and name in an object's key, given the kind's collection.
pub(crate) fn split<'a>(collection: &str, key: &'a str) -> (Option<&'a str>, &'a str) {
    let rest = key.strip_prefix(collection).unwrap_or(key);
    match rest.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, rest),
    }
}

/// The namespace and name in the key of an object of any kind.
pub(crate) fn name_of(key: &str) -> (Option<&str>, &str) {
    let rest = key.strip_prefix(OBJECTS).unwrap_or(key);
    let name = rest.splitn(3, '/').nth(2).unwrap_or(rest);
    match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, name),
    }
}

/// A key in its printed form, without the prefix of all objects.
pub fn display_name(key: &str) -> &str {
    key.strip_prefix(OBJECTS).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use postern_kinds::AnyKind as _;
    use postern_kinds::namespace::Namespace;
    use postern_kinds::owned_access_key::OwnedAccessKey;
    use postern_kinds::shared_secret::SharedSecret;
    use postern_kinds::user::User;

    use super::*;

    #[test]
    fn keys_are_split_as_they_were_made() {
        let secrets = SharedSecret.info();
        let key = object(secrets, Some("platform"), "db.password");
        assert_eq!(&*key, "/objects/management.platform.sh/sharedsecrets/platform/db.password");
        assert_eq!(split(&collection(secrets), &key), (Some("platform"), "db.password"));
        let key = object(Namespace.info(), None, "default");
        assert_eq!(&*key, "/objects/core/namespaces/default");
        assert_eq!(split(&collection(Namespace.info()), &key), (None, "default"));
    }

    #[test]
    fn keys_of_side_records_have_group_and_namespace() {
        let key = secret_record(SharedSecret.info(), Some("platform"), "db");
        assert_eq!(&*key, "/secrets/management.platform.sh/sharedsecrets/platform/db");
        let key = unique_key(User.info(), "oidc|7");
        assert_eq!(&*key, "/unique/management.platform.sh/users/oidc|7");
        let key = activity(OwnedAccessKey.info(), "ci");
        assert_eq!(&*key, "/activity/management.platform.sh/ownedaccesskeys/ci");
        assert_eq!(key_of_activity(&key), Some("ci"));
        let key = readers(&object(SharedSecret.info(), Some("platform"), "db"));
        assert_eq!(&*key, "/readers/management.platform.sh/sharedsecrets/platform/db");
    }
}
