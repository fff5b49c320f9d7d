//! What a kind has to say for itself ([`Kind`]), and its object-safe twin ([`AnyKind`]), which the
//! server works with.
//!
//! A kind is written with typed fields; the twin decodes them once for each write, lets the kind
//! prepare and validate, and encodes them again. Nothing here reads a clock or knows who may do what.

use std::sync::OnceLock;

use postern_meta::field::FieldErrors;
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::schema::Schema;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::names::{Info, Verb};
use crate::right::Right;
use crate::write_only::{WriteOnlyField, WriteOnlyValues};

/// Who is writing, as far as a kind may care: for defaults such as an object's owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The User behind the request, if it is one.
    pub user: Option<String>,
    /// The Team behind it, if it is one.
    pub team: Option<String>,
}

/// Somebody who can own something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Principal<'a> {
    /// A User, by name.
    User(&'a str),
    /// A Team, by name.
    Team(&'a str),
}

/// Who there is.
pub trait Principals {
    /// The uid of a user or team; `None` when there is none of that name.
    fn uid(&self, principal: Principal<'_>) -> Option<String>;
}

/// Where there is nobody yet.
#[derive(Debug)]
pub struct NoPrincipals;

impl Principals for NoPrincipals {
    fn uid(&self, _: Principal<'_>) -> Option<String> {
        None
    }
}

/// What a kind may look at while it prepares and validates an object.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Who is writing.
    pub caller: &'a Caller,
    /// The time of the write.
    pub now: Timestamp,
    /// Who there is.
    pub principals: &'a dyn Principals,
    /// The longest life of an access key, which then also is the default; `None` for no limit.
    pub access_key_max_ttl_seconds: Option<i64>,
}

impl<'a> Context<'a> {
    /// Without a limit to the life of access keys.
    pub fn of(caller: &'a Caller, now: Timestamp, principals: &'a dyn Principals) -> Self {
        Self { caller, now, principals, access_key_max_ttl_seconds: None }
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("caller", self.caller).field("now", &self.now).finish()
    }
}

/// An object on its way to be written, with typed fields.
#[derive(Clone, Debug)]
pub struct Draft<F> {
    /// Its metadata, checked already as far as all kinds share it.
    pub metadata: ObjectMeta,
    /// Everything else.
    pub fields: F,
}

/// A column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub struct ColumnInfo {
    /// Its heading.
    pub name: &'static str,
    /// `string`, `integer`, `boolean`, `date`.
    pub r#type: &'static str,
    /// `name` for the first one, else mostly empty.
    pub format: &'static str,
    /// For people.
    pub description: &'static str,
    /// 0 is always shown, above that only with `-o wide`.
    pub priority: i32,
}

/// What stands in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Text as it is.
    Text(String),
    /// A count.
    Number(i64),
    /// How long ago, told when the table is made.
    Age(Option<Timestamp>),
}

/// A kind, written for its own typed fields. One implementation is one file of this crate.
pub trait Kind: Send + Sync + 'static {
    /// What stands beside `metadata`: `spec`, `status` and the like.
    type Fields: Serialize + DeserializeOwned + JsonSchema;

    /// Names, scope and verbs.
    const INFO: Info;

    /// Columns behind the name and before the age.
    const COLUMNS: &'static [ColumnInfo] = &[];

    /// Fills in what the server decides: defaults, and what a client may not set. `old` is what
    /// is stored, on an update.
    fn prepare(
        _new: &mut Draft<Self::Fields>,
        _old: Option<&Draft<Self::Fields>>,
        _ctx: &Context<'_>,
    ) {
    }

    /// Everything wrong with a prepared object, beyond its metadata, in which who set which field
    /// is not noted yet.
    ///
    /// # Errors
    /// For input that cannot be *read* as this kind at all (400, not 422); what is merely invalid
    /// goes into `errors`.
    fn validate(
        _new: &Draft<Self::Fields>,
        _old: Option<&Draft<Self::Fields>>,
        _ctx: &Context<'_>,
        _errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    /// Fields that are written and never shown.
    const WRITE_ONLY: &'static [WriteOnlyField] = &[];

    /// Everything wrong with what was written there. Errors never carry the value.
    fn validate_write_only(_withheld: &WriteOnlyValues, _errors: &mut FieldErrors) {}

    /// The start of the name that an object gets whose writer gave neither name nor prefix;
    /// `None` where that is an error.
    const NAME_PREFIX: Option<&'static str> = None;

    /// Rights that a write takes beyond its verb on the object.
    fn required_rights(_new: &Self::Fields, _old: Option<&Self::Fields>) -> Vec<Right> {
        Vec::new()
    }

    /// A right that will do where the verb on the object itself is lacking.
    fn delegated_right(_verb: Verb, _fields: &Self::Fields) -> Option<Right> {
        None
    }

    /// Is there such a right for objects of this kind?
    const HAS_DELEGATED_RIGHT: bool = false;

    /// What of the object no other object of its kind may have, beyond its name. Asked only where
    /// there is a [`Self::UNIQUE_FIELD`].
    fn unique_keys(_metadata: &ObjectMeta, _fields: &Self::Fields) -> Vec<String> {
        Vec::new()
    }

    /// The field that claims come from, for errors; `None` for a kind that claims nothing.
    const UNIQUE_FIELD: Option<&'static str> = None;

    /// What the writer should know about what he wrote, though it is allowed.
    fn warnings(_metadata: &ObjectMeta) -> Vec<String> {
        Vec::new()
    }

    /// What stands in [`Self::COLUMNS`].
    fn cells(_object: &Draft<Self::Fields>) -> Vec<Cell> {
        Vec::new()
    }

    /// May an object of this name go away at all?
    ///
    /// # Errors
    /// 403, when it may not.
    fn check_delete(_metadata: &ObjectMeta) -> Result<(), ApiError> {
        Ok(())
    }

    /// Notes in the object's own fields that its deletion has begun.
    fn begin_delete(_fields: &mut Self::Fields) {}

    /// Must the object wait for a controller before it goes, beyond `metadata.finalizers`?
    fn blocks_deletion(_fields: &Self::Fields) -> bool {
        false
    }
}

