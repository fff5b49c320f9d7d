//! Connector: an identity provider (OpenID Connect) at which users log in. See `docs/reference/single-sign-on.md`.

use postern_meta::names::{config_map_key, dns1123_label, dns1123_subdomain};

use crate::base64_text;
use crate::connector_test::ConnectorTest;
use crate::identities::{only_disables, rights_to_impersonate_all};
use crate::prelude::*;
use crate::principal::ConnectorFacts;

/// The scopes that a login asks for, unless the connector lists others.
pub const DEFAULT_SCOPES: [&str; 3] = ["openid", "profile", "email"];

/// The claim with the name of a new user.
pub const DEFAULT_USERNAME_CLAIM: &str = "preferred_username";

/// The seconds after which groups are asked for again.
pub const DEFAULT_REFRESH_SECONDS: i64 = 15 * 60;

/// The shortest `refreshInterval`, in seconds.
const MIN_REFRESH_SECONDS: i64 = 10;

/// The shortest `keyTTL`, in seconds.
const MIN_KEY_SECONDS: i64 = 60;

/// The lifetime of the access key of a login, in seconds.
pub const DEFAULT_KEY_SECONDS: i64 = 12 * 3600;

/// The key of the Secret, where a reference names none.
const DEFAULT_SECRET_KEY: &str = "clientSecret";

/// The most scopes, allowed groups and allowed domains.
const MAX_ENTRIES: usize = 100;

/// The most entries of `clusterGroups`: as many groups as a login may have.
pub const MAX_CLUSTER_GROUPS: usize = 500;

/// The most bytes of an issuer: it is part of a storage key.
pub const MAX_ISSUER_BYTES: usize = 512;

/// The most bytes of a client id, a scope, a claim, a group or a domain.
const MAX_TEXT_BYTES: usize = 256;

/// The most bytes of `caData`.
const MAX_CA_BYTES: usize = 64 * 1024;

/// The values of `spec.groupsFrom`.
const GROUPS_FROM: &[&str] = &["IDToken", USER_INFO];

/// Groups come from the UserInfo endpoint.
const USER_INFO: &str = "UserInfo";

/// The values of `spec.provisioning`.
const PROVISIONING: &[&str] = &["Create", MATCH];

/// Only users that an administrator has linked can log in.
const MATCH: &str = "Match";

/// Names that would make groups of the system: groups begin with the name of their connector.
const RESERVED_NAMES: [&str; 2] = ["system", "platform"];

/// Tests the connector.
const TEST: Action = Action {
    subresource: "test",
    verb: Verb::Get,
    right: ActionRight::OnSubresource,
    handler: Handler::Server(ServerAction::TestConnector),
    request: None,
    response: Response::Object(&ConnectorTest),
    description: "Whether the connector can be used. The server asks the identity provider.",
};

/// The kind.
pub struct Connector;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, ConditionsStatus>;

/// The identity provider, and what its users may do here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ConnectorSpec")]
pub struct Spec {
    /// Name shown to people at the login.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the connector.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The issuer, exactly as the provider writes it in its discovery document. It begins with `https://`. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// The id of this server as a client of the provider. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_id: String,
    /// The Secret with the client secret. Without it, the client is a public one, which only PKCE protects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<ClientSecretRef>,
    /// The scopes that a login asks for. `openid` is always among them. A list replaces the default, which is `profile` and
    /// `email`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Vec<String>,
    /// The certificate authorities of the provider, in PEM and then in base64. By default, those of the system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_data: String,
    /// The claim with the name of a new user.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("default" = DEFAULT_USERNAME_CLAIM))]
    pub username_claim: String,
    /// The claim with the groups. Empty if the provider has no groups. A login without the claim is refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub groups_claim: String,
    /// Where the claim with the groups is.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = GROUPS_FROM), extend("default" = GROUPS_FROM[0]))]
    pub groups_from: String,
    /// The groups of the connector that endpoint tokens have, as the provider names them. An entry that ends with `*` is
    /// each group that begins so. If absent, endpoint tokens have all groups. An empty list allows none. Requests through
    /// the gateway always have all groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cluster_groups: Option<Vec<String>>,
    /// The users that may log in. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Allow>,
    /// Whether the first login of a person creates a User. With `Match`, only users with an entry in `spec.identities`
    /// can log in.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = PROVISIONING), extend("default" = PROVISIONING[0]))]
    pub provisioning: String,
    /// The seconds after which the groups of an active user are asked for again, at least 10.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(extend("default" = DEFAULT_REFRESH_SECONDS))]
    pub refresh_interval: i64,
    /// The lifetime of the access key of a login, in seconds. Without a refresh token, it is at most one hour.
    #[serde(rename = "keyTTL", skip_serializing_if = "is_zero")]
    #[schemars(extend("default" = DEFAULT_KEY_SECONDS))]
    pub key_ttl: i64,
    /// Whether the connector is disabled. Then its logins fail, and the access keys that it made stop at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

/// A key of a core Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ClientSecretRef")]
pub struct ClientSecretRef {
    /// The name of the Secret. The writer needs `get` on it. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_name: String,
    /// The namespace of the Secret. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_namespace: String,
    /// The key of the Secret; `clientSecret` if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
}

impl ClientSecretRef {
    /// The key of the Secret.
    pub fn key_or_default(&self) -> &str {
        if self.key.is_empty() { DEFAULT_SECRET_KEY } else { &self.key }
    }
}

/// The users that may log in. Exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ConnectorAllow")]
pub struct Allow {
    /// Members of one of these groups, as the provider names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// Users with an e-mail address in one of these domains, if the provider has verified it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub email_domains: Vec<String>,
    /// All users of the provider.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub everyone: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Spec {
    /// The scopes of a login, separated by blanks.
    pub fn scope(&self) -> String {
        let given = self.scopes.iter().map(String::as_str);
        let given: Vec<&str> =
            if self.scopes.is_empty() { DEFAULT_SCOPES.to_vec() } else { given.collect() };
        let others = given.into_iter().filter(|scope| *scope != DEFAULT_SCOPES[0]);
        std::iter::once(DEFAULT_SCOPES[0]).chain(others).collect::<Vec<_>>().join(" ")
    }

