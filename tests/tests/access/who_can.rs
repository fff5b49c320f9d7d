//! Reviews of access, in a random world. Their answers match the results of the requests
//! themselves. `who-can` lists exactly the users, teams and access keys that a review allows.

use std::collections::{BTreeMap, BTreeSet};

use postern_tests::http::Client;
use postern_tests::objects::{collection, make, secret, secret_path, secrets};
use postern_tests::rights::{RBAC_GROUP, allow, rbac, role, rule, rule_on, user, with_key};
use postern_tests::{Random, Server};
use serde_json::{Value, json};

const USERS: usize = 5;
const TEAMS: usize = 3;
const SECRETS: usize = 4;
const ROLES: usize = 10;
const QUESTIONS: usize = 60;

/// The groups of a user, except the groups of all users.
type Groups = BTreeMap<String, BTreeSet<String>>;

struct World {
    admin: Client,
    random: Random,
    groups: Groups,
    /// The access keys, with clients that have them.
    keys: BTreeMap<String, Client>,
}

impl World {
    async fn new(admin: Client) -> Self {
        let (groups, keys) = (Groups::new(), BTreeMap::new());
        let mut world = Self { admin, random: Random::new(11), groups, keys };
        world.principals().await;
        world.secrets().await;
        world.roles().await;
        world
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn some(&mut self, prefix: &str, end: usize) -> Vec<String> {
        let chosen = (0..end).filter(|_| self.random.below(3) == 0);
        chosen.map(|number| format!("{prefix}{number}")).collect()
    }

    async fn principals(&mut self) {
        for user in 0..USERS {
            let (name, extra) = (format!("u{user}"), self.some("g", 2));
            let mut groups = BTreeSet::from_iter(extra.clone());
            groups.insert(format!("platform:user:{name}"));
            make(&self.admin, "users", &name, json!({ "groups": extra })).await;
            self.groups.insert(name, groups);
        }
        for team in 0..TEAMS {
            let (name, members, extra) =
                (format!("t{team}"), self.some("u", USERS), self.some("g", 2));
            make(&self.admin, "teams", &name, json!({ "users": members, "groups": extra })).await;
            for member in members {
                let of_member = self.groups.get_mut(&member).unwrap();
                of_member.extend(extra.iter().cloned());
                of_member.insert(format!("platform:team:{name}"));
            }
        }
        for number in 0..USERS * 2 {
            let (name, user) = (format!("k{number}"), format!("u{}", number % USERS));
            let mut spec = json!({ "user": user });
            if number >= USERS {
                let rules = json!([self.scope_rule()]);
                spec["scope"] = json!({ "rules": rules });
            }
            let client = with_key(&self.admin, &name, spec).await;
            self.keys.insert(name, client);
        }
    }

    fn scope_rule(&mut self) -> Value {
        let resource = self.one(&["sharedsecrets", "projects", "*"]);
        json!({
            "verbs": [self.one(&["get", "update", "list"])],
            "resources": [{ "group": "management.platform.sh", "resources": [resource] }],
        })
    }

    async fn secrets(&mut self) {
        for number in 0..SECRETS {
            let mut object = secret(&format!("s{number}"), "x");
            let owner = format!("u{}", self.below(USERS));
            let (users, teams) = (self.some("u", USERS), self.some("t", TEAMS));
            let verb = self.one(&["get", "update", "*"]);
            object["spec"]["owner"] = json!({ "user": owner });
            object["spec"]["access"] = json!([{ "verbs": [verb], "users": users, "teams": teams }]);
            self.admin.post(&secrets("platform")).json(&object).send().await.expect(201);
        }
    }

    async fn roles(&mut self) {
        for number in 0..ROLES {
            let name = format!("r{number}");
            let verbs = [self.one(&["get", "update", "delete", "*"])];
            let resource =
                self.one(&["sharedsecrets", "projects", "users", "sharedsecrets/status"]);
            let rules = match self.below(2) {
                0 => json!([rule(&[resource], &verbs)]),
                _ => json!([rule_on(resource, &[self.one(&["s0", "s1", "u1"])], &verbs)]),
            };
            let group = match self.below(6) {
                0 => "system:authenticated".to_owned(),
                1 => "platform:user:*".to_owned(),
                2 => format!("g{}", self.below(2)),
                3 => format!("platform:team:t{}", self.below(TEAMS)),
                _ => format!("platform:user:u{}", self.below(USERS)),
            };
            let namespace = [None, Some("platform"), Some("default")][self.below(3)];
            if self.below(4) > 0 {
                allow(&self.admin, &name, namespace, rules, &group).await;
                continue;
            }
            let made = role(&name, &rules);
            self.admin.post(&rbac(namespace, "role")).json(&made).send().await.expect(201);
            let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
            let user = json!([{ "apiGroup": RBAC_GROUP, "kind": "User", "name": "u2" }]);
            let bound = json!({ "metadata": { "name": name }, "subjects": user,
                "roleRef": { "apiGroup": RBAC_GROUP, "kind": kind, "name": name } });
            self.admin.post(&rbac(namespace, "rolebinding")).json(&bound).send().await.expect(201);
        }
    }

    fn question(&mut self) -> Value {
        let resource = self.one(&["sharedsecrets", "sharedsecrets", "projects", "users"]);
        let is_secret = resource == "sharedsecrets";
        let subresource = self.one(&["", "", "", "status"]);
        json!({
            "verb": self.one(&["get", "update", "delete", "create", "list"]),
            "group": "management.platform.sh",
            "resource": resource,
            "subresource": subresource,
            "namespace": if is_secret { self.one(&["platform", "default", ""]) } else { "" },
            "name": self.one(&["", "s0", "s1", "s2", "u1"]),
        })
    }

    /// Whether a subject has the permission, by an access review.
    async fn may(&self, question: &Value, subject: Value) -> bool {
        let mut spec = subject;
        spec["resourceAttributes"] = question.clone();
        let path = "/kubernetes/management/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review = self.admin.post(path).json(&json!({ "spec": spec })).send().await.expect(201);
        review["status"]["allowed"] == true
    }
}

/// The names of a kind in the answer.
fn listed(answer: &Value, kind: &str) -> BTreeSet<String> {
    let rows = answer["subjects"].as_array().unwrap().iter();
    let of_kind = rows.filter(|row| row["kind"] == kind);
    of_kind.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn who_can_lists_exactly_those_whom_a_review_allows() {
    let server = Server::start().await;
    let mut world = World::new(server.client()).await;
    let (mut allowed, mut refused) = (0, 0);
    for _ in 0..QUESTIONS {
        let question = world.question();
        let asked = world.admin.post(&collection("resourceaccessreviews"));
        let answer = asked.json(&json!({ "spec": question })).send().await.expect(201);
        let answer = &answer["status"];
        assert_eq!(answer["complete"], true);
        let (users, teams, groups) =
            (listed(answer, "User"), listed(answer, "Team"), listed(answer, "Group"));
        for (user, own) in &world.groups {
            let everyone = ["system:authenticated", "platform:authenticated", "platform:user:*"];
            let is_listed = users.contains(user)
                || teams.iter().any(|team| own.contains(&format!("platform:team:{team}")))
                || groups.iter().any(|group| own.contains(group))
                || everyone.iter().any(|group| groups.contains(*group));
            let may = world.may(&question, json!({ "user": user })).await;
            assert_eq!(is_listed, may, "{user}, {question}: {answer}");
            *(if may { &mut allowed } else { &mut refused }) += 1;
        }
        let keys = listed(answer, "AccessKey");
        for key in world.keys.keys() {
            let subject = json!({ "extra": { "platform.sh/access-key": [key] } });
            let may = world.may(&question, subject).await;
            assert_eq!(keys.contains(key), may, "{key}, {question}: {answer}");
        }
    }
    assert!(allowed > 30 && refused > 30, "{allowed} may, {refused} may not");
}

/// The verbs, each with the method and query of a request that it decides. The requests change nothing.
const REQUESTS: [(&str, &str, &str); 5] = [
    ("get", "GET", ""),
    ("patch", "PATCH", "?dryRun=All"),
    ("delete", "DELETE", "?dryRun=All"),
    ("list", "GET", ""),
    ("create", "POST", "?dryRun=All"),
];

/// Whether a request is let through.
async fn is_let_through(key: &Client, method: &str, name: &str, query: &str) -> bool {
    let path = if name.is_empty() { secrets("platform") } else { secret_path(name) } + query;
    let request = match method {
        "PATCH" => key.patch(&path, "merge-patch", &json!({ "spec": { "displayName": "x" } })),
        "POST" => key.post(&path).json(&secret("new", "x")),
        method => key.request(method, &path),
    };
    let reply = request.send().await;
    assert!([200, 201, 403, 404].contains(&reply.status), "{method} {path}: {}", reply.text());
    reply.status < 300
}

#[tokio::test]
async fn a_review_says_what_the_request_itself_gets() {
    let server = Server::start().await;
    let world = World::new(server.client()).await;
    let (mut allowed, mut refused) = (0, 0);
    for (name, key) in &world.keys {
        for (verb, method, query) in REQUESTS {
            let of_objects = ["s0", "s1", "s2", "s3", "absent"];
            let names = if ["list", "create"].contains(&verb) { &[""][..] } else { &of_objects };
            for object in names {
                let asked = json!({ "verb": verb, "group": "management.platform.sh",
                    "resource": "sharedsecrets", "namespace": "platform", "name": object });
                let path =
                    "/kubernetes/management/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
                let asking =
                    key.post(path).json(&json!({ "spec": { "resourceAttributes": asked } }));
                let review = asking.send().await.expect(201);
                let says = review["status"]["allowed"] == true;
                if *object == "absent" && says {
                    // Nothing is there, so the request does not tell.
                    continue;
                }
                let gets = is_let_through(key, method, object, query).await;
                assert_eq!(says, gets, "{name}: {verb} {object}: {review}");
                *(if gets { &mut allowed } else { &mut refused }) += 1;
            }
        }
    }
    assert!(allowed > 10 && refused > 10, "{allowed} let through, {refused} not");
}

/// Callers that can update an object would otherwise have to ask an administrator about its
/// readers.
#[tokio::test]
async fn who_may_update_an_object_may_ask_about_it() {
    let server = Server::start().await;
    let admin = server.client();
    let [ada, bob, eve] = ["ada", "bob", "eve"].map(|name| user(&admin, name));
    let (ada, bob, eve) = (ada.await, bob.await, eve.await);
    let rules = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makes", Some("platform"), rules, "platform:user:ada").await;
    let mut mine = secret("db", "value");
    mine["spec"]["access"] = json!([{ "verbs": ["get"], "users": ["ada"] }]);
    ada.post(&secrets("platform")).json(&mine).send().await.expect(201);
    allow(
        &admin,
        "updates",
        Some("platform"),
        json!([rule_on("sharedsecrets", &["db"], &["update"])]),
        "platform:user:bob",
    )
    .await;
    let about = |name: &str| {
        json!({ "spec": { "verb": "get", "group": "management.platform.sh", "resource": "sharedsecrets",
            "namespace": "platform", "name": name } })
    };
    let reviews = collection("resourceaccessreviews");
    for client in [&ada, &bob] {
        let told = client.post(&reviews).json(&about("db")).send().await.expect(201);
        let subjects = told["status"]["subjects"].as_array().unwrap();
        assert!(subjects.iter().any(|one| one["kind"] == "User" && one["name"] == "ada"), "{told}");
        // Questions about other objects, and about all objects, need a role. A missing object is
        // like an object of another owner.
        for other in [about("other"), about("")] {
            assert_eq!(client.post(&reviews).json(&other).send().await.status, 403);
        }
    }
    assert_eq!(eve.post(&reviews).json(&about("db")).send().await.status, 403);
    // A scope holds for the question, too.
    let scope = json!({ "user": "ada", "scope": { "rules": [{ "verbs": ["get"] }] } });
    let reading = with_key(&admin, "reading", scope).await;
    assert_eq!(reading.post(&reviews).json(&about("db")).send().await.status, 403);
    let masters = with_key(&admin, "masters", json!({ "user": "admin", "scope": {} })).await;
    assert_eq!(masters.post(&reviews).json(&about("db")).send().await.status, 403);
}

/// An owner learns to whom they gave access, and not which administrators there are.
#[tokio::test]
async fn an_owner_sees_permissions_in_the_whole_server_as_one_row() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    for name in ["bob", "auditor"] {
        user(&admin, name).await;
    }
    make(&admin, "teams", "red", json!({ "users": ["ada", "bob"] })).await;
    let rules = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makes", Some("platform"), rules, "platform:user:ada").await;
    let everywhere = json!([rule(&["sharedsecrets", "clusters"], &["get"])]);
    allow(&admin, "reads-all", None, everywhere, "platform:user:auditor").await;
    let mut mine = secret("db", "value");
    mine["spec"]["access"] = json!([{ "verbs": ["get"], "teams": ["red"] }]);
    ada.post(&secrets("platform")).json(&mine).send().await.expect(201);
    let shared =
        json!({ "owner": { "user": "ada" }, "access": [{ "verbs": ["get"], "teams": ["red"] }] });
    make(&admin, "clusters", "east", shared).await;
    let reviews = collection("resourceaccessreviews");
    for (resource, namespace, name) in
        [("sharedsecrets", "platform", "db"), ("clusters", "", "east")]
    {
        let asked = json!({ "spec": { "verb": "get", "group": "management.platform.sh",
            "resource": resource, "namespace": namespace, "name": name } });
        let told = ada.post(&reviews).json(&asked).send().await.expect(201)["status"].clone();
        assert_eq!(listed(&told, "User"), ["ada".to_owned()].into(), "{told}");
        assert_eq!(listed(&told, "Team"), ["red".to_owned()].into(), "{told}");
        assert_eq!(listed(&told, "AccessKey"), ["ada-key".to_owned()].into(), "{told}");
        let one_row = json!({ "kind": "ClusterWide", "name": "*", "size": 2,
            "via": ["roles in the whole server"] });
        assert!(told["subjects"].as_array().unwrap().contains(&one_row), "{told}");
        for hidden in ["auditor", "admin", "reads-all", "masters"] {
            assert!(!told.to_string().contains(hidden), "{hidden}: {told}");
        }
        let told = admin.post(&reviews).json(&asked).send().await.expect(201)["status"].clone();
        assert!(listed(&told, "ClusterWide").is_empty(), "{told}");
        assert!(listed(&told, "User").contains("auditor"), "{told}");
        assert!(listed(&told, "AccessKey").contains("auditor-key"), "{told}");
    }
}
