//! User: a person, possibly with access keys. See
//! `docs/reference/authentication.md#users-and-teams`.

use crate::connector::check_issuer;
use crate::console_login_code::ConsoleLoginCode;
use crate::identities::{
    NO_CLUSTER_ROLES, added, check_not_reserved, impersonate, right_to_be_user, rights_to_be,
    rights_to_impersonate_all,
};
use crate::key_origin::is_zero;
use crate::prelude::*;
use crate::principal::{ConnectorRef, SsoGroups};
use crate::team;
use serde_json::{Map, Value};

/// Maximum number of teams that a user is removed from in the transaction that removes the user.
pub const MAX_TEAMS_LEFT: usize = 100;

/// Makes the code of a login link for the user.
const MAKE_LOGIN_CODE: Action = Action {
    subresource: "logincode",
    verb: Verb::Create,
    right: ActionRight::OnObject("createkey"),
    handler: Handler::Registry(RegistryAction::LoginCode),
    request: Some(&ConsoleLoginCode),
    response: Response::Object(&ConsoleLoginCode),
    description: "Makes a code for a login link of the user.",
};

/// The kind.
pub struct User;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The names, groups and state of a user.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.UserSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Name for login. No other user has it as a name, username or subject.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// A description of the user for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// A picture for pages: a URL or data. This server does not use it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub icon: String,
    /// E-mail address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// The name that access decisions and audit records have for the user; by default the object's
    /// name. It is unique.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Groups that the user is in, as roles name them. A caller that adds one needs `impersonate`
    /// on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// Whether the user is disabled. Then the user's access keys do not work: requests are 401, and open watches end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// The identities at providers of single sign-on with which the user logs in. No other user has
    /// one of them. A caller that changes them needs `impersonate` on all users and groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub identities: Vec<SsoIdentity>,
}

/// An identity at a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.UserIdentity")]
pub struct SsoIdentity {
    /// The name of the Connector.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub connector: String,
    /// The issuer of the provider. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// The subject of the user at the provider. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
}

/// The observed state of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.UserStatus")]
pub struct Status {
    /// The groups of single sign-on, by connector. Set by the server at each login and refresh.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub sso: Vec<SsoStatus>,
    /// How often the user was disabled. Login codes that an administrator made before the last time are invalid. Set by the
    /// server.
    #[serde(skip_serializing_if = "is_zero")]
    pub disabled_count: i64,
}

/// The groups of a user by one connector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.UserSSOStatus")]
pub struct SsoStatus {
    /// The name of the Connector.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub connector: String,
    /// The uid of the Connector. The groups do not count for a later connector of the same name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub connector_uid: String,
    /// The groups, each with the name of the connector and a colon in front.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// When the provider last said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refreshed: Option<Timestamp>,
}

/// The most identities of a user.
const MAX_SSO_IDENTITIES: usize = 16;

/// The most characters of a subject at a provider (OpenID Connect Core 1.0 section 2).
const MAX_SUBJECT_CHARS: usize = 255;

/// The unique key of an identity at a provider. Names of users have no comma, and issuers neither.
pub fn identity_key(issuer: &str, subject: &str) -> String {
    format!("{issuer},{subject}")
}

/// Why fields are refused that give access to a user.
const NO_ACCESS_RULES: &str = "users have no owner and no access rules: bind a role to the user";

/// Why fields are refused that are about passwords.
const NO_PASSWORDS: &str = "this server has no passwords: users log in with access keys";

