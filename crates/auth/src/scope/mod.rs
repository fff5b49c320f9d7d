//! The scope of a key, compiled: the requests that it allows at most (`docs/reference/scopes.md`).
//!
//! Only the requests that an entry names are allowed. The permissions that need no scope are in
//! `own`. Whether one scope is contained in another is in [`contains`].

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use postern_kinds::MANAGEMENT_V1;
use postern_kinds::rbac::ALL;
use postern_kinds::scope::Scope;

use crate::attributes::{Attributes, Request, RequestTarget};
use crate::object_set::ObjectSet;
use crate::projects::Projects;

mod contains;
mod reachable_clusters;
mod rule;
mod rules;
mod set;

pub use contains::contains;
pub use reachable_clusters::{Instance, ReachableClusters, reachable_clusters};
pub(crate) use rule::Location;
use rules::Rules;

/// The verbs that read.
pub(crate) const READ: [&str; 3] = ["get", "list", "watch"];

/// The kinds of which the command line may get and list all that the owner may.
pub(crate) const CLI_KINDS: [&str; 4] =
    ["clusters", "projects", "spaceinstances", "virtualclusterinstances"];

/// The subresources of projects that the command line may get.
pub(crate) const CLI_SUBRESOURCES: [&str; 3] = ["members", "clusters", "templates"];

/// The holder of a key, for the permissions that a scope gives on the own user and teams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holder<'a> {
    /// The User's name, if the key is a user's.
    pub user: Option<&'a str>,
    /// The Team's name, if the key is a team's.
    pub team: Option<&'a str>,
    /// The teams that the user is in.
    pub teams: &'a [String],
}

impl Holder<'_> {
    /// Whether this is the holder's own team, or a team that the holder is in.
    pub(crate) fn has_team(&self, name: &str) -> bool {
        self.team == Some(name) || self.teams.iter().any(|team| team == name)
    }
}

/// Names, or all.
#[derive(Debug, Default)]
struct Names {
    all: bool,
    names: HashSet<Box<str>, RandomState>,
}

impl Names {
    fn add(&mut self, name: &str) {
        if name == ALL {
            self.all = true;
        } else if !name.is_empty() {
            self.names.insert(name.into());
        }
    }

    fn has(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }
}

/// Names of instances, by the project that they are in.
type Instances = HashMap<Box<str>, Names, RandomState>;

/// A scope, compiled.
#[derive(Debug)]
pub struct ScopeRules {
    source: Scope,
    projects: Names,
    spaces: Instances,
    virtual_clusters: Instances,
    rules: Rules,
}

impl PartialEq for ScopeRules {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for ScopeRules {}

impl ScopeRules {
    /// Compiles a scope. An entry that cannot be understood allows nothing.
    pub fn new(scope: &Scope) -> Self {
        let mut projects = Names::default();
        scope.projects.iter().for_each(|entry| projects.add(&entry.project));
        let spaces = scope.spaces.iter().map(|entry| (&*entry.project, &*entry.space));
        let clusters = scope.virtual_clusters.iter();
        let clusters = clusters.map(|entry| (&*entry.project, &*entry.virtual_cluster));
        Self {
            projects,
            spaces: instances(spaces),
            virtual_clusters: instances(clusters),
            rules: Rules::new(&scope.rules),
            source: scope.clone(),
        }
    }

    /// The scope as it was written.
    pub fn source(&self) -> &Scope {
        &self.source
    }

    /// Whether the scope allows this request. Permissions that every key has regardless of its
    /// scope are not checked here.
    pub fn allows(&self, request: &Request<'_>, holder: &Holder<'_>, projects: &Projects) -> bool {
        let location = Location::of(&request.attributes);
        self.allows_at(request, location, holder, projects)
    }

    /// Whether the scope allows this request in a location. A question about permissions can be for
    /// every location.
    pub(crate) fn allows_at(
        &self,
        request: &Request<'_>,
        location: Location<'_>,
        holder: &Holder<'_>,
        projects: &Projects,
    ) -> bool {
        let by_entry = match request.target {
            RequestTarget::Management => self.entries_allow(&request.attributes, holder, projects),
            target => self.reaches_instance(target),
        };
        by_entry || self.rules.allow(request, location)
    }

