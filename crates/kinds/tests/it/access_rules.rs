//! Access rules: the rights that a change of them requires, invalid rules, and the Roles and
//! bindings that they become.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Known, ada, context, stored, whole};
use postern_kinds::access::VERBS;
use postern_kinds::action::ActionRight;
use postern_kinds::rbac::{PolicyChange, SUBJECT_UIDS};
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::{
    AnyKind as _, Caller, Context, Dependent, Prepared, RequiredRight, Right, Verb, WriterKind,
    all, grants_of_stored,
};
use postern_meta::object::Object;
use serde_json::{Value, json};

const GROUP: &str = "management.platform.sh";

fn secret(spec: &Value) -> Object {
    let metadata = json!({ "name": "s", "namespace": "ns", "uid": "uid-s" });
    whole(&SharedSecret, &metadata, &json!({ "spec": spec }))
}

fn prepare(old: Option<&Value>, new: &Value, caller: &Caller) -> Prepared {
    let principals = Known::all();
    let context = context(caller, &principals);
    SharedSecret.prepare(&mut secret(new), old.map(secret).as_ref(), &context).unwrap()
}

/// The required rights, in short form: `VERB RESOURCE[/SUBRESOURCE]/NAME`, with `as owner`.
fn required(old: Option<&Value>, new: &Value) -> Vec<String> {
    let text = |right: &Right| format!("{} {}/{}", right.verb, right.resource, right.name);
    let of = |required: &RequiredRight| {
        let as_owner = if required.is_as_owner() { " as owner" } else { "" };
        format!("{}{as_owner}", text(required.first()))
    };
    prepare(old, new, &ada()).required_rights.iter().map(of).collect()
}

fn with(access: &Value) -> Value {
    json!({ "owner": { "user": "ada" }, "access": access })
}

/// `kubectl create -f x` and then `kubectl replace -f x` took the caller's own secret away from them.
#[test]
fn who_replaces_an_object_without_naming_its_owner_keeps_it() {
    let (ada, red) = (json!({ "user": "ada" }), json!({ "team": "red" }));
    let nobody = json!({});
    let of = |owner: &Value| json!({ "owner": owner, "data": { "k": "aGk=" } });
    let data = || json!({ "data": { "k": "aGk=" } });
    for (old, new, kept) in [
        (of(&ada), data(), &ada),
        (of(&red), data(), &red),
        (of(&ada), of(&nobody), &ada),
        (of(&ada), of(&Value::Null), &ada),
        (of(&ada), of(&json!({ "user": "" })), &ada),
        // Another owner is named, so that one is meant.
        (of(&ada), of(&red), &red),
        (data(), of(&red), &red),
    ] {
        let mut replaced = secret(&new);
        SharedSecret.keep_unnamed(&mut replaced, &secret(&old), &[]);
        assert_eq!(replaced.fields["spec"], of(kept), "{old} -> {new}");
    }
    let mut none = secret(&data());
    SharedSecret.keep_unnamed(&mut none, &secret(&data()), &[]);
    assert_eq!(none.fields["spec"], data(), "there is none");
    let mut empty = secret(&data());
    empty.fields.clear();
    SharedSecret.keep_unnamed(&mut empty, &secret(&of(&ada)), &[]);
    assert_eq!(empty.fields["spec"], json!({ "owner": ada }));
    // A rule that is kept requires no right.
    assert_eq!(required(Some(&of(&red)), &of(&red)), [""; 0]);
}

