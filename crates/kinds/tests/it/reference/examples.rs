//! The examples in the reference: each decodes, has no unknown field, and is valid.

use postern_kinds::secret_offer::InstanceLocation;
use postern_kinds::write_only::WriteOnlyValues;
use postern_kinds::{AnyKind, Caller, Context, Principal, Principals, all};
use postern_meta::decode::{Format, decode};
use postern_meta::field::FieldErrors;
use postern_meta::validate::validate_create;
use postern_meta::{Object, Timestamp};
use serde_json::Value;

use crate::reference::pages;

/// The users and teams that examples name.
const PRINCIPALS: [&str; 4] = ["ada", "bob", "shop", "red"];

/// The project that examples are in.
const PROJECT: &str = "web";

struct Known;

impl Principals for Known {
    fn uid(&self, principal: Principal<'_>) -> Option<String> {
        let (Principal::User(name) | Principal::Team(name)) = principal;
        PRINCIPALS.contains(&name).then(|| format!("uid-{name}"))
    }

    fn teams_of(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// The objects in the YAML blocks of a page. Blocks without a kind are parts of objects, and are left out.
pub(crate) fn objects_in(page: &str) -> Vec<Result<Value, String>> {
    let blocks = page.split("\n```yaml\n").skip(1);
    let texts = blocks.filter_map(|rest| rest.split("\n```").next());
    let documents = texts.flat_map(|text| text.split("\n---\n"));
    let decoded = documents.map(|text| {
        let decoded =
            decode(text.as_bytes(), Format::Yaml).map_err(|error| format!("{error}: {text}"))?;
        if decoded.duplicates.is_empty() {
            Ok(decoded.value)
        } else {
            Err(format!("twice: {:?}", decoded.duplicates))
        }
    });
    decoded
        .filter(|decoded| decoded.as_ref().map_or(true, |value| value.get("kind").is_some()))
        .collect()
}

/// An object as it is stored or returned, and its invalid fields.
pub(crate) type Verdict = Result<(Object, FieldErrors), String>;

/// Checks an object of one of the kinds that are served, or that are bodies of actions, after an older state of it.
///
/// # Errors
/// The reason why it is invalid, apart from its fields.
pub(crate) fn prepare(mut value: Value, old: Option<&Object>) -> Verdict {
    let kind = kind_of(&value).ok_or("no such kind in this version")?;
    let schema = kind.schema();
    schema.check_types(&value).map_err(|error| format!("{error:?}"))?;
    let nulls = kind.info().strict_fields().nulls(schema, &value);
    let unserved = kind.info().take_unserved(&mut value);
    let unknown = schema.prune_unknown(&mut value);
    if !(nulls.is_empty() && unserved.is_empty() && unknown.is_empty()) {
        return Err(format!("{nulls}, {unserved}, unknown: {unknown:?}"));
    }
    let mut object = Object::from_value(value).map_err(|error| format!("{error:?}"))?;
    let info = kind.info();
    let mut errors = FieldErrors::new();
    let write_only = kind.info().write_only;
    WriteOnlyValues::take(&mut object, write_only).validate(write_only, &mut errors);
    let is_body = all().iter().all(|served| served.info().kind != info.kind);
    if info.is_stored() && !is_body {
        errors.extend(validate_create(
            &object.metadata,
            info.is_namespaced(),
            kind.info().name_rule,
        ));
    }
    let caller = Caller { user: Some("ada".to_owned()), team: None, uid: "uid-ada".to_owned() };
    // Each instance that an example names is on a Cluster.
    let instance = |_, _: &str| {
        let cluster_uid = "1".to_owned();
        Some(InstanceLocation { cluster_uid, ..InstanceLocation::default() })
    };
    let context = Context {
        instance: &instance,
        project_of_namespace: Some(PROJECT).filter(|_| object.metadata.namespace.starts_with("p-")),
        ..Context::of(&caller, Timestamp::from_unix_seconds(0), &Known)
    };
    let prepared = kind.prepare(&mut object, old, &context);
    let verdict = prepared.and_then(|prepared| prepared.verdict);
    errors.extend(verdict.map_err(|error| error.status().message.clone())?);
    Ok((object, errors))
}

/// Checks an example.
///
/// # Errors
/// The reason why it is invalid.
pub(crate) fn check(value: Value) -> Result<(), String> {
    let (_, errors) = prepare(value, None)?;
    errors.into_result().map_err(|errors| errors.to_string())
}

/// The kind of an object.
pub(crate) fn kind_of(value: &Value) -> Option<&'static dyn AnyKind> {
    let bodies = all().iter().flat_map(|kind| pages::bodies(*kind));
    all().iter().copied().chain(bodies).find(|kind| {
        value["kind"] == kind.info().kind && value["apiVersion"] == kind.info().version.to_string()
    })
}