    /// Whether requests to this target can be allowed at all. If so, discovery of a cluster is
    /// open.
    pub(crate) fn reaches(&self, target: RequestTarget<'_>) -> bool {
        target == RequestTarget::Management
            || self.reaches_instance(target)
            || self.rules.reach_target(target)
    }

    /// Whether an entry names the target, a space or virtual cluster, or its project.
    fn reaches_instance(&self, target: RequestTarget<'_>) -> bool {
        let (project, name, instances) = match target {
            RequestTarget::ProjectSpace { project, space } => (project, space, &self.spaces),
            RequestTarget::ProjectVirtualCluster { project, virtual_cluster } => {
                (project, virtual_cluster, &self.virtual_clusters)
            }
            _ => return false,
        };
        self.projects.has(project) || instances.get(project).is_some_and(|names| names.has(name))
    }

    /// Whether an entry other than a rule allows this in the management API.
    fn entries_allow(
        &self,
        attributes: &Attributes<'_>,
        holder: &Holder<'_>,
        projects: &Projects,
    ) -> bool {
        let Attributes::Resource { verb, group, resource, subresource, namespace, name } =
            *attributes
        else {
            return false;
        };
        let is_namespace = (group, resource, namespace) == ("", "namespaces", "");
        if is_namespace && subresource.is_empty() && READ.contains(&verb) {
            // A key for a project may read the project's own namespace.
            return projects.of(name).is_some_and(|project| self.projects.has(project));
        }
        let project = if namespace.is_empty() { None } else { projects.of(namespace) };
        if project.is_some_and(|project| self.projects.has(project)) {
            return true;
        }
        if group != MANAGEMENT_V1.group {
            return false;
        }
        let is_read = subresource.is_empty() && READ.contains(&verb);
        let by_project = resource == "projects"
            && namespace.is_empty()
            && (self.projects.all || (!name.is_empty() && self.projects.has(name)))
            && (is_read || (!subresource.is_empty() && !name.is_empty()));
        let instances = self.instances_of(resource);
        let by_instance = is_read
            && project
                .zip(instances)
                .and_then(|(project, instances)| instances.get(project))
                .is_some_and(|names| names.has(name));
        by_project || by_instance || self.cli_allows(attributes, holder)
    }

    /// The entries about a kind of instances.
    fn instances_of(&self, resource: &str) -> Option<&Instances> {
        match resource {
            "spaceinstances" => Some(&self.spaces),
            "virtualclusterinstances" => Some(&self.virtual_clusters),
            _ => None,
        }
    }

    /// Whether `allowPlatformCli` allows this on a resource of Postern's group.
    fn cli_allows(&self, attributes: &Attributes<'_>, holder: &Holder<'_>) -> bool {
        let Attributes::Resource { verb, resource, subresource, name, .. } = *attributes else {
            return false;
        };
        let by_cli = match (verb, resource, subresource) {
            ("get" | "list", kind, "") if CLI_KINDS.contains(&kind) => true,
            ("get", "projects", subresource) => CLI_SUBRESOURCES.contains(&subresource),
            ("get", "users", "") => holder.user.is_some_and(|user| user == name),
            ("get", "teams", "") => holder.has_team(name),
            _ => false,
        };
        self.source.allow_platform_cli && by_cli
    }

    /// The objects of a kind on which it allows a verb, in the management API.
    pub(crate) fn objects(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        holder: &Holder<'_>,
        projects: &Projects,
    ) -> ObjectSet {
        set::objects(self, verb, group, resource, holder, projects)
    }

    /// Whether the scope can allow anything on an object of a kind, in the management API. `verb`
    /// is the verb; `None` means any verb, also on a subresource.
    pub(crate) fn can_match(
        &self,
        verb: Option<&str>,
        group: &str,
        resource: &str,
        holder: &Holder<'_>,
    ) -> bool {
        set::can_match(self, verb, group, resource, holder)
    }
}

/// The names by their projects. `*` is no project here.
fn instances<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Instances {
    let mut instances = Instances::default();
    for (project, name) in entries.filter(|(project, _)| !project.is_empty() && *project != ALL) {
        instances.entry(project.into()).or_default().add(name);
    }
    instances
}

#[cfg(test)]
mod tests;
