//! Single objects: create, read, change, delete, and the helpers that controllers use.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::entry::CommitError;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DynamicObject;
use kube::discovery::{Discovery, verbs};
use kube::runtime::conditions::is_deleted;
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::await_condition;
use kube::{Api, Error, Resource as _, ResourceExt as _};
use postern_tests::objects::secret_path;
use postern_tests::rights::{allow, rule, set, user};
use postern_tests::{Server, wait};
use serde_json::json;

use crate::kube_rs::setup::{client, client_of, display_name, object, secrets, shared_secret};

fn refused(result: Result<DynamicObject, Error>) -> (u16, String) {
    match result {
        Err(Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("not refused by the server: {other:?}"),
    }
}

#[tokio::test]
async fn discovery_lists_the_verbs() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let discovery = Discovery::new(client.clone()).run().await.expect("discovery");
    let group = discovery.get("management.platform.sh").expect("our group");
    let (resource, capabilities) = group.recommended_kind("SharedSecret").expect("our kind");
    assert_eq!(resource.plural, "sharedsecrets");
    for verb in [verbs::CREATE, verbs::LIST, verbs::WATCH, verbs::PATCH, verbs::DELETE_COLLECTION] {
        assert!(capabilities.supports_operation(verb), "{verb}");
    }
    let version = client.apiserver_version().await.expect("the version");
    assert_eq!(version.major, "1");
}

#[tokio::test]
async fn an_object_can_be_created_changed_and_deleted() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    let post = PostParams::default();
    let made = api.create(&post, &object(&resource, "db.password", "one")).await.unwrap();
    assert_eq!(made.namespace().as_deref(), Some("platform"));
    let again = api.create(&post, &object(&resource, "db.password", "one")).await;
    assert_eq!(refused(again), (409, "AlreadyExists".into()));

    let mut read = api.get("db.password").await.unwrap();
    assert_eq!(display_name(&read), "one");
    read.data["spec"]["displayName"] = "two".into();
    let replaced = api.replace("db.password", &post, &read).await.unwrap();
    assert_eq!(replaced.metadata.generation, Some(2));
    let stale = api.replace("db.password", &post, &made).await;
    assert_eq!(refused(stale), (409, "Conflict".into()));

    let params = PatchParams::apply("kube-rs");
    let merge = Patch::Merge(json!({"metadata": {"labels": {"app": "shop"}}}));
    let patched = api.patch("db.password", &PatchParams::default(), &merge).await.unwrap();
    assert_eq!(patched.labels()["app"], "shop");
    let bad = Patch::Merge(json!({"spec": {"data": {"a b": "djE="}}}));
    let invalid = api.patch("db.password", &PatchParams { force: false, ..params }, &bad).await;
    assert_eq!(refused(invalid), (422, "Invalid".into()));

    let metadata = api.get_metadata("db.password").await.unwrap();
    assert_eq!(metadata.labels()["app"], "shop");
    let list = api.list(&ListParams::default().labels("app=shop")).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let gone = api.delete("db.password", &DeleteParams::default()).await.unwrap();
    let status = gone.right().expect("a Status");
    assert_eq!(status.details.unwrap().uid, made.uid().unwrap());
    assert_eq!(refused(api.get("db.password").await), (404, "NotFound".into()));
    assert!(api.get_opt("db.password").await.unwrap().is_none());
}

#[tokio::test]
async fn objects_can_be_applied() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    let (mine, theirs) = (PatchParams::apply("mine"), PatchParams::apply("theirs"));
    let one = object(&resource, "db.password", "one");
    let made = api.patch("db.password", &mine, &Patch::Apply(&one)).await.unwrap();
    let again = api.patch("db.password", &mine, &Patch::Apply(&one)).await.unwrap();
    assert_eq!(again.resource_version(), made.resource_version(), "nothing is written");
    let two = object(&resource, "db.password", "two");
    let conflict = api.patch("db.password", &theirs, &Patch::Apply(&two)).await;
    assert_eq!(refused(conflict), (409, "Conflict".into()));
    let forced = api.patch("db.password", &theirs.force(), &Patch::Apply(&two)).await.unwrap();
    assert_eq!(display_name(&forced), "two");
    // As controllers do it: without a name, for one field.
    let label = Patch::Apply(json!({
        "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
        "metadata": {"labels": {"app": "shop"}},
    }));
    let labels = PatchParams::apply("labels");
    let labelled = api.patch("db.password", &labels, &label).await.unwrap();
    assert_eq!(labelled.labels()["app"], "shop");
    let strategic = Patch::Strategic(json!({"metadata": {"finalizers": ["example.com/x"]}}));
    let patched = api.patch("db.password", &PatchParams::default(), &strategic).await.unwrap();
    assert_eq!(patched.finalizers(), ["example.com/x"]);
}

