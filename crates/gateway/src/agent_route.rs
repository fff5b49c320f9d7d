//! The route to a target through the agent of its cluster, as the annotations of the Cluster have it.

use postern_kinds::base64_text;
use postern_kinds::cluster::{DIRECT_ENDPOINT, RouteRule};
use postern_proxy::{Tunnels, Upstream, UpstreamAddresses, UpstreamConfig};
use serde::Deserialize;

/// The route to a target through its cluster's agent: through the agent's tunnels, or at its endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AgentRoute {
    /// The name of the Cluster.
    pub(super) cluster: String,
    /// The uid of the Cluster.
    pub(super) uid: String,
    /// Whether the tunnels of the agent are used.
    pub(super) by_tunnel: bool,
    /// The endpoint of the agent, if it has one and it is used.
    pub(super) endpoint: Option<Endpoint>,
    /// The prefix of the target's paths at the agent.
    pub(super) prefix: String,
    /// The kind of the target.
    pub(super) leads_to: LeadsTo,
}

/// The kind of target behind an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LeadsTo {
    /// Its cluster, or a space in it.
    Cluster,
    /// A virtual cluster in it. A kubeconfig of the cluster does not lead there.
    VirtualCluster,
}

impl LeadsTo {
    /// Why there is no route if the agent has neither a tunnel nor an endpoint.
    pub(super) fn without_agent(self) -> &'static str {
        match self {
            Self::Cluster => {
                "the Cluster has no kubeconfig (spec.config), its agent has opened no tunnel to this server, and it has no \
                 agent endpoint (annotation platform.sh/direct-cluster-endpoint)"
            }
            Self::VirtualCluster => {
                "the VirtualClusterInstance has no kubeconfig (its own spec.config), and the agent of its cluster, which \
                 would lead there, has opened no tunnel to this server and has no endpoint (annotation \
                 platform.sh/direct-cluster-endpoint of the Cluster)"
            }
        }
    }
}

/// The annotations of a Cluster with the endpoint of its agent. Others are not decoded: they can be long, and would
/// stay in memory.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct EndpointAnnotations {
    #[serde(rename = "platform.sh/direct-cluster-endpoint")]
    host: String,
    #[serde(rename = "platform.sh/direct-cluster-endpoint-insecure")]
    insecure: String,
    #[serde(rename = "platform.sh/direct-cluster-endpoint-ca-data")]
    ca_data: String,
}

/// The address of a cluster's agent, and the target behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    /// `HOST[:PORT]`
    host: String,
    is_insecure: bool,
    /// The certificate authorities of the agent, as base64 of PEM.
    ca_data: Option<String>,
    /// The prefix of the target's paths at the agent.
    prefix: String,
}

impl AgentRoute {
    /// The route through the agent of a Cluster, from the annotations with its endpoint. `None` if
    /// the rule allows no tunnel, and there is no endpoint or the rule does not allow it.
    pub(super) fn of(
        cluster: &str,
        uid: &str,
        annotations: &EndpointAnnotations,
        rule: RouteRule,
        prefix: String,
        leads_to: LeadsTo,
    ) -> Option<Self> {
        let endpoint = rule.endpoint.then(|| Endpoint::of(annotations, prefix.clone())).flatten();
        let (cluster, uid, by_tunnel) = (cluster.to_owned(), uid.to_owned(), rule.tunnel);
        let is_one = by_tunnel || endpoint.is_some();
        is_one.then_some(Self { cluster, uid, by_tunnel, endpoint, prefix, leads_to })
    }

    /// The upstream behind tunnels of the agent.
    ///
    /// # Errors
    /// When the path of the target is not valid.
    pub(super) fn through(&self, tunnels: &Tunnels) -> Result<Upstream, String> {
        let url = format!("http://agent{}", self.prefix).parse();
        let url = url.map_err(|_| "the path of the target is not valid".to_owned())?;
        Upstream::through(&url, tunnels).map_err(|error| error.to_string())
    }
}

