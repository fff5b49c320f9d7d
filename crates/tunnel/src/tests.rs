//! Both ends of a tunnel over a connection in memory, and one end against raw frames.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::{End, PROTOCOLS, SILENCE, TunnelStream, agent_end, is_name, negotiate, server_end};

/// Both streams of a tunnel, and the tasks that carry them.
fn tunnel() -> (TunnelStream, TunnelStream, JoinSet<End>) {
    let (one, other) = duplex(4096);
    let ((server, carried), (agent, by_agent)) = (server_end(one), agent_end(other));
    let mut tasks = JoinSet::new();
    tasks.spawn(carried);
    tasks.spawn(by_agent);
    (server, agent, tasks)
}

/// The agent's stream, the task that carries it, and the raw connection.
fn raw_tunnel() -> (TunnelStream, DuplexStream, JoinSet<End>) {
    let (own, peer) = duplex(4096);
    let (agent, carried) = agent_end(own);
    let mut tasks = JoinSet::new();
    tasks.spawn(carried);
    (agent, peer, tasks)
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 31 + at / 251 + seed) % 256).unwrap()).collect()
}

async fn ends(tasks: &mut JoinSet<End>) -> End {
    timeout(Duration::from_mins(5), tasks.join_next()).await.expect("it ends").unwrap().unwrap()
}

#[tokio::test]
async fn bytes_arrive_in_order_both_ways_at_once_and_each_direction_ends_for_itself() {
    let (server, agent, mut tasks) = tunnel();
    let talk = async |stream: TunnelStream, own: usize, other: usize| {
        let (mut read, mut write) = tokio::io::split(stream);
        let sent = async {
            let bytes = pattern(own, 500_000);
            let (mut rest, mut size) = (bytes.as_slice(), 1);
            while !rest.is_empty() {
                let (now, later) = rest.split_at(size.min(rest.len()));
                write.write_all(now).await.unwrap();
                rest = later;
                size = size * 7 % 40_009;
            }
            write.shutdown().await.unwrap();
        };
        let received = async {
            let mut bytes = Vec::new();
            read.read_to_end(&mut bytes).await.unwrap();
            assert!(bytes == pattern(other, 500_000), "{} bytes", bytes.len());
        };
        tokio::join!(sent, received);
    };
    tokio::join!(talk(server, 1, 2), talk(agent, 2, 1));
    let reasons = [ends(&mut tasks).await, ends(&mut tasks).await];
    assert!(reasons.iter().all(|end| matches!(end, End::Done | End::Closed)), "{reasons:?}");
}

#[tokio::test]
async fn after_its_own_end_a_side_still_receives() {
    let (mut server, mut agent, _tasks) = tunnel();
    server.write_all(b"last").await.unwrap();
    server.shutdown().await.unwrap();
    let mut read = Vec::new();
    agent.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"last");
    agent.write_all(b"answer").await.unwrap();
    agent.shutdown().await.unwrap();
    let mut read = Vec::new();
    server.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"answer");
}

#[tokio::test]
async fn bytes_before_a_drop_arrive_and_then_the_tunnel_is_closed() {
    let (mut server, mut agent, mut tasks) = tunnel();
    server.write_all(b"last").await.unwrap();
    drop(server);
    let mut read = [0; 4];
    agent.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"last");
    // Nothing has said that these were all bytes.
    let error = agent.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    drop(agent);
    ends(&mut tasks).await;
    ends(&mut tasks).await;
}

/// A body that ends with its connection must not look complete when the tunnel is lost.
#[tokio::test]
async fn a_lost_tunnel_is_an_error_and_not_an_end() {
    let (mut agent, peer, mut tasks) = raw_tunnel();
    drop(peer);
    let error = agent.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(ends(&mut tasks).await, End::Lost);
}

/// The other end has sent its last bytes and is gone. This end still writes, which fails, and its user is slow.
#[tokio::test(start_paused = true)]
async fn bytes_before_a_loss_arrive_while_this_end_writes() {
    let (own, mut peer) = duplex(256 * 1024);
    let (mut agent, carried) = agent_end(own);
    let mut tasks = JoinSet::new();
    tasks.spawn(carried);
    let said = pattern(7, 100 * 1000);
    for piece in said.chunks(1000) {
        let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
        peer.write_all(&[&[0x82, 126][..], &length, piece].concat()).await.unwrap();
    }
    drop(peer);
    agent.write_all(b"unheard").await.unwrap();
    tokio::time::sleep(Duration::from_mins(2)).await;
    let mut read = vec![0; said.len()];
    agent.read_exact(&mut read).await.unwrap();
    assert!(read == said);
    agent.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(ends(&mut tasks).await, End::Lost);
}

/// A connection that is closed with unread bytes is reset, and the last bytes could be lost.
#[tokio::test(start_paused = true)]
async fn an_end_that_has_closed_still_reads_until_the_other_one_closes() {
    let (mut agent, mut peer, mut tasks) = raw_tunnel();
    agent.write_all(b"last").await.unwrap();
    drop(agent);
    // A masked binary message of 4 bytes, and a masked close with its code.
    let mut sent = [0; 2 + 4 + 4 + 2 + 4 + 2];
    peer.read_exact(&mut sent).await.unwrap();
    assert_eq!((sent[0], sent[10]), (0x82, 0x88));
    // More than the connection holds is taken.
    for _ in 0..100 {
        peer.write_all(&[&[0x82, 126, 0, 200][..], &[0; 200]].concat()).await.unwrap();
    }
    peer.write_all(&[0x88, 0]).await.unwrap();
    assert_eq!(ends(&mut tasks).await, End::Done);
}

