//! curl: exactly the paths, bodies and content types of `docs/reference/api.md`.

use std::process::Stdio;

use postern_tests::{Server, wait};
use serde_json::{Value, json};
use tokio::process::Command;

/// curl with one server's authority and credential.
struct Curl {
    prefix: String,
    authority: String,
    token: String,
}

impl Curl {
    fn new(server: &Server) -> Self {
        let kubeconfig = server.kubeconfig();
        let authority = server.home().path().join("ca.pem");
        std::fs::write(&authority, &kubeconfig.authority).unwrap();
        Self {
            prefix: format!("{}/apis/management.platform.sh/v1", kubeconfig.server),
            authority: authority.to_str().unwrap().to_owned(),
            token: kubeconfig.token.clone(),
        }
    }

    /// Runs `-X METHOD P/path` with a body and its type, if any. Returns the code and the response.
    async fn send(&self, method: &str, path: &str, body: Option<(&str, &str)>) -> (u16, Value) {
        let mut command = Command::new("curl");
        let bearer = format!("Authorization: Bearer {}", self.token);
        command
            .args(["--silent", "--show-error", "--cacert", &self.authority, "--request", method])
            .args(["--header", &bearer, "--write-out", "\n%{http_code}"]);
        if let Some((content_type, body)) = body {
            let content_type = format!("Content-Type: {content_type}");
            command.args(["--header", &content_type, "--data-binary", body]);
        }
        command.arg(format!("{}/{path}", self.prefix)).stdin(Stdio::null()).kill_on_drop(true);
        let output = wait::within("curl", command.output()).await.unwrap();
        let (out, err) = (String::from_utf8(output.stdout).unwrap(), output.stderr);
        assert!(output.status.success(), "{method} {path}: {}", String::from_utf8_lossy(&err));
        let (text, code) = out.rsplit_once('\n').unwrap();
        (code.parse().unwrap(), serde_json::from_str(text).unwrap())
    }

    async fn expect(
        &self,
        code: u16,
        method: &str,
        path: &str,
        body: Option<(&str, &str)>,
    ) -> Value {
        let (status, response) = self.send(method, path, body).await;
        assert_eq!(status, code, "{method} {path}: {response}");
        response
    }
}

const YAML: &str = "application/yaml";
const JSON_PATCH: &str = "application/json-patch+json";

/// An object that was read, with a new display name and otherwise unchanged.
fn modified(read: &Value) -> String {
    let mut object = read.clone();
    object["spec"]["displayName"] = json!("modified");
    for field in ["uid", "resourceVersion", "generation"] {
        assert!(!object["metadata"][field].is_null(), "{field} is among what was read");
    }
    serde_saphyr::to_string(&object).unwrap()
}

fn annotate(name: &str) -> String {
    let path = format!("/metadata/annotations/{name}");
    json!([{ "op": "add", "path": path, "value": "yes" }]).to_string()
}

#[tokio::test]
async fn curl_does_everything_with_shared_secrets() {
    let server = Server::start().await;
    let curl = Curl::new(&server);
    let (all, one) = ("namespaces/platform/sharedsecrets", "namespaces/platform/sharedsecrets/s1");
    let object = "apiVersion: management.platform.sh/v1\nkind: SharedSecret\n\
                  metadata:\n  name: s1\n  namespace: platform\n\
                  spec:\n  displayName: one\n  data:\n    token: c2VjcmV0\n";
    let made = curl.expect(201, "POST", all, Some((YAML, object))).await;
    assert_eq!(made["spec"]["data"]["token"], "c2VjcmV0");
    let list = curl.expect(200, "GET", all, None).await;
    assert_eq!(list["items"][0]["metadata"]["name"], "s1");
    let read = curl.expect(200, "GET", one, None).await;
    let put = curl.expect(200, "PUT", one, Some((YAML, &modified(&read)))).await;
    assert_eq!(put["spec"]["displayName"], "modified");
    assert_eq!(put["spec"]["data"], read["spec"]["data"]);
    let patched = curl.expect(200, "PATCH", one, Some((JSON_PATCH, &annotate("seen")))).await;
    assert_eq!(patched["metadata"]["annotations"]["seen"], "yes");
    curl.expect(409, "PUT", one, Some((YAML, &modified(&read)))).await;
    let gone = curl.expect(200, "DELETE", one, None).await;
    assert_eq!(gone["status"], "Success");
    curl.expect(404, "GET", one, None).await;
}

#[tokio::test]
async fn curl_does_everything_with_access_keys() {
    let server = Server::start().await;
    let curl = Curl::new(&server);
    let (all, one) = ("ownedaccesskeys", "ownedaccesskeys/k1");
    let object = "apiVersion: management.platform.sh/v1\nkind: OwnedAccessKey\n\
                  metadata:\n  name: k1\nspec:\n  displayName: one\n  user: admin\n  ttl: 3600\n";
    let made = curl.expect(201, "POST", all, Some((YAML, object))).await;
    let value = made["spec"]["key"].as_str().unwrap().to_owned();
    let as_key = Curl { token: value, ..Curl::new(&server) };
    let read = as_key.expect(200, "GET", one, None).await;
    assert!(read["spec"].get("key").is_none());
    let list = as_key.expect(200, "GET", all, None).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let put = as_key.expect(200, "PUT", one, Some((YAML, &modified(&read)))).await;
    assert_eq!(put["spec"]["displayName"], "modified");
    let patched = as_key.expect(200, "PATCH", one, Some((JSON_PATCH, &annotate("seen")))).await;
    assert_eq!(patched["metadata"]["annotations"]["seen"], "yes");
    // The object that the create returned, its key included, can be sent back as well.
    let mut returned = made.clone();
    returned["metadata"] = patched["metadata"].clone();
    let body = serde_saphyr::to_string(&returned).unwrap();
    curl.expect(200, "PUT", one, Some((YAML, &body))).await;
    as_key.expect(200, "GET", one, None).await;
    let gone = as_key.expect(200, "DELETE", one, None).await;
    assert_eq!(gone["status"], "Success");
    let after = as_key.expect(401, "GET", all, None).await;
    assert_eq!(after["message"], "access key not found");
}

#[tokio::test]
async fn curl_disables_and_enables_keys() {
    let server = Server::start().await;
    let curl = Curl::new(&server);
    let (all, one) = ("ownedaccesskeys", "ownedaccesskeys/k1");
    let object =
        "metadata: {name: k1}\nspec: {user: admin, type: User, scope: {allowPlatformCli: true}}\n";
    let made = curl.expect(201, "POST", all, Some((YAML, object))).await;
    let as_key =
        Curl { token: made["spec"]["key"].as_str().unwrap().to_owned(), ..Curl::new(&server) };
    as_key.expect(201, "POST", "selves", Some((YAML, "{}"))).await;
    for (disabled, code) in [(true, 401), (false, 201)] {
        let mut read = curl.expect(200, "GET", one, None).await;
        read["spec"]["disabled"] = json!(disabled);
        let body = serde_saphyr::to_string(&read).unwrap();
        curl.expect(200, "PUT", one, Some((YAML, &body))).await;
        as_key.expect(code, "POST", "selves", Some((YAML, "{}"))).await;
    }
}
