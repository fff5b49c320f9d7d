//! Where clients reach the agent, as the agent writes it into its Cluster at the start: through the subresource `endpoint`,
//! which sets nothing else. A central server of the version before has only the annotations.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_client::{Client, Collection, Error};
use postern_kinds::Kind as _;
use postern_kinds::cluster::{Cluster, DIRECT_ENDPOINT};
use postern_meta::object::Object;
use serde_json::{Map, json};
use tokio::time::sleep;

/// How long it is until the endpoint is written again, after that has failed.
const PAUSE: Duration = Duration::from_secs(5);

/// The subresource of a Cluster, and the kind that is posted to it.
const SUBRESOURCE: &str = "endpoint";
const KIND: &str = "ClusterEndpoint";

/// The status codes of a central server that does not have the subresource. For it, the request has
/// an unknown path or another method, or the agent's key does not have the permission.
const WITHOUT_SUBRESOURCE: [u16; 3] = [403, 404, 405];

/// Where clients reach this agent.
pub(crate) struct OwnEndpoint {
    /// `HOST:PORT`.
    pub(crate) host: String,
    /// The certificate authorities by which clients know the agent, in PEM; `None` means those of their systems.
    pub(crate) authority: Option<Vec<u8>>,
}

impl OwnEndpoint {
    /// Writes it into the Cluster, and tries again until that has succeeded.
    pub(crate) async fn advertise(self, mut client: Client, cluster: String) {
        let mut is_warned = false;
        while let Err(error) = self.write(&mut client, &cluster).await {
            if !std::mem::replace(&mut is_warned, true) {
                tracing::warn!("the endpoint could not be written into the Cluster: {error}");
            }
            sleep(PAUSE).await;
        }
        tracing::info!(host = self.host, "the endpoint is in the Cluster");
    }

    async fn write(&self, client: &mut Client, cluster: &str) -> Result<(), Error> {
        let clusters = Collection::of::<Cluster>(None);
        let posted = client.act(clusters, cluster, SUBRESOURCE, &self.object(), false).await;
        match posted {
            Err(Error::Status(status)) if WITHOUT_SUBRESOURCE.contains(&status.code) => {}
            posted => return posted.map(drop),
        }
        let annotations = json!({
            DIRECT_ENDPOINT: self.host,
            // Without authorities, one of an earlier run is removed.
            format!("{DIRECT_ENDPOINT}-ca-data"): self.authority(),
        });
        let patch = json!({ "metadata": { "annotations": annotations } });
        client.merge_patch(clusters, cluster, &patch).await.map(drop)
    }

    fn object(&self) -> Object {
        let mut spec = json!({ "host": self.host, "insecure": false });
        if let Some(authority) = self.authority() {
            spec["caData"] = authority.into();
        }
        Object {
            api_version: Cluster::INFO.version.to_string(),
            kind: KIND.to_owned(),
            fields: Map::from_iter([("spec".to_owned(), spec)]),
            ..Object::default()
        }
    }

    fn authority(&self) -> Option<String> {
        self.authority.as_ref().map(|pem| STANDARD.encode(pem))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinSet;

    use super::*;
    use crate::testing::CentralSocket;

    /// A central server that answers each request with the next code.
    struct Central {
        client: Client,
        requests: Arc<Mutex<Vec<String>>>,
        _tasks: JoinSet<()>,
    }

    async fn central(codes: &'static [u16]) -> Central {
        let central = CentralSocket::open().await;
        let client = central.client();
        let CentralSocket { listener, acceptor, .. } = central;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut tasks) = (requests.clone(), JoinSet::new());
        tasks.spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            for code in codes {
                let request = read_request(&mut stream).await;
                seen.lock().push(request);
                let body = json!({ "kind": "Status", "apiVersion": "v1", "code": code }).to_string();
                let answer = format!(
                    "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Central { client, requests, _tasks: tasks }
    }

    /// The next request, with its body.
    async fn read_request(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
        let mut bytes = Vec::new();
        loop {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "the client has gone");
            let text = String::from_utf8(bytes.clone()).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.to_ascii_lowercase().lines().find_map(|line| {
                line.strip_prefix("content-length: ").map(|length| length.parse().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
    }

    fn body(request: &str) -> Value {
        request.split_once("\r\n\r\n").unwrap().1.parse().unwrap()
    }

    fn own(authority: Option<&str>) -> OwnEndpoint {
        let authority = authority.map(|pem| pem.as_bytes().to_vec());
        OwnEndpoint { host: "east:6443".to_owned(), authority }
    }

    #[tokio::test]
    async fn an_endpoint_is_written_through_the_subresource_alone() {
        let mut central = central(&[200]).await;
        own(Some("pem")).write(&mut central.client, "east").await.unwrap();
        let requests = central.requests.lock().clone();
        assert_eq!(requests.len(), 1);
        let line = requests[0].lines().next().unwrap();
        assert!(line.starts_with("POST ") && line.contains("/clusters/east/endpoint?"), "{line}");
        assert_eq!(
            body(&requests[0]),
            json!({
                "apiVersion": "management.platform.sh/v1",
                "kind": "ClusterEndpoint",
                "metadata": {},
                "spec": { "host": "east:6443", "insecure": false, "caData": "cGVt" },
            })
        );
    }

    #[tokio::test]
    async fn a_server_of_the_version_before_gets_the_annotations() {
        for codes in [&[404, 200][..], &[405, 200], &[403, 200]] {
            let mut central = central(codes).await;
            own(None).write(&mut central.client, "east").await.unwrap();
            let requests = central.requests.lock().clone();
            assert!(requests[1].starts_with("PATCH "), "{}", requests[1]);
            let name = DIRECT_ENDPOINT;
            let annotations = json!({ name: "east:6443", format!("{name}-ca-data"): null });
            assert_eq!(body(&requests[1])["metadata"]["annotations"], annotations);
        }
        // A value that the server refuses is refused, and no other way is tried.
        let mut central = central(&[422]).await;
        let refused = own(None).write(&mut central.client, "east").await;
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(central.requests.lock().len(), 1);
    }
}
