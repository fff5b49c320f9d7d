//! Commands that make no sense, help, completions and manual pages: all without a server.

use postern_tests::cli::CliUser;

/// Runs a command that has to fail before any request, with these words in the error.
async fn makes_no_sense(user: &CliUser, arguments: &[&str], wanted: &str) {
    let said = user.fails(2, arguments).await;
    assert!(said.contains(wanted), "{arguments:?}: {said}");
    assert!(!said.contains("hush") && !said.contains("panicked"), "{arguments:?}: {said}");
}

#[tokio::test]
async fn what_makes_no_sense_exits_with_2_and_says_why() {
    let user = CliUser::new();
    for (arguments, wanted) in [
        (&["get"][..], "KIND"),
        (&["get", "secret", "Upper.key"], "NAME"),
        (&["get", "secret", "db."], "first dot"),
        (&["get", "secret", "db", "-o", "value"], "db.KEY"),
        (&["get", "secret", "db", "-o", "xml"], "json"),
        (&["get", "secret", "db.key", "--all"], "--all"),
        (&["get", "secret", "db", "--all", "-o", "json"], "cannot be used with"),
        (&["get", "secret", "db", "-n", "a.b"], "--namespace"),
        (&["get", "secret", "db", "--timeout", "0"], "greater than zero"),
        (&["get", "secret", "db", "--server", "https://h", "--context", "x"], "cannot be used"),
        (&["get", "secret", "db.a", "--whole", "-o", "value"], "db.a --key KEY"),
        (&["get", "secret", "db", "--key", "a/b"], "--key"),
        (&["get", "secret", "db", "--whole", "--key", "a"], "cannot be used with"),
        (&["set", "secret", "db", "hush"], "db.KEY"),
        (&["run", "--secret", "db", "--grace", "5s", "--", "true"], "--on-change restart"),
        (&["run", "--secret", "db", "--map", "a=X", "--map", "a=Y", "--", "true"], "twice"),
        (&["get", "users", "--show-labels", "-o", "json"], "--show-labels"),
        (&["get", "users", "--show-labels", "-o", "name"], "--show-labels"),
        (&["set", "secret", "db.A", "hush", "--key", "x"], "lower"),
        (&["set", "secret", "db.key", "hush", "--from-file", "x"], "cannot be used with"),
        (&["set", "secret", "db.key", "hush", "more-hush"], "after --"),
        (&["set", "secret", "db.key", "--hush"], "after --"),
        (&["set", "secret", "db.key", "--access-key", "-"], "cannot be both"),
        (&["list", "secrets", "-A", "-n", "x"], "cannot be used with"),
        (&["create", "accesskey", "UPPER"], "NAME"),
        (&["create", "accesskey", "--ttl", "soon"], "720h"),
        (&["create", "accesskey", "--ttl", "-5m"], "negative"),
        (&["create", "accesskey", "--ttl", "1.5h"], "720h"),
        (&["create", "accesskey", "--user", "a", "--team", "b"], "cannot be used with"),
        (&["create", "user", "a/b"], "NAME"),
        (&["create", "team", "a", "--users", "B"], "--users"),
        (&["delete", "secret", "a/b"], "NAME"),
        (&["delete", "team"], "postern list teams"),
        (&["rotate", "key"], "postern list accesskeys"),
        (&["get", "self"], "needs the NAME"),
        (&["get", "usre", "ada"], "did you mean user?"),
        (&["get", "user", "ada", "-o", "xml"], "wide, json, yaml, name"),
        (&["list", "self"], "unrecognized subcommand"),
        (&["list", "users", "-A"], "unexpected argument '-A'"),
        (&["create", "usr", "ada"], "'user'"),
        (&["completion", "powershell"], "bash"),
        (&["connect", "cluster"], "NAME"),
        (&["connect", "cluster", "a/b"], "NAME"),
        (&["connect", "cluster", "c", "--name", ""], "must not be empty"),
        (&["connect", "cluster", "c", "--ttl", "0"], "greater than zero"),
        (&["connect", "cluster", "c", "--ttl", "5m", "--gateway"], "cannot be used with"),
        (&["connect", "cluster", "c", "--set-current=maybe"], "true, false"),
        (&["connect", "cluster", "c", "-o", "wide"], "json, yaml, name"),
        (&["connect", "space", "s"], "--project"),
        (&["connect", "virtualcluster", "v", "--project", "P"], "--project"),
        (&["connect", "node", "n"], "unrecognized subcommand"),
        (&["login", "https://h", "pst_hush"], "after --"),
        (&["login", "https://h", "--access-key", "hush hush"], "one word"),
        (&["whoami", "--access-key", "hush\u{7f}", "--server", "https://h"], "one word"),
        (&["frobnicate"], "unrecognized subcommand"),
        (&["wait", "space/a", "--for=delete"], "  kubectl wait spaceinstance/a --for=delete\n"),
        (
            &["-n", "x", "diff", "-f", "a"],
            "  kubectl diff --server-side --field-manager=postern -n x -f a\n",
        ),
        (&["top"], "  kubectl get --raw /metrics\n"),
        (
            &["get", "users", "-o", "custom-columns=A:.kind"],
            "  kubectl get users -o custom-columns=A:.kind\n",
        ),
    ] {
        makes_no_sense(&user, arguments, wanted).await;
    }
    let said = user.fails(1, &["list", "secrets"]).await;
    assert!(said.contains("not logged in") && said.contains("postern login"), "{said}");
    let said = user.clone().with("KUBECONFIG", "").fails(1, &["logout"]).await;
    assert!(said.contains("not logged in"), "{said}");
    assert!(!user.kubeconfig().exists(), "no file is created");
}

