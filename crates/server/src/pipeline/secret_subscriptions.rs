//! `clusters/NAME/secretsubscriptions`: the agent of a cluster subscribes to project secrets. The response is a watch.

use postern_flow::Requester;
use postern_http::wire::encode::Negotiated;
use postern_http::wire::respond::{self, ObjectResponse};
use postern_kinds::secret_subscription::secrets_of;
use postern_meta::accept::Offered;
use postern_meta::object::Object;
use postern_meta::options::WriteOptions;
use postern_meta::status::ApiError;
use postern_registry::registry::values::Recipient;
use postern_registry::secret_subscriptions::watch::{Room, SecretWatcher};

use super::Server;
use super::verbs::VerbRequest;

/// Begins a subscription.
///
/// # Errors
/// - 400 for a body that is missing or cannot be decoded, and for a dry run
/// - 401 and 403 for every caller but the agent of this cluster
/// - 404 when the cluster does not exist
/// - 422 for invalid or too many Secrets
/// - 429 when the owner of the key has no room for another watch, or for the subscription
pub(super) async fn serve(
    server: &Server,
    request: &VerbRequest,
    object: Option<Object>,
    options: &WriteOptions,
) -> Result<ObjectResponse, ApiError> {
    let VerbRequest { parsed, permit, account, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::Object, server.source.now())?;
    if options.dry_run {
        let message = "a subscription cannot be a dry run: leave dryRun out";
        return Err(ApiError::bad_request(message));
    }
    let object = object.ok_or_else(|| {
        ApiError::bad_request("the body is missing: send a SecretSubscription in the body")
    })?;
    let secrets = secrets_of(&object)?;
    drop(object);
    let watch_permit = server.flow.acquire_watch(account)?;
    let requester = Requester { account: account.clone(), is_system: false };
    let room = Room { budget: server.flow.responses.clone(), requester };
    let ending = server.watches_end();
    let registry = &server.registry;
    let watcher = SecretWatcher::begin(registry, permit, secrets, room, ending).await?;
    let meter = server.metrics.watch(permit.target());
    let (to, large) = (Recipient::new(registry, permit), request.large_work(server));
    Ok(respond::watch(to, watcher, watch_permit, meter, negotiated, None, large))
}
