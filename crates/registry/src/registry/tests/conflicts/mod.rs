//! The responses of a write when another server is faster: at the commit itself, before it, and in
//! a dry run.
//!
//! The responses are in `answers.txt`. If one changes, the test prints all of them.

mod race;

use postern_auth::writer::Writer;
use postern_kinds::cluster::Cluster;
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project::Project;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::rbac::PROJECT_LABEL;
use postern_kinds::secret_sync::{SHARED_SECRET_NAME, SYNCED_FOR};
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::team::Team;
use postern_kinds::user::User;

use self::race::{OtherWrite, Race, both};
use super::*;
use crate::admit::Admitted;
use crate::controllers;
use crate::registry::quotas::key_limits;
use crate::storage_key;

/// The attempts at one commit.
const ATTEMPTS: usize = 8;

/// The answers of each case.
#[derive(Default)]
struct Answers(Vec<String>);

impl Answers {
    /// Adds the answers to a write and to the writes that another server makes before its attempts.
    async fn add(
        &mut self,
        case: &str,
        prepare: impl AsyncFn(&Race) -> (Admitted, Vec<OtherWrite>),
    ) {
        self.0.push(case.to_owned());
        for (when, is_before, dry_run) in
            [("at the commit", false, false), ("before", true, false), ("dry run", true, true)]
        {
            let race = Race::new().await;
            let (write, mut others) = prepare(&race).await;
            if is_before {
                for other in others.drain(..) {
                    other.await;
                }
            }
            let answer = race.commit(write, others, dry_run).await;
            self.0.push(format!("  {when}: {answer}"));
        }
    }
}

const ADA: At<'_> = at(&User, "ada");
const RED: At<'_> = at(&Team, "red");
const KEY: At<'_> = at(&OwnedAccessKey, "laptop");
const ONE: At<'_> = at(&Project, "one");
const SECRET: At<'_> = within("p-one", &ProjectSecret, "s");
const SPACE: At<'_> = within("p-one", &SpaceInstance, "x");

/// The value of an access key.
const VALUE: &str = "pk_0123456789abcdefghijklmnopqrstuvwxyz0123456789";

#[tokio::test]
async fn each_write_that_another_server_precedes_has_its_answer() {
    let mut answers = Answers::default();
    names(&mut answers).await;
    changes(&mut answers).await;
    changes_with_creates(&mut answers).await;
    removals(&mut answers).await;
    principals(&mut answers).await;
    namespaces(&mut answers).await;
    quotas(&mut answers).await;
    clusters(&mut answers).await;
    keys(&mut answers).await;
    tokens(&mut answers).await;
    sizes(&mut answers).await;
    let known: Vec<_> = include_str!("answers.txt").lines().collect();
    for (now, known) in answers.0.iter().zip(&known) {
        assert_eq!(now, known, "all answers:\n{}", answers.0.join("\n"));
    }
    assert_eq!(answers.0.len(), known.len());
}

/// Names and unique keys of new objects.
async fn names(all: &mut Answers) {
    let subject = || json!({ "spec": { "subject": "oidc|7" } });
    all.add("create: nothing happens", async |race| (race.admit_new(ADA, subject()).await, vec![]))
        .await;
    all.add("create: the name is taken", async |race| {
        (race.admit_new(ADA, json!({})).await, vec![race.make(ADA, json!({}))])
    })
    .await;
    all.add("create: the name is taken and given up", async |race| {
        let write = race.admit_new(ADA, json!({})).await;
        let (made, gone) = (race.make(ADA, json!({})), race.delete(ADA));
        (write, vec![both(made, gone)])
    })
    .await;
    all.add("create: an object of the name is deleted, and has a finalizer", async |race| {
        let write = race.admit_new(ADA, json!({})).await;
        let finalizer = json!({ "metadata": { "finalizers": ["example.com/x"] } });
        let (made, gone) = (race.make(ADA, finalizer), race.delete(ADA));
        (write, vec![both(made, gone)])
    })
    .await;
    all.add("create: the unique key is taken", async |race| {
        let write = race.admit_new(ADA, subject()).await;
        (write, vec![race.make(at(&User, "bob"), subject())])
    })
    .await;
    all.add("create: the name and the unique key are taken", async |race| {
        (race.admit_new(ADA, subject()).await, vec![race.make(ADA, subject())])
    })
    .await;
    all.add("two creates: the name of the second one is taken", async |race| {
        let second = race.admit_new(RED, json!({})).await;
        let write = race.admit_new(ADA, json!({})).await.with(second);
        (write, vec![race.make(RED, json!({}))])
    })
    .await;
    all.add("two creates: the unique key of the first one and the name of the second one", {
        async |race| {
            let second = race.admit_new(RED, json!({})).await;
            let write = race.admit_new(ADA, subject()).await.with(second);
            let (bob, red) = (race.make(at(&User, "bob"), subject()), race.make(RED, json!({})));
            (write, vec![both(bob, red)])
        }
    })
    .await;
}

