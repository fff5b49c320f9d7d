//! The readiness of the agent: whether its cluster answers, and whether its credential can impersonate there. The
//! condition `Ready` of the Cluster has the result.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use postern_client::Client;
use postern_kinds::Condition;
use postern_meta::decode::decode_typed;
use postern_meta::time::Timestamp;
use postern_proxy::{Forward, Proxy};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::conditions;
use crate::state::State;
use crate::upstream::ClusterUpstream;

/// The resources with names that the agent sends: its credential needs the verb `impersonate` on
/// them.
const RESOURCES: [&str; 2] = ["users", "groups"];

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// How long the cluster has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The time until the next check: without an answer, after a refusal, and while the agent is ready.
const AFTER_SILENCE: Duration = Duration::from_secs(5);
const AFTER_REFUSAL: Duration = Duration::from_mins(1);
const WHEN_READY: Duration = Duration::from_mins(10);

/// The result of a check of the agent's cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// There was no check yet.
    #[default]
    Unknown,
    /// It answers, and the agent may act as callers.
    Ready,
    /// It answers, and the agent may not act as all of these.
    CannotImpersonate(Vec<&'static str>),
    /// It answers with a code that is no answer.
    Refused(u16),
    /// It does not answer: why, for the log.
    Silent(String),
}

impl Readiness {
    /// The public reason why the agent is not ready; `None` when it is.
    pub(crate) fn problem(&self) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::Unknown => Some("the cluster was not checked yet".to_owned()),
            Self::Silent(_) => Some("the cluster does not answer".to_owned()),
            Self::Refused(code) => Some(format!(
                "the cluster answers with {code} to the check of the permission to impersonate: the credential in \
                 the kubeconfig of --upstream is invalid, or may not create selfsubjectaccessreviews"
            )),
            Self::CannotImpersonate(missing) => Some(format!(
                "the credential in the kubeconfig of --upstream may not impersonate {} in the cluster: give it \
                 a ClusterRole with the verb impersonate on them",
                missing.join(" and ")
            )),
        }
    }

    /// The condition of the Cluster; `None` before anything is known.
    fn condition(&self, now: Timestamp) -> Option<Condition> {
        let reason = match self {
            Self::Unknown => return None,
            Self::Ready => "AgentReady",
            Self::CannotImpersonate(_) => "CannotImpersonate",
            Self::Refused(_) => "ClusterRefuses",
            Self::Silent(_) => "ClusterDoesNotAnswer",
        };
        let problem = self.problem();
        let status = if problem.is_some() { "False" } else { "True" };
        let well = || "the agent may act as callers in the cluster".to_owned();
        Some(Condition {
            r#type: "Ready".to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: problem.unwrap_or_else(well),
            last_transition_time: Some(now),
            observed_generation: None,
        })
    }

    fn interval(&self) -> Duration {
        match self {
            Self::Unknown | Self::Silent(_) => AFTER_SILENCE,
            Self::CannotImpersonate(_) | Self::Refused(_) => AFTER_REFUSAL,
            Self::Ready => WHEN_READY,
        }
    }
}

/// The task that checks the cluster.
pub(crate) struct ReadinessCheck {
    pub(crate) proxy: Proxy,
    pub(crate) upstream: ClusterUpstream,
    pub(crate) state: Arc<State>,
    pub(crate) cluster: String,
    /// The last result.
    pub(crate) readiness: Arc<ArcSwap<Readiness>>,
}

/// Checks the cluster repeatedly, and reports changes to the central server. It never returns.
pub(crate) async fn run(readiness_check: ReadinessCheck, mut client: Client) {
    let (mut reported, mut is_warned) = (Readiness::Unknown, false);
    loop {
        let found = check(&readiness_check).await;
        if *readiness_check.readiness.load_full() != found {
            match (&found, found.problem()) {
                (Readiness::Silent(why), _) => tracing::warn!("the cluster does not answer: {why}"),
                (_, Some(problem)) => tracing::warn!("{problem}"),
                (_, None) => tracing::info!("the cluster answers, and the agent may impersonate"),
            }
            readiness_check.readiness.store(Arc::new(found.clone()));
        }
        let mut next = found.interval();
        if reported != found {
            match report(&readiness_check, &mut client, &found).await {
                Ok(()) => (reported, is_warned) = (found, false),
                Err(error) => {
                    if !std::mem::replace(&mut is_warned, true) {
                        tracing::warn!("cannot write the condition of the Cluster: {error:#}");
                    }
                    next = AFTER_SILENCE;
                }
            }
        }
        sleep(next).await;
    }
}

