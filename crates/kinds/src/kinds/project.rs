//! Project: a namespace with members, quotas and the clusters that it may use. See `docs/reference/projects.md`.
//!
//! The fields are here, and the objects that depend on a project: its namespace and the bindings of its members. The
//! server checks quotas and allowed clusters, in the transaction of a write.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postern_meta::names::{DNS1123_LABEL_MAX_BYTES, dns1123_label, dns1123_subdomain};
use postern_meta::object::Object;
use serde_json::Map;

use crate::access;
use crate::bindings::subject_uids;
use crate::bound::{BoundGrant, KnownUids, of_member};
use crate::cluster_role::ClusterRole;
use crate::cluster_role_binding::ClusterRoleBinding;
use crate::config_map::ConfigMap;
use crate::kind::dependent::belongs_to;
use crate::kind::{AnyKind, Dependent};
use crate::namespace::Namespace;
use crate::namespace_names::project_prefix;
use crate::prelude::*;
use crate::project_clusters::ProjectClusters;
use crate::project_members::ProjectMembers;
use crate::project_migrate_virtual_cluster_instance::ProjectMigrateVirtualClusterInstance;
use crate::project_secret::ProjectSecret;
use crate::project_templates::{self, ProjectTemplates};
use crate::rbac::{GrantedRoles, MEMBERS_PREFIX, PROJECT_LABEL, PolicyRule, RBAC_V1};
use crate::role;
use crate::role_binding::RoleBinding;
use crate::space_instance::SpaceInstance;
use crate::virtual_cluster_instance::VirtualClusterInstance;

/// The ClusterRole of members that name none.
pub const DEFAULT_MEMBER_ROLE: &str = "platform-project-user";

/// The ClusterRoles that are for members of projects: the owner of a project gives them to its members.
pub const MEMBER_ROLES: [&str; 3] =
    ["platform-project-admin", DEFAULT_MEMBER_ROLE, "platform-project-viewer"];

/// The subresources that every member of a project may read.
const SEEN_BY_MEMBERS: [&str; 3] = ["members", "clusters", "templates"];

/// Names that other clients have for the roles of members.
const ROLE_ALIASES: [(&str, &str); 3] = [
    ("loft-management-project-admin", "platform-project-admin"),
    ("loft-management-project-user", DEFAULT_MEMBER_ROLE),
    ("loft-management-project-viewer", "platform-project-viewer"),
];

/// Every user.
const ALL_USERS: &str = "*";

/// The kinds that a member may have.
const MEMBER_KINDS: [&str; 2] = ["User", "Team"];

/// The API groups that a member may have.
const MEMBER_GROUPS: [&str; 4] =
    ["", MANAGEMENT_V1.group, "storage.platform.sh", "storage.loft.sh"];

/// The value of the label `platform.sh/managed-by` of the bindings of members.
pub const MANAGED_BY_MEMBERS: &str = "project-members";

/// Maximum number of members of a project.
pub const MAX_MEMBERS: usize = 500;

/// Maximum number of different ClusterRoles of the members of a project: each is a binding, and a
/// transaction has a limit.
pub const MAX_MEMBER_ROLES: usize = 16;

/// The kinds that quotas count, by their plural names.
pub const COUNTED_IN_QUOTAS: [&str; 4] = [
    VirtualClusterInstance::INFO.plural,
    SpaceInstance::INFO.plural,
    ProjectSecret::INFO.plural,
    ConfigMap::INFO.plural,
];

/// Maximum number of allowed clusters.
pub const MAX_CLUSTERS: usize = 1000;

/// All clusters.
const ALL_CLUSTERS: &str = "*";

/// Maximum length of a count in a quota, in digits.
const MAX_DIGITS: usize = 9;

/// Reads the members.
const GET_MEMBERS: Action = Action {
    subresource: "members",
    verb: Verb::Get,
    right: ActionRight::OnSubresource,
    handler: Handler::Registry(RegistryAction::ProjectMembers),
    request: None,
    response: Response::Object(&ProjectMembers),
    description: "The members of the project.",
};

/// Reads the clusters that the project may use.
const GET_CLUSTERS: Action = Action {
    subresource: "clusters",
    handler: Handler::Registry(RegistryAction::ProjectClusters),
    response: Response::Object(&ProjectClusters),
    description: "The allowed clusters of the project that the caller may get or use.",
    ..GET_MEMBERS
};

