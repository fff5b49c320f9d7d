//! A client written in Go with typed objects: its headers and bodies, and the texts that its users get.

use std::time::Duration;

use postern_tests::http::{Client, Request, Response};
use postern_tests::objects::GROUP;
use serde_json::{Value, json};

use crate::platform_clients::typed::{Age, encode, merge_patch};

/// A refusal as the client has it: the code, and the message that it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) message: String,
}

impl Failure {
    /// A failure that the client itself finds, without a code of the server.
    pub(crate) fn of_client(message: impl Into<String>) -> Self {
        Self { code: 0, message: message.into() }
    }

    /// Fails unless the object is hidden from the caller: 404, or 403 if the caller can reach no object of the kind.
    pub(crate) fn expect_hidden(self) {
        assert!([403, 404].contains(&self.code), "{self:?}");
    }

    /// Fails unless the message has all of these words, and returns it.
    pub(crate) fn expect(self, code: u16, words: &[&str]) -> String {
        assert_eq!(self.code, code, "{}", self.message);
        for word in words {
            assert!(self.message.contains(word), "{word:?} is not in: {}", self.message);
        }
        self.message
    }
}

/// How a command ends.
pub(crate) type Outcome<T = String> = Result<T, Failure>;

/// One logged in client.
#[derive(Clone, Debug)]
pub(crate) struct GoClient {
    pub(crate) http: Client,
    pub(crate) age: Age,
}

impl GoClient {
    /// A client of the server and the key of another client.
    pub(crate) fn new(http: &Client, age: Age) -> Self {
        Self { http: http.clone(), age }
    }

