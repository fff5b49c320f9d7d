//! The administrator's kubeconfig: written at the first start, and updated at every later start.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_auth::bearer::BearerToken;
use postern_kinds::{BASE_PATH, default_namespace};
use postern_meta::decode::{Format, decode};
use serde_json::Value;
use zeroize::Zeroizing;

const SERVER_FIELD: &str = "    server: ";
const CA_FIELD: &str = "    certificate-authority-data: ";

/// A new kubeconfig with an access key. The names of cluster and user have the server in them: if kubeconfigs are
/// merged, the context does not use the credential of another server.
pub fn new(host_and_port: &str, trust: &str, key: &BearerToken) -> Zeroizing<String> {
    let at = host_and_port.replace([':', '[', ']'], "_");
    Zeroizing::new(format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: postern\nclusters:\n- name: postern_{at}\n  \
         cluster:\n{SERVER_FIELD}{}\n{CA_FIELD}{}\ncontexts:\n- name: postern\n  context:\n    \
         cluster: postern_{at}\n    user: admin_{at}\n    namespace: {}\nusers:\n- name: \
         admin_{at}\n  user:\n    token: {}\n",
        server(host_and_port),
        STANDARD.encode(trust),
        default_namespace(),
        key.expose(),
    ))
}

/// A kubeconfig with the address and certificate authority of this start; `None` if nothing changes. It changes only
/// lines that [`new`] wrote; all edits by the administrator stay.
pub fn readdressed(text: &str, host_and_port: &str, trust: &str) -> Option<Zeroizing<String>> {
    let line = |line: &str| {
        if line.starts_with(SERVER_FIELD) {
            format!("{SERVER_FIELD}{}", server(host_and_port))
        } else if line.starts_with(CA_FIELD) {
            format!("{CA_FIELD}{}", STANDARD.encode(trust))
        } else {
            line.to_owned()
        }
    };
    let lines: Vec<String> = text.lines().map(line).collect();
    let new = Zeroizing::new(lines.join("\n") + "\n");
    (new.as_str() != text).then_some(new)
}

/// The certificates that a kubeconfig written by [`new`] trusts, in PEM.
pub fn trust_in(text: &str) -> Option<Vec<u8>> {
    let encoded = text.lines().find_map(|line| line.strip_prefix(CA_FIELD))?;
    STANDARD.decode(encoded.trim()).ok()
}

/// The reason why no client can log in with a kubeconfig; `None` if clients can.
pub fn problem(text: &str) -> Option<&'static str> {
    if text.trim().is_empty() {
        return Some("is empty");
    }
    let decoded = decode(text.as_bytes(), Format::Yaml).ok().map(|decoded| decoded.value);
    let has = |field: &str| {
        let list = decoded.as_ref().and_then(|config| config.get(field)?.as_array());
        list.is_some_and(|list| !list.is_empty())
    };
    if !(has("clusters") && has("users") && has("contexts")) {
        return Some("is corrupt: it is not a kubeconfig with a cluster, a user and a context");
    }
    let users = decoded.as_ref().and_then(|config| config.get("users")?.as_array());
    let logs_in = |user: &Value| {
        let credentials = user.get("user").and_then(Value::as_object);
        let is_given = |value: &Value| !value.is_null() && value.as_str() != Some("");
        credentials.is_some_and(|some| some.values().any(is_given))
    };
    let has_credential = users.is_some_and(|users| users.iter().any(logs_in));
    (!has_credential).then_some("has no credential: no user in it has a token")
}

fn server(host_and_port: &str) -> String {
    format!("https://{host_and_port}{BASE_PATH}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> BearerToken {
        BearerToken::of_key(&postern_kinds::access_key::generate(&mut || 0))
    }

    #[test]
    fn what_cannot_be_used_is_noticed() {
        let whole = new("127.0.0.1:8443", "CA", &key());
        assert_eq!(problem(&whole), None);
        assert_eq!(trust_in(&whole).unwrap(), b"CA");
        assert_eq!(problem(" \n"), Some("is empty"));
        let token = whole.lines().last().unwrap();
        for credential in ["", "    token:", "    token: \"\"", "    {}"] {
            let without = whole.replace(token, credential);
            assert!(problem(&without).unwrap().starts_with("has no credential"), "{without}");
        }
        for corrupt in [&whole[..whole.len() / 2], "clusters: []", "\u{1}", "[", "a: b", "- a"] {
            assert!(problem(corrupt).unwrap().starts_with("is corrupt"), "{corrupt}");
        }
    }

    #[test]
    fn a_new_address_changes_two_lines_and_nothing_else() {
        let first = new("127.0.0.1:8443", "CA", &key());
        assert!(readdressed(&first, "127.0.0.1:8443", "CA").is_none());
        let second = readdressed(&first, "127.0.0.1:9443", "CB").unwrap();
        // The names of the first start stay: contexts of the administrator may refer to them.
        let elsewhere = new("127.0.0.1:9443", "CB", &key());
        assert_eq!(second.replace("_8443", "_9443"), *elsewhere);
        assert!(second.contains("    server: https://127.0.0.1:9443/kubernetes/management\n"));
    }
}
