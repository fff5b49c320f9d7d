//! Twice the input costs at most 2.5 times as much, for every decoder and every list-like field.
//!
//! The tests measure processor time, the shortest of several runs, at sizes where a part that grows with the square of
//! the input would be most of it. If a limit is below these sizes, the test shows that it is checked before the work.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::LazyLock;

use crate::measured::{check, check_input, grows_too_fast};
use postern_meta::accept::{Offered, negotiate};
use postern_meta::apply::{
    Apply, FieldSet, Manager, Managers, TrackedKind, apply, check_lists, compare, set_of,
    track_apply, track_update,
};
use postern_meta::continue_token::ContinueToken;
use postern_meta::decode::{BodyFormat, decode_body};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::names::NameRule;
use postern_meta::object::encoded::merge_status;
use postern_meta::options::{DeleteOptions, DeletionOf, ListOptions, Query};
use postern_meta::patch::{apply_json_patch, apply_merge_patch, apply_strategic_merge_patch};
use postern_meta::schema::Schema;
use postern_meta::selector::{FieldSelector, LabelSelector};
use postern_meta::validate::{dedup_owner_references, validate_create, validate_update};
use postern_meta::{
    ApiError, Decoded, Format, GroupKind, ManagedFieldsEntry, Object, ObjectMeta, Operation,
    OwnerReference, StatusCause, Timestamp, decode, encode_yaml,
};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

/// Checks decoding of a body that must be accepted.
fn check_body(name: &str, size: usize, format: BodyFormat, text: impl Fn(usize) -> Vec<u8>) {
    check_input(name, size, text, move |text| {
        let decoded = decode_body(text, format);
        assert!(decoded.is_ok(), "{decoded:?}");
    });
}

fn join(n: usize, item: impl Fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(",")
}

fn texts(n: usize) -> impl Iterator<Item = String> {
    (0..n).map(|i| format!("x.io/{i}"))
}

