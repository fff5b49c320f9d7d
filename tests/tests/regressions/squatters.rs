//! A user that takes a name first does not get, without a warning, the value that another user
//! writes under it.

use postern_tests::Server;
use postern_tests::http::Response;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::rights::{allow, merge, rule, user};
use serde_json::{Value, json};

use crate::regressions::scene::Findings;

fn warns(reply: &Response, name: &str) -> bool {
    reply
        .header("warning")
        .is_some_and(|text| text.contains(&format!("belongs to the user \\\"{name}\\\"")))
}

#[tokio::test]
async fn a_write_into_an_object_of_another_owner_warns_unless_it_names_the_owner() {
    let server = Server::start().await;
    let admin = server.client();
    let eve = user(&admin, "eve").await;
    let rules = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makes", Some("platform"), rules, "platform:user:eve").await;
    eve.post(&secrets("platform")).json(&secret("db-prod", "bait")).send().await.expect(201);
    let at = secret_path("db-prod");
    let apply = format!("{at}?fieldManager=deploy&force=true");
    let whole = secret("db-prod", "real");
    let with_owner = |owner: &str| {
        let mut object = whole.clone();
        object["spec"]["owner"] = json!({ "user": owner });
        object
    };
    let mut found = Findings::new();
    let apply = async |object: &Value| {
        let request = admin.request("PATCH", &apply);
        request.body("application/apply-patch+yaml", object.to_string()).send().await
    };
    let reply = apply(&whole).await;
    reply.expect(200);
    found.check(warns(&reply, "eve"), format!("apply: {:?}", reply.header("warning")));
    let reply = merge(&admin, &at, json!({ "spec": { "data": { "value": "eA==" } } })).await;
    found.check(warns(&reply, "eve"), "a merge patch");
    let operations = json!([{ "op": "replace", "path": "/spec/data/value", "value": "eQ==" }]);
    let reply = admin.patch(&at, "json-patch", &operations).send().await;
    reply.expect(200);
    found.check(warns(&reply, "eve"), "a JSON patch");
    // A write of no data, by the owner, or with the owner, does not warn.
    let reply = merge(&admin, &at, json!({ "spec": { "description": "x" } })).await;
    found.check(!warns(&reply, "eve"), "no data");
    let reply = merge(&eve, &at, json!({ "spec": { "data": { "value": "eg==" } } })).await;
    found.check(!warns(&reply, "eve"), "the owner");
    let reply = apply(&with_owner("admin")).await;
    reply.expect(200);
    found.check(!warns(&reply, "eve") && !warns(&reply, "admin"), "taking over");
    found.check(eve.get(&at).send().await.status != 200, "the squatter reads on");
    found.assert_none();
}
