//! The limits and timeouts of HTTP on a connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use hyper::rt::{Sleep, Timer};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;
use tokio::time::Instant;

/// The timeout for the head of a request over HTTP/1.1, including idle time. It ends with the next check of the connection
/// by [`UnauthenticatedLimit::closed`](crate::UnauthenticatedLimit::closed).
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How often HTTP/2 clients get a PING, and how long they have to respond.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The most streams (requests and watches) of one HTTP/2 connection, as in kube-apiserver.
const MAX_STREAMS: u32 = 250;

/// The most bytes of a request's headers: a token of 8 KiB, and room for the rest.
const MAX_HEADER_BYTES: u32 = 32 * 1024;

/// The bytes of bodies that an HTTP/2 client may send on one stream before they are read. They may never be read.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

/// The buffer of HTTP/1.1 in bytes, which limits the head of a request of a client that may be unauthenticated.
pub const HTTP1_BUFFER_BYTES: usize = 48 * 1024;

/// The limits of an HTTP/2 connection in which listeners differ.
#[derive(Clone, Copy, Debug)]
pub struct Http2Limits {
    /// The bytes of bodies that a client may send before they are read. They may never be read.
    pub window_bytes: u32,
    /// The bytes that one stream buffers for a client that does not read.
    pub send_buffer_bytes: usize,
}

/// HTTP/1.1 with heads of at most `max_head_bytes`. The task of the connection must also poll
/// [`UnauthenticatedLimit::closed`](crate::UnauthenticatedLimit::closed), which wakes it for the deadline of a head.
pub fn http1_builder(max_head_bytes: usize) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(HeadTimer).header_read_timeout(HEAD_TIMEOUT).max_buf_size(max_head_bytes);
    builder
}

/// The timer for the heads of requests. hyper begins a sleep for each request, and a timer of tokio for each would take a
/// lock that all connections share.
struct HeadTimer;

/// A sleep that wakes no task: it ends at the first poll after its deadline.
struct HeadSleep(StdInstant);

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn Sleep>> {
        Box::pin(HeadSleep(deadline))
    }

    fn now(&self) -> StdInstant {
        Instant::now().into_std()
    }
}

impl Future for HeadSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if HeadTimer.now() >= self.0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Sleep for HeadSleep {}

/// HTTP/2 with these limits. `executor` runs the streams.
pub fn http2_builder<E>(executor: E, limits: Http2Limits) -> http2::Builder<E> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits.window_bytes)
        .max_send_buf_size(limits.send_buffer_bytes);
    builder
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::IpAddr;
    use std::sync::Arc;

    use hyper::Response;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::peer::Peer;
    use crate::unauthenticated::{CHECK_INTERVAL, UnauthenticatedLimit};

    /// Also a head that arrives in small parts, and an idle connection.
    #[tokio::test(start_paused = true)]
    async fn a_head_that_is_not_complete_in_time_ends_the_connection() {
        for sent in ["", "GET / HTTP/1.1\r\nHost: "] {
            let (mut client, io) = duplex(1024);
            let peer = Arc::new(Peer::new(IpAddr::from([127, 0, 0, 1])));
            peer.set_authenticated("ada", false);
            let limit = UnauthenticatedLimit::new(peer);
            let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new())));
            let serving =
                http1_builder(HTTP1_BUFFER_BYTES).serve_connection(TokioIo::new(io), service);
            let start = Instant::now();
            let served = async {
                tokio::select! {
                    ended = serving => ended,
                    why = limit.closed(|| false, || None) => panic!("{why}"),
                }
            };
            let slow = async {
                client.write_all(sent.as_bytes()).await.unwrap();
                while !sent.is_empty() && client.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            let ended = tokio::select! {
                ended = served => ended,
                () = async { slow.await; std::future::pending().await } => unreachable!(),
            };
            let took = start.elapsed();
            assert!(took >= HEAD_TIMEOUT && took <= HEAD_TIMEOUT + CHECK_INTERVAL, "{took:?}");
            assert!(ended.is_err_and(|error| error.is_timeout()));
        }
    }

    /// Load balancers close connections on which nothing is sent for 50 to 60 seconds.
    #[tokio::test(start_paused = true)]
    async fn a_silent_http2_connection_gets_a_ping() {
        const PING_FRAME: u8 = 6;
        let (mut client, io) = duplex(64 * 1024);
        let limits = Http2Limits { window_bytes: 128 * 1024, send_buffer_bytes: 256 * 1024 };
        let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new())));
        let builder = http2_builder(TokioExecutor::new(), limits);
        let serving = builder.serve_connection(TokioIo::new(io), service);
        let start = Instant::now();
        let read = async {
            // The preface, and an empty SETTINGS frame.
            client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
            client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
            loop {
                let mut head = [0; 9];
                client.read_exact(&mut head).await.unwrap();
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = vec![0; usize::try_from(length).unwrap()];
                client.read_exact(&mut payload).await.unwrap();
                // hyper measures the first window with its own PING, at once.
                if head[3] == PING_FRAME && start.elapsed() > Duration::from_secs(1) {
                    return start.elapsed();
                }
            }
        };
        tokio::select! {
            ended = serving => panic!("{ended:?}"),
            silence = read => assert!(silence <= PING_INTERVAL + Duration::from_secs(1), "{silence:?}"),
        }
    }
}
