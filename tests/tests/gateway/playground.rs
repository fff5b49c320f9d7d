//! The playground, as `cargo xtask playground --check` runs it: each way in, with kubectl.

use postern_tests::Home;
use postern_tests::playground::Playground;

#[tokio::test]
async fn the_playground_has_a_kubeconfig_for_each_way_in() {
    let playground = Playground::start(Home::new(), false).await;
    let described = playground.describe();
    for way in playground.ways() {
        assert!(described.contains(way), "{way}: {described}");
    }
    for way in ["ci-direct", "ci-gateway"] {
        assert!(playground.ways().any(|name| name == way), "{way}, through an agent: {described}");
    }
    Box::pin(playground.check()).await;
    playground.stop().await;
}
