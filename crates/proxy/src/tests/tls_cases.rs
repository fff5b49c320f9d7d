//! TLS: the authorities that the proxy trusts, and its own certificate.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsAcceptor;

use super::support::*;
use super::upgrades::WEBSOCKET;
use crate::*;

/// A certificate authority of the tests' own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// A certificate for a name, and its key, in PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Starts an upstream with TLS that says which certificate its client has, and which version it speaks.
async fn start(
    authority: &Authority,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> RawUpstream {
    start_with(&authority.pem(), authority.issue(name), versions).await
}

/// Starts one with a certificate and its key, in PEM, that knows the clients of an authority.
async fn start_with(
    authority_pem: &[u8],
    (certificate, key): (String, String),
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> RawUpstream {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority_pem).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    RawUpstream::start_on_streams(move |_, stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let session = stream.get_ref().1;
            let known = session.peer_certificates().is_some();
            let said = format!("{known} {:?}", session.protocol_version().unwrap());
            let mut raw = Raw::new(stream);
            loop {
                let head = raw.head().await;
                if head.is_empty() {
                    return;
                }
                if head.contains("upgrade: websocket\r\n") {
                    return echo(raw).await;
                }
                let length = said.len();
                raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{said}"))
                    .await;
            }
        }
    })
    .await
}

/// Switches protocols, and sends the received bytes back when their sender has ended.
async fn echo(mut raw: Raw) {
    raw.send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    )
    .await;
    let got = raw.rest().await;
    raw.send(got).await;
    raw.send(" and that is all").await;
    raw.stream.shutdown().await.unwrap();
}

fn config(upstream: &RawUpstream) -> UpstreamConfig {
    let url = format!("https://{}", upstream.address).parse().unwrap();
    UpstreamConfig { addresses: UpstreamAddresses::any(), ..UpstreamConfig::new(url) }
}

async fn said(config: UpstreamConfig) -> Result<String, ProxyError> {
    let response = get(&Proxy::new(), &Upstream::new(config).unwrap(), "/x").await?;
    text(response).await
}

#[tokio::test]
async fn both_versions_of_tls_are_spoken() {
    let authority = Authority::new();
    for (version, name) in
        [(&rustls::version::TLS12, "TLSv1_2"), (&rustls::version::TLS13, "TLSv1_3")]
    {
        let upstream = start(&authority, "127.0.0.1", &[version]).await;
        let config = UpstreamConfig { ca_pem: Some(authority.pem()), ..config(&upstream) };
        assert_eq!(said(config).await.unwrap(), format!("false {name}"));
    }
}

/// A self-signed certificate for names, in PEM, with its key; `change` adapts it to the case.
fn self_signed(
    names: &[&str],
    is_authority: bool,
    change: impl FnOnce(&mut CertificateParams),
) -> (String, String) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    let of_authority = IsCa::Ca(BasicConstraints::Unconstrained);
    params.is_ca = if is_authority { of_authority } else { IsCa::ExplicitNoCa };
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2200, 1, 1);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// kubectl accepts a kubeconfig with the certificate of the server itself as the authority, and
/// webpki does not.
#[tokio::test]
async fn the_very_certificate_that_is_given_is_trusted_as_the_servers_own() {
    let authority = Authority::new();
    let plain = |_: &mut CertificateParams| {};
    let cases = [
        ("an authority", self_signed(&["127.0.0.1", "u.example"], true, plain)),
        ("no authority", self_signed(&["127.0.0.1", "u.example"], false, plain)),
        ("signed by an authority that is not given", {
            let key = KeyPair::generate().unwrap();
            let names = ["127.0.0.1".to_owned(), "u.example".to_owned()];
            let params = CertificateParams::new(names).unwrap();
            (params.signed_by(&key, &authority.0).unwrap().pem(), key.serialize_pem())
        }),
    ];
    for (case, (certificate, key)) in cases {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let of = (certificate.clone(), key.clone());
            let upstream = start_with(&authority.pem(), of, &[version]).await;
            let given = |pem: &str, server_name: Option<&str>| UpstreamConfig {
                ca_pem: Some(pem.as_bytes().to_vec()),
                server_name: server_name.map(str::to_owned),
                ..config(&upstream)
            };
            let another = self_signed(&["127.0.0.1", "u.example"], true, plain).0;
            let both = format!("{another}{certificate}");
            for good in [
                given(&certificate, None),
                given(&certificate, Some("u.example")),
                given(&both, None),
            ] {
                let answer = said(good).await;
                assert!(answer.is_ok(), "{case} {version:?}: {answer:?}");
            }
            for bad in [
                given(&another, None),
                given(&another, Some("u.example")),
                given(&certificate, Some("v.example")),
                given(&certificate, Some("127.0.0.2")),
            ] {
                let error = said(bad).await.unwrap_err();
                assert!(matches!(error, ProxyError::Tls { .. }), "{case} {version:?}: {error}");
            }
        }
    }
}

