//! A new access key for the administrator, if all keys are lost.

use postern_auth::bearer::BearerToken;
use postern_auth::identity::MASTERS_GROUP;
use postern_kinds::owned_access_key::{KEY_PATH, OwnedAccessKey};
use postern_kinds::user::User;
use postern_kinds::{AnyKind, SecretText, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::options::{DeleteOptions, GetOptions};
use postern_meta::status::ApiError;
use postern_registry::admit::Writing;
use postern_registry::kubeconfig;
use postern_registry::operations;
use postern_registry::permit::Permit;
use postern_registry::registry::first_start::{ADMIN, spec};
use postern_registry::registry::{Registry, decoded};
use serde_json::{Value, json};

use super::{Access, CommandOutput};
use crate::data_dir::write_private;

/// Creates a key for the user `admin`, and writes the kubeconfig. It first repairs the user, if the permissions of the
/// first start are missing. Other keys do not change.
///
/// The kubeconfig is written after the key is stored. If the server stops in between, the old file stays. Repeat the
/// command then.
pub(crate) async fn reset_key(
    registry: &Registry,
    access: &Access,
) -> anyhow::Result<CommandOutput> {
    let user_repaired = repair_user(registry).await.map_err(|error| message(&error))?;
    let other_keys = working_keys(registry);
    let key = new_key(registry).await.map_err(|error| message(&error))?;
    let key_name = key.metadata.name.clone();
    let mut value = key.fields.get(KEY_PATH[0]).cloned().unwrap_or_default();
    let Some(Value::String(value)) = value.get_mut(KEY_PATH[1]).map(Value::take) else {
        anyhow::bail!(
            "the new access key was created, but its value is not in the response: repeat the command"
        );
    };
    let token = BearerToken::of_key(&SecretText::from(value));
    let trust = access.trust.load_full();
    write_private(&access.kubeconfig, &kubeconfig::new(&access.host, &trust, &token))?;
    let kubeconfig = access.kubeconfig.clone();
    Ok(CommandOutput::ResetKey { kubeconfig, key_name, user_repaired, other_keys })
}

fn message(error: &ApiError) -> anyhow::Error {
    anyhow::anyhow!("{}", error.status().message)
}

async fn new_key(registry: &Registry) -> Result<Object, ApiError> {
    let metadata = ObjectMeta { generate_name: format!("{ADMIN}-"), ..ObjectMeta::default() };
    let fields = json!({ "displayName": "Made by reset-key", "user": ADMIN });
    create(registry, &OwnedAccessKey, metadata, fields).await
}

async fn create(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    metadata: ObjectMeta,
    fields: Value,
) -> Result<Object, ApiError> {
    let info = kind.info();
    let permit = Permit::for_server(kind, Verb::Create, None, &metadata.name);
    let object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata,
        fields: spec(fields),
    };
    decoded(&operations::create(registry, &permit, object, &Writing::by_server()).await?)
}

/// Makes sure that the user exists, is enabled, and is in `system:masters`. Returns whether anything changed.
async fn repair_user(registry: &Registry) -> Result<bool, ApiError> {
    // A corrupt user must not lock the administrator out: it is removed and created again.
    if operations::remove_corrupt(registry, &User, ADMIN).await? {
        return create_user(registry).await;
    }
    let reading = Permit::for_server(&User, Verb::Get, None, ADMIN);
    let user = registry.get(&reading, &GetOptions::default()).await;
    let before = match user {
        Ok(user) => decoded(&user)?.metadata,
        Err(error) if error.code() == 404 => return create_user(registry).await,
        Err(error) => return Err(error),
    };
    if before.is_terminating() {
        // Keys of a terminating user are invalid, and so would be a new one. The user is removed at once, with
        // all finalizers.
        remove_user(registry).await?;
        return create_user(registry).await;
    }
    let permit = Permit::for_server(&User, Verb::Update, None, ADMIN);
    let writing = Writing::by_server();
    let change = |user: &Object| Ok(repaired(user));
    let after = operations::update(registry, &permit, &writing, change).await?;
    let after = decoded(&after)?.metadata;
    Ok(after.resource_version != before.resource_version)
}

async fn create_user(registry: &Registry) -> Result<bool, ApiError> {
    let metadata = ObjectMeta { name: ADMIN.to_owned(), ..ObjectMeta::default() };
    let fields = json!({ "displayName": "Administrator", "groups": [MASTERS_GROUP] });
    create(registry, &User, metadata, fields).await?;
    Ok(true)
}

async fn remove_user(registry: &Registry) -> Result<(), ApiError> {
    let permit = Permit::for_server(&User, Verb::Update, None, ADMIN);
    operations::release(registry, &permit, |user| user.metadata.finalizers.clear()).await?;
    let permit = Permit::for_server(&User, Verb::Delete, None, ADMIN);
    let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    match operations::delete(registry, &permit, &now).await {
        Err(error) if error.code() != 404 => Err(error),
        _ => Ok(()),
    }
}

fn repaired(user: &Object) -> Object {
    let mut user = user.clone();
    let spec = user.fields.entry("spec").or_insert_with(|| json!({}));
    let mut groups = spec["groups"].as_array().cloned().unwrap_or_default();
    if !groups.contains(&Value::from(MASTERS_GROUP)) {
        groups.push(MASTERS_GROUP.into());
        spec["groups"] = groups.into();
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("disabled");
    }
    user
}

/// The names of the user's keys that are not disabled.
fn working_keys(registry: &Registry) -> Vec<String> {
    // A corrupt key must not lock the administrator out: it is omitted.
    let all = registry.page_to_decide(&OwnedAccessKey, None, usize::MAX);
    let keys = all.iter().filter_map(|key| key.part::<Object>().ok());
    let working = keys.filter(|key| {
        let spec = key.fields.get("spec").unwrap_or(&Value::Null);
        spec["user"] == ADMIN && spec["disabled"] != true
    });
    working.map(|key| key.metadata.name).collect()
}
