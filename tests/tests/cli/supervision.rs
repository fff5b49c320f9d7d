//! `postern run --on-change restart`: the pairs of values that a command gets, and its signals.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postern_tests::cli::CliUser;
use postern_tests::objects::secret_path;
use postern_tests::{Server, binary};
use rustix::process::Signal;
use serde_json::json;

use crate::cli::admin;
use crate::cli::running::Running;
use crate::cli::terminal::Terminal;

/// Prints its value and each signal. It ends with SIGINT, SIGQUIT and SIGHUP, and not with SIGTERM. It waits for input
/// that never comes. Bash can miss a signal just before it reads, so it reads again after a second.
const STUBBORN: &str = "exec 3<>fifo; trap 'echo got-term' TERM; trap 'echo got-int; exit 5' INT; \
                        trap 'echo got-quit; exit 5' QUIT; trap 'echo got-hup; exit 5' HUP; \
                        echo value $A; while read -r -t 1 x <&3 || :; do :; done";

/// The same, but SIGTERM ends it, and no other signal does.
const POLITE: &str = "exec 3<>fifo; trap 'echo got-term; exit 3' TERM; trap 'echo got-int' INT; \
                      trap 'echo got-hup' HUP; echo value $A; while read -r -t 1 x <&3 || :; do :; done";

/// A server with the secret `db`, and a user with a FIFO for the scripts.
async fn scene() -> (Server, CliUser) {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "db.A", "1"]).await;
    let fifo = admin.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(fifo).status().unwrap().success());
    (server, admin)
}

/// The arguments that run a script, restarted on each change.
fn supervised<'a>(more: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run", "--secret", "db", "--on-change", "restart"], more, &["--", "bash", "-c", script]]
        .concat()
}

/// The same through another program, such as `nohup`.
fn through<'a>(wrapper: &[&'a str], arguments: &[&'a str]) -> Vec<&'a str> {
    [wrapper, &[binary::path().to_str().unwrap()], arguments].concat()
}

#[tokio::test]
async fn keys_that_change_together_reach_the_command_together() {
    let (server, admin) = scene().await;
    let client = server.client();
    let set = async |value: &str| {
        let value = BASE64_STANDARD.encode(value);
        let data = json!({ "spec": { "data": { "user": value, "password": value } } });
        client.patch(&secret_path("db"), "merge-patch", &data).send().await.expect(200);
    };
    set("0").await;
    let script = "exec 3<>fifo; trap 'exit 0' TERM; echo pair $user $password; \
                  while read -r -t 1 x <&3 || :; do :; done";
    let mut running = Running::start(
        &admin,
        &[
            "run",
            "--secret",
            "db.user",
            "--secret",
            "db.password",
            "--on-change",
            "restart",
            "--",
            "bash",
            "-c",
            script,
        ],
    );
    assert_eq!(running.line().await, "pair 0 0");
    for value in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        set(value).await;
        assert_eq!(running.line().await, format!("pair {value} {value}"));
    }
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await.0.code(), Some(0));
}

#[tokio::test]
async fn a_signal_during_a_restart_ends_the_command_for_good() {
    let (_server, admin) = scene().await;
    // Without a terminal: in its foreground, Ctrl-C would be expected of it.
    let user = admin.clone().program("setsid".into());
    for (signal, wanted) in
        [(Signal::INT, "got-int"), (Signal::QUIT, "got-quit"), (Signal::HUP, "got-hup")]
    {
        let run = supervised(&["--grace", "1h"], STUBBORN);
        let mut running = Running::start(&user, &through(&[], &run));
        assert!(running.line().await.starts_with("value "));
        admin.ok(&["set", "secret", "db.A", wanted]).await;
        assert_eq!(running.line().await, "got-term");
        running.signal(Signal::TERM);
        assert_eq!(running.line().await, "got-term");
        running.signal(signal);
        assert_eq!(running.line().await, wanted);
        assert_eq!(running.ended().await.0.code(), Some(5), "{wanted}: it is not started again");
    }
}