#[test]
fn what_is_given_anew_must_be_held_and_to_whom_must_be_bound() {
    let bob = json!([{ "verbs": ["get"], "users": ["bob"] }]);
    let bob_and_blue = json!([{ "verbs": ["get"], "users": ["bob"], "teams": ["blue"] }]);
    let in_two = json!([
        { "name": "other", "verbs": ["get", "get"], "teams": ["blue"] },
        { "verbs": ["get"], "users": ["bob"] },
    ]);
    let more = json!([{ "verbs": ["get", "update"], "users": ["bob"] }]);
    let twice = json!([{ "verbs": ["get"], "users": ["bob", "bob"] }]);
    let all = json!([{ "verbs": ["*", "get"], "users": ["*"] }]);
    let to_nobody = json!([{ "verbs": ["*"] }]);
    let (get, bind_bob, bind_blue) = ("get sharedsecrets/s", "bind users/bob", "bind teams/blue");
    for (old, new, rights) in [
        (&json!([]), &bob, vec![get, bind_bob]),
        (&bob, &bob, vec![]),
        (&bob, &json!([]), vec![]),
        (&bob, &bob_and_blue, vec![get, bind_blue]),
        (&bob_and_blue, &bob, vec![]),
        (&bob_and_blue, &in_two, vec![]),
        (&in_two, &bob_and_blue, vec![]),
        (&bob, &more, vec![get, "update sharedsecrets/s", bind_bob]),
        (&more, &bob, vec![get, bind_bob]),
        (&bob, &twice, vec![get, bind_bob]),
        (&twice, &bob, vec![]),
        (&bob, &all, vec!["* sharedsecrets/s", "bind users/"]),
        (&json!([]), &to_nobody, vec![]),
    ] {
        assert_eq!(required(Some(&with(old)), &with(new)), rights, "{old} -> {new}");
    }
}

#[test]
fn each_verb_of_the_api_and_of_the_kinds_can_be_given_by_who_holds_it() {
    let of_api = Verb::ALL.iter().map(|verb| verb.as_str());
    let on_owners =
        all().iter().flat_map(|kind| Verb::ALL.iter().filter_map(|verb| kind.verb_on_owner(*verb)));
    let of_actions = all().iter().flat_map(|kind| kind.info().actions).filter_map(|action| {
        if let ActionRight::OnObject(verb) = action.right { Some(verb) } else { None }
    });
    for verb in of_api.chain(on_owners).chain(of_actions) {
        assert!(VERBS.contains(&verb), "{verb} is a verb, and no rule can give it");
    }
    for verb in VERBS {
        let rule = json!([{ "verbs": [verb], "users": ["bob"] }]);
        let prepared = prepare(Some(&with(&json!([]))), &with(&rule), &ada());
        assert!(prepared.verdict.unwrap().is_empty(), "{verb}");
        let rights: Vec<_> = prepared.required_rights.iter().map(RequiredRight::first).collect();
        let [held, bind] = rights[..] else { panic!("{verb}: {rights:?}") };
        assert_eq!((held.verb, held.resource, &*held.name), (*verb, "sharedsecrets", "s"));
        assert_eq!((bind.verb, &*bind.name), ("bind", "bob"), "{verb}");
        let found = dependents(&with(&rule), &[], &Known::all());
        assert_eq!(found[0].fields["rules"][0]["verbs"], json!([verb]));
    }
}

#[test]
fn a_verb_that_is_not_supported_is_invalid_and_gives_nothing() {
    let supported: Vec<String> = VERBS.iter().map(|verb| format!("\"{verb}\"")).collect();
    let supported = supported.join(", ");
    for verb in ["", "GET", "get ", "proxy", "approve", "sign", "**", "get,list", "usé"] {
        let rule = json!([{ "verbs": [verb], "users": ["bob"] }]);
        let prepared = prepare(Some(&with(&json!([]))), &with(&rule), &ada());
        let expected = format!(
            "spec.access[0].verbs[0]: Unsupported value: \"{verb}\": supported values: {supported}"
        );
        assert_eq!(prepared.verdict.unwrap().to_string(), expected);
        assert_eq!(prepared.required_rights.len(), 1, "{verb}: only bind");
    }
}

/// The rows of the table of verbs in the reference.
#[test]
fn the_reference_lists_the_verbs_of_access_rules() {
    let text = include_str!("../../../../docs/reference/access-rules.md");
    let section =
        text.split("### Verbs\n").nth(1).unwrap().split("\nAny other verb").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let listed: Vec<_> = cells.flat_map(|cell| cell.trim_end_matches('`').split("`, `")).collect();
    let sorted = |mut verbs: Vec<&'static str>| {
        verbs.sort_unstable();
        verbs
    };
    assert_eq!(sorted(listed), sorted(VERBS.to_vec()), "docs/reference/access-rules.md#verbs");
}

#[test]
fn a_verb_can_be_given_by_who_may_escalate_on_the_kind() {
    let prepared = prepare(
        Some(&with(&json!([]))),
        &with(&json!([{ "verbs": ["get"], "users": ["bob"] }])),
        &ada(),
    );
    let rights: Vec<_> = prepared.required_rights[0].any_of().cloned().collect();
    let right = |verb, name: &str| Right {
        namespace: "ns".to_owned(),
        ..Right::cluster(verb, GROUP, "sharedsecrets", name)
    };
    assert_eq!(rights, [right("get", "s"), right("escalate", "")]);
}