/// Creates a user, and admits another email of the user.
async fn set_email(race: &Race) -> Admitted {
    race.make(ADA, json!({ "spec": { "subject": "oidc|1" } })).await;
    race.admit_set(ADA, "/spec/email", "ada@example.com".into()).await
}

/// Changes of existing objects.
async fn changes(all: &mut Answers) {
    all.add("change: the object has changed", async |race| {
        (set_email(race).await, vec![race.touch(ADA, 1)])
    })
    .await;
    all.add("change: the object is gone", async |race| {
        (set_email(race).await, vec![race.delete(ADA)])
    })
    .await;
    all.add("change: the unique key is taken", async |race| {
        set_email(race).await;
        let write = race.admit_set(ADA, "/spec/subject", "oidc|7".into()).await;
        let bob = json!({ "spec": { "subject": "oidc|7" } });
        (write, vec![race.make(at(&User, "bob"), bob)])
    })
    .await;
}

/// Changes with a create in the same transaction.
async fn changes_with_creates(all: &mut Answers) {
    all.add("change and create: the object has changed", async |race| {
        let new = race.admit_new(RED, json!({})).await;
        (set_email(race).await.with(new), vec![race.touch(ADA, 1)])
    })
    .await;
    all.add("change and create: the name is taken", async |race| {
        let new = race.admit_new(RED, json!({})).await;
        (set_email(race).await.with(new), vec![race.make(RED, json!({}))])
    })
    .await;
    all.add("change and create: the object has changed and the name is taken", async |race| {
        let new = race.admit_new(RED, json!({})).await;
        let write = set_email(race).await.with(new);
        let (ada, red) = (race.touch(ADA, 1), race.make(RED, json!({})));
        (write, vec![both(ada, red)])
    })
    .await;
    all.add("no change, and a create: the object has changed", async |race| {
        race.make(ADA, json!({})).await;
        let new = race.admit_new(RED, json!({})).await;
        let (uid, none) = ("/metadata/labels", json!({}));
        (race.admit_set(ADA, uid, none).await.with(new), vec![race.touch(ADA, 1)])
    })
    .await;
}

/// Writes without a new state.
async fn removals(all: &mut Answers) {
    all.add("no change", async |race| {
        race.make(ADA, json!({})).await;
        let write = race.admit_set(ADA, "/metadata/labels", json!({})).await;
        (write, vec![])
    })
    .await;
    all.add("removal: the object has changed", async |race| {
        race.make(ADA, json!({})).await;
        (race.admit_delete(ADA).await, vec![race.touch(ADA, 1)])
    })
    .await;
    all.add("removal: a side record is added", async |race| {
        race.make(KEY, json!({ "spec": { "user": "admin" } })).await;
        let write = race.admit_delete(KEY).await;
        let key = storage_key::activity(OwnedAccessKey.info(), "laptop");
        (write, vec![race.put(vec![key], "{}".to_owned())])
    })
    .await;
}

/// Owners of new objects, and new members of teams.
async fn principals(all: &mut Answers) {
    let of_ada = || json!({ "spec": { "user": "ada" } });
    let member = || json!({ "spec": { "users": ["ada"] } });
    let new_key = async |race: &Race| {
        race.make(ADA, json!({})).await;
        race.admit_new(KEY, of_ada()).await
    };
    all.add("create: the owner has changed", async |race| {
        (new_key(race).await, vec![race.touch(ADA, 1)])
    })
    .await;
    all.add("create: the owner is gone", async |race| {
        (new_key(race).await, vec![race.delete(ADA)])
    })
    .await;
    all.add("create: the owner is gone and the name is taken", async |race| {
        let write = new_key(race).await;
        let other = json!({ "spec": { "user": "admin" } });
        let (gone, made) = (race.delete(ADA), race.make(KEY, other));
        (write, vec![both(gone, made)])
    })
    .await;
    all.add("create: the owner changes in each attempt", async |race| {
        let write = new_key(race).await;
        (write, (0..ATTEMPTS).map(|number| race.touch(ADA, number)).collect())
    })
    .await;
    for (case, is_gone) in [("has changed", false), ("is gone", true)] {
        let other = |race: &Race| if is_gone { race.delete(ADA) } else { race.touch(ADA, 1) };
        all.add(&format!("create of a team: the member {case}"), async |race| {
            race.make(ADA, json!({})).await;
            (race.admit_new(RED, member()).await, vec![other(race)])
        })
        .await;
        all.add(&format!("change of a team: the new member {case}"), async |race| {
            race.make(ADA, json!({})).await;
            race.make(RED, json!({})).await;
            let write = race.admit_set(RED, "/spec/users", json!(["ada"])).await;
            (write, vec![other(race)])
        })
        .await;
    }
}