fn map(n: usize) -> BTreeMap<String, String> {
    texts(n).map(|key| (key, "v".to_owned())).collect()
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
struct Thing {
    spec: Spec,
    status: Option<Map<String, Value>>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
struct Spec {
    data: BTreeMap<String, String>,
    limits: BTreeMap<String, BTreeMap<String, i64>>,
    access: Vec<Access>,
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    tags: Vec<String>,
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[schemars(extend("x-kubernetes-patch-strategy" = "merge", "x-kubernetes-patch-merge-key" = "name"))]
    items: Vec<Access>,
    free: Map<String, Value>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
struct Access {
    name: String,
}

#[test]
fn the_measurement_tells_squares_from_lines() {
    let steps = |count: fn(usize) -> usize| {
        move |n: usize| -> Box<dyn FnMut()> {
            Box::new(move || {
                for i in 0..count(n) {
                    black_box(i);
                }
            })
        }
    };
    assert!(grows_too_fast(1600, &steps(|n| n * n)).is_some());
    assert_eq!(grows_too_fast(1_000_000, &steps(|n| n)), None);
}

#[test]
fn json() {
    let json = BodyFormat::Text(Format::Json);
    let body = |text: String| text.into_bytes();
    check_body("fields", 40_000, json, |n| {
        body(format!("{{{}}}", join(n, |i| format!("\"k{i}\":1"))))
    });
    check_body("items", 80_000, json, |n| body(format!("[{}]", join(n, |_| "[1]".to_owned()))));
    check_body("text", 1_000_000, json, |n| body(format!("\"{}\"", "\\u00e9".repeat(n))));
    check_body("other duplicates", 40_000, json, |n| {
        body(format!("{{{}}}", join(n, |i| format!("\"k{i}\":1,\"k{i}\":2"))))
    });
    // The longest paths there are, nearly as many duplicates as are reported, and then one of them
    // again and again.
    check_body("one duplicate", 40_000, json, |n| {
        let name = "x".repeat(n / 160);
        let reported = join(99, |i| format!("\"k{i}\":1,\"k{i}\":2"));
        let again = "\"k1\":1,".repeat(n);
        let inner = format!("{{{again}{reported}}}");
        body((0..90).fold(inner, |inner, _| format!("{{\"{name}\":{inner}}}")))
    });
}

#[test]
fn yaml() {
    let yaml = BodyFormat::Text(Format::Yaml);
    let body = |text: String| text.into_bytes();
    let lines = |n: usize, line: &dyn Fn(usize) -> String| (0..n).map(line).collect::<String>();
    check_body("fields", 4_000, yaml, |n| body(lines(n, &|i| format!("k{i}: 1\n"))));
    check_body("items", 8_000, yaml, |n| body(lines(n, &|_| "- 1\n".to_owned())));
    check_body("flow", 4_000, yaml, |n| body(format!("[{}]", join(n, |i| format!("{{a: {i}}}")))));
    check_body("duplicates", 2_000, yaml, |n| body(lines(n, &|i| format!("k{i}: 1\nk{i}: 2\n"))));
    check_body("quoted text", 400_000, yaml, |n| body(format!("a: \"{}\"\n", "x".repeat(n))));
    check_body("plain text", 400_000, yaml, |n| body(format!("a: {}\n", "x ".repeat(n) + "x")));
    check_body("block text", 40_000, yaml, |n| {
        body(format!("a: |\n{}", lines(n, &|_| "  x\n".to_owned())))
    });
    check_body("folded text", 40_000, yaml, |n| {
        body(format!("a: >\n{}", lines(n, &|_| "  x\n".to_owned())))
    });
    check_body("comments", 8_000, yaml, |n| body("# x\n".repeat(n) + "a: 1\n"));
    // Ten aliases of each anchor: more are refused.
    let aliased = |n: usize, anchor: &str| {
        let anchors = lines(n / 10, &|i| format!("a{i}: &a{i} {anchor}\n"));
        let aliases = lines(n, &|i| format!("k{i}: *a{}\n", i / 10));
        body(anchors + &aliases)
    };
    check_body("aliases", 800, yaml, |n| aliased(n, "{b: [1, 2, 3]}"));
    check_body("long aliases", 800, yaml, |n| aliased(n, &"x".repeat(2_000)));
    check_body("anchors", 900, yaml, |n| body(lines(n, &|i| format!("k{i}: &a{i} 1\n"))));
    check_body("merge keys", 800, yaml, |n| {
        let anchors = lines(n / 10, &|i| format!("a{i}: &a{i} {{b: 1, c: 2}}\n"));
        body(anchors + &lines(n, &|i| format!("k{i}: {{<<: *a{}}}\n", i / 10)))
    });
    check_input(
        "encoded",
        20_000,
        |n| json!({ "data": map(n), "list": texts(n).collect::<Vec<_>>() }),
        |value| drop(black_box(encode_yaml(value))),
    );
}

#[test]
fn protobuf() {
    let varint = |mut value: u64| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        bytes.push(value.to_le_bytes()[0]);
        bytes
    };
    let field = move |number: u8, bytes: &[u8]| {
        let mut field = vec![number << 3 | 2];
        field.extend(varint(bytes.len() as u64));
        field.extend(bytes);
        field
    };
    let envelope = move |version: &str, kind: &str, object: &[u8]| {
        let r#type = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &r#type), field(2, object)].concat()
    };
    let body = move |number: u8, n: usize, item: &dyn Fn(usize) -> Vec<u8>| {
        let metadata: Vec<u8> = (0..n).flat_map(|i| field(number, &item(i))).collect();
        envelope("v1", "Namespace", &field(1, &metadata))
    };
    let text = |i: usize| format!("x.io/{i}").into_bytes();
    let entry = move |i: usize| [field(1, &text(i)), field(2, b"v")].concat();
    let owner = move |i: usize| [field(1, b"User"), field(4, &text(i))].concat();
    check_body("labels", 16_000, BodyFormat::Protobuf, |n| body(11, n, &entry));
    check_body("finalizers", 40_000, BodyFormat::Protobuf, |n| body(14, n, &text));
    check_body("owners", 16_000, BodyFormat::Protobuf, |n| body(13, n, &owner));
    let objects =
        |version: &'static str, kind: &'static str, item: &dyn Fn(usize) -> Vec<u8>, n| {
            let items: Vec<u8> = (0..n).flat_map(|i| field(2, &item(i))).collect();
            envelope(version, kind, &items)
        };
    check_body("data", 16_000, BodyFormat::Protobuf, |n| objects("v1", "Secret", &entry, n));
    let rbac = "rbac.authorization.k8s.io/v1";
    let rule = move |i: usize| field(4, &text(i));
    check_body("rules", 16_000, BodyFormat::Protobuf, |n| objects(rbac, "Role", &rule, n));
    let unknown = |n: usize| {
        let numbered = |i: usize| [varint((i as u64 + 100) << 3), vec![0]].concat();
        envelope("v1", "Secret", &(0..n).flat_map(numbered).collect::<Vec<_>>())
    };
    check_body("unknown fields", 16_000, BodyFormat::Protobuf, unknown);
}

fn owners(n: usize) -> Vec<OwnerReference> {
    let owner = |uid| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "User".to_owned(),
        name: "u".to_owned(),
        uid,
        ..OwnerReference::default()
    };
    texts(n).map(owner).collect()
}

fn named() -> ObjectMeta {
    ObjectMeta { name: "a".to_owned(), ..ObjectMeta::default() }
}

#[test]
fn metadata() {
    type Fill = fn(&mut ObjectMeta, usize);
    let fields: [(&str, Fill); 5] = [
        ("labels", |m, n| m.labels = map(n)),
        ("annotations", |m, n| m.annotations = map(n)),
        ("finalizers", |m, n| m.finalizers = texts(n).collect()),
        ("ownerReferences", |m, n| m.owner_references = owners(n)),
        ("managedFields", |m, n| m.managed_fields = entries(n, |_| json!({ "f:spec": {} }))),
    ];
    for (name, fill) in fields {
        let size = if name == "managedFields" { 8_000 } else { 40_000 };
        let filled = move |n| {
            let mut metadata = named();
            fill(&mut metadata, n);
            metadata
        };
        check_input(name, size, filled, |m| {
            drop(black_box(validate_create(m, false, NameRule::Subdomain)));
        });
        check_input(name, size, filled, |m| {
            let mut old = m.clone();
            old.deletion_timestamp = Some(Timestamp::from_unix_seconds(0));
            drop(black_box(validate_update(m, &old)));
        });
        check_input(name, size, filled, |m| {
            drop(black_box(dedup_owner_references(&mut m.clone())));
        });
        let object = move |n| json!({ "kind": "K", "metadata": filled(n).to_value() });
        check_input(name, 10_000, object, |value| {
            let object = Object::from_value(value.clone()).unwrap();
            drop(black_box(object.to_json_bytes()));
        });
    }
}

#[test]
fn selectors() {
    check_input(
        "label requirements",
        200,
        |n| join(n, |i| format!("k{i}!=v")),
        |text| {
            drop(black_box(LabelSelector::parse(text)));
        },
    );
    check_input(
        "label values",
        20_000,
        |n| format!("k in ({})", join(n, |i| i.to_string())),
        |t| {
            assert!(LabelSelector::parse(t).is_ok());
        },
    );
    check_input(
        "no label selector",
        400_000,
        |n| "((".repeat(n),
        |text| {
            assert!(LabelSelector::parse(text).is_err());
        },
    );
    check_input(
        "field terms",
        40_000,
        |n| join(n, |i| format!("a={i}")),
        |text| {
            drop(black_box(FieldSelector::parse(text, &["a"])));
        },
    );
    check_input(
        "field value",
        400_000,
        |n| format!("a={}", "\\,".repeat(n)),
        |text| {
            assert!(FieldSelector::parse(text, &["a"]).is_ok());
        },
    );
}

#[test]
fn headers_and_queries() {
    check_input(
        "clauses",
        20_000,
        |n| join(n, |i| format!("a/{i};q=0.5")),
        |text| {
            drop(black_box(negotiate(&[text], Offered::List)));
        },
    );
    check_input(
        "parameters",
        20_000,
        |n| format!("a/b{}", ";c=d".repeat(n)),
        |text| {
            drop(black_box(negotiate(&[text], Offered::List)));
        },
    );
    check_input(
        "no clauses",
        100_000,
        |n| ",".repeat(n),
        |text| {
            drop(black_box(negotiate(&[text], Offered::List)));
        },
    );
    check_input(
        "parameters of a query",
        100,
        |n| "limit=1&".repeat(n),
        |text| {
            let query = Query::parse(text).unwrap();
            drop(black_box(ListOptions::parse(&query, &[])));
            drop(black_box(DeleteOptions::from_query(&query, DeletionOf::Collection)));
        },
    );
    check_input(
        "a long query",
        200_000,
        |n| "&".repeat(n),
        |text| {
            drop(black_box(Query::parse(text)));
        },
    );
    check_input(
        "continue",
        200_000,
        |n| "A".repeat(n),
        |text| {
            drop(black_box(ContinueToken::decode(text)));
        },
    );
    check_input(
        "delete options",
        40_000,
        |n| json!({ "dryRun": vec!["x"; n] }),
        |value| {
            let body = Decoded { value: value.clone(), duplicates: Vec::new() };
            assert!(DeleteOptions::from_body(body, &Query::default(), DeletionOf::Object).is_err());
        },
    );
}

#[test]
fn schemas() {
    type Input = fn(usize) -> Value;
    let inputs: [(&str, Input); 6] = [
        ("map", |n| json!({ "spec": { "data": map(n) } })),
        ("maps in a map", |n| {
            let limits: Map<String, Value> = texts(n).map(|k| (k, json!({ "a": 1.0 }))).collect();
            json!({ "spec": { "limits": limits } })
        }),
        ("list", |n| json!({ "spec": { "access": vec![json!({ "name": "a" }); n] } })),
        ("unknown fields", |n| json!({ "spec": map(n) })),
        (
            "unknown fields of items",
            |n| json!({ "spec": { "access": vec![json!({ "x": 1 }); n] } }),
        ),
        ("free-form", |n| json!({ "spec": { "free": map(n) }, "status": map(n) })),
    ];
    let schema: &'static Schema = Box::leak(Box::new(Schema::of::<Thing>()));
    for (name, input) in inputs {
        check_input(name, 20_000, input, |value| {
            let mut value = value.clone();
            drop(black_box(schema.unknown_below(&value, "spec")));
            drop(black_box(schema.nulls_below(&value, "spec")));
            drop(black_box(schema.prune_unknown(&mut value)));
            assert_eq!(schema.check_types(&value), Ok(()));
        });
    }
}

/// Entries of `managedFields` for `n` managers.
fn entries(n: usize, fields: impl Fn(usize) -> Value) -> Vec<ManagedFieldsEntry> {
    let entry = |i| ManagedFieldsEntry {
        manager: format!("m{i}"),
        operation: if i % 2 == 0 { Operation::Apply } else { Operation::Update },
        api_version: "v1".to_owned(),
        time: Some(Timestamp::from_unix_seconds(i64::try_from(i).unwrap_or_default())),
        fields_type: "FieldsV1".to_owned(),
        fields_v1: Some(fields(i)),
        ..ManagedFieldsEntry::default()
    };
    (0..n).map(entry).collect()
}

#[test]
fn field_sets() {
    type Element = fn(usize) -> String;
    // As texts, numbers are in another order than as elements.
    let elements: [(&str, Element); 5] = [
        ("fields", |i| format!("f:{i}")),
        ("numbers", |i| format!("v:{i}")),
        ("indices", |i| format!("i:{}", i % 1000 * 1000 + i / 1000)),
        ("keys", |i| format!("k:{{\"port\":{i}}}")),
        ("spellings of one number", |i| {
            let blanks = (0..17).map(|bit| if i >> bit & 1 == 0 { ' ' } else { '\t' });
            format!("v:{}1", blanks.collect::<String>())
        }),
    ];
    for (name, element) in elements {
        let set = move |n| -> Value {
            let fields: Map<String, Value> =
                (0..n).map(|i| (element(i), json!({ format!("f:{i}"): {} }))).collect();
            json!({ "f:list": fields })
        };
        check_input(name, 16_000, set, |value| {
            let set = FieldSet::from_fields_v1(value).unwrap();
            drop(black_box(set.to_fields_v1()));
            let mut other = set.clone();
            other.unite(set.clone());
            other.subtract(&set.intersection(&set));
            assert!(other.is_empty());
        });
    }
}

fn object(n: usize) -> Value {
    let limits: Map<String, Value> = texts(n).map(|k| (k, json!({ "a": 1 }))).collect();
    json!({ "spec": { "data": map(n), "limits": limits, "access": vec![json!({}); n] } })
}

#[test]
fn ownership() {
    let schema: &'static Schema = Box::leak(Box::new(Schema::of::<Thing>()));
    check_input("sets", 10_000, object, |value| drop(black_box(set_of(value, schema))));
    check_input("created", 10_000, object, |value| {
        drop(black_box(compare(&json!({}), value, schema)));
    });
    // Half of the entries are gone, and in the other half something is.
    let halves = |n| {
        let (old, mut new) = (object(n), object(n));
        let limits = new["spec"]["limits"].as_object_mut().unwrap();
        let mut keep = false;
        limits.retain(|_, limit| {
            *limit = json!({ "b": 1 });
            keep = !keep;
            keep
        });
        (old, new)
    };
    check_input("removed", 20_000, halves, |(old, new)| {
        drop(black_box(compare(old, new, schema)));
    });
    check_input(
        "managers",
        960,
        |n| entries(n, |_| json!({ "f:spec": {} })),
        |entries| {
            let managers = Managers::decode(entries).unwrap();
            drop(black_box(managers.encode()));
        },
    );
    check_input(
        "too many managers",
        200_000,
        |n| vec![ManagedFieldsEntry::default(); n],
        |all| {
            assert!(Managers::decode(all).is_err());
        },
    );
    let ignored: &'static FieldSet = Box::leak(Box::default());
    let kind = TrackedKind { schema, ignored };
    // Twice as many managers, and twice as many changes.
    let tracked = |n: usize| {
        let mut live = Object { kind: "Thing".to_owned(), ..Object::default() };
        live.fields.insert("spec".to_owned(), json!({ "data": {} }));
        live.metadata.managed_fields =
            entries(n / 20, |i| json!({ "f:spec": { "f:data": { format!("f:y{i}"): {} } } }));
        let mut new = live.clone();
        new.fields.insert("spec".to_owned(), json!({ "data": map(n) }));
        (live, new)
    };
    check_input("update", 20_000, tracked, move |(live, new)| {
        let who = Manager {
            name: "x".to_owned(),
            api_version: "v1".to_owned(),
            subresource: String::new(),
        };
        let mut new = new.clone();
        track_update(Some(live), &mut new, &kind, &who, Timestamp::from_unix_seconds(0));
        let updates =
            new.metadata.managed_fields.iter().filter(|e| e.operation == Operation::Update);
        assert_eq!(updates.count(), 10);
    });
}

fn apply_of(live: Option<&Object>, configuration: &Value, force: bool) -> Result<Object, usize> {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::of_object::<Thing>);
    let ignored = FieldSet::new();
    let kind = TrackedKind { schema: &SCHEMA, ignored: &ignored };
    let (api_version, subresource) = ("v1".to_owned(), String::new());
    let manager = &Manager { name: "x".to_owned(), api_version, subresource };
    assert!(check_lists(configuration, &SCHEMA).is_empty());
    let configuration = &Object::from_value(configuration.clone()).unwrap_or_default();
    let now = Timestamp::from_unix_seconds(0);
    let asked = Apply { configuration, manager, force, now };
    match apply(live, &asked, &kind) {
        Ok(mut new) => {
            track_apply(live, &mut new, &kind, manager);
            Ok(new)
        }
        Err(conflicts) => {
            let count = conflicts.len();
            drop(black_box(conflicts.into_error().status().to_value()));
            Err(count)
        }
    }
}

