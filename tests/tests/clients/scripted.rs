//! Clients of other languages. Each is a script that follows a collection and runs commands:
//! create, read, apply with conflicts and by force, each kind of patch, delete with each policy.
//! They do so across a restart of the server, and across a compaction.

use std::collections::BTreeMap;
use std::process::Stdio;

use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::rights::{allow, rule, set, user};
use postern_tests::watching::Watch;
use postern_tests::{Home, Relay, Server, Setup, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::scripts;

/// A script's program, its arguments, and the collection that it follows.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) program: std::path::PathBuf,
    pub(crate) arguments: Vec<std::ffi::OsString>,
    /// Arguments behind the kubeconfig.
    pub(crate) rest: Vec<&'static str>,
    /// The collection that it follows.
    pub(crate) collection: String,
}

/// A running script.
struct Running {
    _child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// The events so far: `add NAME=VALUE`.
    events: Vec<String>,
    /// The state that the events lead to.
    held: BTreeMap<String, String>,
}

impl Running {
    /// Starts it with a kubeconfig that leads to the relay.
    fn start(script: &Script, home: &Home, relay: &Relay, server: &Server) -> Self {
        Self::start_as(&server.kubeconfig().token, script, home, relay, server)
    }

    /// Starts it with the key of another caller.
    fn start_as(token: &str, script: &Script, home: &Home, relay: &Relay, server: &Server) -> Self {
        let text = std::fs::read_to_string(home.kubeconfig()).unwrap();
        let direct = server.kubeconfig().authority_of_server().to_owned();
        let text = text.replace(&direct, &format!("127.0.0.1:{}", relay.port()));
        let text = text.replace(&server.kubeconfig().token, token);
        let kubeconfig = home.path().join("relayed.kubeconfig");
        std::fs::write(&kubeconfig, text).unwrap();
        let mut command = Command::new(&script.program);
        command.args(&script.arguments).arg(kubeconfig).args(&script.rest);
        command.env("HOME", home.path()).env_remove("HTTPS_PROXY").env_remove("https_proxy");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // Its messages about broken connections are many, and not of interest.
        command.stderr(std::fs::File::create(home.path().join("script.log")).unwrap());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let input = child.stdin.take().unwrap();
        Self { _child: child, input, lines, events: Vec::new(), held: BTreeMap::new() }
    }

    /// Reads a line. Returns it if it is the result of a command.
    async fn read(&mut self) -> Option<Value> {
        let line = wait::within("a line of the script", self.lines.next_line()).await.unwrap();
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if line["done"].is_string() {
            return Some(line);
        }
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let (event, name, value) = (text("event"), text("name"), text("value"));
        self.events.push(format!("{event} {name}={value}"));
        if event == "delete" {
            self.held.remove(&name);
        } else {
            self.held.insert(name, value);
        }
        None
    }

    /// Does a command, and returns its result: the object's value, or the code of the refusal.
    async fn run(&mut self, command: Value) -> Value {
        self.input.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        loop {
            if let Some(done) = self.read().await {
                return if done["code"].is_null() {
                    done["value"].clone()
                } else {
                    done["code"].clone()
                };
            }
        }
    }

    /// Reads events until it holds exactly these objects.
    async fn until_held(&mut self, wanted: &BTreeMap<String, String>) {
        while self.held != *wanted {
            assert!(self.read().await.is_none());
        }
    }
}

