//! Values of secrets for programs: as lines for shells and files, and in the environment of a command.

use std::os::unix::process::ExitStatusExt as _;

use postern_tests::Server;
use postern_tests::cli::CliUser;
use rustix::process::Signal;
use serde_json::Value;

use crate::cli::admin;
use crate::cli::running::Running;

/// A server with the secret `db`.
async fn with_secret(pairs: &[(&str, &str)]) -> (Server, CliUser) {
    let server = Server::start().await;
    let admin = admin(&server);
    for (key, value) in pairs {
        admin.ok(&["set", "secret", "db", value, "--key", key]).await;
    }
    (server, admin)
}

#[tokio::test]
async fn shells_and_files_read_the_values() {
    let (_server, admin) =
        with_secret(&[("PASSWORD", "it's $hush\n\"x\""), ("tls.crt", "y")]).await;
    let script = admin.ok(&["get", "secret", "db", "-o", "env", "--map", "tls.crt=CERT"]).await;
    let file = admin.file("script.sh", script + "printf '%s|%s' \"$PASSWORD\" \"$CERT\"");
    let output = std::process::Command::new("sh").arg(file).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's $hush\n\"x\"|y");
    let dotenv = ["get", "secret", "db", "-o", "dotenv", "--map", "tls.crt=", "--prefix", "DB_"];
    assert_eq!(admin.ok(&dotenv).await, "DB_PASSWORD=\"it's \\$hush\\n\\\"x\\\"\"\n");
    let one = admin.ok(&["get", "secret", "db.PASSWORD", "-o", "dotenv"]).await;
    assert!(one.starts_with("PASSWORD="), "{one}");
    let said = admin.fails(1, &["get", "secret", "db", "-o", "env"]).await;
    assert!(said.contains("tls.crt") && said.contains("--map tls.crt=TLS_CRT"), "{said}");
    assert!(!said.contains("hush"), "{said}");
    for (arguments, wanted) in [
        (&["-o", "json", "--prefix", "A_"][..], "-o env and -o dotenv"),
        (&["-o", "env", "--map", "x"], "KEY=NAME"),
        (&["-o", "env", "--map", "A=X", "--map", "A=Y"], "--map A= is given twice"),
        (&["-o", "env", "--prefix", "1"], "begin with a digit"),
        (&["-o", "value", "--watch", "--key", "a"], "--watch"),
    ] {
        let said = admin.fails(2, &[&["get", "secret", "db"], arguments].concat()).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn each_version_of_a_secret_is_printed() {
    let (_server, admin) = with_secret(&[("A", "1"), ("B", "x")]).await;
    let mut lines = Running::start(&admin, &["get", "secret", "db", "--watch", "-o", "dotenv"]);
    let mut one = Running::start(&admin, &["get", "secret", "db.A", "-w", "-o", "env"]);
    let mut json = Running::start(&admin, &["get", "secret", "db", "-w", "-o", "json"]);
    assert_eq!(lines.lines_to("B=").await, ["A='1'", "B='x'"]);
    assert_eq!(lines.line().await, "");
    assert_eq!(one.lines_to("A=").await, ["export A='1'"]);
    let first: Value = serde_json::from_str(&object(&mut json).await).unwrap();
    assert_eq!(first["spec"]["data"]["A"], "MQ==");
    admin.ok(&["set", "secret", "other.A", "not-watched"]).await;
    admin.ok(&["set", "secret", "db.A", "2"]).await;
    assert_eq!(lines.lines_to("B=").await, ["A='2'", "B='x'"]);
    assert_eq!(one.lines_to("A=").await.last().unwrap(), "export A='2'");
    let second: Value = serde_json::from_str(&object(&mut json).await).unwrap();
    assert_eq!(second["spec"]["data"]["A"], "Mg==");
    // A version that cannot be printed does not end the command.
    admin.ok(&["set", "secret", "db.no-name", "x"]).await;
    lines.error_line("this version of the secret is not printed").await;
    admin.ok(&["delete", "secret", "db"]).await;
    lines.error_line("the secret db was deleted").await;
    admin.ok(&["set", "secret", "db.C", "new"]).await;
    assert_eq!(lines.lines_to("C=").await.last().unwrap(), "C='new'");
}

/// The next JSON object of a command that prints several.
async fn object(running: &mut Running) -> String {
    let mut text = String::new();
    loop {
        let line = running.line().await;
        text.push_str(&line);
        if line == "}" {
            return text;
        }
    }
}

#[tokio::test]
async fn a_command_gets_the_values_in_its_environment_alone() {
    let (_server, admin) = with_secret(&[("PASSWORD", "hush-1"), ("tls.crt", "hush-2")]).await;
    admin.ok(&["set", "secret", "mail.TOKEN", "hush-3"]).await;
    let admin = admin.clone().with("POSTERN_ACCESS_KEY", &admin_key(&admin)).with("OWN", "own");
    // The arguments of a process, and of its parent, are in /proc.
    let script = "echo $PASSWORD $CERT $TOKEN $OWN [$POSTERN_ACCESS_KEY]; cat /proc/$$/cmdline /proc/$PPID/cmdline; exit 7";
    for on_change in ["ignore", "restart"] {
        let arguments = [
            "run",
            "--secret",
            "db",
            "--secret",
            "mail.TOKEN",
            "--map",
            "tls.crt=CERT",
            "--on-change",
            on_change,
            "--debug",
            "--",
            "sh",
            "-c",
            script,
        ];
        let output = admin.run(&arguments).await;
        assert_eq!(output.code, 7, "the code of the command: {}", output.err);
        let (line, arguments) = output.text().split_once('\n').unwrap();
        assert_eq!(line, "hush-1 hush-2 hush-3 own []");
        assert!(arguments.contains("cmdline") && !arguments.contains("hush"), "{arguments}");
        assert!(!output.err.contains("hush"), "{}", output.err);
    }
    let found = std::process::Command::new("grep")
        .args(["-rl", "hush-", admin.path().to_str().unwrap()])
        .output();
    assert_eq!(String::from_utf8(found.unwrap().stdout).unwrap(), "", "no file has a value");
}

/// The access key of the kubeconfig.
fn admin_key(admin: &CliUser) -> String {
    let command = admin.command(&[]);
    let path =
        command.as_std().get_envs().find(|(name, _)| *name == "KUBECONFIG").unwrap().1.unwrap();
    postern_tests::Kubeconfig::read(std::path::Path::new(path)).unwrap().token
}

#[tokio::test]
async fn a_command_that_cannot_run_says_why() {
    let (_server, admin) = with_secret(&[("A", "hush"), ("b-c", "hush")]).await;
    let run = |more: &[&'static str]| -> Vec<&'static str> {
        [&["run", "--secret", "db"], more].concat()
    };
    let said = admin.fails(1, &run(&["--", "true"])).await;
    assert!(
        said.contains("not the name of a variable: b-c") && said.contains("--map b-c=B_C"),
        "{said}"
    );
    let said = admin.fails(1, &run(&["--map", "b-c=A", "--", "true"])).await;
    assert!(said.contains("two keys become the variable A"), "{said}");
    let said = admin.fails(1, &run(&["--map", "b-c=", "--secret", "absent", "--", "true"])).await;
    assert!(said.contains("\"absent\" not found"), "{said}");
    for on_change in ["ignore", "restart"] {
        let arguments = run(&["--map", "b-c=", "--on-change"]);
        let arguments = [&arguments[..], &[on_change, "--", "/absent/command"]].concat();
        let said = admin.fails(127, &arguments).await;
        assert!(said.contains("cannot run /absent/command"), "{said}");
        let said = admin.fails(126, &[&arguments[..arguments.len() - 1], &["/"]].concat()).await;
        assert!(said.contains("cannot run /: "), "{said}");
    }
    for (arguments, wanted) in [
        (&["run", "--", "true"][..], "--secret"),
        (&["run", "--secret", "db"], "COMMAND"),
        (&["run", "--secret", "db", "true"], "COMMAND"),
        (&["run", "--secret", "db", "--on-change", "signal:KILL", "--", "true"], "HUP"),
        (&["run", "--secret", "db", "--access-key", "-", "--", "true"], "standard input"),
    ] {
        let said = admin.fails(2, arguments).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

/// Otherwise a user that can write the secret, and not read it, would run code where its values are
/// used.
#[tokio::test]
async fn a_writer_of_a_secret_runs_no_code_where_it_is_used() {
    let (_server, admin) = with_secret(&[("A", "1")]).await;
    let injected = admin.file("injected.sh", "touch injected");
    let mut running = service(&admin, "restart");
    assert_eq!(running.line().await, "value 1");
    admin.ok(&["set", "secret", "db.BASH_ENV", &injected]).await;
    // The running command keeps its values, and is not restarted.
    running.error_line("change how programs start are not set: BASH_ENV").await;
    running.error_line("goes on with the earlier values").await;
    let safe = ["run", "--secret", "db", "--only", "A", "--", "bash", "-c", "echo $A $BASH_ENV"];
    assert_eq!(admin.ok(&safe).await, "1\n");
    for arguments in [
        &["run", "--secret", "db", "--", "bash", "-c", "echo ran"][..],
        &["run", "--secret", "db", "--on-change", "restart", "--", "bash", "-c", "echo ran"],
        &["run", "--secret", "db.BASH_ENV", "--", "bash", "-c", "echo ran"],
        &["get", "secret", "db", "-o", "env"],
        &["get", "secret", "db", "-o", "dotenv"],
    ] {
        let output = admin.run(arguments).await;
        assert_eq!((output.code, output.text()), (1, ""), "{arguments:?}");
        let hints = ["BASH_ENV", "--only", "--map BASH_ENV="];
        assert!(hints.iter().all(|hint| output.err.contains(hint)), "{}", output.err);
    }
    let script = admin.ok(&["get", "secret", "db", "-o", "env", "--only", "A"]).await;
    assert_eq!(script, "export A='1'\n");
    assert!(!admin.path().join("injected").exists());
    // A caller that names the variable gets it.
    let mapped = ["run", "--secret", "db", "--map", "BASH_ENV=BASH_ENV", "--"];
    let mapped = [&mapped[..], &["bash", "-c", "echo ${BASH_ENV##*/}"]].concat();
    assert_eq!(admin.ok(&mapped).await, "injected.sh\n");
    // Without the key, changes reach the command again.
    admin.ok(&["delete", "secret", "db"]).await;
    running.error_line("was deleted").await;
    admin.ok(&["set", "secret", "db.A", "2"]).await;
    assert_eq!(running.line().await, "term");
    assert_eq!(running.line().await, "value 2");
    running.signal(Signal::TERM);
    assert_eq!(running.line().await, "term");
    assert_eq!(running.ended().await.0.code(), Some(3));
}

/// Prints its value, and each signal that it gets, until SIGTERM. It waits for input that never comes. Bash can
/// miss a signal just before it reads, so it reads again after a second.
const SERVICE: &str = "exec 3<>fifo; trap 'echo hup' HUP; trap 'echo usr1' USR1; \
                       trap 'echo term; exit 3' TERM; echo value $A; while read -r -t 1 x <&3 || :; do :; done";

/// A command that runs [`SERVICE`].
fn service(admin: &CliUser, on_change: &str) -> Running {
    let fifo = admin.path().join("fifo");
    if !fifo.exists() {
        assert!(std::process::Command::new("mkfifo").arg(fifo).status().unwrap().success());
    }
    Running::start(
        admin,
        &["run", "--secret", "db", "--on-change", on_change, "--", "bash", "-c", SERVICE],
    )
}

#[tokio::test]
async fn a_command_is_restarted_with_the_new_values() {
    let (_server, admin) = with_secret(&[("A", "1")]).await;
    let mut running = service(&admin, "restart");
    assert_eq!(running.line().await, "value 1");
    admin.ok(&["set", "secret", "db.A", "2"]).await;
    assert_eq!(running.line().await, "term", "it may end in order");
    assert_eq!(running.line().await, "value 2");
    // A key that is no variable does not end the command.
    admin.ok(&["set", "secret", "db.no-variable", "x"]).await;
    running.error_line("goes on with the earlier values").await;
    admin.ok(&["delete", "secret", "db"]).await;
    running.error_line("was deleted").await;
    admin.ok(&["set", "secret", "db.A", "3"]).await;
    assert_eq!(running.line().await, "term");
    assert_eq!(running.line().await, "value 3");
    running.signal(Signal::TERM);
    assert_eq!(running.line().await, "term");
    assert_eq!(running.ended().await.0.code(), Some(3));
}

#[tokio::test]
async fn a_command_gets_signals() {
    let (_server, admin) = with_secret(&[("A", "1")]).await;
    let mut running = service(&admin, "signal:HUP");
    assert_eq!(running.line().await, "value 1");
    admin.ok(&["set", "secret", "db.A", "2"]).await;
    assert_eq!(running.line().await, "hup");
    running.signal(Signal::USR1);
    assert_eq!(running.line().await, "usr1");
    running.signal(Signal::TERM);
    assert_eq!(running.line().await, "term");
    assert_eq!(running.ended().await.0.code(), Some(3));

    // Without --on-change, the command is the process itself.
    let mut running = service(&admin, "ignore");
    assert_eq!(running.line().await, "value 2");
    running.signal(Signal::USR1);
    assert_eq!(running.line().await, "usr1");
    running.signal(Signal::KILL);
    assert_eq!(running.ended().await.0.signal(), Some(9));
    // A signal that ends a supervised command has the exit code of shells.
    let killed = ["run", "--secret", "db", "--on-change=restart", "--", "sh", "-c", "kill -9 $$"];
    assert_eq!(admin.run(&killed).await.code, 128 + 9);
}
