//! Spans of the OpenTelemetry library, and their export over OTLP.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind as OtelKind, Status,
    TraceContextExt as _, TraceFlags, TraceId, TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use tokio::runtime::Handle;

use crate::ids::{RequestIds, current};
use crate::span_kind::SpanKind;
use crate::trace_context::TraceContext;

/// The longest time of one export, and of the last one at the end of the process.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The path of traces at a receiver.
const TRACES_PATH: &str = "/v1/traces";

/// Makes spans; set when the export starts.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// The export of the process. It ends on drop.
pub(crate) struct Exporter(SdkTracerProvider);

/// A span that has begun; `None` if spans are not exported, or the trace is not sampled.
pub(crate) struct ActiveSpan(Option<Span>);

/// Sends exports on the runtime of the process: the library exports from a separate thread.
#[derive(Debug)]
struct OnRuntime {
    client: Arc<HyperClient<HttpsConnector<HttpConnector>>>,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        self.runtime.spawn(async move { client.send_bytes(request).await }).await?
    }
}

impl Exporter {
    /// Starts the export. `endpoint` is the receiver's base URL, or its URL for traces.
    pub(crate) fn start(
        endpoint: Option<&str>,
        service: &'static str,
        version: &'static str,
    ) -> Result<Option<Self>, String> {
        let client = OnRuntime {
            client: Arc::new(HyperClient::new(connector()?, EXPORT_TIMEOUT, None)),
            runtime: Handle::current(),
        };
        let mut builder = SpanExporter::builder().with_http().with_http_client(client);
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(traces_url(endpoint)?);
        }
        let exporter = builder.build().map_err(|error| error.to_string())?;
        let attributes = [KeyValue::new("service.version", version)];
        let mut resource = Resource::builder().with_attributes(attributes);
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(service);
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        if TRACER.set(provider.tracer("postern")).is_err() {
            return Err("the export of traces was started before".to_owned());
        }
        Ok(Some(Self(provider)))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_EXPORT_TIMEOUT) {
            tracing::warn!("the last spans were not exported: {error}");
        }
    }
}

/// The URL to which traces are sent.
fn traces_url(endpoint: &str) -> Result<String, String> {
    let uri: http::Uri = endpoint.parse().map_err(|error| format!("{endpoint:?}: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
        return Err(format!("{endpoint:?}: use a URL such as http://127.0.0.1:4318"));
    }
    let base = endpoint.trim_end_matches('/');
    if base.ends_with(TRACES_PATH) {
        Ok(base.to_owned())
    } else {
        Ok(format!("{base}{TRACES_PATH}"))
    }
}

/// Connections to the receiver, with the authorities that the system trusts.
fn connector() -> Result<HttpsConnector<HttpConnector>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider);
    let builder =
        builder.map_err(|error| format!("no trusted certificate authorities: {error}"))?;
    Ok(builder.https_or_http().enable_http1().build())
}

/// Begins the span of a request, in the client's trace if there is one.
pub(crate) fn begin_request(name: &'static str, ids: &mut RequestIds) -> ActiveSpan {
    let Some(tracer) = TRACER.get() else { return ActiveSpan(None) };
    let parent = ids.trace().map_or_else(Context::new, |trace| {
        let flags = TraceFlags::new(trace.flags);
        Context::new().with_remote_span_context(context_of(trace, flags))
    });
    let builder = SpanBuilder::from_name(name).with_kind(OtelKind::Server);
    let mut span = tracer.build_with_context(builder, &parent);
    span.set_attribute(KeyValue::new("postern.audit_id", ids.audit_id.to_string()));
    ids.set_trace(trace_of(&span));
    ActiveSpan(Some(span))
}

/// Begins the span of a step of the current request.
pub(crate) fn begin_step(name: &'static str, kind: SpanKind) -> ActiveSpan {
    ActiveSpan(step(name, kind))
}

fn step(name: &'static str, kind: SpanKind) -> Option<Span> {
    let tracer = TRACER.get()?;
    let trace = current()?.trace()?;
    if !trace.is_sampled() {
        return None;
    }
    let parent = Context::new().with_remote_span_context(context_of(trace, TraceFlags::SAMPLED));
    let builder = SpanBuilder::from_name(name).with_kind(match kind {
        SpanKind::Client => OtelKind::Client,
        SpanKind::Internal => OtelKind::Internal,
    });
    Some(tracer.build_with_context(builder, &parent))
}

fn context_of(trace: TraceContext, flags: TraceFlags) -> SpanContext {
    let (trace_id, span_id) = (TraceId::from(trace.trace_id), SpanId::from(trace.parent_id));
    SpanContext::new(trace_id, span_id, flags, true, TraceState::default())
}

/// The span as the parent of others.
fn trace_of(span: &Span) -> TraceContext {
    let context = span.span_context();
    TraceContext {
        trace_id: u128::from_be_bytes(context.trace_id().to_bytes()),
        parent_id: u64::from_be_bytes(context.span_id().to_bytes()),
        flags: context.trace_flags().to_u8(),
    }
}

impl ActiveSpan {
    pub(crate) fn set_status(&mut self, code: u16) {
        let Some(span) = &mut self.0 else { return };
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(code)));
        if code >= 500 {
            span.set_status(Status::error(""));
        }
    }

    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.0.as_ref().map(trace_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_base_or_the_url_of_traces() {
        for endpoint in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            assert_eq!(traces_url(endpoint).unwrap(), "http://c:4318/v1/traces");
        }
        for endpoint in ["c:4318", "ftp://c", "", "http//c"] {
            assert!(traces_url(endpoint).is_err(), "{endpoint}");
        }
    }
}