/// What a kind says about an object that it has prepared: all of it at once, because its fields
/// are decoded for that.
#[derive(Debug)]
pub struct Prepared {
    /// Rights that the write takes beyond its verb on the object.
    pub required_rights: Vec<Right>,
    /// All that is invalid in the object's own fields, or 400 when they cannot be read as this
    /// kind at all. Not to be told to somebody who lacks a right.
    pub verdict: Result<FieldErrors, ApiError>,
}

/// The object-safe twin of [`Kind`].
pub trait AnyKind: Send + Sync {
    /// Names, scope and verbs.
    fn info(&self) -> &'static Info;

    /// The one schema: for OpenAPI, unknown fields and types.
    fn schema(&self) -> &'static Schema;

    /// Columns behind the name and before the age.
    fn columns(&self) -> &'static [ColumnInfo];

    /// What stands in them; empty text where an object cannot be read.
    fn cells(&self, object: &Object) -> Vec<Cell>;

    /// Prepares an object that is to be written, and says what there is to say about it.
    ///
    /// # Errors
    /// 400 when it cannot be read as this kind.
    fn prepare(
        &self,
        new: &mut Object,
        old: Option<&Object>,
        ctx: &Context<'_>,
    ) -> Result<Prepared, ApiError>;

    /// Fields that are written and never shown.
    fn write_only(&self) -> &'static [WriteOnlyField];

    /// Adds to `errors` all that is wrong with what was written there.
    fn validate_write_only(&self, write_only: &WriteOnlyValues, errors: &mut FieldErrors);

    /// The start of a name for an object whose writer gave none.
    fn name_prefix(&self) -> Option<&'static str>;

    /// A right that will do where the verb on the object itself is lacking; `None` also for an
    /// object that cannot be read.
    fn delegated_right(&self, verb: Verb, object: &Object) -> Option<Right>;

    /// Is there such a right for objects of this kind?
    fn has_delegated_right(&self) -> bool;

    /// What of the object no other object of its kind may have, beyond its name.
    ///
    /// # Errors
    /// 400 or 500 when the object cannot be read as this kind.
    fn unique_keys(&self, object: &Object) -> Result<Vec<String>, ApiError>;

    /// The field that claims come from, for errors.
    fn unique_field(&self) -> &'static str;

    /// What the writer should know about what he wrote, though it is allowed.
    fn warnings(&self, metadata: &ObjectMeta) -> Vec<String>;

    /// May the object go away at all?
    ///
    /// # Errors
    /// 403, when it may not.
    fn check_delete(&self, metadata: &ObjectMeta) -> Result<(), ApiError>;

    /// Notes in the object's own fields that its deletion has begun.
    ///
    /// # Errors
    /// 500 when what is stored cannot be read as this kind.
    fn begin_delete(&self, object: &mut Object) -> Result<(), ApiError>;

    /// Must the object wait for a controller before it goes, beyond `metadata.finalizers`?
    ///
    /// # Errors
    /// 500 when what is stored cannot be read as this kind.
    fn blocks_deletion(&self, object: &Object) -> Result<bool, ApiError>;
}

/// The whole object, for its schema alone.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read only by the schema's derive")]
struct Whole<F> {
    /// Version of the schema that this object follows, as `group/version`. The server takes
    /// the endpoint's when it is absent, and refuses any other.
    #[serde(default)]
    api_version: String,
    /// What this object is, in CamelCase. The server takes the endpoint's when it is absent.
    /// Cannot be changed.
    #[serde(default)]
    kind: String,
    /// What all objects have: name, labels, annotations and the server's own bookkeeping.
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(flatten)]
    fields: F,
}

