//! Reads the body of a request within its limit, and decodes the object in it.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use postern_flow::budget::Charge;
use postern_kinds::{AnyKind, Layout, Verb};
use postern_meta::accept::{PatchType, content_type_of_body, patch_type};
use postern_meta::apply::check_lists;
use postern_meta::decode::{self, BodyFormat, Decoded, Format};
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::options::FieldValidation;
use postern_meta::schema::TypeMismatch;
use postern_meta::status::ApiError;
use postern_meta::validate::dedup_owner_references;
use postern_registry::admit::Part;
use serde_json::Value;

use super::incoming::IncomingBody;
use crate::stages::parse::{Parsed, Target};

/// The maximum length of a request body in bytes, as in kube-apiserver.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// The most bytes that are allocated for the `Content-Length` of a body.
const MAX_RESERVED_BYTES: usize = 64 * 1024;

/// The least bytes that are counted for a body, because a waiting request also uses memory.
const MIN_COUNTED_BYTES: usize = 4096;

/// The most characters of a sent name or type in an error.
const MAX_REPEATED_CHARS: usize = 128;

/// Why an apply refuses a field that the schema does not have; kube-apiserver's words.
const UNDECLARED: &str = "field not declared in schema: remove it, or correct its name";

/// How the paths of the fields in a status begin.
const IN_STATUS: &str = "status.";

/// The seconds after which a client may retry if there was no room for its body.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The body of a request. A copy is kept if the audit policy records bodies.
pub struct RequestBody {
    incoming: IncomingBody,
    copy: Option<Arc<OnceLock<Bytes>>>,
}

/// A complete body, which is counted for its owner as long as it is in memory.
pub struct ReceivedBody {
    bytes: Bytes,
    _charge: Option<Charge>,
}

impl ReceivedBody {
    /// The body of a request if it has none, or if it is not read.
    pub fn none() -> Self {
        Self { bytes: Bytes::new(), _charge: None }
    }
}

impl std::ops::Deref for ReceivedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl RequestBody {
    /// An unread body. When it is read, `copy` gets a copy.
    pub fn new(incoming: IncomingBody, copy: Option<Arc<OnceLock<Bytes>>>) -> Self {
        Self { incoming, copy }
    }

    /// The body as it arrives, to be forwarded.
    pub fn into_incoming(self) -> IncomingBody {
        self.incoming
    }

    /// All bytes of the body. They are counted as they arrive.
    ///
    /// # Errors
    /// 413 as soon as the body is known to exceed the limit; 400 when the client stops before the
    /// end; 429 when too many bytes are in memory.
    pub async fn read(self, charge: Charge) -> Result<ReceivedBody, ApiError> {
        let received = read(self.incoming, charge).await?;
        if let Some(copy) = self.copy {
            // It cannot be set already, because the body is read once.
            let _ = copy.set(received.bytes.clone());
        }
        Ok(received)
    }
}

async fn read(mut body: IncomingBody, mut charge: Charge) -> Result<ReceivedBody, ApiError> {
    let announced = body.size_hint().lower();
    if announced > MAX_BODY_BYTES as u64 {
        return Err(ApiError::body_too_large(MAX_BODY_BYTES));
    }
    let reserved = usize::try_from(announced).unwrap_or(0).min(MAX_RESERVED_BYTES);
    count(&mut charge, reserved.max(MIN_COUNTED_BYTES))?;
    let mut whole = BytesMut::with_capacity(reserved);
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| ApiError::bad_request("the body is incomplete").with_inner(error))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > MAX_BODY_BYTES {
            return Err(ApiError::body_too_large(MAX_BODY_BYTES));
        }
        let needed = (whole.len() + data.len()).saturating_sub(whole.capacity());
        if needed > 0 {
            // The capacity is doubled, so that no byte is copied many times.
            let more = needed.max(whole.capacity());
            count(&mut charge, more)?;
            whole.reserve(more);
        }
        whole.extend_from_slice(&data);
    }
    Ok(ReceivedBody { bytes: whole.freeze(), _charge: Some(charge) })
}

