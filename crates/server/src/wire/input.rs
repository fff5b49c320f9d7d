//! Reading what clients send: the body within its limit, and an object out of it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use postern_kinds::AnyKind;
use postern_meta::accept::content_type_of_body;
use postern_meta::decode::{self, Decoded};
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::options::FieldValidation;
use postern_meta::status::ApiError;
use postern_meta::validate::dedup_owner_references;
use serde_json::Value;

use crate::stages::parse::Parsed;

/// Bytes in a request's body, as in kube-apiserver.
pub(crate) const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Bytes that are set aside for a body which is only announced so far.
const MAX_RESERVED_BYTES: usize = 64 * 1024;

/// Bytes of a body that is too large which are still read, and how long.
const MAX_DISCARDED_BYTES: usize = 2 * MAX_BODY_BYTES;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// A request's body, of which a copy is kept when the audit log wants it.
pub(crate) struct Received {
    incoming: Incoming,
    copy: Option<Arc<OnceLock<Bytes>>>,
}

impl Received {
    /// The body as it comes in, and where a copy is to go.
    pub(crate) fn new(incoming: Incoming, copy: Option<Arc<OnceLock<Bytes>>>) -> Self {
        Self { incoming, copy }
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// 413 above the limit, as soon as that is known; 400 when the client breaks off.
    pub(crate) async fn read(self) -> Result<Bytes, ApiError> {
        let whole = read(self.incoming).await?;
        if let Some(copy) = self.copy {
            // It is read once.
            let _ = copy.set(whole.clone());
        }
        Ok(whole)
    }
}

async fn read(mut body: Incoming) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::body_too_large(MAX_BODY_BYTES);
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        discard(body).await;
        return Err(too_large());
    }
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(0);
    let mut whole = BytesMut::with_capacity(announced.min(MAX_RESERVED_BYTES));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request("the body broke off before its end").with_inner(error)
        })?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > MAX_BODY_BYTES {
                discard(body).await;
                return Err(too_large());
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

/// Reads on for a while what is thrown away: a client that is still sending would else see its
/// connection break instead of the answer.
async fn discard(mut body: Incoming) {
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > MAX_DISCARDED_BYTES {
                return;
            }
        }
    };
    // Whether it came to its end makes no difference.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, read).await;
}

/// Decodes a body in the format that its Content-Type names.
///
/// # Errors
/// 415 for a format that is not read, 400 for a body that is not in it.
pub(crate) fn decode_body(parsed: &Parsed, body: &[u8]) -> Result<Decoded, ApiError> {
    let format = content_type_of_body(parsed.header(CONTENT_TYPE))?;
    decode::decode_body(body, format).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// An object out of a decoded body, with the warnings that reading it gave.
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
    let findings = findings(kind, &mut value, &duplicates);
    let warnings = judged(findings, validation).map_err(|reason| unreadable(kind, &reason))?;
    finish(kind, value, warnings)
}

/// An object out of a patched one: what is wrong with it is the patch's fault, and said without
/// the object, which holds secrets.
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
    let findings = findings(kind, &mut value, duplicates);
    let warnings = judged(findings, validation).map_err(|reason| {
        let mut errors = FieldErrors::default();
        errors.push(FieldError::invalid("patch", BadValue::Omitted, reason));
        ApiError::invalid(kind.info().group_kind(), name, errors)
    })?;
    finish(kind, value, warnings)
}

/// What becomes of unknown and duplicate fields: nothing, warnings, or the reason to refuse.
fn judged(findings: Vec<String>, validation: FieldValidation) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !findings.is_empty() => {
            Err(format!("strict decoding error: {}", findings.join(", ")))
        }
        FieldValidation::Warn | FieldValidation::Strict => Ok(findings),
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

/// Takes out what the schema does not know, and says what that was.
fn findings(kind: &dyn AnyKind, value: &mut Value, duplicates: &[String]) -> Vec<String> {
    let unknown = kind.schema().prune_unknown(value);
    let unknown = unknown.iter().map(|path| format!("unknown field \"{path}\""));
    unknown.chain(duplicates.iter().map(|path| format!("duplicate field \"{path}\""))).collect()
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

/// Fills in what the endpoint says anyway; answers what was sent if that is something else.
fn infer(
    fields: &mut serde_json::Map<String, Value>,
    field: &str,
    expected: &str,
) -> Result<(), String> {
    match fields.get(field) {
        None | Some(Value::Null) => {}
        Some(Value::String(sent)) if sent.is_empty() => {}
        Some(Value::String(sent)) if sent == expected => return Ok(()),
        Some(Value::String(sent)) => return Err(sent.chars().take(128).collect()),
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
