//! `postern connect`: contexts for kubectl that lead to a cluster, its virtual clusters and its
//! spaces.

use std::path::Path;

use postern_tests::cli::CliUser;
use postern_tests::kubectl::{CommandOutput, Kubectl};
use postern_tests::objects::{GROUP, collection};
use postern_tests::rights::{allow, merge};
use postern_tests::{Agent, AgentSetup, Home, Server, Setup, wait};
use serde_json::{Value, json};

use super::{admin, authority, url};

/// A manifest in the repository.
const MANIFEST: &str = "examples/sharedsecret.yaml";

/// A central server, a cluster behind it, and the user ada with a login.
struct Scene {
    central: Server,
    member: Server,
    admin: CliUser,
    ada: CliUser,
    /// The access key of the cluster's agent.
    agent_key: String,
}

impl Scene {
    /// Makes the cluster `member`, which is reached by a kubeconfig if that is wanted.
    async fn new(with_kubeconfig: bool) -> Self {
        let setup = Setup::on(&Home::new()).argument("--allow-local-upstreams");
        let setup = setup.argument("--external-url=https://postern.test");
        let (central, member) = tokio::join!(
            Box::pin(setup.argument("--drain-timeout=1s").start()),
            Box::pin(Server::start())
        );
        let admin = admin(&central);
        for name in ["ada", "eve"] {
            admin.ok(&["create", "user", name]).await;
        }
        let mut create = vec!["create", "cluster", "member"];
        if with_kubeconfig {
            let from = format!("--from-file=config={}", member.home().kubeconfig().display());
            let kubectl = central.kubectl();
            kubectl.ok(&["create", "secret", "generic", "kc", "-n", "platform", &from]).await;
            create.extend(["--kubeconfig-secret", "platform/kc"]);
        }
        let agent_key = admin.ok(&create).await.trim().to_owned();
        let rules = json!([
            { "apiGroups": ["management.platform.sh"], "resources": ["sharedsecrets"], "verbs": ["*"] },
        ]);
        allow(&member.client(), "ada", None, rules, "platform:user:ada").await;
        let ada = logged_in(&admin, &central, "ada").await;
        Self { central, member, admin, ada, agent_key }
    }

    /// Starts the agent, and waits until the Cluster has its endpoint.
    async fn agent(&self, home: &Home) -> Agent {
        let (central, upstream) = (self.central.kubeconfig(), self.member.home().kubeconfig());
        let setup = AgentSetup::new(home, central, "member", &self.agent_key, &upstream);
        // Requests that are let through are in its log only so.
        let setup =
            setup.argument("--advertise=127.0.0.1").argument("--log=info,postern_agent=debug");
        let agent = setup.start().await;
        let path = collection("clusters/member");
        wait::until("the endpoint in the Cluster", async || {
            let cluster = self.central.client().get(&path).send().await.expect(200);
            let annotations = &cluster["metadata"]["annotations"];
            annotations["platform.sh/direct-cluster-endpoint"].as_str().map(drop)
        })
        .await;
        agent
    }

    /// Runs kubectl as ada, with this kubeconfig.
    async fn kubectl(&self, kubeconfig: &Path, arguments: &[&str]) -> CommandOutput {
        let kubectl = self.central.kubectl();
        let mut command = kubectl.command(arguments);
        command.env("KUBECONFIG", kubeconfig).env("HOME", self.ada.path());
        kubectl.run_command(command).await
    }
}

async fn logged_in(admin: &CliUser, central: &Server, name: &str) -> CliUser {
    let user = CliUser::new();
    let key = admin.ok(&["create", "accesskey", "--user", name]).await;
    let ca = authority(&user, central);
    let login = ["login", &url(central), "--access-key", "-", "--ca-file", &ca];
    assert_eq!(user.run_with(&login, key.as_bytes()).await.code, 0);
    user
}

