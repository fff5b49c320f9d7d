//! The tables of all kinds, and that no operation is without a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::based;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::matrix::answer::{Answer, Ask};
use crate::matrix::fixture::{Fixture, Target};
use crate::matrix::routes::{Effect, NEW, Operation, Row, operations, rows};
use crate::matrix::world::{World, make_target};
use crate::matrix::{canaries, golden, hidden};

/// A row with its answers, one for each identity.
pub(crate) struct Answered {
    pub(crate) row: Row,
    pub(crate) answers: Vec<Answer>,
}

/// The targets as they are now, if a row of the operation needs them.
async fn current(world: &World, operation: &Operation) -> BTreeMap<Target, Value> {
    let mut objects = BTreeMap::new();
    if !matches!(operation.method.as_str(), "PUT" | "PATCH") {
        return objects;
    }
    for target in world.fixture.targets() {
        let asking = Ask::new("GET", &based(&world.fixture.path(target)));
        let answer = world.administrator().ask(&asking).await;
        if answer.status == 200 {
            objects.insert(target, serde_json::from_str(&answer.body).unwrap());
        }
    }
    objects
}

/// Sends the request as all identities at the same time, because it changes nothing.
pub(crate) async fn ask_together(world: &World, row: &Row) -> Vec<Answer> {
    let mut asking = JoinSet::new();
    for (at, identity) in world.identities.iter().enumerate() {
        let (identity, ask) = (Arc::clone(identity), row.ask.clone());
        asking.spawn(async move { (at, identity.ask(&ask).await) });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Sends the request as one identity after the other, and undoes each change.
async fn ask_in_turn(world: &World, operation: &Operation, at: usize) -> Vec<Answer> {
    let admin = world.admin();
    let mut answers = Vec::new();
    let mut row = one_row(world, operation, at).await;
    for identity in &world.identities {
        let answer = identity.ask(&row.ask).await;
        if answer.status < 300 {
            undo(&admin, &world.fixture, &row).await;
            row = one_row(world, operation, at).await;
        }
        answers.push(answer);
    }
    answers
}

async fn one_row(world: &World, operation: &Operation, at: usize) -> Row {
    let current = current(world, operation).await;
    rows(operation, &world.fixture, &current).swap_remove(at)
}

async fn undo(admin: &Client, fixture: &Fixture, row: &Row) {
    let target = row.target.unwrap_or(Target::Theirs);
    match row.effect {
        Effect::Creates => {
            let path = format!("{}/{NEW}", fixture.collection(fixture.namespace(target)));
            delete(admin, &based(&path)).await;
        }
        Effect::Deletes => make_target(admin, fixture, target).await,
        Effect::Changes | Effect::Nothing => {}
    }
}

/// Deletes, and waits until it is gone.
async fn delete(admin: &Client, path: &str) {
    admin.delete(path).send().await;
    postern_tests::wait::until("the object to be gone", async || {
        (admin.get(path).send().await.status == 404).then_some(())
    })
    .await;
}

/// Makes the table of a kind, checks it, and compares it with the golden one.
async fn check(plural: &str) {
    check_fixture(Fixture::of(plural)).await;
}

async fn check_fixture(fixture: Fixture) {
    let file = fixture.file();
    let world = World::of(fixture).await;
    let mut table = Vec::new();
    for operation in operations(&world.admin()).await {
        if !operation.is_about(&world.fixture) {
            continue;
        }
        for at in 0..rows(&operation, &world.fixture, &BTreeMap::new()).len() {
            let row = one_row(&world, &operation, at).await;
            let answers = match row.effect {
                Effect::Nothing => ask_together(&world, &row).await,
                _ => ask_in_turn(&world, &operation, at).await,
            };
            table.push(Answered { row, answers });
        }
    }
    assert!(!table.is_empty(), "{file} is not served");
    golden::check(&file, &golden::render(&world, &table));
    let leaking = canaries::leaking(&world, &table);
    assert!(leaking.is_empty(), "secret values are in answers to others:\n{}", leaking.join("\n"));
    let telling = hidden::telling(&world, &table);
    assert!(telling.is_empty(), "existing names can be told from others:\n{}", telling.join("\n"));
}

#[tokio::test]
async fn every_operation_has_a_row() {
    let server = Server::start().await;
    let fixtures = Fixture::all();
    let mut described = Vec::new();
    for operation in operations(&server.client()).await {
        let about = fixtures.iter().find(|fixture| operation.is_about(fixture));
        let fixture = about.unwrap_or_else(|| panic!("no table is about {}", operation.path));
        let row = (operation.path.clone(), operation.method.clone());
        let rows = golden::operations(&fixture.file());
        assert!(rows.contains(&row), "golden/{}.md has no row for {row:?}", fixture.file());
        described.push(row);
    }
    for fixture in fixtures {
        for row in golden::operations(&fixture.file()) {
            assert!(
                described.contains(&row),
                "golden/{}.md: {row:?} is not served",
                fixture.file()
            );
        }
    }
}

#[tokio::test]
async fn every_verb_of_discovery_is_an_operation() {
    let server = Server::start().await;
    let client = server.client();
    let all = operations(&client).await;
    let mut roots = vec!["/api/v1".to_owned()];
    let groups = client.get(&based("/apis")).send().await.expect(200);
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            roots.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    for root in roots {
        let list = client.get(&based(&root)).send().await.expect(200);
        for resource in list["resources"].as_array().unwrap() {
            for verb in resource["verbs"].as_array().unwrap() {
                let found = all.iter().any(|operation| serves(operation, &root, resource, verb));
                assert!(found, "{root} {} {verb}", resource["name"]);
            }
        }
    }
}

/// Whether an operation is the one for a verb of a resource.
fn serves(operation: &Operation, root: &str, resource: &Value, verb: &Value) -> bool {
    let (plural, sub) = {
        let name = resource["name"].as_str().unwrap();
        name.split_once('/').map_or((name, None), |(plural, sub)| (plural, Some(sub)))
    };
    let (method, of_object) = match verb.as_str().unwrap() {
        "get" => ("GET", true),
        "list" => ("GET", false),
        // A subresource is watched at its object.
        "watch" => ("GET", sub.is_some()),
        "create" => ("POST", sub.is_some()),
        "update" => ("PUT", true),
        "patch" => ("PATCH", true),
        "delete" => ("DELETE", true),
        "deletecollection" => ("DELETE", false),
        other => panic!("discovery has the verb {other}"),
    };
    let namespace = if resource["namespaced"] == true { "/namespaces/{namespace}" } else { "" };
    let name = if of_object { "/{name}" } else { "" };
    let sub = sub.map(|sub| format!("/{sub}")).unwrap_or_default();
    operation.method == method && operation.path == format!("{root}{namespace}/{plural}{name}{sub}")
}

#[tokio::test]
async fn sharedsecrets() {
    check("sharedsecrets").await;
}

#[tokio::test]
async fn projectsecrets() {
    check("projectsecrets").await;
}

#[tokio::test]
async fn virtualclusterinstances() {
    check("virtualclusterinstances").await;
}

#[tokio::test]
async fn spaceinstances() {
    check("spaceinstances").await;
}

#[tokio::test]
async fn projects() {
    check("projects").await;
}

#[tokio::test]
async fn clusters() {
    check("clusters").await;
}

#[tokio::test]
async fn connectors() {
    check("connectors").await;
}

#[tokio::test]
async fn trustedissuers() {
    check("trustedissuers").await;
}

#[tokio::test]
async fn workloadidentities() {
    check("workloadidentities").await;
}

#[tokio::test]
async fn users() {
    check("users").await;
}

#[tokio::test]
async fn teams() {
    check("teams").await;
}

#[tokio::test]
async fn ownedaccesskeys() {
    check("ownedaccesskeys").await;
}

#[tokio::test]
async fn directclusterendpointtokens() {
    check("directclusterendpointtokens").await;
}

#[tokio::test]
async fn selves() {
    check("selves").await;
}

#[tokio::test]
async fn namespaces() {
    check("namespaces").await;
}

#[tokio::test]
async fn secrets() {
    check("secrets").await;
}

#[tokio::test]
async fn configmaps() {
    check("configmaps").await;
}

#[tokio::test]
async fn events() {
    check("events").await;
}

#[tokio::test]
async fn events_of_the_other_group() {
    check_fixture(Fixture::of_events_v1()).await;
}

#[tokio::test]
async fn leases() {
    check("leases").await;
}

#[tokio::test]
async fn customresourcedefinitions() {
    check("customresourcedefinitions").await;
}

#[tokio::test]
async fn roles() {
    check("roles").await;
}

#[tokio::test]
async fn rolebindings() {
    check("rolebindings").await;
}

#[tokio::test]
async fn clusterroles() {
    check("clusterroles").await;
}

#[tokio::test]
async fn clusterrolebindings() {
    check("clusterrolebindings").await;
}

#[tokio::test]
async fn selfsubjectaccessreviews() {
    check("selfsubjectaccessreviews").await;
}

#[tokio::test]
async fn subjectaccessreviews() {
    check("subjectaccessreviews").await;
}

#[tokio::test]
async fn localsubjectaccessreviews() {
    check("localsubjectaccessreviews").await;
}

#[tokio::test]
async fn selfsubjectrulesreviews() {
    check("selfsubjectrulesreviews").await;
}

#[tokio::test]
async fn selfsubjectreviews() {
    check("selfsubjectreviews").await;
}

#[tokio::test]
async fn tokenreviews() {
    check("tokenreviews").await;
}

#[tokio::test]
async fn platform_selfsubjectaccessreviews() {
    check_fixture(Fixture::of_platform("selfsubjectaccessreviews")).await;
}

#[tokio::test]
async fn platform_subjectaccessreviews() {
    check_fixture(Fixture::of_platform("subjectaccessreviews")).await;
}

#[tokio::test]
async fn resourceaccessreviews() {
    check("resourceaccessreviews").await;
}

#[tokio::test]
async fn accesspreviews() {
    check("accesspreviews").await;
}