/// The templates that it offers, which are none.
const GET_TEMPLATES: Action = Action {
    subresource: "templates",
    handler: Handler::Registry(RegistryAction::Object(project_templates::of_project)),
    response: Response::Object(&ProjectTemplates),
    description: "The templates of the project. This server has none, so every list is empty.",
    ..GET_MEMBERS
};

/// Moves an instance into it.
const MIGRATE: Action = Action {
    subresource: "migratevirtualclusterinstance",
    verb: Verb::Create,
    right: ActionRight::OnSubresource,
    handler: Handler::Registry(RegistryAction::MigrateVirtualClusterInstance),
    request: Some(&ProjectMigrateVirtualClusterInstance),
    response: Response::Object(&ProjectMigrateVirtualClusterInstance),
    description: "Moves a virtual cluster instance of another project into the project.",
};

/// Why fields are refused that this server gives no meaning.
const NOT_SERVED: &str = "this server does not support this; omit the field";

/// The kind.
pub struct Project;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, ConditionsStatus>;

/// The members, clusters and quotas of the project, its owner, and its access rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ProjectSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the project.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The user or team that holds every verb on this object. Default: the caller that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// The members of the project, with their roles in its namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub members: Vec<Member>,
    /// The clusters that the project may use; `*` is every cluster. If absent on create, the server writes `*`. An empty list
    /// allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub allowed_clusters: Option<Vec<AllowedCluster>>,
    /// The quotas of the project. Keys are `virtualclusterinstances`, `spaceinstances` and `projectsecrets`; values are decimal
    /// text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quotas: Option<Quotas>,
    /// Templates that the project allows, as other clients write them. This server has no templates, so they have no
    /// effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub allowed_templates: Vec<AllowedTemplate>,
    /// Whether new instances must be made from templates. They need not, because this server has no templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_template: Option<RequireTemplate>,
    /// Access rules: the users and teams that get verbs on the project itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access: Vec<Access>,
}

/// A user or team that works in the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(
    rename = "sh.platform.management.v1.Member",
    extend("required" = ["kind", "name"])
)]
pub struct Member {
    /// The kind of the member.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = MEMBER_KINDS))]
    pub kind: String,
    /// The API group of the user or team, which some clients write. It has no effect.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = MEMBER_GROUPS))]
    pub group: String,
    /// The name of the user or team; `*` is every user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The `ClusterRole` that they get in the namespace of the project; `platform-project-user` by default.
    /// `loft-management-project-admin`, `-user` and `-viewer` are other names of the platform's own roles.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_role: String,
}

impl Member {
    /// The name of the `ClusterRole` that they get.
    pub fn role(&self) -> &str {
        match self.cluster_role.as_str() {
            "" => DEFAULT_MEMBER_ROLE,
            role => {
                let alias = ROLE_ALIASES.iter().find(|(alias, _)| *alias == role);
                alias.map_or(role, |(_, role)| role)
            }
        }
    }

    /// Whether it is every user.
    pub fn is_all_users(&self) -> bool {
        self.kind == "User" && self.name == ALL_USERS
    }

    /// The user or team; `None` for every user, and for another kind.
    pub fn principal(&self) -> Option<Principal<'_>> {
        match self.kind.as_str() {
            "User" if self.is_all_users() => None,
            "User" => Some(Principal::User(&self.name)),
            "Team" => Some(Principal::Team(&self.name)),
            _ => None,
        }
    }
}

/// A template that a project allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AllowedTemplate")]
pub struct AllowedTemplate {
    /// The kind of template.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The API group of the template.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The name of the template, or `*`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whether it is the default template.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_default: bool,
}

/// Whether new instances must be created from templates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.RequireTemplate")]
pub struct RequireTemplate {
    /// Whether instances can be made without a template: always true.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub disabled: Option<bool>,
}

