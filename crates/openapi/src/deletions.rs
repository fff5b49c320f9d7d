//! The schemas of deletions: the options in the body, and the response.

use serde_json::{Value, json};

/// The name of the options' schema.
pub(super) const OPTIONS_NAME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// The schema of the options, with the fields that the server reads.
pub(super) fn options() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let flag = |description: &str| json!({ "type": "boolean", "description": description });
    json!({
        "type": "object",
        "description": "The options of a deletion.",
        "properties": {
            "apiVersion": text("Version of the schema: v1, meta.k8s.io/v1, or the version of the resource."),
            "kind": text("The kind: DeleteOptions."),
            "dryRun": {
                "type": "array",
                "description": "`All`: process the request without storing anything.",
                "items": { "type": "string" },
            },
            "gracePeriodSeconds": {
                "type": "integer",
                "format": "int64",
                "description": "Seconds until the object is removed.",
            },
            "propagationPolicy": text("What happens to dependents: Orphan, Background or Foreground."),
            "orphanDependents": flag("The older form of propagationPolicy. Only one of the two can be set."),
            "preconditions": {
                "type": "object",
                "description": "Conditions: without them, nothing is deleted.",
                "properties": {
                    "uid": text("The uid of the object."),
                    "resourceVersion": text("The version of the object."),
                },
            },
            "ignoreStoreReadErrorWithClusterBreakingPotential":
                flag("Delete the object even if it is corrupt and cannot be read."),
        },
    })
}

/// The schema of the response to the deletion of one object: a Status or the object. `status` is a text in a Status, and
/// an object in the other. Client generators and version 2 have no choice between schemas. So the schema has the common
/// fields.
pub(super) fn response() -> Value {
    json!({
        "type": "object",
        "description": "A Status with the uid of the deleted object, or the object while it is terminating.",
        "required": ["apiVersion", "kind", "metadata"],
        "properties": {
            "apiVersion": { "type": "string", "description": "Version of the schema, as group/version." },
            "kind": { "type": "string", "description": "The kind: Status, or the kind of the object." },
            "metadata": { "type": "object", "description": "The metadata of the Status or the object." },
        },
    })
}