    /// Whether the groups come from the UserInfo endpoint.
    pub fn has_groups_in_user_info(&self) -> bool {
        self.groups_from == USER_INFO
    }

    /// Whether the first login of a person creates a User.
    pub fn creates_users(&self) -> bool {
        self.provisioning != MATCH
    }
}

impl Kind for Connector {
    type Spec = Spec;
    type Status = ConditionsStatus;

    const INFO: Info = Info {
        kind: "Connector",
        plural: "connectors",
        singular: "connector",
        actions: &[Action::GET_STATUS, Action::UPDATE_STATUS, Action::PATCH_STATUS, TEST],
        confidential: false,
        description: "Connector is an identity provider at which users log in.",
        strict_fields: Some(StrictFields {
            no_unknown_below: &["spec"],
            not_null: &["spec", "spec.disabled", "spec.allow"],
            no_null_below: &["spec.allow"],
            is_closed: true,
            ..StrictFields::OURS
        }),
        columns: &[
            ColumnInfo::text("Issuer", "The issuer of the identity provider."),
            ColumnInfo::boolean("Enabled", "Whether users can log in."),
            ColumnInfo::text("Display Name", "Name shown to people.").wide(),
        ],
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Self::Status> = Parts {
        access_role: Some(AccessRole::Connector(|metadata, spec| ConnectorFacts {
            uid: metadata.uid.clone(),
            disabled: spec.disabled,
        })),
        ..Parts::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        let spec = &mut new.fields.spec;
        let defaults = [
            (&mut spec.username_claim, DEFAULT_USERNAME_CLAIM),
            (&mut spec.groups_from, GROUPS_FROM[0]),
            (&mut spec.provisioning, PROVISIONING[0]),
        ];
        for (field, default) in defaults.into_iter().filter(|(field, _)| field.is_empty()) {
            default.clone_into(field);
        }
        if spec.refresh_interval == 0 {
            spec.refresh_interval = DEFAULT_REFRESH_SECONDS;
        }
        if spec.key_ttl == 0 {
            spec.key_ttl = DEFAULT_KEY_SECONDS;
        }
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let (spec, name) = (write.spec(), write.new.metadata.name.as_str());
        if RESERVED_NAMES.contains(&name) {
            let detail =
                "groups of the connector would begin with a reserved prefix: use another name";
            errors.push(FieldError::invalid("metadata.name", name, detail));
        }
        check_issuer("spec.issuer", &spec.issuer, errors);
        check_text("spec.clientId", &spec.client_id, errors);
        validate_secret(spec.client_secret.as_ref(), errors);
        check_texts("spec.scopes", &spec.scopes, errors);
        validate_ca(&spec.ca_data, errors);
        check_text("spec.usernameClaim", &spec.username_claim, errors);
        if !spec.groups_claim.is_empty() {
            check_text("spec.groupsClaim", &spec.groups_claim, errors);
        }
        for (path, value, allowed) in [
            ("spec.groupsFrom", &spec.groups_from, GROUPS_FROM),
            ("spec.provisioning", &spec.provisioning, PROVISIONING),
        ] {
            errors.check_supported(path, value, allowed);
        }
        validate_cluster_groups(spec.cluster_groups.as_deref(), errors);
        validate_allow(spec, errors);
        if spec.refresh_interval < MIN_REFRESH_SECONDS {
            let detail = format!("must be at least {MIN_REFRESH_SECONDS} seconds");
            let interval = spec.refresh_interval;
            errors.push(FieldError::invalid("spec.refreshInterval", interval, detail));
        }
        if spec.key_ttl < MIN_KEY_SECONDS {
            let detail = format!("must be at least {MIN_KEY_SECONDS} seconds");
            errors.push(FieldError::invalid("spec.keyTTL", spec.key_ttl, detail));
        }
        Ok(())
    }

    /// A provider decides the identity of each user that logs in. So a caller that names a provider
    /// needs `impersonate` on all users and groups. Disabling needs only the usual permission.
    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let (spec, old) = (write.spec(), write.old_spec());
        if old.is_some_and(|old| only_disables(spec, old, |spec| &mut spec.disabled)) {
            return Vec::new();
        }
        let reference = spec.client_secret.as_ref();
        let reference =
            reference.filter(|new| old.and_then(|old| old.client_secret.as_ref()) != Some(*new));
        let secret = reference.map(|at| Right {
            namespace: at.secret_namespace.clone(),
            ..Right::cluster("get", CORE_V1.group, "secrets", &at.secret_name)
        });
        rights_to_impersonate_all().into_iter().chain(secret.map(RequiredRight::from)).collect()
    }

