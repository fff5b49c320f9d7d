//! SharedSecret: key/value data shared across users, teams and clusters. See `docs/reference/shared-secrets.md`.

use std::collections::BTreeMap;

use crate::prelude::*;
pub use crate::secret_data::MAX_DATA_BYTES;
use crate::secret_data::{self, SecretString};
use crate::secret_entries::GET_ENTRIES;
use crate::secret_entry::GET_ENTRY;
use crate::shared_secret_readers::GET_READERS;

/// The kind.
pub struct SharedSecret;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// The secret data, its owner, and its access rules.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SharedSecretSpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the secret.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The user or team that holds every verb on this object. Default: the caller that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserOrTeam>,
    /// The secret data. Keys consist of alphanumeric characters, `-`, `_` or `.`; values are
    /// standard base64 with padding.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub data: BTreeMap<String, SecretText>,
    /// Secret data as text. Write-only: it is written into `data`, over the present values, and
    /// never returned.
    #[serde(skip_serializing)]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub string_data: BTreeMap<String, SecretString>,
    /// Access rules: the other users and teams that get verbs on this object. At most 30; the owner
    /// needs none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access: Vec<Access>,
}

impl Kind for SharedSecret {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "SharedSecret",
        plural: "sharedsecrets",
        singular: "sharedsecret",
        short: &["ss"],
        aliases: &["secret", "secrets"],
        scope: ResourceScope::InDefaultNamespace,
        actions: &[GET_ENTRIES, GET_ENTRY, GET_READERS],
        description: "SharedSecret holds sensitive key/value data and gives it to users and teams \
                      by access rules.",
        strict_fields: Some(StrictFields::OF_SECRETS),
        read_protected: &[&["spec", "data"], &["spec", "stringData"]],
        values: ValuesAt::DATA,
        columns: &[
            ColumnInfo::integer("Keys", "How many keys the secret's data has."),
            ColumnInfo::text("Owner", "The user or team that owns the secret."),
            ColumnInfo::text("Display Name", "Name shown to people.").wide(),
        ],
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Self::Status> = Parts {
        ownership: Some(crate::access::part(
            |spec| Ownership::of(spec.owner.as_ref(), &spec.access, &[]),
            |spec| &mut spec.owner,
        )),
        ..Parts::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        let spec = &mut new.fields.spec;
        secret_data::prepare(&mut spec.data, &mut spec.string_data, false);
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        secret_data::validate(Self::INFO.kind, "spec.data", &write.spec().data, errors)
    }

    fn warnings(metadata: &ObjectMeta) -> Vec<String> {
        secret_data::warnings(metadata, "spec.data")
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        let owner = spec.owner.clone().unwrap_or_default();
        vec![
            Cell::count(spec.data.len()),
            Cell::Text(owner.display_name()),
            Cell::Text(spec.display_name.clone()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::access::MAX_ACCESS_ENTRIES;
    use crate::{AnyKind as _, Caller, NoPrincipals};
    use postern_meta::object::Object;

    fn draft(spec: &serde_json::Value) -> Draft<Fields> {
        let fields = serde_json::from_value(serde_json::json!({ "spec": spec })).unwrap();
        Draft { metadata: ObjectMeta::default(), fields }
    }

    fn context(caller: &Caller) -> Context<'_> {
        Context::of(caller, Timestamp::from_unix_seconds(0), &NoPrincipals)
    }

    fn object(spec: &serde_json::Value) -> Object {
        let value = serde_json::json!({
            "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
            "metadata": { "name": "s" }, "spec": spec,
        });
        Object::from_value(value).unwrap()
    }

    fn errors_of(spec: &serde_json::Value) -> Result<Vec<String>, ApiError> {
        let prepared =
            SharedSecret.prepare(&mut object(spec), None, &context(&Caller::default()))?;
        Ok(prepared.verdict?.iter().map(ToString::to_string).collect())
    }

    /// The owner of a secret after a write.
    fn owner_after(
        spec: &serde_json::Value,
        old: Option<&serde_json::Value>,
    ) -> Option<UserOrTeam> {
        let caller = Caller { user: Some("ada".to_owned()), ..Caller::default() };
        let (mut new, old) = (object(spec), old.map(object));
        SharedSecret.prepare(&mut new, old.as_ref(), &context(&caller)).unwrap();
        SharedSecret.ownership(&new).unwrap().owner
    }

    #[test]
    fn values_are_strict_base64_and_errors_name_the_key_alone() {
        for bad in ["hunter2!", "aGk", " aGk=", "aG-_", "aGl=", "====", "a"] {
            let error = errors_of(&serde_json::json!({ "data": { "db.password": bad } }));
            let error = error.unwrap_err();
            assert_eq!(error.code(), 400, "{bad}");
            let message = &error.status().message;
            assert!(message.contains("spec.data[db.password]: illegal base64 data"), "{message}");
            assert!(!message.contains(bad.trim()) || bad == "a", "{message}");
        }
        for good in ["", "aGk=", "YWJj", "aGk=\n", "aG\r\nk="] {
            let errors = errors_of(&serde_json::json!({ "data": { "k": good } })).unwrap();
            assert!(errors.is_empty(), "{good}: {errors:?}");
        }
    }

    #[test]
    fn keys_sizes_and_counts_have_limits() {
        for bad in ["", "a b", ".", "..", "..a", "a/b"] {
            let errors = errors_of(&serde_json::json!({ "data": { bad: "" } })).unwrap();
            assert_eq!(errors.len(), 1, "{bad}");
        }
        let half = STANDARD.encode(vec![0; MAX_DATA_BYTES / 2]);
        let data = serde_json::json!({ "data": { "a": half, "b": half } });
        assert!(errors_of(&data).unwrap().is_empty());
        let over = serde_json::json!({ "data": { "a": half, "b": half, "c": "AA==" } });
        assert!(errors_of(&over).unwrap()[0].contains("spec.data: Too long"));
        let entry = serde_json::json!({ "verbs": ["get"] });
        let many = serde_json::json!({ "access": vec![entry; MAX_ACCESS_ENTRIES + 1] });
        assert!(errors_of(&many).unwrap()[0].contains("spec.access: Too many"));
        let both = serde_json::json!({ "owner": { "user": "a", "team": "b" } });
        assert!(errors_of(&both).unwrap()[0].starts_with("spec.owner: Forbidden"));
    }

    #[test]
    fn the_caller_owns_what_they_create_and_an_update_keeps_the_owner_as_sent() {
        let (none, team) =
            (serde_json::json!({}), serde_json::json!({ "owner": { "team": "ops" } }));
        let empty = serde_json::json!({ "owner": {} });
        assert_eq!(owner_after(&none, None).unwrap().user, "ada");
        assert_eq!(owner_after(&empty, None).unwrap().user, "ada");
        assert_eq!(owner_after(&team, None).unwrap().team, "ops");
        let left_out = owner_after(&none, Some(&team));
        assert_eq!(left_out, None, "what the client left out stays out");
    }

    #[test]
    fn debug_has_no_value() {
        let secret = draft(&serde_json::json!({ "data": { "k": "aHVudGVyMg==" } }));
        assert!(!format!("{secret:?}").contains("aHVudGVyMg"));
    }
}