#[test]
fn applies() {
    let lists = |n: usize, step: usize| {
        let tags: Vec<String> = texts(n).step_by(step).collect();
        let items: Vec<Value> = tags.iter().map(|name| json!({ "name": name })).collect();
        (tags, items)
    };
    let configuration = move |n: usize, value: &str, step: usize| {
        let (tags, items) = lists(n, step);
        let data: Map<String, Value> = texts(n).map(|key| (key, json!(value))).collect();
        let limits: Map<String, Value> = texts(n).map(|key| (key, json!({ "a": 1 }))).collect();
        json!({ "kind": "Thing", "spec": { "data": data, "limits": limits, "tags": tags, "items": items } })
    };
    // Half of the items go, the others are turned round.
    let changed = move |n: usize| {
        let live = apply_of(None, &configuration(n, "v", 1), false).unwrap();
        let mut next = configuration(n, "w", 2);
        for list in ["tags", "items"] {
            next["spec"][list].as_array_mut().unwrap().reverse();
        }
        (live, next)
    };
    check_input("apply", 2_000, changed, |(live, next)| {
        assert!(apply_of(Some(live), next, false).is_ok());
    });
    check_input("apply of nothing", 4_000, changed, |(live, _)| {
        assert!(apply_of(Some(live), &json!({ "kind": "Thing" }), false).is_ok());
    });
    // Every manager owns one separate field, and one that is in conflict.
    let contested = move |n: usize| {
        let mut live = apply_of(None, &configuration(n, "v", 1), false).unwrap();
        let owned = |i: usize| json!({ "f:spec": { "f:data": { format!("f:x.io/{i}"): {} } } });
        live.metadata.managed_fields = entries(n, owned);
        (live, configuration(n, "w", 1))
    };
    check_input("conflicts", 900, contested, |(live, next)| {
        assert!(apply_of(Some(live), next, false).is_err());
        assert!(apply_of(Some(live), next, true).is_ok());
    });
    // All own everything. The fields that an error names are limited, and counted in full.
    let live = |n: usize| {
        let mut live = apply_of(None, &json!({ "spec": { "data": map(n) } }), false).unwrap();
        let fields = live.metadata.managed_fields[0].fields_v1.clone();
        live.metadata.managed_fields = entries(20, |_| fields.clone().unwrap());
        let next: Map<String, Value> = texts(n).map(|key| (key, json!("w"))).collect();
        (live, json!({ "spec": { "data": next } }), 20 * n)
    };
    check_input("many conflicts", 4_000, live, |(live, next, count)| {
        assert_eq!(apply_of(Some(live), next, false).unwrap_err(), *count);
    });
}

