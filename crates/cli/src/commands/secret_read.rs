//! The requests that read one secret. Only the values that a command prints are read: the audit log of the server has
//! a record for each.

use std::collections::BTreeMap;

use postern_client::{Collection, Error, decode_fields};
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::secret_entries::SecretEntries;
use postern_kinds::secret_entry::{ENTRY_PARAMETER, SecretEntry};
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::{Kind as _, SecretText};
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::parse::SecretPath;
use crate::session::Session;
use crate::similar::nearest;
use crate::variables::Data;

/// The subresources of a secret.
const ENTRIES: &str = "entries";
const ENTRY: &str = "entry";

/// The keys of a secret, and the sizes of their values in bytes.
pub(super) type Sizes = BTreeMap<String, u64>;

/// The parts of a secret that a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// The names and sizes of the entries.
    Names,
    /// The value of the key, or all values.
    Values,
    /// The same, in the whole object.
    Object,
}

/// How a secret is searched for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Whether paths that are a name alone are left out.
    pub(super) with_key: bool,
    /// The part of the secret to read.
    pub(super) need: Need,
}

/// A secret that was read, and which key of it was asked for.
pub(super) struct ReadSecret {
    pub(super) path: SecretPath,
    /// The object, for [`Need::Object`].
    pub(super) object: Object,
    /// The values that were read.
    pub(super) data: Data,
    /// The sizes of the values, if no value was read.
    pub(super) sizes: Sizes,
}

/// Reads a secret. The inner error is that it has no such key.
pub(super) async fn read(
    session: &mut Session,
    of: Collection<'_>,
    path: SecretPath,
    need: Need,
) -> Result<Result<ReadSecret, CliError>, Error> {
    let read = match (path.key.clone(), need) {
        (key, Need::Names) => read_names(session, of, &path, key).await,
        (Some(key), need) => read_entry(session, of, &path, &key, need).await,
        (None, _) => return read_whole(session, of, path).await,
    };
    match read {
        // A server of an older version has no such paths.
        Err(error) if is_not_served(&error) => read_whole(session, of, path).await,
        read => read,
    }
}

/// Reads all values.
async fn read_whole(
    session: &mut Session,
    of: Collection<'_>,
    path: SecretPath,
) -> Result<Result<ReadSecret, CliError>, Error> {
    let object = session.client.get(of, &path.name).await?;
    let data = data_of(of, &object)?;
    Ok(match &path.key {
        Some(key) if !data.contains_key(key) => Err(no_key(&path.name, key, data.keys())),
        _ => Ok(ReadSecret { path, object, data, sizes: Sizes::new() }),
    })
}

/// Reads the names and sizes of the entries.
async fn read_names(
    session: &mut Session,
    of: Collection<'_>,
    path: &SecretPath,
    key: Option<String>,
) -> Result<Result<ReadSecret, CliError>, Error> {
    let (object, sizes) = entries(session, of, &path.name).await?;
    Ok(match key {
        Some(key) if !sizes.contains_key(&key) => Err(no_key(&path.name, &key, sizes.keys())),
        _ => Ok(ReadSecret { path: path.clone(), object, data: Data::new(), sizes }),
    })
}

/// Reads the value of one key.
async fn read_entry(
    session: &mut Session,
    of: Collection<'_>,
    path: &SecretPath,
    key: &str,
    need: Need,
) -> Result<Result<ReadSecret, CliError>, Error> {
    let name = &path.name;
    let read = session.client.get_named_part(of, name, ENTRY, ENTRY_PARAMETER, key).await;
    let entry = match read {
        Ok(entry) => entry,
        Err(error) if is_no_entry(&error) => {
            let (_, sizes) = entries(session, of, name).await?;
            return Ok(Err(no_key(name, key, sizes.keys())));
        }
        Err(error) => return Err(error),
    };
    let value = decode_fields::<SecretEntry>(&entry)?.spec.value;
    let object = if need == Need::Object {
        let (object, _) = entries(session, of, name).await?;
        with_entry(of, object, key, &value)
    } else {
        entry
    };
    let data = Data::from([(key.to_owned(), value)]);
    Ok(Ok(ReadSecret { path: path.clone(), object, data, sizes: Sizes::new() }))
}

/// The secret without its values, and the sizes of these.
async fn entries(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
) -> Result<(Object, Sizes), Error> {
    let object = session.client.get_part(of, name, ENTRIES).await?;
    let entries = decode_fields::<SecretEntries>(&object)?.spec.entries;
    let sizes = entries.into_iter().map(|entry| (entry.name, entry.bytes)).collect();
    Ok((object, sizes))
}

/// The secret as an object with one value.
fn with_entry(of: Collection<'_>, part: Object, key: &str, value: &SecretText) -> Object {
    let info = of.info();
    let mut fields = part.fields;
    fields.remove("entries");
    let spec = fields.entry("spec").or_insert_with(|| json!({}));
    if let Value::Object(spec) = spec {
        spec.insert("data".to_owned(), json!({ (key): value.expose() }));
    }
    let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
    Object { api_version, kind, metadata: part.metadata, fields }
}

/// Whether the secret exists and has no such entry.
fn is_no_entry(error: &Error) -> bool {
    let details = error.status().and_then(|status| status.details.as_ref());
    error.reason() == Some(Reason::NotFound)
        && details.is_some_and(|details| {
            details.causes.iter().any(|cause| cause.field.starts_with("spec.data"))
        })
}

/// Whether the server does not know the path. Its 404 then names no object.
fn is_not_served(error: &Error) -> bool {
    let names_object = error.status().and_then(|status| status.details.as_ref());
    error.reason() == Some(Reason::NotFound)
        && !is_no_entry(error)
        && names_object.is_none_or(|details| details.name.is_empty())
}

/// The values of a secret.
pub(super) fn data_of(of: Collection<'_>, object: &Object) -> Result<Data, Error> {
    if of.info().kind == ProjectSecret::INFO.kind {
        return Ok(decode_fields::<ProjectSecret>(object)?.spec.data);
    }
    Ok(decode_fields::<SharedSecret>(object)?.spec.data)
}

fn no_key<'a>(name: &str, key: &str, keys: impl Iterator<Item = &'a String>) -> CliError {
    let error = CliError::new(format!("the secret {name} has no key {key}"));
    let near = nearest(key, keys.map(String::as_str));
    if near.is_empty() {
        return error.hint(format!("`postern get secret {name}` lists its keys"));
    }
    error.hint(format!("did you mean {}?", near.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_suggests_a_similar_one() {
        let error = no_key("db", "pasword", ["password".to_owned()].iter());
        assert_eq!(error.hints, ["did you mean password?"]);
    }
}
