//! The audiences of a token: one for each cluster that its scopes reach, so that no cluster can replay
//! it at another (`docs/reference/endpoint-tokens.md#audiences`). The audience of a JWT is RFC 7519
//! section 4.1.3.

use crate::scope::{Instance, ReachableClusters, ScopeRules, reachable_clusters};

/// The audience of a token that is for every cluster.
pub const GENERAL_AUDIENCE: &str = "platform.sh/direct-cluster-endpoint";

/// A connected cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectedCluster<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uid: another cluster may get its name later.
    pub uid: &'a str,
}

/// The scopes reach no connected cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCluster;

/// The audience of one cluster.
pub fn cluster_audience(uid: &str) -> String {
    format!("platform.sh/cluster:{uid}")
}

/// The audience of one server, for tokens of the other servers that share its store. No caller is given one.
pub fn member_audience(name: &str) -> String {
    format!("platform.sh/member:{name}")
}

/// The audience of the agent of one cluster, for tokens of the server itself. It reads the keys of the cluster as an issuer,
/// and tries the routes to instances. No caller is given one.
pub fn server_audience(uid: &str) -> String {
    format!("platform.sh/cluster-issuer:{uid}")
}

/// The audience of the agent of one cluster, for tokens of the server itself, which opens a connection for requests with
/// long heads. No caller is given one.
pub fn cluster_gateway_audience(uid: &str) -> String {
    format!("platform.sh/cluster-gateway:{uid}")
}

/// The audiences of a token with these scopes: the general one without a scope, or where each has
/// a rule for every cluster.
///
/// # Errors
/// [`NoCluster`]: such a token would be of no use.
pub fn audiences<'s>(
    scopes: impl IntoIterator<Item = &'s ScopeRules>,
    clusters: &[ConnectedCluster<'_>],
    instances: &[Instance<'_>],
) -> Result<Vec<String>, NoCluster> {
    let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name).collect();
    let reached = match reachable_clusters(scopes, &names, instances) {
        ReachableClusters::Every => return Ok(vec![GENERAL_AUDIENCE.to_owned()]),
        ReachableClusters::Only(reached) => reached,
    };
    let reached = clusters.iter().filter(|cluster| reached.contains(cluster.name));
    let audiences: Vec<String> = reached.map(|cluster| cluster_audience(cluster.uid)).collect();
    if audiences.is_empty() { Err(NoCluster) } else { Ok(audiences) }
}

#[cfg(test)]
mod tests {
    use postern_kinds::scope::Scope;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_is_for_the_clusters_that_its_scopes_reach() {
        let scope = |cluster: &str| {
            let value = json!({ "rules": [{ "cluster": cluster }, { "cluster": "both" }] });
            ScopeRules::new(&serde_json::from_value::<Scope>(value).unwrap())
        };
        let clusters = [("east", "u1"), ("west", "u2"), ("both", "u3")]
            .map(|(name, uid)| ConnectedCluster { name, uid });
        let of = |scopes: &[ScopeRules]| audiences(scopes, &clusters, &[]);
        let only = |uids: &[&str]| Ok(uids.iter().copied().map(cluster_audience).collect());
        assert_eq!(of(&[]), Ok(vec![GENERAL_AUDIENCE.to_owned()]));
        assert_eq!(of(&[scope("east")]), only(&["u1", "u3"]));
        assert_eq!(of(&[scope("east"), scope("west")]), only(&["u3"]));
        assert_eq!(audiences(&[scope("east")], &clusters[1..2], &[]), Err(NoCluster));
    }
}
