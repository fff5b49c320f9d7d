//! Widget: a kind with a spec, access rules, a status subresource, columns and an action.

use postern_kinds::access::{self, Access, Ownership, UserOrTeam};
use postern_kinds::action::{
    Action, ActionRequest, ActionResult, ActionRight, Handler, RegistryAction, Response,
};
use postern_kinds::{
    Cell, ColumnInfo, DraftOf, Info, Kind, NoStatus, Parts, ResourceScope, Verb, WriteOf,
};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::status::ApiError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The kind.
pub(crate) struct Widget;

/// The desired state of a widget.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.WidgetSpec")]
pub(crate) struct Spec {
    /// The size of the widget, in centimetres.
    size: u32,
    /// The user or team that owns the widget. If absent on create, it is the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<UserOrTeam>,
    /// The users and teams that get verbs on the widget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    access: Vec<Access>,
}

/// The observed state of a widget.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.WidgetStatus")]
pub(crate) struct Status {
    /// The colour of a painted widget.
    #[serde(skip_serializing_if = "String::is_empty")]
    colour: String,
}

impl Kind for Widget {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "Widget",
        plural: "widgets",
        singular: "widget",
        short: &["wd"],
        scope: ResourceScope::Namespaced,
        actions: &[Action::GET_STATUS, Action::UPDATE_STATUS, Action::PATCH_STATUS, PAINT],
        confidential: false,
        description: "Widget is an object that can be painted.",
        columns: &[
            ColumnInfo::integer("Size", "The size of the widget, in centimetres."),
            ColumnInfo::text("Colour", "The colour of a painted widget."),
        ],
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Status> = Parts {
        ownership: Some(access::part(
            |spec| Ownership {
                owner: spec.owner.clone(),
                access: spec.access.clone(),
                ..Ownership::default()
            },
            |spec| &mut spec.owner,
        )),
        ..Parts::DEFAULT
    };

    fn validate(write: &WriteOf<'_, Self>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        if write.spec().size == 0 {
            errors.push(FieldError::invalid("spec.size", 0_i64, "must be at least 1"));
        }
        Ok(())
    }

    fn cells(object: &DraftOf<Self>) -> Vec<Cell> {
        let fields = &object.fields;
        vec![Cell::Number(fields.spec.size.into()), Cell::Text(fields.status.colour.clone())]
    }
}

/// `POST …/widgets/NAME/paint`: sets the colour.
const PAINT: Action = Action {
    subresource: "paint",
    verb: Verb::Create,
    right: ActionRight::OnSubresource,
    handler: Handler::Registry(RegistryAction::Object(paint)),
    request: Some(&WidgetPaint),
    response: Response::Same,
    description: "Paints the widget.",
};

/// The request to paint a widget.
struct WidgetPaint;

/// The parameters of painting a widget.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.WidgetPaintSpec")]
struct PaintSpec {
    /// The colour.
    colour: String,
}

impl Kind for WidgetPaint {
    type Spec = PaintSpec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "WidgetPaint",
        plural: "widgetpaints",
        singular: "widgetpaint",
        scope: ResourceScope::Namespaced,
        verbs: &[],
        confidential: false,
        description: "WidgetPaint is the request to paint a widget.",
        ..Info::DEFAULT
    };
}

fn paint(request: &ActionRequest<'_>) -> Result<ActionResult, ApiError> {
    let colour = request.body.fields.get("spec").and_then(|spec| spec["colour"].as_str());
    let Some(colour) = colour.filter(|colour| !colour.is_empty()) else {
        let mut errors = FieldErrors::new();
        errors.push(FieldError::required("spec.colour", "name the colour"));
        let kind = WidgetPaint::INFO.group_kind();
        return Err(ApiError::invalid(kind, &request.object.metadata.name, errors));
    };
    let mut painted = request.object.clone();
    painted.fields.insert("status".to_owned(), json!({ "colour": colour }));
    Ok(ActionResult::Update(painted))
}