/// The checks of every certificate apply, except that no authority has to have signed it.
#[tokio::test]
async fn a_given_certificate_must_be_valid_now_and_for_servers() {
    type Change = fn(&mut CertificateParams);
    let cases: [(&str, Change); 4] = [
        ("Expired", |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1)),
        ("NotValidYet", |params| params.not_before = rcgen::date_time_ymd(2199, 1, 1)),
        ("InvalidPurpose", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }),
        ("not valid for name", |params| params.subject_alt_names.clear()),
    ];
    let good: [Change; 2] = [
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
        |params| {
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        },
    ];
    let authority = Authority::new();
    let answer = async |is_authority, change: Change| {
        let of = self_signed(&["127.0.0.1"], is_authority, change);
        let ca_pem = Some(of.0.clone().into_bytes());
        let upstream = start_with(&authority.pem(), of, rustls::DEFAULT_VERSIONS).await;
        let made = Upstream::new(UpstreamConfig { ca_pem, ..config(&upstream) });
        let made = made.map_err(|error| error.to_string())?;
        get(&Proxy::new(), &made, "/x").await.map_err(|error| error.to_string())
    };
    for is_authority in [true, false] {
        for change in good {
            let answer = answer(is_authority, change).await;
            assert!(answer.is_ok(), "{is_authority}: {answer:?}");
        }
        for (words, change) in cases {
            let error = answer(is_authority, change).await.unwrap_err();
            assert!(error.contains(words), "{is_authority} {words}: {error}");
        }
    }
}

/// A server with the given certificate but without its key is not the intended server.
#[tokio::test]
async fn a_given_certificate_does_not_do_without_its_key() {
    #[derive(Debug)]
    struct Shows(Arc<rustls::sign::CertifiedKey>);

    impl rustls::server::ResolvesServerCert for Shows {
        fn resolve(
            &self,
            _hello: rustls::server::ClientHello<'_>,
        ) -> Option<Arc<rustls::sign::CertifiedKey>> {
            Some(self.0.clone())
        }
    }

    let (certificate, _) = self_signed(&["127.0.0.1"], true, |_| {});
    let (_, other_key) = self_signed(&["127.0.0.1"], true, |_| {});
    let other_key = PrivateKeyDer::from_pem_slice(other_key.as_bytes()).unwrap();
    let certified_key = rustls::sign::CertifiedKey::new(
        vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
        provider().key_provider.load_private_key(other_key).unwrap(),
    );
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shows(Arc::new(certified_key.clone()))));
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let upstream = RawUpstream::start_on_streams(move |_, stream| {
            let acceptor = acceptor.clone();
            async move {
                assert!(acceptor.accept(stream).await.is_err());
            }
        })
        .await;
        let ca_pem = Some(certificate.clone().into_bytes());
        let error = said(UpstreamConfig { ca_pem, ..config(&upstream) }).await.unwrap_err();
        assert!(error.to_string().contains("ignature"), "{version:?}: {error}");
    }
}

#[tokio::test]
async fn an_upstream_that_nobody_vouches_for_is_not_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let upstream = start(&authority, "127.0.0.1", rustls::DEFAULT_VERSIONS).await;
    let named = start(&authority, "u.example", rustls::DEFAULT_VERSIONS).await;
    let cases = [
        ("other authority", UpstreamConfig { ca_pem: Some(other.pem()), ..config(&upstream) }),
        ("other name", UpstreamConfig { ca_pem: Some(authority.pem()), ..config(&named) }),
        (
            "other server name",
            UpstreamConfig {
                ca_pem: Some(authority.pem()),
                server_name: Some("v.example".to_owned()),
                ..config(&named)
            },
        ),
    ];
    for (case, config) in cases {
        let error = said(config).await.unwrap_err();
        assert!(matches!(error, ProxyError::Tls { .. }), "{case}: {error}");
        assert_eq!(error.status(), 503, "{case}");
        assert!(error.to_string().contains("certificate"), "{case}: {error}");
    }
    let named_well = UpstreamConfig {
        ca_pem: Some(authority.pem()),
        server_name: Some("u.example".to_owned()),
        ..config(&named)
    };
    said(named_well).await.unwrap();
    said(UpstreamConfig { insecure: true, ..config(&named) }).await.unwrap();
}

