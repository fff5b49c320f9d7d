//! The owner and the access rules of an object: their fields, and the place where a kind has them.
//! `access` has their meaning. The uid of the owner is stored next to the object, so that a later
//! user or team of that name owns nothing.

use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::ObjectMeta;
use postern_meta::status::ApiError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Dependent, Info, NoEffect};
use crate::context::{Caller, Context};
use crate::fields::Layout;
use crate::principal::Principal;
use crate::rbac::{USE, VERBS};
use crate::right::RequiredRight;

/// An object that has an owner: its kind and its metadata.
#[derive(Clone, Copy)]
pub(crate) struct Owned<'a> {
    /// Its kind.
    pub(crate) info: &'static Info,
    /// Its metadata, with uid and name.
    pub(crate) metadata: &'a ObjectMeta,
}

/// The rights that a write requires, and its invalid fields.
pub(crate) type Checked = (Vec<RequiredRight>, FieldErrors);

/// The rights that a change of access rules requires, and the invalid rules, after and before.
type Check = fn(Owned<'_>, &Ownership, Option<&Ownership>, &Context<'_>) -> Checked;

/// The objects that access rules become, given those that there are now.
type Become = fn(Owned<'_>, &Ownership, &Context<'_>) -> Became;

/// The objects that access rules become.
type Became = Result<Vec<Dependent>, ApiError>;

/// The meaning of access rules, for the kinds that have them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRules {
    /// Checks a change of them.
    pub(crate) check: Check,
    /// Makes the objects that they become.
    pub(crate) dependents: Become,
}

/// The owner of an object, and the users and teams with access to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The user or team that holds every verb on it.
    pub owner: Option<UserOrTeam>,
    /// Access rules: the other users and teams that get verbs on this object. At most 30; the owner
    /// needs none.
    pub access: Vec<Access>,
    /// The access rules that `spec.extraAccessRules` become, for the kinds that have it.
    pub extra: Vec<Access>,
}

impl Ownership {
    /// An owner with access rules in both forms.
    pub(crate) fn of(owner: Option<&UserOrTeam>, access: &[Access], extra: &[ExtraAccess]) -> Self {
        let extra = extra.iter().map(ExtraAccess::as_access).collect();
        Self { owner: owner.cloned(), access: access.to_vec(), extra }
    }

    /// All access rules.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Access> {
        self.access.iter().chain(&self.extra)
    }

    /// The path of the field that an access rule comes from, by its index among all of them.
    pub(crate) fn path_of(&self, index: usize) -> String {
        match index.checked_sub(self.access.len()) {
            None => format!("spec.access[{index}]"),
            Some(extra) => format!("spec.extraAccessRules[{extra}]"),
        }
    }

    /// The owner; `None` when there is none.
    pub fn principal(&self) -> Option<Principal<'_>> {
        self.owner.as_ref().and_then(UserOrTeam::principal)
    }
}

/// Where a kind has the owner and the access rules of its objects.
#[derive(Clone, Copy, Debug)]
pub struct OwnershipPart<Spec> {
    /// Reads both.
    pub get: fn(&Spec) -> Ownership,
    /// The place of the owner.
    pub owner_mut: fn(&mut Spec) -> &mut Option<UserOrTeam>,
    /// The rights that the rules require, and the objects that they become.
    pub(crate) rules: AccessRules,
}

/// The owner of an object: a user or a team, not both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.UserOrTeam")]
pub struct UserOrTeam {
    /// Name of a User.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Name of a Team.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub team: String,
}

impl UserOrTeam {
    /// The caller as an owner; `None` when the caller is no user or team.
    pub fn caller(caller: &Caller) -> Option<Self> {
        match (&caller.user, &caller.team) {
            (Some(user), _) => Some(Self { user: user.clone(), team: String::new() }),
            (None, Some(team)) => Some(Self { user: String::new(), team: team.clone() }),
            (None, None) => None,
        }
    }

    /// The user or team; `None` when neither is set.
    pub fn principal(&self) -> Option<Principal<'_>> {
        match (self.user.as_str(), self.team.as_str()) {
            ("", "") => None,
            ("", team) => Some(Principal::Team(team)),
            (user, _) => Some(Principal::User(user)),
        }
    }

    /// The text `user/NAME` or `team/NAME`, for a column; empty if neither is set.
    pub fn display_name(&self) -> String {
        match (self.user.as_str(), self.team.as_str()) {
            ("", "") => String::new(),
            ("", team) => format!("team/{team}"),
            (user, _) => format!("user/{user}"),
        }
    }
}

