//! The entry point of other servers, which hand over requests for the tunnels of this one. The other server has
//! authenticated, limited, recorded and counted the request.

use http::{Request, Response};
use postern_meta::decode::Format;
use postern_meta::status::ApiError;

use super::{Client, Server};
use postern_gateway::relay;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;
use postern_http::wire::respond;

/// The owner of connections of other servers, in the table of connections.
const OWNER: &str = "system:postern";

/// Sends a request of another server on. `admitted` is the result of the stages before.
pub(super) async fn serve(
    server: &Server,
    client: &Client,
    request: Request<IncomingBody>,
    admitted: Result<(), ApiError>,
) -> Response<Body> {
    let sent = match admitted.and_then(|()| server.registry.cache().check_store()) {
        Ok(()) => relay::serve(&server.gateway, request).await,
        Err(error) => Err(error),
    };
    match sent {
        Ok(response) => {
            client.peer.set_authenticated(OWNER, true);
            respond::relayed(response)
        }
        Err(error) => respond::error(&error, Format::Json, false),
    }
}

/// The response to the first request of a connection on which another server sends long heads.
pub(super) fn open(client: &Client, request: Request<IncomingBody>) -> Response<Body> {
    client.peer.set_authenticated(OWNER, true);
    respond::long_heads(request)
}
