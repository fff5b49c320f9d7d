//! Reads what clients send: the body within its limit, and the object in it.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use postern_flow::budget::Charge;
use postern_kinds::{AnyKind, Verb};
use postern_meta::accept::{PatchType, content_type_of_body, patch_type};
use postern_meta::apply::check_lists;
use postern_meta::decode::{self, BodyFormat, Decoded, Format};
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::options::FieldValidation;
use postern_meta::schema::TypeMismatch;
use postern_meta::status::ApiError;
use postern_meta::validate::dedup_owner_references;
use serde_json::Value;

use super::incoming::IncomingBody;
use crate::stages::parse::{Parsed, Target};

/// The longest body of a request, in bytes, as in kube-apiserver.
pub(crate) const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// The most bytes that are allocated for the announced length of a body.
const MAX_RESERVED_BYTES: usize = 64 * 1024;

/// The bytes that a body counts at least: a request that waits for one takes some memory, too.
const MIN_COUNTED_BYTES: usize = 4096;

/// The most characters of a name or type that an error repeats.
const MAX_REPEATED_CHARS: usize = 128;

/// Seconds after which a client may try again, when there was no room for its body.
const RETRY_AFTER_SECONDS: u32 = 1;

/// A request's body. A copy is kept when the audit policy wants it.
pub(crate) struct RequestBody {
    incoming: IncomingBody,
    copy: Option<Arc<OnceLock<Bytes>>>,
}

/// A whole body, which is counted against its owner as long as it is kept.
pub(crate) struct ReceivedBody {
    bytes: Bytes,
    _charge: Option<Charge>,
}

