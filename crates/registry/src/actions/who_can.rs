//! The subjects with a permission: the subjects of roles, the users, teams and keys that these are, and the source of
//! each permission. It is the inverse of an access review.

use std::collections::{BTreeMap, BTreeSet};

use postern_auth::attributes::Attributes;
use postern_auth::explanation::Source;
use postern_auth::identity::{AUTHENTICATED_GROUP, Identity};
use postern_auth::policy::{Grantee, WhoCan};
use postern_auth::principal_index::PrincipalIndex;
use postern_kinds::access::made_for;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::rbac::BoundSubject;
use postern_kinds::reviews::resource_access_review::ResourceAccessReview;
use postern_kinds::reviews::resource_access_review::{AllowedSubject, Spec, Status};
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{AnyKind, Principal, RequiredRight, Right, Verb};
use postern_meta::status::ApiError;

use super::decider::{
    Decider, as_decided, attributes_of, kind_of, partial_right, source_text,
    without_needless_namespace,
};
use crate::permit::Permit;
use crate::registry::Registry;

/// The access keys that are checked in one step. Between steps, other tasks get the thread and the lock.
const KEYS_PER_STEP: usize = 128;

/// The maximum number of rows in a response.
const MAX_ROWS: usize = 10_000;

/// The kind of the row for all subjects with a permission in the whole server.
const CLUSTER_WIDE: &str = "ClusterWide";

/// The prefixes of the groups of one user and of one team.
const USER_PREFIX: &str = "platform:user:";
const TEAM_PREFIX: &str = "platform:team:";

/// The rows of the response: kind and name, with the sources of the permission.
type Rows = BTreeMap<(&'static str, String), Vec<String>>;

/// By which permission a caller requests the subjects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// By a role for the review. The response has all subjects.
    ByRole,
    /// By the permission to update the object. Subjects with a permission in the whole server are one row. Access keys that the
    /// asker may not get are left out, and so are the sizes of groups, and of teams that the asker may not get.
    OfObject,
}

/// The permission by which a caller may request the subjects of a permission. With a role, it may request any
/// permission. Otherwise it may request one object that it may update, as its owner may.
///
/// # Errors
/// 403. It is the same whether the object exists or not.
pub(super) fn asker(
    permit: &Permit,
    decider: &Decider<'_>,
    spec: &Spec,
) -> Result<Asker, ApiError> {
    let info = ResourceAccessReview.info();
    let by_role = Right::cluster(Verb::Create.as_str(), info.version.group, info.plural, "");
    let is_in_scope = permit.policy().scopes_name(permit.identity(), &(&by_role).into());
    let by_role = RequiredRight::from(by_role).by_role();
    if permit.has(&by_role) && is_in_scope {
        return Ok(Asker::ByRole);
    }
    let Spec { group, resource, namespace, name, .. } = spec;
    let update = Attributes::Resource {
        verb: Verb::Update.as_str(),
        group,
        resource,
        subresource: "",
        namespace,
        name,
    };
    let update = without_needless_namespace(update);
    if !resource.is_empty() && !name.is_empty() && decider.allows(permit.identity(), &update) {
        return Ok(Asker::OfObject);
    }
    let hint = "without a role, you can ask only about an object that you may update".to_owned();
    permit.check_right(&by_role.because(hint))?;
    // The caller has the role, but the scope of the key does not include the review.
    Err(ApiError::forbidden(
        info.group_resource(),
        "",
        "the scope of the access key does not allow it",
    ))
}

