//! Requests by many workers at once, for a bounded time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use postern_tests::http::{Client, Connection, Request, Response};
use tokio::task::JoinSet;

/// The numbers of responses by their status. 0 stands for requests without a response.
pub(crate) type Statuses = BTreeMap<u16, usize>;

/// The pause after a failure, so that a rejected attacker does not only burn time.
const PAUSE: Duration = Duration::from_millis(20);

/// Connections, the requests on each, and how long they are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    /// Requests at once on each connection; more than one only over HTTP/2.
    pub(crate) streams: usize,
    pub(crate) lasting: Duration,
}

/// Repeats a piece of work in so many tasks. Work that has not ended when the time is over is cut off.
pub(crate) async fn repeat<F, W>(workers: usize, lasting: Duration, work: F)
where
    F: Fn(usize) -> W + Clone + Send + 'static,
    W: Future<Output = ()> + Send,
{
    let end = Instant::now() + lasting;
    let mut tasks = JoinSet::new();
    for worker in 0..workers {
        let work = work.clone();
        tasks.spawn(async move {
            while Instant::now() < end {
                drop(tokio::time::timeout_at(end.into(), work(worker)).await);
            }
        });
    }
    tasks.join_all().await;
}

/// Sends requests as fast as responses come, regardless of their status.
pub(crate) async fn hammer<M>(client: &Client, load: Load, make: M) -> Statuses
where
    M: for<'a> Fn(&'a Client) -> Request<'a> + Clone + Send + Sync + 'static,
{
    let end = Instant::now() + load.lasting;
    let mut tasks = JoinSet::new();
    for _ in 0..load.connections {
        let (client, make) = (client.clone(), make.clone());
        tasks.spawn(async move {
            let mut statuses = Statuses::new();
            while Instant::now() < end {
                match tokio::time::timeout_at(end.into(), client.connect()).await {
                    Ok(Ok(connection)) => {
                        let sent = streams(&client, connection, load.streams, end, &make).await;
                        add(&mut statuses, sent);
                    }
                    Ok(Err(_)) => {
                        *statuses.entry(0).or_default() += 1;
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(_) => {}
                }
            }
            statuses
        });
    }
    let mut all = Statuses::new();
    for statuses in tasks.join_all().await {
        add(&mut all, statuses);
    }
    eprintln!("{load:?}: {all:?}");
    all
}

/// Uses a connection until it breaks or the time is over.
async fn streams<M>(
    client: &Client,
    connection: Connection,
    count: usize,
    end: Instant,
    make: &M,
) -> Statuses
where
    M: for<'a> Fn(&'a Client) -> Request<'a> + Clone + Send + Sync + 'static,
{
    if count == 1 {
        return stream(client, connection, end, make).await;
    }
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (client, connection, make) = (client.clone(), connection.shared(), make.clone());
        tasks.spawn(async move { stream(&client, connection, end, &make).await });
    }
    let mut all = Statuses::new();
    for statuses in tasks.join_all().await {
        add(&mut all, statuses);
    }
    all
}

async fn stream<M>(client: &Client, mut open: Connection, end: Instant, make: &M) -> Statuses
where
    M: for<'a> Fn(&'a Client) -> Request<'a> + Clone + Send + Sync + 'static,
{
    let mut statuses = Statuses::new();
    while Instant::now() < end {
        let sending = make(client).try_send_on(&mut open);
        let Ok(sent) = tokio::time::timeout_at(end.into(), sending).await else { break };
        let failed = sent.is_err();
        *statuses.entry(sent.map_or(0, |reply: Response| reply.status)).or_default() += 1;
        if failed {
            tokio::time::sleep(PAUSE).await;
            break;
        }
    }
    statuses
}

fn add(all: &mut Statuses, more: Statuses) {
    for (status, count) in more {
        *all.entry(status).or_default() += count;
    }
}
