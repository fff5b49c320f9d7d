//! Logging in and out, and which server a command goes to.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postern_tests::cli::CliUser;
use postern_tests::{Kubeconfig, Server, TlsServer};

use crate::cli::{admin, authority, url};

const OTHERS: &str = "\
apiVersion: v1
kind: Config
current-context: work
clusters: [{name: work, cluster: {server: 'https://127.0.0.1:1', future: kept}}]
contexts: [{name: work, context: {cluster: work, user: me}}]
users: [{name: me, user: {token: not-ours}}]
";

fn context_of(server: &Server) -> String {
    format!("postern_{}_admin", server.kubeconfig().authority_of_server().replace(':', "_"))
}

#[tokio::test]
async fn a_login_serves_kubectl_too_and_keeps_what_is_there() {
    let server = Server::start().await;
    let user = CliUser::new().with("POSTERN_ACCESS_KEY", &server.kubeconfig().token);
    let _ = user.file(".kube/config", OTHERS);
    let ca = authority(&user, &server);
    let base = format!("{}/kubernetes/management/", url(&server));
    user.ok(&["login", &base, "--ca-file", &ca]).await;
    let written = Kubeconfig::read(&user.kubeconfig()).unwrap();
    assert_eq!(&written, server.kubeconfig(), "the login is the same as the first one");
    let text = std::fs::read_to_string(user.kubeconfig()).unwrap();
    assert!(text.contains("future: kept") && text.contains("not-ours"), "{text}");
    let mode = std::fs::metadata(user.kubeconfig()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut kubectl = server.kubectl().command(&["get", "sharedsecrets"]);
    kubectl.env("KUBECONFIG", user.kubeconfig());
    let said = server.kubectl().run_command(kubectl).await;
    assert!(said.ok && said.err.contains("platform"), "{said:?}");

    let logged_out = CliUser::new().with("KUBECONFIG", user.kubeconfig().to_str().unwrap());
    assert!(logged_out.ok(&["whoami"]).await.contains(&context_of(&server)));
    logged_out.ok(&["logout"]).await;
    let text = std::fs::read_to_string(user.kubeconfig()).unwrap();
    assert!(!text.contains("postern_") && !text.contains(&server.kubeconfig().token), "{text}");
    assert!(text.contains("not-ours"), "{text}");
    assert!(logged_out.fails(1, &["whoami"]).await.contains("not logged in"));
}

#[tokio::test]
async fn nothing_is_written_before_the_key_is_known_to_work() {
    let server = Server::start().await;
    let (url, user) = (url(&server), CliUser::new());
    let ca = authority(&user, &server);
    let wrong = "pst_01234567_89ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmno_2dbcmX";
    let login = ["login", &url, "--ca-file", &ca, "--access-key", "-"];
    let output = user.run_with(&login, wrong.as_bytes()).await;
    assert_eq!(output.code, 1);
    assert!(
        output.err.contains("checksum") && output.err.contains("nothing was written"),
        "{output:?}"
    );
    assert!(!output.all_output().contains(&wrong[4..]), "{output:?}");
    let said = user.fails(2, &login).await;
    assert!(said.contains("is empty"), "{said}");
    let said = user.fails(2, &["login", &url]).await;
    assert!(said.contains("--access-key -"), "{said}");
    let key = &server.kubeconfig().token;
    let keyed = user.clone().with("POSTERN_ACCESS_KEY", key);
    let said = keyed.fails(1, &["login", &url]).await;
    assert!(said.contains("not trusted") && said.contains("--ca-file"), "{said}");
    let said = keyed.fails(1, &["login", &url, "--ca-file", &user.file("x", "x")]).await;
    assert!(said.contains("no certificate"), "{said}");
    let said = keyed.fails(1, &["login", "https://127.0.0.1:1"]).await;
    assert!(said.contains("refused") && said.contains("8443"), "{said}");
    for wrong in ["http://h", "ftp://h", "https://h:port", "", "https://u@h"] {
        let said = keyed.fails(2, &["login", wrong]).await;
        assert!(said.contains("https://") || said.contains("number"), "{wrong}: {said}");
    }
    assert!(!user.kubeconfig().exists());
    let _ = user.file(".kube/config", OTHERS);
    let said = keyed.fails(1, &["login", &url, "--ca-file", &ca, "--context", "work"]).await;
    assert!(said.contains("did not write") && said.contains("--context"), "{said}");
    assert_eq!(std::fs::read_to_string(user.kubeconfig()).unwrap(), OTHERS);
    for broken in ["- a\n", "users: 7\n", "a: {\n"] {
        let _ = user.file(".kube/config", broken);
        let said = keyed.fails(1, &["login", &url, "--ca-file", &ca]).await;
        assert!(said.contains("is no kubeconfig") && !said.contains(key), "{said}");
        assert_eq!(std::fs::read_to_string(user.kubeconfig()).unwrap(), broken);
    }
}

/// CVE-2025-67601: a login verifies the server. A false server gets no request, and so no key.
#[tokio::test]
async fn cve_2025_67601_a_login_verifies_the_server_before_it_sends_the_key() {
    let server = Server::start().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let other = TlsServer::start(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    })
    .await;
    let user = CliUser::new().with("POSTERN_ACCESS_KEY", &server.kubeconfig().token);
    let url = format!("https://{}", other.address());
    let of_server = authority(&user, &server);
    for more in [&[][..], &["--ca-file", &of_server]] {
        let login = [&["login", &*url], more].concat();
        let said = user.fails(1, &login).await;
        assert!(said.contains("not trusted"), "{said}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "no connection came to be");
    assert!(!user.kubeconfig().exists());
    // No flag and no variable leaves it out.
    let insecure = ["login", &url, "--insecure-skip-tls-verify"];
    user.fails(2, &insecure).await;
    // With the server's authority in `--ca-file`, the client sends a request: the count shows it.
    let ca = user.file("other.pem", other.authority());
    user.fails(1, &["login", &url, "--ca-file", &ca]).await;
    assert!(asked.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn a_logout_deletes_the_key_that_was_made_for_the_login_and_no_other() {
    let server = Server::start().await;
    let (admin, user) = (admin(&server), CliUser::new());
    let (url, ca) = (url(&server), authority(&user, &server));
    admin.ok(&["create", "user", "ada"]).await;
    let log_in = async |name: &str, kind: &str| {
        let text = format!(
            "apiVersion: management.platform.sh/v1\nkind: OwnedAccessKey\nmetadata: {{name: {name}}}\n\
             spec: {{user: ada, type: {kind}}}\n"
        );
        let yaml = admin.ok(&["create", "-f", &admin.file(name, text), "-o", "yaml"]).await;
        let key = yaml.split_once("  key: ").unwrap().1.lines().next().unwrap().to_owned();
        let login = ["login", &url, "--ca-file", &ca];
        user.clone().with("POSTERN_ACCESS_KEY", &key).ok(&login).await;
    };
    // The key in the environment is not the login's.
    let elsewhere = user.clone().with("POSTERN_ACCESS_KEY", &server.kubeconfig().token);
    log_in("session", "Login").await;
    let output = elsewhere.run(&["logout"]).await;
    assert!(output.code == 0 && output.err.contains("session was deleted"), "{}", output.err);
    admin.fails(1, &["get", "accesskey", "session"]).await;

    log_in("gone", "Login").await;
    admin.ok(&["delete", "accesskey", "gone"]).await;
    let output = user.run(&["logout"]).await;
    assert!(output.code == 0 && !output.err.contains("warning:"), "{}", output.err);

    log_in("own", "User").await;
    let output = user.run(&["logout"]).await;
    assert!(output.code == 0 && !output.err.contains("deleted"), "{}", output.err);
    admin.ok(&["get", "accesskey", "own"]).await;

    log_in("unreachable", "Login").await;
    server.stop().await;
    let output = user.run(&["logout"]).await;
    assert!(output.code == 0 && output.err.contains("may still be valid"), "{}", output.err);
    assert!(output.err.contains("logged out"), "{}", output.err);
}

#[tokio::test]
async fn the_administrators_only_login_is_not_removed() {
    let server = Server::start().await;
    let admin = admin(&server);
    let before = std::fs::read(server.home().kubeconfig()).unwrap();
    let said = admin.fails(1, &["logout"]).await;
    assert!(said.contains("only copy"), "{said}");
    assert_eq!(std::fs::read(server.home().kubeconfig()).unwrap(), before);
}

#[tokio::test]
async fn a_server_is_chosen_by_flags_the_environment_or_a_context() {
    let server = Server::start().await;
    let login_data = server.kubeconfig();
    let user = CliUser::new();
    let ca = authority(&user, &server);
    let direct = user
        .clone()
        .with("POSTERN_SERVER", &url(&server))
        .with("POSTERN_ACCESS_KEY", &login_data.token)
        .with("POSTERN_CA_FILE", &ca);
    assert!(direct.ok(&["whoami"]).await.contains("platform"));
    let said = direct.fails(1, &["whoami", "--server", "https://127.0.0.1:1"]).await;
    assert!(said.contains("127.0.0.1:1"), "a flag wins over the environment: {said}");
    let said = user.fails(2, &["whoami", "--server", &url(&server)]).await;
    assert!(said.contains("requires an access key"), "{said}");

    let file = server.home().kubeconfig();
    let by_flag = ["whoami", "--kubeconfig", file.to_str().unwrap(), "--context", "postern"];
    assert!(user.ok(&by_flag).await.contains("Context:"));
    let said = user.fails(1, &[&by_flag[..4], &["posten"]].concat()).await;
    assert!(said.contains("did you mean postern?"), "{said}");
    let said = user.fails(1, &["whoami", "--kubeconfig", "absent"]).await;
    assert!(said.contains("absent"), "{said}");

    let work = user.file("work", OTHERS);
    let both = user.with("KUBECONFIG", &format!("{work}:/absent:{}", file.display()));
    let said = both.fails(1, &["whoami"]).await;
    assert!(
        said.contains("does not name a Postern server") && said.contains("--context postern"),
        "{said}"
    );
    assert!(both.ok(&["whoami", "--context", "postern"]).await.contains("admin"));
}

#[tokio::test]
async fn a_key_on_the_command_line_brings_a_warning() {
    let server = Server::start().await;
    let (url, user, key) = (url(&server), CliUser::new(), &server.kubeconfig().token);
    let ca = authority(&user, &server);
    for command in [&["login", &url][..], &["whoami", "--server", &url]] {
        let command = [command, &["--ca-file", &ca]].concat();
        let output = user.run(&[&command[..], &["--access-key", key]].concat()).await;
        assert_eq!(output.code, 0, "{}", output.all_output());
        let warnings: Vec<_> =
            output.err.lines().filter(|line| line.starts_with("warning: ")).collect();
        assert_eq!(warnings.len(), 1, "{}", output.err);
        for wanted in ["process list", "--access-key -", "POSTERN_ACCESS_KEY"] {
            assert!(warnings[0].contains(wanted), "{}", output.err);
        }
        assert!(!output.all_output().contains(key), "{}", output.err);

        let piped = [&command[..], &["--access-key", "-"]].concat();
        let output = user.run_with(&piped, key.as_bytes()).await;
        assert!(output.code == 0 && !output.err.contains("warning:"), "{}", output.err);
        let keyed = user.clone().with("POSTERN_ACCESS_KEY", key);
        let output = keyed.run(&command).await;
        assert!(output.code == 0 && !output.err.contains("warning:"), "{}", output.err);
    }
}

#[tokio::test]
async fn a_missing_file_in_kubeconfig_is_named() {
    let server = Server::start().await;
    let user = CliUser::new();
    let missing = user.path().join("missing").display().to_string();
    let file = server.home().kubeconfig();
    let both = user.clone().with("KUBECONFIG", &format!("{missing}:{}", file.display()));
    let output = both.run(&["whoami", "-o", "name"]).await;
    assert_eq!((output.code, output.text()), (0, "user.management.platform.sh/admin\n"));
    let note = format!("note: ignored: files in KUBECONFIG that do not exist: {missing}\n");
    assert_eq!(output.err, note);
    let alone = user.clone().with("KUBECONFIG", &missing);
    for command in [&["whoami"][..], &["list", "users"], &["logout"]] {
        let said = alone.fails(1, command).await;
        assert!(said.contains("names no file that exists") && said.contains(&missing), "{said}");
        assert!(said.contains("postern login"), "{said}");
    }
    // The default need not exist, and `login` creates the missing file.
    assert!(!user.fails(1, &["whoami"]).await.contains("KUBECONFIG"));
    let (url, ca) = (url(&server), authority(&user, &server));
    let keyed = alone.clone().with("POSTERN_ACCESS_KEY", &server.kubeconfig().token);
    let output = keyed.run(&["login", &url, "--ca-file", &ca]).await;
    assert!(output.code == 0 && !output.err.contains("note:"), "{}", output.err);
    assert!(alone.run(&["whoami"]).await.err.is_empty());
}
