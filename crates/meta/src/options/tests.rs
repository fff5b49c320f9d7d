//! Every option of every request with an empty value, garbage, two values and the wrong case. An
//! option that is not understood is rejected on writes, and never decides a read. An option of
//! another request decides nothing.

use super::{
    DeleteOptions, DeletionOf, GetOptions, ListOptions, Query, Request, WriteKind, WriteOptions,
    ignored_option_warnings, known, parameter_warnings,
};
use crate::status::ApiError;

const REQUESTS: &[&str] =
    &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// The status code of a request with this query.
fn code(request: &str, query: &str) -> u16 {
    let query = if request == "watch" { format!("watch=1&{query}") } else { query.to_owned() };
    let query = Query::parse(&query).unwrap();
    outcome(request, &query).map_or_else(|error| error.code(), |()| 200)
}

fn outcome(request: &str, query: &Query) -> Result<(), ApiError> {
    let fields = &["metadata.name"];
    match request {
        "get" => GetOptions::parse(query).map(drop),
        "list" | "watch" => ListOptions::parse(query, fields).map(drop),
        "create" => WriteOptions::parse(query, WriteKind::Create).map(drop),
        "update" => WriteOptions::parse(query, WriteKind::Update).map(drop),
        "patch" => WriteOptions::parse(query, WriteKind::Patch).map(drop),
        "delete" => DeleteOptions::from_query(query, DeletionOf::Object).map(drop),
        "deletecollection" => ListOptions::parse_of_deletion(query, fields)
            .and_then(|_| DeleteOptions::from_query(query, DeletionOf::Collection))
            .map(drop),
        other => panic!("{other}"),
    }
}

/// One option: a value that is valid wherever the option applies, with what else it needs; another
/// such value; and the codes for the empty value, for garbage, and for the value in another case.
struct Row {
    name: &'static str,
    requests: &'static [&'static str],
    valid: &'static str,
    other: &'static str,
    with: &'static str,
    empty: u16,
    garbage: (&'static str, u16),
    case: (&'static str, u16),
}

fn is_read(request: &str) -> bool {
    matches!(request, "get" | "list" | "watch")
}

const READS: &[&str] = &["list", "watch", "deletecollection"];
const WRITES: &[&str] = &["create", "update", "patch"];
const DELETES: &[&str] = &["delete", "deletecollection"];
const DRY: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "dryRun", requests: DRY, valid: "All", other: "None", with: "", empty: 422, garbage: ("Some", 422), case: ("all", 422) },
    Row { name: "fieldManager", requests: WRITES, valid: "m", other: "n", with: "", empty: 200, garbage: ("%00", 422), case: ("M", 200) },
    Row { name: "fieldValidation", requests: WRITES, valid: "Strict", other: "Warn", with: "", empty: 200, garbage: ("Loud", 422), case: ("strict", 422) },
    Row { name: "gracePeriodSeconds", requests: DELETES, valid: "5", other: "6", with: "", empty: 400, garbage: ("x", 400), case: ("5S", 400) },
    Row { name: "propagationPolicy", requests: DELETES, valid: "Orphan", other: "Background", with: "", empty: 422, garbage: ("Sideways", 422), case: ("orphan", 422) },
    Row { name: "orphanDependents", requests: DELETES, valid: "true", other: "false", with: "", empty: 200, garbage: ("maybe", 400), case: ("True", 200) },
    Row { name: "uid", requests: DELETES, valid: "u", other: "v", with: "", empty: 400, garbage: ("%ZZ", 200), case: ("U", 200) },
    Row { name: "preconditions.uid", requests: DELETES, valid: "u", other: "v", with: "", empty: 400, garbage: ("%ZZ", 200), case: ("U", 200) },
    Row { name: "preconditions.resourceVersion", requests: DELETES, valid: "7", other: "8", with: "", empty: 400, garbage: ("x", 200), case: ("X", 200) },
    Row { name: "ignoreStoreReadErrorWithClusterBreakingPotential", requests: DELETES, valid: "true", other: "false", with: "", empty: 200, garbage: ("maybe", 400), case: ("TRUE", 200) },
    Row { name: "labelSelector", requests: READS, valid: "a%3Db", other: "a", with: "", empty: 200, garbage: ("a%20b", 400), case: ("A%3DB", 200) },
    Row { name: "fieldSelector", requests: READS, valid: "metadata.name%3Da", other: "metadata.name%3Db", with: "", empty: 200, garbage: ("x", 400), case: ("metadata.Name%3Da", 400) },
    Row { name: "limit", requests: READS, valid: "5", other: "6", with: "", empty: 400, garbage: ("-1", 400), case: ("5E0", 400) },
    Row { name: "continue", requests: READS, valid: "x", other: "y", with: "", empty: 200, garbage: ("%00", 200), case: ("X", 200) },
    Row { name: "resourceVersionMatch", requests: &["list", "deletecollection"], valid: "Exact", other: "NotOlderThan", with: "resourceVersion=5", empty: 200, garbage: ("Sometimes", 422), case: ("exact", 422) },
    Row { name: "resourceVersionMatch", requests: &["watch"], valid: "NotOlderThan", other: "Exact", with: "sendInitialEvents=1", empty: 422, garbage: ("Sometimes", 422), case: ("notOlderThan", 422) },
    Row { name: "sendInitialEvents", requests: &["watch"], valid: "true", other: "false", with: "resourceVersionMatch=NotOlderThan", empty: 200, garbage: ("maybe", 400), case: ("True", 200) },
    Row { name: "allowWatchBookmarks", requests: READS, valid: "true", other: "false", with: "", empty: 200, garbage: ("maybe", 400), case: ("True", 200) },
    Row { name: "extended", requests: &["get", "list", "watch", "deletecollection"], valid: "true", other: "false", with: "", empty: 200, garbage: ("maybe", 400), case: ("True", 200) },
    Row { name: "timeoutSeconds", requests: READS, valid: "5", other: "6", with: "", empty: 400, garbage: ("x", 400), case: ("5S", 400) },
    Row { name: "timeout", requests: REQUESTS, valid: "32s", other: "33s", with: "", empty: 200, garbage: ("soon", 400), case: ("32S", 400) },
    Row { name: "export", requests: &["get", "list", "watch", "deletecollection"], valid: "false", other: "true", with: "", empty: 400, garbage: ("maybe", 400), case: ("False", 200) },
    Row { name: "exact", requests: &["get", "list", "watch", "deletecollection"], valid: "false", other: "true", with: "", empty: 400, garbage: ("maybe", 400), case: ("False", 200) },
];

