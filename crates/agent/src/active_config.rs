//! The configuration from the central server, compiled for decisions: a policy, a verifier of tokens, and the
//! locations of instances. It uses no clock, no network and no disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use postern_auth::endpoint_token::{Jwk, JwkSet, Verifier};
use postern_auth::gateway_path::GatewayTarget;
use postern_auth::policy::Policy;
use postern_auth::policy::target::{InstanceRef, ResolvedTarget};
use postern_kinds::MANAGEMENT_V1;
use postern_kinds::agent_config::{ClusterLocation, Instance, PublicKey, Spec, Use, UseSubject};
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange, PolicyRule};
use postern_kinds::secret_subscription::InstanceRef as InstanceName;
use postern_meta::gvk::GroupResource;
use postern_meta::names::{dns1123_label, dns1123_subdomain};

use crate::virtual_clusters::VirtualClusterRef;

/// The kinds of instances with the resources that they are.
const VIRTUAL_CLUSTERS: (&str, &str) = ("VirtualClusterInstance", "virtualclusterinstances");
const SPACES: (&str, &str) = ("SpaceInstance", "spaceinstances");

/// The resources that can be used.
const USABLE: [&str; 3] = ["clusters", VIRTUAL_CLUSTERS.1, SPACES.1];

/// A virtual cluster of a project, and where it is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedVirtualCluster {
    pub(crate) project: String,
    pub(crate) at: VirtualClusterRef,
}

/// Resource, project and name of an instance.
type InstanceKey = (&'static str, String, String);

/// The configuration from which the agent decides.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    /// As it was sent.
    pub(crate) spec: Spec,
    /// The permission `use` of each subject, and nothing else.
    pub(crate) policy: Policy,
    /// Verifies tokens for this cluster.
    pub(crate) verifier: Arc<Verifier>,
    /// The index in `spec.instances` of each instance, by the key from a path.
    instances: Arc<HashMap<InstanceKey, usize>>,
}

impl ActiveConfig {
    /// Compiles a configuration. The tokens that `last` has verified stay verified. The policy is compiled again
    /// only if instances or uses have changed, so that a revocation takes effect at once.
    pub(crate) fn new(spec: Spec, last: Option<&Self>) -> Self {
        let is_same = |last: &&Self| {
            (&last.spec.issuer, &last.spec.audiences) == (&spec.issuer, &spec.audiences)
        };
        let verifier = last.filter(is_same).map_or_else(
            || Arc::new(Verifier::new(spec.issuer.clone(), spec.audiences.iter().cloned())),
            |last| last.verifier.clone(),
        );
        verifier.set_keys(&keys_of(&spec));
        let revocations = spec.revocations.iter();
        verifier.set_revocations(revocations.map(|one| (one.uid.clone(), one.revocation_revision)));
        let has_same =
            |last: &&Self| (&last.spec.instances, &last.spec.uses) == (&spec.instances, &spec.uses);
        let (policy, instances) = match last.filter(has_same) {
            Some(last) => (last.policy.clone(), last.instances.clone()),
            None => (policy_of(&spec, last), Arc::new(keys_of_instances(&spec))),
        };
        Self { spec, policy, verifier, instances }
    }

    /// A verifier of tokens with the same keys, for another audience.
    pub(crate) fn verifier_for(&self, audience: String) -> Verifier {
        let verifier = Verifier::new(self.spec.issuer.clone(), [audience]);
        verifier.set_keys(&keys_of(&self.spec));
        verifier
    }

    /// A target with its instance and the namespace of a space.
    pub(crate) fn resolve<'a>(&'a self, target: &'a GatewayTarget) -> ResolvedTarget<'a> {
        let (resource, found) = match target {
            GatewayTarget::Cluster { .. } | GatewayTarget::VirtualCluster { .. } => ("", None),
            GatewayTarget::Space { project, name } => {
                (SPACES.1, self.instance(SPACES.1, project, name))
            }
            GatewayTarget::ProjectVirtualCluster { project, name } => {
                (VIRTUAL_CLUSTERS.1, self.instance(VIRTUAL_CLUSTERS.1, project, name))
            }
        };
        let instance =
            found.map(|one| InstanceRef { resource, namespace: &one.namespace, name: &one.name });
        let space_namespace = found
            .filter(|_| resource == SPACES.1)
            .map(|one| one.cluster_ref.namespace.as_str())
            .filter(|namespace| !namespace.is_empty());
        ResolvedTarget { target: target.request_target(), instance, space_namespace }
    }

    /// The namespace and name of a virtual cluster in the cluster; `None` when they are unknown.
    pub(crate) fn virtual_cluster(&self, target: &GatewayTarget) -> Option<VirtualClusterRef> {
        let GatewayTarget::ProjectVirtualCluster { project, name } = target else { return None };
        let ClusterLocation { namespace, virtual_cluster } =
            &self.instance(VIRTUAL_CLUSTERS.1, project, name)?.cluster_ref;
        let is_known = !namespace.is_empty() && !virtual_cluster.is_empty();
        is_known.then(|| VirtualClusterRef {
            namespace: namespace.clone(),
            name: virtual_cluster.clone(),
        })
    }

    /// The namespaces of all spaces in the cluster.
    pub(crate) fn space_namespaces(&self) -> BTreeSet<String> {
        let spaces = self.spec.instances.iter().filter(|one| one.kind == SPACES.0);
        let namespaces = spaces.map(|one| one.cluster_ref.namespace.clone());
        namespaces.filter(|namespace| dns1123_label(namespace).is_ok()).collect()
    }

