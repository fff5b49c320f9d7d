//! helm installs, upgrades, rolls back and uninstalls a chart with a shared secret and an access key. Its releases
//! are in core Secrets of this server.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use postern_tests::http::Client;
use postern_tests::kubectl::repository;
use postern_tests::objects::{CORE, collection, make, secrets};
use postern_tests::rights::{path, set, user};
use postern_tests::{Server, wait};
use serde_json::{Value, json};
use tokio::process::Command;

use super::helms;

/// The chart that is installed.
const CHART: &str = "tests/clients/chart";

/// One helm, with one server's kubeconfig, in one namespace.
struct Helm<'a> {
    program: PathBuf,
    server: &'a Server,
    /// The user that runs helm.
    client: &'a Client,
    namespace: &'a str,
}

impl Helm<'_> {
    /// Runs a command, which has to succeed, and returns its standard output.
    async fn ok(&self, line: &str) -> String {
        let home = self.server.home();
        let mut command = Command::new(&self.program);
        command.args(line.split(' ')).args(["--namespace", self.namespace]);
        command.args(["--kube-token", self.client.token()]).current_dir(repository());
        command.env("KUBECONFIG", home.kubeconfig()).env("HOME", home.path());
        for kind in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{kind}_HOME"), home.path().join("helm").join(kind));
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        let Output { status, stdout, stderr } = wait::within(line, command.output()).await.unwrap();
        let [out, err] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(status.success(), "{} {line}: {out}{err}", self.program.display());
        out
    }

    /// The display name of the secret, and the key if there is one.
    async fn installed(&self) -> (Value, Option<Value>) {
        let secret = format!("{}/r1-db", secrets(self.namespace));
        let secret = self.client.get(&secret).send().await.expect(200);
        let key = self.client.get(&format!("{}/r1-ci", collection("ownedaccesskeys"))).send().await;
        let key = (key.status == 200).then(|| key.json()["spec"]["displayName"].clone());
        (secret["spec"]["displayName"].clone(), key)
    }

    /// The status of each revision, in order, as the labels of the stored releases say.
    async fn revisions(&self) -> Vec<String> {
        let all = format!(
            "{CORE}/namespaces/{}/secrets?labelSelector=owner%3Dhelm%2Cname%3Dr1",
            self.namespace
        );
        let list = self.client.get(&all).send().await.expect(200);
        let label = |item: &Value, name: &str| {
            item["metadata"]["labels"][name].as_str().unwrap().to_owned()
        };
        let mut found: Vec<(u32, String)> = (list["items"].as_array().unwrap().iter())
            .map(|item| (label(item, "version").parse().unwrap(), label(item, "status")))
            .collect();
        found.sort();
        found.into_iter().map(|(_, status)| status).collect()
    }

    /// The whole life of a release. `owner` is the owner of the access key.
    async fn live(&self, owner: &str) {
        let chart = format!("r1 {CHART} --wait --timeout 50s --set user={owner}");
        self.ok(&format!("install {chart}")).await;
        assert_eq!(self.installed().await, ("first".into(), Some("first".into())));
        assert_eq!(self.revisions().await, ["deployed"]);
        self.ok(&format!("upgrade {chart} --set displayName=second")).await;
        assert_eq!(self.installed().await, ("second".into(), Some("second".into())));
        self.ok(&format!("upgrade {chart} --set displayName=third,key=false")).await;
        assert_eq!(self.installed().await, ("third".into(), None), "what is left out goes");
        self.ok("rollback r1 1 --wait --timeout 50s").await;
        assert_eq!(self.installed().await, ("first".into(), Some("first".into())));
        let revisions = self.revisions().await;
        assert_eq!(revisions, ["superseded", "superseded", "superseded", "deployed"]);
        let history = self.ok("history r1 --output json").await;
        let history: Value = serde_json::from_str(&history).unwrap();
        assert_eq!(history[3]["description"], "Rollback to 1");
        let manifest = self.ok("get manifest r1").await;
        assert!(manifest.contains("kind: OwnedAccessKey"), "{manifest}");
        let listed: Value = serde_json::from_str(&self.ok("list --output json").await).unwrap();
        assert_eq!(listed[0]["status"], "deployed");
        self.ok("uninstall r1 --wait --timeout 50s").await;
        assert!(self.revisions().await.is_empty());
        let secret = format!("{}/r1-db", secrets(self.namespace));
        self.client.get(&secret).send().await.expect(404);
        let key = format!("{}/r1-ci", collection("ownedaccesskeys"));
        self.client.get(&key).send().await.expect(404);
    }
}

#[tokio::test]
async fn helm_installs_upgrades_rolls_back_and_uninstalls() {
    for program in helms() {
        let server = Server::start().await;
        let client = server.client();
        let helm = Helm { program, server: &server, client: &client, namespace: "platform" };
        helm.live("admin").await;
    }
}

/// A member of one project without other access to the server. The key belongs to this member.
#[tokio::test]
async fn helm_works_for_an_administrator_of_a_project() {
    for program in helms() {
        let server = Server::start().await;
        let admin = server.client();
        let ada = user(&admin, "ada").await;
        make(&admin, "projects", "shop", json!({})).await;
        let members =
            json!([{ "kind": "User", "name": "ada", "clusterRole": "platform-project-admin" }]);
        set(&admin, &path("projects", "shop"), json!({ "members": members })).await;
        let helm = Helm { program, server: &server, client: &ada, namespace: "p-shop" };
        helm.live("ada").await;
    }
}
