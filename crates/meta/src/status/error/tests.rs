//! The code, reason and text of every error, as in the wire contract (1.9).

use serde_json::json;

use super::*;
use crate::field::FieldError;

const SECRETS: GroupResource = GroupResource::new("management.platform.sh", "sharedsecrets");
const SECRET: GroupKind = GroupKind::new("management.platform.sh", "SharedSecret");

#[test]
fn texts_codes_and_reasons() {
    let cases = [
        (ApiError::bad_request("no"), 400, Reason::BadRequest, "no"),
        (ApiError::unauthorized(""), 401, Reason::Unauthorized, "Unauthorized"),
        (ApiError::unauthorized("key expired"), 401, Reason::Unauthorized, "key expired"),
        (
            ApiError::forbidden(SECRETS, "s1", "User \"u\" cannot get resource"),
            403,
            Reason::Forbidden,
            "sharedsecrets.management.platform.sh \"s1\" is forbidden: User \"u\" cannot get \
             resource",
        ),
        (
            ApiError::forbidden(SECRETS, "", "User \"<b>&\" cannot list"),
            403,
            Reason::Forbidden,
            "sharedsecrets.management.platform.sh is forbidden: User \"&lt;b&gt;&amp;\" cannot \
             list",
        ),
        (
            ApiError::forbidden_path("u", "get", "/x"),
            403,
            Reason::Forbidden,
            "forbidden: User \"u\" cannot get path \"/x\"",
        ),
        (
            ApiError::namespace_terminating(SECRETS, "s1", "n"),
            403,
            Reason::Forbidden,
            "sharedsecrets.management.platform.sh \"s1\" is forbidden: unable to create new \
             content in namespace n because it is being terminated",
        ),
        (
            ApiError::not_found(SECRETS, "s1"),
            404,
            Reason::NotFound,
            "sharedsecrets.management.platform.sh \"s1\" not found",
        ),
        (
            ApiError::resource_not_served(),
            404,
            Reason::NotFound,
            "the server could not find the requested resource",
        ),
        (
            ApiError::method_not_allowed(SECRETS, "patch"),
            405,
            Reason::MethodNotAllowed,
            "patch is not supported on resources of kind \
             \"sharedsecrets.management.platform.sh\"",
        ),
        (
            ApiError::not_acceptable(&["application/json", "application/yaml"]),
            406,
            Reason::NotAcceptable,
            "only the following media types are accepted: application/json, application/yaml",
        ),
    ];
    check(&cases);
}

#[test]
fn texts_codes_and_reasons_of_state_and_server() {
    let cases = [
        (
            ApiError::already_exists(SECRETS, "s1"),
            409,
            Reason::AlreadyExists,
            "sharedsecrets.management.platform.sh \"s1\" already exists",
        ),
        (
            ApiError::already_exists_deleting(SECRETS, "s1"),
            409,
            Reason::AlreadyExists,
            "object is being deleted: sharedsecrets.management.platform.sh \"s1\" already exists",
        ),
        (
            ApiError::generate_name_conflict(SECRETS, "s1"),
            409,
            Reason::AlreadyExists,
            "sharedsecrets.management.platform.sh \"s1\" already exists, the server was not able \
             to generate a unique name for the object",
        ),
        (
            ApiError::conflict_modified(SECRETS, "s1"),
            409,
            Reason::Conflict,
            "Operation cannot be fulfilled on sharedsecrets.management.platform.sh \"s1\": the \
             object has been modified; please apply your changes to the latest version and try \
             again",
        ),
        (ApiError::expired("x"), 410, Reason::Expired, "x"),
        (ApiError::expired_continue("t".into()), 410, Reason::Expired, CONTINUE_EXPIRED),
        (
            ApiError::body_too_large(3_145_728),
            413,
            Reason::RequestEntityTooLarge,
            "Request entity too large: limit is 3145728",
        ),
        (
            ApiError::unsupported_media_type(&["application/json", "application/yaml"]),
            415,
            Reason::UnsupportedMediaType,
            "the body of the request was in an unknown format - accepted media types include: \
             application/json, application/yaml",
        ),
        (
            ApiError::unprocessable("operation 0"),
            422,
            Reason::Invalid,
            "the server rejected our request due to an error in our request",
        ),
        (ApiError::too_many_requests("slow", 2), 429, Reason::TooManyRequests, "slow"),
        (
            ApiError::internal("storage", "disk on fire"),
            500,
            Reason::InternalError,
            "Internal error occurred: storage",
        ),
        (ApiError::unavailable("sealed", None), 503, Reason::ServiceUnavailable, "sealed"),
        (ApiError::timeout("x"), 504, Reason::Timeout, "Timeout: x"),
        (
            ApiError::too_large_resource_version(9, 5),
            504,
            Reason::Timeout,
            "Timeout: Too large resource version: 9, current: 5",
        ),
    ];
    check(&cases);
}

