//! `postern top`: one report for scripts, and the picture in a terminal.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};

use postern_tests::cli::CliUser;
use postern_tests::objects::{based, secrets};
use postern_tests::rights::allow;
use postern_tests::{Server, wait};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::cli::admin;

/// The report of `top`, while a client lists secrets again and again.
async fn report_under_load(server: &Server, user: &CliUser, arguments: &[&str]) -> String {
    let client = server.client();
    let load = async {
        loop {
            client.get(&secrets("platform")).send().await.expect(200);
        }
    };
    tokio::select! {
        report = user.ok(arguments) => report,
        () = load => unreachable!("it goes on"),
    }
}

#[tokio::test]
async fn a_report_for_scripts() {
    let server = Server::start().await;
    let admin = admin(&server);
    let mut watch = server.client().get(&based("/api/v1/namespaces?watch=true")).stream().await;
    watch.next().await.unwrap().expect("an event");
    let arguments = ["top", "--once", "--interval", "1", "-o", "json"];
    let text = report_under_load(&server, &admin, &arguments).await;
    let report: Value = serde_json::from_str(&text).unwrap();
    let above_zero = |value: &Value| value.as_f64().is_some_and(|value| value > 0.0);
    assert!(above_zero(&report["intervalSeconds"]), "{report:#}");
    assert_eq!((&report["restarted"], &report["problems"]), (&json!(false), &json!([])));
    assert!(above_zero(&report["requests"]["perSecond"]), "{report:#}");
    assert_eq!(report["requests"]["errorsPerSecond"], 0);
    let rows = report["requests"]["byResource"].as_array().unwrap();
    let row = |verb: &str, resource: &str| {
        let row = rows.iter().find(|row| row["verb"] == verb && row["resource"] == resource);
        row.unwrap_or_else(|| panic!("{verb} {resource}: {report:#}"))
    };
    let lists = row("LIST", "sharedsecrets");
    assert_eq!(lists["group"], "management.platform.sh");
    for figure in ["perSecond", "p50Seconds", "p99Seconds"] {
        assert!(above_zero(&lists[figure]), "{figure}: {lists:#}");
    }
    assert!(above_zero(&row("GET", "/metrics")["perSecond"]), "its own requests");
    assert_eq!(report["watches"]["open"], 1);
    assert_eq!(report["watches"]["byResource"][0]["resource"], "namespaces");
    assert!(above_zero(&report["store"]["revision"]), "{report:#}");
    assert_eq!(report["clusters"]["stored"], 0);
    let owners = report["owners"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[0]["share"]), (1, &json!(1)), "{report:#}");
    assert!(above_zero(&owners[0]["perSecond"]) && owners[0]["watches"] == 1, "{report:#}");
    assert_eq!((&owners[0]["owner"], &report["ownersError"]), (&json!("admin"), &Value::Null));
}

#[tokio::test]
async fn without_a_terminal_it_prints_tables_once() {
    let server = Server::start().await;
    let admin = admin(&server);
    let text = report_under_load(&server, &admin, &["top", "--interval", "1"]).await;
    let begins: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    for wanted in ["Requests", "Watches", "Store", "Clusters", "OWNER", "admin", "VERB", "LIST"] {
        assert!(begins.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "eve"]).await;
    let once = ["top", "--once", "--interval", "1"];
    let said = admin.fails(1, &[&once[..], &["--as", "eve"]].concat()).await;
    assert!(said.contains("cannot get path") && said.contains("nonResourceURLs"), "{said}");
    // The names of owners need a permission of their own.
    admin.ok(&["create", "user", "ada", "--groups", "ops"]).await;
    let rules = json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]);
    allow(&server.client(), "metrics", None, rules, "ops").await;
    let text = admin.ok(&[&once[..], &["--as", "ada"]].concat()).await;
    assert!(text.contains("needs the verb get on the path /metrics/owners"), "{text}");
    assert!(text.contains("VERB") && !text.contains("admin"), "{text}");
    let _kubeconfig = server.home().clone();
    server.stop().await;
    let said = admin.fails(1, &once).await;
    assert!(said.contains("no connection to"), "{said}");
}

