//! Limits of watches and of requests in flight, and watches that do not keep up.

use postern_tests::http::Client;
use postern_tests::objects::{name_of, secret, secret_path, secrets, version_of};
use postern_tests::slow::slow_body;
use postern_tests::status::failure;
use postern_tests::watching::Event;
use postern_tests::{Home, Server, Setup, wait};
use serde_json::Value;

async fn limited(flag: &str) -> Server {
    Setup::on(&Home::new()).argument(flag).start().await
}

#[tokio::test]
async fn an_owner_has_a_limited_number_of_watches() {
    let server = limited("--max-watches-per-owner=2").await;
    let client = server.client();
    let one = client.watch(&secrets("platform"), "").await;
    let two = client.watch(&secrets("default"), "").await;
    let reply = client.get(&format!("{}?watch=true", secrets("platform"))).send().await;
    let text = failure(&reply);
    assert!(text.starts_with("429 TooManyRequests\n"), "{text}");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.json()["details"]["retryAfterSeconds"], 1);
    client.get(&secrets("platform")).send().await.expect(200);
    drop(one);
    let path = format!("{}?watch=true", secrets("platform"));
    let three =
        wait::until("a watch to be free", async || client.get(&path).try_stream().await.ok());
    let three = three.await;
    drop((two, three));
}

#[tokio::test]
async fn a_body_that_comes_slowly_takes_no_seat() {
    let server = limited("--max-writes-in-flight=1").await;
    let client = Client::http2(server.kubeconfig());
    let mut connection = client.connect().await.unwrap();
    let (finish, body) = slow_body(&secret("slow", "v"));
    let (posting, mut posts) = (client.clone(), connection.shared());
    let request = tokio::spawn(async move {
        let request = posting.post(&secrets("platform")).streamed("application/json", body);
        request.try_send_on(&mut posts).await
    });
    // One thread, one connection: the slow request arrives before this one.
    tokio::task::yield_now().await;
    client.get("/readyz").try_send_on(&mut connection).await.unwrap().expect_text(200);
    client.post(&secrets("platform")).json(&secret("other", "v")).send().await.expect(201);
    finish.send(()).unwrap();
    request.await.unwrap().unwrap().expect(201);
}

const WRITERS: usize = 16;
/// Writes of one writer. All writers together write more than the server keeps in memory for slow
/// watchers.
const WRITES_EACH: usize = 80;

fn numbered(writer: usize, number: usize) -> Value {
    let mut object = secret(&format!("w{writer}"), &"x".repeat(48 * 1024));
    object["spec"]["displayName"] = number.to_string().into();
    object
}

async fn write_many_objects(client: &Client) {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let client = client.clone();
        writers.spawn(async move {
            let mut connection = client.connect().await.unwrap();
            let first = client.post(&secrets("platform")).json(&numbered(writer, 0));
            first.try_send_on(&mut connection).await.unwrap().expect(201);
            let path = secret_path(&format!("w{writer}"));
            for number in 1..WRITES_EACH {
                let next = client.patch(&path, "merge-patch", &numbered(writer, number));
                next.try_send_on(&mut connection).await.unwrap().expect(200);
            }
        });
    }
    writers.join_all().await;
}

/// The next number of each writer.
struct Expected([usize; WRITERS]);

impl Expected {
    /// Checks the next event of a writer. A missing or repeated event is a failure.
    fn take(&mut self, event: &Event) {
        let writer: usize = name_of(&event.object)[1..].parse().unwrap();
        let number = event.object["spec"]["displayName"].as_str().unwrap();
        assert_eq!(number, self.0[writer].to_string(), "the next change of {writer}");
        self.0[writer] += 1;
    }
}

/// A watch with a client that reads late gets events from history when they are no longer in
/// memory. A watch with a client that reads nothing for half a minute, as on a busy machine, is
/// disconnected. The watch that resumes it gets the rest. In both cases no event is left out.
#[tokio::test]
async fn heavy_a_watcher_that_reads_late_misses_nothing() {
    let server = Server::start().await;
    let client = server.client();
    let start = version_of(&client.get(&secrets("platform")).send().await.expect(200));
    // The client of this watch does not read until everything is written.
    let mut slow = client.watch(&secrets("platform"), &format!("&resourceVersion={start}")).await;
    write_many_objects(&client).await;
    let mut expected = Expected([0; WRITERS]);
    let mut last = start;
    let all = WRITERS * WRITES_EACH;
    while expected.0.iter().sum::<usize>() < all
        && let Ok(Some(event)) = slow.try_next().await
    {
        expected.take(&event);
        last = event.version();
    }
    let query = format!("&resourceVersion={last}");
    let mut watch = client.watch(&secrets("platform"), &query).await;
    while expected.0.iter().sum::<usize>() < all {
        expected.take(&watch.next().await.expect("the remaining events"));
    }
    let now = client.get(&secrets("platform")).send().await.expect(200);
    assert_eq!(now["items"].as_array().unwrap().len(), WRITERS);
}
