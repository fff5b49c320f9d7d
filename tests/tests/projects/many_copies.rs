//! A thousand secrets that take their data from one.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use postern_tests::http::Client;
use postern_tests::objects::{create, make, name_of, secret_path, secrets, version_of};
use postern_tests::rights::set;
use postern_tests::watching::Watch;
use postern_tests::{Home, Setup, wait};
use serde_json::{Value, json};

use crate::projects::scene::in_namespace;

/// How many there are.
const COPIES: usize = 1000;

fn data(value: &str) -> Value {
    json!({ "data": { "value": STANDARD.encode(value) } })
}

/// Makes the source with the value `one`, and the copies. Returns the version from which changes are watched.
async fn make_all(admin: &Client) -> u64 {
    make(admin, "projects", "web", json!({})).await;
    create(admin, &secrets("platform"), "db", json!({ "spec": data("one") })).await;
    let copies = in_namespace("p-web", "projectsecrets");
    let labels = json!({
        "platform.sh/sharedsecret-name": "db",
        "platform.sh/sharedsecret-namespace": "platform",
    });
    for some in (0..COPIES).collect::<Vec<_>>().chunks(100) {
        let each = some.iter().map(|number| {
            let object = json!({ "metadata": { "labels": labels } });
            let (admin, copies) = (&*admin, &*copies);
            async move { create(admin, copies, &format!("copy-{number}"), object).await }
        });
        join_all(each).await;
    }
    until_all_have(admin, "one").await
}

/// Waits until all copies have a value, and returns the version of the list that says so.
async fn until_all_have(admin: &Client, value: &str) -> u64 {
    let copies = in_namespace("p-web", "projectsecrets");
    wait::until("the copies to have the value of their source", async || {
        let list = admin.get(&copies).send().await.expect(200);
        let have = list["items"].as_array().unwrap().iter().filter(|copy| has(copy, value));
        (have.count() == COPIES).then(|| version_of(&list))
    })
    .await
}

fn has(copy: &Value, value: &str) -> bool {
    copy["spec"]["data"]["value"] == STANDARD.encode(value).as_str()
}

/// Reads events until this many copies have a value.
async fn until_they_follow(watch: &mut Watch, value: &str, number: usize) {
    let mut followed = HashSet::new();
    while followed.len() < number {
        let event = watch.next().await.expect("the watch goes on");
        if has(&event.object, value) {
            followed.insert(name_of(&event.object).to_owned());
        }
    }
}

/// A change reaches all of them, and soon; and it does when the server is killed on the way.
#[tokio::test]
async fn heavy_a_thousand_copies_follow_their_source_and_a_kill_in_the_middle_loses_nothing() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let from = make_all(&admin).await;
    let copies = in_namespace("p-web", "projectsecrets");
    let mut following = admin.watch(&copies, &format!("&resourceVersion={from}")).await;
    set(&admin, &secret_path("db"), data("two")).await;
    until_they_follow(&mut following, "two", COPIES).await;

    set(&admin, &secret_path("db"), data("three")).await;
    until_they_follow(&mut following, "three", COPIES / 10).await;
    server.kill();
    let server = Setup::on(&home).start().await;
    until_all_have(&server.client(), "three").await;
}
