//! Checks of the web console in a real Chromium, by scripts of `tests/python/console`.
//!
//! They need Chromium, Playwright and axe (`cargo xtask fetch`), and the built console (`cargo xtask console`). Without
//! one of them, a test says so and does nothing; with `CI=true` it fails.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::{Firewall, Server, Setup, binary, python};

/// How long a group of checks may take.
const DEADLINE: Duration = Duration::from_mins(15);

/// The line that a script prints to ask for a restart of its server. The reply is the new origin.
const RESTART: &str = "restart";

/// The directory of the scripts.
const SCRIPTS: &str = "console";

/// Where Debian has Chromium.
const CHROMIUM: &str = "/usr/bin/chromium";

/// The programs of a browser test.
struct Tools {
    python: PathBuf,
    chromium: PathBuf,
    axe: PathBuf,
}

impl Tools {
    /// The tools, or which one is missing.
    async fn find() -> Result<Self, &'static str> {
        let chromium = std::env::var_os("POSTERN_TEST_CHROMIUM").map(PathBuf::from);
        let chromium = chromium.unwrap_or_else(|| CHROMIUM.into());
        if !chromium.exists() {
            return Err("Chromium");
        }
        let python = python::program();
        let has_playwright = Command::new(&python)
            .args(["-c", "import axe_playwright_python, playwright; print(axe_playwright_python.__path__[0])"])
            .output()
            .await
            .ok()
            .filter(|output| output.status.success());
        let Some(output) = has_playwright else { return Err("Playwright or axe") };
        let package = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Self { python, chromium, axe: PathBuf::from(package).join("axe.min.js") })
    }
}

/// Skips a test, and prints the missing part. In CI, where every test must run, it panics instead.
pub(crate) fn skip(what: &str, missing: &str) {
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ci, "there is no {missing}");
    eprintln!("skipped {what}: there is no {missing}");
}

/// Checks that the types of the console match this server's API document. `POSTERN_TEST_NODE` names
/// Node.js.
pub async fn check_types(server: &Server) {
    let node = std::env::var_os("POSTERN_TEST_NODE").unwrap_or_else(|| "node".into());
    let console = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../console"));
    if !console.join("node_modules/openapi-typescript").exists() {
        return skip("the types", "openapi-typescript, which cargo xtask console installs");
    }
    let path = "/kubernetes/management/openapi/v3/apis/management.platform.sh/v1";
    let document = server.home().path().join("openapi.json");
    std::fs::write(&document, server.client().get(path).send().await.body).unwrap();
    let mut command = Command::new(node);
    command.current_dir(console).args(["scripts/types.js", "--check", "--file"]).arg(document);
    match command.output().await {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{text}");
        }
        Err(_) => skip("the types", "Node.js"),
    }
}

/// Runs the checks of a script against a server. If one fails, panics with the output of the
/// script.
pub async fn check(server: &Server, script: &str) {
    check_with(server, script, &json!({})).await;
}

/// The same with more values in the configuration of the script.
pub async fn check_with(server: &Server, script: &str, more: &Value) {
    if let Some(child) = start(server, script, more).await {
        watch(child, async || panic!("{script} restarts its server")).await;
    }
}

/// Runs the checks of logins of the command line. The script gets one command line, and another one in a network from
/// which the server alone can be reached.
pub async fn check_command_line(server: &Server, mut config: Value) {
    let (_, port) = server.kubeconfig().authority_of_server().rsplit_once(':').unwrap();
    let firewall = Firewall::new(server.home(), port.parse().unwrap()).await;
    config["terminal"] = json!(binary::path());
    config["terminal_elsewhere"] = json!(firewall.inside(binary::path()));
    check_with(server, "sso_cli.py", &config).await;
}

/// The same for a script that restarts its server.
pub async fn check_with_restarts(setup: Setup, script: &str) {
    let mut server = setup.clone().start().await;
    let Some(child) = start(&server, script, &json!({})).await else { return };
    watch(child, async || {
        server.terminate();
        server.ended().await;
        server = setup.clone().start().await;
        origin(&server)
    })
    .await;
}

fn origin(server: &Server) -> String {
    format!("https://{}", server.kubeconfig().authority_of_server())
}

/// Starts a script with its configuration. If the machine lacks a required tool, skips the test.
async fn start(server: &Server, script: &str, more: &Value) -> Option<Child> {
    let page = server.client().get("/ui/").without("authorization").send().await.text();
    let tools = if page.contains("cargo xtask serve") {
        Err("the console, which cargo xtask console builds")
    } else {
        Tools::find().await
    };
    let tools = match tools {
        Ok(tools) => tools,
        Err(missing) => {
            skip(script, missing);
            return None;
        }
    };
    let mut child = Command::new(&tools.python)
        .arg(python::script(SCRIPTS).join(script))
        // Chromium writes into its home.
        .env("HOME", server.home().path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("Python can be started");
    let mut config = configuration(server, &tools);
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let config = format!("{config}\n");
    let stdin = child.stdin.as_mut().expect("a standard input");
    stdin.write_all(config.as_bytes()).await.unwrap();
    Some(child)
}

/// The configuration of a script: its server and the tools.
fn configuration(server: &Server, tools: &Tools) -> Value {
    let kubeconfig = server.kubeconfig();
    let other_tls = server.home().path().join("other.pem");
    let made =
        rcgen::generate_simple_self_signed(["127.0.0.1", "localhost"].map(str::to_owned)).unwrap();
    std::fs::write(&other_tls, made.signing_key.serialize_pem() + &made.cert.pem()).unwrap();
    json!({
        "origin": origin(server),
        "key": kubeconfig.token,
        "authority": String::from_utf8_lossy(&kubeconfig.authority),
        "audit_log": server.home().audit_log(),
        "other_tls": other_tls,
        "pictures": server.home().path(),
        "chromium": tools.chromium,
        "axe": tools.axe,
    })
}

/// Waits for the end of a script, and restarts the server when the script asks for it.
async fn watch(mut child: Child, mut restart: impl AsyncFnMut() -> String) {
    let mut stdin = child.stdin.take().expect("a standard input");
    let mut lines = BufReader::new(child.stdout.take().expect("a standard output")).lines();
    let mut stderr = child.stderr.take().expect("a standard error");
    let (mut out, mut err) = (String::new(), String::new());
    let printed = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line == RESTART {
                let answer = format!("{}\n", restart().await);
                stdin.write_all(answer.as_bytes()).await.unwrap();
            } else {
                out.push_str(&line);
                out.push('\n');
            }
        }
    };
    let ended = async { tokio::join!(printed, stderr.read_to_string(&mut err)) };
    let ((), complaints) =
        tokio::time::timeout(DEADLINE, ended).await.expect("the checks end in time");
    complaints.unwrap();
    let status = child.wait().await.unwrap();
    assert!(status.success(), "{out}{err}");
    assert!(out.contains("passed: "), "the script checked something: {out}{err}");
    eprint!("{out}");
}
