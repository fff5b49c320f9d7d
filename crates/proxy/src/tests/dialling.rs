//! Which addresses are dialled, and which upstreams there can be.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::support::*;
use crate::*;

/// Says what it was told.
struct Fixed(Vec<SocketAddr>);

impl Resolve for Fixed {
    fn resolve<'a>(&'a self, _host: &'a str, _port: u16) -> ResolveFuture<'a> {
        Box::pin(async { Ok::<_, io::Error>(self.0.clone()) })
    }
}

#[tokio::test]
async fn a_local_address_is_refused_before_anything_is_sent() {
    let upstream = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let port = upstream.address.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::]",
        "169.254.169.254",
        "[fe80::1]",
    ] {
        let mut config = upstream.config();
        config.local = LocalAddresses::Refused;
        config.url = format!("http://{host}:{port}").parse().unwrap();
        let made = Upstream::new(config).unwrap();
        let error = get(&Proxy::new(), &made, "/x").await.unwrap_err();
        let is_unknown = matches!(&error, ProxyError::Unreachable { .. }) && host.starts_with('0');
        assert!(
            matches!(error, ProxyError::AddressRefused { .. }) || is_unknown,
            "{host}: {error}"
        );
        assert!(is_unknown || error.status() == 503);
    }
    assert_eq!(upstream.connections(), 0);
}

/// Says what it was told, and notes what it was asked.
struct Noting(SocketAddr, std::sync::Mutex<Vec<String>>);

impl Resolve for Noting {
    fn resolve<'a>(&'a self, host: &'a str, _port: u16) -> ResolveFuture<'a> {
        self.1.lock().unwrap().push(host.to_owned());
        Box::pin(async { Ok::<_, io::Error>(vec![self.0]) })
    }
}

/// The dot is for the resolver, which then tries no search domain. The upstream hears its name without.
#[tokio::test]
async fn an_absolute_name_is_looked_up_as_one() {
    let (sender, mut heads) = tokio::sync::mpsc::unbounded_channel();
    let upstream = RawUpstream::start(move |_, mut raw| {
        let sender = sender.clone();
        async move {
            sender.send(raw.head().await).unwrap();
            let place = "Location: http://v.ns.svc.cluster.test/elsewhere";
            raw.send(format!("HTTP/1.1 201 Created\r\n{place}\r\nContent-Length: 0\r\n\r\n")).await;
        }
    })
    .await;
    for (authority, host) in [
        ("V.ns.svc.cluster.test.:80", "V.ns.svc.cluster.test:80"),
        ("v.ns.svc.cluster.test.", "v.ns.svc.cluster.test"),
    ] {
        let resolver = Arc::new(Noting(upstream.address, std::sync::Mutex::default()));
        let dial = TcpDial::with(resolver.clone(), Liveness::default());
        let proxy = Proxy::with(Limits::default(), Arc::new(dial));
        let mut config = upstream.config();
        config.url = format!("http://{authority}").parse().unwrap();
        let response = get(&proxy, &Upstream::new(config).unwrap(), "/x").await.unwrap();
        assert_eq!(*resolver.1.lock().unwrap(), ["v.ns.svc.cluster.test."]);
        let head = heads.try_recv().unwrap();
        assert!(head.contains(&format!("\r\nhost: {host}\r\n")), "{head}");
        assert_eq!(response.headers()["location"], "/elsewhere", "it is the same place");
    }
}

#[tokio::test]
async fn one_local_address_among_others_is_enough_to_refuse() {
    let upstream = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let others = vec!["192.0.2.1:1".parse().unwrap(), upstream.address];
    let dial = TcpDial::with(Arc::new(Fixed(others)), Liveness::default());
    let proxy = Proxy::with(Limits::default(), Arc::new(dial));
    let mut config = upstream.config();
    config.local = LocalAddresses::Refused;
    let error = get(&proxy, &Upstream::new(config).unwrap(), "/x").await.unwrap_err();
    let ProxyError::AddressRefused { ip, .. } = error else { panic!("{error}") };
    assert_eq!(ip, upstream.address.ip());
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_does_not_answer() {
    let upstream = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let dial = TcpDial::with(Arc::new(Fixed(vec![closed, upstream.address])), Liveness::default());
    let proxy = Proxy::with(Limits::default(), Arc::new(dial));
    let response = get(&proxy, &upstream.upstream(), "/x").await.unwrap();
    assert_eq!(text(response).await.unwrap(), "ok");

    for found in [vec![closed], vec![]] {
        let dial = TcpDial::with(Arc::new(Fixed(found)), Liveness::default());
        let proxy = Proxy::with(Limits::default(), Arc::new(dial));
        let error = get(&proxy, &upstream.upstream(), "/x").await.unwrap_err();
        assert!(matches!(error, ProxyError::Unreachable { .. }), "{error}");
        assert_eq!(error.status(), 503);
        assert_eq!(proxy.counts().failures_of(Failure::Unreachable), 1);
    }
}

#[test]
fn a_url_that_is_none_is_refused_with_the_reason() {
    for (url, reason) in [
        ("http://u.example", "plain HTTP"),
        ("ftp://u.example", "begins with https://"),
        ("/path", "begins with https://"),
        ("https://me:secret@u.example", "has a user"),
        ("https://u.example?a=b", "has a query"),
        ("https://u.example/a//b", "empty segments"),
        ("https://u.example/a/../b", "empty segments or dots"),
        ("https://u.example:0", "port"),
    ] {
        let error = Upstream::new(UpstreamConfig::new(url.parse().unwrap())).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(reason) && !said.contains("secret"), "{url}: {said}");
    }
}

#[tokio::test]
async fn what_is_asked_for_is_below_the_prefix() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        let head = raw.head().await;
        let line = head.lines().next().unwrap();
        raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len())).await;
        raw.rest().await;
    })
    .await;
    let proxy = Proxy::new();
    for (prefix, path, asked) in [
        ("", "/api?a=1", "GET /api?a=1 HTTP/1.1"),
        ("/", "/api", "GET /api HTTP/1.1"),
        ("/deep/er/", "/api?a=1", "GET /deep/er/api?a=1 HTTP/1.1"),
        ("/deep", "/", "GET /deep/ HTTP/1.1"),
    ] {
        let mut config = upstream.config();
        config.url = format!("http://{}{prefix}", upstream.address).parse().unwrap();
        let response = get(&proxy, &Upstream::new(config).unwrap(), path).await.unwrap();
        assert_eq!(text(response).await.unwrap(), asked);
    }
}
