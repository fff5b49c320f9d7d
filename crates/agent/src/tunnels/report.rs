//! The condition `Tunnel` of the Cluster: the servers that there are tunnels to, and why there is none.

use std::sync::Arc;
use std::time::Duration;

use postern_client::Client;
use postern_kinds::Condition;
use postern_meta::time::Timestamp;
use tokio::time::sleep;

use crate::conditions;
use crate::state::State;
use crate::tunnel_pool::{Failure, Pool, Summary};

/// The interval at which the state is checked. A short interruption is not written.
const INTERVAL: Duration = Duration::from_secs(2);

/// Writes the condition when it changes. It never returns.
pub(crate) async fn report(
    pool: Arc<Pool>,
    state: Arc<State>,
    cluster: String,
    mut client: Client,
) {
    let mut written: Option<Summary> = None;
    loop {
        sleep(INTERVAL).await;
        let summary = pool.summary(&state.servers());
        let is_known = !summary.connected.is_empty() || summary.failure.is_some();
        if !is_known || written.as_ref() == Some(&summary) {
            continue;
        }
        let now = Timestamp::from_unix_seconds(state.now());
        match conditions::write(&mut client, &cluster, condition(&summary, now)).await {
            Ok(()) => written = Some(summary),
            Err(error) => tracing::debug!("cannot write the condition Tunnel: {error:#}"),
        }
    }
}

fn condition(summary: &Summary, now: Timestamp) -> Condition {
    let list = |names: &std::collections::BTreeSet<String>| {
        names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let (status, reason, message) = match (&summary.failure, summary.missing.is_empty()) {
        (Some((failure, why)), _) => ("False", reason_of(*failure), message_of(*failure, why)),
        (None, false) => {
            let (connected, missing) = (list(&summary.connected), list(&summary.missing));
            let message = format!("tunnels to {connected}; none to {missing} yet");
            ("True", "ServersMissing", message)
        }
        (None, true) => ("True", "Connected", format!("tunnels to {}", list(&summary.connected))),
    };
    Condition {
        r#type: "Tunnel".to_owned(),
        status: status.to_owned(),
        observed_generation: None,
        last_transition_time: Some(now),
        reason: reason.to_owned(),
        message,
    }
}

fn reason_of(failure: Failure) -> &'static str {
    match failure {
        Failure::Network => "Unreachable",
        Failure::Busy => "ServerBusy",
        Failure::TooOld => "ServerTooOld",
        Failure::NoCommonVersion => "NoCommonVersion",
        Failure::NotAllowed => "NotAllowed",
        Failure::NotWanted => "NotWanted",
    }
}

fn message_of(failure: Failure, why: &str) -> String {
    match failure {
        Failure::TooOld => format!(
            "the central server knows no tunnels: upgrade it, or use the endpoint of the agent ({why})"
        ),
        Failure::NotAllowed => format!(
            "the access key of the agent needs the verb connect on clusters/tunnel, in its role and in its scope ({why})"
        ),
        _ => why.to_owned(),
    }
}