#[test]
fn every_option_of_every_request() {
    for Row { name, requests, valid, other, with, empty, garbage, case } in ROWS {
        for request in *requests {
            let check = |query: String, want: u16| {
                assert_eq!(code(request, &format!("{with}&{query}")), want, "{request} {query}");
            };
            check(format!("{name}={valid}"), 200);
            check(format!("{name}={valid}&{name}={valid}"), 200);
            check(format!("{name}="), *empty);
            check(name.to_string(), *empty);
            check(format!("{name}={}", garbage.0), garbage.1);
            check(format!("{name}={}", case.0), case.1);
            let upper = name.to_ascii_uppercase();
            let in_upper_case = code(request, &format!("{upper}={valid}"));
            assert_eq!(
                in_upper_case,
                if is_read(request) { 200 } else { 400 },
                "{request} {upper}"
            );
            let twice = format!("{with}&{name}={valid}&{name}={other}");
            assert!(matches!(code(request, &twice), 400 | 422), "{request} {twice}");
        }
        let applies = |request: &&str| {
            ROWS.iter().any(|row| row.name == *name && row.requests.contains(request))
        };
        for request in REQUESTS.iter().filter(|request| !applies(request)) {
            let of_lists =
                matches!(*request, "list" | "deletecollection") && *name == "sendInitialEvents";
            let is_precondition = name.ends_with("uid") || name.ends_with("resourceVersion");
            let is_ignored = !of_lists && (is_read(request) || !is_precondition);
            for value in ["", valid, garbage.0] {
                let query = format!("{name}={value}");
                let got = code(request, &query);
                assert!(
                    if is_ignored { got == 200 } else { got >= 400 },
                    "{request} {query}: {got}"
                );
            }
        }
    }
}

#[test]
fn resource_versions() {
    for (request, garbage, empty) in [
        ("get", 400, 200),
        ("list", 400, 200),
        ("watch", 400, 200),
        ("delete", 200, 400),
        ("deletecollection", 400, 200),
    ] {
        for (value, want) in [("7", 200), ("x", garbage), ("", empty)] {
            let query = format!("resourceVersion={value}");
            assert_eq!(code(request, &query), want, "{request} {query}");
        }
        assert_eq!(code(request, "resourceVersion=7&resourceVersion=8"), 400, "{request}");
        let want = if is_read(request) { 200 } else { 400 };
        assert_eq!(code(request, "resourceversion=7"), want, "{request}");
    }
    for request in ["create", "update", "patch"] {
        assert_eq!(code(request, "resourceVersion=7"), 400, "{request}");
    }
}

