//! The 404 for a path at which nothing is served. It names the nearest path, for a misspelt segment
//! at any position.
//!
//! No text repeats the path, which can contain the value of an access key.

use postern_kinds::{AnyKind, BASE_PATH, Info, MANAGEMENT_V1, all};
use postern_meta::gvk::GroupVersion;
use postern_meta::options::nearest;
use postern_meta::status::ApiError;

/// More segments than any served path has.
const MAX_SEGMENTS: usize = 8;

/// The first segments below the base path.
const ROOTS: [&str; 5] = ["api", "apis", "openapi", "metrics", "version"];

/// The first segment of all paths of the API and of the gateway.
const FIRST: &str = "kubernetes";

/// The second segments: the API, and the targets of the gateway.
const SECOND: [&str; 3] = ["management", "cluster", "project"];

/// The kinds of targets in a project, behind the gateway.
const TARGETS: [&str; 2] = ["space", "virtualcluster"];

/// The 404 for a path that is below the group and version of Postern's kinds, or near to a served one; `None` for other
/// paths. It begins with kube-apiserver's words.
pub(super) fn error(path: &str) -> Option<ApiError> {
    let below = |base: &str| path.strip_prefix(base).filter(|rest| rest.starts_with('/'));
    if let Some(rest) = below(&format!("{BASE_PATH}/apis/{MANAGEMENT_V1}")) {
        let hint = hint(MANAGEMENT_V1, &segments(rest)).map(|hint| format!(": {hint}"));
        let hint = hint.unwrap_or_default();
        let text = format!("this path below {MANAGEMENT_V1} is not served here{hint}");
        return Some(ApiError::resource_not_served().with_hint(&text));
    }
    let nearest = match below(BASE_PATH) {
        Some(rest) => below_base(&segments(rest)).filter(|found| found.is_corrected)?.path,
        None => outside_base(&segments(path))?,
    };
    let text = format!("this path is not served here: the nearest is {nearest}");
    Some(ApiError::resource_not_served().with_hint(&text))
}

/// The 404 for any other path: outside of the base path, it names the base path.
pub fn other(path: &str) -> ApiError {
    let error = ApiError::resource_not_served();
    if path.starts_with(BASE_PATH) {
        return error;
    }
    error.with_hint(&format!("the API is below {BASE_PATH}: keep the path of the server's URL"))
}

fn segments(path: &str) -> Vec<&str> {
    path.trim_matches('/').split('/').take(MAX_SEGMENTS).collect()
}

/// A served path that is near to a requested one.
struct Found {
    path: String,
    /// Whether a segment of the requested path is another one there.
    is_corrected: bool,
}

/// The nearest path for one without the base path, or with a misspelt one.
fn outside_base(path: &[&str]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    if one_of(first, &[FIRST]).is_none() {
        // The client has dropped the path of the server's URL, or a part of it.
        let rest = if one_of(first, &SECOND[..1]).is_some() { rest } else { path };
        let found = below_base(rest)?;
        return Some(found.path);
    }
    let (second, rest) = rest.split_first().unwrap_or((&"", &[]));
    Some(match one_of(second, &SECOND) {
        Some("cluster") => format!("/{FIRST}/cluster/CLUSTER"),
        Some("project") => {
            let target = rest.get(1).and_then(|target| one_of(target, &TARGETS));
            format!("/{FIRST}/project/PROJECT/{}/NAME", target.unwrap_or(TARGETS[0]))
        }
        _ => below_base(rest).map_or(BASE_PATH.to_owned(), |found| found.path),
    })
}

/// The nearest path below the base path; `None` if the first segment is near to none.
fn below_base(path: &[&str]) -> Option<Found> {
    let (first, rest) = path.split_first()?;
    let root = one_of(first, &ROOTS)?;
    let at_root =
        |root: &str| Found { path: format!("{BASE_PATH}/{root}"), is_corrected: root != *first };
    let groups = || all().iter().map(|kind| kind.info().version);
    let (version, after, is_exact) = match (root, rest) {
        ("api", ["v1", after @ ..]) => {
            (groups().find(|version| version.group.is_empty())?, after, root == *first)
        }
        ("api" | "apis", [group, after @ ..]) => {
            let names = groups().map(|version| version.group).filter(|name| !name.is_empty());
            let Some(near) = nearest(group, names).first().copied() else {
                return Some(at_root(root));
            };
            let version = groups().find(|version| version.group == near)?;
            let is_version = after.first().is_none_or(|one| *one == version.version);
            let is_exact = *first == "apis" && near == *group && is_version;
            (version, after.get(1..).unwrap_or_default(), is_exact)
        }
        _ => return Some(at_root(root)),
    };
    let resource = hint_of_kind(version, after);
    let start = if version.group.is_empty() { "api" } else { "apis" };
    let below = resource.as_ref().map(|path| format!("/{path}")).unwrap_or_default();
    let path = format!("{BASE_PATH}/{start}/{version}{below}");
    Some(Found { path, is_corrected: !is_exact || resource.is_some() })
}

