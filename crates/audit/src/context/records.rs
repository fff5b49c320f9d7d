//! The records of each kind of request, byte for byte, as `records.jsonl` has them.
//!
//! A change of a line is a change for programs that read the log. If it is intended, replace the line in the file.

use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};

use http::Request;
use postern_auth::digest::Digest;
use postern_kinds::Impersonation;
use postern_meta::gvk::GroupResource;
use postern_registry::clock::Source;
use tempfile::TempDir;

use super::*;
use crate::settings::{AuditLog, AuditSettings};
use crate::{Command, SignIn};

const RECORDS: &str = include_str!("records.jsonl");

const SECRETS: &str =
    "/kubernetes/management/apis/management.platform.sh/v1/namespaces/shop/sharedsecrets";

/// A policy that records all bodies.
const BODIES: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitManagedFields: true, \
                      rules: [{level: RequestResponse}]}";

/// A clock that moves by 0.7 s each time, so that some records begin and end in one second.
struct Steps(AtomicI64);

impl Source for Steps {
    fn now_micro(&self) -> MicroTimestamp {
        MicroTimestamp::from_unix_microseconds(self.0.fetch_add(700_042, Ordering::Relaxed))
    }

    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// A log, and requests that are recorded in it.
struct Recorder {
    dir: TempDir,
    audit: Arc<Audit>,
    last: LastSender,
}

impl Recorder {
    fn new(policy: Option<&str>, seconds: i64) -> Self {
        let dir = TempDir::new().unwrap();
        let policy_file = policy.map(|policy| {
            let path = dir.path().join("policy.yaml");
            #[expect(clippy::disallowed_methods, reason = "a test writes its policy")]
            fs::write(&path, policy).unwrap();
            path
        });
        let settings = AuditSettings {
            log: AuditLog::File(dir.path().join("audit.log")),
            policy_file,
            max_file_bytes: u64::MAX,
            max_rotated_files: 1,
            before_answer: false,
            exec_commands: true,
        };
        let clock = Steps(AtomicI64::new(seconds * 1_000_000));
        let audit = Arc::new(Audit::open(settings, Arc::new(clock)).unwrap());
        Self { dir, audit, last: LastSender::default() }
    }

    /// A request that is parsed, and no more.
    fn begin(&self, method: &str, uri: &str, headers: &[(&str, &[u8])]) -> Box<AuditContext> {
        let mut request = Request::builder().method(method).uri(uri).header("host", "postern");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parsed = Parsed::new(request.body(()).unwrap().into_parts().0);
        let id = HeaderValue::from_static("5f0c1f6e-2b0a-4a56-9c39-94e3a1f6a7b1");
        let peer = "192.0.2.1".parse().unwrap();
        Box::new(AuditContext::begin(&self.audit, &parsed, peer, &id))
    }

    /// A request by ada that may be done.
    fn allowed(&self, method: &str, uri: &str, headers: &[(&str, &[u8])]) -> Box<AuditContext> {
        let mut audit = self.begin(method, uri, headers);
        self.authenticate(&mut audit);
        audit.record_received();
        audit.set_allowed();
        audit
    }

    fn authenticate(&self, audit: &mut AuditContext) {
        drop(audit.set_authenticated(&credential(), &self.last, IncomingBody::empty()).unwrap());
    }