    /// The virtual clusters in the cluster whose locations are known, by their instances.
    pub(crate) fn virtual_clusters(&self) -> BTreeMap<InstanceName, PlacedVirtualCluster> {
        let all = self.spec.instances.iter().filter(|one| one.kind == VIRTUAL_CLUSTERS.0);
        let placed = all.map(|one| {
            let at = VirtualClusterRef {
                namespace: one.cluster_ref.namespace.clone(),
                name: one.cluster_ref.virtual_cluster.clone(),
            };
            let of = InstanceName { namespace: one.namespace.clone(), name: one.name.clone() };
            (of, PlacedVirtualCluster { project: one.project.clone(), at })
        });
        let is_known = |at: &VirtualClusterRef| {
            dns1123_label(&at.namespace).is_ok() && dns1123_subdomain(&at.name).is_ok()
        };
        placed.filter(|(_, one)| is_known(&one.at)).collect()
    }

    /// An instance of this cluster by its project and name.
    fn instance(&self, resource: &'static str, project: &str, name: &str) -> Option<&Instance> {
        let key = (resource, project.to_owned(), name.to_owned());
        self.spec.instances.get(*self.instances.get(&key)?)
    }
}

fn keys_of(spec: &Spec) -> JwkSet {
    JwkSet { keys: spec.keys.iter().map(key_of).collect() }
}

fn key_of(key: &PublicKey) -> Jwk {
    let value = serde_json::to_value(key).unwrap_or_default();
    // The verifier leaves out keys that are not in our form.
    serde_json::from_value(value).unwrap_or_default()
}

fn keys_of_instances(spec: &Spec) -> HashMap<InstanceKey, usize> {
    let instances = spec.instances.iter().enumerate();
    instances.filter_map(|(index, one)| Some((key_of_instance(one)?, index))).collect()
}

fn key_of_instance(instance: &Instance) -> Option<InstanceKey> {
    let kinds = [VIRTUAL_CLUSTERS, SPACES];
    let (_, resource) = kinds.into_iter().find(|(kind, _)| *kind == instance.kind)?;
    Some((resource, instance.project.clone(), instance.name.clone()))
}

/// The policy of the permissions `use` and of the projects of namespaces. It is made from the
/// policy of `last`, so that only the changed parts are made again. There can be thousands of
/// objects, of which one has changed.
fn policy_of(spec: &Spec, last: Option<&ActiveConfig>) -> Policy {
    let nothing = Spec::default();
    let before = last.map_or(&nothing, |last| &last.spec);
    let mut policy = last.map(|last| last.policy.clone()).unwrap_or_default();
    let [old, new] = [before, spec].map(projects_of);
    for namespace in old.keys().filter(|namespace| !new.contains_key(*namespace)) {
        policy.apply(None, namespace, PolicyChange::Namespace(None));
    }
    for (namespace, project) in new.iter().filter(|(of, project)| old.get(*of) != Some(project)) {
        policy.apply(None, namespace, PolicyChange::Namespace(Some((*project).to_owned())));
    }
    let [old, new] = [before, spec].map(uses_of);
    for (_, one) in old.iter().filter(|(of, one)| new.get(*of) != Some(one)) {
        set_use(&mut policy, one, false);
    }
    for (_, one) in new.iter().filter(|(of, one)| old.get(*of) != Some(one)) {
        set_use(&mut policy, one, true);
    }
    policy
}

/// The project of each namespace.
fn projects_of(spec: &Spec) -> HashMap<&str, &str> {
    spec.instances.iter().map(|one| (one.namespace.as_str(), one.project.as_str())).collect()
}

/// The holders of `use` on each object, by its resource, namespace and name.
fn uses_of(spec: &Spec) -> HashMap<[&str; 3], &Use> {
    spec.uses.iter().map(|one| ([&*one.resource, &*one.namespace, &*one.name], one)).collect()
}

/// Grants `use` on an object to its holders, or revokes it.
fn set_use(policy: &mut Policy, one: &Use, is_given: bool) {
    let namespace = Some(one.namespace.as_str()).filter(|name| !name.is_empty());
    let name = format!("{}/{}", one.resource, one.name);
    let rules = is_given.then(|| vec![rule_of(one)]);
    policy.apply(namespace, &name, PolicyChange::Role(rules));
    let known = USABLE.iter().find(|known| **known == one.resource);
    let kind =
        GroupResource { group: MANAGEMENT_V1.group, resource: known.copied().unwrap_or_default() };
    let owner = one.subjects.iter().rfind(|subject| is_owner(subject)).filter(|_| is_given);
    let owner = PolicyChange::Owner(kind, owner.map(|owner| owner.uid.clone()));
    policy.apply(namespace, &one.name, owner);
    let others = one.subjects.iter().filter(|subject| !is_owner(subject));
    let facts = is_given.then(|| BindingFacts {
        is_cluster_role: namespace.is_none(),
        role: name.clone(),
        subjects: others.map(subject_of).collect(),
    });
    policy.apply(namespace, &name, PolicyChange::Binding(facts));
}

fn rule_of(one: &Use) -> PolicyRule {
    PolicyRule {
        verbs: vec!["use".to_owned()],
        api_groups: vec![MANAGEMENT_V1.group.to_owned()],
        resources: vec![one.resource.clone()],
        resource_names: vec![one.name.clone()],
        ..PolicyRule::default()
    }
}

/// Whether this subject is the owner of the object, which has only a uid.
fn is_owner(subject: &UseSubject) -> bool {
    subject.user.is_empty() && subject.group.is_empty() && !subject.uid.is_empty()
}

fn subject_of(subject: &UseSubject) -> BoundSubject {
    let UseSubject { user, group, uid } = subject.clone();
    match (group.is_empty(), uid.is_empty()) {
        (true, true) => BoundSubject::User(user),
        (false, true) => BoundSubject::Group(group),
        (_, false) => BoundSubject::Principal { group, uid },
    }
}

#[cfg(test)]
mod tests;