#[tokio::test]
async fn a_command_that_is_asked_to_end_is_not_restarted() {
    let (_server, admin) = scene().await;
    let mut running = Running::start(&admin, &supervised(&[], STUBBORN));
    assert_eq!(running.line().await, "value 1");
    running.signal(Signal::TERM);
    assert_eq!(running.line().await, "got-term");
    admin.ok(&["set", "secret", "db.A", "2"]).await;
    running.error_line("the command is not restarted").await;
    running.signal(Signal::HUP);
    assert_eq!(running.line().await, "got-hup");
    assert_eq!(running.ended().await.0.code(), Some(5));
}

#[tokio::test]
async fn a_hangup_is_passed_on_and_does_not_end_the_restarts() {
    let (_server, admin) = scene().await;
    let mut running = Running::start(&admin, &supervised(&[], POLITE));
    assert_eq!(running.line().await, "value 1");
    running.signal(Signal::HUP);
    assert_eq!(running.line().await, "got-hup");
    admin.ok(&["set", "secret", "db.A", "2"]).await;
    assert_eq!(running.line().await, "got-term");
    assert_eq!(running.line().await, "value 2");
    running.signal(Signal::TERM);
    assert_eq!(running.line().await, "got-term");
    assert_eq!(running.ended().await.0.code(), Some(3));
}

#[tokio::test]
async fn ignored_signals_stay_ignored() {
    let (_server, admin) = scene().await;
    let user = admin.clone().program("nohup".into());
    let mut running = Running::start(&user, &through(&[], &supervised(&[], POLITE)));
    assert_eq!(running.line().await, "value 1");
    running.signal(Signal::HUP);
    admin.ok(&["set", "secret", "db.A", "2"]).await;
    assert_eq!(running.line().await, "got-term");
    assert_eq!(running.line().await, "value 2");
    running.signal(Signal::TERM);
    assert_eq!(running.line().await, "got-term");
    assert_eq!(running.ended().await.0.code(), Some(3));
}

#[tokio::test]
async fn ctrl_c_reaches_the_command_once() {
    let (_server, admin) = scene().await;
    // The terminal belongs to their session, whether or not it is their standard input.
    let user = admin.program("setsid".into());
    for shell in ["exec \"$0\" \"$@\" < /dev/null", "exec \"$0\" \"$@\""] {
        // In a separate session, the command gets only the signals that are passed on to it.
        for (own, wanted) in [(&[][..], 1), (&["setsid"], 0)] {
            let run = ["run", "--secret", "db", "--on-change", "restart", "--"];
            let run = [&run[..], own, &["bash", "-c", POLITE]].concat();
            let mut terminal =
                Terminal::start(&user, &through(&["--ctty", "sh", "-c", shell], &run));
            terminal.shows("value 1").await;
            terminal.types("\u{3}");
            terminal.shows(if wanted == 1 { "got-int" } else { "^C" }).await;
            // The second signal of a doubled Ctrl-C would come before this one.
            terminal.terminate();
            let (status, screen) = terminal.ended().await;
            assert_eq!(status.code(), Some(3), "{screen}");
            assert_eq!(screen.matches("got-int").count(), wanted, "{shell} {own:?}: {screen}");
        }
    }
}

#[tokio::test]
async fn an_interrupt_of_another_process_reaches_the_command() {
    let (_server, admin) = scene().await;
    // The standard input is a terminal, which is not the one of this session.
    let user = admin.program("setsid".into());
    let terminal = Terminal::start(&user, &through(&[], &supervised(&[], POLITE)));
    terminal.shows("value 1").await;
    terminal.signal(Signal::INT);
    terminal.shows("got-int").await;
    terminal.terminate();
    let (status, screen) = terminal.ended().await;
    assert_eq!(status.code(), Some(3), "{screen}");
}
