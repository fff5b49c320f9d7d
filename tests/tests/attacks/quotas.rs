//! Quotas of one owner, however many keys they have: watches, keys, and bytes written.

use std::time::Duration;

use postern_tests::http::Response;
use postern_tests::objects::{collection, make};
use postern_tests::status::failure;
use postern_tests::wait;
use serde_json::{Value, json};

use crate::attacks::scene::{KEYS, Scene, key_of, key_path};

/// More watches than one owner may have.
const MANY_WATCHES: usize = 2_500;

/// Makes another key of an owner, and returns its value.
async fn another_key(scene: &Scene, owner: &str, name: &str) -> String {
    let key = make(&scene.admin, KEYS, name, json!({ "user": owner })).await;
    key["spec"]["key"].as_str().expect("a new key is returned once").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_counted_for_the_owner_of_all_keys() {
    let scene = Scene::start(&[]).await;
    let one = scene.user("mallory").await;
    let two = another_key(&scene, "mallory", "mallory-two").await;
    let other = scene.user("other").await;
    let watches = scene.watches(&one, MANY_WATCHES).await.expect("a limit of watches");
    let more = scene.watches(&two, 10).await;
    let more = more.expect("a second key of the same owner has no watches of its own");
    assert_eq!(more.len(), 0, "the owner has their watches already");
    assert!(scene.watches(&other, 10).await.is_none(), "another owner has their own");
    drop(watches);
    let freed = async || scene.watches(&two, 10).await.is_none().then_some(());
    wait::until("watches that ended to be free again", freed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_counted_for_their_owner() {
    let scene = Scene::start(&["--max-keys-per-owner=5"]).await;
    let mallory = scene.attacker(&scene.user("mallory").await);
    let other = scene.attacker(&scene.user("other").await);
    let create = async |client: &postern_tests::http::Client, owner: &str, name: String| {
        client.post(&collection(KEYS)).json(&key_of(owner, &name)).send().await
    };
    // One key was made with the user.
    for number in 0..4 {
        create(&mallory, "mallory", format!("more-{number}")).await.expect(201);
    }
    let refused = create(&mallory, "mallory", "one-too-many".to_owned()).await;
    says_which_limit(&refused, 403, "5");
    let dry = format!("{}?dryRun=All", collection(KEYS));
    let dry = mallory.post(&dry).json(&key_of("mallory", "dry")).send().await;
    assert_eq!(dry.status, 403, "a dry run says what would happen: {}", dry.text());
    create(&other, "other", "of-somebody-else".to_owned()).await.expect(201);
    mallory.delete(&key_path("more-0")).send().await.expect(200);
    create(&mallory, "mallory", "in-its-place".to_owned()).await.expect(201);
}

/// All at once, they are not more than one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_made_at_once_are_counted_too() {
    let scene = Scene::start(&["--max-keys-per-owner=5"]).await;
    let mallory = scene.attacker(&scene.user("mallory").await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..32 {
        let client = mallory.clone();
        tasks.spawn(async move {
            let key = key_of("mallory", &format!("more-{number}"));
            client.post(&collection(KEYS)).json(&key).send().await.status
        });
    }
    let statuses = tasks.join_all().await;
    let made = statuses.iter().filter(|status| **status == 201).count();
    assert_eq!(made, 4, "{statuses:?}");
    let list: Value = mallory.get(&collection(KEYS)).send().await.expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(5));
}

/// Checks that a refusal names the limit.
fn says_which_limit(reply: &Response, status: u16, limit: &str) {
    assert_eq!(reply.status, status, "{}", reply.text());
    let text = failure(reply);
    assert!(text.contains(limit), "the refusal says what the limit is: {text}");
}

/// Bytes that one owner may write in a minute, in the test below.
const WRITE_BYTES: usize = 1_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_written_are_counted_for_the_owner() {
    let flag = format!("--max-write-bytes-per-owner={WRITE_BYTES}");
    let scene = Scene::start(&[&flag]).await;
    let mallory = scene.attacker(&scene.user("mallory").await);
    let other = scene.attacker(&scene.user("other").await);
    let rewrite = async |client: &postern_tests::http::Client, name: &str, number: usize| {
        let text = format!("{number}{}", "x".repeat(30_000));
        let patch = json!({ "metadata": { "annotations": { "x": text } } });
        client.patch(&key_path(name), "merge-patch", &patch).send().await
    };
    let mut refused = None;
    // Twice the allowed writes. A slow machine needs less than a minute for it.
    for number in 0..2 * WRITE_BYTES / 30_000 {
        let reply = rewrite(&mallory, "mallory-key", number).await;
        if reply.status != 200 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("an end of what one owner may write");
    assert!(failure(&refused).starts_with("429 TooManyRequests\n"), "{}", refused.text());
    let seconds = refused.header("retry-after").and_then(|text| text.parse().ok());
    let seconds = Duration::from_secs(seconds.expect("a 429 says when to come again"));
    assert!((1..=60).contains(&seconds.as_secs()), "within the minute: {seconds:?}");
    rewrite(&other, "other-key", 0).await.expect(200);
    mallory.get(&key_path("mallory-key")).send().await.expect(200);
}
