//! A new key for the administrator, for when all are lost.

use bytes::Bytes;
use postern_auth::access_key;
use postern_auth::directory::DigestRecord;
use postern_auth::identity::MASTERS_GROUP;
use postern_kinds::AnyKind as _;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::user::User;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Error, Txn};
use serde_json::{Value, json};

use super::{Access, Answer};
use crate::Server;
use crate::cache::to_stored;
use crate::data_dir::write_private;
use crate::kubeconfig;
use crate::registry::first_start::{ADMIN, put, spec};
use crate::registry::keys;

/// How often it is tried again because somebody changed the user meanwhile.
const ATTEMPTS: usize = 8;

/// Random bytes in a new key's name.
const NAME_BYTES: usize = 4;

/// Makes a key for the user `admin`, who is mended if he can no longer do what the first start
/// let him do, and writes the kubeconfig. Other keys stay as they are.
///
/// The kubeconfig is written when the key is stored: were the server to stop between the two, the
/// old file would still be there, and asking again would help.
pub(crate) async fn reset_key(server: &Server, access: &Access) -> anyhow::Result<Answer> {
    let source = server.source();
    let mut name = [0; NAME_BYTES];
    source.fill(&mut name);
    let name = format!("{ADMIN}-{}", hex::encode(name));
    let token = access_key::generate(&mut || {
        let mut byte = [0];
        source.fill(&mut byte);
        byte[0]
    });
    let other_keys = keys_of_admin(server).await?;
    let key = spec(json!({
        "displayName": "Made by reset-key", "user": ADMIN, "type": "User",
    }));
    let (change, uid) = put(&OwnedAccessKey, &name, key, source)?;
    let record = DigestRecord { name: name.clone(), uid };
    let record = Change::Put {
        key: keys::digest(server.digester().digest(&token)),
        value: Bytes::from(serde_json::to_vec(&record)?),
    };
    let mut user_mended = false;
    for attempt in 1..=ATTEMPTS {
        let mut txn = Txn {
            conditions: vec![Condition::Absent(change.key().clone())],
            changes: vec![change.clone(), record.clone()],
        };
        user_mended = mend_user(server, &mut txn).await?;
        match server.registry().store().commit(txn).await {
            Ok(_) => break,
            Err(Error::Conflict { .. }) if attempt < ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
    }
    let trust = access.trust.load_full();
    write_private(&access.kubeconfig, &kubeconfig::new(&access.host, &trust, &token))?;
    // Whoever has the answer can use the key.
    server.registry().cache().fresh().await.map_err(|error| said(&error))?;
    let kubeconfig = access.kubeconfig.clone();
    Ok(Answer::ResetKey { kubeconfig, key_name: name, user_mended, other_keys })
}

fn said(error: &ApiError) -> anyhow::Error {
    anyhow::anyhow!("{}", error.status().message)
}

/// Adds what it takes for the user to be there, enabled, and in `system:masters`; in any case, that
/// he stays as he was read. Answers whether there was something to mend.
async fn mend_user(server: &Server, txn: &mut Txn) -> anyhow::Result<bool> {
    server.registry().cache().fresh().await.map_err(|error| said(&error))?;
    let key = keys::object(User.info(), None, ADMIN);
    let found =
        server.registry().cache().of(User.info()).get(&key).map_err(|error| said(&error))?;
    let Some(found) = found else {
        let user = spec(json!({ "displayName": "Administrator", "groups": [MASTERS_GROUP] }));
        txn.conditions.push(Condition::Absent(key));
        txn.changes.push(put(&User, ADMIN, user, server.source())?.0);
        return Ok(true);
    };
    txn.conditions.push(Condition::At(key.clone(), found.position()));
    let mut user = found.decode().map_err(|error| said(&error))?;
    let spec = user.fields.entry("spec").or_insert_with(|| json!({}));
    let disabled = spec["disabled"] == true;
    let groups = spec["groups"].as_array().cloned().unwrap_or_default();
    let powerless = !groups.contains(&Value::from(MASTERS_GROUP));
    if !disabled && !powerless {
        return Ok(false);
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("disabled");
        if powerless {
            let groups = [groups, vec![MASTERS_GROUP.into()]].concat();
            spec.insert("groups".to_owned(), groups.into());
        }
    }
    user.metadata.generation += 1;
    txn.changes.push(Change::Put { key, value: to_stored(user) });
    Ok(true)
}

/// The names of the keys that the user has, those that work.
async fn keys_of_admin(server: &Server) -> anyhow::Result<Vec<String>> {
    let cache = server.registry().cache();
    cache.fresh().await.map_err(|error| said(&error))?;
    let resource = cache.of(OwnedAccessKey.info());
    let Ok(all) = resource.list(resource.prefix(), None, 0, None) else {
        // Damage must not keep the administrator out.
        tracing::warn!("the other access keys cannot be listed: one of them is damaged");
        return Ok(Vec::new());
    };
    let keys = all.objects.iter().filter_map(|key| key.decode().ok());
    let working = keys.filter(|key| {
        let spec = &key.fields.get("spec").cloned().unwrap_or_default();
        spec["user"] == ADMIN && spec["disabled"] != true
    });
    Ok(working.map(|key| key.metadata.name).collect())
}
