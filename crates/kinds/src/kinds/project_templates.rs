//! `ProjectTemplates`: the templates that a project offers for new instances. This server has no templates: it
//! manages virtual clusters and spaces that exist. Clients that ask for templates first get an empty answer and go on.
//! It is answered at `projects/<p>/templates` and never stored.

use postern_meta::object::Object;
use serde_json::Value;

use crate::action::{ActionRequest, ActionResult};
use crate::prelude::*;

/// The kind.
pub struct ProjectTemplates;

/// The templates, all lists empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ProjectTemplatesFields")]
pub struct Spec {
    /// The name of the default template of virtual clusters; always empty.
    pub default_virtual_cluster_template: String,
    /// Templates of virtual clusters; always empty.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub virtual_cluster_templates: Vec<NoTemplate>,
    /// The name of the default template of spaces; always empty.
    pub default_space_template: String,
    /// Templates of spaces; always empty.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub space_templates: Vec<NoTemplate>,
}

/// A template. There is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "sh.platform.management.v1.ProjectTemplate")]
pub struct NoTemplate {}

impl Kind for ProjectTemplates {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "ProjectTemplates",
        plural: "projecttemplates",
        singular: "projecttemplates",
        confidential: false,
        description: "ProjectTemplates is the templates of a project.",
        ..Info::RESPONSE
    };
}

/// The templates of a project.
///
/// # Errors
/// 500 if the answer cannot be encoded.
pub(crate) fn of_project(request: &ActionRequest<'_>) -> Result<ActionResult, ApiError> {
    let info = ProjectTemplates::INFO;
    let Ok(Value::Object(fields)) = serde_json::to_value(Spec::default()) else {
        return Err(ApiError::internal("the templates could not be encoded", info.kind));
    };
    Ok(ActionResult::Respond(Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata: ObjectMeta {
            name: request.object.metadata.name.clone(),
            ..ObjectMeta::default()
        },
        fields,
    }))
}
