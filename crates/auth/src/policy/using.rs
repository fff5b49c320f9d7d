//! The holders of `use` on clusters and instances, without a scan of all bindings. It also finds
//! the objects for which a policy change can affect these holders.
//!
//! The configuration of an agent lists the holders of `use` on thousands of objects. It is not rebuilt when an
//! unrelated access rule changes.

use postern_kinds::MANAGEMENT_V1;
use postern_kinds::rbac::BoundSubject;

use super::Policy;
use super::who_can::WhoCan;
use crate::attributes::Attributes;
use crate::identity::{AUTHENTICATED_GROUP, Identity, MASTERS_GROUP};
use crate::implicit_rights;
use crate::rbac::rule::ResourceQuery;
use crate::rbac::use_changes::{USE, UseChange};

impl Policy {
    /// The objects for which the change that made this snapshot affected the holders of `use`. They
    /// are clusters and instances. A first snapshot has none.
    pub fn use_changes(&self) -> &[UseChange] {
        self.index.use_changes.all()
    }

    /// The holders of `use` on an object of our own group. They are the same as in [`Policy::who_can`], in no
    /// order, and some perhaps twice. The cost is that of the roles that can give it.
    pub fn holders_of_use(&self, resource: &str, namespace: &str, name: &str) -> Vec<WhoCan> {
        let (verb, group, subresource) = (USE, MANAGEMENT_V1.group, "");
        let attributes =
            Attributes::Resource { verb, group, resource, subresource, namespace, name };
        let of_group = |name: &str| WhoCan::Subject(BoundSubject::Group(name.to_owned()));
        let mut all = vec![of_group(MASTERS_GROUP)];
        let groups = vec![AUTHENTICATED_GROUP.to_owned()];
        if implicit_rights::is_open(&Identity { groups, ..Identity::default() }, &attributes) {
            all.push(of_group(AUTHENTICATED_GROUP));
        }
        let owner = self.owner_of(&attributes);
        all.extend(owner.map(|uid| WhoCan::Owner { uid: uid.to_owned() }));
        let query = ResourceQuery { verb, group, resource, subresource, name: Some(name) };
        let subjects = self.index.subjects_who_may(&query, namespace);
        all.extend(subjects.into_iter().cloned().map(WhoCan::Subject));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use postern_kinds::rbac::{BindingFacts, PolicyChange, PolicyRule};
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Decision;
    use crate::rbac::use_changes::USABLE;

    const NAMES: [&str; 3] = ["a", "b", "c"];
    const NAMESPACES: [Option<&str>; 3] = [None, Some("n"), Some("m")];

    type Change = (Option<&'static str>, &'static str, PolicyChange);

    fn picked(from: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
        let all: Vec<String> = from.iter().map(|&text| text.to_owned()).collect();
        prop::sample::subsequence(all, 0..=from.len())
    }

    fn rule() -> impl Strategy<Value = PolicyRule> {
        let verbs = picked(&["use", "get", "*"]);
        let groups = picked(&["management.platform.sh", "*", ""]);
        let resources = picked(&[
            "clusters",
            "virtualclusterinstances",
            "sharedsecrets",
            "spaceinstances/status",
            "*",
        ]);
        let names = prop_oneof![Just(Vec::new()), picked(&NAMES)];
        (verbs, groups, resources, names).prop_map(|(verbs, api_groups, resources, names)| {
            PolicyRule {
                verbs,
                api_groups,
                resources,
                resource_names: names,
                ..PolicyRule::default()
            }
        })
    }

    fn subject() -> impl Strategy<Value = BoundSubject> {
        let text = || prop::sample::select(vec!["x", "y"]);
        prop_oneof![
            text().prop_map(|name| BoundSubject::User(name.to_owned())),
            text().prop_map(|name| BoundSubject::Group(name.to_owned())),
            text().prop_map(|uid| BoundSubject::Principal {
                group: "g".to_owned(),
                uid: uid.to_owned()
            }),
        ]
    }

    fn change() -> impl Strategy<Value = Change> {
        let facts = (
            any::<bool>(),
            prop::sample::select(&NAMES[..]),
            prop::collection::vec(subject(), 0..3),
        )
            .prop_map(|(is_cluster_role, role, subjects)| BindingFacts {
                is_cluster_role,
                role: role.to_owned(),
                subjects,
            });
        let owner = prop::option::of(prop::sample::select(vec!["x", "y"]));
        let kind = prop::sample::select(vec!["clusters", "spaceinstances", "sharedsecrets"]);
        let what = prop_oneof![
            4 => prop::option::of(prop::collection::vec(rule(), 0..4)).prop_map(PolicyChange::Role),
            4 => prop::option::of(facts).prop_map(PolicyChange::Binding),
            2 => (kind, owner).prop_map(|(resource, uid)| {
                let kind = postern_meta::gvk::GroupResource { group: MANAGEMENT_V1.group, resource };
                PolicyChange::Owner(kind, uid.map(str::to_owned))
            }),
        ];
        (prop::sample::select(&NAMESPACES[..]), prop::sample::select(&NAMES[..]), what)
    }

    fn objects() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        USABLE.into_iter().flat_map(|resource| {
            let namespaces: &[&str] = if resource == "clusters" { &[""] } else { &["n", "m"] };
            namespaces
                .iter()
                .flat_map(move |namespace| NAMES.map(|name| (resource, *namespace, name)))
        })
    }

