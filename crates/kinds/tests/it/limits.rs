//! `docs/reference/limits.md`, compared with the limits of the kinds and of metadata, decoding and patches. Limits of
//! the server, such as those of connections, are not here.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use postern_kinds::access::{MAX_ACCESS_ENTRIES, MAX_GRANTEES};
use postern_kinds::connector::MAX_CLUSTER_GROUPS;
use postern_kinds::kubeconfig::MAX_KUBECONFIG_BYTES;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project::{MAX_CLUSTERS, MAX_MEMBER_ROLES, MAX_MEMBERS};
use postern_kinds::scope::MAX_SCOPE_ENTRIES;
use postern_kinds::shared_secret::MAX_DATA_BYTES;
use postern_kinds::user::MAX_TEAMS_LEFT;
use postern_kinds::{AnyKind as _, access_key};
use postern_meta::apply::MAX_UPDATE_MANAGERS;
use postern_meta::continue_token::MAX_TOKEN_BYTES;
use postern_meta::decode::{MAX_DEPTH, MAX_JSON_NODES, MAX_YAML_DEPTH, MAX_YAML_NODES};
use postern_meta::field::MAX_FIELD_ERRORS;
use postern_meta::names::{
    CONFIG_MAP_KEY_MAX_BYTES, DNS1123_LABEL_MAX_BYTES, DNS1123_SUBDOMAIN_MAX_BYTES,
    GENERATE_NAME_PREFIX_MAX_BYTES,
};
use postern_meta::options::{MAX_PARAMETERS, MAX_QUERY_BYTES};
use postern_meta::patch::{MAX_OPERATIONS, MAX_RESULT_BYTES};
use postern_meta::validate::{MAX_ANNOTATIONS_BYTES, MAX_FINALIZERS, MAX_LABELS, MAX_OWNERS};

const PAGE: &str = include_str!("../../../../docs/reference/limits.md");

/// The second cell of a row.
fn limit_of(row: &str) -> &'static str {
    let start = format!("| {row} | ");
    let line = PAGE.lines().find_map(|line| line.strip_prefix(&start));
    let line = line.unwrap_or_else(|| panic!("docs/reference/limits.md has no row `{row}`"));
    line.split(" | ").next().unwrap()
}

fn bytes(count: usize) -> String {
    const MIB: usize = 1024 * 1024;
    match count {
        _ if count >= MIB && count.is_multiple_of(MIB) => format!("{} MiB", count / MIB),
        _ if count >= 4096 && count.is_multiple_of(1024) => format!("{} KiB", count / 1024),
        _ => format!("{count} bytes"),
    }
}

/// A count with commas, from ten thousand on.
fn count(number: usize) -> String {
    let text = number.to_string();
    if text.len() < 5 {
        return text;
    }
    let (head, tail) = text.split_at(text.len() - 3);
    format!("{head},{tail}")
}

#[test]
fn the_limits_of_requests_are_in_the_reference() {
    for (row, limit) in [
        ("query", format!("{}, {MAX_PARAMETERS} parameters", bytes(MAX_QUERY_BYTES))),
        ("nesting of JSON, YAML", format!("{MAX_DEPTH}, {MAX_YAML_DEPTH}")),
        (
            "values in a JSON, YAML body",
            format!("{}, {}", count(MAX_JSON_NODES), count(MAX_YAML_NODES)),
        ),
        ("operations in a JSON Patch", count(MAX_OPERATIONS)),
        ("result of a patch", bytes(MAX_RESULT_BYTES)),
        ("continue token", bytes(MAX_TOKEN_BYTES)),
        ("field errors in one response", count(MAX_FIELD_ERRORS)),
    ] {
        assert_eq!(limit_of(row), limit, "docs/reference/limits.md: {row}");
    }
}

#[test]
fn the_limits_of_objects_are_in_the_reference() {
    let entries =
        format!("{MAX_ACCESS_ENTRIES}; {MAX_GRANTEES} users and {MAX_GRANTEES} teams each");
    let (name, namespace) = (DNS1123_SUBDOMAIN_MAX_BYTES, DNS1123_LABEL_MAX_BYTES);
    for (row, limit) in [
        ("decoded `spec.data`", bytes(MAX_DATA_BYTES)),
        ("data key", format!("{CONFIG_MAP_KEY_MAX_BYTES} characters")),
        ("`spec.access` entries", entries),
        ("scope entries", count(MAX_SCOPE_ENTRIES)),
        ("`spec.clusterGroups` entries", count(MAX_CLUSTER_GROUPS)),
        ("annotations", bytes(MAX_ANNOTATIONS_BYTES)),
        (
            "labels, finalizers, owner references",
            format!("{MAX_LABELS}, {MAX_FINALIZERS}, {MAX_OWNERS}"),
        ),
        ("OwnedAccessKey", bytes(OwnedAccessKey.info().max_bytes.unwrap())),
        ("members of a project, their roles", format!("{MAX_MEMBERS}, {MAX_MEMBER_ROLES}")),
        ("allowed clusters of a project", count(MAX_CLUSTERS)),
        ("teams of a user that is deleted", count(MAX_TEAMS_LEFT)),
        ("kubeconfig", bytes(MAX_KUBECONFIG_BYTES)),
        ("name, namespace", format!("{name}, {namespace} characters")),
        ("`generateName` prefix", bytes(GENERATE_NAME_PREFIX_MAX_BYTES)),
    ] {
        assert_eq!(limit_of(row), limit, "docs/reference/limits.md: {row}");
    }
    // How many managers can apply is a limit of the server.
    let managers = limit_of("managers that apply, that update");
    assert!(managers.ends_with(&format!(", {MAX_UPDATE_MANAGERS}")), "{managers}");
}

/// The test vector for authors of secret scanners, and the lengths of keys that clients choose.
#[test]
fn the_format_of_access_keys_is_in_the_reference() {
    use postern_kinds::owned_access_key::{MAX_KEY_CHARS, MIN_KEY_CHARS};
    let page = include_str!("../../../../docs/reference/access-keys.md");
    let vector = page.split("Test vector: `").nth(1).unwrap().split('`').next().unwrap();
    assert!(access_key::is_well_formed(vector), "{vector}");
    let lengths = format!("a value of {MIN_KEY_CHARS} to {MAX_KEY_CHARS} printable ASCII");
    assert!(page.contains(&lengths), "docs/reference/access-keys.md: {lengths}");
}
