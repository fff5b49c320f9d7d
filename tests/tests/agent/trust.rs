//! The trust between agents and servers: the authority that an agent trusts, and the clients of an
//! agent behind an ingress that ends TLS.

use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::objects::endpoint_token;
use postern_tests::rights::path;
use postern_tests::{Home, Kubeconfig, SelfSigned, wait};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, RootCertStore, SupportedCipherSuite};
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::agent::scene::{CLUSTER, Central, SECRETS, agent_setup, member, start_agent_with};

/// An ingress: it ends TLS with its own certificate, and speaks TLS with the agent.
async fn ingress(listener: TcpListener, tls: TlsAcceptor, agent: String, authority: Vec<u8>) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, connector, agent) = (tls.clone(), connector.clone(), agent.clone());
        tokio::spawn(async move {
            let Ok(mut client) = tls.accept(stream).await else { return };
            let name = ServerName::try_from("127.0.0.1").unwrap();
            let stream = TcpStream::connect(agent).await.unwrap();
            let mut upstream = connector.connect(name, stream).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut upstream).await;
        });
    }
}

#[tokio::test]
async fn an_agent_works_behind_an_ingress_that_ends_tls() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let certificate = SelfSigned::make();
    let file = home.path().join("ingress-ca.pem");
    std::fs::write(&file, certificate.pem()).unwrap();
    let advertise = format!("--advertise={host}");
    let ca_file = format!("--advertise-ca-file={}", file.display());
    let agent = start_agent_with(&central, &member, &home, &[&advertise, &ca_file]).await;
    let authority = agent.kubeconfig("x").authority;
    let agent_address = agent.address().to_owned();
    tokio::spawn(ingress(listener, certificate.acceptor(), agent_address, authority));
    agent.ready().await;

    // The annotations of the Cluster are enough to reach the agent.
    let admin = central.admin();
    let annotations = wait::until("the endpoint in the Cluster", async || {
        let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
        let annotations = cluster["metadata"]["annotations"].clone();
        annotations["platform.sh/direct-cluster-endpoint"].is_string().then_some(annotations)
    })
    .await;
    assert_eq!(annotations["platform.sh/direct-cluster-endpoint"], host);
    let ca_data = annotations["platform.sh/direct-cluster-endpoint-ca-data"].as_str().unwrap();
    let client = Client::new(&Kubeconfig {
        server: format!("https://{host}{CLUSTER}"),
        authority: STANDARD.decode(ca_data).unwrap(),
        token: endpoint_token(&central.ada, json!({})).await,
        namespace: "platform".to_owned(),
    });
    let secrets = format!("{CLUSTER}{SECRETS}");
    // Any client can send the headers with which an ingress describes a client.
    let request = client.get(&secrets).header("x-forwarded-for", "203.0.113.9");
    let request = request.header("x-remote-user", "admin").header("x-forwarded-user", "admin");
    request.send().await.expect(200);
    let record = wait::until("the record of the request", async || {
        central.home.reported_records().into_iter().find(|record| {
            record["annotations"]["platform.sh/cluster"] == "member" && record["verb"] == "list"
        })
    })
    .await;
    assert_eq!(record["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(record["user"]["username"], "ada");
    agent.stop().await;

    // Where the system trusts the ingress, the Cluster has no authorities.
    let more = [advertise.as_str(), "--advertise-system-ca"];
    let agent = start_agent_with(&central, &member, &home, &more).await;
    wait::until("the authorities to be gone", async || {
        let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
        let annotations = &cluster["metadata"]["annotations"];
        annotations.get("platform.sh/direct-cluster-endpoint-ca-data").is_none().then_some(())
    })
    .await;
    agent.stop().await;
}

/// CVE-2024-22030: an agent does not trust an arbitrary server at the server's URL.
#[tokio::test]
async fn cve_2024_22030_an_agent_trusts_a_pinned_authority_and_no_other() {
    let (central, member) = (Central::new().await, member().await);
    let authority = Kubeconfig::read(&central.home.kubeconfig()).unwrap().authority;
    let authority = CertificateDer::from_pem_slice(&authority).unwrap();
    let public = ParsedCertificate::try_from(&authority).unwrap().subject_public_key_info();
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let SupportedCipherSuite::Tls13(suite) = suite else { panic!("a suite of TLS 1.3") };
    let digest = suite.common.hash_provider.hash(&public);
    let mut hex = String::new();
    for byte in digest.as_ref() {
        let _ = write!(hex, "{byte:02x}");
    }
    let made = CliUser::new()
        .with("KUBECONFIG", central.home.kubeconfig().to_str().unwrap())
        .run(&["create", "cluster", "other"])
        .await;
    let told = made.err;
    assert!(told.contains(&format!("--ca-digest sha256:{hex} ")), "{told}");
    assert!(told.contains("resourceNames: [vc-NAME]"), "{told}");
    let home = Home::new();
    let setup = agent_setup(&central, &member.home().kubeconfig(), &home);
    let agent = setup.pinned(&format!("sha256:{hex}")).launch().await;
    agent.ready().await;
    agent.stop().await;

    let (home, other) = (Home::new(), format!("sha256:{}", "0".repeat(64)));
    let setup = agent_setup(&central, &member.home().kubeconfig(), &home);
    let agent = setup.pinned(&other).launch().await;
    wait::until("the agent to refuse the server", async || {
        agent.logged().contains("its authority is not trusted").then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn an_agent_that_is_told_of_no_authority_or_of_two_says_which_flags_there_are() {
    let of = async |more: &[&str]| {
        let needed = ["--server=https://x", "--cluster=c", "--key-file=k", "--upstream=u"];
        let mut command = tokio::process::Command::new(postern_tests::binary::path());
        let output = command.arg("agent").args(needed).args(more).env_clear().output();
        let output = wait::within("the agent to end", output).await.unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let flags = "<--ca-file <FILE>|--ca-digest <sha256:HEX>>";
    let none = of(&[]).await;
    assert_eq!(none.matches(flags).count(), 2, "the error and the usage: {none}");
    let both = of(&["--ca-file=f", "--ca-digest=d"]).await;
    assert!(both.contains("cannot be used with"), "{both}");
}
