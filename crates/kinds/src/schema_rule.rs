//! Rules of schemas, as Kubernetes' custom resources write them in `x-kubernetes-validations`. The kinds apply them in
//! their own code; the schema tells clients and the reference.

use serde::Serialize;

/// One rule, in the Common Expression Language.
#[derive(Serialize)]
pub(crate) struct SchemaRule {
    rule: &'static str,
    message: &'static str,
}

/// The rule of a field that never changes after the create.
pub(crate) const IMMUTABLE: [SchemaRule; 1] =
    [SchemaRule { rule: "self == oldSelf", message: "field is immutable" }];