#[test]
fn owners_give_what_they_own_from_the_start_and_makeowner_makes_others_owners() {
    let owner = |user: &str, team: &str| json!({ "owner": { "user": user, "team": team }, "access": [{ "verbs": ["get"], "users": ["bob"] }] });
    let nobody = json!({ "access": [{ "verbs": ["get"], "users": ["bob"] }] });
    let as_owner = ["get sharedsecrets/s as owner", "bind users/bob"];
    let held = ["get sharedsecrets/s", "bind users/bob"];
    let with = |first: &'static str, rest: &[&'static str]| [&[first], rest].concat();
    for (old, new, rights) in [
        (None, &nobody, as_owner.to_vec()),
        (None, &owner("ada", ""), as_owner.to_vec()),
        (None, &owner("", "red"), as_owner.to_vec()),
        (None, &owner("bob", ""), with("makeowner users/bob", &held)),
        (None, &owner("", "blue"), with("makeowner teams/blue", &held)),
        (Some(&owner("bob", "")), &owner("ada", ""), vec!["makeowner users/ada"]),
        (Some(&owner("ada", "")), &owner("bob", ""), vec!["makeowner users/bob"]),
        (Some(&owner("ada", "")), &owner("", "red"), vec!["makeowner teams/red"]),
        (Some(&owner("ada", "")), &owner("ada", ""), vec![]),
        (Some(&owner("ada", "")), &nobody, vec![]),
        (Some(&owner("", "red")), &nobody, vec![]),
        (Some(&owner("bob", "")), &nobody, vec!["makeowner users/bob"]),
        (Some(&nobody), &owner("ada", ""), vec!["makeowner users/ada"]),
    ] {
        assert_eq!(required(old, new), rights, "{old:?} -> {new}");
    }
}

#[test]
fn entries_are_validated_where_they_are_new() {
    let many: Vec<String> = (0..101).map(|number| format!("u{number}")).collect();
    for (entry, error) in [
        (json!({ "verbs": ["get"], "users": ["bob", "*"], "teams": ["blue"] }), ""),
        (json!({ "verbs": ["*", "use"], "subresources": ["*"] }), ""),
        (
            json!({ "users": ["bob"] }),
            "spec.access[0].verbs: Required value: verbs must contain at least one value",
        ),
        (json!({ "verbs": ["Get"] }), "spec.access[0].verbs[0]: Unsupported value: \"Get\""),
        (
            json!({ "verbs": ["impersonate", "approve"] }),
            "spec.access[0].verbs[1]: Unsupported value",
        ),
        (
            json!({ "verbs": ["get"], "subresources": ["status"] }),
            "spec.access[0].subresources[0]: Unsupported value: \"status\": supported values: \"*\"",
        ),
        (
            json!({ "verbs": ["get"], "users": ["bob", "eve"] }),
            "spec.access[0].users[1]: Not found: \"eve\"",
        ),
        (
            json!({ "verbs": ["get"], "teams": ["*"] }),
            "spec.access[0].teams[0]: Invalid value: \"*\"",
        ),
        (json!({ "verbs": ["get"], "users": many }), "spec.access[0].users: Too many: 101"),
    ] {
        let new = with(&json!([entry]));
        let errors = prepare(None, &new, &ada()).verdict.unwrap().to_string();
        assert!(errors.starts_with(error) && error.is_empty() == (errors == "[]"), "{errors}");
        assert!(prepare(Some(&new), &new, &ada()).verdict.unwrap().len() <= 1, "{entry}");
    }
    let gone = with(&json!([{ "verbs": ["get"], "users": ["eve"] }]));
    assert!(prepare(Some(&gone), &gone, &ada()).verdict.unwrap().is_empty());
    for (owner, error) in [
        (json!({ "user": "bob", "team": "red" }), "spec.owner: Forbidden"),
        (json!({ "user": "eve" }), "spec.owner.user: Not found: \"eve\""),
        (json!({ "team": "eve" }), "spec.owner.team: Not found: \"eve\""),
    ] {
        let new = json!({ "owner": owner });
        let errors = prepare(None, &new, &ada()).verdict.unwrap().to_string();
        assert!(errors.starts_with(error), "{errors}");
        assert_eq!(
            prepare(Some(&new), &new, &ada()).verdict.unwrap().is_empty(),
            owner.get("user").is_none() || owner.get("team").is_none()
        );
    }
}