/// Namespaces of new objects.
async fn namespaces(all: &mut Answers) {
    let space = at(&Namespace, "space");
    let secret = within("space", &SharedSecret, "s");
    let new_secret = async |race: &Race| {
        race.make(space, json!({})).await;
        race.admit_new(secret, json!({})).await
    };
    all.add("create: the namespace has changed", async |race| {
        (new_secret(race).await, vec![race.touch(space, 1)])
    })
    .await;
    all.add("create: the namespace is terminating", async |race| {
        (new_secret(race).await, vec![race.delete(space)])
    })
    .await;
    all.add("create: the namespace changes in each attempt", async |race| {
        let write = new_secret(race).await;
        (write, (0..ATTEMPTS).map(|number| race.touch(space, number)).collect())
    })
    .await;
    all.add("create: the namespace changes in each attempt but one", async |race| {
        let write = new_secret(race).await;
        (write, (1..ATTEMPTS).map(|number| race.touch(space, number)).collect())
    })
    .await;
    all.add("create: the namespace does not exist", async |race| {
        (race.admit_new(within("none", &SharedSecret, "s"), json!({})).await, vec![])
    })
    .await;
    all.add("create of a project: its namespace exists", async |race| {
        let write = race.admit_new(ONE, json!({})).await;
        (write, vec![race.make(at(&Namespace, "p-one"), json!({}))])
    })
    .await;
    all.add("create of a project: nothing happens", async |race| {
        (race.admit_new(ONE, json!({})).await, vec![])
    })
    .await;
}

/// Quotas of projects.
async fn quotas(all: &mut Answers) {
    let quota = |count: &str| {
        let quotas =
            json!({ "project": { "projectsecrets": count }, "user": { "projectsecrets": "2" } });
        json!({ "spec": { "quotas": quotas } })
    };
    let of_admin = || json!({ "spec": { "owner": { "user": "admin" } } });
    let another = |name| within("p-one", &ProjectSecret, name);
    let new_secret = async |race: &Race, count: &str| {
        race.make(ONE, quota(count)).await;
        race.admit_new(SECRET, of_admin()).await
    };
    for (case, count) in [("exceeded", "1"), ("not exceeded", "2")] {
        all.add(&format!("create: another one is counted, the quota is {case}"), async |race| {
            let write = new_secret(race, count).await;
            (write, vec![race.make(another("a"), of_admin())])
        })
        .await;
    }
    all.add("create: two of the owner are counted", async |race| {
        let write = new_secret(race, "9").await;
        let made = ["a", "b"].map(|name| race.make(another(name), of_admin()));
        (write, made.into())
    })
    .await;
    all.add("create: another one is counted in each attempt", async |race| {
        let write = new_secret(race, "99").await;
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        (write, names.map(|name| race.make(another(name), json!({}))).into())
    })
    .await;
    all.add("create: the quota is lowered", async |race| {
        let write = new_secret(race, "9").await;
        let quotas = json!({ "project": { "projectsecrets": "0" } });
        (write, vec![race.set(ONE, "/spec/quotas", quotas)])
    })
    .await;
    all.add("create: the quota is exceeded and the name is taken", async |race| {
        let write = new_secret(race, "1").await;
        (write, vec![race.make(SECRET, of_admin())])
    })
    .await;
    all.add("removal of a namespace: another one is counted", async |race| {
        race.make(at(&Namespace, "p-one"), json!({})).await;
        let count = storage_key::count(ProjectSecret.info(), "p-one");
        race.put(vec![count.clone()], "1".to_owned()).await;
        race.delete(at(&Namespace, "p-one")).await;
        let write = race.admit_release(at(&Namespace, "p-one")).await;
        (write, vec![race.put(vec![count], "2".to_owned())])
    })
    .await;
}

