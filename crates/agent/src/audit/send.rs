//! Sends the records that wait to the central server, file by file.

use std::sync::Arc;
use std::time::Duration;

use postern_client::{Client, Collection, Error};
use postern_kinds::Kind as _;
use postern_kinds::audit_event_list::{AUDIT_V1, AuditEvent, AuditEventList};
use postern_kinds::cluster::Cluster;
use postern_meta::object::Object;
use tokio::time::{Instant, sleep};

use super::Audit;
use crate::rare_line::RareLines;

/// The interval at which the queue is checked for records.
const INTERVAL: Duration = Duration::from_secs(1);

/// The wait after a failure: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The interval at which the log reports that records cannot be sent.
const WARNING_INTERVAL: Duration = Duration::from_mins(5);

/// Records that were not sent.
static UNSENT: RareLines = RareLines::new();

/// Sends records when they are in the queue. It never returns.
pub(crate) async fn send(audit: Arc<Audit>, mut client: Client, cluster: String) {
    let (mut pause, mut warned): (Duration, Option<Instant>) = (FIRST_PAUSE, None);
    loop {
        match send_one(&audit, &mut client, &cluster).await {
            Ok(true) => (pause, warned) = (FIRST_PAUSE, None),
            Ok(false) => sleep(INTERVAL).await,
            Err(error) => {
                if warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                    warned = Some(Instant::now());
                    let bytes = audit.queue.bytes();
                    tracing::warn!(bytes, "audit records wait for the central server: {error:#}");
                }
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Sends the oldest file. The result is whether there was one.
async fn send_one(audit: &Audit, client: &mut Client, cluster: &str) -> anyhow::Result<bool> {
    let Some(segment) = audit.queue.oldest().await else { return Ok(false) };
    let (items, corrupt) = audit.queue.read(segment).await?;
    if corrupt > 0 {
        UNSENT.write("corrupt", |left_out| {
            tracing::warn!(corrupt, left_out, "skipped corrupt audit records");
        });
    }
    let refused = send_all(client, cluster, items).await?;
    if refused.is_empty() {
        audit.queue.remove(segment).await;
    } else {
        let forgotten = audit.queue.set_aside(segment, &refused).await;
        audit.lost.note(forgotten);
    }
    Ok(true)
}

/// Sends records, and returns those that the central server rejects. The server rejects a list as a
/// whole. Each half of a rejected list is then sent separately, so that one bad record does not
/// block the others.
async fn send_all(
    client: &mut Client,
    cluster: &str,
    items: Vec<AuditEvent>,
) -> Result<Vec<AuditEvent>, Error> {
    let clusters = Collection::of::<Cluster>(None);
    let (mut lists, mut refused) = (vec![items], Vec::new());
    while let Some(mut items) = lists.pop() {
        if items.is_empty() {
            continue;
        }
        let list = list_of(&items);
        match client.act(clusters, cluster, "auditevents", &list, false).await {
            Ok(_) => {}
            Err(error) if !is_refused(&error) => return Err(error),
            Err(error) if items.len() == 1 => {
                // A caller may be able to cause such records.
                UNSENT.write("refused", |left_out| {
                    tracing::error!(
                        left_out,
                        "the central server does not take an audit record, which is set aside: {error}"
                    );
                });
                refused.append(&mut items);
            }
            Err(_) => {
                let second = items.split_off(items.len() / 2);
                lists.extend([second, items]);
            }
        }
    }
    Ok(refused)
}

/// Whether the server would reject the same records again.
fn is_refused(error: &Error) -> bool {
    error.status().is_some_and(|status| [400, 413, 422].contains(&status.code))
}

fn list_of(items: &[AuditEvent]) -> Object {
    let items = serde_json::to_value(items).unwrap_or_default();
    Object {
        api_version: AUDIT_V1.to_string(),
        kind: AuditEventList::INFO.kind.to_owned(),
        fields: serde_json::Map::from_iter([("items".to_owned(), items)]),
        ..Object::default()
    }
}