    /// The user agent.
    fn agent(&self) -> &'static str {
        match self.age {
            Age::V31 => "loftctl/",
            Age::V3 => "loftctl/3.4.8",
            Age::V4 => "vcluster/0.36.1",
        }
    }

    async fn send(&self, request: Request<'_>) -> Outcome<Response> {
        let accept = "application/json, */*";
        let reply = request.accept(accept).header("user-agent", self.agent()).send().await;
        if (200..300).contains(&reply.status) {
            return Ok(reply);
        }
        let message = serde_json::from_slice::<Value>(&reply.body)
            .ok()
            .and_then(|status| Some(status["message"].as_str()?.to_owned()));
        Err(Failure { code: reply.status, message: message.unwrap_or_else(|| reply.text()) })
    }

    /// Reads a path from the server's root.
    pub(crate) async fn get_raw(&self, path: &str) -> Outcome<Value> {
        Ok(self.send(self.http.get(path)).await?.json())
    }

    /// Reads an object or a list of the management group.
    pub(crate) async fn get(&self, path: &str) -> Outcome<Value> {
        self.get_raw(&format!("{GROUP}/{path}")).await
    }

    /// The items of a list.
    pub(crate) async fn list(&self, path: &str) -> Outcome<Vec<Value>> {
        Ok(self.get(path).await?["items"].as_array().expect("a list has items").clone())
    }

    /// Creates a typed object.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> Outcome<Value> {
        let body = encode(self.age, resource_of(collection), object);
        let path = format!("{GROUP}/{collection}");
        Ok(self.send(self.http.post(&path).json(&body)).await?.json())
    }

    /// Replaces an object with the fields that the client knows. The result is the whole response.
    pub(crate) async fn update(&self, collection: &str, object: &Value) -> Outcome<Response> {
        let body = encode(self.age, resource_of(collection), object);
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!("{GROUP}/{collection}/{name}");
        self.send(self.http.put(&path).json(&body)).await
    }

    /// Sends the difference between two states of an object, as the client knows them.
    pub(crate) async fn patch(
        &self,
        collection: &str,
        before: &Value,
        after: &Value,
    ) -> Outcome<Value> {
        let resource = resource_of(collection);
        let changes =
            merge_patch(&encode(self.age, resource, before), &encode(self.age, resource, after));
        let name = before["metadata"]["name"].as_str().unwrap();
        let path = format!("{GROUP}/{collection}/{name}");
        Ok(self.send(self.http.patch(&path, "merge-patch", &changes)).await?.json())
    }

    /// Deletes an object, with options in the group of the object.
    pub(crate) async fn delete(&self, path: &str) -> Outcome<Value> {
        let options = json!({ "kind": "DeleteOptions", "apiVersion": "management.platform.sh/v1" });
        let path = format!("{GROUP}/{path}");
        Ok(self.send(self.http.delete(&path).json(&options)).await?.json())
    }

    /// Asks for the caller's identity.
    pub(crate) async fn myself(&self) -> Outcome<Value> {
        Ok(self.create("selves", &json!({})).await?["status"].clone())
    }

    /// Asks whether the caller may `use` an object, as the clients do before they list it.
    pub(crate) async fn may(&self, attributes: Value) -> Outcome<bool> {
        let mut attributes = attributes;
        attributes["group"] = "management.platform.sh".into();
        attributes["version"] = "v1".into();
        let review = json!({ "spec": { "resourceAttributes": attributes } });
        let status = self.create("selfsubjectaccessreviews", &review).await?["status"].clone();
        Ok(status["allowed"] == true && status["denied"] != true)
    }

    /// Reads an instance until it is ready. `patience` is `LOFT_TIMEOUT`, ten minutes by default.
    pub(crate) async fn wait_until_ready(
        &self,
        collection: &str,
        name: &str,
        patience: Duration,
    ) -> Outcome<Value> {
        let started = std::time::Instant::now();
        loop {
            let found = self.get(&format!("{collection}/{name}")).await?;
            let status = &found["status"];
            if ["Ready", "Sleeping"].iter().any(|phase| status["phase"] == *phase) {
                return Ok(found);
            }
            if started.elapsed() > patience {
                let text = |field: &str| status[field].as_str().unwrap_or_default();
                let (message, reason) = (text("message"), text("reason"));
                return Err(Failure::of_client(format!("cannot reach it: {message} ({reason})")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Logs out: a key of the type `Login` is deleted.
    pub(crate) async fn log_out(&self) -> Outcome {
        let myself = self.myself().await?;
        if myself["accessKeyType"] == "Login" {
            let name = myself["accessKey"].as_str().unwrap();
            self.delete(&format!("ownedaccesskeys/{name}")).await?;
        }
        Ok("Successfully logged out".to_owned())
    }

    /// Reads the user and their teams after a login, for the secrets of image registries.
    pub(crate) async fn log_into_registries(&self) -> Outcome<()> {
        let myself = self.myself().await?;
        if let Some(team) = myself["team"]["name"].as_str() {
            self.get(&format!("teams/{team}")).await?;
            return Ok(());
        }
        let name = myself["user"]["name"].as_str().ok_or_else(nobody)?;
        let user = self.get(&format!("users/{name}")).await?;
        for team in user["status"]["teams"].as_array().into_iter().flatten() {
            self.get(&format!("teams/{}", team.as_str().unwrap())).await?;
        }
        Ok(())
    }

    /// Finds the cluster of an instance among those of its project, for its kubeconfig.
    pub(crate) async fn cluster_of(&self, project: &str, instance: &Value) -> Outcome<Value> {
        let name = instance["spec"]["clusterRef"]["cluster"].as_str().unwrap_or_default();
        let answer = self.get(&format!("projects/{project}/clusters")).await?;
        let clusters = answer["clusters"].as_array().into_iter().flatten();
        let found = clusters.into_iter().find(|one| one["metadata"]["name"] == name);
        found.cloned().ok_or_else(|| {
            let text = format!("couldn't find cluster {name} in project {project}");
            Failure::of_client(text)
        })
    }
}

/// The failure for a key that belongs to neither a user nor a team.
pub(crate) fn nobody() -> Failure {
    Failure::of_client("no user or team name returned")
}

/// Adds one entry to the access rules of an instance, as `share` does.
pub(crate) fn with_rule(instance: &Value, rule: &Value) -> Value {
    let mut shared = instance.clone();
    match shared["spec"]["extraAccessRules"].as_array_mut() {
        Some(rules) => rules.push(rule.clone()),
        None => shared["spec"]["extraAccessRules"] = json!([rule]),
    }
    shared
}

/// Adds an annotation to an object.
pub(crate) fn annotated(object: &Value, name: &str, value: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"][name] = value.into();
    object
}

/// Fails if an object has an annotation of the sleep mode.
pub(crate) fn assert_no_sleep_mode(object: &Value) {
    let annotations = object["metadata"]["annotations"].as_object();
    let mut names = annotations.into_iter().flatten().map(|(name, _)| name);
    assert!(!names.any(|name| name.starts_with("sleepmode.")), "{object}");
}

/// The resource of a collection, without its namespace.
fn resource_of(collection: &str) -> &str {
    collection.rsplit('/').next().unwrap()
}
