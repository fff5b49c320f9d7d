//! Event (events.k8s.io/v1), as in Kubernetes: the same objects as [`core/v1`](crate::event), under other names of fields.
//! The recorders of client-go since 1.19 and of controller-runtime since 0.23 write this version.

use postern_meta::gvk::GroupVersion;
use postern_meta::time::MicroTimestamp;

use crate::event::{Event, EventSeries, EventSource, ObjectReference};
use crate::prelude::*;

/// The kind.
pub struct EventV1;

/// The occurrence that the event reports: its object, its cause and its count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.events.v1.EventFields")]
pub struct Spec {
    /// When it was first observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time: Option<MicroTimestamp>,
    /// The series that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<EventSeries>,
    /// The controller that reports it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reporting_controller: String,
    /// The instance of that controller.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reporting_instance: String,
    /// The action that was taken or that failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// The reason, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The object that the event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regarding: Option<ObjectReference>,
    /// Another object that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<ObjectReference>,
    /// A description of the event for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Normal or Warning.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    /// The component that reports the event, in core/v1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated_source: Option<EventSource>,
    /// When it happened first, in core/v1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated_first_timestamp: Option<Timestamp>,
    /// When it happened last, in core/v1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated_last_timestamp: Option<Timestamp>,
    /// How often it happened, in core/v1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated_count: Option<i32>,
}

impl Kind for EventV1 {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: GroupVersion { group: "events.k8s.io", version: "v1" },
        columns: &[],
        stored_as: Some(StoredAs {
            kind: &Event,
            renamed: &[
                ("regarding", "involvedObject"),
                ("note", "message"),
                ("reportingController", "reportingComponent"),
                ("deprecatedSource", "source"),
                ("deprecatedFirstTimestamp", "firstTimestamp"),
                ("deprecatedLastTimestamp", "lastTimestamp"),
                ("deprecatedCount", "count"),
            ],
        }),
        ..Event::INFO
    };
}