/// A cluster that the project may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.AllowedCluster")]
pub struct AllowedCluster {
    /// The name of the Cluster, or `*`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// How many objects there may be in a project. The keys are plural names, the values decimal texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.Quotas")]
pub struct Quotas {
    /// How many objects of a kind the whole project can have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub project: BTreeMap<String, String>,
    /// How many objects of a kind each owner can have in the project.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub user: BTreeMap<String, String>,
}

impl Spec {
    /// Whether objects of the project may be on a cluster.
    pub fn allows_cluster(&self, cluster: &str) -> bool {
        let allowed = self.allowed_clusters.iter().flatten();
        allowed.into_iter().any(|one| one.name == ALL_CLUSTERS || one.name == cluster)
    }

    /// How many objects of a kind, by its plural name, there may be in the whole project; `None`
    /// for no limit. A count that cannot be read is 0.
    pub fn project_quota(&self, plural: &str) -> Option<u64> {
        self.quotas.as_ref().and_then(|quotas| count(&quotas.project, plural))
    }

    /// How many of them one owner may have in the project.
    pub fn user_quota(&self, plural: &str) -> Option<u64> {
        self.quotas.as_ref().and_then(|quotas| count(&quotas.user, plural))
    }
}

fn count(counts: &BTreeMap<String, String>, plural: &str) -> Option<u64> {
    counts.get(plural).map(|text| text.parse().unwrap_or(0))
}

/// The name of a project's namespace.
pub fn namespace_of(project: &str) -> String {
    format!("{}{project}", project_prefix())
}

/// The name of the binding of the members with a `ClusterRole`.
pub fn members_binding(cluster_role: &str) -> String {
    format!("{MEMBERS_PREFIX}{cluster_role}")
}

/// The uids of the members that a binding of members is for, by their groups. A later user or team of the same name has
/// another uid.
pub fn member_uids(binding: &ObjectMeta) -> BTreeMap<String, String> {
    subject_uids(binding).unwrap_or_default()
}

impl Kind for Project {
    type Spec = Spec;
    type Status = ConditionsStatus;