/// The name that is the same as a segment, or nearest to it.
fn one_of(segment: &str, names: &[&'static str]) -> Option<&'static str> {
    let exact = names.iter().find(|name| **name == segment);
    exact.or(nearest(segment, names.iter().copied()).first()).copied()
}

/// The path of the kind that the path below a version names in another way than it is served.
fn hint_of_kind(version: GroupVersion, path: &[&str]) -> Option<String> {
    let hint = hint(version, path)?;
    Some(hint.strip_prefix(NEAREST).unwrap_or(&hint).to_owned())
        .filter(|_| hint.starts_with(NEAREST))
}

/// How a hint about a kind begins.
const NEAREST: &str = "the nearest is ";

/// The hint for a path below a version: the nearest served path.
fn hint(version: GroupVersion, path: &[&str]) -> Option<String> {
    let (is_in_namespace, rest) = match path {
        ["namespaces", _, rest @ ..] if !rest.is_empty() || version == MANAGEMENT_V1 => {
            (true, rest)
        }
        rest => (false, rest),
    };
    let (plural, rest) = rest.split_first()?;
    let kinds = || {
        all()
            .iter()
            .map(|kind: &&dyn AnyKind| kind.info())
            .filter(move |info| info.version == version)
    };
    let Some(info) = kinds().find(|info| info.plural == *plural) else {
        let names = kinds().flat_map(|info| [info.plural, info.singular]);
        let near = *nearest(plural, names).first()?;
        let info = kinds().find(|info| [info.plural, info.singular].contains(&near))?;
        return Some(format!("{NEAREST}{}", path_of(info)));
    };
    match rest {
        [_, subresource] => {
            let near = nearest(subresource, info.subresources());
            let served: Vec<&str> =
                if near.is_empty() { info.subresources().collect() } else { near };
            (!served.is_empty()).then(|| format!("{} has {}", path_of(info), served.join(", ")))
        }
        _ if info.is_namespaced() != is_in_namespace => Some(format!("{NEAREST}{}", path_of(info))),
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
                ": namespaces/NAMESPACE/sharedsecrets/NAME has entries, entry, readers",
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
    }

    #[test]
    fn a_misspelt_segment_at_any_height_leads_to_the_nearest_path() {
        let ours = "/kubernetes/management/apis/management.platform.sh/v1";
        let projects = format!("{ours}/projects/NAME");
        let secrets = format!("{ours}/namespaces/NAMESPACE/sharedsecrets/NAME");
        for (path, nearest) in [
            ("/apis/management.platform.sh/v1/projects/a", ours),
            ("/apis/management.platform.sh/v1/namespaces/a/sharedsecret", &*secrets),
            ("/management/apis/management.platform.sh/v1/projects", ours),
            ("/kubenretes/management/apis/management.platform.sh/v1/projects", ours),
            ("/kubernetes/managment/apis/management.platform.sh/v1/project", &projects),
            ("/kubernetes", "/kubernetes/management"),
            ("/kubernetes/nothing/x", "/kubernetes/management"),
            ("/kubernetes/management/apis/managment.platform.sh/v1/projects", ours),
            ("/kubernetes/management/apis/management.platform.sh/v2/projects", ours),
            ("/kubernetes/management/apis/management.platform.sh/v1beta1", ours),
            ("/kubernetes/management/api/management.platform.sh/v1/projects", ours),
            (
                "/kubernetes/management/api/v1/namespace",
                "/kubernetes/management/api/v1/namespaces/NAME",
            ),
            ("/api/v1/namespaces", "/kubernetes/management/api/v1"),
            ("/api", "/kubernetes/management/api"),
            ("/kubernetes/management/apiss", "/kubernetes/management/apis"),
            ("/kubernetes/clusters/c/api", "/kubernetes/cluster/CLUSTER"),
            ("/kubernetes/projects/p/spaces/s", "/kubernetes/project/PROJECT/space/NAME"),
            (
                "/kubernetes/project/p/virtualclusters/v/api",
                "/kubernetes/project/PROJECT/virtualcluster/NAME",
            ),
        ] {
            let error = error(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(error.code(), 404);
            let expected = format!(
                "the server could not find the requested resource: this path is not served here: the nearest is {nearest}"
            );
            assert_eq!(error.status().message, expected, "{path}");
        }
        for path in [
            "/nothing",
            "/kubernetes/management/nothing",
            "/kubernetes/management/apis/apps/v1/deployments",
            "/kubernetes/management/api/v1/namespaces/a/pods",
        ] {
            assert!(error(path).is_none(), "{path}");
        }
        assert!(other("/nothing").status().message.contains("below /kubernetes/management"));
        assert!(!other("/kubernetes/management/nothing").status().message.contains("below"));
    }
}