/// One access rule: it gives verbs on this one object to users and teams. The server keeps a Role and a
/// RoleBinding that say the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.Access", extend("required" = ["verbs"]))]
pub struct Access {
    /// Optional name of the rule, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Verbs that the rule gives: those of the API, and those of the platform, such as `use` for
    /// requests through the gateway. `*` is every verb. A caller that adds a verb must hold it on
    /// the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        extend("x-kubernetes-list-type" = "atomic"),
        extend("items" = { "type": "string", "enum": VERBS })
    )]
    pub verbs: Vec<String>,
    /// Subresources that the verbs also apply to, for example `status`; `*` is all that the kind has. `chartinfo` and
    /// `charts`, which other clients send, have no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub subresources: Vec<String>,
    /// Names of the users that get the verbs; `*` is every user. A caller that adds one that it may not name needs `bind`
    /// on that user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<String>,
    /// Names of the teams. Their members get the verbs. A caller that adds one that it may not name needs `bind` on that
    /// team.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub teams: Vec<String>,
}

/// The subresources of access rules that have no effect. They are those of projects that other clients name, as their
/// documentation shows.
pub(crate) const NO_EFFECT: NoEffect =
    NoEffect::values("spec.access[].subresources", &UNSERVED_SUBRESOURCES);

/// The same subresources. They are not served, so that a rule gives nothing on them; it is kept as it was sent.
pub(crate) const UNSERVED_SUBRESOURCES: [&str; 2] = ["chartinfo", "charts"];

/// One access rule in the form of `extraAccessRules`: it lets users and teams see this one object and go through the
/// gateway to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ExtraAccess")]
pub struct ExtraAccess {
    /// Names of the users; `*` is every user. A caller that adds one that it may not name needs `bind` on that user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<String>,
    /// Names of the teams. Their members get access. A caller that adds one that it may not name needs `bind` on that
    /// team.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub teams: Vec<String>,
    /// A role that clients send. All values mean the verbs `get` and `use`. The cluster itself
    /// decides about the permissions of a user in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = EXTRA_ACCESS_ROLES))]
    pub cluster_role: String,
}

/// The values of [`ExtraAccess::cluster_role`].
const EXTRA_ACCESS_ROLES: [&str; 4] =
    ["", "loft-cluster-space-admin", "loft-cluster-space-default", "platform-cluster-space-admin"];

impl ExtraAccess {
    fn as_access(&self) -> Access {
        Access {
            verbs: ["get", USE].map(str::to_owned).to_vec(),
            users: self.users.clone(),
            teams: self.teams.clone(),
            ..Access::default()
        }
    }

    /// Adds an error for each rule with a role that means nothing here.
    pub(crate) fn validate_roles(rules: &[Self], errors: &mut FieldErrors) {
        for (index, Self { cluster_role, .. }) in rules.iter().enumerate() {
            if !EXTRA_ACCESS_ROLES.contains(&cluster_role.as_str()) {
                let path = format!("spec.extraAccessRules[{index}].clusterRole");
                let [_, known @ ..] = EXTRA_ACCESS_ROLES;
                let detail = format!(
                    "means nothing on this server: leave it empty, or use one of {}, for the verbs get and use; or write \
                     an entry of spec.access with the verbs",
                    known.join(", ")
                );
                errors.push(FieldError::invalid(path, cluster_role.as_str(), detail));
            }
        }
    }
}

/// Sets the owner of a new object to the caller, if it names none.
pub(crate) fn set_owner(owner: &mut Option<UserOrTeam>, ctx: &Context<'_>) {
    if owner.as_ref().is_none_or(|owner| *owner == UserOrTeam::default()) {
        *owner = UserOrTeam::caller(ctx.caller);
    }
}

/// The uid of the owner of an object after a write. While the name of the owner stays the same, so does the uid, set or
/// not: a later namesake is another user.
pub(super) fn owner_uid_after(
    new: &Ownership,
    old: Option<&Ownership>,
    ctx: &Context<'_>,
) -> Option<String> {
    let owner = new.principal()?;
    let uid = match old {
        Some(old) if old.principal() == Some(owner) => ctx.owner_uid.map(str::to_owned),
        _ => ctx.uid_of(owner),
    };
    uid.filter(|uid| !uid.is_empty())
}

/// Writes the owner into the fields of an object.
pub(super) fn set_owner_field(fields: &mut Map<String, Value>, layout: Layout, owner: &UserOrTeam) {
    let spec = match layout {
        Layout::TopLevel => Some(fields),
        Layout::SpecAndStatus => {
            let spec = fields.entry("spec").or_insert_with(|| Value::Object(Map::new()));
            spec.as_object_mut()
        }
    };
    if let (Some(spec), Ok(owner)) = (spec, serde_json::to_value(owner)) {
        spec.insert("owner".to_owned(), owner);
    }
}