#[test]
fn patches() {
    // Both the object and the patch grow.
    let list = |n: usize| json!({ "spec": { "list": vec![0; 10 * n], "map": {} } });
    let patch = |operation: &'static str| {
        move |n: usize| {
            let operation: Value = decode(operation.as_bytes(), Format::Json).unwrap().value;
            (list(n), Value::Array(vec![operation; n]))
        }
    };
    for operation in [
        r#"{"op":"add","path":"/spec/list/0","value":1}"#,
        r#"{"op":"remove","path":"/spec/list/0"}"#,
        r#"{"op":"move","from":"/spec/list/0","path":"/spec/list/9"}"#,
        r#"{"op":"copy","from":"/spec/list/0","path":"/spec/list/0"}"#,
        r#"{"op":"copy","from":"/spec/list","path":"/spec/map/copy"}"#,
        r#"{"op":"test","path":"/spec/list","value":[0]}"#,
        r#"{"op":"replace","path":"/spec/list/0","value":[0]}"#,
        r#"{"op":"move","from":"/spec","path":"/spec"}"#,
    ] {
        check_input(operation, 10_000, patch(operation), |(target, patch)| {
            drop(black_box(apply_json_patch(target.clone(), patch)));
        });
    }
    check_input(
        "merge",
        40_000,
        |n| json!({ "spec": { "map": map(n) } }),
        |patch| {
            drop(black_box(apply_merge_patch(json!({ "spec": { "map": { "a": 1 } } }), patch)));
        },
    );
}