fn count(charge: &mut Charge, bytes: usize) -> Result<(), ApiError> {
    if charge.grow(bytes) {
        return Ok(());
    }
    let message = "too many bytes of request bodies are in memory, please try again later";
    Err(ApiError::too_many_requests(message, RETRY_AFTER_SECONDS))
}

/// Whether a body can be YAML, by its Content-Type. The body of an apply always can.
pub fn can_be_yaml(parsed: &Parsed) -> bool {
    let header = parsed.header(CONTENT_TYPE);
    patch_type(header, &[PatchType::Apply]).is_ok()
        || content_type_of_body(header).is_ok_and(|format| format == BodyFormat::Text(Format::Yaml))
}

fn looks_like_json(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'{')
}

/// Decodes the configuration of an apply. JSON is also YAML, but it is decoded faster, and with the limits of JSON. So
/// JSON is tried first if the body looks like it.
///
/// # Errors
/// 400 for a body that is neither JSON nor YAML.
pub fn decode_configuration(body: &[u8]) -> Result<Decoded, ApiError> {
    let json = looks_like_json(body).then(|| decode::decode(body, Format::Json));
    let decoded = match json {
        Some(Ok(decoded)) => Ok(decoded),
        Some(Err(error)) => decode::decode(body, Format::Yaml).map_err(|_| error),
        None => decode::decode(body, Format::Yaml),
    };
    decoded.map_err(|error| ApiError::bad_request(error.to_string()))
}

/// Decodes a body in the format of its Content-Type.
///
/// # Errors
/// 415 for an unsupported format (protobuf is supported for few kinds); 400 for a body that is not in its format.
pub fn decode_body(parsed: &Parsed, body: &[u8]) -> Result<Decoded, ApiError> {
    let format = content_type_of_body(parsed.header(CONTENT_TYPE))?;
    if format == BodyFormat::Protobuf && !takes_protobuf(parsed.target()) {
        let accepted = [Format::Json, Format::Yaml].map(Format::media_type);
        return Err(ApiError::unsupported_media_type(&accepted));
    }
    decode::decode_body(body, format).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// Whether a body for this target can be protobuf: the options of a deletion, and the kinds with known field numbers.
/// Typed Go clients send only protobuf for kinds of Kubernetes.
fn takes_protobuf(target: &Target) -> bool {
    let target = match target {
        Target::Resource(target) => target,
        // Of requests to a target, only access reviews are decoded.
        Target::Gateway(_) => return true,
        Target::Document(_) | Target::Nothing => return false,
    };
    let sent = target.action.and_then(|action| action.request).unwrap_or(target.requested()).info();
    matches!(target.verb, Verb::Delete | Verb::DeleteCollection)
        || decode::reads_protobuf(sent.version, sent.kind)
}

/// The object in a decoded body, with the warnings about it.
///
/// # Errors
/// 400 when it is not an object of the kind. Strict validation also rejects unknown and duplicate fields. 422 for an
/// unknown field that could be a value of a secret.
pub fn object_of(
    kind: &dyn AnyKind,
    decoded: Decoded,
    part: Part,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    let Decoded { mut value, duplicates } = decoded;
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let written = Written { kind, name: &name, part };
    let problems = FieldProblems::take(written, &mut value, duplicates)?;
    let warnings = problems.validated(validation).map_err(|reason| unreadable(kind, &reason))?;
    let finished = finish(kind, value, warnings)?;
    problems.check_values(kind, &name)?;
    Ok(finished)
}

/// The object in a patched value, with the warnings about it. An error refers to the patch. Its message does not contain
/// the object, which may have secrets.
///
/// # Errors
/// 422 under strict validation; 400 when it is not an object of the kind.
pub fn patched_object_of(
    written: Written<'_>,
    mut value: Value,
    duplicates: &[String],
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    let Written { kind, name, .. } = written;
    let problems = FieldProblems::take(written, &mut value, duplicates.to_vec())?;
    let warnings =
        problems.validated(validation).map_err(|reason| bad_patch(kind, name, reason))?;
    let finished = finish(kind, value, warnings)?;
    problems.check_values(kind, name)?;
    Ok(finished)
}

fn bad_patch(kind: &dyn AnyKind, name: &str, reason: String) -> ApiError {
    let mut errors = FieldErrors::default();
    errors.push(FieldError::invalid("patch", BadValue::Omitted, reason));
    ApiError::invalid(kind.info().group_kind(), name, errors)
}

/// The configuration of an apply to the object with this name, and the warnings about it. The configuration may omit the
/// name.
///
/// # Errors
/// 400 when it is for an object of another kind or name, or has `managedFields`; 422 when it does
/// not match the schema. An unknown field is 422 with every level of validation, as in
/// kube-apiserver: the manager of the apply expects to own it. Strict validation also rejects
/// duplicate fields with 422.
pub fn configuration_of(
    written: Written<'_>,
    decoded: Decoded,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    let Written { kind, name, .. } = written;
    let Decoded { mut value, duplicates } = decoded;
    check_type(kind, &value)?;
    let metadata = &value["metadata"];
    if !metadata["managedFields"].is_null() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let sent = metadata["name"].as_str().unwrap_or_default();
    if !sent.is_empty() && sent != name {
        let sent: String = sent.chars().take(MAX_REPEATED_CHARS).collect();
        return Err(ApiError::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({name})"
        )));
    }
    let problems = FieldProblems::take(written, &mut value, duplicates)?;
    let mut warnings =
        problems.validated(validation).map_err(|reason| bad_patch(kind, name, reason))?;
    if let Err(TypeMismatch { path, expected, found }) = kind.schema().check_types(&value) {
        let mut errors = FieldErrors::default();
        errors.push(FieldError::type_invalid(path, format!("expected {expected}, got {found}")));
        return Err(ApiError::invalid(kind.info().group_kind(), name, errors));
    }
    problems.check_declared(kind, name)?;
    errors_to_result(kind, name, check_lists(&value, kind.schema()))?;
    let mut object = Object::from_value(value).map_err(|reason| bad_patch(kind, name, reason))?;
    warnings.extend(dedup_owner_references(&mut object.metadata));
    warnings.extend(kind.warnings(&object.metadata));
    Ok((object, warnings))
}

