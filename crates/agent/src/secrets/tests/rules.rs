//! The rules by which a Secret is written, row by row.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_kinds::secret_delivery::{DELETE, Spec as Delivery};
use serde_json::{Value, json};

use super::super::fill::{Change, Plan, Refusal, canonical, plan};
use super::super::native::{Data, NativeSecret};

const NOW: &str = "2026-01-01T00:00:00Z";

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// A labelled Secret with further fields.
fn secret(more: &Value) -> NativeSecret {
    let mut value = json!({
        "metadata": {
            "name": "s", "namespace": "ns", "resourceVersion": "7",
            "labels": { "platform.sh/project": "p", "platform.sh/project-secret-name": "db" },
        },
        "type": "Opaque",
    });
    for (name, field) in more.as_object().unwrap() {
        if name == "labels" || name == "annotations" || name == "deletionTimestamp" {
            value["metadata"][name] = field.clone();
        } else {
            value[name] = field.clone();
        }
    }
    serde_json::from_value(value).unwrap()
}

fn filled(more: &Value) -> NativeSecret {
    let mut fields = json!({ "annotations": { "platform.sh/synced-version": "v1" },
        "data": { "password": encoded("old"), "more": encoded("x") } });
    for (name, field) in more.as_object().unwrap() {
        fields[name] = field.clone();
    }
    secret(&fields)
}

fn delivery() -> Delivery {
    let data = Data::from([("password".to_owned(), encoded("new").into())]);
    Delivery {
        namespace: "ns".to_owned(),
        name: "s".to_owned(),
        project: "p".to_owned(),
        project_secret: "db".to_owned(),
        version: "v2".to_owned(),
        data,
        ..Delivery::default()
    }
}

fn not_offered() -> Delivery {
    let (version, data) = (String::new(), Data::new());
    Delivery { reason: "NotOffered".to_owned(), version, data, ..delivery() }
}

/// The plan as a text, and the patch of a write.
fn planned(secret: &NativeSecret, delivery: &Delivery) -> (String, Value) {
    match plan(secret, delivery, NOW) {
        Plan::Keep => ("keep".to_owned(), Value::Null),
        Plan::Leave => ("leave".to_owned(), Value::Null),
        Plan::Refuse(refusal) => (format!("{refusal:?}"), Value::Null),
        Plan::Write(write) => {
            let text = std::str::from_utf8(write.patch.expose()).unwrap();
            let change = if write.change == Change::Fill { "fill" } else { "remove" };
            (change.to_owned(), text.parse().unwrap())
        }
    }
}

#[test]
fn only_empty_and_filled_secrets_of_allowed_types_are_written() {
    let e = |text: &str| encoded(text);
    let foreign = "kubernetes.io/service-account-token";
    let rows = [
        ("empty", secret(&json!({})), "fill"),
        ("empty values", secret(&json!({ "data": { "a": "" } })), "fill"),
        ("data of its own", secret(&json!({ "data": { "a": e("x") } })), "HasData"),
        ("filled before", filled(&json!({})), "fill"),
        ("filled, and changed by hand", filled(&json!({ "data": { "a": e("x") } })), "fill"),
        ("a token of the cluster", secret(&json!({ "type": foreign })), "ForeignType"),
        ("a filled one of this type", filled(&json!({ "type": foreign })), "ForeignType"),
        ("bootstrap", secret(&json!({ "type": "bootstrap.kubernetes.io/token" })), "ForeignType"),
        ("helm", secret(&json!({ "type": "helm.sh/release.v1" })), "ForeignType"),
        (
            "another release of helm",
            secret(&json!({ "type": "helm.sh/release.v2" })),
            "ForeignType",
        ),
        (
            "an empty certificate",
            secret(
                &json!({ "type": "kubernetes.io/tls", "data": { "tls.crt": "", "tls.key": "" } }),
            ),
            "fill",
        ),
        (
            "empty credentials of a registry",
            secret(&json!({ "type": "kubernetes.io/dockerconfigjson",
                "data": { ".dockerconfigjson": e("{}") } })),
            "fill",
        ),
        ("immutable", secret(&json!({ "immutable": true })), "Immutable"),
        (
            "opted out",
            filled(&json!({ "annotations": { "platform.sh/synced-version": "v1",
                "platform.sh/disable-sync": "true" } })),
            "leave",
        ),
        ("without its labels", filled(&json!({ "labels": {} })), "leave"),
        (
            "for another project",
            filled(&json!({ "labels": { "platform.sh/project": "q",
                "platform.sh/project-secret-name": "db" } })),
            "leave",
        ),
        ("being deleted", filled(&json!({ "deletionTimestamp": NOW })), "leave"),
    ];
    for (what, secret, expected) in rows {
        assert_eq!(planned(&secret, &delivery()).0, expected, "{what}");
    }
}