/// Allowed clusters of projects, and the places of instances.
async fn clusters(all: &mut Answers) {
    let allowed = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        json!(names)
    };
    let place = |name: &str| json!({ "cluster": "c", "namespace": name });
    let spec = |place: serde_json::Value| json!({ "spec": { "clusterRef": place } });
    let project = async |race: &Race| {
        for name in ["c", "d"] {
            race.make(at(&Cluster, name), json!({})).await;
        }
        let quotas = json!({ "project": { "spaceinstances": "0" } });
        let spec = json!({ "allowedClusters": allowed(&["c", "d"]), "quotas": quotas });
        race.make(ONE, json!({ "spec": spec })).await;
    };
    let without_quota = async |race: &Race| {
        project(race).await;
        race.set(ONE, "/spec/quotas", json!({})).await;
    };
    all.add("create: the cluster is no longer allowed", async |race| {
        without_quota(race).await;
        let write = race.admit_new(SPACE, spec(place("n"))).await;
        (write, vec![race.set(ONE, "/spec/allowedClusters", allowed(&["d"]))])
    })
    .await;
    all.add("create: the cluster is not allowed and the quota is exceeded", async |race| {
        project(race).await;
        let write = race.admit_new(SPACE, spec(place("n"))).await;
        (write, vec![race.set(ONE, "/spec/allowedClusters", allowed(&["d"]))])
    })
    .await;
    all.add("create: the place is taken", async |race| {
        without_quota(race).await;
        let write = race.admit_new(SPACE, spec(place("n"))).await;
        (write, vec![race.make(within("p-one", &SpaceInstance, "y"), spec(place("n")))])
    })
    .await;
    all.add("change: the project of the new cluster has changed", async |race| {
        without_quota(race).await;
        race.make(SPACE, spec(place("n"))).await;
        let to = json!({ "cluster": "d", "namespace": "n" });
        let write = race.admit_set(SPACE, "/spec/clusterRef", to).await;
        (write, vec![race.touch(ONE, 1)])
    })
    .await;
    all.add("change: the place is taken and the object has changed", async |race| {
        without_quota(race).await;
        race.make(SPACE, spec(place("n"))).await;
        let write = race.admit_set(SPACE, "/spec/clusterRef", place("m")).await;
        let other = race.make(within("p-one", &SpaceInstance, "y"), spec(place("m")));
        let touched = race.touch(SPACE, 1);
        (write, vec![both(other, touched)])
    })
    .await;
}

/// Values and limits of access keys.
async fn keys(all: &mut Answers) {
    let of_ada = || json!({ "spec": { "user": "ada" } });
    let with_value = || json!({ "spec": { "user": "ada", "key": VALUE } });
    let other = at(&OwnedAccessKey, "other");
    all.add("create of a key: the value is taken", async |race| {
        race.make(ADA, json!({})).await;
        let write = race.admit_new(KEY, with_value()).await;
        (write, vec![race.make(other, with_value())])
    })
    .await;
    all.add("create of a key: the name and the value are taken", async |race| {
        race.make(ADA, json!({})).await;
        let write = race.admit_new(KEY, with_value()).await;
        (write, vec![race.make(KEY, with_value())])
    })
    .await;
    all.add("change of a key: the value is taken", async |race| {
        race.make(ADA, json!({})).await;
        race.make(KEY, of_ada()).await;
        let write = race.admit_set(KEY, "/spec/key", VALUE.into()).await;
        (write, vec![race.make(other, with_value())])
    })
    .await;
    // The administrator of the machine has no limit, so the owner creates the key.
    let limited = async |race: &Race, left: usize| {
        race.make(ADA, json!({})).await;
        let digest = race.one.key_of("first", "ada", json!({})).await;
        for number in 1..MAX_KEYS_PER_OWNER - left {
            race.make(at(&OwnedAccessKey, format!("k{number}").leak()), of_ada()).await;
        }
        race.admit_new_by(digest, KEY, of_ada()).await
    };
    let count = |number: u32| storage_key::count(OwnedAccessKey.info(), &number.to_string());
    let counts = || (0..key_limits::RECORDS).map(count).collect();
    for (case, left) in [("exceeded", 1), ("not exceeded", 2)] {
        all.add(&format!("create of a key: the limit is {case}"), async |race| {
            let write = limited(race, left).await;
            let made = race.make(other, of_ada());
            let counted = race.put(counts(), "7".to_owned());
            (write, vec![both(made, counted)])
        })
        .await;
    }
    all.add("create of a key: the count changes in each attempt", async |race| {
        let write = limited(race, 1).await;
        let puts = (0..ATTEMPTS).map(|number| race.put(counts(), number.to_string()));
        (write, puts.collect())
    })
    .await;
}