impl Endpoint {
    /// The endpoint in the annotations of a Cluster; `None` without one.
    fn of(annotations: &EndpointAnnotations, prefix: String) -> Option<Self> {
        let EndpointAnnotations { host, insecure, ca_data } = annotations;
        let ca_data = Some(ca_data).filter(|data| !data.is_empty()).cloned();
        let endpoint =
            Self { host: host.clone(), is_insecure: insecure == "true", ca_data, prefix };
        (!host.is_empty()).then_some(endpoint)
    }

    /// The configuration of the upstream. It has no credential, because each request has its own token.
    ///
    /// # Errors
    /// The annotation that is invalid.
    pub(super) fn config(&self, addresses: UpstreamAddresses) -> Result<UpstreamConfig, String> {
        let url = format!("https://{}{}", self.host, self.prefix);
        let url = url
            .parse()
            .map_err(|_| format!("the annotation {DIRECT_ENDPOINT} must be HOST or HOST:PORT"))?;
        let wrong = |_| format!("the annotation {DIRECT_ENDPOINT}-ca-data must be base64");
        let ca_pem = self.ca_data.as_ref().map(|data| base64_text::decode(data)).transpose();
        let insecure = self.is_insecure;
        Ok(UpstreamConfig {
            addresses,
            insecure,
            ca_pem: ca_pem.map_err(wrong)?.map(|pem| pem.to_vec()),
            ..UpstreamConfig::new(url)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use postern_kinds::cluster::endpoint_annotation;
    use postern_meta::decode::decode_typed;

    use super::*;

    /// The annotations of these ends of names.
    fn annotations(values: &[(&str, &str)]) -> EndpointAnnotations {
        let named = values.iter().map(|(end, value)| (endpoint_annotation(end), *value));
        let all: BTreeMap<_, _> = named.chain([("example.com/other".to_owned(), "x")]).collect();
        decode_typed(&serde_json::to_vec(&all).unwrap()).unwrap()
    }

    #[test]
    fn tunnels_are_used_unless_they_are_excluded() {
        let of = |connection: &str, host: &str| {
            let annotations = annotations(&[("", host)]);
            let rule = RouteRule::of(connection).to_agent();
            let route =
                AgentRoute::of("c", "u", &annotations, rule, "/p".to_owned(), LeadsTo::Cluster)?;
            Some((route.by_tunnel, route.endpoint.is_some()))
        };
        assert_eq!(of("", "h"), Some((true, true)));
        assert_eq!(of("Auto", ""), Some((true, false)));
        assert_eq!(of("Tunnel", "h"), Some((true, false)));
        assert_eq!(of("Endpoint", "h"), Some((false, true)));
        assert_eq!(of("Endpoint", ""), None);
        // The virtual clusters of a cluster with a kubeconfig.
        assert_eq!(of("Kubeconfig", "h"), Some((true, true)));
    }

    #[test]
    fn the_route_to_an_agent_is_in_the_annotations() {
        let of = |values: &[(&str, &str)]| {
            Endpoint::of(&annotations(values), "/kubernetes/cluster".to_owned())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("", "")]), None);
        let route = of(&[("", "agent.example:6443"), ("-ca-data", "Y2\nE=\n")]).unwrap();
        let config = route.config(UpstreamAddresses::default()).unwrap();
        assert_eq!(config.url, "https://agent.example:6443/kubernetes/cluster");
        assert_eq!((config.insecure, config.ca_pem.as_deref()), (false, Some(&b"ca"[..])));
        assert!(
            of(&[("", "h"), ("-ca-data", "?")])
                .unwrap()
                .config(UpstreamAddresses::default())
                .is_err()
        );
        let insecure = of(&[("", "h"), ("-insecure", "true")]).unwrap();
        assert!(insecure.config(UpstreamAddresses::default()).unwrap().insecure);
    }
}
