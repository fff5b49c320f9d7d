//! What `OpenAPI` says of deletions: the options in their bodies, and what they answer.

use serde_json::{Value, json};

/// The name of the schema of the options.
pub(super) const OPTIONS_NAME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// The schema of the options, as their fields are read.
pub(super) fn options() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let flag = |description: &str| json!({ "type": "boolean", "description": description });
    json!({
        "type": "object",
        "description": "How something is deleted.",
        "properties": {
            "apiVersion": text("Version of the schema: v1, meta.k8s.io/v1 or that of the resource."),
            "kind": text("What this is: DeleteOptions."),
            "dryRun": {
                "type": "array",
                "description": "`All`: do everything but store.",
                "items": { "type": "string" },
            },
            "gracePeriodSeconds": {
                "type": "integer",
                "format": "int64",
                "description": "Seconds until the object is removed.",
            },
            "propagationPolicy": text("What happens to dependents: Orphan, Background or Foreground."),
            "orphanDependents": flag("The older form of propagationPolicy: not both can be set."),
            "preconditions": {
                "type": "object",
                "description": "What must be so, or nothing is deleted.",
                "properties": {
                    "uid": text("The uid of the object."),
                    "resourceVersion": text("The version of the object."),
                },
            },
            "ignoreStoreReadErrorWithClusterBreakingPotential":
                flag("Delete the object even if what is stored of it cannot be read."),
        },
    })
}

/// The schema of the answer to a deletion of one object. It is a Status or an object, whose `status` is
/// a text in the one and fields in the other. Generators of clients and version 2 have no choice between
/// schemas, so it says what both have.
pub(super) fn response() -> Value {
    json!({
        "type": "object",
        "description": "A Status with the uid of what is gone; the object, while it is still there.",
        "required": ["apiVersion", "kind", "metadata"],
        "properties": {
            "apiVersion": { "type": "string", "description": "Version of the schema, as group/version." },
            "kind": { "type": "string", "description": "What this is: Status, or the kind." },
            "metadata": { "type": "object", "description": "What all objects have." },
        },
    })
}