#[tokio::test(start_paused = true)]
async fn two_idle_ends_stay_and_a_silent_one_is_noticed_within_45_seconds() {
    let (mut server, mut agent, tasks) = tunnel();
    tokio::time::sleep(Duration::from_hours(2)).await;
    server.write_all(b"x").await.unwrap();
    assert_eq!(agent.read_u8().await.unwrap(), b'x');
    drop((server, agent, tasks));

    let (mut agent, mut peer, mut tasks) = raw_tunnel();
    let start = Instant::now();
    // The connection takes bytes, as that of a stopped process does.
    let taken = async { while peer.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {} };
    let noticed = async {
        agent.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(start.elapsed(), SILENCE);
        assert_eq!(ends(&mut tasks).await, End::Silent);
    };
    tokio::join!(taken, noticed);
}

/// The standard input of a pod may stand still for an hour.
#[tokio::test(start_paused = true)]
async fn a_side_that_takes_nothing_for_an_hour_is_alive() {
    let (mut server, mut agent, _tasks) = tunnel();
    let sent = async {
        server.write_all(&pattern(3, 400_000)).await.unwrap();
        server.shutdown().await.unwrap();
    };
    let received = async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        let mut read = Vec::new();
        agent.read_to_end(&mut read).await.unwrap();
        assert!(read == pattern(3, 400_000), "{} bytes", read.len());
    };
    tokio::join!(sent, received);
}

#[tokio::test(start_paused = true)]
async fn two_sides_that_both_take_nothing_go_on_afterwards() {
    let (server, agent, _tasks) = tunnel();
    let talk = async |stream: TunnelStream| {
        let (mut read, mut write) = tokio::io::split(stream);
        let sent = async {
            write.write_all(&pattern(5, 300_000)).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let received = async {
            tokio::time::sleep(Duration::from_mins(10)).await;
            let mut bytes = Vec::new();
            read.read_to_end(&mut bytes).await.unwrap();
            assert_eq!(bytes.len(), 300_000);
        };
        tokio::join!(sent, received);
    };
    tokio::join!(talk(server), talk(agent));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_does_not_wait_for_an_end_that_takes_nothing() {
    let (mut agent, mut peer, mut tasks) = raw_tunnel();
    // More than the connection has room for, and less than the stream has.
    agent.write_all(&vec![0; 12_000]).await.unwrap();
    drop(agent);
    let start = Instant::now();
    let pongs = async {
        loop {
            if peer.write_all(&[0x8a, 0]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::join!(pongs, async { assert_ne!(ends(&mut tasks).await, End::Silent) });
    assert!(start.elapsed() <= Duration::from_secs(12), "{:?}", start.elapsed());
}

#[tokio::test]
async fn what_is_no_tunnel_ends_it() {
    const BINARY: u8 = 0x82;
    let mut two_ends = vec![BINARY, 0, BINARY, 1, b'x'];
    let mut too_long = vec![BINARY, 127, 0, 0, 0, 0, 0, 2, 0, 0];
    too_long.resize(64, 0);
    let mut endless = vec![0x02, 126, 0x7f, 0xff];
    endless.resize(4 + 0x7fff, 0);
    let more = [&[0x00, 126, 0x7f, 0xff][..], &vec![0; 0x7fff]].concat();
    (0..3).for_each(|_| endless.extend_from_slice(&more));
    for (name, frames) in [
        ("a text", vec![0x81, 2, b'h', b'i']),
        ("bytes after their end", std::mem::take(&mut two_ends)),
        ("a message that is too long", too_long),
        ("a message without an end", endless),
        ("a masked message of a server", vec![BINARY, 0x81, 0, 0, 0, 0, b'x']),
        ("HTTP", b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
    ] {
        let (mut agent, mut peer, mut tasks) = raw_tunnel();
        let _ = peer.write_all(&frames).await;
        assert_eq!(ends(&mut tasks).await, End::Malformed, "{name}");
        let mut read = Vec::new();
        let _ = agent.read_to_end(&mut read).await;
        assert!(read.is_empty(), "{name}: {read:?}");
    }
}

#[tokio::test]
async fn pings_are_answered_and_not_without_end() {
    let (_agent, mut peer, mut tasks) = raw_tunnel();
    peer.write_all(&[0x89, 1, b'p']).await.unwrap();
    let mut pong = [0; 7];
    peer.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong[0], 0x8a);
    let flood = async { while peer.write_all(&[0x89, 1, b'p']).await.is_ok() {} };
    let ended = async { assert_eq!(ends(&mut tasks).await, End::Malformed) };
    tokio::join!(flood, ended);
}

#[test]
fn the_newest_common_version_is_chosen() {
    assert_eq!(negotiate(["v9.tunnel.platform.sh", PROTOCOLS[0]]), Some(PROTOCOLS[0]));
    assert_eq!(negotiate(["v9.tunnel.platform.sh"]), None);
    assert_eq!(negotiate([]), None);
    assert!(is_name("agent-7d9f.example:6443") && is_name("[::1]:1"));
    for bad in ["", "a b", "a\n", "ä", "a\"", &"x".repeat(300)] {
        assert!(!is_name(bad), "{bad:?}");
    }
}