fn schema_of<K: Kind>() -> &'static Schema {
    // One cell for each kind: a generic function's statics are shared between its instances, so
    // the map is keyed by the kind's place in the list of all kinds.
    static SCHEMAS: OnceLock<Vec<(&'static str, OnceLock<Schema>)>> = OnceLock::new();
    let cells = SCHEMAS.get_or_init(|| {
        crate::all().iter().map(|kind| (kind.info().kind, OnceLock::new())).collect()
    });
    match cells.iter().find(|(kind, _)| *kind == K::INFO.kind) {
        Some((_, cell)) => cell.get_or_init(Schema::of::<Whole<K::Fields>>),
        None => unreachable!("{} is not in the list of all kinds", K::INFO.kind),
    }
}

fn draft<K: Kind>(object: &Object) -> Result<Draft<K::Fields>, ApiError> {
    Ok(Draft { metadata: object.metadata.clone(), fields: fields::<K>(object)? })
}

fn fields<K: Kind>(object: &Object) -> Result<K::Fields, ApiError> {
    // Deserialising from the borrowed map copies each string once and nothing else.
    K::Fields::deserialize(&object.fields).map_err(|_| {
        // The schema has checked the types already; serde's own text could quote a value.
        ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}",
            kind = K::INFO.kind,
            version = K::INFO.version.version,
        ))
    })
}

fn undraft<K: Kind>(draft: Draft<K::Fields>, object: &mut Object) -> Result<(), ApiError> {
    match serde_json::to_value(&draft.fields) {
        Ok(Value::Object(fields)) => {
            object.metadata = draft.metadata;
            object.fields = fields;
            Ok(())
        }
        _ => Err(ApiError::internal("the object could not be encoded", K::INFO.kind)),
    }
}

impl<K: Kind> AnyKind for K {
    fn info(&self) -> &'static Info {
        &K::INFO
    }

    fn schema(&self) -> &'static Schema {
        schema_of::<K>()
    }

    fn columns(&self) -> &'static [ColumnInfo] {
        K::COLUMNS
    }

    fn cells(&self, object: &Object) -> Vec<Cell> {
        draft::<K>(object).map_or_else(
            |_| K::COLUMNS.iter().map(|_| Cell::Text(String::new())).collect(),
            |draft| K::cells(&draft),
        )
    }

    fn prepare(
        &self,
        new: &mut Object,
        old: Option<&Object>,
        ctx: &Context<'_>,
    ) -> Result<Prepared, ApiError> {
        let fields = fields::<K>(new)?;
        let old = old.map(draft::<K>).transpose()?;
        let mut draft = Draft { metadata: std::mem::take(&mut new.metadata), fields };
        K::prepare(&mut draft, old.as_ref(), ctx);
        let required_rights =
            K::required_rights(&draft.fields, old.as_ref().map(|old| &old.fields));
        let mut errors = FieldErrors::new();
        let verdict = K::validate(&draft, old.as_ref(), ctx, &mut errors).map(|()| errors);
        undraft::<K>(draft, new)?;
        Ok(Prepared { required_rights, verdict })
    }

    fn write_only(&self) -> &'static [WriteOnlyField] {
        K::WRITE_ONLY
    }

    fn validate_write_only(&self, write_only: &WriteOnlyValues, errors: &mut FieldErrors) {
        K::validate_write_only(write_only, errors);
    }

    fn name_prefix(&self) -> Option<&'static str> {
        K::NAME_PREFIX
    }

    fn delegated_right(&self, verb: Verb, object: &Object) -> Option<Right> {
        if !K::HAS_DELEGATED_RIGHT {
            return None;
        }
        K::delegated_right(verb, &fields::<K>(object).ok()?)
    }

    fn has_delegated_right(&self) -> bool {
        K::HAS_DELEGATED_RIGHT
    }

    fn unique_keys(&self, object: &Object) -> Result<Vec<String>, ApiError> {
        if K::UNIQUE_FIELD.is_none() {
            return Ok(Vec::new());
        }
        Ok(K::unique_keys(&object.metadata, &fields::<K>(object)?))
    }

    fn unique_field(&self) -> &'static str {
        K::UNIQUE_FIELD.unwrap_or("metadata.name")
    }

    fn warnings(&self, metadata: &ObjectMeta) -> Vec<String> {
        K::warnings(metadata)
    }

    fn check_delete(&self, metadata: &ObjectMeta) -> Result<(), ApiError> {
        K::check_delete(metadata)
    }

    fn begin_delete(&self, object: &mut Object) -> Result<(), ApiError> {
        let mut draft = draft::<K>(object)?;
        K::begin_delete(&mut draft.fields);
        undraft::<K>(draft, object)
    }

    fn blocks_deletion(&self, object: &Object) -> Result<bool, ApiError> {
        Ok(K::blocks_deletion(&draft::<K>(object)?.fields))
    }
}