#[tokio::test]
async fn questions_and_changes_of_access_that_make_no_sense_exit_with_2() {
    let user = CliUser::new();
    for (arguments, wanted) in [
        (&["share", "secret", "db"][..], "--all-users"),
        (&["share", "secret", "db", "--user", "ada", "--verbs", "Get"], "--verbs"),
        (&["share", "secret", "db", "--user", "a/b"], "--user"),
        (&["share", "user", "ada", "--user", "bob"], "unrecognized subcommand"),
        (&["unshare", "secret", "db"], "--team"),
        (&["can-i", "get"], "RESOURCE"),
        (&["can-i", "Get", "secrets"], "lower case"),
        (&["can-i", "get", "Secrets"], "begins with a slash"),
        (&["can-i", "get", "secrets/"], "must not be empty"),
        (&["can-i", "get", "secrets", "--as", "ada", "--as-team", "red"], "cannot be used"),
        (&["can-i", "get", "secrets", "--as", "ada", "--with-key", "ci"], "cannot be used"),
        (&["can-i", "get", "secrets", "-A", "-n", "x"], "cannot be used"),
        (&["who-can", "get"], "RESOURCE"),
        (&["create", "accesskey", "--space", "dev"], "PROJECT/"),
        (&["create", "accesskey", "--read-only", "--space", "web/dev"], "cannot be used"),
        (&["create", "accesskey", "--read-only", "--project", "*"], "cannot express"),
        (&["rotate", "accesskey", "ci", "--overlap", "0"], "greater than zero"),
        (&["rotate", "accesskey", "ci", "--overlap", "-5m"], "negative"),
        (&["rotate", "accesskey", "ci", "--new-name", "cj"], "--overlap"),
        (&["create", "project", "a/b"], "NAME"),
        (&["create", "project", "web", "--member", "ada"], "user/NAME"),
        (&["create", "project", "web", "--member", "user/ada:"], "ClusterRole"),
        (&["add", "member", "web"], "--team"),
        (&["add", "member", "web", "--user", "ada", "--team", "red"], "cannot be used"),
        (&["remove", "member", "--user", "ada"], "PROJECT"),
    ] {
        makes_no_sense(&user, arguments, wanted).await;
    }
}