    /// The lines of the log.
    fn lines(self) -> String {
        self.audit.gate()().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test looks at its files")]
        fs::read_to_string(self.dir.path().join("audit.log")).unwrap()
    }
}

fn credential() -> Credential {
    let identity = Identity {
        name: "ada".to_owned(),
        uid: "u-1".to_owned(),
        groups: vec!["system:authenticated".to_owned(), "a \"group\"".to_owned()],
        access_key: "ada-1".to_owned(),
        ..Identity::default()
    };
    Credential::of_key(Arc::new(identity), Digest::from_hex(&"ab".repeat(32)).unwrap())
}

fn response(code: u16, content_type: &'static str, body: &'static [u8]) -> Response<Body> {
    let body = Body::Whole(Some(Bytes::from_static(body)));
    let response = Response::builder().status(code).header(CONTENT_TYPE, content_type);
    response.body(body).unwrap()
}

async fn end(audit: Box<AuditContext>, code: u16) {
    end_with(audit, code, SentValues::None).await;
}

async fn end_with(audit: Box<AuditContext>, code: u16, values: SentValues) {
    let response = response(code, "application/json", b"{}");
    drop(audit.finish_with_response(response, values).await.unwrap());
}

/// Requests that may be done.
async fn record_allowed(recorder: &Recorder) {
    let one = format!("{SECRETS}/db");
    let agent: (&str, &[u8]) = ("user-agent", b"kubectl/v1.37.0 (linux/amd64)");
    end_with(recorder.allowed("GET", &one, &[agent]), 200, SentValues::OfObject).await;
    let entry = format!("{one}/entry?entry=password");
    end(recorder.allowed("GET", &entry, &[("user-agent", b"a \"quoted\" \\ agent")]), 200).await;
    let list = format!("{SECRETS}?limit=5&labelSelector=a%3Db&access_token=x&watch");
    end(recorder.allowed("GET", &list, &[("user-agent", b"\xe9")]), 200).await;
    let proxies: [(&str, &[u8]); 3] = [
        ("x-forwarded-for", b"198.51.100.7, nonsense"),
        ("x-forwarded-for", b"2001:db8::1,192.0.2.1 ,192.0.2.1"),
        ("user-agent", b"curl pst_1"),
    ];
    end(recorder.allowed("DELETE", &format!("{SECRETS}/a%70st_1"), &proxies), 200).await;
    let mut create = recorder.allowed("POST", SECRETS, &[agent]);
    create.set_created(ObjectIdentity { name: "db-x".to_owned(), uid: "u-2".to_owned() });
    create.trace = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    end(create, 201).await;
    let mut acting = recorder.begin("PATCH", &one, &[agent, ("x-forwarded-for", b"::1")]);
    recorder.authenticate(&mut acting);
    let wanted = Impersonation { user: "grace".to_owned(), ..Impersonation::default() };
    let extra = [("team \\".to_owned(), vec!["shop".to_owned()])].into();
    let grace = Identity { name: "grace".to_owned(), extra, ..Identity::default() };
    acting.set_impersonated(&credential().acting_as(wanted, grace));
    acting.record_received();
    acting.set_allowed();
    end(acting, 200).await;
    let watch = recorder.allowed("GET", &format!("{SECRETS}?watch=true"), &[agent]);
    drop(
        watch
            .finish_with_response(Response::new(Body::Socket(None)), SentValues::None)
            .await
            .unwrap(),
    );
    let exec = "/kubernetes/cluster/east/api/v1/namespaces/a/pods/b/exec?command=ls&command=-l";
    end(recorder.allowed("GET", exec, &[agent]), 101).await;
    end(recorder.allowed("GET", "/kubernetes/cluster/east/healthz", &[agent]), 200).await;
    end(recorder.allowed("OPTIONS", "/kubernetes/management/nothing?x=1", &[]), 404).await;
    drop(recorder.allowed("PUT", &one, &[agent]));
}

/// Requests that are rejected.
fn record_rejected(recorder: &Recorder) {
    let one = format!("{SECRETS}/db");
    let mut forbidden = recorder.begin("GET", &one, &[("user-agent", b"curl/8")]);
    recorder.authenticate(&mut forbidden);
    let resource = GroupResource::new("management.platform.sh", "sharedsecrets");
    let error = ApiError::forbidden(resource, "db", "no \"rule\" matches");
    forbidden.set_forbidden(&error);
    forbidden.finish_with_error(&error);
    let gone = ApiError::not_found(resource, "db");
    recorder.allowed("GET", &one, &[]).finish_with_error(&gone);
    let error = ApiError::unauthorized("");
    for key in [None, Some("ada-0".to_owned())] {
        let mut unknown = recorder.begin("POST", &one, &[("user-agent", b"curl/8")]);
        unknown.set_unauthenticated(key);
        unknown.finish_with_error(&error);
    }
    let long = "x/\\\"".repeat(300);
    let uri = format!("/y?labelSelector={}", "é".repeat(300));
    let proxies = "198.51.100.7,".repeat(9) + "2001:db8::1";
    let headers: [(&str, &[u8]); 2] =
        [("user-agent", long.as_bytes()), ("x-forwarded-for", proxies.as_bytes())];
    let mut long = recorder.begin("GET", &uri, &headers);
    long.set_unauthenticated(Some("a".repeat(300)));
    long.finish_with_error(&error);
    let mut hidden = recorder.begin("GET", &format!("{SECRETS}/pst_1"), &[]);
    hidden.hide_names();
    recorder.authenticate(&mut hidden);
    hidden.finish_with_error(&gone);
}

/// A request with bodies.
async fn record_bodies(recorder: &Recorder) {
    let roles = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles";
    let sent = br#"{"metadata":{"name":"a","managedFields":[{}]},"rules":["pst_1"],"x":"\u0001"}"#;
    let json: (&str, &[u8]) = ("content-type", b"application/json");
    for body in [Bytes::from_static(sent), Bytes::from(vec![b' '; MAX_BODY_BYTES + 1])] {
        let create = recorder.allowed("POST", roles, &[json]);
        create.body.as_ref().unwrap().set(body).unwrap();
        let created = response(201, "application/json", sent);
        drop(create.finish_with_response(created, SentValues::None).await.unwrap());
    }
    let list = recorder.allowed("GET", roles, &[]);
    let listed = response(200, "application/yaml", b"items: [{metadata: {managedFields: []}}]\n");
    drop(list.finish_with_response(listed, SentValues::None).await.unwrap());
    let get = recorder.allowed("GET", roles, &[]);
    get.finish_with_error(&ApiError::not_found(GroupResource::new("", "roles"), "a"));
}

/// Logins, and commands from the administrator's socket.
async fn record_others(recorder: &Recorder) {
    let (id, peer) = (HeaderValue::from_static("id"), "2001:db8::7".parse().unwrap());
    let uri = "/auth/callback?code=x".parse().unwrap();
    let begin = || {
        let mut login = SignIn::begin(&recorder.audit, &uri, &HeaderMap::new(), peer, &id);
        login.set_connector("github");
        login
    };
    begin().end(http::StatusCode::FORBIDDEN, Some("no user has this \"subject\""));
    let mut login = begin();
    login.admit(Some("ada")).unwrap();
    login.set_user("ada", "ada-2");
    login.end(http::StatusCode::OK, None);
    Command::begin(&recorder.audit, "create-key", 1000).await.unwrap().end(Some("no such user"));
}

#[tokio::test]
async fn records_have_the_same_bytes() {
    let recorder = Recorder::new(None, 1_700_000_000);
    record_allowed(&recorder).await;
    record_rejected(&recorder);
    record_others(&recorder).await;
    let mut lines = recorder.lines();
    let one_of_several = Recorder::new(None, 1_700_000_000);
    one_of_several.audit.set_server("postern-0".to_owned());
    record_others(&one_of_several).await;
    lines += &one_of_several.lines();
    let recorder = Recorder::new(Some(BODIES), -1);
    record_bodies(&recorder).await;
    lines += &recorder.lines();
    for (line, (now, before)) in (1..).zip(lines.lines().zip(RECORDS.lines())) {
        assert_eq!(now, before, "line {line}");
    }
    assert_eq!(lines.len(), RECORDS.len());
}
