//! The playground, as `cargo xtask playground --with-kubernetes --check` runs it.

use postern_tests::Home;
use postern_tests::playground::Playground;

#[tokio::test]
async fn the_playground_works_with_a_real_cluster() {
    let playground = Playground::start(Home::new(), true).await;
    assert!(playground.describe().contains("a real kube-apiserver"));
    Box::pin(playground.check()).await;
    playground.stop().await;
}