/// Checks that a configuration has this kind.
fn check_type(kind: &dyn AnyKind, value: &Value) -> Result<(), ApiError> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, sent) = (text("apiVersion"), text("kind"));
    let info = kind.info();
    if sent == info.kind && info.version.matches(version) {
        return Ok(());
    }
    // The format of Go for a group, version and kind.
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    let invalid = format!("{version}, Kind={sent}");
    let invalid: String = invalid.chars().take(MAX_REPEATED_CHARS).collect();
    Err(ApiError::bad_request(format!("invalid object type: {invalid}")))
}

/// Checks that a merge patch does not remove a field that must not be null. A removed scope would mean no scope.
///
/// # Errors
/// 422 with the field.
pub fn check_patch_is_strict(
    kind: &dyn AnyKind,
    name: &str,
    patch: &Value,
) -> Result<(), ApiError> {
    errors_to_result(kind, name, kind.info().strict_fields().nulls_in_patch(patch))
}

fn errors_to_result(kind: &dyn AnyKind, name: &str, errors: FieldErrors) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(kind.info().group_kind(), name, errors))
}

fn finish(
    kind: &dyn AnyKind,
    value: Value,
    mut warnings: Vec<String>,
) -> Result<(Object, Vec<String>), ApiError> {
    let mut object = typed(kind, value)?;
    warnings.extend(dedup_owner_references(&mut object.metadata));
    warnings.extend(kind.warnings(&object.metadata));
    Ok((object, warnings))
}

/// The target of a write.
#[derive(Clone, Copy)]
pub struct Written<'a> {
    /// The kind.
    pub kind: &'a dyn AnyKind,
    /// The name of the object.
    pub name: &'a str,
    /// The part that is written.
    pub part: Part,
}

/// The unknown and duplicate fields of a sent object.
struct FieldProblems {
    unknown: Vec<String>,
    duplicates: Vec<String>,
}

