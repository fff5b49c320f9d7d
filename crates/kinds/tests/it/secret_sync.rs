//! Secrets that take their data from another one: valid and invalid writes of such a secret.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::whole;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::{AnyKind as _, Caller, Context, NoPrincipals, Reading};
use postern_meta::{Object, Timestamp};
use serde_json::{Value, json};

const NAME: &str = "platform.sh/sharedsecret-name";

fn secret(source: Option<&str>, data: &Value) -> Object {
    let labels = source.map_or(json!({}), |source| json!({ NAME: source }));
    let metadata = json!({ "name": "s", "namespace": "p-a", "labels": labels });
    whole(&ProjectSecret, &metadata, &json!({ "spec": { "data": data } }))
}

/// Writes a secret over another one. Gives its data, its invalid fields, and the rights that it
/// requires.
fn write(
    new: &Object,
    old: Option<&Object>,
    reading: Reading,
) -> (Value, Vec<String>, Vec<String>) {
    let (mut new, caller) = (new.clone(), Caller::default());
    let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
    let ctx = Context { reading, project_of_namespace: Some("a"), ..ctx };
    let prepared = ProjectSecret.prepare(&mut new, old, &ctx).unwrap();
    let errors = prepared.verdict.unwrap().iter().map(ToString::to_string).collect();
    let rights = prepared.required_rights.iter().map(|one| {
        let right = one.first();
        format!("{} {} {}/{}", right.verb, right.resource, right.namespace, right.name)
    });
    (new.fields["spec"].get("data").cloned().unwrap_or_default(), errors, rights.collect())
}

#[test]
fn the_data_of_a_source_is_kept_and_none_is_written() {
    let (one, two, none) = (json!({ "k": "b25l" }), json!({ "k": "dHdv" }), json!({}));
    let old = secret(Some("a"), &one);
    for (new, wanted, is_valid) in [
        (secret(Some("a"), &none), &one, true),
        (secret(Some("a"), &one), &one, true),
        (secret(Some("a"), &two), &two, false),
        // Of another source, nothing is there yet.
        (secret(Some("b"), &one), &Value::Null, true),
        (secret(Some("b"), &two), &two, false),
        (secret(None, &one), &one, true),
        (secret(None, &two), &two, true),
    ] {
        let (data, errors, _) = write(&new, Some(&old), Reading::Allowed);
        assert_eq!((&data, errors.is_empty()), (wanted, is_valid), "{errors:?}");
    }
    let own = secret(None, &one);
    assert!(
        !write(&secret(Some("a"), &one), Some(&own), Reading::Allowed).1.is_empty(),
        "its own data"
    );
    assert!(!write(&secret(Some("a"), &one), None, Reading::Allowed).1.is_empty(), "a new one");
    assert!(write(&secret(Some("a"), &none), None, Reading::Allowed).1.is_empty());
}

#[test]
fn who_may_not_read_it_learns_nothing_by_a_guess() {
    let old = secret(Some("a"), &json!({ "k": "b25l" }));
    for guess in ["b25l", "dHdv"] {
        let (data, errors, _) =
            write(&secret(Some("a"), &json!({ "k": guess })), Some(&old), Reading::Refused);
        assert_eq!((data, errors.len()), (json!({ "k": "b25l" }), 0), "{guess}");
    }
}

#[test]
fn a_label_that_is_new_takes_the_right_to_what_it_names() {
    let (a, none) = (secret(Some("a"), &json!({})), secret(None, &json!({})));
    let reads = vec!["get sharedsecrets platform/a".to_owned()];
    assert_eq!(write(&a, None, Reading::Allowed).2, reads);
    assert_eq!(write(&a, Some(&none), Reading::Allowed).2, reads);
    assert_eq!(write(&a, Some(&a), Reading::Allowed).2, Vec::<String>::new());
    assert_eq!(write(&none, Some(&a), Reading::Allowed).2, Vec::<String>::new());
    let mut elsewhere = a.clone();
    let namespace = ("platform.sh/sharedsecret-namespace".to_owned(), "n".to_owned());
    elsewhere.metadata.labels.extend([namespace]);
    assert_eq!(write(&elsewhere, Some(&a), Reading::Allowed).2, ["get sharedsecrets n/a"]);
    let mut mirrored = a.clone();
    mirrored.metadata.labels.extend([("platform.sh/mirror".to_owned(), "true".to_owned())]);
    assert_eq!(
        write(&mirrored, Some(&a), Reading::Allowed).2,
        ["get projectsecrets p-a/s", "create secrets p-a/s"]
    );
}

/// A secret in `web`, `default` or `platform` was synced and mirrored, where no project's rules apply.
#[test]
fn outside_of_projects_no_secret_gets_a_label_of_syncing_or_mirroring() {
    let with = |labels: Value| {
        let mut secret = secret(None, &json!({}));
        secret.metadata.namespace = "web".to_owned();
        secret.metadata.labels = serde_json::from_value(labels).unwrap();
        secret
    };
    let namespace = "platform.sh/sharedsecret-namespace";
    let mirror = "platform.sh/mirror";
    let (none, synced) = (with(json!({})), with(json!({ NAME: "a" })));
    let both = with(json!({ NAME: "a", mirror: "true" }));
    for (old, new, project, invalid) in [
        (None, &synced, None, vec![NAME]),
        (None, &both, None, vec![NAME, mirror]),
        (None, &with(json!({ NAME: "a", namespace: "b" })), None, vec![NAME, namespace]),
        (Some(&none), &synced, None, vec![NAME]),
        (Some(&synced), &with(json!({ NAME: "b" })), None, vec![NAME]),
        (Some(&synced), &both, None, vec![mirror]),
        // Labels from before may be removed, one by one.
        (Some(&both), &both, None, vec![]),
        (Some(&both), &synced, None, vec![]),
        (Some(&synced), &none, None, vec![]),
        (None, &with(json!({ "other": "a" })), None, vec![]),
        (None, &both, Some("a"), vec![]),
    ] {
        let (mut new, caller) = (new.clone(), Caller::default());
        let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
        let ctx = Context { project_of_namespace: project, ..ctx };
        let prepared = ProjectSecret.prepare(&mut new, old, &ctx).unwrap();
        let errors: Vec<_> = prepared.verdict.unwrap().iter().map(ToString::to_string).collect();
        let expected = invalid.iter().map(|label| format!("metadata.labels[{label}]: Forbidden"));
        let expected: Vec<_> = expected.collect();
        let is_expected = |(error, start): (&String, &String)| error.starts_with(start);
        let fits = errors.len() == expected.len();
        assert!(fits && errors.iter().zip(&expected).all(is_expected), "{errors:?}, {expected:?}");
    }
}