    fn rights_to_create() -> Vec<RequiredRight> {
        rights_to_impersonate_all().into()
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        vec![
            Cell::Text(spec.issuer.clone()),
            Cell::Text((!spec.disabled).to_string()),
            Cell::Text(spec.display_name.clone()),
        ]
    }
}

/// Whether a list of groups, as `spec.clusterGroups` has it, has this group of the provider.
pub fn is_cluster_group(list: &[String], group: &str) -> bool {
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(start) => group.starts_with(start),
        None => entry == group,
    })
}

fn validate_cluster_groups(groups: Option<&[String]>, errors: &mut FieldErrors) {
    const PATH: &str = "spec.clusterGroups";
    let groups = groups.unwrap_or_default();
    if !errors.check_count(PATH, groups.len(), MAX_CLUSTER_GROUPS) {
        return;
    }
    for (index, group) in groups.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        if group.strip_suffix('*').unwrap_or(group).contains('*') {
            let detail = "may have `*` only at its end";
            errors.push(FieldError::invalid(path, BadValue::Omitted, detail));
        } else {
            check_identity(&path, group, errors);
        }
    }
}

/// Adds an error unless a text is an issuer: an https URL with a host, and without user, query, fragment and comma.
pub(crate) fn check_issuer(path: &str, issuer: &str, errors: &mut FieldErrors) {
    if issuer.is_empty() {
        errors.push(FieldError::required(path, "must be the issuer of the identity provider"));
        return;
    }
    let after = issuer.strip_prefix("https://").unwrap_or_default();
    let host = after.split('/').next().unwrap_or_default();
    let is_valid = !host.is_empty()
        && issuer.len() <= MAX_ISSUER_BYTES
        && !host.contains('@')
        && issuer.bytes().all(|byte| byte.is_ascii_graphic())
        && !issuer.contains(['?', '#', ',', '\\']);
    if !is_valid {
        let detail = format!(
            "must be an https:// URL without user, query, fragment and comma, of at most {MAX_ISSUER_BYTES} bytes"
        );
        errors.push(FieldError::invalid(path, issuer, detail));
    }
}

/// Adds an error unless a text is one to 256 printable ASCII characters without blanks.
pub(crate) fn check_text(path: &str, text: &str, errors: &mut FieldErrors) {
    if text.is_empty() {
        errors.push(FieldError::required(path, "must have a value"));
    } else if text.len() > MAX_TEXT_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let detail =
            format!("must be at most {MAX_TEXT_BYTES} printable ASCII characters without blanks");
        errors.push(FieldError::invalid(path, BadValue::Omitted, detail));
    }
}

fn check_texts(path: &str, texts: &[String], errors: &mut FieldErrors) {
    if !errors.check_count(path, texts.len(), MAX_ENTRIES) {
        return;
    }
    for (index, text) in texts.iter().enumerate() {
        check_text(&format!("{path}[{index}]"), text, errors);
    }
}

