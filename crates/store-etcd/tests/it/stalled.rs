//! A watch with a stalled connection, while all other calls are answered: the data in the server's
//! memory is then old.

use std::sync::Arc;
use std::time::Duration;

use postern_store::{Change, Position, Store, Txn, WithOld};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::open;
use crate::server::EtcdServer;

/// A way to etcd on which all connections but the first can be stalled. An engine calls over its first one, and watches
/// over the others.
struct Way {
    address: String,
    is_stalled: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Way {
    async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_stalled = watch::Sender::new(false);
        let (never, stalled) = (watch::Sender::new(false), is_stalled.subscribe());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&server).await.unwrap();
                let is_first = connections.is_empty();
                let stalled = if is_first { never.subscribe() } else { stalled.clone() };
                connections.spawn(carry(client, server, stalled));
            }
        });
        Self { address, is_stalled, _tasks: tasks }
    }
}

/// Carries one connection. Nothing of the server comes through while it is stalled.
async fn carry(mut client: TcpStream, mut server: TcpStream, mut stalled: watch::Receiver<bool>) {
    let (mut sent, mut received) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        let is_stalled = *stalled.borrow_and_update();
        let carried = tokio::select! {
            read = client.read(&mut sent) => match read {
                Ok(length @ 1..) => server.write_all(&sent[..length]).await,
                _ => return,
            },
            read = server.read(&mut received), if !is_stalled => match read {
                Ok(length @ 1..) => client.write_all(&received[..length]).await,
                _ => return,
            },
            _ = stalled.changed() => Ok(()),
        };
        if carried.is_err() {
            return;
        }
    }
}

fn put(value: &str) -> Txn {
    let change = Change::Put { key: "/a".into(), value: value.to_owned().into() };
    Txn { conditions: Vec::new(), changes: vec![change] }
}

async fn until_silence(store: &Arc<dyn Store>, is_reached: impl Fn(Duration) -> bool) {
    let reached = async {
        while !is_reached(store.silence()) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_mins(1), reached).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_watch_stands_still_is_silent_although_it_answers_calls() {
    let server = EtcdServer::start();
    let way = Way::to(server.address()).await;
    let url = format!("etcd://{}/stalled", way.address).parse().unwrap();
    let store = open(&url).await;
    let other = open(&server.url("/stalled")).await;
    let first = other.commit(put("1")).await.unwrap();
    let mut watching = store.watch("", Position::end_of(first), WithOld::No).await.unwrap();
    // While nothing changes, the looks of the watch keep it short.
    until_silence(&store, |silence| silence > Duration::from_millis(500)).await;
    until_silence(&store, |silence| silence < Duration::from_millis(500)).await;

    way.is_stalled.send_replace(true);
    let last = other.commit(put("2")).await.unwrap();
    until_silence(&store, |silence| silence > Duration::from_secs(6)).await;
    assert_eq!(store.revision().await.unwrap(), last, "calls are answered");

    way.is_stalled.send_replace(false);
    until_silence(&store, |silence| silence < Duration::from_secs(2)).await;
    let batch = timeout(Duration::from_secs(30), watching.next()).await.unwrap().unwrap();
    assert_eq!(batch.revision, last);
    drop(watching);
    until_silence(&store, |silence| silence < Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_delivers_all_the_time_is_not_silent() {
    let server = EtcdServer::start();
    let [store, other] = [open(&server.url("/busy")).await, open(&server.url("/busy")).await];
    let mut watching = store.watch("", Position::ZERO, WithOld::No).await.unwrap();
    let mut longest = Duration::ZERO;
    for number in 0..400 {
        other.commit(put(&number.to_string())).await.unwrap();
        timeout(Duration::from_secs(30), watching.next()).await.unwrap().unwrap();
        longest = longest.max(store.silence());
        sleep(Duration::from_millis(10)).await;
    }
    assert!(longest < Duration::from_secs(4), "{longest:?}");
}
