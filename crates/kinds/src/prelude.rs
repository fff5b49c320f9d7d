//! The imports of the file of a kind: `use crate::prelude::*`. Builds with kinds of their own use it too.
//!
//! Nothing is defined here.

pub use postern_meta::Timestamp;
pub use postern_meta::field::{BadValue, FieldError, FieldErrors};
pub use postern_meta::names::NameRule;
pub use postern_meta::object::{ObjectMeta, OwnerReference};
pub use postern_meta::status::ApiError;
pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};

pub use crate::column::{Cell, ColumnInfo};
pub use crate::condition::{Condition, ConditionsStatus};
pub use crate::context::{Context, WriterKind};
pub use crate::fields::{Draft, Layout, NoStatus};
pub use crate::kind::action::{
    Action, ActionRequest, ActionResult, ActionRight, Handler, PartHandler, RegistryAction,
    Response, Review, ServerAction,
};
pub use crate::kind::ownership::{Access, ExtraAccess, Ownership, OwnershipPart, UserOrTeam};
pub use crate::kind::{
    ClaimMatches, Companion, Credential, DataSource, Dependent, Dependents, Info, Kind, NoEffect,
    ObservedStatus, Parts, ResourceScope, SelectableField, StoredAs, StrictFields, UniqueKey,
    UnservedField, UpdateRule, ValuesAt, Write,
};
pub use crate::names::{CORE_V1, MANAGEMENT_V1, check_identities, check_identity};
pub use crate::principal::{
    AccessRole, KeyFacts, Lifetime, Maker, Owner, Principal, Principals, TeamFacts, UserFacts,
};
pub use crate::right::{RequiredRight, Right};
pub use crate::secret_text::SecretText;
pub use crate::ties::Ties;
pub use crate::verb::Verb;
pub use crate::write_only::{AtRest, WriteOnlyField};