/// Endpoint tokens that are issued while a key changes.
async fn tokens(all: &mut Answers) {
    let disable = async |race: &Race| {
        race.make(KEY, json!({ "spec": { "user": "admin" } })).await;
        let write = race.admit_set(KEY, "/spec/disabled", true.into()).await;
        let key = race.one.registry.cache().of(OwnedAccessKey.info()).get(&KEY.key());
        let uid = key.unwrap().unwrap().decode().unwrap().metadata.uid;
        (write, storage_key::issued_tokens(&uid))
    };
    let until = |number: usize| format!("{{\"until\":\"2030-01-01T00:00:0{number}Z\"}}");
    for (case, count) in [("once", 1), ("in each attempt", ATTEMPTS)] {
        all.add(&format!("change of a key: a token is issued {case}"), async |race| {
            let (write, note) = disable(race).await;
            let puts = (0..count).map(|number| race.put(vec![note.clone()], until(number)));
            (write, puts.collect())
        })
        .await;
    }
    all.add("change of a key: a token is issued and the key has changed", async |race| {
        let (write, note) = disable(race).await;
        let (issued, touched) = (race.put(vec![note], until(0)), race.touch(KEY, 1));
        (write, vec![both(issued, touched)])
    })
    .await;
}

/// Writes that are too large for one transaction.
async fn sizes(all: &mut Answers) {
    all.add("create of a team: too many conditions", async |race| {
        let names: Vec<String> = (0..130).map(|number| format!("u{number}")).collect();
        for name in &names {
            race.make(at(&User, name.clone().leak()), json!({})).await;
        }
        (race.admit_new(RED, json!({ "spec": { "users": names } })).await, vec![])
    })
    .await;
}

#[tokio::test]
async fn a_copy_is_noted_for_the_source_that_it_is_from() {
    let race = Race::new().await;
    let one = &race.one;
    let labels = json!({ "metadata": { "labels": { PROJECT_LABEL: "shop" } } });
    one.make(at(&Namespace, "shop"), labels).await;
    let ada = one.make(at(&User, "ada"), json!({ "spec": {} })).await;
    let key = one.make(at(&OwnedAccessKey, "laptop"), json!({ "spec": { "user": "ada" } })).await;
    for (name, value) in [("old", "b2xk"), ("new", "bmV3")] {
        let spec = json!({ "owner": { "user": "ada" }, "data": { "k": value } });
        one.make(secret(name), json!({ "spec": spec })).await;
    }
    let writer = Writer {
        user: "ada".to_owned(),
        uid: ada.metadata.uid,
        key: "laptop".to_owned(),
        key_uid: key.metadata.uid,
        ..Writer::default()
    };
    let copy = within("shop", &ProjectSecret, "copy");
    let metadata = json!({
        "labels": { SHARED_SECRET_NAME: "old" },
        "annotations": { SYNCED_FOR: serde_json::to_string(&writer).unwrap() },
    });
    one.make(copy, json!({ "metadata": metadata })).await;
    one.current().await;
    let change = race.set(copy, "/metadata/labels", json!({ SHARED_SECRET_NAME: "new" }));
    race.before_next_commit(change).await;
    let flow = Arc::new(Flow::new(Limits::default()));
    let mut running = tokio::task::JoinSet::new();
    running.spawn(controllers::project_secrets::run(one.registry.clone(), flow));
    let copied = async {
        let mut progress = one.registry.cache().subscribe();
        while one.read(copy).await.unwrap().fields["spec"]["data"]["k"] != "bmV3" {
            progress.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_mins(1), copied).await.unwrap();
    let source = one.read(secret("new")).await.unwrap();
    let found = one.registry.readers_of(&SharedSecret, &source).await.unwrap();
    let noted: Vec<_> = found.readers.iter().map(|one| &*one.reader.object).collect();
    assert_eq!(noted, ["shop/copy"]);
}