#[tokio::test]
async fn help_completions_and_manual_pages() {
    // Values of environment variables must not be in them.
    let user = CliUser::new().with("POSTERN_ACCESS_KEY", "pst_hush").with("NO_COLOR", "1");
    let help = user.ok(&["create", "accesskey", "--help"]).await;
    for wanted in [
        "--ttl",
        "--user",
        "--team",
        "--as-group",
        "POSTERN_ACCESS_KEY",
        "KUBECONFIG",
        "standard output",
    ] {
        assert!(help.contains(wanted), "{wanted}: {help}");
    }
    assert!(!help.contains("hush"));
    for (verb, wanted) in [("share", "secret"), ("list", "namespaces"), ("delete", "accesskey")] {
        let help = user.ok(&[verb, "--help"]).await;
        let line = help.lines().find(|line| line.trim_start().starts_with(wanted));
        let description = user.ok(&[verb, wanted, "-h"]).await;
        let description = description.lines().next().unwrap();
        assert!(line.is_some_and(|line| line.contains(description)), "{description}: {help}");
    }
    let help = user.ok(&["delete", "accesskey", "--help"]).await;
    assert!(help.contains("bearer credential"), "the kind's own words: {help}");
    for (kind, wanted) in [
        ("user", "The access keys of the user stop working at once"),
        ("team", "The access keys of the team stop working at once"),
        ("accesskey", "The key stops working at once"),
        ("namespace", "Everything in the namespace"),
    ] {
        let help = user.ok(&["delete", kind, "--help"]).await;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(wanted), "{kind}: {help}");
        assert!(!help.replace("...", "").contains(".."), "{kind}: {help}");
    }
    for (command, wanted) in [
        ("login", "checked against the server"),
        ("logout", "of type Login"),
        ("create", "several documents"),
        ("get", "NAME ends at the first dot"),
        ("apply", "server-side apply"),
        ("edit", "the file is kept"),
        ("run", "POSTERN_ACCESS_KEY is not passed on"),
        ("can-i", "1 for no"),
        ("who-can", "incomplete"),
    ] {
        let help = user.ok(&[command, "--help"]).await;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(wanted), "the whole text: {help}");
    }
    for (shell, wanted) in [("bash", "-F _postern"), ("zsh", "#compdef"), ("fish", "complete -c")] {
        let script = user.ok(&["completion", shell]).await;
        assert!(script.contains(wanted) && script.contains("__complete"), "{shell}");
    }
    assert!(user.ok(&["man"]).await.contains(".TH postern 1"));
    let pages = user.path().join("man/deep");
    user.ok(&["man", "--out", pages.to_str().unwrap()]).await;
    for page in
        ["postern.1", "postern-login.1", "postern-get.1", "postern-list-teams.1", "postern-serve.1"]
    {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".TH") && !text.contains("hush"), "{page}");
    }
    let file = user.file("file", "");
    let said = user.fails(1, &["man", "--out", &file]).await;
    assert!(said.contains("cannot write"), "{said}");
}

#[tokio::test]
async fn the_version_is_printed() {
    assert!(CliUser::new().ok(&["--version"]).await.starts_with("postern "));
}

#[tokio::test]
async fn completion_has_all_commands_and_its_script_is_one_of_bash() {
    let user = CliUser::new();
    for (words, wanted) in [
        (&[""][..], &["describe", "edit", "apply", "run", "serve", "storage"][..]),
        (&["get", "-o", ""], &["jsonpath=", "yaml"]),
        (&["run", "--"], &["--on-change", "--secret"]),
        (&["serve", "--"], &["--data-dir", "--host"]),
    ] {
        let found = user.ok(&[&["__complete", "--"][..], words].concat()).await;
        let found: Vec<&str> = found.lines().map(|l| l.split('\t').next().unwrap()).collect();
        for word in wanted {
            assert!(found.contains(word), "{words:?}: {word} is not in {found:?}");
        }
        assert!(!found.contains(&"__complete") && !found.contains(&"custom-columns"));
    }
    let script = user.file("postern.bash", user.ok(&["completion", "bash"]).await);
    let checked = std::process::Command::new("bash").args(["-n", &script]).status().unwrap();
    assert!(checked.success());
}