fn validate_secret(at: Option<&ClientSecretRef>, errors: &mut FieldErrors) {
    let Some(at) = at else { return };
    let parts = [
        ("spec.clientSecret.secretName", &at.secret_name, dns1123_subdomain(&at.secret_name)),
        (
            "spec.clientSecret.secretNamespace",
            &at.secret_namespace,
            dns1123_label(&at.secret_namespace),
        ),
    ];
    for (path, value, checked) in parts {
        match checked {
            _ if value.is_empty() => errors.push(FieldError::required(path, "must have a value")),
            Err(detail) => errors.push(FieldError::invalid(path, value.as_str(), detail)),
            Ok(()) => {}
        }
    }
    let key = at.key_or_default();
    errors.check_value("spec.clientSecret.key", key, config_map_key(key));
}

/// Adds an error unless a text is base64 of PEM. The certificates themselves are checked when they
/// are used.
pub(crate) fn validate_ca(ca_data: &str, errors: &mut FieldErrors) {
    if ca_data.is_empty() {
        return;
    }
    let is_short = base64_text::decode(ca_data).is_ok_and(|pem| pem.len() <= MAX_CA_BYTES);
    if !is_short || !base64_text::has_certificate(ca_data) {
        let detail = "must be certificates in PEM, and then in base64, of at most 64 KiB";
        errors.push(FieldError::invalid("spec.caData", BadValue::Omitted, detail));
    }
}

fn validate_allow(spec: &Spec, errors: &mut FieldErrors) {
    const PATH: &str = "spec.allow";
    let Some(Allow { groups, email_domains, everyone }) = &spec.allow else {
        let detail = "must say who may log in: groups, emailDomains, or everyone: true";
        errors.push(FieldError::required(PATH, detail));
        return;
    };
    let given = [!groups.is_empty(), !email_domains.is_empty(), *everyone];
    if given.into_iter().filter(|given| *given).count() != 1 {
        let detail = "exactly one of groups, emailDomains and everyone: true must be given";
        errors.push(FieldError::invalid(PATH, BadValue::Omitted, detail));
    }
    if !groups.is_empty() && spec.groups_claim.is_empty() {
        let detail = "must be set if spec.allow.groups is set";
        errors.push(FieldError::required("spec.groupsClaim", detail));
    }
    check_identities("spec.allow.groups", groups, errors);
    if !errors.check_count("spec.allow.emailDomains", email_domains.len(), MAX_ENTRIES) {
        return;
    }
    for (index, domain) in email_domains.iter().enumerate() {
        errors.check(dns1123_subdomain(&domain.to_ascii_lowercase()), |detail| {
            FieldError::invalid(
                format!("spec.allow.emailDomains[{index}]"),
                domain.as_str(),
                detail,
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_for_clusters_are_names_and_beginnings() {
        let of = |groups: &[String]| {
            let mut errors = FieldErrors::default();
            validate_cluster_groups(Some(groups), &mut errors);
            errors.iter().next().map(|error| format!("{}: {}", error.path, error.body()))
        };
        let one = |group: &str| of(&[group.to_owned()]);
        for valid in ["ops", "ops-*", "ops *", "*", "CN=ops;OU=a b", "a:b"] {
            assert_eq!(one(valid), None, "{valid}");
        }
        for invalid in ["", "*ops", "a*b*", "**", "a\nb", &"x".repeat(513)] {
            assert!(one(invalid).unwrap().starts_with("spec.clusterGroups[0]: "), "{invalid}");
        }
        assert_eq!(of(&vec!["a".to_owned(); 500]), None);
        assert!(of(&vec!["a".to_owned(); 501]).unwrap().starts_with("spec.clusterGroups: "));
    }

    #[test]
    fn the_scope_of_a_login_always_has_openid_once_and_first() {
        let scope = |scopes: &[&str]| {
            let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
            Spec { scopes, ..Spec::default() }.scope()
        };
        assert_eq!(scope(&[]), "openid profile email");
        assert_eq!(scope(&["groups", "openid"]), "openid groups");
        assert_eq!(scope(&["groups"]), "openid groups");
    }

    #[test]
    fn an_issuer_is_a_plain_https_url() {
        for (issuer, is_valid) in [
            ("https://id.example.com", true),
            ("https://id.example.com/realms/corp", true),
            ("https://127.0.0.1:8443", true),
            ("http://id.example.com", false),
            ("https://", false),
            ("https:///path", false),
            ("https://a@id.example.com", false),
            ("https://id.example.com?x", false),
            ("https://id.example.com#x", false),
            ("https://id.example.com/a,b", false),
            ("https://id.example.com/a b", false),
            ("", false),
        ] {
            let mut errors = FieldErrors::default();
            check_issuer("spec.issuer", issuer, &mut errors);
            assert_eq!(errors.is_empty(), is_valid, "{issuer}");
        }
    }
}
