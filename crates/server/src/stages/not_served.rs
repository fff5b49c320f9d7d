//! The 404 for a path in Postern's group at which nothing is served. It names the nearest path.

use postern_kinds::{AnyKind, BASE_PATH, Info, MANAGEMENT_V1, all};
use postern_meta::options::nearest;
use postern_meta::status::ApiError;

/// More segments than any served path has.
const MAX_SEGMENTS: usize = 6;

/// The 404 for a path below the group and version of Postern's kinds; `None` for other paths. It begins with
/// kube-apiserver's words. It does not repeat the path, which can contain the value of an access key.
pub(super) fn error(path: &str) -> Option<ApiError> {
    let below = path.strip_prefix(BASE_PATH)?.strip_prefix(&format!("/apis/{MANAGEMENT_V1}/"))?;
    let segments: Vec<&str> = below.trim_end_matches('/').split('/').take(MAX_SEGMENTS).collect();
    let hint = hint(&segments).map(|hint| format!(": {hint}")).unwrap_or_default();
    let text = format!("this path below {MANAGEMENT_V1} is not served here{hint}");
    Some(ApiError::resource_not_served().with_hint(&text))
}

fn hint(path: &[&str]) -> Option<String> {
    let (is_in_namespace, rest) = match path {
        ["namespaces", _, rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (plural, rest) = rest.split_first()?;
    let kinds = || {
        all()
            .iter()
            .map(|kind: &&dyn AnyKind| kind.info())
            .filter(|info| info.version == MANAGEMENT_V1)
    };
    let Some(info) = kinds().find(|info| info.plural == *plural) else {
        let names = kinds().flat_map(|info| [info.plural, info.singular]);
        let near = *nearest(plural, names).first()?;
        let info = kinds().find(|info| [info.plural, info.singular].contains(&near))?;
        return Some(format!("the nearest is {}", path_of(info)));
    };
    match rest {
        [_, subresource] => {
            let near = nearest(subresource, info.subresources());
            let served: Vec<&str> =
                if near.is_empty() { info.subresources().collect() } else { near };
            (!served.is_empty()).then(|| format!("{} has {}", path_of(info), served.join(", ")))
        }
        _ if info.is_namespaced() != is_in_namespace => {
            Some(format!("the nearest is {}", path_of(info)))
        }
        _ => None,
    }
}

/// The path of the objects of a kind.
fn path_of(info: &Info) -> String {
    if !info.is_stored() {
        return info.plural.to_owned();
    }
    let namespace = if info.is_namespaced() { "namespaces/NAMESPACE/" } else { "" };
    format!("{namespace}{}/NAME", info.plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_path_is_named() {
        for (path, hint) in [
            (&["project"][..], ": the nearest is projects/NAME"),
            (&["sharedsecret", "a"], ": the nearest is namespaces/NAMESPACE/sharedsecrets/NAME"),
            (&["sharedsecrets", "a"], ": the nearest is namespaces/NAMESPACE/sharedsecrets/NAME"),
            (&["namespaces", "p-a", "projects"], ": the nearest is projects/NAME"),
            (&["projects", "a", "template"], ": projects/NAME has templates"),
            (
                &["projects", "a", "importvirtualcluster"],
                ": projects/NAME has status, members, clusters, templates, migratevirtualclusterinstance",
            ),
            (&["kiosk"], ""),
            (
                &["namespaces", "a", "sharedsecrets", "b", "status"],
                ": namespaces/NAMESPACE/sharedsecrets/NAME has entries, entry",
            ),
            (&["namespaces", "a", "leases", "b", "status"], ""),
        ] {
            let error =
                error(&format!("{BASE_PATH}/apis/{MANAGEMENT_V1}/{}", path.join("/"))).unwrap();
            assert_eq!(error.code(), 404);
            let expected = format!(
                "the server could not find the requested resource: this path below management.platform.sh/v1 is not \
                 served here{hint}"
            );
            assert_eq!(error.status().message, expected);
        }
        for other in
            ["/apis/management.platform.sh/v1/x", "/kubernetes/management/apis/apps/v1/deployments"]
        {
            assert!(error(other).is_none(), "{other}");
        }
    }
}
