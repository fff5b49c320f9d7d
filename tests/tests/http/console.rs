//! The files of the web console at `/ui/`. The server of a debug build has them if `console/dist`
//! was built. The tests pass with and without them.

use postern_tests::http::Response;
use postern_tests::{Home, Server, Setup};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
    worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types svelte-trusted-html postern-worker";

/// Checks the headers of a response for browsers.
fn check_headers(what: &str, reply: &Response) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{what}");
    }
}

#[tokio::test]
async fn every_path_below_the_console_is_its_page_without_a_credential() {
    let server = Server::start().await;
    let client = server.client();
    let get = async |path: &str| client.get(path).without("authorization").send().await;
    let page = get("/ui/").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    check_headers("the page", &page);
    for path in
        ["/ui/secrets/platform/db", "/ui/login?x=y", "/ui/..%2f..%2fetc%2fpasswd", "/ui/index.html"]
    {
        let other = get(path).await;
        assert_eq!((other.status, other.text()), (200, page.text()), "{path}");
        check_headers(path, &other);
    }
    let tag = page.header("etag").unwrap();
    let known =
        client.get("/ui/").without("authorization").header("if-none-match", tag).send().await;
    assert_eq!((known.status, known.text().as_str()), (304, ""));
    check_headers("a page that is known", &known);
    let head = client.request("HEAD", "/ui/").without("authorization").send().await;
    assert_eq!((head.status, head.text().as_str()), (200, ""));
    assert_eq!(head.header("content-length"), Some(page.text().len().to_string().as_str()));
    let zipped =
        client.get("/ui/").without("authorization").header("accept-encoding", "gzip").send().await;
    assert_eq!((zipped.status, zipped.header("etag")), (200, Some(tag)));
    let posted = client.post("/ui/").without("authorization").send().await;
    assert_eq!(posted.status, 405);
    check_headers("a request that changes", &posted);
}

#[tokio::test]
async fn files_with_a_hash_are_kept_and_no_page_is_in_their_place() {
    let server = Server::start().await;
    let client = server.client();
    let get = async |path: &str| client.get(path).without("authorization").send().await;
    let missing = get("/ui/assets/index-of-an-older-console.js").await;
    assert_eq!((missing.status, missing.header("content-type")), (404, Some("application/json")));
    check_headers("a missing file", &missing);
    let page = get("/ui/").await.text();
    let files = page.split('"').filter(|text| text.starts_with("/ui/assets/"));
    let mut kinds = Vec::new();
    for file in files {
        let reply = get(file).await;
        assert_eq!(reply.status, 200, "{file}");
        assert_eq!(
            reply.header("cache-control"),
            Some("public, max-age=31536000, immutable"),
            "{file}"
        );
        check_headers(file, &reply);
        kinds.push(reply.header("content-type").unwrap().to_owned());
    }
    if kinds.is_empty() {
        assert!(
            page.contains("cargo xtask serve"),
            "a page that is not the console says what to do: {page}"
        );
        eprintln!("the files were not tested: console/dist was not built");
    } else {
        assert!(kinds.iter().any(|kind| kind.starts_with("text/javascript")), "{kinds:?}");
    }
}

#[tokio::test]
async fn a_browser_at_the_root_is_sent_to_the_console_and_a_program_is_not() {
    let server = Server::start().await;
    let client = server.client();
    let get = |path: &'static str| client.get(path).without("authorization");
    for request in [get("/").accept("text/html,application/xhtml+xml;q=0.9"), get("/ui")] {
        let reply = request.send().await;
        assert_eq!((reply.status, reply.header("location")), (302, Some("/ui/")));
    }
    for request in [
        get("/"),
        get("/").accept("application/json"),
        get("/kubernetes/management/ui/"),
        get("/uix"),
    ] {
        assert_eq!(request.send().await.status, 401);
    }
    let posted = client.post("/").without("authorization").accept("text/html").send().await;
    assert_eq!(posted.status, 401);
}

#[tokio::test]
async fn the_console_can_be_turned_off() {
    let home = Home::new();
    let server = Setup::on(&home).argument("--console=false").start().await;
    let client = server.client();
    for path in ["/ui/", "/ui", "/ui/assets/x.js", "/"] {
        let reply = client.get(path).without("authorization").accept("text/html").send().await;
        assert_eq!(reply.status, 401, "{path}");
        assert_eq!(client.get(path).send().await.status, 404, "{path}");
    }
}
