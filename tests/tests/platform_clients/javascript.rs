//! The JavaScript client of the console: plain objects, a time limit in each query, and its own
//! headers.

use postern_tests::http::{Client, Request, Response};
use postern_tests::objects::GROUP;
use postern_tests::rights::with_key;
use serde_json::{Value, json};

use crate::platform_clients::go::{Failure, Outcome};
use crate::platform_clients::scene::{Platform, SHOP};
use crate::platform_clients::typed::merge_patch;

/// The query of every request without options.
const TIME_LIMIT: &str = "?timeout=180s";

/// The formats that the client accepts for a table.
const TABLES: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// The client of one user.
struct Js<'a> {
    http: &'a Client,
    /// The subject and the groups to impersonate.
    impersonated: Option<(&'static str, &'static str)>,
}

impl<'a> Js<'a> {
    fn of(http: &'a Client) -> Self {
        Self { http, impersonated: None }
    }

    async fn send(&self, request: Request<'a>) -> Outcome<Response> {
        let credential = format!("bearer {}", self.http.token());
        let mut request = request
            .without("authorization")
            .header("authorization", &credential)
            .header("x-sleep-mode-ignore", "true")
            .header("x-platform-client", "true");
        if let Some((subject, groups)) = self.impersonated {
            request = request.header("impersonate-user", subject);
            request = request.header("impersonate-joined-group", groups);
        }
        let reply = request.send().await;
        if reply.status < 400 {
            return Ok(reply);
        }
        let Ok(status) = serde_json::from_slice::<Value>(&reply.body) else {
            let message = if reply.status == 404 { "page not found" } else { "unexpected" };
            return Err(Failure { code: reply.status, message: message.to_owned() });
        };
        let message = status["message"].as_str().unwrap_or("unknown error").to_owned();
        Err(Failure { code: reply.status, message })
    }

    async fn get(&self, path: &str) -> Outcome<Value> {
        let path = format!("{GROUP}/{path}{TIME_LIMIT}");
        Ok(self.send(self.http.get(&path)).await?.json())
    }

    async fn create(&self, collection: &str, object: &Value) -> Outcome<Value> {
        let path = format!("{GROUP}/{collection}{TIME_LIMIT}");
        Ok(self.send(self.http.post(&path).json(object)).await?.json())
    }

    /// Sends the difference between two objects.
    async fn patch(&self, path: &str, before: &Value, after: &Value) -> Outcome<Value> {
        let path = format!("{GROUP}/{path}{TIME_LIMIT}");
        let changes = merge_patch(before, after);
        Ok(self.send(self.http.patch(&path, "merge-patch", &changes)).await?.json())
    }

    async fn update(&self, path: &str, object: &Value) -> Outcome<Value> {
        let path = format!("{GROUP}/{path}{TIME_LIMIT}");
        Ok(self.send(self.http.put(&path).json(object)).await?.json())
    }

    async fn delete(&self, path: &str) -> Outcome<Value> {
        let path = format!("{GROUP}/{path}{TIME_LIMIT}");
        Ok(self.send(self.http.delete(&path)).await?.json())
    }

    async fn myself(&self) -> Outcome<Value> {
        let question = json!({ "apiVersion": "management.platform.sh/v1", "kind": "Self" });
        Ok(self.create("selves", &question).await?["status"].clone())
    }

