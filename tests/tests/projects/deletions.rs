//! The deletion of a project, and its warnings about the instances in the project.

use postern_tests::Server;
use postern_tests::objects::CORE;
use postern_tests::rights::{allow, path, rule, user};
use serde_json::json;

use super::scene::two_projects;

const OF_VIRTUAL_CLUSTERS: &str = "299 - \"virtualclusterinstances in it: this deletes only the record on this server: \
                                   the virtual cluster itself stays in its cluster\"";

#[tokio::test]
async fn the_deletion_of_a_project_warns_about_the_virtual_clusters_in_it() {
    let server = Server::start().await;
    let admin = server.client();
    two_projects(&admin).await;
    // A caller without the right to see the instances learns nothing of them.
    let ada = user(&admin, "ada").await;
    let rules = json!([rule(&["projects"], &["get", "delete"])]);
    allow(&admin, "deletes", None, rules, "platform:user:ada").await;
    let project = path("projects", "a");
    let dry = ada.delete(&format!("{project}?dryRun=All")).send().await;
    assert_eq!((dry.status, dry.warnings()), (200, Vec::new()));

    for (at, is_warned) in [(project.clone(), true), (path("projects", "b"), false)] {
        let reply = admin.delete(&format!("{at}?dryRun=All")).send().await;
        assert_eq!(reply.status, 200, "{at}");
        let warnings = reply.warnings();
        assert_eq!(
            warnings.contains(&OF_VIRTUAL_CLUSTERS.to_owned()),
            is_warned,
            "{at}: {warnings:?}"
        );
    }
    // The namespace goes with its project alone, and no other namespace has instances.
    admin.delete(&format!("{CORE}/namespaces/p-a")).send().await.expect(403);
    let reply = admin.delete(&project).send().await;
    assert!(reply.warnings().contains(&OF_VIRTUAL_CLUSTERS.to_owned()), "{:?}", reply.warnings());
}
