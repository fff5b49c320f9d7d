//! A certificate that is given as files is replaced while the server runs.

use postern_tests::http::Client;
use postern_tests::{Home, Kubeconfig, Setup, wait};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate with its chain, and its key, in PEM.
    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        (certificate + &self.certificate, key.serialize_pem())
    }
}

async fn presented(client: &Client) -> Vec<u8> {
    let stream = client.raw().await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn new_files_are_used_and_bad_ones_are_not() {
    let home = Home::new();
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let put = |(certificate, its_key): &(String, String)| {
        std::fs::write(&key, its_key).unwrap();
        std::fs::write(&cert, certificate).unwrap();
    };
    let authority = Authority::new();
    put(&authority.issue());
    let server = Setup::on(&home)
        .argument("--tls-cert-file")
        .argument(&cert)
        .argument("--tls-key-file")
        .argument(&key)
        .start()
        .await;
    let client = server.client();
    let first = presented(&client).await;

    let second = authority.issue();
    put(&second);
    wait::until("the new certificate", async || (presented(&client).await != first).then_some(()))
        .await;
    let in_use = presented(&client).await;

    std::fs::write(&cert, "no certificate").unwrap();
    wait::until("a log line about the bad certificate", async || {
        home.logged().contains("cannot renew the certificate").then_some(())
    })
    .await;
    assert_eq!(presented(&client).await, in_use);

    // Of another authority: the kubeconfig is updated, so that its owner still has access.
    let foreign = Authority::new().issue();
    put(&foreign);
    wait::until("a kubeconfig that works", async || {
        let kubeconfig = Kubeconfig::read(&home.kubeconfig()).ok()?;
        let reply = Client::new(&kubeconfig).get("/readyz").try_send().await.ok()?;
        (kubeconfig.authority == foreign.0.as_bytes() && reply.status == 200).then_some(())
    })
    .await;
    server.stop().await;
}