fn object(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[tokio::test]
async fn a_client_creates_applies_patches_and_deletes() {
    for script in scripts() {
        let home = Home::new();
        let server = Setup::on(&home).start().await;
        let relay = Relay::new().await;
        relay.connect_to(&server);
        let mut client = Running::start(&script, &home, &relay, &server);
        let of = |run: &str, value: &str| json!({ "run": run, "name": "s1", "value": value });
        assert_eq!(client.run(of("create", "A")).await, "A");
        client.until_held(&[object("s1", "A")].into()).await;
        assert_eq!(client.run(of("create", "A")).await, 409);
        assert_eq!(client.run(json!({ "run": "read", "name": "s1" })).await, "A");
        assert_eq!(client.run(json!({ "run": "read", "name": "s2" })).await, 404);
        // In the order in which they are sent: each of them changes the value.
        let mut wanted = vec!["add s1=A".to_owned()];
        for (way, value) in [("merge", "B"), ("strategic", "C"), ("json", "D")] {
            assert_eq!(client.run(of(way, value)).await, value, "{way}");
            wanted.push(format!("update s1={value}"));
        }
        let mut apply = of("apply", "E");
        apply["manager"] = "other".into();
        assert_eq!(client.run(apply.clone()).await, 409, "others own the value");
        apply["force"] = true.into();
        assert_eq!(client.run(apply).await, "E");
        wanted.push("update s1=E".into());
        let mut made = of("apply", "F");
        made["name"] = "s2".into();
        assert_eq!(client.run(made).await, "F", "an apply creates");
        wanted.push("add s2=F".into());
        for (name, value, policy) in
            [("s1", "E", "Foreground"), ("s2", "F", "Orphan"), ("s1", "G", "Background")]
        {
            if policy == "Background" {
                assert_eq!(client.run(of("create", "G")).await, "G");
                wanted.push("add s1=G".into());
            } else {
                // The object is marked first, and goes when its dependents are dealt with.
                wanted.push(format!("update {name}={value}"));
            }
            client.run(json!({ "run": "delete", "name": name, "policy": policy })).await;
            wanted.push(format!("delete {name}={value}"));
            while client.events.len() < wanted.len() {
                assert!(client.read().await.is_none());
            }
        }
        assert_eq!(client.events, wanted);
    }
}

/// Lists and informers have the objects that their user may get, while the rights change.
#[tokio::test]
async fn a_client_of_a_user_sees_and_changes_what_they_may() {
    for script in scripts().into_iter().filter(|script| script.collection == secrets("platform")) {
        let home = Home::new();
        let server = Setup::on(&home).start().await;
        let relay = Relay::new().await;
        relay.connect_to(&server);
        let admin = server.client();
        let ada = user(&admin, "ada").await;
        let makers = json!([rule(&["sharedsecrets"], &["create"])]);
        allow(&admin, "makers", Some("platform"), makers, "platform:user:ada").await;
        let mut theirs = secret("theirs", "x");
        theirs["spec"]["displayName"] = "T".into();
        admin.post(&script.collection).json(&theirs).send().await.expect(201);
        let mut client = Running::start_as(ada.token(), &script, &home, &relay, &server);
        let of = |run: &str, name: &str, value: &str| json!({ "run": run, "name": name, "value": value });
        let by = |run: &str, name: &str| json!({ "run": run, "name": name });
        let deleting =
            |name: &str| json!({ "run": "delete", "name": name, "policy": "Background" });
        let names = || json!({ "run": "list" });

        assert_eq!(client.run(of("create", "mine", "A")).await, "A");
        client.until_held(&[object("mine", "A")].into()).await;
        for (way, value) in [("merge", "B"), ("strategic", "C"), ("json", "D"), ("apply", "D")] {
            assert_eq!(client.run(of(way, "mine", value)).await, value, "{way}");
        }
        assert_eq!(client.run(by("read", "mine")).await, "D");
        assert_eq!(client.run(names()).await, json!(["mine"]));
        for refused in [by("read", "theirs"), of("merge", "theirs", "X"), deleting("theirs")] {
            assert_eq!(client.run(refused.clone()).await, 404, "{refused}");
        }

        let share =
            async |access| set(&admin, &secret_path("theirs"), json!({ "access": access })).await;
        share(json!([{ "verbs": ["get", "list", "watch"], "users": ["ada"] }])).await;
        client.until_held(&[object("mine", "D"), object("theirs", "T")].into()).await;
        assert_eq!(client.run(names()).await, json!(["mine", "theirs"]));
        for refused in [of("merge", "theirs", "X"), deleting("theirs")] {
            assert_eq!(client.run(refused.clone()).await, 403, "{refused}");
        }
        assert_eq!(client.run(deleting("mine")).await, json!(null));
        client.until_held(&[object("theirs", "T")].into()).await;
        share(json!([])).await;
        client.until_held(&BTreeMap::new()).await;
        assert_eq!(client.run(names()).await, json!([]));
        assert_eq!(client.run(by("read", "theirs")).await, 404);
    }
}

#[tokio::test]
async fn an_informer_goes_on_after_a_restart() {
    for script in scripts() {
        let home = Home::new();
        let relay = Relay::new().await;
        let mut server = Setup::on(&home).start().await;
        relay.connect_to(&server);
        let mut client = Running::start(&script, &home, &relay, &server);
        let mut wanted = Vec::new();
        for round in ["a", "b", "c"] {
            let seen = format!("{round}-seen");
            client.run(json!({ "run": "create", "name": seen, "value": "A" })).await;
            // The script begins to follow at a moment of its choice.
            while !client.held.contains_key(&seen) {
                assert!(client.read().await.is_none());
            }
            client.run(json!({ "run": "merge", "name": seen, "value": "B" })).await;
            wanted.extend([format!("add {seen}=A"), format!("update {seen}=B")]);
            while client.events.len() < wanted.len() {
                assert!(client.read().await.is_none());
            }
            relay.disconnect();
            server.stop().await;
            server = Setup::on(&home).start().await;
            // Changes while the client has no connection.
            let direct = server.client();
            let one = format!("{}/{seen}", script.collection);
            let copy = direct.get(&one).send().await.expect(200);
            let unseen = format!("{round}-unseen");
            let mut other = copy.clone();
            other["metadata"] = json!({ "name": unseen });
            direct.post(&script.collection).json(&other).send().await.expect(201);
            direct.delete(&one).send().await.expect(200);
            wanted.extend([format!("add {unseen}=B"), format!("delete {seen}=B")]);
            relay.connect_to(&server);
        }
        while client.events.len() < wanted.len() {
            assert!(client.read().await.is_none());
        }
        assert_eq!(client.events, wanted, "nothing is missing, and nothing is repeated");
    }
}

#[tokio::test]
async fn an_informer_lists_anew_after_a_compaction() {
    for script in scripts() {
        let home = Home::new();
        let relay = Relay::new().await;
        let server = Setup::on(&home).argument("--history").argument("1s").start().await;
        relay.connect_to(&server);
        let mut client = Running::start(&script, &home, &relay, &server);
        for name in ["stays", "goes"] {
            client.run(json!({ "run": "create", "name": name, "value": "A" })).await;
        }
        client.until_held(&[object("stays", "A"), object("goes", "A")].into()).await;
        let direct = server.client();
        let old = direct.get(&script.collection).send().await.expect(200);
        relay.disconnect();
        let copy = direct.get(&format!("{}/stays", script.collection)).send().await.expect(200);
        direct.delete(&format!("{}/goes", script.collection)).send().await.expect(200);
        let old = old["metadata"]["resourceVersion"].as_str().unwrap();
        let mut other = copy.clone();
        other["metadata"] = json!({ "name": "new" });
        wait::until("the history to be compacted", async || {
            direct.post(&script.collection).json(&other).send().await.expect(201);
            direct.delete(&format!("{}/new", script.collection)).send().await.expect(200);
            let since = format!("&resourceVersion={old}&timeoutSeconds=1");
            let path = format!("{}?watch=true{since}", script.collection);
            let mut events = Watch::new(direct.get(&path).stream().await);
            let first = events.next().await?;
            (first.kind == "ERROR").then(|| assert_eq!(first.object["code"], 410))
        })
        .await;
        direct.post(&script.collection).json(&other).send().await.expect(201);
        relay.connect_to(&server);
        client.until_held(&[object("stays", "A"), object("new", "A")].into()).await;
        client.run(json!({ "run": "merge", "name": "stays", "value": "B" })).await;
        client.until_held(&[object("stays", "B"), object("new", "A")].into()).await;
    }
}
