//! Informers of an ordinary user (plain requests, kube-rs, the Python client), while shares, teams,
//! groups, roles and the scope of their key change at random. They end with the objects that the user
//! may get, and never hold an object that the user might not get at that revision.
//! `POSTERN_TEST_INFORMER_CHANGES` says how many changes; the default is 200.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use std::process::Stdio;

use futures_util::StreamExt as _;
use kube::Api;
use kube::api::DynamicObject;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, watcher};
use postern_tests::http::Client;
use postern_tests::objects::{make, secret, secret_path, secrets, version_of};
use postern_tests::rights::{allow, binding, path, rbac, role, rule_on, set, user};
use postern_tests::watching::Watch;
use postern_tests::{Random, Server, python, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::access::model::{
    Model, Names, OF_READERS, SECRETS, TEAMS, Timeline, name_of, some_below, toggle,
};
use crate::access::scene::names;

fn revision_of(object: &Value) -> u64 {
    version_of(object) >> 8
}

/// A list or a change that an informer has seen.
#[derive(Debug)]
enum Seen {
    /// A list, which replaces everything that is held.
    List { revision: u64, names: Names },
    /// A change of one object.
    Change { revision: u64, is_deleted: bool, name: String },
}

/// An informer's log, and the names that it holds.
#[derive(Debug, Default)]
struct Informer {
    seen: Vec<Seen>,
    held: Names,
    lists: usize,
}

impl Informer {
    fn list(&mut self, revision: u64, names: Names) {
        self.held.clone_from(&names);
        self.lists += 1;
        self.seen.push(Seen::List { revision, names });
    }

    fn change(&mut self, revision: u64, is_deleted: bool, name: String) {
        if is_deleted {
            self.held.remove(&name);
        } else {
            self.held.insert(name.clone());
        }
        self.seen.push(Seen::Change { revision, is_deleted, name });
    }

    /// Checks that the informer held no name at a revision at which the user could not get it.
    fn check(&self, timeline: &Timeline) {
        let mut held = Names::new();
        for seen in &self.seen {
            match seen {
                // A list of revision 0 is a list without a revision from the client.
                Seen::List { revision: 0, names } => held.clone_from(names),
                Seen::List { revision, names } => {
                    let equal = timeline.possible(*revision).any(|state| state.names == *names);
                    assert!(equal, "{seen:?}: {:#?}", timeline.before(*revision));
                    held.clone_from(names);
                }
                Seen::Change { revision, is_deleted, name } => {
                    if *is_deleted {
                        held.remove(name)
                    } else {
                        held.insert(name.clone())
                    };
                    let mut possible = timeline.possible(*revision);
                    let allowed = possible.any(|state| held.is_subset(&state.names));
                    assert!(allowed, "{seen:?} {held:?}: {:#?}", timeline.before(*revision));
                }
            }
        }
    }
}

type Shared = Arc<Mutex<Informer>>;

/// An informer in plain requests: it lists, watches from there, and begins again when that ends.
async fn follow_plainly(client: Client, informer: Shared) {
    loop {
        let list = client.get(&secrets("platform")).send().await;
        if list.status != 200 {
            continue;
        }
        let list = list.json();
        let listed = names(&list).into_iter().collect();
        informer.lock().unwrap().list(revision_of(&list), listed);
        let since = format!("?watch=true&resourceVersion={}", version_of(&list));
        let watched = format!("{}{since}", secrets("platform"));
        let Ok(lines) = client.get(&watched).try_stream().await else { continue };
        let mut watch = Watch::new(lines);
        while let Ok(Some(event)) = watch.try_next().await {
            if event.kind == "ERROR" {
                assert_eq!(event.object["code"], 410, "{}", event.object);
                break;
            }
            let name = postern_tests::objects::name_of(&event.object).to_owned();
            let revision = revision_of(&event.object);
            informer.lock().unwrap().change(revision, event.kind == "DELETED", name);
        }
    }
}

/// kube-rs' informer.
async fn follow_by_kube_rs(api: Api<DynamicObject>, informer: Shared, config: watcher::Config) {
    let mut stream = pin!(watcher(api, config));
    let mut pending = Names::new();
    let name = |object: &DynamicObject| object.metadata.name.clone().unwrap();
    let revision = |object: &DynamicObject| {
        object.metadata.resource_version.as_ref().unwrap().parse::<u64>().unwrap() >> 8
    };
    while let Some(event) = stream.next().await {
        let mut informer = informer.lock().unwrap();
        match event {
            Ok(watcher::Event::Init) => pending.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                pending.insert(name(&object));
            }
            Ok(watcher::Event::InitDone) => informer.list(0, pending.clone()),
            Ok(watcher::Event::Apply(object)) => {
                informer.change(revision(&object), false, name(&object));
            }
            Ok(watcher::Event::Delete(object)) => {
                informer.change(revision(&object), true, name(&object));
            }
            // After the end of a watch, the informer lists again.
            Err(_) => {}
        }
    }
}