fn check(cases: &[(ApiError, u16, Reason, &str)]) {
    for (error, code, reason, message) in cases {
        assert_eq!(error.code(), *code);
        assert_eq!(error.reason(), *reason);
        assert_eq!(error.to_string(), *message);
        let value = serde_json::to_value(error.status()).unwrap();
        assert_eq!(value["status"], "Failure");
        assert!(value["metadata"].is_object());
        assert_eq!(value["code"], json!(code));
    }
}

#[test]
fn the_whole_shape_of_a_failure() {
    assert_eq!(
        serde_json::to_value(ApiError::not_found(SECRETS, "s1").status()).unwrap(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "sharedsecrets.management.platform.sh \"s1\" not found",
            "reason": "NotFound",
            "details": {"name": "s1", "group": "management.platform.sh", "kind": "sharedsecrets"},
            "code": 404,
        })
    );
}

#[test]
fn invalid_objects_carry_a_cause_for_each_field() {
    let mut errors = FieldErrors::new();
    errors.push(FieldError::invalid("spec.data[a b]", "a b", "a valid config key must"));
    errors.push(FieldError::required("metadata.name", ""));
    let error = ApiError::invalid(SECRET, "s1", errors);
    assert_eq!(error.code(), 422);
    assert_eq!(
        error.to_string(),
        "SharedSecret.management.platform.sh \"s1\" is invalid: [spec.data[a b]: Invalid value: \
         \"a b\": a valid config key must, metadata.name: Required value]"
    );
    assert_eq!(
        serde_json::to_value(error.status().details.as_ref()).unwrap(),
        json!({
            "name": "s1", "group": "management.platform.sh", "kind": "SharedSecret",
            "causes": [
                {"reason": "FieldValueInvalid", "field": "spec.data[a b]",
                 "message": "Invalid value: \"a b\": a valid config key must"},
                {"reason": "FieldValueRequired", "field": "metadata.name",
                 "message": "Required value"},
            ],
        })
    );
}

#[test]
fn retry_after_is_set_where_a_retry_can_succeed() {
    assert_eq!(ApiError::too_many_requests("x", 3).retry_after_seconds(), Some(3));
    assert_eq!(ApiError::unavailable("x", Some(2)).retry_after_seconds(), Some(2));
    assert_eq!(ApiError::unavailable("x", None).retry_after_seconds(), None);
    assert_eq!(ApiError::too_large_resource_version(2, 1).retry_after_seconds(), Some(1));
    assert_eq!(ApiError::generate_name_conflict(SECRETS, "a").retry_after_seconds(), Some(1));
    assert_eq!(ApiError::bad_request("x").retry_after_seconds(), None);
}

#[test]
fn causes_of_terminating_namespaces_and_future_revisions() {
    let error = ApiError::namespace_terminating(SECRETS, "a", "n");
    let cause = &error.status().details.as_ref().unwrap().causes[0];
    assert_eq!(
        (cause.reason.as_str(), cause.message.as_str(), cause.field.as_str()),
        ("NamespaceTerminating", "namespace n is being terminated", "metadata.namespace")
    );
    let error = ApiError::too_large_resource_version(2, 1);
    let cause = &error.status().details.as_ref().unwrap().causes[0];
    assert_eq!(cause.reason, "ResourceVersionTooLarge");
}

#[test]
fn the_inner_message_is_for_the_log_only() {
    let error = ApiError::internal("storage", "s3cr3t");
    assert_eq!(error.inner(), Some("s3cr3t"));
    assert!(!serde_json::to_string(error.status()).unwrap().contains("s3cr3t"));
    assert!(!error.to_string().contains("s3cr3t"));
    assert!(format!("{error:?}").contains("s3cr3t"));
}

#[test]
fn the_new_token_is_in_the_list_metadata() {
    let value = serde_json::to_value(ApiError::expired_continue("t".into()).status()).unwrap();
    assert_eq!(value["metadata"], json!({"continue": "t"}));
}
