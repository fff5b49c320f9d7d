//! The groups of an endpoint token: without those that their connector keeps from clusters
//! (`spec.clusterGroups` of the Connector, `docs/reference/endpoint-tokens.md#groups`). The gateway sends all groups.

use std::collections::HashMap;

use postern_kinds::connector::{Connector, is_cluster_group};
use serde::Deserialize;

use crate::registry::Registry;

/// The part of a Connector that says which groups endpoint tokens have.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Parts {
    spec: SpecParts,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SpecParts {
    cluster_groups: Option<Vec<String>>,
}

/// The groups that an endpoint token has.
pub(super) fn kept(registry: &Registry, mut groups: Vec<String>) -> Vec<String> {
    let (connectors, _) = registry.all_to_decide(&Connector, None);
    let lists: HashMap<String, Vec<String>> = connectors
        .into_iter()
        .filter_map(|connector| {
            let parts = connector.part::<Parts>().ok()?;
            Some((connector.name().to_owned(), parts.spec.cluster_groups?))
        })
        .collect();
    groups.retain(|group| is_kept(&lists, group));
    groups
}

/// Whether no connector keeps a group from clusters. The group of a connector begins with its name and a colon.
fn is_kept(lists: &HashMap<String, Vec<String>>, group: &str) -> bool {
    let Some((connector, at_provider)) = group.split_once(':') else { return true };
    lists.get(connector).is_none_or(|list| is_cluster_group(list, at_provider))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connector_keeps_its_own_groups_from_clusters_and_no_others() {
        let lists = [("corp", vec!["dev-*", "ops"]), ("none", vec![])].map(|(name, list)| {
            (name.to_owned(), list.into_iter().map(str::to_owned).collect::<Vec<_>>())
        });
        let lists = HashMap::from(lists);
        for (group, expected) in [
            ("corp:ops", true),
            ("corp:ops2", false),
            ("corp:dev-", true),
            ("corp:dev-a:b", true),
            ("corp:de", false),
            ("corp:", false),
            ("none:x", false),
            // No list, and no group of a connector.
            ("other:x", true),
            ("corp", true),
            ("system:authenticated", true),
        ] {
            assert_eq!(is_kept(&lists, group), expected, "{group}");
        }
    }
}