impl Kind for User {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "User",
        plural: "users",
        singular: "user",
        actions: &[Action::GET_ACCESS_KEYS, MAKE_LOGIN_CODE],
        confidential: false,
        description: "User is a person who may hold access keys.",
        strict_fields: Some(StrictFields {
            not_null: &["spec", "spec.disabled"],
            ..StrictFields::OURS
        }),
        unserved_fields: &[
            UnservedField::new("owner", NO_ACCESS_RULES),
            UnservedField::new("access", NO_ACCESS_RULES),
            UnservedField::new(
                "ssoGroups",
                "the server sets the groups of single sign-on in status.sso; spec.groups has others",
            ),
            UnservedField::new("passwordRef", NO_PASSWORDS),
            UnservedField::new("codesRef", NO_PASSWORDS),
            UnservedField::new(
                "accessKeysRef",
                "access keys are OwnedAccessKey objects: create those",
            ),
            UnservedField::new(
                "imagePullSecrets",
                "this server hands out no image pull secrets; leave this field out",
            ),
            UnservedField::new(
                "tokenGeneration",
                "to revoke access, disable or delete the access keys of the user",
            ),
            UnservedField::new("clusterRoles", NO_CLUSTER_ROLES),
            UnservedField::new("clusterAccountTemplates", NO_CLUSTER_ROLES),
            UnservedField::new(
                "extraClaims",
                "this server issues no JWT to users; leave this field out",
            ),
        ],
        columns: &[
            ColumnInfo::text("Display Name", "Name shown to people."),
            ColumnInfo::boolean("Enabled", "Whether the user's keys work."),
            ColumnInfo::text("Email", "E-mail address.").wide(),
        ],
        on_remove: Some(leave_teams),
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Status> = Parts {
        unique_keys: Some(names),
        access_role: Some(AccessRole::User(|metadata, spec, status| UserFacts {
            uid: metadata.uid.clone(),
            subject: spec.subject.clone(),
            groups: spec.groups.clone(),
            disabled: spec.disabled,
            disabled_count: status.disabled_count,
            identities: spec
                .identities
                .iter()
                .map(|one| (one.issuer.clone(), one.subject.clone()))
                .collect(),
            sso: status.sso.iter().map(SsoStatus::facts).collect(),
        })),
        ..Parts::DEFAULT
    };

    /// Only the server writes the status. It counts each time that the user is disabled. A user that loses an identity keeps no
    /// groups that the identity may have brought: the next refresh brings those of the other identities again.
    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        if !ctx.is_server() {
            new.fields.status = old.map(|old| old.fields.status.clone()).unwrap_or_default();
        }
        let has = |one: &SsoIdentity| {
            let mut identities = new.fields.spec.identities.iter();
            identities.any(|kept| (&kept.issuer, &kept.subject) == (&one.issuer, &one.subject))
        };
        if old.is_some_and(|old| !old.fields.spec.identities.iter().all(has)) {
            new.fields.status.sso.clear();
        }
        if let Some(old) = old {
            let count = old.fields.status.disabled_count;
            let is_disabled_now = new.fields.spec.disabled && !old.fields.spec.disabled;
            new.fields.status.disabled_count = count.saturating_add(i64::from(is_disabled_now));
        }
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let spec = write.spec();
        for (path, name) in [("spec.subject", &spec.subject), ("spec.username", &spec.username)] {
            if !name.is_empty() {
                check_identity(path, name, errors);
            }
        }
        check_identities("spec.groups", &spec.groups, errors);
        validate_sso_identities(&spec.identities, errors);
        let old = write.old_spec();
        let given = new_names(spec, old).chain(new_groups(spec, old));
        check_not_reserved(Self::INFO.group_resource(), &write.new.metadata.name, given, write.ctx)
    }

    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let &Write { new, old, ctx } = write;
        let (spec, name) = (write.spec(), new.metadata.name.as_str());
        let is_new = old.is_none_or(|old| identity(old) != identity(new));
        let identity = match spec.subject.as_str() {
            _ if !is_new => None,
            // Without a subject, the name is what bindings and keys may name already.
            "" => right_to_be_user(name, ctx),
            subject => Some(impersonate("users", subject)),
        };
        let is_create = old.is_none();
        let itself = is_create.then(|| rights_to_be(Principal::User(name), ctx));
        let groups = new_groups(spec, write.old_spec());
        let groups = groups.map(|group| impersonate("groups", group));
        let itself = itself.into_iter().flatten();
        let had = old.map_or(&[][..], |old| &old.fields.spec.identities);
        let linked = (spec.identities != had).then(rights_to_impersonate_all).into_iter().flatten();
        identity.into_iter().chain(itself).chain(groups).chain(linked).collect()
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        vec![
            Cell::Text(spec.display_name.clone()),
            Cell::Text((!spec.disabled).to_string()),
            Cell::Text(spec.email.clone()),
        ]
    }
}

