//! Serves the configuration of a cluster's agent: as a get, or as a watch.

use http::StatusCode;
use postern_kinds::Verb;
use postern_kinds::agent_config::{AgentConfig, Part};
use postern_meta::accept::Offered;
use postern_meta::options::{GetOptions, ListOptions};
use postern_meta::status::ApiError;
use postern_registry::permit::SELECTABLE_FIELDS;
use postern_registry::registry::agent_configs::watch::AgentWatcher;
use postern_registry::registry::values::Recipient;

use super::Server;
use super::verbs::VerbRequest;
use crate::endpoints::tagged;
use postern_http::stages::parse::Parsed;
use postern_http::wire::encode::Negotiated;
use postern_http::wire::respond::{self, ObjectResponse};
use postern_http::wire::websocket;

/// Serves a get or a watch.
///
/// # Errors
/// 404 when the cluster does not exist; 400 for an invalid part.
pub(super) async fn serve(
    server: &Server,
    request: &VerbRequest,
) -> Result<ObjectResponse, ApiError> {
    let VerbRequest { parsed, permit, account, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::Object, server.source.now())?;
    let part = part_of(parsed)?;
    let registry = &server.registry;
    let to = Recipient::new(registry, permit);
    if permit.target().verb == Verb::Watch {
        let options = ListOptions::parse(parsed.query(), SELECTABLE_FIELDS)?;
        let handshake = websocket::handshake(parsed)?;
        let watch_permit = server.flow.acquire_watch(account)?;
        let ending = server.watches_end();
        let watcher = AgentWatcher::begin(registry, permit, part, &options, ending).await?;
        let meter = server.metrics.watch_of_agent(permit.target(), permit.name());
        let large = request.large_work(server);
        return Ok(respond::watch(to, watcher, watch_permit, meter, negotiated, handshake, large));
    }
    // The options have no effect. Invalid ones are rejected all the same.
    GetOptions::parse(parsed.query())?;
    registry.cache().wait_until_current().await?;
    let document = registry.agent_config(permit.name(), part).await?;
    let object = document.encoded();
    let response = respond::object(&to, &AgentConfig, StatusCode::OK, object, negotiated)?;
    Ok(response.map(|response| tagged(parsed.headers(), response, &document.hash)))
}

/// The part that the client requests; `None` for all parts.
fn part_of(parsed: &Parsed) -> Result<Option<Part>, ApiError> {
    let Some(text) = parsed.query().get(Part::PARAMETER) else { return Ok(None) };
    let part = Part::ALL.into_iter().find(|part| part.as_str() == text);
    part.map(Some).ok_or_else(|| {
        let known = Part::ALL.map(Part::as_str).join(" or ");
        ApiError::bad_request(format!("invalid query parameter part: must be {known}, or omitted"))
    })
}
