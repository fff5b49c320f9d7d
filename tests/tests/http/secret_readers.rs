//! The readers of a secret: who is noted, who sees it, and how long it stays.

use postern_tests::http::Client;
use postern_tests::objects::{GROUP, create, make, secret_path, secrets};
use postern_tests::rights::{allow, merge, rule, set, user, with_key};
use postern_tests::{Home, Server, Setup, wait};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn db() -> String {
    format!("{}/db", secrets("default"))
}

fn readers() -> String {
    format!("{}/readers", db())
}

/// Ada's secret `db`, which bob may get.
async fn make_db(ada: &Client) -> Value {
    let access = json!([{ "name": "read", "verbs": ["get"], "users": ["bob"] }]);
    let spec = json!({ "data": { "password": "aHVzaA==" }, "access": access });
    create(ada, &secrets("default"), "db", json!({ "spec": spec })).await
}

/// Who was noted, by which key and how often, in the order of the names.
async fn noted(client: &Client, path: &str) -> Vec<String> {
    let found = client.get(path).send().await.expect(200);
    let of = |reader: &Value, name: &str| reader[name].as_str().unwrap_or("-").to_owned();
    let readers = found["readers"].as_array().unwrap().iter();
    let mut noted: Vec<_> = readers
        .map(|one| format!("{} {} {}", of(one, "user"), of(one, "accessKey"), one["count"]))
        .collect();
    noted.sort();
    noted
}

#[tokio::test]
async fn readers_are_noted_by_what_they_were_sent_and_stay_with_the_secret() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let (ada, bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    set(&admin, &format!("{GROUP}/users/bob"), json!({ "displayName": "Bob" })).await;
    make(&admin, "teams", "shop", json!({ "users": ["ada", "bob"] })).await;
    let of_bob = json!({ "user": "bob", "displayName": "laptop" });
    let laptop = with_key(&admin, "bob-laptop", of_bob).await;
    let made = make_db(&ada).await;
    let all = secrets("default");
    for (path, accept) in [
        (db(), TABLE),
        (all.clone(), TABLE),
        (format!("{}/entries", db()), "application/json"),
        (format!("{}/entry?name=x", db()), "application/json"),
    ] {
        let reply = bob.get(&path).accept(accept).send().await;
        assert!(matches!(reply.status, 200 | 404), "{path}: {}", reply.status);
    }
    bob.request("HEAD", &db()).send().await;
    assert_eq!(noted(&ada, &readers()).await, [""; 0], "no response had values");
    bob.get(&db()).send().await.expect(200);
    bob.get(&all).send().await.expect(200);
    assert_eq!(bob.get(&all).accept("application/yaml").send().await.status, 200);
    bob.get(&format!("{}/entry?name=password", db())).send().await.expect(200);
    let mut watch = bob.watch(&all, "").await;
    watch.next().await.unwrap();
    drop(watch);
    laptop.get(&db()).send().await.expect(200);
    admin.get(&db()).header("impersonate-user", "bob").send().await.expect(200);
    let path = readers();
    let wanted = ["bob admin 1", "bob bob-key 5", "bob bob-laptop 1"];
    assert_eq!(noted(&ada, &path).await, wanted);
    let found = ada.get(&path).send().await.expect(200);
    assert_eq!(found["kind"], "SharedSecretReaders");
    let identity = |object: &Value| {
        ["name", "namespace", "uid"].map(|field| object["metadata"][field].clone())
    };
    assert_eq!(identity(&found), identity(&made));
    assert_eq!(found["since"], made["metadata"]["creationTimestamp"]);
    assert_eq!(found["truncated"], false);
    let one = |key: &str| {
        let readers = found["readers"].as_array().unwrap().iter();
        let mut one = readers.clone().find(|one| one["accessKey"] == key).unwrap().clone();
        let times = ["firstTime", "lastTime"].map(|name| one[name].take());
        assert!(times[0].as_str() <= times[1].as_str() && times[0].is_string(), "{times:?}");
        one
    };
    let mut of_laptop = json!({
        "via": "Request", "user": "bob", "displayName": "Bob", "accessKey": "bob-laptop",
        "accessKeyDisplayName": "laptop", "firstTime": null, "lastTime": null, "count": 1,
    });
    assert_eq!(one("bob-laptop"), of_laptop);
    of_laptop["accessKey"] = "admin".into();
    of_laptop["impersonatedBy"] = "admin".into();
    of_laptop["accessKeyDisplayName"] = "Made at the first start".into();
    assert_eq!(one("admin"), of_laptop);
    let now = admin.get(&db()).accept(TABLE).send().await.expect(200);
    let version = &now["rows"][0]["object"]["metadata"]["resourceVersion"];
    assert_eq!(*version, made["metadata"]["resourceVersion"], "a read does not change the secret");
    // The notes are stored at the end of the server.
    server.stop().await;
    let server = Setup::on(&home).start().await;
    let (admin, ada) = (server.client(), server.client().with_token(ada.token()));
    assert_eq!(noted(&ada, &path).await, wanted);
    admin.with_token(bob.token()).get(&db()).send().await.expect(200);
    let wanted = ["bob admin 1", "bob bob-key 6", "bob bob-laptop 1"];
    assert_eq!(noted(&ada, &path).await, wanted);
    // A new secret of the same name begins anew.
    ada.delete(&db()).send().await.expect(200);
    assert_eq!(ada.get(&path).send().await.status, 404);
    make_db(&ada).await;
    assert_eq!(noted(&ada, &path).await, [""; 0]);
}

