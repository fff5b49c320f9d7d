//! The migration of what a server of the first format has stored.

use postern_auth::bearer::Refusal;
use postern_auth::endpoint_token::TokenRefusal;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_meta::decode::decode_typed;
use postern_store::ListRequest;
use serde_json::json;

use super::fleet::{change, of};
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

/// A store of format 4 with the scoped key `child`, which has a token. `steps` writes what happened to the key after its
/// creation. Returns what the key and the token are worth after the upgrade.
async fn upgraded(
    had_maker: bool,
    is_history_kept: bool,
    steps: impl AsyncFnOnce(&Fixture),
) -> (Option<Refusal>, Option<TokenRefusal>) {
    let server = fixture().await;
    let digest = server.key("child", json!({ "scope": { "rules": [{}] } })).await;
    let token = server.token(&digest).await;
    let info = OwnedAccessKey.info();
    let key = crate::storage_key::object(info, None, "child");
    let stored = async |key: &str| server.store.get(key).await.unwrap().value.unwrap().value;
    if had_maker {
        // It was created with a reference, which the collector took off.
        let without = stored(&key).await;
        let mut object: serde_json::Value = decode_typed(&without).unwrap();
        let references = object["metadata"]["ownerReferences"].as_array_mut().unwrap();
        references.push(json!({ "apiVersion": info.version.to_string(), "kind": info.kind,
            "name": "parent", "uid": "00000000-0000-4000-8000-00000000dead" }));
        let with = bytes::Bytes::from(serde_json::to_vec(&object).unwrap());
        let digest = crate::storage_key::digest(digest);
        let record = Change::Put { key: digest.clone(), value: stored(&digest).await };
        let created = vec![Change::Put { key: key.clone(), value: with }, record];
        for changes in [created, vec![Change::Put { key: key.clone(), value: without }]] {
            server.store.commit(Txn { conditions: vec![], changes }).await.unwrap();
        }
        server.registry.cache().wait_until_current().await.unwrap();
    }
    steps(&server).await;
    let old = Change::Put { key: crate::storage_key::FORMAT.into(), value: "4".into() };
    let revision =
        server.store.commit(Txn { conditions: vec![], changes: vec![old] }).await.unwrap();
    if !is_history_kept {
        server.store.compact(revision - 1).await.unwrap();
    }
    migrate(&server.store).await.unwrap();
    server.registry.cache().wait_until_current().await.unwrap();
    (server.refusal(&digest), server.verified(&token))
}

/// A client patches a label.
async fn patch_label(server: &Fixture) {
    server.pass_seconds(60);
    change(server, of(&OwnedAccessKey, Verb::Update, "child"), |object| {
        object["metadata"]["labels"] = json!({ "a": "b" });
    })
    .await;
}

#[tokio::test]
async fn keys_that_may_have_lost_their_makers_are_disabled_with_their_tokens() {
    let disabled = || (Some(Refusal::Disabled), Some(TokenRefusal::Revoked));
    for is_history_kept in [true, false] {
        let nothing = async |_: &Fixture| ();
        assert_eq!(
            upgraded(false, is_history_kept, nothing).await,
            (None, None),
            "as it was created"
        );
        assert_eq!(upgraded(true, is_history_kept, nothing).await, disabled());
        assert_eq!(upgraded(true, is_history_kept, patch_label).await, disabled(), "patched after");
    }
    assert_eq!(upgraded(false, true, patch_label).await, (None, None), "it never had a maker");
    assert_eq!(upgraded(false, false, patch_label).await, disabled(), "nothing tells");
    let at_once = async |server: &Fixture| {
        change(server, of(&OwnedAccessKey, Verb::Update, "child"), |object| {
            object["metadata"]["labels"] = json!({ "a": "b" });
        })
        .await;
    };
    assert_eq!(upgraded(false, true, at_once).await, (None, None), "within the same second");
    // Its owner disabled it before, and could enable it without a role.
    let by_owner = async |server: &Fixture| {
        let key = crate::storage_key::object(OwnedAccessKey.info(), None, "child");
        let stored = server.store.get(&key).await.unwrap().value.unwrap();
        let mut object: serde_json::Value = decode_typed(&stored.value).unwrap();
        object["spec"]["disabled"] = json!(true);
        object["status"]["disabledByUid"] = json!("by-owner");
        let value = bytes::Bytes::from(serde_json::to_vec(&object).unwrap());
        let changes = vec![Change::Put { key: key.clone(), value }];
        server.store.commit(Txn { conditions: vec![], changes }).await.unwrap();
        migrate(&server.store).await.unwrap();
    };
    assert_eq!(upgraded(true, true, by_owner).await, disabled());
}

#[tokio::test]
async fn a_key_that_is_written_during_the_upgrade_is_looked_at_again() {
    let server = fixture().await;
    let digest = server.key("child", json!({ "scope": { "rules": [{}] } })).await;
    patch_label(&server).await;
    let old = Change::Put { key: crate::storage_key::FORMAT.into(), value: "4".into() };
    let revision =
        server.store.commit(Txn { conditions: vec![], changes: vec![old] }).await.unwrap();
    server.store.compact(revision - 1).await.unwrap();
    let writes = async {
        for number in 0..50 {
            change(&server, of(&OwnedAccessKey, Verb::Update, "child"), |object| {
                object["metadata"]["labels"]["a"] = number.to_string().into();
            })
            .await;
        }
    };
    let (migrated, ()) = tokio::join!(migrate(&server.store), writes);
    migrated.unwrap();
    server.registry.cache().wait_until_current().await.unwrap();
    assert_eq!(server.refusal(&digest), Some(Refusal::Disabled));
}
