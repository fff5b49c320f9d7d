//! The paths that are no resources: documents, health, metrics, and paths at which nothing is.

use postern_tests::objects::based;

use crate::matrix::answer::Ask;
use crate::matrix::fixture::Fixture;
use crate::matrix::golden;
use crate::matrix::routes::{Effect, Operation, Row};
use crate::matrix::tables::{Answered, ask_together};
use crate::matrix::world::World;

const PATHS: [&str; 25] = [
    "/livez",
    "/readyz",
    "/healthz",
    "/version",
    "/metrics",
    "/metrics/owners",
    "/api",
    "/apis",
    "/api/v1",
    "/apis/management.platform.sh",
    "/apis/management.platform.sh/v1",
    "/apis/rbac.authorization.k8s.io/v1",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/api/v1",
    "/openapi/v3/apis/management.platform.sh/v1",
    "/",
    "/nothing",
    "/debug/pprof",
    "/logs",
    "/apis/nothing.example/v1",
    "/apis/nothing.example/v1/things",
    "/api/v1/watch/namespaces",
    "/apis/management.platform.sh/v1/nothing",
    "/apis/management.platform.sh/v1/users/host/nothing",
];

/// A path with two letters transposed, which is not served.
const MISPRINTED: &str =
    "/kubernetse/management/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets";

fn row(method: &str, path: &str) -> Row {
    let how = if method == "HEAD" { "HEAD" } else { "" };
    let listed = if method == "HEAD" { "GET" } else { method };
    Row {
        operation: Operation::undescribed(listed, path),
        how: how.to_owned(),
        target: None,
        ask: Ask::new(method, path),
        effect: Effect::Nothing,
    }
}

#[tokio::test]
async fn paths() {
    let world = World::of(Fixture::of("sharedsecrets")).await;
    let mut paths: Vec<String> =
        PATHS.iter().flat_map(|path| [based(path), (*path).to_owned()]).collect();
    paths.push(MISPRINTED.to_owned());
    let mut table = Vec::new();
    for path in paths {
        for method in ["GET", "HEAD", "POST"] {
            let row = row(method, &path);
            let answers = ask_together(&world, &row).await;
            table.push(Answered { row, answers });
        }
    }
    golden::check("paths", &golden::render_as("paths that are no resources", &world, &table));
}
