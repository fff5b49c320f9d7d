//! The target of a question about access: `RESOURCE[/NAME]`, or a path of the server. Resources are named as in the
//! other commands, or with their group.

use postern_kinds::Info;
use postern_meta::names::path_segment;
use serde_json::{Map, Value, json};

use crate::kinds;
use crate::similar::nearest;

/// Stands for every resource, in every group.
const ALL: &str = "*";

/// The target of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Objects.
    Resource(Resource),
    /// A path, such as `/metrics`.
    Path(String),
}

/// Objects of one resource, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    /// The plural name, or `*`.
    pub(crate) plural: String,
    /// The object's name; empty for every one.
    pub(crate) name: String,
    /// Do the objects live in namespaces? `None` for a resource that this program does not know.
    pub(crate) is_namespaced: Option<bool>,
}

impl Resource {
    fn of_kind(info: &Info, name: &str) -> Self {
        Self {
            group: info.version.group.to_owned(),
            plural: info.plural.to_owned(),
            name: name.to_owned(),
            is_namespaced: Some(info.is_namespaced()),
        }
    }

    /// The nearest name of a resource.
    pub(crate) fn nearest(&self) -> Option<String> {
        let known = kinds::all().flat_map(kinds::names);
        nearest(&self.plural, known).first().map(|near| (*near).to_owned())
    }
}

impl Target {
    /// The attributes of a review. `namespace` is empty for all namespaces. It is ignored for a
    /// resource without namespaces.
    pub(crate) fn attributes(
        &self,
        verb: &str,
        subresource: &str,
        namespace: &str,
    ) -> Map<String, Value> {
        let resource = match self {
            Self::Path(path) => return filled(&[("verb", verb), ("path", path)]),
            Self::Resource(resource) => resource,
        };
        let namespace = if resource.is_namespaced == Some(false) { "" } else { namespace };
        filled(&[
            ("verb", verb),
            ("group", &resource.group),
            ("resource", &resource.plural),
            ("subresource", subresource),
            ("name", &resource.name),
            ("namespace", namespace),
        ])
    }

    /// The resource, unless the question is about a path.
    pub(crate) fn resource(&self) -> Option<&Resource> {
        match self {
            Self::Resource(resource) => Some(resource),
            Self::Path(_) => None,
        }
    }
}

/// The fields that are not empty.
fn filled(fields: &[(&str, &str)]) -> Map<String, Value> {
    let fields = fields.iter().filter(|(_, value)| !value.is_empty());
    fields.map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

/// Parses `RESOURCE[/NAME]`, or a path, which begins with a slash. A resource is any name of a kind,
/// alone or with its group as kubectl has it: `roles.rbac.authorization.k8s.io`, `secrets.v1.`.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    if text.starts_with('/') {
        return Ok(Target::Path(text.to_owned()));
    }
    let (resource, name) = match text.split_once('/') {
        None => (text, ""),
        Some((_, "")) => return Err("the name must not be empty".to_owned()),
        Some((resource, name)) => {
            path_segment(name).map_err(|what| format!("the name {what}"))?;
            (resource, name)
        }
    };
    let allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
    };
    let is_word =
        resource.starts_with(|c: char| c.is_ascii_lowercase()) && resource.bytes().all(allowed);
    if !is_word && resource != ALL {
        return Err(
            "a resource is a word in lower case, such as secrets, or * for all; a path begins \
                    with a slash"
                .to_owned(),
        );
    }
    Ok(Target::Resource(resolve(resource, name)))
}

fn resolve(text: &str, name: &str) -> Resource {
    if let Some(info) = kinds::find(text, kinds::all()) {
        return Resource::of_kind(info, name);
    }
    let (plural, group) =
        if text == ALL { (ALL, ALL) } else { text.split_once('.').unwrap_or((text, "")) };
    Resource {
        group: group.to_owned(),
        plural: plural.to_owned(),
        name: name.to_owned(),
        is_namespaced: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        match target(text) {
            Ok(Target::Path(path)) => format!("path {path}"),
            Ok(Target::Resource(one)) => {
                format!("{}|{}|{}|{:?}", one.group, one.plural, one.name, one.is_namespaced)
            }
            Err(what) => what,
        }
    }

    #[test]
    fn resources_have_all_the_names_of_their_kinds() {
        let secrets = "management.platform.sh|sharedsecrets||Some(true)";
        for text in ["ss", "secret", "secrets", "sharedsecret", "sharedsecrets"] {
            assert_eq!(parsed(text), secrets, "{text}");
            assert_eq!(parsed(&format!("{text}.management.platform.sh")), secrets, "{text}");
        }
        let roles = "rbac.authorization.k8s.io|roles||Some(true)";
        assert_eq!(parsed("roles.rbac.authorization.k8s.io"), roles);
        assert_eq!(parsed("roles.v1.rbac.authorization.k8s.io"), roles);
        assert_eq!(parsed("user/ada"), "management.platform.sh|users|ada|Some(false)");
        assert_eq!(parsed("ns"), "|namespaces||Some(false)");
        assert_eq!(parsed("namespaces.v1."), "|namespaces||Some(false)");
        assert_eq!(
            parsed("roles.rbac.authorization.k8s.io/platform:access:a"),
            "rbac.authorization.k8s.io|roles|platform:access:a|Some(true)"
        );
    }

    #[test]
    fn what_is_not_known_is_asked_about_as_it_is_written() {
        assert_eq!(parsed("*"), "*|*||None");
        assert_eq!(parsed("pods"), "|pods||None");
        assert_eq!(parsed("deployments.apps/web"), "apps|deployments|web|None");
        assert_eq!(parsed("users.example.com"), "example.com|users||None");
        assert_eq!(parsed("/metrics"), "path /metrics");
        assert_eq!(parsed("/"), "path /");
        for wrong in ["", "Secrets", "secrets/", "secrets/a/b", "secrets/..", "a b", "-", "**", "."]
        {
            assert!(target(wrong).is_err(), "{wrong:?}");
        }
        let near = |text: &str| target(text).unwrap().resource().and_then(Resource::nearest);
        assert!(near("secrest").unwrap().starts_with("secret"));
        assert_eq!((near("zzzzzzzzz"), near("/metrics")), (None, None));
    }

    #[test]
    fn attributes_are_those_that_are_set() {
        let of = |text: &str| target(text).unwrap().attributes("get", "", "shop");
        let secret = json!({
            "verb": "get",
            "group": "management.platform.sh",
            "resource": "sharedsecrets",
            "name": "db",
            "namespace": "shop",
        });
        assert_eq!(Value::Object(of("secret/db")), secret);
        assert_eq!(of("users").get("namespace"), None, "users have none");
        assert_eq!(of("pods")["namespace"], "shop", "they may have one");
        assert_eq!(Value::Object(of("/x")), json!({ "verb": "get", "path": "/x" }));
        let keys = target("user/ada").unwrap().attributes("get", "accesskeys", "");
        assert_eq!((&keys["subresource"], &keys["name"]), (&json!("accesskeys"), &json!("ada")));
    }
}