impl ReceivedBody {
    /// The body of a request that has none, or whose body is not read.
    pub(crate) fn none() -> Self {
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
    /// A body that has not been read yet; a copy is put into `copy`.
    pub(crate) fn new(incoming: IncomingBody, copy: Option<Arc<OnceLock<Bytes>>>) -> Self {
        Self { incoming, copy }
    }

    /// The body as it comes in, to be sent on.
    pub(crate) fn into_incoming(self) -> IncomingBody {
        self.incoming
    }

    /// All bytes of the body. They are counted as they come in.
    ///
    /// # Errors
    /// 413 above the limit, as soon as that is known; 400 when the client stops before the end; 429
    /// when too many bytes are on their way.
    pub(crate) async fn read(self, charge: Charge) -> Result<ReceivedBody, ApiError> {
        let received = read(self.incoming, charge).await?;
        if let Some(copy) = self.copy {
            // It cannot be set already: the body is read once.
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
            // Space grows to twice what there is, so that no byte is copied many times.
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
    let message = "too many bytes of requests are on their way, please try again later";
    Err(ApiError::too_many_requests(message, RETRY_AFTER_SECONDS))
}

/// Whether a body can be YAML, by its Content-Type. That of an apply can, whatever it looks like.
pub(crate) fn can_be_yaml(parsed: &Parsed) -> bool {
    let header = parsed.header(CONTENT_TYPE);
    patch_type(header, &[PatchType::Apply]).is_ok()
        || content_type_of_body(header).is_ok_and(|format| format == BodyFormat::Text(Format::Yaml))
}

fn looks_like_json(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'{')
}

/// The configuration of an apply, decoded. JSON is YAML, too, but read faster and within the
/// limits of JSON: so it is tried first where the body looks like it.
///
/// # Errors
/// 400 for a body that is neither.
pub(crate) fn decode_configuration(body: &[u8]) -> Result<Decoded, ApiError> {
    let json = looks_like_json(body).then(|| decode::decode(body, Format::Json));
    let decoded = match json {
        Some(Ok(decoded)) => Ok(decoded),
        Some(Err(error)) => decode::decode(body, Format::Yaml).map_err(|_| error),
        None => decode::decode(body, Format::Yaml),
    };
    decoded.map_err(|error| ApiError::bad_request(error.to_string()))
}

/// A body, decoded in the format that its Content-Type names.
///
/// # Errors
/// 415 for a format that is not supported, which protobuf is for few kinds only; 400 for a body that
/// is not in its format.
pub(crate) fn decode_body(parsed: &Parsed, body: &[u8]) -> Result<Decoded, ApiError> {
    let format = content_type_of_body(parsed.header(CONTENT_TYPE))?;
    if format == BodyFormat::Protobuf && !takes_protobuf(parsed.target()) {
        let accepted = [Format::Json, Format::Yaml].map(Format::media_type);
        return Err(ApiError::unsupported_media_type(&accepted));
    }
    decode::decode_body(body, format).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// Whether what is sent there can be protobuf: the options of a deletion, and the kinds whose
/// fields are known by number. Typed Go clients send nothing else for kinds of Kubernetes' own.
fn takes_protobuf(target: &Target) -> bool {
    let target = match target {
        Target::Resource(target) => target,
        // Of what goes to a target, only reviews are read.
        Target::Gateway(_) => return true,
        Target::Document(_) | Target::Nothing => return false,
    };
    let sent = target.action.and_then(|action| action.request).unwrap_or(target.kind).info();
    matches!(target.verb, Verb::Delete | Verb::DeleteCollection)
        || decode::reads_protobuf(sent.version, sent.kind)
}

/// The object in a decoded body, with the warnings about it.
///
/// # Errors
/// 400 when it is no object of the kind; under strict validation also for fields that the kind
/// does not have or that appear twice.
pub(crate) fn object_of(
    kind: &dyn AnyKind,
    decoded: Decoded,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    let Decoded { mut value, duplicates } = decoded;
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let problems = field_problems(kind, &name, &mut value, &duplicates)?;
    let warnings = validated(problems, validation).map_err(|reason| unreadable(kind, &reason))?;
    finish(kind, value, warnings)
}

/// The object in a patched value, with the warnings about it. An error is one in the patch;
/// its message does not contain the object, which may have secrets.
///
/// # Errors
/// 422 under strict validation, 400 when it is no object of the kind.
pub(crate) fn patched_object_of(
    kind: &dyn AnyKind,
    name: &str,
    mut value: Value,
    duplicates: &[String],
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    let problems = field_problems(kind, name, &mut value, duplicates)?;
    let warnings =
        validated(problems, validation).map_err(|reason| bad_patch(kind, name, reason))?;
    finish(kind, value, warnings)
}

fn bad_patch(kind: &dyn AnyKind, name: &str, reason: String) -> ApiError {
    let mut errors = FieldErrors::default();
    errors.push(FieldError::invalid("patch", BadValue::Omitted, reason));
    ApiError::invalid(kind.info().group_kind(), name, errors)
}

/// The configuration of an apply, for the object of this name, with the warnings about it. It
/// may leave out the name where the object is there, which clients do.
///
/// # Errors
/// 400 when it is for an object of another kind or name, or has `managedFields`; 422 when it does
/// not fit the schema, and under strict validation for unknown and duplicate fields.
pub(crate) fn configuration_of(
    kind: &dyn AnyKind,
    name: &str,
    decoded: Decoded,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
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
    let problems = field_problems(kind, name, &mut value, &duplicates)?;
    let mut warnings =
        validated(problems, validation).map_err(|reason| bad_patch(kind, name, reason))?;
    if let Err(TypeMismatch { path, expected, found }) = kind.schema().check_types(&value) {
        let mut errors = FieldErrors::default();
        errors.push(FieldError::type_invalid(path, format!("expected {expected}, got {found}")));
        return Err(ApiError::invalid(kind.info().group_kind(), name, errors));
    }
    errors_to_result(kind, name, check_lists(&value, kind.schema()))?;
    let mut object = Object::from_value(value).map_err(|reason| bad_patch(kind, name, reason))?;
    warnings.extend(dedup_owner_references(&mut object.metadata));
    warnings.extend(kind.warnings(&object.metadata));
    Ok((object, warnings))
}

/// Checks that a configuration says that it is of this kind.
fn check_type(kind: &dyn AnyKind, value: &Value) -> Result<(), ApiError> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, sent) = (text("apiVersion"), text("kind"));
    let info = kind.info();
    if sent == info.kind && info.version.matches(version) {
        return Ok(());
    }
    // As Go writes a group, version and kind.
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    let invalid = format!("{version}, Kind={sent}");
    let invalid: String = invalid.chars().take(MAX_REPEATED_CHARS).collect();
    Err(ApiError::bad_request(format!("invalid object type: {invalid}")))
}

/// Checks that a merge patch does not remove, by a null, a field that is never null: a scope that is
/// gone is no scope.
///
/// # Errors
/// 422 which names the field.
pub(crate) fn check_patch_is_strict(
    kind: &dyn AnyKind,
    name: &str,
    patch: &Value,
) -> Result<(), ApiError> {
    errors_to_result(kind, name, kind.strict_fields().nulls_in_patch(patch))
}

fn errors_to_result(kind: &dyn AnyKind, name: &str, errors: FieldErrors) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(kind.info().group_kind(), name, errors))
}

/// The warnings about unknown and duplicate fields, or the reason to reject them.
fn validated(problems: Vec<String>, validation: FieldValidation) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !problems.is_empty() => {
            Err(format!("strict decoding error: {}", problems.join(", ")))
        }
        FieldValidation::Warn | FieldValidation::Strict => Ok(problems),
    }
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

/// Removes fields that the schema does not have. Returns a message for each of them, and for each
/// duplicate field.
///
/// # Errors
/// 422 for those that are not ignored, whatever the client asks for.
fn field_problems(
    kind: &dyn AnyKind,
    name: &str,
    value: &mut Value,
    duplicates: &[String],
) -> Result<Vec<String>, ApiError> {
    let (strict, schema) = (kind.strict_fields(), kind.schema());
    let mut errors = kind.take_unserved(value);
    errors.extend(strict.nulls(schema, value));
    let unknown = schema.prune_unknown(value);
    errors.extend(strict.ignored(schema, &unknown, duplicates));
    errors_to_result(kind, name, errors)?;
    let unknown = unknown.iter().map(|path| format!("unknown field \"{path}\""));
    let duplicates = duplicates.iter().map(|path| format!("duplicate field \"{path}\""));
    Ok(unknown.chain(duplicates).collect())
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

/// Sets a field whose value follows from the endpoint, if it is empty. The error is the value that
/// was sent, if that is another one.
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
