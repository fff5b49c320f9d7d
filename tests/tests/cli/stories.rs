//! The first contact of five people with the product, by the commands of `docs/how-to/first-commands.md`, from an empty
//! directory. The page says how many commands each needs.

use postern_tests::documents::{Reader, blocks_of};
use postern_tests::http::Client;
use postern_tests::kubectl::repository;
use postern_tests::objects::secret_path;
use postern_tests::rights::allow;
use postern_tests::{Server, wait};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

const PAGE: &str = "docs/how-to/first-commands.md";
/// The most commands from a running server to the read of a second person.
const FIRST_READ_MAX: usize = 4;

/// The blocks of a section. The table of the page has the number of their commands.
fn story(person: &str, heading: &str) -> Vec<String> {
    let blocks = blocks_of(PAGE, &format!("## {heading}\n"), "\n## ");
    let text = std::fs::read_to_string(repository().join(PAGE)).unwrap();
    let row = text.lines().find(|line| line.starts_with(&format!("| [{person}]"))).unwrap();
    let told = row.split('|').nth(2).unwrap().trim().split([' ', ',']).next().unwrap();
    let count: usize = blocks.iter().map(|block| commands(block)).sum();
    assert_eq!(told, count.to_string(), "{row}");
    blocks
}

/// The number of the commands that a person types.
fn commands(block: &str) -> usize {
    let is_command = |line: &&str| {
        let line = line.strip_prefix("exec ").unwrap_or(line);
        line.starts_with("postern ") || line.starts_with("kubectl ") || line.contains("| postern ")
    };
    block.lines().filter(is_command).count()
}

/// The digest of the server's authority, from the output of its first start.
async fn digest(server: &Server) -> String {
    wait::until("the command for other users", async || {
        let printed = server.home().printed();
        let (_, digest) = printed.split_once("--ca-digest ")?;
        Some(digest.split_once('\n')?.0.trim().to_owned())
    })
    .await
}

fn admin(server: &Server) -> Reader {
    Reader::new(server, "admin").with("KUBECONFIG", "postern-data/admin.kubeconfig")
}

/// The session that a login link begins, as a browser has it.
struct Browser {
    client: Client,
    cookie: String,
}

impl Browser {
    async fn open(server: &Server, link: &str) -> Self {
        let client = server.client();
        let (page, code) = link.trim().split_once("/ui/login#code=").expect("a login link");
        assert!(page.starts_with("https://"), "{link}");
        let reply = client.with_token(code).post("/auth/session").send().await;
        reply.expect(201);
        let cookie = reply.header("set-cookie").unwrap().split_once(';').unwrap().0.to_owned();
        Self { client, cookie }
    }

    async fn reads(&self, path: &str) -> serde_json::Value {
        let request = self.client.get(path).without("authorization").header("cookie", &self.cookie);
        request.header("x-postern-console", "1").send().await.expect(200)
    }

    /// Allows the login of a command line, by its link and the characters that it prints.
    async fn allow(&self, link: &str, typed: &str) {
        let (_, device_code) = link.split_once("/ui/device#").expect("a link of a login");
        let consent = json!({
            "apiVersion": "management.platform.sh/v1",
            "kind": "CommandLineConsent",
            "spec": { "deviceCode": device_code, "userCode": typed, "decision": "Allow" },
        });
        let request = self.client.post("/auth/authorize").without("authorization");
        let request = request.header("cookie", &self.cookie).header("x-postern-console", "1");
        request.json(&consent).send().await.expect(200);
    }
}

#[tokio::test]
async fn the_administrators_first_hour() {
    let blocks = story("administrator", "The administrator's first hour");
    assert!(commands(&blocks[0]) <= FIRST_READ_MAX);
    let server = Server::start().await;
    let admin = admin(&server);
    let link = admin.ok(&blocks[0]).await;
    let ada = Browser::open(&server, &link).await;
    let read = ada.reads(&secret_path("db")).await;
    assert_eq!(read["spec"]["data"]["password"], "aHVudGVyMg==");
    let status = admin.ok(&blocks[1]).await;
    assert!(status.contains("Problems:") && status.contains("none"), "{status}");
}

