//! `clusters/NAME/auditevents`: the agent of a cluster reports its decisions for the audit log.

use postern_kinds::AnyKind as _;
use postern_kinds::audit_event_list::{AuditEventList, MAX_EVENTS, Spec};
use postern_kinds::cluster::{Cluster, agent_subject};
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_registry::admit::Writing;
use postern_registry::permit::Permit;
use postern_registry::registry::{EncodedObject, not_found};
use serde::Deserialize as _;
use serde_json::Map;

use super::Server;

/// Writes reported records to the audit log, and returns an empty list when they are written. Records that this
/// server wrote before are skipped, so that an agent can repeat a report that was not acknowledged.
///
/// # Errors
/// - 403 for every caller but the agent of this cluster
/// - 404 when the cluster does not exist
/// - 422 for a record that is not an agent's
/// - 429 while another report of this cluster is being written, or when the cluster exceeds its rate limit
/// - 503 when the audit log cannot be written
pub(super) async fn report(
    server: &Server,
    permit: &Permit,
    sent: Option<Object>,
    writing: &Writing,
) -> Result<EncodedObject, ApiError> {
    let cluster = permit.name();
    let agent = permit.credential().bearer().name.clone();
    if agent != agent_subject(cluster) {
        let why =
            format!("only {} can report audit events of this cluster", agent_subject(cluster));
        return Err(ApiError::forbidden(Cluster.info().group_resource(), cluster, why));
    }
    let found = server.registry.read_to_decide(&Cluster, None, cluster)?;
    found.ok_or_else(|| not_found(&Cluster, cluster))?;
    let reporting = server.audit.begin_report(cluster)?;
    let sent = sent.ok_or_else(|| {
        ApiError::bad_request("the body is missing: send the audit events in the body")
    })?;
    let fields = serde_json::Value::Object(sent.fields);
    let events = Spec::deserialize(fields).map_err(|error| {
        ApiError::bad_request(format!("cannot decode the list of audit events: {error}"))
    })?;
    let events = events.items;
    if events.len() > MAX_EVENTS {
        let detail = format!("must have at most {MAX_EVENTS} items");
        return Err(invalid(FieldError::invalid("items", BadValue::Omitted, detail)));
    }
    let lines = server.audit.reported_lines(cluster, &agent, events).map_err(invalid)?;
    if !writing.dry_run {
        server.audit.report(&reporting, lines).await?;
    }
    let info = AuditEventList.info();
    let object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata: ObjectMeta::default(),
        fields: Map::from_iter([("items".to_owned(), serde_json::json!([]))]),
    };
    EncodedObject::for_action(permit, &AuditEventList, &object)
}

fn invalid(error: FieldError) -> ApiError {
    let mut errors = FieldErrors::new();
    errors.push(error);
    ApiError::invalid(AuditEventList.info().group_kind(), "", errors)
}
