//! The mirror of a ProjectSecret: a core Secret of the same name with its data. If a Secret of that name is not the
//! mirror, it is not changed.

use std::collections::BTreeMap;

use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::secret::Secret;
use postern_kinds::secret_sync::{IS_MIRROR, MIRRORED, is_mirrored};
use postern_kinds::{AnyKind, Verb};
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_meta::options::DeleteOptions;
use postern_meta::status::ApiError;
use serde_json::{Map, Value};

use super::copy::{
    Batch, condition_of, refusal, remove_condition, set_condition, set_data, writing,
};
use super::{current, data_of};
use crate::admit::Writing;
use crate::events::{self, NewEvent};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// Updates the mirror of a secret, or removes it if the secret is no longer mirrored.
pub(super) async fn keep(batch: &Batch<'_>, key: &str) -> Result<(), ApiError> {
    let registry = batch.registry;
    let Some(of) = current(registry, &ProjectSecret, key)? else { return Ok(()) };
    let ObjectMeta { namespace, name, .. } = &of.metadata;
    let is_in_project = registry.cache().policy().projects().of(namespace).is_some();
    let is_wanted = is_mirrored(&of.metadata) && is_in_project;
    if !is_wanted && condition_of(&of, MIRRORED).is_none() {
        return Ok(());
    }
    let secret_key = storage_key::object(Secret.info(), Some(namespace), name);
    let found = registry.cache().of(Secret.info()).get(&secret_key)?;
    let found = found.map(|found| found.decode()).transpose()?;
    let is_own = found.as_ref().is_some_and(|found| is_mirror_of(found, &of));
    if !is_wanted {
        if let Some(mirror) = found.filter(|_| is_own) {
            remove(registry, &mirror).await?;
        }
        return report(registry, &of, None).await;
    }
    let written = match &found {
        None => create(registry, &of).await,
        Some(mirror) if is_own => update(registry, &of, mirror).await,
        Some(_) => Ok(()),
    };
    let is_other_secret = found.is_some() && !is_own;
    let condition = match refusal(written)? {
        Some((reason, message)) => (false, reason, message),
        None if is_other_secret => {
            let message = "that is not the mirror, so it was not changed";
            (false, "SecretExists", format!("there is a Secret \"{name}\" {message}"))
        }
        None => (true, "Mirrored", String::new()),
    };
    if let (false, reason, message) = &condition {
        events::warn(registry, &NewEvent { object: &of, reason, message }).await;
    }
    report(registry, &of, Some(condition)).await
}

/// Whether a Secret is the mirror of this object. The mirror of an earlier object of the name is not.
fn is_mirror_of(secret: &Object, of: &Object) -> bool {
    secret.metadata.labels.get(IS_MIRROR).is_some_and(|value| value == "true")
        && secret.metadata.owner_references.iter().any(|one| one.uid == of.metadata.uid)
}

fn permit(of: &Object, verb: Verb) -> Permit {
    Permit::for_server(&Secret, verb, Some(&of.metadata.namespace), &of.metadata.name)
}

async fn create(registry: &Registry, of: &Object) -> Result<(), ApiError> {
    let info = Secret.info();
    let owner = OwnerReference {
        api_version: of.api_version.clone(),
        kind: of.kind.clone(),
        name: of.metadata.name.clone(),
        uid: of.metadata.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let metadata = ObjectMeta {
        name: of.metadata.name.clone(),
        labels: BTreeMap::from([(IS_MIRROR.to_owned(), "true".to_owned())]),
        owner_references: vec![owner],
        ..ObjectMeta::default()
    };
    let fields: Map<String, Value> =
        [("data".to_owned(), Value::Object(data_of(of)))].into_iter().collect();
    let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
    let object = Object { api_version, kind, metadata, fields };
    let writing = Writing::by_server();
    let made = operations::create(registry, &permit(of, Verb::Create), object, &writing).await;
    made.map(drop)
}

async fn update(registry: &Registry, of: &Object, mirror: &Object) -> Result<(), ApiError> {
    let data = data_of(of);
    if data_of(mirror) == data {
        return Ok(());
    }
    let writing = Writing::by_server();
    let permit = permit(of, Verb::Update);
    let update = operations::update(registry, &permit, &writing, |now| {
        let mut object = now.clone();
        if is_mirror_of(&object, of) {
            set_data(&Secret, &mut object, data.clone());
        }
        Ok(object)
    });
    update.await.map(drop)
}

async fn remove(registry: &Registry, mirror: &Object) -> Result<(), ApiError> {
    let options = DeleteOptions {
        precondition_uid: Some(mirror.metadata.uid.clone()),
        precondition_resource_version: Some(mirror.metadata.resource_version.clone()),
        ..DeleteOptions::default()
    };
    operations::delete(registry, &permit(mirror, Verb::Delete), &options).await.map(drop)
}

/// Sets the condition of the mirror; `None` removes it.
async fn report(
    registry: &Registry,
    of: &Object,
    condition: Option<(bool, &'static str, String)>,
) -> Result<(), ApiError> {
    let ObjectMeta { namespace, name, uid, .. } = &of.metadata;
    let reported =
        condition_of(of, MIRRORED).map(|one| (one.status == "True", one.reason, one.message));
    let wanted =
        condition.clone().map(|(is_true, reason, text)| (is_true, reason.to_owned(), text));
    if reported == wanted {
        return Ok(());
    }
    let permit = Permit::for_server(&ProjectSecret, Verb::Update, Some(namespace), name);
    let writing = writing();
    let update = operations::update(registry, &permit, &writing, |now| {
        let mut object = now.clone();
        if object.metadata.uid == *uid {
            match condition.clone() {
                Some(state) => {
                    set_condition(registry, &ProjectSecret, &mut object, MIRRORED, state);
                }
                None => remove_condition(&mut object, MIRRORED),
            }
        }
        Ok(object)
    });
    update.await.map(drop)
}
