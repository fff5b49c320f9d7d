//! CustomResourceDefinition (apiextensions.k8s.io/v1): always an empty list. Clients that create objects of
//! any kind ask for it first, and stop when they may not.

use postern_meta::gvk::GroupVersion;

use crate::prelude::*;

/// The kind.
pub struct CustomResourceDefinition;

/// Nothing: there are no objects of this kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "io.k8s.apiextensions-apiserver.v1.NoFields")]
pub struct NoFields {}

impl Kind for CustomResourceDefinition {
    type Spec = NoFields;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: GroupVersion { group: "apiextensions.k8s.io", version: "v1" },
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short: &["crd", "crds"],
        verbs: &[Verb::Get, Verb::List, Verb::Watch],
        on_command_line: false,
        confidential: false,
        description: "CustomResourceDefinition is a kind that clients have added: there is none.",
        layout: Layout::TopLevel,
        ..Info::DEFAULT
    };
}