/// Takes the groups that the connector with a uid has confirmed from the fields of a User.
pub fn take_groups(fields: &mut Map<String, Value>, connector_uid: &str) {
    let of_all = fields.get_mut("status").and_then(|status| status.get_mut("sso")?.as_array_mut());
    let of_connector =
        of_all.into_iter().flatten().filter(|one| one["connectorUid"] == connector_uid);
    for one in of_connector.filter_map(Value::as_object_mut) {
        one.remove("groups");
    }
}

/// The name that access decisions have for a user.
fn identity(user: &Draft<Fields>) -> &str {
    let subject = user.fields.spec.subject.as_str();
    if subject.is_empty() { &user.metadata.name } else { subject }
}

/// The groups that a write adds.
fn new_groups<'a>(new: &'a Spec, old: Option<&'a Spec>) -> impl Iterator<Item = &'a String> {
    added(&new.groups, old.map(|old| old.groups.as_slice()))
}

/// The subject and the username that a write sets.
fn new_names<'a>(new: &'a Spec, old: Option<&'a Spec>) -> impl Iterator<Item = &'a String> {
    let subject = Some(&new.subject).filter(|name| old.is_none_or(|old| old.subject != **name));
    let username = Some(&new.username).filter(|name| old.is_none_or(|old| old.username != **name));
    subject.into_iter().chain(username)
}

/// All names of a user, with the fields that they come from. No two users share one, of
/// whichever field: access decisions would take one for the other.
fn names(metadata: &ObjectMeta, spec: &Spec) -> Vec<UniqueKey> {
    let of = |field, name: &String| UniqueKey { field, value: name.clone(), is_place: false };
    let mut names = vec![of("metadata.name", &metadata.name)];
    for (field, name) in [("spec.subject", &spec.subject), ("spec.username", &spec.username)] {
        if !name.is_empty() && names.iter().all(|known| known.value != *name) {
            names.push(of(field, name));
        }
    }
    names.extend(spec.identities.iter().take(MAX_SSO_IDENTITIES).map(|one| UniqueKey {
        field: "spec.identities",
        value: identity_key(&one.issuer, &one.subject),
        is_place: false,
    }));
    names
}

impl SsoStatus {
    fn facts(&self) -> SsoGroups {
        let connector =
            ConnectorRef { name: self.connector.clone(), uid: self.connector_uid.clone() };
        let confirmed_unix_seconds = self.refreshed.map_or(0, Timestamp::unix_seconds);
        SsoGroups { connector, groups: self.groups.clone(), confirmed_unix_seconds }
    }
}

fn validate_sso_identities(identities: &[SsoIdentity], errors: &mut FieldErrors) {
    const PATH: &str = "spec.identities";
    if !errors.check_count(PATH, identities.len(), MAX_SSO_IDENTITIES) {
        return;
    }
    for (index, one) in identities.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        check_issuer(&format!("{path}.issuer"), &one.issuer, errors);
        let subject = format!("{path}.subject");
        if one.subject.is_empty() {
            errors.push(FieldError::required(subject, "must be the subject at the provider"));
        } else if one.subject.chars().count() > MAX_SUBJECT_CHARS
            || one.subject.chars().any(char::is_control)
        {
            let detail = format!(
                "must be at most {MAX_SUBJECT_CHARS} characters, none of them control characters"
            );
            errors.push(FieldError::invalid(subject, BadValue::Omitted, detail));
        }
        let is_same =
            |other: &SsoIdentity| (&other.issuer, &other.subject) == (&one.issuer, &one.subject);
        if identities.iter().take(index).any(is_same) {
            errors.push(FieldError::duplicate(path, one.subject.as_str()));
        }
    }
}

