//! Several keys of a secret in one write, and keys that are removed.

use postern_tests::Server;

use crate::cli::admin;

#[tokio::test]
async fn several_keys_are_set_in_one_write() {
    let server = Server::start().await;
    let admin = admin(&server);
    let file = admin.file("password", "correct horse\n");
    let env_file = admin.file(".env", "# shop\nexport URL='https://shop'\nNOTE=\"two\\nlines\"\n");
    let from_file = format!("cert=@{file}");
    let set = [
        "set",
        "secret",
        "db",
        "user=ada",
        "password=@-",
        &from_file,
        "--from-env-file",
        &env_file,
    ];
    let output = admin.run_with(&[&set[..], &["-o", "name"]].concat(), b"hush").await;
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(output.text(), "sharedsecret.management.platform.sh/db\n");
    assert!(
        output.err.contains("created with the keys NOTE, URL, cert, password, user"),
        "{}",
        output.err
    );
    for (key, wanted) in [
        ("user", "ada"),
        ("password", "hush"),
        ("cert", "correct horse\n"),
        ("URL", "https://shop"),
        ("NOTE", "two\nlines"),
    ] {
        assert_eq!(admin.ok(&["get", "secret", &format!("db.{key}")]).await, wanted);
    }
    // What `get -o dotenv` prints is read again.
    let dotenv = admin.ok(&["get", "secret", "db", "-o", "dotenv"]).await;
    let output = admin
        .run_with(
            &["set", "secret", "copy.v2", "--whole", "--from-env-file", "-"],
            dotenv.as_bytes(),
        )
        .await;
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(admin.ok(&["get", "secret", "copy.v2", "--whole", "-o", "dotenv"]).await, dotenv);
    let version = |text: &str| {
        text.split("resourceVersion: ").nth(1).unwrap().lines().next().unwrap().to_owned()
    };
    let before = admin.ok(&["get", "secret", "db", "-o", "yaml"]).await;
    admin.ok(&["set", "secret", "db", "user=bob", "other=x=y"]).await;
    assert_eq!(admin.ok(&["get", "secret", "db.other"]).await, "x=y");
    assert_eq!(admin.ok(&["get", "secret", "db.password"]).await, "hush");
    assert_ne!(version(&before), version(&admin.ok(&["get", "secret", "db", "-o", "yaml"]).await));
}

#[tokio::test]
async fn what_is_wrong_is_refused_without_its_value() {
    let server = Server::start().await;
    let admin = admin(&server);
    let env_file = admin.file(".env", "a=1\nhush\n");
    let double = admin.file("double.env", "user=hush\n");
    let empty = admin.file("empty.env", "# nothing\n");
    for (arguments, code, wanted) in [
        (&["hush"][..], 2, "value 1 (not printed, because it may be secret) is not KEY=VALUE"),
        (
            &["user=x", "hu/sh=x"],
            2,
            "value 2 (not printed, because it may be secret) has no valid key",
        ),
        (&["user=x", "user=hush"], 2, "may be secret) has the same key as value 1"),
        // A base64 text has the shape of a key without a value.
        (
            &["aHVzaC1odXNo="],
            2,
            "value 1 (not printed, because it may be secret) has no value after =",
        ),
        (&["user=x", "aHVzaA==", "--allow-empty"], 2, "may be secret) has no value after ="),
        (&["a=@-", "b=@-"], 2, "the standard input"),
        (&["password=@hush"], 1, "cannot read the file after password=@"),
        (&["password="], 2, "may be secret) has no value after ="),
        (&["--from-env-file", &env_file], 1, "line 2: it is not NAME=VALUE"),
        (&["user=x", "--from-env-file", &double], 2, "the key user has two values"),
        (&["--from-env-file", &empty], 1, "has no keys"),
        (&[], 2, "no key is given"),
    ] {
        let said = admin.fails(code, &[&["set", "secret", "db"], arguments].concat()).await;
        let is_printed = said.contains("hush") || said.contains("aHVz");
        assert!(said.contains(wanted) && !is_printed, "{arguments:?}: {said}");
    }
    let said = admin.fails(2, &["set", "secret", "db.password", "correct", "hush"]).await;
    assert!(said.contains("db.password is one key") && !said.contains("hush"), "{said}");
    let said =
        admin.fails(2, &["set", "secret", "db.password", "--from-env-file", &env_file]).await;
    assert!(said.contains("--from-env-file has the keys"), "{said}");
    admin.fails(1, &["get", "secret", "db"]).await;
}

#[tokio::test]
async fn keys_are_removed_and_the_others_stay() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["set", "secret", "db", "a=1", "b=2", "c=3", "d.e=4"]).await;
    admin.ok(&["set", "secret", "tls.server", "--key", "crt", "x"]).await;
    let said = admin.fails(1, &["unset", "secret", "db.a", "db.x"]).await;
    assert!(said.contains("has no key x"), "{said}");
    assert_eq!(admin.ok(&["get", "secret", "db.a"]).await, "1");
    // An error about one secret does not stop the others.
    admin.ok(&["set", "secret", "web.a", "1"]).await;
    let said = admin.fails(1, &["unset", "secret", "db.x", "web.a"]).await;
    assert!(said.contains("has no key x") && said.contains("web in the namespace"), "{said}");
    let output = admin.run(&["unset", "secret", "db.a", "db.d.e", "-o", "name"]).await;
    assert_eq!((output.code, output.text()), (0, "sharedsecret.management.platform.sh/db\n"));
    assert!(output.err.contains("lost the keys a, d.e"), "{}", output.err);
    let left = admin.ok(&["get", "secret", "db"]).await;
    assert!(left.contains("b ") && left.contains("c ") && !left.contains("a "), "{left}");
    admin.ok(&["unset", "secret", "db.a", "db.b", "none.x", "--ignore-not-found"]).await;
    let said = admin.fails(1, &["unset", "secret", "tls.server.crt"]).await;
    assert!(said.contains("postern unset secret NAME --key KEY"), "{said}");
    admin.ok(&["unset", "secret", "tls.server", "--key", "crt"]).await;
    assert!(admin.fails(2, &["unset", "secret", "db"]).await.contains("postern delete secret db"));
    let said = admin.fails(1, &["delete", "secret", "db.c"]).await;
    assert!(said.contains("postern unset secret db.c"), "{said}");
}
