//! What an object of a kind holds next to `metadata`, as typed fields.
//!
//! What does not live here: metadata, and what a kind says about its fields (`kind.rs`).

use postern_meta::object::ObjectMeta;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A type that can be the spec or the status of a kind.
pub trait FieldType: Serialize + DeserializeOwned + JsonSchema + Default + Clone + 'static {}

impl<T: Serialize + DeserializeOwned + JsonSchema + Default + Clone + 'static> FieldType for T {}

/// What an object holds next to `metadata`. A kind without a status has [`NoStatus`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, bound = "Spec: FieldType, Status: FieldType")]
#[schemars(bound = "Spec: FieldType, Status: FieldType")]
pub struct Fields<Spec, Status = NoStatus> {
    /// The desired state: what clients write.
    pub spec: Spec,
    /// The observed state: what the server writes.
    pub status: Status,
}

impl<Spec, Status: Default> Fields<Spec, Status> {
    /// Returns fields of which only the desired state is given.
    pub fn of(spec: Spec) -> Self {
        Self { spec, status: Status::default() }
    }
}

/// The status of a kind that has nothing to say there: always `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "sh.platform.management.v1.NoStatus")]
pub struct NoStatus {}

/// An object on its way to be written, with typed fields.
#[derive(Clone, Debug)]
pub struct Draft<F> {
    /// Its metadata, checked already as far as all kinds share it.
    pub metadata: ObjectMeta,
    /// Everything else.
    pub fields: F,
}