fn read(path: &Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn without_a_direct_endpoint_a_context_leads_through_the_gateway() {
    let scene = Scene::new(true).await;
    let (ada, kubeconfig) = (&scene.ada, scene.ada.kubeconfig());
    let before = std::fs::read_to_string(&kubeconfig).unwrap();
    let connect = ["connect", "cluster", "member"];
    let refused = ada.fails(1, &connect).await;
    assert!(
        refused.contains("use") && refused.contains("postern share cluster member"),
        "{refused}"
    );
    assert_eq!(std::fs::read_to_string(&kubeconfig).unwrap(), before, "nothing was written");

    // A share of a cluster without a verb allows its user to see and use the cluster.
    scene.admin.ok(&["share", "cluster", "member", "--user", "ada"]).await;
    let typo = ada.fails(1, &["connect", "cluster", "membre"]).await;
    assert!(typo.contains("did you mean member"), "{typo}");
    let kept = ["--set-current=false", "-o", "name"];
    let output = ada.run(&[&connect[..], &kept].concat()).await;
    let name = output.text().trim().to_owned();
    assert!(name.ends_with("_cluster_member") && output.code == 0, "{}", output.all_output());
    assert!(output.err.contains("--context") && output.err.contains("gateway"), "{}", output.err);
    let config = read(&kubeconfig);
    assert_eq!(config["current-context"], read_text(&before)["current-context"]);
    let got = ["--context", &name, "get", "sharedsecrets", "-n", "platform"];
    let got = scene.kubectl(&kubeconfig, &got).await;
    assert!(got.ok && got.err.contains("No resources found"), "{got:?}");
    // The access key is there once, in the entry of the login.
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    assert_eq!(text.matches("pst_").count(), 1, "{text}");

    // The current context leads to the cluster then, and `postern` still knows the login.
    let output = ada.run(&connect).await;
    assert!(output.err.contains("kubectl auth can-i --list"), "{}", output.err);
    let may = scene.kubectl(&kubeconfig, &["auth", "can-i", "--list", "-n", "platform"]).await;
    assert!(may.ok && may.out.contains("sharedsecrets"), "{may:?}");
    assert_eq!(read(&kubeconfig)["current-context"], name.as_str());
    assert!(ada.ok(&["whoami"]).await.contains("ada"));
    let said = ada.fails(1, &[&connect[..], &["--name", &name[..name.len() - 15]]].concat()).await;
    assert!(said.contains("did not write") && said.contains("--name"), "{said}");

    // Printed, it stands alone.
    let before = std::fs::read_to_string(&kubeconfig).unwrap();
    let printed = ada.ok(&[&connect[..], &["--print"]].concat()).await;
    assert_eq!(std::fs::read_to_string(&kubeconfig).unwrap(), before);
    let alone = ada.file("alone.yaml", &printed);
    let got = scene.kubectl(Path::new(&alone), &["get", "sharedsecrets", "-n", "platform"]).await;
    assert!(got.ok, "{got:?}");
    let json = ada.ok(&[&connect[..], &["-o", "json"]].concat()).await;
    assert!(!json.contains("pst_") && serde_json::from_str::<Value>(&json).is_ok(), "{json}");

    // Without a way, nothing is written either.
    let changes = json!({ "spec": { "config": null } });
    let path = collection("clusters/member");
    merge(&scene.central.client(), &path, changes).await.expect(200);
    let said = ada.fails(1, &connect).await;
    assert!(said.contains("no kubeconfig") && said.contains("nothing was written"), "{said}");
    ada.ok(&["logout"]).await;
    assert!(!std::fs::read_to_string(&kubeconfig).unwrap().contains("member"));
}

#[tokio::test]
async fn a_second_login_keeps_the_contexts_of_the_first_and_names_them() {
    let scene = Scene::new(true).await;
    let (ada, kubeconfig) = (&scene.ada, scene.ada.kubeconfig());
    scene.admin.ok(&["share", "cluster", "member", "--user", "ada"]).await;
    ada.ok(&["connect", "cluster", "member", "--name", "east"]).await;
    let eve_key = scene.admin.ok(&["create", "accesskey", "--user", "eve"]).await;
    let (url, ca) = (url(&scene.central), authority(ada, &scene.central));
    let login = ["login", &url, "--access-key", "-", "--ca-file", &ca];
    let second = ada.run_with(&login, eve_key.as_bytes()).await;
    assert!(second.code == 0 && second.err.contains("keep the key"), "{}", second.err);
    assert!(second.err.contains("east") && second.err.contains("_ada"), "{}", second.err);
    assert!(ada.ok(&["whoami"]).await.contains("eve"));
    assert!(ada.ok(&["whoami", "--context", "east"]).await.contains("ada"));
    let got = ["--context", "east", "get", "sharedsecrets", "-n", "platform"];
    let got = scene.kubectl(&kubeconfig, &got).await;
    assert!(got.ok && got.err.contains("No resources found"), "{got:?}");

    // A name that belongs to the other login is refused, and replaced on request.
    let config = read(&kubeconfig);
    let of_ada = config["contexts"][0]["name"].as_str().unwrap();
    let taken = [&login[..], &["--context", of_ada]].concat();
    let refused = ada.run_with(&taken, eve_key.as_bytes()).await;
    assert!(refused.code == 1 && refused.err.contains("--replace"), "{}", refused.err);
    assert_eq!(read(&kubeconfig), config);
    let replaced = [&taken[..], &["--replace"]].concat();
    let output = ada.run_with(&replaced, eve_key.as_bytes()).await;
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(ada.ok(&["whoami", "--context", of_ada]).await.contains("eve"));
    assert!(ada.ok(&["whoami", "--context", "east"]).await.contains("ada"), "it is kept");
}

fn read_text(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[tokio::test]
async fn a_direct_endpoint_is_reached_by_tokens_that_kubectl_has_made() {
    let mut scene = Scene::new(false).await;
    let home = Home::new();
    let agent = scene.agent(&home).await;
    scene.admin.ok(&["share", "cluster", "member", "--user", "ada"]).await;
    make_space(&scene).await;
    let kubeconfig = scene.ada.kubeconfig();
    let output = scene.ada.run(&["connect", "cluster", "member"]).await;
    assert!(output.code == 0 && output.err.contains(agent.address()), "{}", output.all_output());
    let secrets = ["get", "sharedsecrets", "-n", "platform"];
    let got = scene.kubectl(&kubeconfig, &secrets).await;
    assert!(got.ok && got.err.contains("No resources found"), "{got:?}");
    assert!(agent.logged().contains("let through"), "it went by the agent");
    // The oldest kubectl, and a kubectl with `v1` in its kubeconfig.
    let old = scene.central.kubectl().command_of(&Kubectl::oldest_program(), &secrets);
    let v1 = std::fs::read_to_string(&kubeconfig).unwrap().replace("k8s.io/v1beta1", "k8s.io/v1");
    let v1 = scene.ada.file("v1.yaml", v1);
    let new = scene.central.kubectl().command(&secrets);
    for (mut command, kubeconfig) in [(old, kubeconfig.as_path()), (new, Path::new(&v1))] {
        command.env("KUBECONFIG", kubeconfig).env("HOME", scene.ada.path());
        let got = scene.central.kubectl().run_command(command).await;
        assert!(got.ok && got.err.contains("No resources found"), "{got:?}");
    }
    let config = read(&kubeconfig);
    let users = config["users"].as_array().unwrap();
    let exec = users.iter().find_map(|user| user["user"].get("exec")).expect("a plugin");
    assert_eq!(exec["apiVersion"], "client.authentication.k8s.io/v1beta1");
    assert_eq!(exec["interactiveMode"], "Never");

    // A space has its namespace, and no other.
    let space = ["connect", "space", "s", "--project", "p", "--set-current=false", "-o", "name"];
    let name = scene.ada.ok(&space).await;
    let here = ["--context", name.trim(), "get", "sharedsecrets"];
    let got = scene.kubectl(&kubeconfig, &here).await;
    assert!(got.ok && got.err.contains("in platform namespace"), "{got:?}");
    let elsewhere = [&here[..], &["-n", "default"]].concat();
    assert!(!scene.kubectl(&kubeconfig, &elsewhere).await.ok);

    // A key with a scope gets tokens with that scope: it may not make one with another.
    let scope = ["create", "accesskey", "--user", "ada", "--cluster", "member", "--allow-cli"];
    let key = scene.admin.ok(&scope).await;
    let narrow = CliUser::new();
    let ca = authority(&narrow, &scene.central);
    let login = ["login", &url(&scene.central), "--access-key", "-", "--ca-file", &ca];
    assert_eq!(narrow.run_with(&login, key.as_bytes()).await.code, 0);
    narrow.ok(&["connect", "cluster", "member"]).await;
    let got = scene.kubectl(&narrow.kubeconfig(), &secrets).await;
    assert!(got.ok, "{got:?}");

    // Printed elsewhere, the plugin still finds the login; and the gateway can be chosen.
    let printed = scene.ada.ok(&["connect", "cluster", "member", "--print"]).await;
    assert!(!printed.contains("pst_"), "{printed}");
    let alone = scene.ada.file("elsewhere/alone.yaml", &printed);
    let got = scene.kubectl(Path::new(&alone), &secrets).await;
    assert!(got.ok, "{got:?}");
    let by_gateway = ["connect", "cluster", "member", "--gateway", "--print"];
    let by_gateway = scene.ada.ok(&by_gateway).await;
    assert!(by_gateway.contains("/kubernetes/cluster/member"), "{by_gateway}");

    // While the server is away, the token that is kept goes on.
    let directory = scene.central.home().clone();
    let central = std::mem::replace(&mut scene.central, Server::start().await);
    central.stop().await;
    let got = scene.kubectl(&kubeconfig, &secrets).await;
    assert!(got.ok, "{got:?}");
    drop(directory);
    agent.stop().await;
}

/// A user that may use a cluster, and not read it, learns its endpoint from a project that lists
/// it.
#[tokio::test]
async fn who_may_not_read_a_cluster_finds_its_endpoint_by_a_project() {
    let scene = Scene::new(false).await;
    let home = Home::new();
    let agent = scene.agent(&home).await;
    let central = scene.central.client();
    scene.admin.ok(&["share", "cluster", "member", "--user", "ada", "--verbs", "use"]).await;
    let connect = ["connect", "cluster", "member", "--print"];
    let output = scene.ada.run(&connect).await;
    assert!(
        output.code == 0 && output.err.contains("no permission to read"),
        "{}",
        output.all_output()
    );
    assert!(output.text().contains("/kubernetes/cluster/member"), "{}", output.text());

    // One project does not list the cluster for ada, and one does.
    scene.admin.ok(&["create", "project", "o", "--member", "user/ada"]).await;
    make_space(&scene).await;
    let access = json!([{ "verbs": ["get"], "subresources": ["clusters"], "users": ["ada"] }]);
    let spec = json!({ "spec": { "access": access } });
    merge(&central, &collection("projects/p"), spec).await.expect(200);
    let other = json!({ "metadata": { "annotations": { "example.com/other": "x" } } });
    merge(&central, &collection("clusters/member"), other).await.expect(200);
    let space = ["connect", "space", "s", "--project", "p", "--print"];
    for command in [&connect[..], &space] {
        let output = scene.ada.run(command).await;
        assert!(!output.err.contains("no permission to read"), "{}", output.all_output());
        assert!(output.text().contains(agent.address()), "{}", output.text());
    }
    let written = scene.ada.file("direct.yaml", scene.ada.ok(&connect).await);
    let secrets = ["get", "sharedsecrets", "-n", "platform"];
    let got = scene.kubectl(Path::new(&written), &secrets).await;
    assert!(got.ok && got.err.contains("No resources found"), "{got:?}");
    // The list contains only the address, and no other annotation of the cluster.
    let listed = central.get(&collection("projects/p/clusters")).send().await.expect(200);
    let annotations = listed["clusters"][0]["metadata"]["annotations"].as_object().unwrap();
    let ours = "platform.sh/direct-cluster-endpoint";
    assert_eq!(annotations.keys().collect::<Vec<_>>(), [ours, &format!("{ours}-ca-data")]);
    agent.stop().await;
}

/// Makes a space in the project `p`, of which ada is a member.
async fn make_space(scene: &Scene) {
    scene.admin.ok(&["create", "project", "p", "--member", "user/ada"]).await;
    let at = json!({ "cluster": "member", "namespace": "platform" });
    let space = json!({ "metadata": { "name": "s" }, "spec": { "clusterRef": at } });
    let spaces = format!("{GROUP}/namespaces/p-p/spaceinstances");
    scene.central.client().post(&spaces).json(&space).send().await.expect(201);
}

#[tokio::test]
async fn a_member_who_may_not_use_a_cluster_is_led_through_the_gateway() {
    let scene = Scene::new(true).await;
    make_space(&scene).await;
    let space = ["connect", "space", "s", "--project", "p"];
    let output = scene.ada.run(&space).await;
    assert!(output.code == 0 && output.err.contains("the gateway"), "{}", output.all_output());
    let got = scene.kubectl(&scene.ada.kubeconfig(), &["get", "sharedsecrets"]).await;
    assert!(got.ok && got.err.contains("in platform namespace"), "{got:?}");
    let eve = logged_in(&scene.admin, &scene.central, "eve").await;
    let refused = eve.fails(1, &space).await;
    assert!(refused.contains("cannot use the space"), "{refused}");
    let absent = eve.fails(1, &["connect", "space", "none", "--project", "p"]).await;
    assert_eq!(absent, refused.replace("\"s\"", "\"none\"").replace("space s ", "space none "));
    let not_in = CliUser::new().fails(1, &space).await;
    assert!(not_in.contains("not logged in"), "{not_in}");
    CliUser::new().fails(2, &["connect", "space", "s"]).await;
    CliUser::new().fails(2, &["connect", "cluster", "c", "--set-current", "false"]).await;
}

/// client-go shows a refused discovery as "unknown". For a raw request it shows the reason.
#[tokio::test]
async fn kubectl_is_told_why_it_may_not_use_a_cluster() {
    let scene = Scene::new(true).await;
    let printed = scene.admin.ok(&["connect", "cluster", "member", "--print"]).await;
    let key = scene.admin.ok(&["create", "accesskey", "--user", "eve"]).await;
    let start = printed.find("pst_").unwrap();
    let end = start + printed[start..].find(['"', '\n']).unwrap();
    let printed = printed.replace(&printed[start..end], key.trim());
    let file = scene.ada.file("eve.yaml", &printed);
    let raw = scene.kubectl(Path::new(&file), &["get", "--raw", "/version"]).await;
    assert!(raw.err.contains("the verb use on it is required"), "{raw:?}");
}

/// A watch ends with its token, and the next request has a new one: no client sees a 401.
#[tokio::test]
async fn a_watch_ends_with_its_token_and_the_next_request_has_another() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let scene = Scene::new(false).await;
    let home = Home::new();
    let agent = scene.agent(&home).await;
    scene.admin.ok(&["share", "cluster", "member", "--user", "ada"]).await;
    scene.ada.ok(&["connect", "cluster", "member", "--ttl", "3s"]).await;
    // The refusals before the agent learned of the share.
    let refused_before = agent.logged().matches("refused").count();
    let kubeconfig = scene.ada.kubeconfig();
    let made = scene.kubectl(&kubeconfig, &["create", "-n", "platform", "-f", MANIFEST]).await;
    assert!(made.ok, "{made:?}");
    let kubectl: Kubectl = scene.central.kubectl();
    let arguments = ["get", "sharedsecrets", "-n", "platform", "--watch", "-o", "name"];
    let mut command = kubectl.command(&arguments);
    command.env("KUBECONFIG", &kubeconfig).env("HOME", scene.ada.path());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let line = wait::within("the watch to begin", lines.next_line()).await.unwrap();
    assert!(line.unwrap().contains("db.password"));
    // Other requests go on past the life of a token, each with a valid one.
    let patch = ["annotate", "--overwrite", "sharedsecret", "db.password", "-n", "platform"];
    let mut round = 0;
    while watch.try_wait().unwrap().is_none() {
        round += 1;
        assert!(round < 600, "the watch goes on without end");
        let value = format!("round={round}");
        let done = scene.kubectl(&kubeconfig, &[&patch[..], &[&value]].concat()).await;
        assert!(done.ok, "{done:?}");
        let line = tokio::time::timeout(std::time::Duration::from_secs(1), lines.next_line());
        if let Ok(Ok(Some(line))) = line.await {
            assert!(line.contains("db.password"), "{line}");
        }
    }
    let ended = watch.wait_with_output().await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!said.contains("Unauthorized"), "{said}");
    let again = scene.kubectl(&kubeconfig, &arguments[..4]).await;
    assert!(again.ok, "{again:?}");
    let log = agent.logged();
    assert_eq!(log.matches("refused").count(), refused_before, "{log}");
    agent.stop().await;
}

#[tokio::test]
async fn the_access_key_of_an_agent_can_be_made_again() {
    let scene = Scene::new(false).await;
    let again = ["create", "agent-key", "member"];
    let said = scene.admin.fails(1, &again).await;
    assert!(said.contains("agent-member") && said.contains("rotate"), "{said}");
    scene.admin.ok(&["delete", "accesskey", "agent-member"]).await;
    scene.admin.ok(&["delete", "clusterrolebinding", "agent-member"]).await;
    let key = scene.admin.ok(&again).await.trim().to_owned();
    assert!(key.starts_with("pst_") && key != scene.agent_key, "{key}");
    // An agent starts with it. The Cluster's deletion ends it, as the first one.
    let (home, scene) = (Home::new(), Scene { agent_key: key, ..scene });
    scene.agent(&home).await.stop().await;
    scene.admin.ok(&["delete", "cluster", "member"]).await;
    wait::until("the key to be deleted", async || {
        let path = collection("ownedaccesskeys/agent-member");
        let status = scene.central.client().get(&path).send().await.status;
        (status == 404).then_some(())
    })
    .await;
    let typo = scene.admin.fails(1, &["create", "agent-key", "membre"]).await;
    assert!(typo.contains("membre"), "{typo}");
}