#[tokio::test]
async fn entries_are_got_or_made_and_committed() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    let post = PostParams::default();
    let made = || object(&resource, "db.password", "made");
    let mut entry = api.entry("db.password").await.unwrap().or_insert(made);
    entry.commit(&post).await.unwrap();
    assert_eq!(display_name(&api.get("db.password").await.unwrap()), "made");
    let change = |name: &'static str| {
        move |object: &mut DynamicObject| object.data["spec"]["displayName"] = name.into()
    };
    let mut late =
        api.entry("db.password").await.unwrap().or_insert(made).and_modify(change("late"));
    let entry = api.entry("db.password").await.unwrap().and_modify(change("changed"));
    let mut entry = entry.or_insert(|| panic!("it is there"));
    entry.commit(&post).await.unwrap();
    assert_eq!(entry.get().metadata.generation, Some(2), "it holds what the server answers");
    let before = entry.get().resource_version();
    entry.commit(&post).await.unwrap();
    assert_eq!(api.get("db.password").await.unwrap().resource_version(), before);
    match late.commit(&post).await {
        Err(CommitError::Save(Error::Api(status))) => assert_eq!(status.reason, "Conflict"),
        other => panic!("not refused: {other:?}"),
    }
    // Both want to make it: the second is told that it is there.
    let new = || object(&resource, "new", "made");
    let mut late = api.entry("new").await.unwrap().or_insert(new);
    api.create(&post, &new()).await.unwrap();
    match late.commit(&post).await {
        Err(CommitError::Save(Error::Api(status))) => assert_eq!(status.reason, "AlreadyExists"),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn lists_come_in_pages() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    for number in 0..5 {
        let object = object(&resource, &format!("s{number}"), "v");
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let mut params = ListParams::default().limit(2);
    let mut names = Vec::new();
    loop {
        let page = api.list(&params).await.unwrap();
        names.extend(page.items.iter().map(kube::ResourceExt::name_any));
        let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else { break };
        params = params.continue_token(&token);
    }
    assert_eq!(names, ["s0", "s1", "s2", "s3", "s4"]);
    let metadata = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(metadata.items.len(), 5);
}

#[tokio::test]
async fn typed_kinds_of_kubernetes_work() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let api: Api<Namespace> = Api::all(client);
    let space = Namespace {
        metadata: ObjectMeta { name: Some("team-a".into()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let made = api.create(&PostParams::default(), &space).await.unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Active"));
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 3);
    let uid = made.metadata.uid.unwrap();
    api.delete("team-a", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(api, "team-a", is_deleted(&uid));
    wait::within("the namespace to be gone", gone).await.unwrap();
}

#[tokio::test]
async fn the_finalizer_helper_completes_its_cycle() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    api.create(&PostParams::default(), &object(&resource, "s1", "v")).await.unwrap();
    // Its first call only adds the finalizer.
    let cycle = async |expected: &str| {
        let object = Arc::new(api.get("s1").await.unwrap());
        let seen = std::sync::Mutex::new("nothing");
        let done: Result<Action, _> =
            finalizer(&api, "example.com/cleanup", object, async |event| {
                *seen.lock().unwrap() = match event {
                    Event::Apply(_) => "apply",
                    Event::Cleanup(_) => "cleanup",
                };
                Ok::<_, std::io::Error>(Action::await_change())
            })
            .await;
        done.unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(*seen.lock().unwrap(), expected);
    };
    cycle("nothing").await;
    assert_eq!(api.get("s1").await.unwrap().finalizers(), ["example.com/cleanup"]);
    cycle("apply").await;
    let marked = api.delete("s1", &DeleteParams::default()).await.unwrap();
    assert!(marked.left().expect("the object still exists").metadata.deletion_timestamp.is_some());
    cycle("cleanup").await;
    assert!(api.get_opt("s1").await.unwrap().is_none());
}

#[tokio::test]
async fn a_wrong_key_is_401() {
    let server = Server::start().await;
    let mut unauthenticated = Kubeconfig::read_from(server.home().kubeconfig()).unwrap();
    let info = unauthenticated.auth_infos[0].auth_info.as_mut().unwrap();
    info.token = Some("pst_wrong".to_owned().into());
    let config =
        kube::Config::from_custom_kubeconfig(unauthenticated, &KubeConfigOptions::default())
            .await
            .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    match client.list_api_groups().await {
        Err(Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let object = |display: &str| object(&resource, "s1", display);
    let made = api.create(&dry, &object("dry")).await.unwrap();
    assert!(made.uid().is_some());
    assert!(api.get_opt("s1").await.unwrap().is_none());
    let made = api.create(&PostParams::default(), &object("one")).await.unwrap();
    let mut changed = made.clone();
    changed.data["spec"]["displayName"] = "two".into();
    let replaced = api.replace("s1", &dry, &changed).await.unwrap();
    assert_eq!(display_name(&replaced), "two");
    let ways = [
        (Patch::Merge(json!({ "spec": { "displayName": "two" } })), PatchParams::default()),
        (Patch::Apply(json!(object("two"))), PatchParams::apply("other").force()),
    ];
    for (patch, params) in ways {
        let patched = api.patch("s1", &params.dry_run(), &patch).await.unwrap();
        assert_eq!(display_name(&patched), "two");
    }
    api.delete("s1", &DeleteParams::default().dry_run()).await.unwrap();
    assert_eq!(api.get("s1").await.unwrap(), made);
}

#[tokio::test]
async fn a_json_patch_is_all_or_nothing() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    api.create(&PostParams::default(), &object(&resource, "s1", "one")).await.unwrap();
    let patch = |tested: &str| {
        let operations = json!([
            { "op": "replace", "path": "/spec/displayName", "value": "two" },
            { "op": "add", "path": "/metadata/labels/app", "value": "shop" },
            { "op": "test", "path": "/metadata/name", "value": tested },
        ]);
        Patch::Json::<()>(serde_json::from_value(operations).unwrap())
    };
    let params = PatchParams::default();
    let failed = api.patch("s1", &params, &patch("other")).await;
    assert_eq!(refused(failed), (422, "Invalid".into()));
    assert_eq!(display_name(&api.get("s1").await.unwrap()), "one");
    let patched = api.patch("s1", &params, &patch("s1")).await.unwrap();
    assert_eq!((display_name(&patched), &*patched.labels()["app"]), ("two", "shop"));
}

#[tokio::test]
async fn deletions_have_each_policy() {
    let server = Server::start().await;
    let client = client(server.home()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    let post = PostParams::default();
    for (policy, params) in [
        ("background", DeleteParams::background()),
        ("foreground", DeleteParams::foreground()),
        ("orphan", DeleteParams::orphan()),
    ] {
        let owner = api.create(&post, &object(&resource, "owner", "v")).await.unwrap();
        let mut dependent = object(&resource, "dependent", "v");
        let mut reference = owner.owner_ref(&resource).unwrap();
        reference.block_owner_deletion = Some(true);
        dependent.owner_references_mut().push(reference);
        let dependent = api.create(&post, &dependent).await.unwrap();
        let answer = api.delete("owner", &params).await.unwrap();
        // The object stays until its dependents are dealt with; in the background, they follow.
        assert_eq!(answer.is_right(), policy == "background");
        let gone = async |name: &str, uid: String| {
            let gone = await_condition(api.clone(), name, is_deleted(&uid));
            wait::within("an object to be gone", gone).await
        };
        gone("owner", owner.uid().unwrap()).await.unwrap();
        if policy == "orphan" {
            let orphan = api.get("dependent").await.unwrap();
            assert!(orphan.owner_references().is_empty(), "{orphan:?}");
            api.delete("dependent", &DeleteParams::default()).await.unwrap();
        }
        gone("dependent", dependent.uid().unwrap()).await.unwrap();
    }
}

/// Lists have the objects that their user may get.
#[tokio::test]
async fn an_ordinary_user_does_everything_with_what_they_may() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let makers = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makers", Some("platform"), makers, "platform:user:ada").await;
    let theirs = secrets(&client(server.home()).await).await;
    let client = client_of(server.home(), ada.token()).await;
    let (api, resource) = (secrets(&client).await, shared_secret(&client).await);
    let post = PostParams::default();
    theirs.create(&post, &object(&resource, "theirs", "T")).await.unwrap();
    let names = async || {
        let list = api.list(&ListParams::default()).await.unwrap();
        list.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>()
    };

    api.create(&post, &object(&resource, "mine", "one")).await.unwrap();
    let merge = Patch::Merge(json!({ "spec": { "displayName": "two" } }));
    let patched = api.patch("mine", &PatchParams::default(), &merge).await.unwrap();
    assert_eq!(display_name(&patched), "two");
    let apply = Patch::Apply(object(&resource, "mine", "three"));
    let params = PatchParams::apply("ada").force();
    let mut applied = api.patch("mine", &params, &apply).await.unwrap();
    applied.data["spec"]["displayName"] = "four".into();
    api.replace("mine", &post, &applied).await.unwrap();
    assert_eq!(display_name(&api.get("mine").await.unwrap()), "four");
    assert_eq!(names().await, ["mine"]);
    assert_eq!(refused(api.get("theirs").await), (404, "NotFound".into()));
    let patched = api.patch("theirs", &PatchParams::default(), &merge).await;
    assert_eq!(refused(patched), (404, "NotFound".into()));

    let access = json!([{ "verbs": ["get", "list"], "users": ["ada"] }]);
    set(&admin, &secret_path("theirs"), json!({ "access": access })).await;
    assert_eq!(names().await, ["mine", "theirs"]);
    assert_eq!(display_name(&api.get("theirs").await.unwrap()), "T");
    let patched = api.patch("theirs", &PatchParams::default(), &merge).await;
    assert_eq!(refused(patched), (403, "Forbidden".into()));
    let Err(Error::Api(status)) = api.delete("theirs", &DeleteParams::default()).await else {
        panic!("it was deleted");
    };
    assert_eq!(status.code, 403);
    api.delete("mine", &DeleteParams::default()).await.unwrap();
    assert_eq!(names().await, ["theirs"]);
}
