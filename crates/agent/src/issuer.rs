//! The documents of the cluster as an issuer of tokens, which the central server reads to verify the tokens of the
//! cluster's workloads (`docs/reference/workload-identity.md`). Only a token of the server itself gets them here, and it
//! gets nothing else. Other requests for these paths are like any other request to the cluster.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use postern_auth::endpoint_token::server_audience;
use postern_oidc::{discovery, jwks};
use postern_proxy::{Forward, Proxy};

use crate::answer::{self, Body, failed};
use crate::route;
use crate::server_token;
use crate::state::State;
use crate::upstream::ClusterUpstream;

/// The path of the cluster at its agent.
const CLUSTER: &str = "/kubernetes/cluster";

/// The user agent of requests that the agent sends for the central server.
pub(crate) const OWN_REQUEST: HeaderValue = HeaderValue::from_static("postern-agent");

/// How long the cluster may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The path in the cluster of the document that the central server requests; `None` for any other request.
pub(crate) fn document_of(state: &State, request: &Request<Incoming>) -> Option<&'static str> {
    let path = request.uri().path().strip_prefix(CLUSTER)?;
    let path = [discovery::OF_CLUSTER, jwks::OF_CLUSTER].into_iter().find(|one| *one == path)?;
    let is_asked = request.method() == Method::GET
        && server_token::is_in(state, request.headers(), server_audience);
    is_asked.then_some(path)
}

/// The response with a document of the issuer.
pub(crate) async fn answer(
    proxy: &Proxy,
    upstream: &ClusterUpstream,
    path: &'static str,
) -> Response<Body> {
    tracing::debug!(path, "the central server reads a document of the issuer");
    let forward = Forward {
        headers: HeaderMap::from_iter([(USER_AGENT, OWN_REQUEST)]),
        answer_timeout: Some(ANSWER_TIMEOUT),
        ..Forward::new(http::uri::PathAndQuery::from_static(path))
    };
    let request = Request::new(Empty::<Bytes>::new());
    let response = proxy.forward(&upstream.current(), request, forward).await;
    match response {
        Ok(response) => response.map(|body| answer::proxied(body, false)),
        Err(error) => answer::status(&failed(error, route::CLUSTER)),
    }
}
