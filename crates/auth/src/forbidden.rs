//! Where a 403 is worded: the same words as kube-apiserver's, which clients read.

use crate::attributes::Attributes;
use crate::identity::Identity;

/// Returns why not, in kube-apiserver's words.
pub fn forbidden_message(identity: &Identity, attributes: &Attributes<'_>) -> String {
    let user = &identity.name;
    match attributes {
        Attributes::Resource { verb, group, resource, subresource, namespace, .. } => {
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace \"{namespace}\"")
            };
            let slash = if subresource.is_empty() { "" } else { "/" };
            let scope = if identity.scoped {
                ": the scope of the access key does not allow it"
            } else {
                ""
            };
            format!(
                "User \"{user}\" cannot {verb} resource \"{resource}{slash}{subresource}\" in API \
                 group \"{group}\" {place}{scope}"
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
    fn refusals_are_worded_as_upstream() {
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