/// The status with all subjects that the asker may know.
pub(super) async fn status(
    registry: &Registry,
    permit: &Permit,
    decider: &Decider<'_>,
    spec: &Spec,
    asker: Asker,
) -> Status {
    let request = attributes_of(spec);
    let attributes = as_decided(request);
    let (mut rows, mut everywhere) = (Rows::new(), Rows::new());
    {
        let grantees = grantees(decider, &attributes);
        let hidden = match asker {
            Asker::ByRole => BTreeSet::new(),
            Asker::OfObject => hidden_subjects(registry, permit, decider, &grantees),
        };
        let principals = registry.cache().principals();
        for grantee in grantees {
            let owner = || owner_named(decider, &attributes);
            let folds = asker == Asker::OfObject && is_everywhere(&grantee.source);
            let rows = if folds { &mut everywhere } else { &mut rows };
            add(&principals, rows, grantee, owner, &hidden);
        }
    }
    add_open_lists(decider, &request, &mut rows);
    let is_all = add_keys(registry, permit, decider, &request, asker, &mut rows).await;
    if !everywhere.is_empty() {
        let via = vec!["roles in the whole server".to_owned()];
        rows.insert((CLUSTER_WIDE, "*".to_owned()), via);
    }
    let row = |((kind, name), via): ((&'static str, String), Vec<String>)| AllowedSubject {
        size: match kind {
            CLUSTER_WIDE => i64::try_from(everywhere.len()).ok(),
            // How many users there are is for those who may read them.
            "Group" if asker == Asker::OfObject => None,
            "Team" if asker == Asker::OfObject && !may_get(permit, decider, &Team, &name) => None,
            _ => size_of(&registry.cache().principals(), kind, &name),
        },
        kind: kind.to_owned(),
        name,
        via,
    };
    let complete = is_all && rows.len() <= MAX_ROWS;
    let incomplete_reason =
        if complete { String::new() } else { format!("there are more than {MAX_ROWS} subjects") };
    let subjects = rows.into_iter().take(MAX_ROWS).map(row).collect();
    Status { subjects, complete, incomplete_reason }
}

/// The subjects in the policy. If the owner has permissions on the object, the owner is included.
fn grantees(decider: &Decider<'_>, attributes: &Attributes<'_>) -> Vec<Grantee> {
    let mut all_of_them = decider.policy.who_can(attributes);
    if let Some(right) = partial_right(attributes) {
        all_of_them.extend(decider.policy.who_can(&(&right).into()));
    }
    let Attributes::Resource { verb, group, resource, name, .. } = *attributes else {
        return all_of_them;
    };
    let kind = kind_of(group, resource).filter(|kind| kind.is_delegated());
    let verb = Verb::ALL.iter().copied().find(|known| known.as_str() == verb);
    let (Some(kind), Some(verb)) = (kind, verb) else { return all_of_them };
    let found = decider.registry.read_to_decide(kind, None, name);
    let Ok(Some(object)) = found else { return all_of_them };
    let object = object.into_cached();
    let right = object.owner().and_then(|owned| kind.delegated_right(verb, &owned.owner));
    if let Some(right) = right {
        all_of_them.extend(decider.policy.who_can(&(&right).into()));
    }
    all_of_them
}

/// The group of the user or team that owns the object of the request.
fn owner_named(decider: &Decider<'_>, attributes: &Attributes<'_>) -> Option<String> {
    let Attributes::Resource { group, resource, namespace, name, .. } = *attributes else {
        return None;
    };
    let kind = kind_of(group, resource).filter(|kind| kind.has_ownership())?;
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    let object = decider.registry.read_to_decide(kind, namespace, name).ok()??;
    let ownership = kind.ownership(&object.part().ok()?)?;
    ownership.principal().map(Principal::group)
}

/// The subjects of bindings that are users whom the caller may not get. They stay subjects: a caller that may write a binding
/// could otherwise ask which users exist.
fn hidden_subjects(
    registry: &Registry,
    permit: &Permit,
    decider: &Decider<'_>,
    grantees: &[Grantee],
) -> BTreeSet<String> {
    let is_hidden = |name: &&String| {
        // The lock is not held while the permission is decided, which may need it again.
        let user = registry.cache().principals().user_known_as(name).map(str::to_owned);
        user.is_some_and(|user| !may_get(permit, decider, &User, &user))
    };
    let subjects = grantees.iter().filter_map(|grantee| match &grantee.who {
        WhoCan::Subject(BoundSubject::User(name)) => Some(name),
        _ => None,
    });
    subjects.filter(is_hidden).cloned().collect()
}

/// Adds a row. `owner` returns the group of the owner of the object. The subjects in `hidden` are not shown as users.
fn add(
    principals: &PrincipalIndex,
    rows: &mut Rows,
    Grantee { who, source }: Grantee,
    owner: impl FnOnce() -> Option<String>,
    hidden: &BTreeSet<String>,
) {
    let who = match who {
        WhoCan::Owner { uid } => match owner() {
            Some(group) => WhoCan::Subject(BoundSubject::Principal { group, uid }),
            None => return,
        },
        who => who,
    };
    let row = match who {
        WhoCan::Owner { .. } => None,
        WhoCan::User(name) => Some(("User", name)),
        WhoCan::Team(name) | WhoCan::Members(name) => Some(("Team", name)),
        WhoCan::Subject(BoundSubject::User(name)) => {
            Some(match principals.user_known_as(&name).filter(|_| !hidden.contains(&name)) {
                Some(user) => ("User", user.to_owned()),
                None => match name.strip_prefix(TEAM_PREFIX) {
                    Some(team) => ("Team", team.to_owned()),
                    None => ("Subject", name),
                },
            })
        }
        WhoCan::Subject(BoundSubject::Group(group)) => Some(named_group(group)),
        WhoCan::Subject(BoundSubject::Principal { group, uid }) => {
            let row = named_group(group);
            let principal = match row.0 {
                "User" => Some(Principal::User(&row.1)),
                "Team" => Some(Principal::Team(&row.1)),
                _ => None,
            };
            // Another user or team may have the name by now.
            principal.is_some_and(|one| principals.is_principal(one, &uid)).then_some(row)
        }
    };
    let Some(row) = row else { return };
    let via = rows.entry(row).or_default();
    let text = source_text(&source);
    if !via.contains(&text) {
        via.push(text);
    }
}

fn named_group(group: String) -> (&'static str, String) {
    let user = group.strip_prefix(USER_PREFIX).filter(|user| *user != "*").map(str::to_owned);
    let team = group.strip_prefix(TEAM_PREFIX).map(str::to_owned);
    match (user, team) {
        (Some(user), _) => ("User", user),
        (None, Some(team)) => ("Team", team),
        (None, None) => ("Group", group),
    }
}

/// Adds all authenticated callers, if a list is open to every caller.
fn add_open_lists(decider: &Decider<'_>, attributes: &Attributes<'_>, rows: &mut Rows) {
    let everyone = Identity { groups: vec![AUTHENTICATED_GROUP.to_owned()], ..Identity::default() };
    let row = ("Group", AUTHENTICATED_GROUP.to_owned());
    if !rows.contains_key(&row) && decider.allows(&everyone, attributes) {
        rows.insert(row, vec!["a list contains the objects that the caller may get".to_owned()]);
    }
}

/// Whether the caller may get an object of a kind without namespaces.
fn may_get(permit: &Permit, decider: &Decider<'_>, kind: &dyn AnyKind, name: &str) -> bool {
    let info = kind.info();
    let (group, resource) = (info.version.group, info.plural);
    let (verb, subresource, namespace) = (Verb::Get.as_str(), "", "");
    let get = Attributes::Resource { verb, group, resource, subresource, namespace, name };
    decider.allows(permit.identity(), &get)
}

/// Adds the access keys with the permission, of which a caller without a role for the review sees those that it may get. The
/// result is whether all keys were checked.
async fn add_keys(
    registry: &Registry,
    permit: &Permit,
    decider: &Decider<'_>,
    attributes: &Attributes<'_>,
    asker: Asker,
    rows: &mut Rows,
) -> bool {
    let now = registry.source().now().unix_seconds();
    let mut after: Option<String> = None;
    loop {
        let step = {
            let principals = registry.cache().principals();
            let names = principals.key_names_after(after.as_deref(), KEYS_PER_STEP);
            let keys = names.iter().map(|name| {
                (name.clone(), principals.identify_by_name(name, now, &decider.policy))
            });
            keys.collect::<Vec<_>>()
        };
        let Some((last, _)) = step.last() else { return true };
        after = Some(last.clone());
        for (name, key) in step {
            let Ok(key) = key else { continue };
            let is_known = asker == Asker::ByRole
                || is_of_row(rows, &key.identity)
                    && may_get(permit, decider, &OwnedAccessKey, &name);
            if is_known && decider.allows(&key.identity, attributes) {
                let owner = owner_text(&key.identity);
                rows.insert(("AccessKey", name), vec![format!("an access key of {owner}")]);
            }
        }
        if rows.len() > MAX_ROWS {
            return false;
        }
        tokio::task::yield_now().await;
    }
}

/// Whether a permission is one in the whole server, and not one on the object. The access rules of cluster-scoped
/// objects are ClusterRoles, too.
fn is_everywhere(source: &Source) -> bool {
    match source {
        Source::Masters | Source::Everyone => true,
        Source::Themselves | Source::Owner => false,
        Source::Role { binding, .. } => {
            binding.namespace.is_none() && made_for(&binding.name).is_none()
        }
    }
}

/// Whether a row is about the owner of a key: the user or team, a team or group of the user, or the subject.
fn is_of_row(rows: &Rows, identity: &Identity) -> bool {
    let teams = identity.team.iter().chain(&identity.teams).map(|team| ("Team", team));
    let users = identity.user.iter().map(|user| ("User", user));
    let groups = identity.groups.iter().map(|group| ("Group", group));
    let subjects = std::iter::once(("Subject", &identity.name));
    teams
        .chain(users)
        .chain(groups)
        .chain(subjects)
        .any(|(kind, name)| rows.contains_key(&(kind, name.clone())))
}

fn owner_text(identity: &Identity) -> String {
    match (&identity.user, &identity.team) {
        (Some(user), _) => format!("User \"{user}\""),
        (None, Some(team)) => format!("Team \"{team}\""),
        (None, None) => format!("Subject \"{}\"", identity.name),
    }
}

fn size_of(principals: &PrincipalIndex, kind: &str, name: &str) -> Option<i64> {
    let size = match kind {
        "Team" => principals.team_size(name)?,
        "Group" if name == AUTHENTICATED_GROUP || name == "platform:authenticated" => {
            principals.user_count()
        }
        "Group" => principals.users_in_group(name),
        _ => return None,
    };
    i64::try_from(size).ok()
}
