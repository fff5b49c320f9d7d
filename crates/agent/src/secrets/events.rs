//! Events about Secrets in their namespaces, with a bound on their rate: tenants can cause them.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

use super::location::SecretId;

/// How long an Event of a Secret is not repeated. Kubernetes keeps Events for an hour.
const REPEAT_INTERVAL: Duration = Duration::from_mins(30);

/// The most Events of all Secrets in one minute.
const MAX_PER_MINUTE: u32 = 300;

/// The most Events of one namespace in one minute: one tenant must not use up the Events of others.
const MAX_OF_NAMESPACE: u32 = 30;

/// The most Events that are remembered, so that they are not repeated.
const MAX_REMEMBERED: usize = 20_000;

/// The most bytes of a name before the part that the API server generates.
const MAX_NAME_BYTES: usize = 200;

/// The component that writes the Events.
const COMPONENT: &str = "postern-agent";

/// The Event of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

/// Whether an Event may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// The same Event was written shortly before.
    Repeated,
    /// There are too many.
    LeftOut,
}

/// The Events that were written recently.
#[derive(Debug, Default)]
pub(super) struct RecentEvents(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    written: HashMap<EventKey, Instant>,
    minute: Option<Instant>,
    in_minute: u32,
    of_namespace: HashMap<String, u32>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct EventKey {
    id: SecretId,
    /// A Secret that is created again has Events of its own.
    uid: String,
    reason: &'static str,
    message: &'static str,
}

impl RecentEvents {
    /// Whether an Event may be written now. If so, it counts as written.
    pub(super) fn admit(
        &self,
        id: &SecretId,
        uid: &str,
        notice: Notice,
        now: Instant,
    ) -> Admission {
        let mut guard = self.0.lock();
        let recent = &mut *guard;
        let Notice { reason, message } = notice;
        let key = EventKey { id: id.clone(), uid: uid.to_owned(), reason, message };
        let is_recent = |at: &Instant| now.duration_since(*at) < REPEAT_INTERVAL;
        if recent.written.get(&key).is_some_and(is_recent) {
            return Admission::Repeated;
        }
        if recent.written.len() >= MAX_REMEMBERED {
            recent.written.retain(|_, at| is_recent(at));
        }
        if recent.minute.is_none_or(|at| now.duration_since(at) >= Duration::from_mins(1)) {
            (recent.minute, recent.in_minute) = (Some(now), 0);
            recent.of_namespace.clear();
        }
        let of_namespace = recent.of_namespace.get(&id.namespace).copied().unwrap_or_default();
        let is_over = recent.in_minute >= MAX_PER_MINUTE || of_namespace >= MAX_OF_NAMESPACE;
        if is_over || recent.written.len() >= MAX_REMEMBERED {
            return Admission::LeftOut;
        }
        recent.in_minute += 1;
        recent.of_namespace.insert(id.namespace.clone(), of_namespace + 1);
        recent.written.insert(key, now);
        Admission::Admitted
    }
}

/// The Event as it is posted, at a time in RFC 3339.
pub(super) fn object(id: &SecretId, secret_uid: &str, notice: Notice, now: &str) -> Value {
    let SecretId { namespace, name, .. } = id;
    // Names are in ASCII.
    let prefix = name.get(..MAX_NAME_BYTES).unwrap_or(name);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "generateName": format!("{prefix}."), "namespace": namespace },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": name, "uid": secret_uid,
        },
        "type": "Warning",
        "reason": notice.reason,
        "message": notice.message,
        "source": { "component": COMPONENT },
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::super::location::Place;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_event_is_not_repeated_and_all_of_them_have_a_rate() {
        let recent = RecentEvents::default();
        let notice = |reason| Notice { reason, message: "m" };
        let id = |index: u32| SecretId {
            place: Place::Cluster,
            namespace: format!("ns{}", index / MAX_OF_NAMESPACE),
            name: format!("s{index}"),
        };
        let admit = |index, reason| recent.admit(&id(index), "u", notice(reason), Instant::now());
        assert_eq!(admit(0, "A"), Admission::Admitted);
        assert_eq!(admit(0, "A"), Admission::Repeated);
        assert_eq!(admit(0, "B"), Admission::Admitted);
        let of_new = recent.admit(&id(0), "v", notice("A"), Instant::now());
        assert_eq!(of_new, Admission::Admitted, "it was created again");
        for index in 3..MAX_PER_MINUTE {
            assert_eq!(admit(index, "A"), Admission::Admitted);
        }
        assert_eq!(admit(MAX_PER_MINUTE, "A"), Admission::LeftOut);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(admit(MAX_PER_MINUTE, "A"), Admission::Admitted);
        assert_eq!(admit(0, "A"), Admission::Repeated);
        tokio::time::advance(REPEAT_INTERVAL).await;
        assert_eq!(admit(0, "A"), Admission::Admitted);
    }
}
