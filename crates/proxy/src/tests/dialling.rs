//! Which addresses are dialled, and which upstreams there can be.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::support::*;
use crate::own_addresses::tests::of_procfs;
use crate::*;

/// A resolver with fixed addresses.
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
        config.addresses = UpstreamAddresses::default();
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

/// A resolver with one fixed address, which notes the names in its queries.
struct Noting(SocketAddr, std::sync::Mutex<Vec<String>>);

impl Resolve for Noting {
    fn resolve<'a>(&'a self, host: &'a str, _port: u16) -> ResolveFuture<'a> {
        self.1.lock().unwrap().push(host.to_owned());
        Box::pin(async { Ok::<_, io::Error>(vec![self.0]) })
    }
}

/// The dot is for the resolver, which then tries no search domain. The upstream gets the name
/// without it.
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
    config.addresses = UpstreamAddresses::default();
    let error = get(&proxy, &Upstream::new(config).unwrap(), "/x").await.unwrap_err();
    let ProxyError::AddressRefused { ip, .. } = error else { panic!("{error}") };
    assert_eq!(ip, upstream.address.ip());
    assert_eq!(upstream.connections(), 0);
}

/// A service that listens on all of this machine's addresses is reached by none of them.
#[tokio::test]
async fn an_address_of_this_machines_own_interfaces_is_refused() {
    let listener = std::net::TcpListener::bind("[::]:0");
    let listener = listener.or_else(|_| std::net::TcpListener::bind("0.0.0.0:0")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    for ip in of_procfs() {
        let address = SocketAddr::new(ip, port);
        let mut config = UpstreamConfig::new(format!("http://{address}").parse().unwrap());
        config.allow_plain = true;
        let made = Upstream::new(config).unwrap();
        let error = get(&Proxy::new(), &made, "/x").await.unwrap_err();
        assert!(matches!(error, ProxyError::AddressRefused { .. }), "{ip}: {error}");
    }
    let error = listener.accept().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "no connection was made");
}

#[tokio::test]
async fn the_operators_networks_count_for_all_addresses_of_a_name() {
    let upstream = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let port = upstream.address.port();
    let at =
        |ips: &[&str]| ips.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect();
    for (found, allowed, denied, refused) in [
        (&["127.0.0.1"][..], &["127.0.0.1"][..], &[][..], None),
        (&["127.0.0.1", "127.0.0.2"], &["127.0.0.0/8"], &[], None),
        (&["127.0.0.1", "127.0.0.2"], &["127.0.0.1"], &[], Some("127.0.0.2")),
        (&["127.0.0.2", "127.0.0.1"], &["127.0.0.1"], &[], Some("127.0.0.2")),
        (&["127.0.0.1", "127.0.0.2"], &["127.0.0.0/8"], &["127.0.0.2"], Some("127.0.0.2")),
        (&["127.0.0.1", "203.0.113.7"], &["127.0.0.1"], &["203.0.113.0/24"], Some("203.0.113.7")),
        (&["127.0.0.1", "::1"], &["127.0.0.1"], &[], Some("::1")),
    ] {
        let dial = TcpDial::with(Arc::new(Fixed(at(found))), Liveness::default());
        let mut config = upstream.config();
        config.addresses = UpstreamAddresses::default();
        for network in allowed {
            config.addresses.allow(network).unwrap();
        }
        for network in denied {
            config.addresses.deny(network).unwrap();
        }
        let proxy = Proxy::with(Limits::default(), Arc::new(dial));
        let before = upstream.connections();
        match (get(&proxy, &Upstream::new(config).unwrap(), "/x").await, refused) {
            (Ok(response), None) => assert_eq!(text(response).await.unwrap(), "ok"),
            (Err(ProxyError::AddressRefused { ip, .. }), Some(refused)) => {
                assert_eq!(ip.to_string(), refused, "{found:?}");
                assert_eq!(upstream.connections(), before, "{found:?}");
            }
            (answer, _) => panic!("{found:?}: {answer:?}"),
        }
    }
}

/// A tenant with a kubeconfig that leads to no cluster learns only that, and nothing about the
/// other server there.
#[tokio::test]
async fn all_upstreams_that_are_not_reached_look_alike() {
    const SHORT: Duration = Duration::from_millis(50);
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let hangs_up = RawUpstream::start(|_, _| async {}).await;
    let banner = RawUpstream::start(|_, mut raw| async move {
        raw.send("SSH-2.0-Server\r\n").await;
        raw.rest().await;
    })
    .await;
    let web = RawUpstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let silent = RawUpstream::start(|_, mut raw| async move {
        raw.rest().await;
    })
    .await;
    let (any, default) = (UpstreamAddresses::any(), UpstreamAddresses::default());
    let mut classes = Vec::new();
    for (scheme, found, addresses, patience) in [
        ("https", vec![], &any, PATIENCE),
        ("https", vec![closed], &any, PATIENCE),
        ("https", vec![hangs_up.address], &any, PATIENCE),
        ("https", vec![banner.address], &any, PATIENCE),
        ("https", vec![web.address], &default, PATIENCE),
        ("https", vec![silent.address], &any, SHORT),
        ("http", vec![closed], &any, PATIENCE),
        ("http", vec![hangs_up.address], &any, PATIENCE),
        ("http", vec![banner.address], &any, PATIENCE),
        ("http", vec![web.address], &default, PATIENCE),
        ("http", vec![silent.address], &any, SHORT),
    ] {
        let mut config =
            UpstreamConfig::new(format!("{scheme}://cluster.example").parse().unwrap());
        (config.allow_plain, config.insecure) = (true, true);
        config.addresses = addresses.clone();
        let dial = TcpDial::with(Arc::new(Fixed(found.clone())), Liveness::default());
        let limits = Limits { handshake_timeout: patience, ..Limits::default() };
        let proxy = Proxy::with(limits, Arc::new(dial));
        let request = http::Request::get("/x").body(http_body_util::Empty::<bytes::Bytes>::new());
        let mut forward = forward(&"/x".parse().unwrap());
        forward.answer_timeout = Some(patience);
        let upstream = Upstream::new(config).unwrap();
        let error = soon(proxy.forward(&upstream, request.unwrap(), forward)).await.unwrap_err();
        assert!(error.is_unreachable(), "{scheme} {found:?}: {error:?}");
        assert_eq!(error.status(), 503, "{scheme} {found:?}: {error:?}");
        classes.push(error.failure().name());
    }
    classes.sort_unstable();
    classes.dedup();
    // The log and the metrics know them apart.
    let known = ["address_refused", "lost", "malformed", "timeout", "tls", "unreachable"];
    assert_eq!(classes, known);
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

    // A name with very many addresses does not have them all dialled.
    let many = std::iter::repeat_n(closed, 16).chain([upstream.address]).collect();
    for found in [vec![closed], vec![], many] {
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