    const INFO: Info = Info {
        kind: "Project",
        plural: "projects",
        singular: "project",
        actions: &[
            Action::GET_STATUS,
            Action::UPDATE_STATUS,
            Action::PATCH_STATUS,
            GET_MEMBERS,
            GET_CLUSTERS,
            GET_TEMPLATES,
            MIGRATE,
        ],
        confidential: false,
        description: "Project is a namespace with members, quotas and clusters that it may use.",
        strict_fields: Some(StrictFields {
            // Without a quota there is no limit. Without allowed clusters, no cluster is allowed.
            not_null: &[
                "spec",
                "spec.quotas",
                "spec.quotas.project",
                "spec.quotas.project.*",
                "spec.quotas.user",
                "spec.quotas.user.*",
            ],
            ..StrictFields::OURS
        }),
        no_effect: NoEffect::OF_PROJECTS,
        unserved_fields: &[
            UnservedField::new("allowedRunners", NOT_SERVED),
            UnservedField::new("allowedNodeTypes", NOT_SERVED),
            UnservedField::new("allowedNodeProfiles", NOT_SERVED),
            UnservedField::new("defaultNodeProfile", NOT_SERVED),
            UnservedField::new("requirePreset", NOT_SERVED),
            UnservedField::new("namespaceTemplate", NOT_SERVED),
            UnservedField::new("namespacePattern", NOT_SERVED),
            UnservedField::new(
                "automaticImport",
                "this server does not import instances: create them",
            ),
            UnservedField::new("argoCD", NOT_SERVED),
            UnservedField::new("vault", NOT_SERVED),
            UnservedField::new("rancher", NOT_SERVED),
            UnservedField::new("devPod", NOT_SERVED),
        ],
        columns: &[
            ColumnInfo::text("Owner", "The user or team that owns it."),
            ColumnInfo::integer("Members", "How many members it has."),
            ColumnInfo::text("Display Name", "Name shown to people."),
        ],
        partial_right: Some(|verb, name| {
            let is_change = matches!(verb, Verb::Update | Verb::Patch);
            is_change.then(|| Right::on_members(verb.as_str(), name, &namespace_of(name)))
        }),
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Self::Status> = Parts {
        ownership: Some(access::part(
            |spec| Ownership::of(spec.owner.as_ref(), &spec.access, &[]),
            |spec| &mut spec.owner,
        )),
        dependents: Some(dependents),
        ..Parts::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        let spec = &mut new.fields.spec;
        // On an update, a field that is left out must not allow more than before.
        let all = || vec![AllowedCluster { name: ALL_CLUSTERS.to_owned() }];
        spec.allowed_clusters.get_or_insert_with(|| if old.is_none() { all() } else { Vec::new() });
        let required = spec.require_template.get_or_insert_default();
        required.disabled.get_or_insert(true);
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let (name, spec) = (write.new.metadata.name.as_str(), write.spec());
        if name.len() > DNS1123_LABEL_MAX_BYTES - project_prefix().len() {
            let max = DNS1123_LABEL_MAX_BYTES - project_prefix().len();
            errors.push(FieldError::too_long("metadata.name", max));
        }
        errors.check_value("metadata.name", name, dns1123_label(name));
        if spec.require_template.as_ref().is_some_and(|one| one.disabled == Some(false)) {
            let detail = "this server has no templates; omit the field";
            errors.push(FieldError::invalid("spec.requireTemplate.disabled", false, detail));
        }
        let added = added_members(spec, write.old_spec());
        validate_members(&spec.members, &added, write.ctx, errors);
        validate_clusters(spec.allowed_clusters.as_deref().unwrap_or_default(), errors);
        if let Some(quotas) = &spec.quotas {
            validate_quota("spec.quotas.project", &quotas.project, errors);
            validate_quota("spec.quotas.user", &quotas.user, errors);
        }
        Ok(())
    }

    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let &Write { new, old, ctx } = write;
        let added = new_members(write);
        let roles: BTreeSet<&str> = added.iter().map(|member| member.role()).collect();
        let of_owner = roles.into_iter().filter(|role| owner_gives(role, write));
        let roles = of_owner.map(|role| {
            let plural = ClusterRole.info().plural;
            let namespace = namespace_of(&new.metadata.name);
            let right = Right { namespace, ..Right::cluster("bind", RBAC_V1.group, plural, role) };
            RequiredRight::from(right).as_owner()
        });
        let to_all = added.iter().any(|member| member.is_all_users()).then(|| {
            let hint =
                "a project with every user (`*`) as a member requires the verb bind on all users";
            RequiredRight::from(Right::cluster("bind", MANAGEMENT_V1.group, "users", ""))
                .because(hint.to_owned())
        });
        let named = added.iter().filter(|member| !member.is_all_users());
        let principals: BTreeSet<(bool, &str)> =
            named.map(|member| (member.kind == "Team", member.name.as_str())).collect();
        let project = new.metadata.name.as_str();
        let namespace = namespace_of(project);
        let bind = principals.into_iter().map(|(is_team, name)| {
            let principal = if is_team { Principal::Team(name) } else { Principal::User(name) };
            let (kind, whom) = (principal.kind(), principal.described());
            let by_bind = RequiredRight::from(principal.right("bind")).because(format!(
                "the member {whom} requires the verb bind on this {kind}, or an admin of the \
                 project as the caller"
            ));
            // A project that is new has no admins yet.
            let of_admins = Right::on_members("bind", project, &namespace);
            if old.is_some() { by_bind.or(of_admins) } else { by_bind }
        });
        let forges = ctx.changes_managers;
        let whole = old.filter(|old| forges || changes_more_than_members(new, old)).map(|_| {
            let right =
                |verb| Right::cluster(verb, MANAGEMENT_V1.group, Self::INFO.plural, project);
            RequiredRight::from(right("update")).or(right("patch")).because(
                "admins of a project can change only members, displayName and description; other \
                 fields require the verb update on the project"
                    .to_owned(),
            )
        });
        let clusters = new_clusters(write.spec(), write.old_spec());
        let clusters = clusters.into_iter().map(right_to_name_cluster);
        to_all.into_iter().chain(bind).chain(roles).chain(whole).chain(clusters).collect()
    }