#[test]
fn a_write_has_the_data_of_the_source_alone_and_the_version_that_was_read() {
    let (change, patch) = planned(&filled(&json!({})), &delivery());
    assert_eq!(change, "fill");
    let annotations = json!({ "platform.sh/synced-version": "v2", "platform.sh/synced-at": NOW,
        "platform.sh/on-end": null });
    assert_eq!(
        patch,
        json!({ "metadata": { "resourceVersion": "7", "annotations": annotations },
            "data": { "password": encoded("new"), "more": null } })
    );
    // The same data again is not written, unless the version or the end of the offer is another one.
    let same = json!({ "data": { "password": encoded("new") },
        "annotations": { "platform.sh/synced-version": "v2" } });
    assert_eq!(planned(&secret(&same), &delivery()).0, "keep");
    let deletes = Delivery { on_end: DELETE.to_owned(), ..delivery() };
    let (change, patch) = planned(&secret(&same), &deletes);
    assert_eq!(change, "fill");
    assert_eq!(patch["metadata"]["annotations"]["platform.sh/on-end"], "Delete");
    let immutable =
        json!({ "data": same["data"], "annotations": same["annotations"], "immutable": true });
    assert_eq!(planned(&secret(&immutable), &delivery()).0, "keep");
}

#[test]
fn at_the_end_of_the_offer_data_stays_unless_the_offer_said_delete() {
    let deletes = json!({ "platform.sh/synced-version": "v1", "platform.sh/on-end": "Delete" });
    let tls = json!({ "type": "kubernetes.io/tls", "annotations": deletes,
        "data": { "tls.crt": encoded("c"), "tls.key": encoded("k"), "ca.crt": encoded("a") } });
    let rows = [
        ("never filled", secret(&json!({})), "NotOffered", Value::Null),
        (
            "never filled, with the annotation",
            secret(&json!({ "annotations": { "platform.sh/on-end": "Delete" },
                "data": { "a": encoded("x") } })),
            "NotOffered",
            Value::Null,
        ),
        ("filled", filled(&json!({})), "Ended", Value::Null),
        (
            "filled, to be removed",
            filled(&json!({ "annotations": deletes })),
            "remove",
            json!({ "password": null, "more": null }),
        ),
        (
            "a type with required keys",
            filled(&tls),
            "remove",
            json!({ "tls.crt": "", "tls.key": "", "ca.crt": null }),
        ),
        (
            "immutable",
            filled(&json!({ "annotations": deletes, "immutable": true })),
            "Immutable",
            Value::Null,
        ),
    ];
    for (what, secret, expected, data) in rows {
        let (change, patch) = planned(&secret, &not_offered());
        assert_eq!((change.as_str(), &patch["data"]), (expected, &data), "{what}");
        if expected == "remove" {
            let annotations = json!({ "platform.sh/synced-version": null,
                "platform.sh/synced-at": null, "platform.sh/on-end": null });
            assert_eq!(patch["metadata"]["annotations"], annotations, "{what}");
        }
    }
    // The write that withdraws the offer can also change what happens then.
    let said = |on_end: &str| Delivery { on_end: on_end.to_owned(), ..not_offered() };
    assert_eq!(planned(&filled(&json!({})), &said(DELETE)).0, "remove");
    assert_eq!(planned(&filled(&json!({ "annotations": deletes })), &said("Keep")).0, "Ended");
}

#[test]
fn values_are_compared_as_the_cluster_writes_them() {
    let of = |text: &str| canonical(Data::from([("k".to_owned(), text.to_owned().into())]));
    assert_eq!(of("eA==").ok().unwrap()["k"].expose(), "eA==");
    for text in ["eA", "e A==", "!"] {
        assert_eq!(of(text).err(), Some(Refusal::Undecodable), "{text}");
    }
}

/// A tenant writes the metadata, and can be the API server of a virtual cluster.
#[test]
fn long_texts_and_invalid_names_are_not_kept() {
    let long = "x".repeat(300);
    let found = secret(&json!({ "annotations": { "platform.sh/synced-version": long,
        "platform.sh/disable-sync": long } }));
    assert_eq!(found.metadata.synced_version(), Some(""));
    assert!(found.metadata.is_filled() && !found.metadata.is_disabled());
    for labels in [
        json!({ "platform.sh/project": "", "platform.sh/project-secret-name": "db" }),
        json!({ "platform.sh/project": "p" }),
        json!({ "platform.sh/project": "p", "platform.sh/project-secret-name": "x".repeat(64) }),
        json!({ "platform.sh/project": "p q", "platform.sh/project-secret-name": "db" }),
    ] {
        let found = secret(&json!({ "labels": labels }));
        assert!(found.metadata.source().is_none(), "{labels}");
    }
}