    fn of(all: impl IntoIterator<Item = WhoCan>) -> BTreeSet<String> {
        all.into_iter().map(|who| format!("{who:?}")).collect()
    }

    fn concerns(change: &UseChange, namespace: &str, name: &str) -> bool {
        match change {
            UseChange::Everything => true,
            UseChange::Namespace(of) => **of == *namespace,
            UseChange::Named(of, named) => {
                **named == *name && of.as_ref().is_none_or(|of| **of == *namespace)
            }
        }
    }

    proptest! {
        #[test]
        fn holders_are_those_who_can_and_none_changes_without_a_note(
            steps in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..20),
        ) {
            let mut policy = Policy::default();
            for changes in steps {
                let next = policy.with(&changes);
                for (resource, namespace, name) in objects() {
                    let (verb, group, subresource) = (USE, MANAGEMENT_V1.group, "");
                    let attributes =
                        Attributes::Resource { verb, group, resource, subresource, namespace, name };
                    let can = next.who_can(&attributes).into_iter().map(|grantee| grantee.who);
                    let holders = of(next.holders_of_use(resource, namespace, name));
                    prop_assert_eq!(&holders, &of(can), "{} {} {}", resource, namespace, name);
                    let before = of(policy.holders_of_use(resource, namespace, name));
                    let is_noted =
                        next.use_changes().iter().any(|change| concerns(change, namespace, name));
                    prop_assert!(is_noted || before == holders, "{} {} {}", resource, namespace, name);
                    let x = Identity { name: "x".to_owned(), ..Identity::default() };
                    let is_holder = holders.contains("Subject(User(\"x\"))");
                    prop_assert_eq!(next.decide(&x, &attributes) == Decision::Allow, is_holder);
                }
                policy = next;
            }
        }
    }

    #[test]
    fn what_is_about_other_kinds_is_no_change_of_use() {
        let about = |resource: &str| PolicyRule {
            verbs: vec!["*".to_owned()],
            api_groups: vec![MANAGEMENT_V1.group.to_owned()],
            resources: vec![resource.to_owned()],
            resource_names: vec!["a".to_owned()],
            ..PolicyRule::default()
        };
        let facts = BindingFacts {
            is_cluster_role: false,
            role: "r".to_owned(),
            subjects: vec![BoundSubject::User("x".to_owned())],
        };
        let of = |resource: &str| {
            Policy::default().with(&[
                (Some("n"), "r", PolicyChange::Role(Some(vec![about(resource)]))),
                (Some("n"), "b", PolicyChange::Binding(Some(facts.clone()))),
            ])
        };
        assert_eq!(of("sharedsecrets").use_changes(), []);
        let shared = of("spaceinstances");
        assert_eq!(shared.use_changes(), [UseChange::Named(Some("n".into()), "a".into())]);
        let same = shared.with(&[(Some("n"), "b", PolicyChange::Binding(Some(facts)))]);
        assert_eq!(same.use_changes(), [], "nothing is given or taken");
        let role = PolicyChange::Role(Some(vec![about("sharedsecrets")]));
        let gone = shared.with(&[(Some("n"), "r", role)]);
        assert_eq!(gone.use_changes(), [UseChange::Named(Some("n".into()), "a".into())]);
    }
}