/// An informer by the official Python client, in a separate process.
async fn follow_by_python(mut process: Child, informer: Shared) {
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap();
        let mut informer = informer.lock().unwrap();
        let revision = |packed: &Value| packed.as_u64().unwrap() >> 8;
        if let Some(names) = line["names"].as_array() {
            let names = names.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
            informer.list(revision(&line["list"]), names);
        } else {
            let name = line["name"].as_str().unwrap().to_owned();
            informer.change(revision(&line["change"]), line["deleted"] == true, name);
        }
    }
}

fn start_python(server: &Server, client: &Client) -> Child {
    let kubeconfig = server.kubeconfig();
    let authority = server.home().path().join("ca.pem");
    std::fs::write(&authority, &kubeconfig.authority).unwrap();
    Command::new(python::program())
        .arg(python::script("informer.py"))
        .arg(&kubeconfig.server)
        .arg(authority)
        .args([client.token(), "platform", "sharedsecrets"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("Python can be started")
}

async fn api_of(server: &Server, client: &Client) -> Api<DynamicObject> {
    let mut file = Kubeconfig::read_from(server.home().kubeconfig()).unwrap();
    let info = file.auth_infos[0].auth_info.as_mut().unwrap();
    info.token = Some(client.token().to_owned().into());
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    let kind = GroupVersionKind::gvk("management.platform.sh", "v1", "SharedSecret");
    let resource = ApiResource::from_gvk_with_plural(&kind, "sharedsecrets");
    Api::namespaced_with(client, "platform", &resource)
}

/// The administrator, which makes every change, and an account of the changes.
struct World {
    admin: Client,
    random: Random,
    model: Model,
    timeline: Timeline,
    writes: u64,
}

impl World {
    async fn new(admin: Client) -> Self {
        let mut world = Self {
            admin,
            random: Random::new(7),
            model: Model { existing: (0..SECRETS).collect(), ..Model::default() },
            timeline: Timeline::default(),
            writes: 0,
        };
        let admin = &world.admin;
        make(admin, "users", "bob", json!({})).await;
        for team in 0..TEAMS {
            make(admin, "teams", &format!("t{team}"), json!({ "users": ["bob"] })).await;
        }
        let reads =
            |secret: usize| json!([rule_on("sharedsecrets", &[&name_of(secret)], &["get"])]);
        for secret_number in 0..SECRETS {
            let object = secret(&name_of(secret_number), "x");
            admin.post(&secrets("platform")).json(&object).send().await.expect(201);
            let one = role(&format!("read-{secret_number}"), &reads(secret_number));
            admin.post(&rbac(Some("platform"), "role")).json(&one).send().await.expect(201);
        }
        allow(admin, "readers", Some("platform"), reads(OF_READERS), "readers").await;
        world.until_now("the start").await;
        world
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).unwrap()
    }

    fn began(&mut self, object: &Value, change: &'static str) {
        self.timeline.at(revision_of(object), self.model.visible(), change);
    }

    /// Notes the state that there is since some revision up to now.
    async fn until_now(&mut self, change: &'static str) {
        let one = format!("{}?limit=1", secrets("platform"));
        let list = self.admin.get(&one).send().await.expect(200);
        self.timeline.until(revision_of(&list), self.model.visible(), change);
    }

    async fn change(&mut self) {
        match self.below(12) {
            0..=2 => self.share().await,
            3 | 4 => self.change_team().await,
            5 => self.change_role().await,
            6 => self.change_scope().await,
            7 => self.create_or_delete().await,
            _ => self.write().await,
        }
    }

    async fn share(&mut self) {
        let number = self.below(SECRETS);
        if !self.model.existing.contains(&number) {
            return;
        }
        let with_user = self.below(3) == 0;
        let teams = some_below(&mut self.random, TEAMS);
        let mut access = vec![json!({ "verbs": ["get"], "users": ["bob"] })];
        access.extend(with_user.then(|| json!({ "verbs": ["*"], "users": ["ada"] })));
        let of_team = |team| json!({ "verbs": ["get", "list"], "teams": [format!("t{team}")] });
        access.extend(teams.iter().map(of_team));
        self.model.shares.insert(number, (with_user, teams));
        let one = secret_path(&name_of(number));
        let object = set(&self.admin, &one, json!({ "access": access })).await;
        self.began(&object, "a share");
    }

    async fn change_team(&mut self) {
        let number = self.below(TEAMS);
        let spec = if self.below(3) == 0 {
            let reads = toggle(&mut self.model.reading_teams, number);
            json!({ "groups": if reads { json!(["readers"]) } else { json!(["others"]) } })
        } else {
            let is_member = toggle(&mut self.model.member_of, number);
            json!({ "users": if is_member { json!(["bob", "ada"]) } else { json!(["bob"]) } })
        };
        let object = set(&self.admin, &path("teams", &format!("t{number}")), spec).await;
        self.began(&object, "a team");
    }

    async fn change_role(&mut self) {
        let number = self.below(SECRETS);
        let (name, of) = (format!("read-{number}"), rbac(Some("platform"), "rolebinding"));
        if toggle(&mut self.model.roles, number) {
            let bound = binding(&name, Some("platform"), &name, "platform:user:ada");
            let object = self.admin.post(&of).json(&bound).send().await.expect(201);
            self.began(&object, "a binding");
        } else {
            self.admin.delete(&format!("{of}/{name}")).send().await.expect(200);
            self.until_now("a binding removed").await;
        }
    }

    async fn change_scope(&mut self) {
        let mut allowed: BTreeSet<usize> = some_below(&mut self.random, SECRETS);
        allowed.insert(self.below(SECRETS));
        let is_all = self.below(2) == 0;
        let names: Vec<String> = allowed.iter().map(|number| name_of(*number)).collect();
        let resources = json!([{ "group": "management.platform.sh",
            "resources": ["sharedsecrets"], "resourceNames": names }]);
        let rule = if is_all { json!({}) } else { json!({ "resources": resources }) };
        self.model.scope = (!is_all).then_some(allowed);
        let scope = json!({ "scope": { "rules": [rule] } });
        let object = set(&self.admin, &path("ownedaccesskeys", "ada-key"), scope).await;
        self.began(&object, "the scope");
    }

    async fn create_or_delete(&mut self) {
        let number = self.below(SECRETS);
        let name = name_of(number);
        self.model.shares.remove(&number);
        if toggle(&mut self.model.existing, number) {
            let all = secrets("platform");
            let object = self.admin.post(&all).json(&secret(&name, "x")).send().await.expect(201);
            self.began(&object, "a secret");
        } else {
            self.admin.delete(&secret_path(&name)).send().await.expect(200);
            self.until_now("a secret removed").await;
        }
    }

    async fn write(&mut self) {
        let number = self.below(SECRETS);
        if self.model.existing.contains(&number) {
            self.writes += 1;
            let spec = json!({ "displayName": self.writes.to_string() });
            set(&self.admin, &secret_path(&name_of(number)), spec).await;
        }
    }
}

fn wanted_changes() -> usize {
    let text = std::env::var("POSTERN_TEST_INFORMER_CHANGES").unwrap_or_else(|_| "200".to_owned());
    text.parse().expect("POSTERN_TEST_INFORMER_CHANGES is a number")
}

#[tokio::test]
async fn informers_hold_what_their_user_may_get_and_never_more() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let all = json!({ "scope": { "rules": [{}] } });
    set(&admin, &path("ownedaccesskeys", "ada-key"), all).await;
    let mut world = World::new(admin).await;
    let informers: [Shared; 4] = std::array::from_fn(|_| Shared::default());
    let [plain, lists, streams, python] = &informers;
    let api = api_of(&server, &ada).await;
    let config = watcher::Config::default();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(follow_plainly(ada.clone(), plain.clone()));
    tasks.spawn(follow_by_kube_rs(api.clone(), lists.clone(), config.clone().page_size(3)));
    tasks.spawn(follow_by_kube_rs(api, streams.clone(), config.streaming_lists()));
    tasks.spawn(follow_by_python(start_python(&server, &ada), python.clone()));
    for _ in 0..wanted_changes() {
        world.change().await;
    }
    let wanted = world.model.visible();
    let read: Names = crate::access::scene::visible(&ada).await.into_iter().collect();
    assert_eq!(read, wanted, "the test's own account is right");
    for (what, informer) in
        [("plain", plain), ("lists", lists), ("streams", streams), ("python", python)]
    {
        wait::until(&format!("the informer by {what} to hold {wanted:?}"), async || {
            (informer.lock().unwrap().held == wanted).then_some(())
        })
        .await;
        informer.lock().unwrap().check(&world.timeline);
    }
    assert!(plain.lock().unwrap().lists > 5, "rights were lost and gained");
    // Still open: the next change arrives.
    world.write().await;
}