/// Checks whether the agent may impersonate in the cluster.
pub(crate) async fn check(readiness_check: &ReadinessCheck) -> Readiness {
    let mut missing = Vec::new();
    for resource in RESOURCES {
        match timeout(ANSWER_TIMEOUT * 2, is_allowed(readiness_check, resource)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => missing.push(resource),
            Ok(Err(reach)) => return reach,
            Err(_) => return Readiness::Silent("it took too long".to_owned()),
        }
    }
    if missing.is_empty() { Readiness::Ready } else { Readiness::CannotImpersonate(missing) }
}

async fn is_allowed(readiness_check: &ReadinessCheck, resource: &str) -> Result<bool, Readiness> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Review {
        status: Status,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        allowed: bool,
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": "impersonate", "resource": resource } },
    });
    let silent = |why: String| Readiness::Silent(why);
    let request = Request::builder()
        .method(Method::POST)
        .uri(REVIEWS)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json")
        .body(Full::new(Bytes::from(review.to_string())))
        .map_err(|error| silent(error.to_string()))?;
    let forward = Forward {
        answer_timeout: Some(ANSWER_TIMEOUT),
        ..Forward::new(PathAndQuery::from_static(REVIEWS))
    };
    let upstream = readiness_check.upstream.current();
    let answer = readiness_check.proxy.forward(&upstream, request, forward).await;
    let answer = answer.map_err(|error| silent(error.to_string()))?;
    if ![StatusCode::OK, StatusCode::CREATED].contains(&answer.status()) {
        return Err(Readiness::Refused(answer.status().as_u16()));
    }
    let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    let bytes = body.map_err(|error| silent(error.to_string()))?.to_bytes();
    let review: Review = decode_typed(&bytes).map_err(|error| silent(error.to_string()))?;
    Ok(review.status.allowed)
}

/// Writes the condition into the Cluster, next to those of others.
async fn report(
    readiness_check: &ReadinessCheck,
    client: &mut Client,
    found: &Readiness,
) -> anyhow::Result<()> {
    let now = Timestamp::from_unix_seconds(readiness_check.state.now());
    let Some(condition) = found.condition(now) else { return Ok(()) };
    conditions::write(client, &readiness_check.cluster, condition).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scene;

    #[tokio::test]
    async fn silence_and_refusals_can_be_told_apart() {
        let scene = Scene::new().await;
        let readiness_check = scene.readiness_check();
        let check = async |code: u16, body: &str| {
            *scene.answer.lock() = (StatusCode::from_u16(code).unwrap(), body.to_owned());
            check(&readiness_check).await
        };
        assert_eq!(check(201, r#"{"status":{"allowed":true}}"#).await, Readiness::Ready);
        let cannot = check(201, r#"{"status":{"allowed":false}}"#).await;
        assert_eq!(cannot, Readiness::CannotImpersonate(vec!["users", "groups"]));
        let condition = cannot.condition(Timestamp::from_unix_seconds(0)).unwrap();
        assert_eq!((&*condition.status, &*condition.reason), ("False", "CannotImpersonate"));
        assert!(condition.message.contains("users and groups"), "{}", condition.message);
        let refused = check(403, "{}").await;
        assert!(refused.problem().unwrap().contains("answers with 403"), "{refused:?}");
        let unreachable = Scene::without_cluster().await;
        let silent = super::check(&unreachable.readiness_check()).await;
        assert_eq!(silent.problem().as_deref(), Some("the cluster does not answer"));
    }
}
