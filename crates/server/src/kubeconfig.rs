//! The administrator's kubeconfig: written at the first start, and updated at every other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_auth::bearer::BearerToken;
use postern_kinds::{BASE_PATH, HOME_NAMESPACE};
use zeroize::Zeroizing;

const SERVER_FIELD: &str = "    server: ";
const CA_FIELD: &str = "    certificate-authority-data: ";

/// Returns a kubeconfig with a key in it.
pub(crate) fn new(host_and_port: &str, trust: &str, key: &BearerToken) -> Zeroizing<String> {
    Zeroizing::new(format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: postern\nclusters:\n- name: postern\n  \
         cluster:\n{SERVER_FIELD}{}\n{CA_FIELD}{}\ncontexts:\n- name: postern\n  context:\n    \
         cluster: postern\n    user: admin\n    namespace: {HOME_NAMESPACE}\nusers:\n- name: \
         admin\n  user:\n    token: {}\n",
        server(host_and_port),
        STANDARD.encode(trust),
        key.expose(),
    ))
}

/// Returns a kubeconfig with the address and certificate authority of this start; `None` when
/// nothing changes. Only the lines that [`new`] wrote are changed: all edits by the administrator
/// stay.
pub(crate) fn readdressed(
    text: &str,
    host_and_port: &str,
    trust: &str,
) -> Option<Zeroizing<String>> {
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
    fn a_new_address_changes_two_lines_and_nothing_else() {
        let first = new("127.0.0.1:8443", "CA", &key());
        assert!(readdressed(&first, "127.0.0.1:8443", "CA").is_none());
        let second = readdressed(&first, "127.0.0.1:9443", "CB").unwrap();
        assert_eq!(*second, *new("127.0.0.1:9443", "CB", &key()));
        assert!(second.contains("    server: https://127.0.0.1:9443/kubernetes/management\n"));
    }
}
