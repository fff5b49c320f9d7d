//! The migration of what a server of the first format has stored.

use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_store::ListRequest;
use serde_json::json;

use super::*;
use crate::registry::format::{CURRENT, migrate};

/// What a store of the first format has at a key of the current one.
fn old_key(key: &str) -> String {
    let group = "management.platform.sh/";
    key.replacen(&format!("/secrets/{group}"), "/withheld/", 1)
        .replacen(&format!("/unique/{group}"), "/claims/", 1)
        .replacen(&format!("/activity/{group}ownedaccesskeys/"), "/activity/", 1)
}

async fn everything(store: &Arc<dyn Store>) -> Vec<(String, bytes::Bytes)> {
    let page = store.list(ListRequest::default()).await.unwrap();
    page.entries.into_iter().map(|entry| (entry.key.to_string(), entry.value)).collect()
}

/// A store of the first format with keys that have been used, and more of them than one step moves.
async fn old_store() -> (Arc<dyn Store>, Vec<(String, bytes::Bytes)>) {
    let fixture = fixture().await;
    for number in 0..150 {
        let digest = fixture.key(&format!("key-{number}"), json!({ "ttl": 3600 })).await;
        fixture.use_key(&digest);
    }
    fixture.registry.store_activity().await.unwrap();
    let current = everything(&fixture.store).await;
    let old: Arc<dyn Store> = Arc::new(Memory::new());
    for (key, value) in current.iter().filter(|(key, _)| key != crate::storage_key::FORMAT) {
        let change = Change::Put { key: old_key(key).into(), value: value.clone() };
        old.commit(Txn { conditions: vec![], changes: vec![change] }).await.unwrap();
    }
    (old, current)
}

#[tokio::test]
async fn an_old_store_becomes_what_a_new_one_would_be() {
    let (old, current) = old_store().await;
    migrate(&old).await.unwrap();
    assert_eq!(everything(&old).await, current);
    let revision = old.revision().await.unwrap();
    migrate(&old).await.unwrap();
    assert_eq!(old.revision().await.unwrap(), revision, "once is enough");
}

#[tokio::test]
async fn a_migration_goes_on_where_it_was_interrupted() {
    let (old, current) = old_store().await;
    // Some values have been moved already, by a server that ended in the middle.
    for (key, value) in current.iter().filter(|(key, _)| old_key(key) != *key).step_by(3) {
        let changes = vec![
            Change::Put { key: key.as_str().into(), value: value.clone() },
            Change::Delete { key: old_key(key).into() },
        ];
        old.commit(Txn { conditions: vec![], changes }).await.unwrap();
    }
    migrate(&old).await.unwrap();
    assert_eq!(everything(&old).await, current);
}

#[tokio::test]
async fn two_servers_that_migrate_at_once_do_no_harm() {
    let (old, current) = old_store().await;
    let (one, other) = tokio::join!(migrate(&old), migrate(&old));
    one.unwrap();
    other.unwrap();
    assert_eq!(everything(&old).await, current);
}

#[tokio::test]
async fn keys_and_unique_names_hold_after_a_migration() {
    let (old, _) = old_store().await;
    let server = over(old).await;
    assert_eq!(server.names_of_keys().await.len(), 151);
    let taken = json!({ "spec": { "subject": "admin" } });
    let error = server.try_make(&User, "somebody", &taken).await.unwrap_err();
    assert!(error.status().message.contains("spec.subject"), "{}", error.status().message);
    server.try_make(&Team, "red", &json!({})).await.unwrap();
}

#[tokio::test]
async fn a_user_with_a_subject_gets_the_name_as_a_unique_key_too() {
    let fixture = fixture().await;
    let spec = json!({ "spec": { "subject": "oidc|7" } });
    fixture.try_make(&User, "ada", &spec).await.unwrap();
    let current = everything(&fixture.store).await;
    let name = "/unique/management.platform.sh/users/ada";
    let old: Arc<dyn Store> = Arc::new(Memory::new());
    let kept = |key: &str| key != crate::storage_key::FORMAT && key != name;
    for (key, value) in current.iter().filter(|(key, _)| kept(key)) {
        let change = Change::Put { key: old_key(key).into(), value: value.clone() };
        old.commit(Txn { conditions: vec![], changes: vec![change] }).await.unwrap();
    }
    migrate(&old).await.unwrap();
    assert_eq!(everything(&old).await, current);
}

#[tokio::test]
async fn a_store_that_is_newer_than_the_server_is_left_alone() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let newer = bytes::Bytes::from((CURRENT + 1).to_string());
    let change = Change::Put { key: crate::storage_key::FORMAT.into(), value: newer };
    store.commit(Txn { conditions: vec![], changes: vec![change] }).await.unwrap();
    let error = migrate(&store).await.unwrap_err().to_string();
    assert!(error.contains("a newer one"), "{error}");
}