fn dependents(spec: &Value, previous: &[Object], principals: &Known) -> Vec<Dependent> {
    let caller = Caller::default();
    let object = secret(spec);
    let bound = grants_of_stored(previous, &object.metadata);
    let context = Context { bound: &bound, ..context(&caller, principals) };
    SharedSecret.dependents(&object, previous, &context).unwrap()
}

fn uids(dependents: &[Dependent], name: &str) -> Value {
    let name = format!("platform:access:sharedsecrets:s:{name}");
    let is_it = |one: &&Dependent| one.name == name && one.kind.info().kind == "RoleBinding";
    let found = dependents.iter().find(is_it).unwrap();
    serde_json::to_value(&found.annotations[SUBJECT_UIDS]).unwrap()
}

#[test]
fn each_rule_becomes_a_role_and_a_binding() {
    let spec = json!({
        "owner": { "team": "red" },
        "access": [{ "name": "n", "verbs": ["list", "get"], "users": ["bob", "*", "bob"], "teams": ["blue"] }],
    });
    let found = dependents(&spec, &[], &Known::all());
    let names: Vec<_> = found.iter().map(|one| (one.kind.info().kind, one.name.as_str())).collect();
    assert_eq!(
        names,
        [
            ("Role", "platform:access:sharedsecrets:s:0"),
            ("RoleBinding", "platform:access:sharedsecrets:s:0"),
        ]
    );
    for one in &found {
        assert_eq!((one.namespace.as_deref(), one.owned), (Some("ns"), true));
        assert_eq!(one.labels["platform.sh/managed-by"], "access-rules");
    }
    let rule = |verbs: Value| {
        json!({ "rules": [{
            "verbs": verbs, "apiGroups": [GROUP], "resources": ["sharedsecrets"], "resourceNames": ["s"],
        }] })
    };
    assert_eq!(json!(found[0].fields), rule(json!(["get", "list"])));
    let group = |name: &str| json!({ "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name });
    let subjects = ["platform:team:blue", "platform:user:*", "platform:user:bob"].map(group);
    assert_eq!(json!(found[1].fields["subjects"]), json!(subjects));
    let expected = "{\"platform:team:blue\":\"uid-blue\",\"platform:user:bob\":\"uid-bob\"}";
    assert_eq!(uids(&found, "0"), expected);
}

#[test]
fn a_namesake_gets_only_what_is_given_anew() {
    let rule = |verbs: &str, user: &str| json!({ "verbs": [verbs], "users": [user] });
    let one = json!({ "access": [rule("get", "bob")] });
    let old = dependents(&one, &[], &Known::all());
    let mut later = Known::all();
    later.0.insert("bob", "uid-later");
    let (early, late) =
        ("{\"platform:user:bob\":\"uid-bob\"}", "{\"platform:user:bob\":\"uid-later\"}");

    let own = stored(&old, &secret(&one), "uid-s");
    assert_eq!(uids(&dependents(&one, &own, &later), "0"), early, "as it was");
    let two = json!({ "access": [rule("list", "bob"), rule("get", "bob")] });
    let found = dependents(&two, &own, &later);
    assert_eq!(
        (uids(&found, "0"), uids(&found, "1")),
        (late.into(), early.into()),
        "moved and added"
    );
    let widened = json!({ "access": [{ "verbs": ["get", "list"], "users": ["bob"] }] });
    assert_eq!(
        uids(&dependents(&widened, &own, &later), "0"),
        early,
        "one verb more is for who it was"
    );
    let twice = json!({ "access": [rule("get", "bob"), rule("get", "bob")] });
    let found = dependents(&twice, &own, &later);
    assert_eq!(
        (uids(&found, "0"), uids(&found, "1")),
        (early.into(), late.into()),
        "once as it was"
    );

    let of_an_earlier_secret = stored(&old, &secret(&one), "uid-of-an-earlier-s");
    assert_eq!(uids(&dependents(&one, &of_an_earlier_secret, &later), "0"), late);

    let mut gone = Known::all();
    gone.0.remove("bob");
    assert_eq!(uids(&dependents(&one, &own, &gone), "0"), early);
    assert_eq!(uids(&dependents(&one, &[], &gone), "0"), "{\"platform:user:bob\":\"\"}", "no user");
}

/// What clients may write into it means nothing.
const OWNER_UID: &str = "platform.sh/owner-uid";

/// An object with an owner, and with the uid that a client has written for the owner.
fn owned_by(owner: &Value, sent: Option<&str>) -> Object {
    let mut object = secret(&json!({ "owner": owner }));
    let sent = sent.map(|uid| (OWNER_UID.to_owned(), uid.to_owned()));
    object.metadata.annotations = sent.into_iter().collect();
    object
}

/// The uid of the owner after a write, as it is prepared and as the policy reads it. An object that was there before
/// belongs to a uid.
fn uid_after(
    new: &Object,
    old: Option<(&Object, Option<&str>)>,
    context: &Context<'_>,
) -> Option<String> {
    let mut prepared = new.clone();
    let context = Context { owner_uid: old.and_then(|(_, uid)| uid), ..*context };
    let uid = SharedSecret.prepare(&mut prepared, old.map(|(old, _)| old), &context).unwrap();
    let uid = uid.owner_uid;
    assert_eq!(prepared.metadata.annotations, new.metadata.annotations);
    let change = SharedSecret.policy_change(Some(&prepared.to_json_bytes()), uid.as_deref());
    let kind = SharedSecret.info().group_resource();
    assert_eq!(change, Some(PolicyChange::Owner(kind, uid.clone())));
    uid
}

#[test]
fn the_owner_is_who_was_authenticated() {
    let (caller, mut principals) = (ada(), Known::all());
    principals.0.insert("ada", "uid-of-a-namesake");
    let context = context(&caller, &principals);
    let object = owned_by(&json!({ "user": "ada" }), None);
    assert_eq!(uid_after(&object, None, &context).as_deref(), Some("uid-ada"));
}

#[test]
fn the_uid_of_the_owner_is_the_servers_to_set() {
    let (caller, principals) = (Caller::default(), Known::all());
    let by_caller = context(&caller, &principals);
    let by_server = Context { writer: WriterKind::Server, ..by_caller };
    let (ada, bob) = (json!({ "user": "ada" }), json!({ "user": "bob" }));
    let (red, nobody, gone) = (json!({ "team": "red" }), json!({}), json!({ "user": "gone" }));
    for (sent, context) in [None, Some("uid-red"), Some("")]
        .into_iter()
        .flat_map(|sent| [(sent, &by_caller), (sent, &by_server)])
    {
        for (new, old, uid) in [
            (&ada, None, Some("uid-ada")),
            (&red, None, Some("uid-red")),
            (&gone, None, None),
            // As long as the owner is the same, its uid stays, also if it is that of an earlier namesake or of no user.
            (&ada, Some((&ada, Some("uid-earlier"))), Some("uid-earlier")),
            (&ada, Some((&ada, None)), None),
            (&ada, Some((&bob, Some("uid-earlier"))), Some("uid-ada")),
            (&red, Some((&ada, Some("uid-earlier"))), Some("uid-red")),
            (&gone, Some((&ada, Some("uid-earlier"))), None),
            (&nobody, Some((&ada, Some("uid-earlier"))), None),
        ] {
            let old = old.map(|(owner, uid)| (owned_by(owner, sent), uid));
            let before = old.as_ref().map(|(old, uid)| (old, *uid));
            let found = uid_after(&owned_by(new, sent), before, context);
            assert_eq!(found.as_deref(), uid, "{new} after {old:?}, sent {sent:?}");
        }
    }
}

#[test]
fn an_object_without_a_uid_is_nobodys_whatever_its_annotations_say() {
    let of = |uid: Option<&str>| {
        let uid = uid.map(str::to_owned);
        PolicyChange::Owner(SharedSecret.info().group_resource(), uid)
    };
    let whole = owned_by(&json!({ "user": "ada" }), Some("uid-ada")).to_json_bytes();
    for (json, uid, owner) in [
        (Some(&whole[..]), Some("uid-bob"), Some("uid-bob")),
        (Some(&whole[..]), None, None),
        (Some(&whole[..]), Some(""), None),
        (None, Some("uid-bob"), None),
        (None, None, None),
    ] {
        assert_eq!(SharedSecret.policy_change(json, uid), Some(of(owner)), "{uid:?}");
    }
}