    fn granted_roles(write: &Write<'_, Fields>) -> Option<GrantedRoles> {
        let roles = new_members(write).into_iter().map(|member| member.role().to_owned());
        let cluster_roles: BTreeSet<String> =
            roles.filter(|role| !owner_gives(role, write)).collect();
        let namespace = namespace_of(&write.new.metadata.name);
        (!cluster_roles.is_empty()).then_some(GrantedRoles { namespace, cluster_roles })
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        let owner = spec.owner.clone().unwrap_or_default();
        vec![
            Cell::Text(owner.display_name()),
            Cell::count(spec.members.len()),
            Cell::Text(spec.display_name.clone()),
        ]
    }
}

/// Whether a write changes fields of a project that its admins may not change.
fn changes_more_than_members(new: &Draft<Fields>, old: &Draft<Fields>) -> bool {
    let of_admins = Spec {
        display_name: new.fields.spec.display_name.clone(),
        description: new.fields.spec.description.clone(),
        members: new.fields.spec.members.clone(),
        // Absent is none, as at an update.
        allowed_clusters: old.fields.spec.allowed_clusters.clone().or_else(|| Some(Vec::new())),
        // The server's own.
        require_template: new.fields.spec.require_template.clone(),
        ..old.fields.spec.clone()
    };
    let (new_metadata, old_metadata) = (&new.metadata, &old.metadata);
    of_admins != new.fields.spec
        || new_metadata.labels != old_metadata.labels
        || new_metadata.finalizers != old_metadata.finalizers
        || new_metadata.owner_references != old_metadata.owner_references
}

/// The members that a write adds, or gives another role.
fn new_members<'a>(write: &Write<'a, Fields>) -> Vec<&'a Member> {
    let spec = write.spec();
    added_members(spec, write.old_spec()).into_iter().map(|index| &spec.members[index]).collect()
}

/// Whether the caller may give this role to members because the caller owns the project. The owner of a project has the
/// permissions of its admins, and gives the roles that are for members. On a create, the new owner counts. On an
/// update, the owner from before it counts.
fn owner_gives(role: &str, write: &Write<'_, Fields>) -> bool {
    let &Write { new, old, ctx } = write;
    let owner = old.unwrap_or(new).fields.spec.owner.as_ref();
    let Some(owner) = owner.filter(|owner| access::is_of(owner, ctx)) else { return false };
    // A later namesake of the owner is another user or team.
    let is_same = || {
        let uid = owner.principal().and_then(|principal| ctx.uid_of(principal));
        uid.is_some() && uid.as_deref() == ctx.owner_uid
    };
    MEMBER_ROLES.contains(&role) && (old.is_none() || is_same())
}

/// The indices of the members that are new or have a new role; not beyond the limit.
fn added_members(new: &Spec, old: Option<&Spec>) -> BTreeSet<usize> {
    let mut before: HashMap<&Member, usize> = HashMap::new();
    for member in old.iter().flat_map(|old| &old.members) {
        *before.entry(member).or_default() += 1;
    }
    let mut is_added = |member: &Member| {
        let Some(count) = before.get_mut(member).filter(|count| **count > 0) else { return true };
        *count -= 1;
        false
    };
    let members = new.members.iter().enumerate().take(MAX_MEMBERS);
    members.filter(|(_, member)| is_added(member)).map(|(index, _)| index).collect()
}

fn validate_members(
    members: &[Member],
    added: &BTreeSet<usize>,
    ctx: &Context<'_>,
    errors: &mut FieldErrors,
) {
    const PATH: &str = "spec.members";
    if !errors.check_count(PATH, members.len(), MAX_MEMBERS) {
        return;
    }
    let roles: BTreeSet<&str> = members.iter().map(Member::role).collect();
    if roles.len() > MAX_MEMBER_ROLES {
        let detail =
            format!("must have at most {MAX_MEMBER_ROLES} different values of clusterRole");
        errors.push(FieldError::invalid(PATH, BadValue::Omitted, detail));
    }
    let mut seen = BTreeSet::new();
    for (index, member) in members.iter().enumerate() {
        let path = |field: &str| format!("{PATH}[{index}].{field}");
        let Member { kind, group, name, cluster_role } = member;
        if !MEMBER_GROUPS.contains(&group.as_str()) {
            errors.push(FieldError::not_supported(path("group"), group.as_str(), &MEMBER_GROUPS));
        }
        if !seen.insert((kind, name, member.role())) {
            errors.push(FieldError::duplicate(format!("{PATH}[{index}]"), name));
        }
        errors.check(NameRule::PathSegment.check(&members_binding(member.role())), |detail| {
            FieldError::invalid(path("clusterRole"), cluster_role, detail)
        });
        let is_unknown =
            |principal: Principal<'_>| added.contains(&index) && ctx.uid_of(principal).is_none();
        match (member.principal(), dns1123_subdomain(name)) {
            (None, _) if member.is_all_users() => {}
            (None, _) => {
                let kind = kind.as_str();
                errors.push(FieldError::not_supported(path("kind"), kind, &MEMBER_KINDS));
            }
            (Some(_), Err(detail)) => {
                errors.push(FieldError::invalid(path("name"), name, detail));
            }
            (Some(principal), Ok(())) if is_unknown(principal) => {
                errors.push(FieldError::not_found(path("name"), name));
            }
            _ => {}
        }
    }
}

