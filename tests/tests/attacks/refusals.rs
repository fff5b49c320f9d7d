//! Over HTTP/1.1 every refusal arrives, for every body of a request and every way to send it. A
//! connection ends only after a response that announced it.

use std::collections::BTreeMap;

use postern_tests::http::Client;
use postern_tests::objects::{CORE, collection, secrets};
use tokio::task::JoinSet;

use crate::attacks::raw_http1::{Framing, Wire, framed, head};
use crate::attacks::scene::{KEYS, Scene};
use postern_tests::Form;

const KIB: usize = 1024;

/// Bytes of the bodies.
const BODIES: [usize; 6] = [0, KIB, 60 * KIB, 300 * KIB, 900 * KIB, 3 * KIB * KIB];

/// Bytes of the bodies that are too large.
const TOO_LARGE: [usize; 2] = [3 * KIB * KIB + 1, 4 * KIB * KIB];

/// A request that has one answer, with any body.
#[derive(Clone)]
struct Case {
    status: u16,
    client: Client,
    method: &'static str,
    path: String,
    content_type: &'static str,
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
struct Manner {
    bytes: usize,
    framing: Framing,
    /// Whether the head goes out in a separate write.
    apart: bool,
}

/// The failures, and the count of each.
type Failures = BTreeMap<String, usize>;

fn manners(bodies: &[usize]) -> Vec<Manner> {
    let mut manners = Vec::new();
    for &bytes in bodies {
        for framing in [Framing::ContentLength, Framing::Chunked] {
            for apart in [false, true] {
                manners.push(Manner { bytes, framing, apart });
            }
        }
    }
    manners
}

/// Sends one request on a connection, or on a new one, and checks the response. The result is the
/// connection, if it can be used again.
async fn exchange(case: &Case, manner: Manner, wire: Option<Wire>) -> Result<Option<Wire>, String> {
    let Manner { bytes, framing, apart } = manner;
    let body = vec![b' '; bytes];
    let mut first = head(&case.client, case.method, &case.path, case.content_type, framing, &body);
    let mut second = framed(framing, &body);
    if !apart {
        first.append(&mut second);
    }
    let mut wire = match wire {
        Some(wire) => wire,
        None => Wire::open(&case.client).await?,
    };
    wire.send(&first).await?;
    tokio::task::yield_now().await;
    wire.send(&second).await?;
    let answer = wire.answer().await?;
    if answer.status != case.status {
        return Err(format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body)));
    }
    if answer.closes {
        let rest = wire.rest().await.map_err(|error| format!("after the close: {error}"))?;
        return if rest.is_empty() { Ok(None) } else { Err("bytes after the last answer".into()) };
    }
    let next = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", case.client.address());
    wire.send(next.as_bytes()).await.map_err(|error| format!("the next request: {error}"))?;
    let answer = wire.answer().await.map_err(|error| format!("the next request: {error}"))?;
    if answer.status != 200 {
        return Err(format!("the next request: {}", answer.status));
    }
    Ok((!answer.closes).then_some(wire))
}

async fn attack(case: Case, manners: Vec<Manner>, form: Form) -> Failures {
    let mut failures = Failures::new();
    for manner in manners {
        // A debug build takes seconds for some hundreds of MB.
        let times = if manner.bytes > 300 * KIB { form.pick(3, 100) } else { form.pick(10, 100) };
        let mut wire = None;
        for _ in 0..times {
            wire = exchange(&case, manner, wire.take()).await.unwrap_or_else(|error| {
                let Manner { bytes, framing, apart } = manner;
                let how = if apart { "apart" } else { "in one write" };
                let size = bytes.div_ceil(KIB);
                let what = format!("{} {size} KiB {framing:?} {how}: {error}", case.status);
                *failures.entry(what).or_default() += 1;
                None
            });
        }
    }
    failures
}

/// Sends each case in each of its manners. Requests that are sent one after the other are in one list.
async fn attack_all(cases: Vec<(Case, Vec<Manner>)>, form: Form) {
    let mut running = JoinSet::new();
    for (case, manners) in cases {
        running.spawn(attack(case, manners, form));
    }
    let mut failures = Failures::new();
    for found in running.join_all().await {
        failures.extend(found);
    }
    let text: Vec<_> = failures.iter().map(|(what, count)| format!("{count} × {what}")).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", text.len(), text.join("\n"));
}

fn case(status: u16, client: &Client, method: &'static str, path: &str) -> Case {
    let content_type = "application/json";
    Case { status, client: client.clone(), method, path: path.to_owned(), content_type }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_arrives_whatever_body_was_sent() {
    let scene = Scene::start(&[]).await;
    let mallory = scene.attacker(&scene.user("mallory").await);
    let (admin, stranger) = (&scene.admin, mallory.with_token("pst_nobody"));
    let platform = secrets("platform");
    let text = Case { content_type: "text/plain", ..case(415, admin, "POST", &platform) };
    let cases = vec![
        (case(401, &stranger, "POST", &platform), manners(&BODIES)),
        (case(403, &mallory, "POST", &platform), manners(&BODIES)),
        (case(404, admin, "POST", &format!("{CORE}/nothings")), manners(&BODIES)),
        (case(405, admin, "PUT", &platform), manners(&BODIES)),
        (case(413, admin, "POST", &platform), manners(&TOO_LARGE)),
        (text, manners(&BODIES[1..])),
        (case(200, admin, "GET", &platform), manners(&BODIES)),
    ];
    attack_all(cases, scene.form).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_for_want_of_room_arrives_whatever_body_was_sent() {
    let scene = Scene::start(&[]).await;
    let token = scene.user("mallory").await;
    let mallory = scene.attacker(&token);
    let watches = scene.watches(&token, 2_500).await.expect("a limit of watches");
    let path = format!("{}?watch=true", collection(KEYS));
    let case = case(429, &mallory, "GET", &path);
    // All at once: the server may delay these.
    let cases = manners(&BODIES).into_iter().map(|manner| (case.clone(), vec![manner]));
    attack_all(cases.collect(), scene.form).await;
    drop(watches);
}
