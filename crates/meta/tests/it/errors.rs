//! `docs/reference/errors.md`, compared with the errors that there are: each code has a row, with its reasons.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use postern_meta::gvk::{GroupKind, GroupResource};
use postern_meta::{ApiError, FieldErrors, Format, Reason, decode};

const PAGE: &str = include_str!("../../../../docs/reference/errors.md");

/// The status that the gateway sends on its own. It is no error of this crate.
const OF_GATEWAY: u16 = 502;

/// The first cells of the table of status codes, each with its codes.
fn rows() -> Vec<(Vec<u16>, &'static str)> {
    let section = PAGE.split("## Status codes").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let codes = |cell: &str| -> Vec<u16> {
        cell.split([' ', ',']).filter_map(|word| word.parse().ok()).collect()
    };
    cells.map(|cell| (codes(cell), cell)).filter(|(codes, _)| !codes.is_empty()).collect()
}

/// One error of each code and reason.
fn errors() -> Vec<ApiError> {
    let resource = GroupResource { group: "g", resource: "things" };
    let kind = GroupKind { group: "g", kind: "Thing" };
    vec![
        ApiError::bad_request("m"),
        ApiError::unauthorized(""),
        ApiError::forbidden(resource, "a", "m"),
        ApiError::namespace_terminating(resource, "a", "n"),
        ApiError::not_found(resource, "a"),
        ApiError::resource_not_served(),
        ApiError::method_not_allowed(resource, "m"),
        ApiError::not_acceptable(&["application/json"]),
        ApiError::already_exists(resource, "a"),
        ApiError::conflict(resource, "a", "m"),
        ApiError::apply_conflict("m".to_owned(), Vec::new()),
        ApiError::expired("m"),
        ApiError::request_entity_too_large("m"),
        ApiError::body_too_large(1),
        ApiError::unsupported_media_type(&["application/json"]),
        ApiError::invalid(kind, "a", FieldErrors::new()),
        ApiError::unprocessable("m"),
        ApiError::too_many_requests("m", 1),
        ApiError::internal("m", "inner"),
        ApiError::unavailable("m", None),
        ApiError::timeout("m"),
        ApiError::too_large_resource_version(2, 1),
    ]
}

#[test]
fn the_reference_has_a_row_for_each_code_and_names_its_reasons() {
    let rows = rows();
    for error in errors() {
        let (code, reason) = (error.code(), error.reason().as_str());
        let of_code = rows.iter().filter(|(codes, _)| codes.contains(&code));
        let cells: Vec<_> = of_code.map(|(_, cell)| *cell).collect();
        assert!(!cells.is_empty(), "docs/reference/errors.md has no row for {code}");
        // A row of several codes has no reasons: there is one for each code.
        let names_it = |cell: &&str| cell.contains(reason) || cell.contains("406");
        assert!(cells.iter().any(names_it), "docs/reference/errors.md: no {reason} in {cells:?}");
    }
}

#[test]
fn the_reference_has_no_row_for_a_code_that_is_never_sent() {
    let sent: Vec<_> = errors().iter().map(ApiError::code).chain([OF_GATEWAY]).collect();
    for (codes, cell) in rows() {
        assert!(codes.iter().all(|code| sent.contains(code)), "docs/reference/errors.md: {cell}");
    }
}

/// The example of the page is an error as the server sends it.
#[test]
fn the_example_in_the_reference_is_a_status() {
    let example = PAGE.split("```json\n").nth(1).unwrap().split("\n```").next().unwrap();
    let resource = GroupResource { group: "management.platform.sh", resource: "sharedsecrets" };
    let error = ApiError::not_found(resource, "db");
    assert_eq!(error.reason(), Reason::NotFound);
    let sent = serde_json::to_value(error.status()).unwrap();
    assert_eq!(decode(example.as_bytes(), Format::Json).unwrap().value, sent);
}
