//! What a kind says about itself: one implementation of [`Kind`] is one file of this crate.
//!
//! A kind is written with typed fields; [`AnyKind`](crate::AnyKind), which the server works with,
//! decodes them once for each write. Nothing here reads a clock or knows who may do what. What is
//! special about a kind is a hook that it declares; a hook that it leaves out is `None`.

use postern_meta::field::FieldErrors;
use postern_meta::object::ObjectMeta;
use postern_meta::status::ApiError;
use serde_json::Value;

use crate::column::{Cell, ColumnInfo};
use crate::context::{Context, Observations};
use crate::fields::{Draft, FieldType, Fields};
use crate::principal::{AccessRole, Delegation, Principals};
use crate::right::RequiredRight;
use crate::write_only::WriteOnlyField;

pub mod action;
mod any;
mod info;

pub use any::{AnyKind, Prepared};
pub use info::{Info, Scope};

/// The draft of a kind.
pub type DraftOf<K> = Draft<Fields<<K as Kind>::Spec, <K as Kind>::Status>>;

/// What no other object of a kind may have, beyond its name.
#[derive(Clone, Copy, Debug)]
pub struct UniqueKeys<Spec> {
    /// The field that they come from, for errors.
    pub field: &'static str,
    /// The keys of one object.
    pub of: fn(&ObjectMeta, &Spec) -> Vec<String>,
}

/// A change of another object that goes with a write, in the same transaction. It is admitted as
/// any change is.
pub struct Companion {
    /// The kind of the other object.
    pub kind: &'static dyn AnyKind,
    /// Its namespace; `None` where the kind has none.
    pub namespace: Option<String>,
    /// Its name. One that is gone is passed over.
    pub name: String,
    /// Changes its fields.
    pub change: Box<dyn Fn(&mut serde_json::Map<String, Value>) + Send + Sync>,
}

/// What goes with the removal of an object: changes of other objects.
///
/// # Errors
/// 409 when there are more of them than one transaction takes.
pub type OnRemove = fn(&ObjectMeta, &dyn Principals) -> Result<Vec<Companion>, ApiError>;

/// Fields of the status that are not stored, but observed when the object is answered: by the name
/// and uid of the object.
pub type ObservedStatus = fn(&str, &str, &dyn Observations) -> Vec<(&'static str, Value)>;

/// A kind, written for its own typed fields.
pub trait Kind: Send + Sync + 'static {
    /// The desired state.
    type Spec: FieldType;

    /// The observed state.
    type Status: FieldType;

    /// Names, scope, verbs and actions.
    const INFO: Info;

    /// Columns behind the name and before the age.
    const COLUMNS: &'static [ColumnInfo] = &[];

    /// Fields that are written and never read.
    const WRITE_ONLY: &'static [WriteOnlyField] = &[];

    /// The start of the name that an object gets whose writer gave neither name nor prefix;
    /// `None` where that is an error.
    const NAME_PREFIX: Option<&'static str> = None;

    /// What no other object of the kind may have, beyond its name.
    const UNIQUE_KEYS: Option<UniqueKeys<Self::Spec>> = None;

    /// Rights on the owner of an object that stand for rights on the object.
    const DELEGATION: Option<Delegation<Self::Spec>> = None;

    /// Which part its objects have in authentication.
    const ACCESS_ROLE: Option<AccessRole<Self::Spec>> = None;

    /// What goes with the removal of an object.
    const ON_REMOVE: Option<OnRemove> = None;

    /// Fields of the status that are observed, not stored.
    const OBSERVED_STATUS: Option<ObservedStatus> = None;

    /// Fills in what the server decides: defaults, and what a client may not set. `old` is what
    /// is stored, on an update.
    fn prepare(_new: &mut DraftOf<Self>, _old: Option<&DraftOf<Self>>, _ctx: &Context<'_>)
    where
        Self: Sized,
    {
    }

    /// Adds to `errors` everything that is wrong with a prepared object, beyond its metadata. The
    /// managed fields are not set yet.
    ///
    /// # Errors
    /// For input that cannot be *read* as this kind at all (400, not 422); what is merely invalid
    /// goes into `errors`.
    fn validate(
        _new: &DraftOf<Self>,
        _old: Option<&DraftOf<Self>>,
        _ctx: &Context<'_>,
        _errors: &mut FieldErrors,
    ) -> Result<(), ApiError>
    where
        Self: Sized,
    {
        Ok(())
    }

    /// Returns the rights that a write takes beyond its verb on the object: all of them.
    fn required_rights(_new: &Self::Spec, _old: Option<&Self::Spec>) -> Vec<RequiredRight> {
        Vec::new()
    }

    /// Returns what the writer should know about the object, though it is allowed.
    fn warnings(_metadata: &ObjectMeta) -> Vec<String> {
        Vec::new()
    }

    /// Returns the cells of [`Self::COLUMNS`].
    fn cells(_object: &DraftOf<Self>) -> Vec<Cell>
    where
        Self: Sized,
    {
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
    fn begin_delete(_fields: &mut Fields<Self::Spec, Self::Status>) {}

    /// Must the object wait for a controller before it goes, beyond `metadata.finalizers`?
    fn blocks_deletion(_spec: &Self::Spec) -> bool {
        false
    }
}