    /// Asks whether the user may do something, in the group of the objects.
    async fn can_i(&self, verb: &str, resource: &str, more: Value) -> Outcome<bool> {
        let mut attributes = more;
        attributes["verb"] = verb.into();
        attributes["resource"] = resource.into();
        attributes["group"] = "management.platform.sh".into();
        attributes["version"] = "v1".into();
        let review = json!({
            "apiVersion": "management.platform.sh/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        });
        let status = self.create("selfsubjectaccessreviews", &review).await?["status"].clone();
        Ok(status["allowed"] == true && status["denied"] != true)
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().expect("a list").iter();
    items.map(|one| one["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn logging_in_and_out() {
    let platform = Platform::start(&[]).await;
    // Before the login: the version, without a credential.
    let version = platform.ada.get("/version").without("authorization").send().await.expect(200);
    assert!(version["version"].is_string(), "{version}");
    let key = with_key(&platform.admin, "ada-console", json!({ "user": "ada" })).await;
    let js = Js::of(&key);
    let myself = js.myself().await.unwrap();
    assert_eq!(myself["user"]["name"], "ada");
    assert_eq!(myself["projectNamespacePrefix"], "p-");
    // It deletes its own key of any type.
    let own = myself["accessKey"].as_str().unwrap();
    assert_eq!(own, "ada-console");
    js.delete(&format!("ownedaccesskeys/{own}")).await.unwrap();
    js.myself().await.unwrap_err().expect(401, &["access key"]);
    // The server has no login by password. The client shows the text of the body.
    let password = json!({ "username": "ada", "password": "secret" });
    let refused = platform.ada.post("/auth/password/login").json(&password).send().await;
    assert!([403, 404].contains(&refused.status), "{}", refused.status);
}

#[tokio::test]
async fn lists_tables_and_access_keys() {
    let platform = Platform::start(&[]).await;
    platform.when_ready().await;
    let js = Js::of(&platform.ada);
    assert_eq!(names(&js.get("projects").await.unwrap()["items"]), [SHOP]);
    let members = js.get(&format!("projects/{SHOP}/members")).await.unwrap();
    let users: Vec<_> = members["users"].as_array().unwrap().iter().collect();
    assert_eq!(users[0]["info"]["name"], "ada");
    assert_eq!(users[0]["info"]["displayName"], "Ada");
    assert_eq!(members["teams"][0]["info"]["name"], "night");
    let clusters = js.get(&format!("projects/{SHOP}/clusters")).await.unwrap();
    assert_eq!(names(&clusters["clusters"]), ["member"]);
    let templates = js.get(&format!("projects/{SHOP}/templates")).await.unwrap();
    assert_eq!(templates["spaceTemplates"], json!([]));
    let keys = js.get("users/ada/accesskeys").await.unwrap();
    assert_eq!(names(&keys["accessKeys"]), ["ada-key"]);
    let web = platform.collection("virtualclusterinstances");
    let extended = js.send(platform.ada.get(&format!("{web}?extended=true"))).await.unwrap();
    let status = extended.json()["items"][0]["status"].clone();
    assert_eq!((&status["canUse"], &status["canUpdate"]), (&json!(true), &json!(true)));
    let table = platform.ada.get(&format!("{web}{TIME_LIMIT}")).accept(TABLES);
    let table = js.send(table).await.unwrap().json();
    let column = table["columnDefinitions"].as_array().unwrap().iter();
    let column = column.into_iter().position(|one| one["name"] == "Status").expect("a status");
    assert_eq!(table["rows"][0]["cells"][column], "Ready");
}

#[tokio::test]
async fn the_console_asks_what_the_user_may_do() {
    let platform = Platform::start(&[]).await;
    let (ada, eve) = (Js::of(&platform.ada), Js::of(&platform.eve));
    let project = json!({ "name": SHOP });
    let in_project = json!({ "namespace": platform.namespace });
    assert!(ada.can_i("get", "projects", project.clone()).await.unwrap());
    assert!(ada.can_i("create", "projectsecrets", in_project.clone()).await.unwrap());
    assert!(!ada.can_i("create", "projects", json!({})).await.unwrap());
    assert!(!eve.can_i("get", "projects", project).await.unwrap());
    assert!(!eve.can_i("create", "projectsecrets", in_project.clone()).await.unwrap());
    // The same answer in the group of Kubernetes, which is asked at a target.
    let review = json!({ "spec": { "resourceAttributes": {
        "verb": "create", "group": "management.platform.sh", "resource": "projectsecrets",
        "namespace": platform.namespace,
    } } });
    let of_kubernetes =
        "/kubernetes/management/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let theirs = platform.ada.post(of_kubernetes).json(&review).send().await.expect(201);
    let ours = format!("{GROUP}/selfsubjectaccessreviews");
    let ours = platform.ada.post(&ours).json(&review).send().await.expect(201);
    assert_eq!(ours["status"], theirs["status"]);
    assert_eq!(ours["kind"], "SelfSubjectAccessReview");
    assert_eq!(ours["apiVersion"], "management.platform.sh/v1");
    // A review of another user needs a right.
    let mut about = review.clone();
    about["spec"]["user"] = "bob".into();
    about["spec"]["groups"] = json!(["platform:user:bob"]);
    let path = format!("{GROUP}/subjectaccessreviews");
    let answer = platform.admin.post(&path).json(&about).send().await.expect(201);
    assert_eq!(answer["status"]["allowed"], false);
    assert_eq!(platform.eve.post(&path).json(&about).send().await.status, 403);
}

#[tokio::test]
async fn objects_are_changed_by_differences_and_as_a_whole() {
    let platform = Platform::start(&[]).await;
    platform.when_ready().await;
    let js = Js::of(&platform.ada);
    let one = platform.within("virtualclusterinstances/web");
    let before = js.get(&one).await.unwrap();
    let mut after = before.clone();
    after["spec"]["displayName"] = "Web".into();
    let patched = js.patch(&one, &before, &after).await.unwrap();
    assert_eq!(patched["spec"]["displayName"], "Web");
    assert_eq!(patched["spec"]["config"], before["spec"]["config"]);
    let mut whole = patched.clone();
    whole["spec"]["description"] = "Of the shop".into();
    let updated = js.update(&one, &whole).await.unwrap();
    assert_eq!(updated["spec"]["config"], before["spec"]["config"]);
    // A whole object with an old resourceVersion is refused.
    js.update(&one, &whole).await.unwrap_err().expect(409, &["web"]);
    let mut asleep = updated.clone();
    asleep["metadata"]["annotations"] = json!({ "sleepmode.platform.sh/force": "true" });
    let refused = js.patch(&one, &updated, &asleep).await.unwrap_err();
    refused.expect(422, &["does not put virtual clusters to sleep"]);
}

/// The client puts all groups to impersonate into one header. This server does not have the header.
#[tokio::test]
async fn a_header_of_impersonation_that_is_not_known_is_named() {
    let platform = Platform::start(&[]).await;
    let mut js = Js::of(&platform.admin);
    js.impersonated = Some(("bob", "platform:user:bob, platform:authenticated"));
    let refused = js.get("projects").await.unwrap_err();
    assert!([400, 403].contains(&refused.code), "{refused:?}");
    let message = refused.message.to_lowercase();
    for name in ["impersonate-joined-group", "impersonate-group"] {
        assert!(message.contains(name), "{message}");
    }
}

#[tokio::test]
async fn what_is_not_served_is_named() {
    let platform = Platform::start(&[]).await;
    let js = Js::of(&platform.admin);
    let resources = js.get("").await;
    assert!(resources.is_ok() || resources.is_err_and(|failure| failure.code == 404));
    for path in ["apps", "licenses", "virtualclustertemplates", "users/ada/profile"] {
        js.get(path).await.unwrap_err().expect(404, &["not served"]);
    }
    // For a misspelled resource, the message names the nearest one.
    js.get("project").await.unwrap_err().expect(404, &["projects"]);
}