/// The clusters that a write adds by name.
fn new_clusters<'a>(new: &'a Spec, old: Option<&Spec>) -> BTreeSet<&'a str> {
    let named = new.allowed_clusters.iter().flatten().filter(|one| one.name != ALL_CLUSTERS);
    let is_new = |one: &&AllowedCluster| {
        !old.is_some_and(|old| old.allowed_clusters.iter().flatten().any(|had| had == *one))
    };
    named.filter(is_new).take(MAX_CLUSTERS).map(|one| one.name.as_str()).collect()
}

/// The right to name a cluster. Without it, the list of a project's clusters would tell whether the cluster exists.
fn right_to_name_cluster(name: &str) -> RequiredRight {
    let right = |verb| Right::cluster(verb, MANAGEMENT_V1.group, "clusters", name);
    RequiredRight::from(right("get")).or(right("use")).because(format!(
        "to allow the cluster \"{name}\" by its name requires the verb get or use on it"
    ))
}

fn validate_clusters(clusters: &[AllowedCluster], errors: &mut FieldErrors) {
    const PATH: &str = "spec.allowedClusters";
    if !errors.check_count(PATH, clusters.len(), MAX_CLUSTERS) {
        return;
    }
    for (index, AllowedCluster { name }) in clusters.iter().enumerate() {
        if name != ALL_CLUSTERS {
            errors.check(dns1123_subdomain(name), |detail| {
                FieldError::invalid(format!("{PATH}[{index}].name"), name, detail)
            });
        }
    }
}

fn validate_quota(path: &str, counts: &BTreeMap<String, String>, errors: &mut FieldErrors) {
    for (plural, text) in counts {
        if !COUNTED_IN_QUOTAS.contains(&plural.as_str()) {
            errors.push(FieldError::not_supported(path, plural, &COUNTED_IN_QUOTAS));
        }
        let is_count = (1..=MAX_DIGITS).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_count {
            let detail = format!("must be a count of at most {MAX_DIGITS} digits, as text");
            errors.push(FieldError::invalid(format!("{path}[{plural}]"), text, detail));
        }
    }
}

/// The namespace of a project and the bindings of its members.
fn dependents(
    metadata: &ObjectMeta,
    spec: &Spec,
    previous: &[Object],
    ctx: &Context<'_>,
) -> Result<Vec<Dependent>, ApiError> {
    let namespace = namespace_of(&metadata.name);
    check_namespace(&namespace, metadata, previous)?;
    let project = (PROJECT_LABEL.to_owned(), metadata.name.clone());
    let mut all = vec![Dependent {
        kind: &Namespace,
        namespace: None,
        name: namespace.clone(),
        labels: BTreeMap::from([project]),
        annotations: BTreeMap::new(),
        fields: Map::new(),
        grants: Vec::new(),
        owned: true,
    }];
    all.extend(member_bindings(&metadata.name, &namespace, spec, ctx)?);
    Ok(all)
}

