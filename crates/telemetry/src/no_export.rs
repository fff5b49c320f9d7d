//! Spans of a build without the feature `otel`: they do nothing.

use crate::ids::RequestIds;
use crate::span_kind::SpanKind;
use crate::trace_context::TraceContext;

/// The export of the process, of which there is none.
pub(crate) enum Exporter {}

/// A span that measures nothing.
pub(crate) struct ActiveSpan;

impl Exporter {
    /// Refuses a configured endpoint. One of the standard variables is only reported: it may be set for all programs
    /// of the machine.
    pub(crate) fn start(
        endpoint: Option<&str>,
        _service: &'static str,
        _version: &'static str,
    ) -> Result<Option<Self>, String> {
        if endpoint.is_some() {
            return Err(
                "this build cannot export traces: use a release archive or image, or build \
                        with --features otel"
                    .to_owned(),
            );
        }
        tracing::warn!("OTEL_EXPORTER_OTLP_ENDPOINT is ignored: this build cannot export traces");
        Ok(None)
    }
}

pub(crate) fn begin_request(_name: &'static str, _ids: &mut RequestIds) -> ActiveSpan {
    ActiveSpan
}

pub(crate) fn begin_step(_name: &'static str, _kind: SpanKind) -> ActiveSpan {
    ActiveSpan
}

impl ActiveSpan {
    #[expect(clippy::unused_self, reason = "the span of the other build has a status")]
    pub(crate) fn set_status(&mut self, _code: u16) {}

    #[expect(clippy::unused_self, reason = "the span of the other build has a trace")]
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_the_exporter_says_so() {
        let refused = Exporter::start(Some("http://127.0.0.1:4318"), "a", "1").err().unwrap();
        assert!(refused.contains("--features otel"), "{refused}");
        assert!(Exporter::start(None, "a", "1").unwrap().is_none());
    }

    #[test]
    fn a_span_takes_no_room() {
        assert_eq!(size_of::<ActiveSpan>(), 0);
    }
}