/// An unknown parameter of a write was ignored: `labelSelectors=a=b` deleted a whole collection, and
/// `dry-run=All` wrote.
#[test]
fn unknown_parameters_are_refused_where_something_is_written() {
    for request in REQUESTS {
        assert_eq!(code(request, "includeUninitialized=1&includeObject=None&pretty=true"), 200);
        for name in UNKNOWN.iter().map(|(name, _)| *name).chain(["_", "", "a", "%00", "%ff"]) {
            let Ok(query) = Query::parse(&format!("{name}=All&pretty=true")) else { continue };
            let code = outcome(request, &query).map_or_else(|error| error.code(), |()| 200);
            let want = if is_read(request) { 200 } else { 400 };
            assert_eq!(code, want, "{request} {name}");
        }
    }
}

/// Names that are not known, and the nearest ones.
const UNKNOWN: &[(&str, &str)] = &[
    ("labelSelectors", "labelSelector"),
    ("label_selector", "labelSelector"),
    ("label-selector", "labelSelector"),
    ("labelselector", "labelSelector"),
    ("lableSelector", "labelSelector"),
    ("labels", "labelSelector"),
    ("label", "labelSelector"),
    ("selector", "labelSelector or fieldSelector"),
    ("selectors", "labelSelector"),
    ("fieldSelectors", "fieldSelector"),
    ("field_selector", "fieldSelector"),
    ("fields", "fieldSelector"),
    ("dry-run", "dryRun"),
    ("dry_run", "dryRun"),
    ("DryRun", "dryRun"),
    ("dryrun", "dryRun"),
    ("DRYRUN", "dryRun"),
    ("dryRuns", "dryRun"),
    ("drRun", "dryRun"),
    ("dyrRun", "dryRun"),
    ("dry", "dryRun"),
    ("server-dry-run", "dryRun"),
    ("field-manager", "fieldManager"),
    ("manager", "fieldManager"),
    ("validation", "fieldValidation"),
    ("grace-period", "gracePeriodSeconds"),
    ("grace_period_seconds", "gracePeriodSeconds"),
    ("cascade", "propagationPolicy"),
    ("propagation", "propagationPolicy"),
    ("precondition.uid", "preconditions.uid"),
    ("limits", "limit"),
    ("resource-version", "resourceVersion"),
];

#[test]
fn an_unknown_parameter_is_answered_with_the_nearest() {
    for (name, near) in UNKNOWN {
        let query = Query::parse(&format!("{name}=x")).unwrap();
        let message = outcome("deletecollection", &query).unwrap_err().status().message.clone();
        let is_of_writes = ["fieldManager", "fieldValidation"].contains(near);
        let want = if is_of_writes {
            format!(
                "unknown query parameter \"{name}\": the nearest known one is {near}, which \
                 DeleteOptions of a collection does not support"
            )
        } else {
            format!("unknown query parameter \"{name}\": did you mean {near}?")
        };
        assert_eq!(message, want);
        assert_eq!(
            parameter_warnings(&query, None),
            [format!("unknown query parameter \"{name}\" has no effect: did you mean {near}?")]
        );
    }
}

