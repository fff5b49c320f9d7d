//! Spans: how long the steps of a request take. They are sent to an OTLP receiver, or are no code at all.

#[cfg(not(feature = "otel"))]
use crate::no_export as export;
#[cfg(feature = "otel")]
use crate::otlp as export;

use crate::ids::{RequestIds, current};
use crate::span_kind::SpanKind;

/// A span. It ends when it is dropped.
#[must_use = "the span ends when it is dropped"]
pub struct Span {
    active: export::ActiveSpan,
}

/// The export of spans. When it is dropped, it sends the spans that are not sent yet.
pub struct Export {
    _exporter: export::Exporter,
}

/// The server's span of a request. If spans are exported, `ids` then belong to the span's trace.
pub fn request_span(name: &'static str, ids: &mut RequestIds) -> Span {
    Span { active: export::begin_request(name, ids) }
}

/// A span of a step of the current request. Outside of a request, it does nothing.
pub fn span(name: &'static str, kind: SpanKind) -> Span {
    Span { active: export::begin_step(name, kind) }
}

impl Span {
    /// Adds the status code of the response. A code from 500 on marks the span as failed.
    pub fn set_status(&mut self, code: u16) {
        self.active.set_status(code);
    }

    /// The header `traceparent` of the request that this span measures: of the span if it is exported, and else as
    /// [`RequestIds::traceparent`]. `None` outside of a request.
    pub fn traceparent(&self) -> Option<String> {
        match self.active.trace() {
            Some(trace) => Some(trace.to_string()),
            None => current().map(|ids| ids.traceparent()),
        }
    }
}

/// Starts the export of spans to the OTLP receiver at `endpoint`, over HTTP with protobuf. Without an endpoint, the
/// standard variables `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and `OTEL_EXPORTER_OTLP_ENDPOINT` count; without
/// these, nothing is exported. Call it within the runtime that sends.
///
/// # Errors
/// An endpoint that cannot be used, or an endpoint in a build without the feature `otel`.
pub fn start_export(
    endpoint: Option<&str>,
    service: &'static str,
    version: &'static str,
) -> Result<Option<Export>, String> {
    let variables = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    let by_variable = variables.iter().any(|name| std::env::var_os(name).is_some());
    if endpoint.is_none() && !by_variable {
        return Ok(None);
    }
    let exporter = export::Exporter::start(endpoint, service, version)?;
    Ok(exporter.map(|exporter| Export { _exporter: exporter }))
}