#[tokio::test]
async fn the_developers_first_day() {
    let blocks = story("developer", "The developer's first day");
    let server = Server::start().await;
    let invitation = admin(&server)
        .ok("postern create user ada --invite
             postern create user bob
             postern create team shop --users ada,bob
             printf hunter2 | postern set secret db.password
             postern share secret/db --user ada")
        .await;
    let browser = Browser::open(&server, &invitation).await;
    let ada = Reader::new(&server, "ada").replacing("sha256:HEX", &digest(&server).await);
    let mut login = ada.command(&blocks[0]).spawn().unwrap();
    let mut lines = BufReader::new(login.stderr.take().unwrap());
    let (mut address, mut said) = (String::new(), String::new());
    let typed = wait::within("the link and the characters", async {
        loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).await.unwrap() > 0, "{said}");
            said.push_str(&line);
            let line = line.trim();
            if line.contains("/ui/device#") {
                line.clone_into(&mut address);
            }
            if let Some(typed) = line.strip_prefix("and enter there:") {
                return typed.trim().to_owned();
            }
        }
    });
    let typed = typed.await;
    browser.allow(&address, &typed).await;
    let ended = wait::within("the login", login.wait()).await.unwrap();
    lines.read_to_string(&mut said).await.unwrap();
    assert!(ended.success() && said.contains("as the user ada"), "{said}");
    let out = ada.ok(&blocks[1]).await;
    assert_eq!(out.matches("hunter2").count(), 2, "{out}");
    assert!(out.contains("api") && !out.contains("hunter3"), "{out}");
    // The key of the login is for the server that has the pinned authority, and for no other.
    let other = format!("sha256:{}", "0".repeat(64));
    let eve = Reader::new(&server, "eve").replacing("sha256:HEX", &other);
    let refused = eve.run(&blocks[0]).await;
    assert!(!refused.ok, "{}", refused.err);
    for digest in [other, digest(&server).await] {
        assert!(refused.err.contains(&digest), "{digest}: {}", refused.err);
    }
    assert!(!eve.path().join(".kube").exists(), "nothing was written");
}

#[tokio::test]
async fn the_security_officers_question() {
    let blocks = story("security officer", "The security officer's question");
    let server = Server::start().await;
    let admin = admin(&server);
    let prepared = "postern create user ada
                    postern create user bob
                    postern set secret db password=hunter2
                    postern share secret/db --user ada
                    postern get secret db.password --as ada";
    admin.ok(prepared).await;
    let out = admin.ok(&blocks[0]).await;
    for wanted in ["ada", "yes", "platform:access:sharedsecrets:db", "access rule of the object"] {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
    let reader = out.lines().find(|line| line.starts_with("ada ") && line.contains("Request"));
    assert!(reader.is_some(), "the readers have ada, by the key of the administrator: {out}");
    assert!(!out.contains("hunter2"), "{out}");
    let denied = admin.run("postern can-i get secret/db --as ada").await;
    assert!(!denied.ok && denied.out == "no\n", "{denied:?}");
}

#[tokio::test]
async fn a_pipeline_in_ten_minutes() {
    let blocks = story("pipeline", "A pipeline in ten minutes");
    let server = Server::start().await;
    let admin = admin(&server);
    let prepared = "postern create user ada
                    postern create team shop --users ada
                    postern set secret db password=hunter2
                    postern set secret other password=hush";
    admin.ok(prepared).await;
    assert_eq!(admin.ok(&blocks[0]).await, "yes\n");
    let pipeline = Reader::new(&server, "pipeline");
    std::fs::copy(admin.path().join("ci.key"), pipeline.path().join("ci.key")).unwrap();
    assert_eq!(pipeline.ok(&blocks[1]).await, "hunter2\n");
    for more in ["postern get secret other.password", "postern set secret db.password new"] {
        let refused = pipeline.run(&format!("{}\n{more}", blocks[1])).await;
        assert!(!refused.ok && !refused.out.contains("hush"), "{more}: {refused:?}");
    }
}

#[tokio::test]
async fn connecting_a_cluster() {
    let blocks = story("cluster", "Connecting a cluster");
    let (server, upstream) = (Server::start().await, Server::start().await);
    let admin = Reader::new(&server, "admin").with("KUBECONFIG", "admin.kubeconfig");
    let admin = admin.replacing("sha256:HEX", &digest(&server).await);
    let copies = [
        (server.home().kubeconfig(), "admin.kubeconfig"),
        (upstream.home().kubeconfig(), "east.kubeconfig"),
    ];
    for (from, to) in copies {
        std::fs::copy(from, admin.path().join(to)).unwrap();
    }
    admin.ok("postern create team shop").await;
    let rules =
        json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"] }]);
    allow(&upstream.client(), "lists", None, rules, "platform:user:admin").await;
    let created = admin.run(&blocks[0]).await;
    assert!(created.ok && created.err.contains("--ca-digest sha256:"), "{}", created.err);
    let agent = admin.command(&blocks[1]).spawn().unwrap();
    wait::until("the cluster to be ready", async || {
        let listed = admin.ok("postern get clusters").await;
        listed.lines().find(|line| line.contains("east") && line.contains("Ready")).map(drop)
    })
    .await;
    let out = admin.ok(&blocks[2]).await;
    assert!(out.contains("platform") && out.contains("Active"), "{out}");
    drop(agent);
}