#[test]
fn a_parameter_that_is_near_to_none_is_answered_with_what_there_is() {
    let message = |query: &str| {
        let query = Query::parse(query).unwrap();
        outcome("create", &query).unwrap_err().status().message.clone()
    };
    assert_eq!(
        message("dryRun=All&_=17"),
        "unknown query parameter \"_\": CreateOptions has dryRun, fieldManager, \
         fieldValidation, pretty, timeout, includeObject, includeUninitialized"
    );
    assert!(
        message("a%22%0a%E2%80%AE=x").starts_with(r#"unknown query parameter "a\"\n\u202e": "#)
    );
    let long = message(&format!("{}=x", "dryRun".repeat(2000)));
    assert!(long.len() < 400, "{long}");
    assert!(!message("pst_AAAAAAAA_secret=").contains("secret"), "a key is not repeated");
}

#[test]
fn a_write_ignores_the_options_of_other_requests_with_a_warning_and_no_precondition() {
    for (request, kind, name) in [
        (Request::Create, "create", "CreateOptions"),
        (Request::Update, "update", "UpdateOptions"),
        (Request::Patch, "patch", "PatchOptions"),
        (Request::Delete, "delete", "DeleteOptions"),
    ] {
        // As kubernetes.core of Ansible sends it with each DELETE.
        let query =
            Query::parse("labelSelector=&fieldSelector=a&limit=x&dryRun=All&watch=").unwrap();
        assert!(outcome(kind, &query).is_ok(), "{kind}");
        let warnings = ignored_option_warnings(&query, request);
        let options = ["labelSelector", "fieldSelector", "limit", "watch"];
        let expected =
            options.map(|option| format!("query parameter {option} has no effect in {name}"));
        assert_eq!(warnings, expected);
        for precondition in ["uid", "preconditions.uid", "preconditions.resourceVersion"] {
            let query = Query::parse(&format!("{precondition}=7")).unwrap();
            let want = if kind == "delete" { 200 } else { 400 };
            assert_eq!(code(kind, &format!("{precondition}=7")), want, "{kind} {precondition}");
            assert_eq!(ignored_option_warnings(&query, request).len(), usize::from(want == 400));
        }
    }
    let taken = Query::parse("labelSelector=a&limit=5&dryRun=All").unwrap();
    assert_eq!(ignored_option_warnings(&taken, Request::DeleteCollection), [""; 0]);
}

#[test]
fn warnings_are_bounded_and_about_unknown_parameters_alone() {
    let warnings = |query: &str| parameter_warnings(&Query::parse(query).unwrap(), None);
    assert!(warnings("watch=1&limit=5&pretty=1&dryRun=All&includeObject=None").is_empty());
    assert_eq!(warnings("foo=1&foo=2").len(), 1, "the same only once");
    let many: Vec<String> = (0..90).map(|i| format!("labelSelecto{i}=")).collect();
    assert_eq!(warnings(&many.join("&")).len(), 10);
    assert_eq!(warnings("pst_AAAAAAAA_secret=").len(), 1);
    assert!(!warnings("pst_AAAAAAAA_secret=")[0].contains("secret"));
}

#[test]
fn force_is_for_apply_alone() {
    for value in ["true", "false", ""] {
        assert_eq!(code("patch", &format!("force={value}")), 422);
    }
    for request in REQUESTS.iter().filter(|request| **request != "patch") {
        assert_eq!(code(request, "force=true"), 200, "{request}");
    }
}

#[test]
fn a_dry_run_is_refused_in_upstreams_words() {
    for (query, list) in [
        ("dryRun=", r#"[]string{""}"#),
        ("dryRun", r#"[]string{""}"#),
        ("dryRun=All&dryRun=Some", r#"[]string{"All", "Some"}"#),
    ] {
        let query = Query::parse(query).unwrap();
        let error = WriteOptions::parse(&query, WriteKind::Create).unwrap_err();
        let want = format!(
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: {list}: \
             supported values: \"All\""
        );
        assert_eq!((error.code(), error.status().message.as_str()), (422, want.as_str()));
    }
}

#[test]
fn the_table_has_every_option() {
    let elsewhere =
        ["resourceVersion", "watch", "force", "pretty", "includeObject", "includeUninitialized"];
    for known in known::TABLE {
        let found =
            elsewhere.contains(&known.name) || ROWS.iter().any(|row| row.name == known.name);
        assert!(found, "{}", known.name);
    }
}

/// Dynamic clients send the options of a list with each GET, the empty values too.
#[test]
fn a_get_ignores_what_a_list_takes() {
    let query = "labelSelector=&fieldSelector=&limit=&continue=&watch=false&timeoutSeconds=x&\
                 labelSelector=a%20b&allowWatchBookmarks=maybe&dryRun=&resourceVersion=7";
    let parsed = Query::parse(query).unwrap();
    let options = GetOptions::parse(&parsed).unwrap();
    assert_eq!(options.resource_version, Some(super::RequestedVersion::At(7)));
    assert!(parameter_warnings(&parsed, None).is_empty());
    let other_case = Query::parse("LabelSelector=a&resourceversion=x").unwrap();
    assert_eq!(GetOptions::parse(&other_case).unwrap(), GetOptions::default());
    assert_eq!(
        parameter_warnings(&other_case, None),
        [
            "unknown query parameter \"LabelSelector\" has no effect: did you mean labelSelector?",
            "unknown query parameter \"resourceversion\" has no effect: did you mean resourceVersion?"
        ]
    );
}