#[tokio::test]
async fn a_client_certificate_is_printed() {
    let authority = Authority::new();
    let upstream = start(&authority, "127.0.0.1", rustls::DEFAULT_VERSIONS).await;
    let (certificate, key) = authority.issue("us");
    let own = ClientCertificate {
        certificate_pem: certificate.into_bytes(),
        key_pem: SecretBytes::new(key.into_bytes()),
    };
    let config = UpstreamConfig {
        ca_pem: Some(authority.pem()),
        client_certificate: Some(own),
        ..config(&upstream)
    };
    assert!(said(config).await.unwrap().starts_with("true "));
}

/// Half-close goes through TLS, too: as `close_notify`.
#[tokio::test]
async fn an_upgrade_over_tls_is_half_closed() {
    let authority = Authority::new();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let upstream = start(&authority, "127.0.0.1", &[version]).await;
        let config = UpstreamConfig { ca_pem: Some(authority.pem()), ..config(&upstream) };
        let proxy = Proxy::new();
        let front = Front::start(&proxy, &Upstream::new(config).unwrap(), forward).await;
        let mut client = Raw::connect(front.address).await;
        client.send(WEBSOCKET).await;
        assert!(client.head().await.starts_with("HTTP/1.1 101 "));
        client.send("hello").await;
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.rest().await, b"hello and that is all", "{version:?}");
        until(&proxy, |counts| counts.connections == 0 && counts.sessions == 0).await;
    }
}

#[tokio::test]
async fn an_upstream_without_tls_is_an_error_of_tls() {
    let upstream = RawUpstream::start(|_, mut raw| async move {
        raw.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        raw.rest().await;
    })
    .await;
    let error = said(UpstreamConfig { insecure: true, ..config(&upstream) }).await.unwrap_err();
    assert!(matches!(error, ProxyError::Tls { .. }), "{error}");
}

#[test]
fn what_cannot_be_used_is_refused_and_never_printed() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("us");
    let (_, other_key) = authority.issue("other");
    let base = || UpstreamConfig::new("https://u.example".parse().unwrap());
    let own = |certificate: &str, key: &str| {
        let own = ClientCertificate {
            certificate_pem: certificate.as_bytes().to_vec(),
            key_pem: SecretBytes::new(key.as_bytes().to_vec()),
        };
        let ca_pem = Some(authority.pem());
        UpstreamConfig { ca_pem, client_certificate: Some(own), ..base() }
    };
    let cut = key.replace("-----END PRIVATE KEY-----", "");
    let cases = [
        ("authorities", UpstreamConfig { ca_pem: Some(b"x".to_vec()), ..base() }),
        ("authorities", UpstreamConfig { ca_pem: Some(key.clone().into_bytes()), ..base() }),
        ("together", UpstreamConfig { ca_pem: Some(authority.pem()), insecure: true, ..base() }),
        ("client certificate", own("x", &key)),
        ("client certificate", own(&certificate, "x")),
        ("client certificate", own(&certificate, &cut)),
        ("client certificate", own(&certificate, &other_key)),
        (
            "server name",
            UpstreamConfig { insecure: true, server_name: Some("a b".to_owned()), ..base() },
        ),
        (
            "credential",
            UpstreamConfig {
                insecure: true,
                authorization: Some(SecretBytes::new(b"Bearer a\r\nX: b".to_vec())),
                ..base()
            },
        ),
    ];
    let secret_line = key.lines().nth(1).unwrap();
    for (about, config) in cases {
        let printed = format!("{config:?}");
        assert!(!printed.contains(secret_line) && !printed.contains("Bearer"), "{printed}");
        let error = Upstream::new(config).unwrap_err();
        for said in [error.to_string(), format!("{error:?}")] {
            assert!(!said.contains(secret_line) && !said.contains("Bearer"), "{said}");
        }
        assert!(error.to_string().contains(about), "{about}: {error}");
    }
    assert!(Upstream::new(own(&certificate, &key)).is_ok());
}