#[test]
fn strategic_merge_patches() {
    let schema: &'static Schema = Box::leak(Box::new(Schema::of_object::<Thing>()));
    let lists = |n: usize, from: usize| {
        let tags: Vec<String> = (from..from + n).map(|i| format!("x.io/{i}")).collect();
        let items: Vec<Value> = tags.iter().map(|name| json!({ "name": name })).collect();
        (tags, items)
    };
    // Half of the items are there already, the order of all is turned round, and some go.
    let both = move |n: usize| {
        let (finalizers, items) = lists(n, 0);
        let live = json!({ "metadata": { "finalizers": finalizers }, "spec": { "items": items } });
        let (finalizers, mut items) = lists(n, n / 2);
        let order: Vec<Value> = items.iter().rev().cloned().collect();
        items.push(json!({ "name": "x.io/1", "$patch": "delete" }));
        let (gone, _) = lists(n / 2, 0);
        let patch = json!({
            "metadata": {
                "$deleteFromPrimitiveList/finalizers": gone,
                "$setElementOrder/finalizers": finalizers.iter().rev().collect::<Vec<_>>(),
                "finalizers": finalizers,
            },
            "spec": { "items": items, "$setElementOrder/items": order, "$retainKeys": ["items"] },
        });
        (live, patch)
    };
    check_input("strategic merge", 10_000, both, |(live, patch)| {
        assert!(apply_strategic_merge_patch(live.clone(), patch, schema).is_ok());
    });
}

#[test]
fn status() {
    let errors = |n: usize| {
        let mut errors = FieldErrors::new();
        texts(n).for_each(|path| errors.push(FieldError::required(path, "x")));
        errors
    };
    check("field errors", 40_000, |n| {
        Box::new(move || {
            let error = ApiError::invalid(GroupKind { group: "g", kind: "K" }, "a", errors(n));
            drop(black_box(error.status().to_value()));
        })
    });
    check("causes", 20_000, |n| {
        Box::new(move || {
            let error = texts(n).fold(ApiError::bad_request("x"), |error, field| {
                error.with_cause(StatusCause { field, ..StatusCause::default() })
            });
            drop(black_box(error.status().to_value()));
        })
    });
    let stored = |n: usize| {
        let mut json = String::from("{\"kind\":\"K\",\"status\":{");
        let fields = (0..n).map(|i| format!("\"k{i:06}\":{{\"a\":[1]}}")).collect::<Vec<_>>();
        write!(json, "{}}}}}", fields.join(",")).unwrap();
        json.into_bytes()
    };
    check_input("merged status", 20_000, stored, |json| {
        assert!(merge_status(json, &[("z", json!(1))]).is_some());
    });
}