#[tokio::test]
async fn an_interval_or_format_that_makes_no_sense_exits_with_2() {
    let user = CliUser::new();
    for (arguments, wanted) in [
        (["top", "--interval", "0"], "greater than zero"),
        (["top", "--interval", "2h"], "too long"),
        (["top", "--output", "wide"], "json, yaml"),
    ] {
        let said = user.fails(2, &arguments).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

/// A terminal that a program draws on, and everything that it has drawn.
struct Terminal {
    /// The side of the user.
    user: File,
    /// The side of the program.
    program: File,
    seen: String,
}

impl Terminal {
    fn open(rows: u16, columns: u16) -> Self {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let path = ptsname(&user, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = open(path.as_c_str(), flags, Mode::empty()).unwrap();
        fcntl_setfl(&user, OFlags::NONBLOCK).unwrap();
        let terminal = Self { user: user.into(), program: program.into(), seen: String::new() };
        terminal.resize(rows, columns);
        terminal
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.user, size).unwrap();
    }

    fn start(&self, mut command: Command) -> Child {
        let side = || self.program.try_clone().unwrap();
        command.stdin(side()).stdout(side()).spawn().unwrap()
    }

    fn press(&mut self, keys: &[u8]) {
        self.user.write_all(keys).unwrap();
    }

    /// Everything that is drawn so far.
    fn read(&mut self) -> &str {
        let mut bytes = [0; 4096];
        loop {
            match self.user.read(&mut bytes) {
                Ok(read) => self.seen.push_str(&String::from_utf8_lossy(&bytes[..read])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return &self.seen,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until a complete picture contains these words, and returns its lines.
    async fn picture_with(&mut self, words: &[&str]) -> Vec<String> {
        wait::until(&format!("a picture with {words:?}"), async || {
            // The last one may still be on its way.
            let pictures: Vec<&str> = self.read().split("\x1b[H").skip(1).collect();
            let drawn = pictures.iter().filter_map(|picture| picture.split_once("\x1b[J"));
            let pictures: Vec<String> =
                drawn.map(|(above, last)| plain(&format!("{above}{last}"))).collect();
            let picture =
                pictures.last().filter(|last| words.iter().all(|word| last.contains(word)));
            // The terminal adds a carriage return to each line feed.
            let line = |line: &str| line.trim_end_matches('\r').to_owned();
            picture.map(|picture| picture.split('\n').map(line).collect())
        })
        .await
    }

    /// How the terminal is set.
    fn modes(&self) -> (LocalModes, String) {
        let set = tcgetattr(&self.program).unwrap();
        (set.local_modes, format!("{set:?}"))
    }
}

/// The text without the sequences that erase and colour.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once(['K', 'm', 'J', 'l', 'h']).unwrap().1)
}

/// Waits for the end, which has to be a success that leaves the terminal as it was.
async fn ends_well(terminal: &mut Terminal, mut child: Child, before: &str) {
    let status = wait::within("top to end", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(terminal.modes().1, before);
    let seen = terminal.read();
    assert!(seen.starts_with("\x1b[?1049h\x1b[?25l"), "{seen:?}");
    assert!(seen.ends_with("\x1b[?25h\x1b[?1049l"), "{seen:?}");
}

#[tokio::test]
async fn in_a_terminal_it_draws_until_the_user_leaves() {
    let server = Server::start().await;
    let user = admin(&server).with("NO_COLOR", "1");
    let mut terminal = Terminal::open(24, 60);
    let before = terminal.modes().1;
    let child = terminal.start(user.command(&["top", "--interval", "1"]));
    // The first picture has no rates, and the next ones have.
    terminal.picture_with(&["postern top", "Requests", "OWNER", "admin"]).await;
    let lines = terminal.picture_with(&["OWNER", "VERB", "/metrics"]).await;
    assert!(lines.len() <= 24 && lines.iter().all(|line| line.chars().count() <= 60), "{lines:#?}");
    assert!(!terminal.modes().0.contains(LocalModes::ECHO), "keys are not shown");
    assert!(!terminal.read().contains("\x1b[1"), "NO_COLOR is respected");
    server.stop().await;
    terminal.picture_with(&["error, trying again: no connection to", "Requests"]).await;
    terminal.press(b"xyz");
    terminal.press(b"q");
    ends_well(&mut terminal, child, &before).await;
}

#[tokio::test]
async fn signals_and_ctrl_c_restore_the_terminal_and_a_new_size_is_drawn_at_once() {
    let server = Server::start().await;
    let user = admin(&server);
    for end in ["Ctrl-C", "SIGTERM", "SIGINT"] {
        let mut terminal = Terminal::open(40, 100);
        let before = terminal.modes().1;
        let child = terminal.start(user.command(&["top", "--interval", "1h"]));
        let lines = terminal.picture_with(&["postern top", "WATCHED RESOURCE"]).await;
        assert!(terminal.read().contains("\x1b[1m"), "with colours");
        let id = Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
        terminal.resize(5, 20);
        kill_process(id, Signal::WINCH).unwrap();
        wait::until("a smaller picture", async || {
            let smaller = terminal.picture_with(&["postern top"]).await;
            let fits = smaller.len() <= 5 && smaller.iter().all(|line| line.chars().count() <= 20);
            (fits && smaller.len() < lines.len()).then_some(())
        })
        .await;
        match end {
            "Ctrl-C" => terminal.press(&[3]),
            "SIGTERM" => kill_process(id, Signal::TERM).unwrap(),
            _ => kill_process(id, Signal::INT).unwrap(),
        }
        ends_well(&mut terminal, child, &before).await;
    }
}

#[tokio::test]
async fn a_terminal_is_left_as_it_was_when_the_first_reading_fails() {
    let server = Server::start().await;
    let user = admin(&server);
    let _kubeconfig = server.home().clone();
    server.stop().await;
    let mut terminal = Terminal::open(24, 80);
    let before = terminal.modes().1;
    let child = terminal.start(user.command(&["top"]));
    let ended = wait::within("top to end", child.wait_with_output()).await.unwrap();
    assert_eq!((ended.status.code(), terminal.modes().1), (Some(1), before));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("no connection to"), "{ended:?}");
    assert_eq!(terminal.read(), "", "nothing is drawn");
}