#[tokio::test]
async fn the_owner_sees_the_readers_and_others_need_get_on_them() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, bob, eve) =
        (user(&admin, "ada").await, user(&admin, "bob").await, user(&admin, "eve").await);
    make(&admin, "teams", "shop", json!({ "users": ["ada", "bob", "eve"] })).await;
    make_db(&ada).await;
    let auditor = user(&admin, "auditor").await;
    let get = json!([rule(&["sharedsecrets/readers"], &["get"])]);
    allow(&admin, "audit", Some("default"), get, "platform:user:auditor").await;
    let scoped = async |name: &str, resources: Value| {
        let of = json!([{ "group": "management.platform.sh", "resources": resources }]);
        let scope = json!({ "rules": [{ "verbs": ["get"], "resources": of }] });
        with_key(&admin, name, json!({ "user": "ada", "scope": scope })).await
    };
    let narrow = scoped("narrow", json!(["sharedsecrets"])).await;
    let wide = scoped("wide", json!(["sharedsecrets/readers"])).await;
    let none = format!("{}/none/readers", secrets("default"));
    let path = readers();
    for (who, client, code, of_none) in [
        ("owner", &ada, 200, 404),
        ("administrator", &admin, 200, 404),
        ("a caller that may get the secret", &bob, 403, 404),
        ("a stranger", &eve, 404, 404),
        ("auditor", &auditor, 200, 404),
        ("a key for the secret alone", &narrow, 403, 404),
        ("a key for the readers alone", &wide, 200, 404),
    ] {
        let reply = client.get(&path).send().await;
        assert_eq!(reply.status, code, "{who}: {}", reply.text());
        assert_eq!(client.get(&none).send().await.status, of_none, "{who}");
    }
    assert_eq!(auditor.get(&db()).send().await.status, 404, "the readers give no values");
    assert_eq!(noted(&auditor, &path).await, [""; 0], "nor are they a read");
    assert_eq!(ada.post(&path).json(&json!({})).send().await.status, 405);
    // An access rule gives them as any subresource.
    let rule =
        json!({ "name": "all", "verbs": ["get"], "subresources": ["readers"], "users": ["eve"] });
    let given = merge(&ada, &db(), json!({ "spec": { "access": [rule] } })).await;
    given.expect(200);
    wait::until("the access rule counts", async || {
        (eve.get(&path).send().await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_copy_of_a_secret_sync_is_noted() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "projects", "shop", json!({})).await;
    let data = |value: &str| json!({ "spec": { "data": { "k": value } } });
    create(&admin, &secrets("platform"), "src", data("dg==")).await;
    let labels = json!({ "platform.sh/sharedsecret-name": "src" });
    let copies = format!("{GROUP}/namespaces/p-shop/projectsecrets");
    create(&admin, &copies, "copy", json!({ "metadata": { "labels": labels } })).await;
    let path = format!("{}/readers", secret_path("src"));
    let copy_noted = async |count: u64| {
        wait::until("the copy is noted", async || {
            let found = admin.get(&path).send().await.expect(200);
            let readers = found["readers"].as_array().unwrap();
            let sync = readers.iter().find(|one| one["via"] == "Sync")?.clone();
            // A copy that another write prevents is noted, too.
            (sync["count"].as_u64() >= Some(count)).then_some(sync)
        })
        .await
    };
    let sync = copy_noted(1).await;
    assert_eq!(
        (&sync["object"], &sync["user"], sync.get("accessKey")),
        (&json!("p-shop/copy"), &json!("admin"), None)
    );
    merge(&admin, &secret_path("src"), data("dw==")).await.expect(200);
    copy_noted(2).await;
}
