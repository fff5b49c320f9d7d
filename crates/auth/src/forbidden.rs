//! The message of a 403: kube-apiserver's words, which clients parse.

use crate::attributes::Attributes;
use crate::identity::Identity;

/// The message of a refusal, in kube-apiserver's words.
pub fn forbidden_message(identity: &Identity, attributes: &Attributes<'_>) -> String {
    let user = &identity.name;
    match attributes {
        Attributes::Resource { verb, group, resource, subresource, namespace, .. } => {
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace \"{namespace}\"")
            };
            let slash = if subresource.is_empty() { "" } else { "/" };
            // Stored objects decide between the two: roles belong to objects, and scopes name
            // projects.
            let reason = if identity.is_scoped() {
                ": the scope of the access key does not allow it, or its owner may not do it"
            } else {
                ""
            };
            format!(
                "User \"{user}\" cannot {verb} resource \"{resource}{slash}{subresource}\" in API \
                 group \"{group}\" {scope}{reason}"
            )
        }
        Attributes::Description { verb, path } | Attributes::Path { verb, path } => {
            format!("User \"{user}\" cannot {verb} path \"{path}\"")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> Identity {
        Identity { name: "ada".to_owned(), ..Identity::default() }
    }

    #[test]
    fn the_message_is_that_of_kube_apiserver() {
        let named = |namespace| Attributes::Resource {
            verb: "get",
            group: "management.platform.sh",
            resource: "sharedsecrets",
            subresource: "",
            namespace,
            name: "s1",
        };
        assert_eq!(
            forbidden_message(&ada(), &named("default")),
            "User \"ada\" cannot get resource \"sharedsecrets\" in API group \
             \"management.platform.sh\" in the namespace \"default\""
        );
        assert!(forbidden_message(&ada(), &named("")).ends_with("at the cluster scope"));
    }
}