impl FieldProblems {
    /// Removes unknown fields. Those in a status that this write drops are no problem.
    ///
    /// # Errors
    /// 422 for fields that are always strict, independently of the client's `fieldValidation`.
    fn take(
        written: Written<'_>,
        value: &mut Value,
        duplicates: Vec<String>,
    ) -> Result<Self, ApiError> {
        let Written { kind, name, part } = written;
        let (strict, schema) = (kind.info().strict_fields(), kind.schema());
        let mut errors = kind.info().take_unserved(value);
        errors.extend(strict.nulls(schema, value));
        let mut unknown = schema.prune_unknown(value);
        errors.extend(strict.ignored(schema, &unknown, &duplicates));
        errors_to_result(kind, name, errors)?;
        if part == Part::Main && kind.info().layout == Layout::SpecAndStatus {
            unknown.retain(|path| !path.starts_with(IN_STATUS));
        }
        Ok(Self { unknown, duplicates })
    }

    /// The warnings about unknown and duplicate fields, or the error under strict validation.
    fn validated(&self, validation: FieldValidation) -> Result<Vec<String>, String> {
        let unknown = self.unknown.iter().map(|path| format!("unknown field \"{path}\""));
        let duplicates = self.duplicates.iter().map(|path| format!("duplicate field \"{path}\""));
        let problems: Vec<String> = unknown.chain(duplicates).collect();
        match validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Strict if !problems.is_empty() => {
                Err(format!("strict decoding error: {}", problems.join(", ")))
            }
            FieldValidation::Warn | FieldValidation::Strict => Ok(problems),
        }
    }

    /// Checks that no unknown field could be a value of a secret: it would be lost in silence.
    fn check_values(&self, kind: &dyn AnyKind, name: &str) -> Result<(), ApiError> {
        let lost = kind.info().strict_fields().lost_values(kind.schema(), &self.unknown);
        errors_to_result(kind, name, lost)
    }

    /// Checks that a configuration has no unknown field.
    fn check_declared(&self, kind: &dyn AnyKind, name: &str) -> Result<(), ApiError> {
        let mut errors = kind.info().strict_fields().lost_values(kind.schema(), &self.unknown);
        if errors.is_empty() {
            for path in &self.unknown {
                errors.push(FieldError::forbidden(path, UNDECLARED));
            }
        }
        errors_to_result(kind, name, errors)
    }
}

fn typed(kind: &dyn AnyKind, mut value: Value) -> Result<Object, ApiError> {
    let info = kind.info();
    let Value::Object(fields) = &mut value else {
        return Err(unreadable(kind, "the body is not an object"));
    };
    let version = info.version.to_string();
    infer(fields, "apiVersion", &version).map_err(|sent| {
        ApiError::bad_request(format!(
            "the API version in the data ({sent}) does not match the expected API version \
             ({version})"
        ))
    })?;
    infer(fields, "kind", info.kind).map_err(|sent| {
        ApiError::bad_request(format!(
            "the kind in the data ({sent}) does not match the expected kind ({})",
            info.kind
        ))
    })?;
    if let Err(mismatch) = kind.schema().check_types(&value) {
        return Err(unreadable(kind, &mismatch.to_string()));
    }
    Object::from_value(value).map_err(|reason| unreadable(kind, &reason))
}

/// Sets an empty field to its value from the path. The error is the different value that was sent.
fn infer(
    fields: &mut serde_json::Map<String, Value>,
    field: &str,
    expected: &str,
) -> Result<(), String> {
    match fields.get(field) {
        None | Some(Value::Null) => {}
        Some(Value::String(sent)) if sent.is_empty() => {}
        Some(Value::String(sent)) if sent == expected => return Ok(()),
        Some(Value::String(sent)) => return Err(sent.chars().take(MAX_REPEATED_CHARS).collect()),
        Some(_) => return Err("not a string".to_owned()),
    }
    fields.insert(field.to_owned(), Value::String(expected.to_owned()));
    Ok(())
}

fn unreadable(kind: &dyn AnyKind, reason: &str) -> ApiError {
    let info = kind.info();
    ApiError::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {kind}: {reason}",
        kind = info.kind,
        version = info.version.version,
    ))
}
