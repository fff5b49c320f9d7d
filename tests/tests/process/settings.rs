//! Settings: flags, environment, one file, and rejected values.

use std::path::Path;

use postern_tests::{Ended, Home, Kubeconfig, Setup};

fn flags_of(help: &str) -> Vec<&str> {
    let words = help.split_whitespace().filter_map(|word| word.strip_prefix("--"));
    // `--flag[=<VALUE>]`: the value may be left out.
    let mut flags: Vec<_> = words
        .map(|word| word.split('[').next().unwrap_or(word))
        .map(|word| word.trim_end_matches(|c: char| !c.is_alphanumeric()))
        .collect();
    flags.sort_unstable();
    flags.dedup();
    flags
}

#[tokio::test]
async fn help_explains_every_setting() {
    let home = Home::new();
    let ended = Setup::bare(&home).argument("serve").argument("--help").run_to_end().await;
    assert!(ended.status.success());
    let help = &ended.stdout;
    for flag in flags_of(help) {
        if !["help", "version"].contains(&flag) {
            let variable = format!("POSTERN_{}", flag.to_uppercase().replace('-', "_"));
            assert!(help.contains(&variable), "--{flag} has no {variable}:\n{help}");
        }
    }
    for flag in ["data-dir", "key-dir", "listen", "history", "config", "log"] {
        assert!(help.contains(&format!("--{flag} ")), "--{flag} is not explained:\n{help}");
    }
    for default in ["127.0.0.1:8443", "postern-data", "5m"] {
        assert!(help.contains(default), "the default {default} is missing:\n{help}");
    }
}

async fn refused(setup: Setup) -> String {
    let Ended { status, stdout, stderr } = setup.run_to_end().await;
    assert!(!status.success(), "it was not refused: {stdout}{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

#[tokio::test]
async fn an_error_names_the_wrong_setting() {
    let home = Home::new();
    for (flag, value, named) in [
        ("--listen", "nowhere", "--listen"),
        ("--listen", "127.0.0.1:99999", "--listen"),
        ("--history", "soon", "history"),
        ("--history", "-5m", "history"),
        ("--config", "absent.yaml", "absent.yaml"),
        ("--no-such-flag", "x", "--no-such-flag"),
        ("--external-url", "postern.example.com", "--external-url"),
    ] {
        let setup =
            Setup::bare(&home).argument("serve").argument("--data-dir").argument(home.data());
        let message = refused(setup.argument(format!("{flag}={value}"))).await;
        assert!(message.contains(named), "{flag} {value}: {message}");
        assert!(!home.data().exists(), "nothing is made before the settings are right");
    }
    let message = refused(Setup::on(&home).environment("POSTERN_HISTORY", "soon")).await;
    assert!(message.contains("history"), "{message}");
}

#[tokio::test]
async fn durations_are_read_as_in_every_other_flag() {
    let home = Home::new();
    let flags = ["history", "shutdown-delay", "drain-timeout", "access-key-max-ttl"];
    let of_tokens = ["endpoint-token-max-ttl", "endpoint-token-key-rotation", "max-offline"];
    for flag in flags.into_iter().chain(["expired-key-retention"]).chain(of_tokens) {
        for (value, wanted) in [
            ("soon", "write a duration as 720h, 30m, 1h30m or 30d, or as plain seconds"),
            ("-5m", "a duration must not be negative"),
            ("367d", "it is too long: at most 366d"),
            ("0d", "the duration must be greater than zero"),
        ] {
            let setup = Setup::bare(&home).argument("serve").argument("--data-dir");
            let setup = setup.argument(home.data()).argument(format!("--{flag}={value}"));
            let message = refused(setup).await;
            assert!(message.contains(flag) && message.contains(wanted), "{value}: {message}");
        }
    }
    let in_days = Setup::on(&home).argument("--history=1d").argument("--access-key-max-ttl=30d");
    in_days.argument("--drain-timeout=5").start().await.stop().await;
}

fn file(home: &Home, text: &str) -> String {
    let path = home.path().join("postern.yaml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_file_has_settings_and_no_unknown_keys() {
    let home = Home::new();
    for (text, named) in [
        ("listen: 127.0.0.1:0\nhistroy: 5m\n", "histroy"),
        ("listen: 127.0.0.1:0\nlisten: 127.0.0.1:1\n", "listen"),
        ("listen: [1, 2]\n", "listen"),
        ("- listen\n", "postern.yaml"),
        ("listen: {\n", "postern.yaml"),
    ] {
        let setup =
            Setup::bare(&home).argument("serve").argument("--data-dir").argument(home.data());
        let message = refused(setup.argument("--config").argument(file(&home, text))).await;
        assert!(message.contains(named), "{text}: {message}");
        assert!(!home.data().exists(), "nothing is made before the settings are right");
    }
    let text = format!("data-dir: {}\nlisten: 127.0.0.1:0\nlog: debug\n", home.data().display());
    let path = file(&home, &text);
    let server =
        Setup::bare(&home).argument("serve").argument("--config").argument(&path).start().await;
    server.stop().await;
}

#[tokio::test]
async fn flags_override_the_environment_which_overrides_the_file() {
    let home = Home::new();
    let path = file(&home, "listen: 256.0.0.1:0\ndata-dir: /nonexistent/file\n");
    let server = Setup::bare(&home)
        .argument("serve")
        .argument("--listen=127.0.0.1:0")
        .environment(
            "POSTERN_CONFIG",
            file(&home, "listen: 127.0.0.2:0\ndata-dir: /nonexistent/file\n"),
        )
        .environment("POSTERN_LISTEN", "127.0.0.3:0")
        .environment("POSTERN_DATA_DIR", home.data())
        .start()
        .await;
    assert!(server.kubeconfig().server.starts_with("https://127.0.0.1:"));
    assert!(Path::new(&path).exists());
    server.stop().await;
}

#[tokio::test]
async fn without_any_setting_it_uses_the_current_directory() {
    let home = Home::new();
    let server =
        Setup::bare(&home).argument("serve").argument("--listen=127.0.0.1:0").start_unready();
    let kubeconfig = home.path().join("postern-data/admin.kubeconfig");
    postern_tests::wait::until("the kubeconfig", async || Kubeconfig::read(&kubeconfig).ok()).await;
    server.kill();
}