/// The changes that remove a user from their teams. Otherwise a later user of the same name
/// would be in them.
fn leave_teams(
    metadata: &ObjectMeta,
    principals: &dyn Principals,
) -> Result<Vec<Companion>, ApiError> {
    let user = metadata.name.as_str();
    let teams = principals.teams_that_list(user);
    if teams.len() > MAX_TEAMS_LEFT {
        let text = format!(
            "the user is in {} teams; a deletion can change at most {MAX_TEAMS_LEFT}: remove the \
             user from some teams first",
            teams.len()
        );
        return Err(ApiError::conflict(User::INFO.group_resource(), user, text));
    }
    Ok(teams.into_iter().map(|team| team::without_user(team, user)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The user `ada` is in this many teams: `team-0`, `team-1` and so on.
    struct InTeams(usize);

    impl Principals for InTeams {
        fn uid(&self, _: Principal<'_>) -> Option<String> {
            None
        }

        fn teams_of(&self, user: &str) -> Vec<String> {
            let count = if user == "ada" { self.0 } else { 0 };
            (0..count).map(|index| format!("team-{index}")).collect()
        }
    }

    fn on_remove(user: &str, teams: usize) -> Result<Vec<Companion>, ApiError> {
        let metadata = ObjectMeta { name: user.to_owned(), ..ObjectMeta::default() };
        let on_remove = User::INFO.on_remove.unwrap();
        on_remove(&metadata, &InTeams(teams))
    }

    #[test]
    fn a_user_is_removed_from_their_teams_and_from_no_more_than_one_transaction_takes() {
        for (user, teams, companions) in [
            ("ada", 0, Some(0)),
            ("ada", 2, Some(2)),
            ("bob", 2, Some(0)),
            ("ada", MAX_TEAMS_LEFT, Some(MAX_TEAMS_LEFT)),
            ("bob", MAX_TEAMS_LEFT + 1, Some(0)),
            ("ada", MAX_TEAMS_LEFT + 1, None),
        ] {
            match (on_remove(user, teams), companions) {
                (Ok(changes), Some(count)) => {
                    assert_eq!(changes.len(), count, "{user} in {teams} teams");
                    for (index, change) in changes.iter().enumerate() {
                        assert_eq!(change.kind.info().kind, "Team");
                        assert_eq!(change.namespace, None);
                        assert_eq!(change.name, format!("team-{index}"));
                    }
                }
                (Err(error), None) => {
                    assert_eq!(error.code(), 409);
                    let message = &error.status().message;
                    let counts =
                        format!("in {teams} teams; a deletion can change at most {MAX_TEAMS_LEFT}");
                    assert!(message.contains(&counts), "{message}");
                }
                (result, _) => panic!("{user} in {teams} teams: {}", result.is_ok()),
            }
        }
    }

    #[test]
    fn the_change_of_a_team_removes_the_user_and_nothing_else() {
        let companion = on_remove("ada", 1).unwrap().remove(0);
        for (fields, changed) in [
            (
                json!({ "spec": { "users": ["bob", "ada"] } }),
                json!({ "spec": { "users": ["bob"] } }),
            ),
            (json!({ "spec": { "users": ["ada", "ada"] } }), json!({ "spec": { "users": [] } })),
            (json!({ "spec": { "users": ["adam"] } }), json!({ "spec": { "users": ["adam"] } })),
            (json!({ "spec": { "groups": ["ada"] } }), json!({ "spec": { "groups": ["ada"] } })),
            (json!({}), json!({})),
        ] {
            let Value::Object(mut fields) = fields else { unreachable!("the rows are objects") };
            (companion.change)(&mut fields);
            assert_eq!(Value::Object(fields), changed);
        }
    }
}
