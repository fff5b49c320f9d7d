//! The log: one event a line on the standard error, as text or as JSON.
//!
//! The JSON fields `time`, `level`, `target` and `message` are in each line; `request_id`, `audit_id` and `trace_id`
//! are in each line that belongs to a request; the event's own fields are in `fields`.

use std::fmt;
use std::io::{self, IsTerminal as _};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{self, Format, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime as LogTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

use crate::ids::{RequestIds, current};

/// How log lines are written.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Text for people: time, level, module, message, fields, ids.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log of this process, on the standard error. `filter` is a level, or levels by module.
///
/// # Errors
/// A filter that cannot be read, or a log that was started before.
pub fn start_log(filter: &str, log_format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    let is_coloured = log_format == LogFormat::Text && io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(is_coloured)
        .event_format(Lines { format: log_format, is_coloured })
        .try_init()
        .map_err(|error| error.to_string())
}

/// Writes events, with the ids of the request that they belong to.
struct Lines {
    format: LogFormat,
    is_coloured: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> format::FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        match self.format {
            LogFormat::Text => self.write_text(context, writer, event),
            LogFormat::Json => write_json(writer, event),
        }
    }
}

impl Lines {
    fn write_text<S, N>(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        N: for<'a> format::FormatFields<'a> + 'static,
    {
        let lines = Format::default().with_ansi(self.is_coloured);
        let Some(ids) = current() else {
            return lines.format_event(context, writer, event);
        };
        let mut line = String::new();
        lines.format_event(context, Writer::new(&mut line), event)?;
        writeln!(
            writer,
            "{} audit_id={} trace_id={:032x} request_id={}",
            line.trim_end_matches('\n'),
            ids.audit_id,
            ids.trace_id(),
            ids.request_id()
        )
    }
}

fn write_json(mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
    let mut time = String::new();
    LogTime.format_time(&mut Writer::new(&mut time))?;
    let line = json_line(time, event, current().as_ref());
    writeln!(writer, "{line}")
}

fn json_line(time: String, event: &Event<'_>, ids: Option<&RequestIds>) -> Value {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let mut line = Map::new();
    let metadata = event.metadata();
    line.insert("time".to_owned(), time.into());
    line.insert("level".to_owned(), metadata.level().as_str().into());
    line.insert("target".to_owned(), metadata.target().into());
    line.insert("message".to_owned(), fields.message.into());
    if let Some(ids) = ids {
        line.insert("request_id".to_owned(), ids.request_id().to_string().into());
        line.insert("audit_id".to_owned(), ids.audit_id.to_string().into());
        line.insert("trace_id".to_owned(), format!("{:032x}", ids.trace_id()).into());
    }
    if !fields.others.is_empty() {
        line.insert("fields".to_owned(), fields.others.into());
    }
    Value::Object(line)
}

/// The fields of one event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, value.into());
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;
    use uuid::Uuid;

    use super::*;

    /// The bytes that a log has written.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Written {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// The lines of a log in this format, of one event within a request and one outside.
    fn lines(format: LogFormat) -> Vec<String> {
        let written = Written::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(written.clone())
            .with_ansi(false)
            .event_format(Lines { format, is_coloured: false })
            .finish();
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let ids = RequestIds::new(Uuid::from_u128(1), Some("of-lb"), Some(parent));
        tracing::subscriber::with_default(subscriber, || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(ids.scope(async {
                tracing::warn!(
                    code = 503_u64,
                    late = true,
                    why = "a \"quote\"\nand a line",
                    "not sent"
                );
            }));
            tracing::info!("outside");
        });
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn json_has_stable_fields_and_one_event_a_line() {
        let lines = lines(LogFormat::Json);
        assert_eq!(lines.len(), 2, "{lines:?}");
        let line: Value = lines[0].parse().unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["message"], "not sent");
        assert_eq!(line["target"], "postern_telemetry::log::tests");
        assert_eq!(line["request_id"], "of-lb");
        assert_eq!(line["audit_id"], "00000000-0000-0000-0000-000000000001");
        assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(line["fields"]["code"], 503);
        assert_eq!(line["fields"]["late"], true);
        assert_eq!(line["fields"]["why"], "a \"quote\"\nand a line");
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        let outside: Value = lines[1].parse().unwrap();
        let names: Vec<_> = outside.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["level", "message", "target", "time"]);
    }

    #[test]
    fn text_ends_with_the_ids() {
        let lines = lines(LogFormat::Text);
        let ids = " audit_id=00000000-0000-0000-0000-000000000001 \
                   trace_id=4bf92f3577b34da6a3ce929d0e0e4736 request_id=of-lb";
        assert!(lines.iter().any(|line| line.ends_with(ids)), "{lines:?}");
        assert!(lines.last().unwrap().ends_with("outside"), "{lines:?}");
    }
}
