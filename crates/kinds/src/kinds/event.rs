//! Event (core/v1), as in Kubernetes: something that happened to an object.

use postern_meta::time::MicroTimestamp;

use crate::namespace_names::COMMON_NAMESPACE;
use crate::prelude::*;

/// The kind.
pub struct Event;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec>;

/// The occurrence that the event reports: its object, its cause and its count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.core.v1.EventFields")]
pub struct Spec {
    /// The object that the event is about.
    pub involved_object: ObjectReference,
    /// The reason, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A description of the event for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The component that reports the event.
    pub source: EventSource,
    /// When it happened first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_timestamp: Option<Timestamp>,
    /// When it happened last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_timestamp: Option<Timestamp>,
    /// How often it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Normal or Warning.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    /// When it was first observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time: Option<MicroTimestamp>,
    /// The series that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<EventSeries>,
    /// The action that was taken or that failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// Another object that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<ObjectReference>,
    /// The controller that reports it.
    pub reporting_component: String,
    /// The instance of that controller.
    pub reporting_instance: String,
}

/// A reference to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.core.v1.ObjectReference")]
pub struct ObjectReference {
    /// The kind of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The namespace of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The uid of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The API version of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The resource version of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The part of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

/// The component that reports an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.core.v1.EventSource")]
pub struct EventSource {
    /// The component.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// The node that it runs on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

/// A series of events that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.core.v1.EventSeries")]
pub struct EventSeries {
    /// How many there were.
    pub count: i32,
    /// When the last one was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_observed_time: Option<MicroTimestamp>,
}

impl Kind for Event {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: CORE_V1,
        kind: "Event",
        plural: "events",
        singular: "event",
        short: &["ev"],
        scope: ResourceScope::Namespaced,
        on_command_line: false,
        confidential: false,
        // kubectl asks by these for the events of an object. They are upstream's, under its names.
        selectable_fields: &[
            SelectableField::at("involvedObject.kind"),
            SelectableField::at("involvedObject.namespace"),
            SelectableField::at("involvedObject.name"),
            SelectableField::at("involvedObject.uid"),
            SelectableField::at("involvedObject.apiVersion"),
            SelectableField::at("involvedObject.resourceVersion"),
            SelectableField::at("involvedObject.fieldPath"),
            // The same fields under the names of events.k8s.io.
            SelectableField::renamed("regarding.kind", "involvedObject.kind"),
            SelectableField::renamed("regarding.namespace", "involvedObject.namespace"),
            SelectableField::renamed("regarding.name", "involvedObject.name"),
            SelectableField::renamed("regarding.uid", "involvedObject.uid"),
            SelectableField::renamed("regarding.apiVersion", "involvedObject.apiVersion"),
            SelectableField::renamed("regarding.resourceVersion", "involvedObject.resourceVersion"),
            SelectableField::renamed("regarding.fieldPath", "involvedObject.fieldPath"),
            SelectableField::renamed("reportingController", "reportingComponent"),
            SelectableField::at("reason"),
            SelectableField::at("reportingComponent"),
            SelectableField {
                label: "source",
                path: "source.component",
                or_else: Some("reportingComponent"),
            },
            SelectableField::at("type"),
        ],
        description: "Event reports a change or a problem of an object. It is kept for an hour.",
        layout: Layout::TopLevel,
        columns: &[
            ColumnInfo::text("Last Seen", "How long ago it happened last."),
            ColumnInfo::text("Type", "Normal or Warning."),
            ColumnInfo::text("Reason", "The reason, in one word."),
            ColumnInfo::text("Object", "The object of the event."),
            ColumnInfo::text("Source", "What reports it.").wide(),
            ColumnInfo::integer("Count", "How often it happened.").wide(),
            ColumnInfo::text("Message", "What happened."),
        ],
        ..Info::DEFAULT
    };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let involved = write.spec().involved_object.namespace.as_str();
        let own = write.new.metadata.namespace.as_str();
        let agrees = match involved {
            "" => own.is_empty() || own == COMMON_NAMESPACE,
            involved => involved == own,
        };
        if !agrees {
            let detail = "does not match event.namespace";
            errors.push(FieldError::invalid("involvedObject.namespace", involved, detail));
        }
        Ok(())
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        let about = &spec.involved_object;
        let last = spec.last_timestamp.or(spec.first_timestamp);
        vec![
            Cell::Age(last.or(object.metadata.creation_timestamp)),
            Cell::Text(spec.r#type.clone()),
            Cell::Text(spec.reason.clone()),
            Cell::Text(format!("{}/{}", about.kind.to_lowercase(), about.name)),
            Cell::Text(spec.source.component.clone()),
            Cell::Number(spec.count.unwrap_or(1).into()),
            Cell::Text(spec.message.trim().to_owned()),
        ]
    }
}