/// The bindings of the members. In the project's namespace, each role is bound to the members with
/// this role. One more role lets all of them see the project itself.
fn member_bindings(
    project: &str,
    namespace: &str,
    spec: &Spec,
    ctx: &Context<'_>,
) -> Result<Vec<Dependent>, ApiError> {
    let mut by_role: BTreeMap<&str, BTreeMap<String, Principal<'_>>> = BTreeMap::new();
    let mut of_all_users: BTreeSet<&str> = BTreeSet::new();
    for member in &spec.members {
        let of_role = by_role.entry(member.role()).or_default();
        of_role.extend(member.principal().map(|principal| (principal.group(), principal)));
        of_all_users.extend(member.is_all_users().then(|| member.role()));
    }
    let whats: Vec<String> = by_role.keys().map(|role| of_member(role)).collect();
    let grants = by_role.values().zip(&whats);
    let grants = grants.flat_map(|(of, what)| of.keys().map(|group| (&**what, group.as_str())));
    let wanted: Vec<(&str, &str)> = grants.collect();
    // A member from before is the same user or team now, also with another role.
    let mut uids = KnownUids::new(ctx.bound).take_all(&wanted).into_iter();
    let mut of_all: BTreeMap<String, String> = BTreeMap::new();
    let mut bindings = Vec::with_capacity(by_role.len() + 2);
    for ((role, members), what) in by_role.iter().zip(&whats) {
        let mut bound = BTreeMap::new();
        for (group, principal) in members {
            let present = ctx.uid_of(*principal);
            let uid = uids.next().flatten().or_else(|| present.clone()).unwrap_or_default();
            if !of_all.contains_key(group) || present.as_ref() == Some(&uid) {
                of_all.insert(group.clone(), uid.clone());
            }
            bound.insert(group.clone(), uid);
        }
        let mut binding = access::binding(access::Binding {
            kind: &RoleBinding,
            namespace: Some(namespace.to_owned()),
            name: members_binding(role),
            labels: access::managed_by(MANAGED_BY_MEMBERS),
            role_kind: &ClusterRole,
            role: (*role).to_owned(),
            what: what.clone(),
            to_all: of_all_users.contains(role),
            bound,
        })?;
        if of_all_users.contains(role) {
            let (what, group) = (what.clone(), access::ALL_USERS_GROUP.to_owned());
            binding.grants.push(BoundGrant { what, group, uid: String::new() });
        }
        bindings.push(binding);
    }
    if !spec.members.is_empty() {
        bindings.extend(seeing_the_project(project, of_all, !of_all_users.is_empty())?);
    }
    Ok(bindings)
}

/// The ClusterRole by which the members of a project see the project itself, and its binding to them: by
/// their groups, with their uids.
fn seeing_the_project(
    project: &str,
    members: BTreeMap<String, String>,
    to_all: bool,
) -> Result<[Dependent; 2], ApiError> {
    let info = Project::INFO;
    let name = format!("{MEMBERS_PREFIX}{project}");
    let readable = SEEN_BY_MEMBERS.iter().map(|of| format!("{}/{of}", info.plural));
    let reading = PolicyRule {
        verbs: vec![Verb::Get.as_str().to_owned()],
        api_groups: vec![info.version.group.to_owned()],
        resources: std::iter::once(info.plural.to_owned()).chain(readable).collect(),
        resource_names: vec![project.to_owned()],
        ..PolicyRule::default()
    };
    let role = Dependent {
        kind: &ClusterRole,
        namespace: None,
        name: name.clone(),
        labels: access::managed_by(MANAGED_BY_MEMBERS),
        annotations: BTreeMap::new(),
        fields: access::encode(&role::Spec { rules: vec![reading] })?,
        grants: Vec::new(),
        owned: true,
    };
    let binding = access::binding(access::Binding {
        kind: &ClusterRoleBinding,
        namespace: None,
        labels: access::managed_by(MANAGED_BY_MEMBERS),
        role_kind: &ClusterRole,
        role: name.clone(),
        name,
        what: String::new(),
        to_all,
        bound: members,
    })?;
    // The record of whom the project names has them with their roles.
    Ok([role, Dependent { grants: Vec::new(), ..binding }])
}

/// Checks that a namespace that exists under the name of a project's is that of the project.
fn check_namespace(
    namespace: &str,
    project: &ObjectMeta,
    previous: &[Object],
) -> Result<(), ApiError> {
    let info = Namespace.info();
    let is_it = |one: &&Object| one.kind == info.kind && one.metadata.name == namespace;
    match previous.iter().find(is_it) {
        Some(found) if !belongs_to(found, project) => {
            let resource = info.group_resource();
            Err(if found.metadata.is_terminating() {
                ApiError::already_exists_deleting(resource, namespace)
            } else {
                ApiError::already_exists(resource, namespace)
            })
        }
        _ => Ok(()),
    }
}
