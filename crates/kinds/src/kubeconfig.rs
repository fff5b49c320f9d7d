//! The kubeconfig in a Secret, by which a cluster or a virtual cluster is reached. It is read once,
//! strictly, and reduced to the data that a request needs. See
//! `docs/reference/clusters.md#kubeconfigs`.
//!
//! Only the content of the kubeconfig counts. Programs, files, proxies and other identities are refused, each by its
//! name. Only the current context is read. This module does not decide whether its address may be dialled, and dials
//! nothing.

use std::fmt;

use postern_meta::decode::{
    DecodeError, Decoded, Format, decode, decode_own_file, text_after_mark,
};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::base64_text::{self, has_section};
use crate::secret;
use crate::secret_text::SecretText;

/// The most bytes that a kubeconfig has: three certificates and a token take far less.
pub const MAX_KUBECONFIG_BYTES: usize = 256 * 1024;

/// The fields of a cluster that are refused, by their path below the entry, with the reason.
const REFUSED_OF_CLUSTER: [(&str, &str); 2] = [
    (
        "certificate-authority",
        "files are not supported: put the certificates into certificate-authority-data",
    ),
    ("proxy-url", "proxies are not supported"),
];

/// The fields of a user that are refused, with the reason.
const REFUSED_OF_USER: [(&str, &str); 11] = [
    ("exec", "programs are not supported: use a token, or a client certificate"),
    ("auth-provider", "plugins are not supported: use a token, or a client certificate"),
    ("tokenFile", "files are not supported: put the token into token"),
    (
        "client-certificate",
        "files are not supported: put the certificate into \
                            client-certificate-data",
    ),
    ("client-key", "files are not supported: put the key into client-key-data"),
    ("username", "passwords are not supported: use a token, or a client certificate"),
    ("password", "passwords are not supported: use a token, or a client certificate"),
    ("as", "impersonation fields are not supported: the server sets the identity of each request"),
    (
        "as-uid",
        "impersonation fields are not supported: the server sets the identity of each \
                request",
    ),
    (
        "as-groups",
        "impersonation fields are not supported: the server sets the identity of each \
                   request",
    ),
    (
        "as-user-extra",
        "impersonation fields are not supported: the server sets the identity of \
                       each request",
    ),
];

/// The fields that the whole kubeconfig may have.
const KNOWN: [&str; 8] = [
    "apiVersion",
    "kind",
    "preferences",
    "extensions",
    "clusters",
    "users",
    "contexts",
    "current-context",
];

/// The fields that a context may have.
const KNOWN_OF_CONTEXT: [&str; 4] = ["cluster", "user", "namespace", "extensions"];

/// The fields that a cluster may have.
const KNOWN_OF_CLUSTER: [&str; 6] = [
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "disable-compression",
    "extensions",
];

/// The fields that a user may have.
const KNOWN_OF_USER: [&str; 4] =
    ["token", "client-certificate-data", "client-key-data", "extensions"];

/// How a Kubernetes API is reached, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// Its URL: `https://HOST[:PORT][/PATH]`, without a slash at the end.
    pub server: String,
    /// The name that its certificate must be for; the URL's host, when absent.
    pub tls_server_name: Option<String>,
    /// The certificate authorities that are trusted, in PEM; those of the system, when absent.
    pub ca_pem: Option<String>,
    /// Whether the server certificate is not verified.
    pub is_insecure: bool,
    /// The bearer token.
    pub token: Option<SecretText>,
    /// The client certificate. There is a token, or this, or both.
    pub client_certificate: Option<ClientCertificate>,
}

/// A client certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, and those that lead to its authority, in PEM.
    pub chain_pem: String,
    /// Its private key, in PEM.
    pub key_pem: SecretText,
}

/// Why a kubeconfig cannot be used: which field, and what to do. Never a value of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigError(String);

impl fmt::Display for KubeconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KubeconfigError {}

type Fields = Map<String, Value>;

fn refused<T>(text: impl Into<String>) -> Result<T, KubeconfigError> {
    Err(KubeconfigError(text.into()))
}

impl Kubeconfig {
    /// Reads the kubeconfig under a key of a Secret.
    ///
    /// # Errors
    /// When there is no such key; otherwise as [`Kubeconfig::parse`].
    pub fn of_secret(secret: &secret::Spec, key: &str) -> Result<Self, KubeconfigError> {
        let Some(value) = secret.data.get(key) else {
            return refused(format!("the Secret has no key \"{key}\" in its data"));
        };
        let text = base64_text::decode(value.expose());
        let text = text.or_else(|_| refused(format!("data[{key}] is not base64")))?;
        Self::parse(&text)
    }

    /// Reads a kubeconfig, in YAML or JSON: what its current context names.
    ///
    /// # Errors
    /// Which field makes it unusable, and what to do.
    pub fn parse(text: &[u8]) -> Result<Self, KubeconfigError> {
        if text.len() > MAX_KUBECONFIG_BYTES {
            return refused(format!("it has more than {MAX_KUBECONFIG_BYTES} bytes"));
        }
        Self::of_root(&root_of(decode(text, format_of(text)))?)
    }

    /// Parses a file of the user that runs this program, as [`Kubeconfig::parse`] does. Its limits
    /// are those of own files, and it may begin with a byte order mark.
    ///
    /// # Errors
    /// Those of [`Kubeconfig::parse`].
    pub fn parse_own_file(text: &[u8]) -> Result<Self, KubeconfigError> {
        let without_mark = text_after_mark(text).transpose();
        let decoded = without_mark.and_then(|without_mark| {
            let text = without_mark.as_deref().unwrap_or(text);
            decode_own_file(text, format_of(text))
        });
        Self::of_root(&root_of(decoded)?)
    }

    fn of_root(root: &Fields) -> Result<Self, KubeconfigError> {
        refuse_unknown_fields(root, "the kubeconfig", &KNOWN)?;
        let current = text_of(root, "current-context")?;
        let Some(current) = current else { return refused("current-context is missing") };
        let context = entry(root, "contexts", "context", &current)?;
        refuse_unknown_fields(&context, "contexts[].context", &KNOWN_OF_CONTEXT)?;
        let named = |field: &str| match text_of(&context, field)? {
            Some(name) => Ok(name),
            None => refused(format!("the current context names no {field}")),
        };
        let cluster = entry(root, "clusters", "cluster", &named("cluster")?)?;
        let user = entry(root, "users", "user", &named("user")?)?;
        Self::of(&cluster, &user)
    }

    fn of(cluster: &Fields, user: &Fields) -> Result<Self, KubeconfigError> {
        refuse_fields(cluster, "cluster", &REFUSED_OF_CLUSTER)?;
        refuse_unknown_fields(cluster, "clusters[].cluster", &KNOWN_OF_CLUSTER)?;
        refuse_fields(user, "user", &REFUSED_OF_USER)?;
        refuse_unknown_fields(user, "users[].user", &KNOWN_OF_USER)?;
        let ca_pem = pem_of(cluster, "certificate-authority-data", "CERTIFICATE")?;
        let is_insecure = match cluster.get("insecure-skip-tls-verify") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(insecure)) => *insecure,
            Some(_) => return refused("insecure-skip-tls-verify is not true or false"),
        };
        if is_insecure && ca_pem.is_some() {
            let text = "insecure-skip-tls-verify and certificate-authority-data exclude each other";
            return refused(text);
        }
        let Some(server) = text_of(cluster, "server")? else { return refused("server is missing") };
        let token = text_of(user, "token")?.map(|token| checked_token(&token)).transpose()?;
        let client_certificate = client_certificate(user)?;
        if token.is_none() && client_certificate.is_none() {
            return refused(
                "the user has no credential: a token, or a client certificate with its key",
            );
        }
        Ok(Self {
            server: checked_server(&server)?,
            tls_server_name: text_of(cluster, "tls-server-name")?.map(|name| name.to_string()),
            ca_pem: ca_pem.map(|pem| pem.to_string()),
            is_insecure,
            token,
            client_certificate,
        })
    }
}

fn format_of(text: &[u8]) -> Format {
    let is_json = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if is_json { Format::Json } else { Format::Yaml }
}

fn root_of(decoded: Result<Decoded, DecodeError>) -> Result<Fields, KubeconfigError> {
    let decoded = decoded
        .map_err(|error| KubeconfigError(format!("it cannot be read as a kubeconfig: {error}")))?;
    if !decoded.duplicates.is_empty() {
        return refused("duplicate field");
    }
    match decoded.value {
        Value::Object(root) => Ok(root),
        _ => refused("it is not a kubeconfig: it has no fields"),
    }
}

/// The text of a field; `None` where it is absent, null or empty.
fn text_of(fields: &Fields, field: &str) -> Result<Option<Zeroizing<String>>, KubeconfigError> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(Zeroizing::new(text.clone()))),
        Some(_) => refused(format!("{field} is not a text")),
    }
}

/// Refuses fields that are set and would be ignored otherwise. The error does not repeat their names, which are as
/// secret as the rest.
fn refuse_unknown_fields(fields: &Fields, of: &str, known: &[&str]) -> Result<(), KubeconfigError> {
    let is_other = |(name, value): (&String, &Value)| !known.contains(&&name[..]) && is_set(value);
    if fields.iter().any(is_other) {
        return refused(format!("{of} has an unknown field; known fields: {}", known.join(", ")));
    }
    Ok(())
}

fn refuse_fields(fields: &Fields, of: &str, names: &[(&str, &str)]) -> Result<(), KubeconfigError> {
    let set = names.iter().find(|(name, _)| fields.get(*name).is_some_and(is_set));
    match set {
        Some((name, why)) => refused(format!("{of}.{name} is refused: {why}")),
        None => Ok(()),
    }
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// The content of the one entry of a name in a list.
fn entry(root: &Fields, list: &str, inner: &str, name: &str) -> Result<Fields, KubeconfigError> {
    let entries = match root.get(list) {
        Some(Value::Array(entries)) => entries.as_slice(),
        None | Some(Value::Null) => &[],
        Some(_) => return refused(format!("{list} is not a list")),
    };
    let mut named = entries.iter().filter(|entry| entry["name"] == name);
    match (named.next(), named.next()) {
        (None, _) => refused(format!("the {inner} of the current context is not in {list}")),
        (Some(_), Some(_)) => refused(format!(
            "two {list} have the name of the {inner} of the \
                                               current context"
        )),
        (Some(entry), None) => match entry.get(inner) {
            Some(Value::Object(fields)) => Ok(fields.clone()),
            None | Some(Value::Null) => Ok(Fields::new()),
            Some(_) => refused(format!("{list}[].{inner} has no fields")),
        },
    }
}

fn checked_token(token: &str) -> Result<SecretText, KubeconfigError> {
    if token.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(SecretText::from(token.to_owned()))
    } else {
        refused(
            "token contains a space, a line break or another character that is invalid in a \
                 header",
        )
    }
}

fn client_certificate(user: &Fields) -> Result<Option<ClientCertificate>, KubeconfigError> {
    let chain = pem_of(user, "client-certificate-data", "CERTIFICATE")?;
    let key = pem_of(user, "client-key-data", "PRIVATE KEY")?;
    match (chain, key) {
        (None, None) => Ok(None),
        (Some(chain), Some(key)) => Ok(Some(ClientCertificate {
            chain_pem: chain.to_string(),
            key_pem: SecretText::from(key.to_string()),
        })),
        (Some(_), None) => refused("client-certificate-data has no client-key-data"),
        (None, Some(_)) => refused("client-key-data has no client-certificate-data"),
    }
}

/// The PEM in a base64 field, after a look that it is one of this label.
fn pem_of(
    fields: &Fields,
    field: &str,
    label: &str,
) -> Result<Option<Zeroizing<String>>, KubeconfigError> {
    let Some(text) = text_of(fields, field)? else { return Ok(None) };
    let bytes = base64_text::decode(&text);
    let bytes = bytes.or_else(|_| refused(format!("{field} is not base64")))?;
    let pem = String::from_utf8(bytes.to_vec()).map(Zeroizing::new);
    match pem.ok().filter(|pem| has_section(pem, label)) {
        Some(pem) => Ok(Some(pem)),
        None => refused(format!("{field} is not PEM with a {label}")),
    }
}

/// Checks a URL: `https`, a host, no credentials, query or fragment.
fn checked_server(server: &str) -> Result<String, KubeconfigError> {
    let wrong = |why: &str| refused(format!("server {why}: it is https://HOST[:PORT][/PATH]"));
    let Some(rest) = server.strip_prefix("https://") else {
        return wrong("is not an https URL");
    };
    if rest.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'\\') {
        return wrong("has a blank or another character that a URL cannot have");
    }
    if rest.contains(['?', '#', '@']) {
        return wrong("has a user, a query or a fragment");
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = match authority.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or_default())),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0)
    };
    if host.is_empty() || host.contains(['[', ']']) {
        return wrong("has no host");
    }
    if port.is_some_and(|port| !is_port(port)) {
        return wrong("has no valid port");
    }
    if path.split('/').any(|step| [".", ".."].contains(&step) || step.contains('%')) {
        return wrong("has '.', '..' or '%' in its path");
    }
    Ok(server.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::KubeconfigRef;

    const TOKEN: &str = "sesame.open-1";

    fn pem(label: &str) -> String {
        let pem = format!("-----BEGIN {label}-----\naGVsbG8=\n-----END {label}-----\n");
        STANDARD.encode(pem)
    }

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts:\n- {{name: c, context: {{cluster: k, user: u}}}}\n\
             - {{name: other, context: {{cluster: other, user: other}}}}\n\
             clusters:\n- name: k\n  cluster: {{{cluster}}}\n- {{name: other, cluster: {{proxy-url: x}}}}\n\
             users:\n- name: u\n  user: {{{user}}}\n- {{name: other, user: {{exec: {{command: x}}}}}}\n"
        )
    }

    fn parse(cluster: &str, user: &str) -> Result<Kubeconfig, String> {
        let parsed = Kubeconfig::parse(kubeconfig(cluster, user).as_bytes());
        parsed.map_err(|error| error.to_string())
    }

    /// `base64` and openssl wrap their output.
    #[test]
    fn base64_may_have_line_breaks() {
        let wrapped = |label: &str| {
            let text = pem(label);
            let (first, rest) = text.split_at(20);
            format!("\"{first}\\n{rest}\\r\\n\"")
        };
        let (ca, cert, key) =
            (wrapped("CERTIFICATE"), wrapped("CERTIFICATE"), wrapped("PRIVATE KEY"));
        let cluster = format!("server: 'https://k', certificate-authority-data: {ca}");
        let user = format!("client-certificate-data: {cert}, client-key-data: {key}");
        let read = parse(&cluster, &user).unwrap();
        assert!(read.ca_pem.is_some() && read.client_certificate.is_some());
        let text = STANDARD.encode(kubeconfig(&cluster, &user));
        let (first, rest) = text.split_at(76);
        let data = serde_json::json!({ "data": { "config": format!("{first}\n{rest}\n") } });
        let secret: secret::Spec = serde_json::from_value(data).unwrap();
        assert_eq!(Kubeconfig::of_secret(&secret, "config").unwrap(), read);
    }

    #[test]
    fn what_the_current_context_names_is_read_and_nothing_else() {
        let (ca, cert, key) = (pem("CERTIFICATE"), pem("CERTIFICATE"), pem("EC PRIVATE KEY"));
        let read = parse(
            &format!("server: 'https://k.example:6443/', certificate-authority-data: {ca}, tls-server-name: k.internal"),
            &format!("token: {TOKEN}, client-certificate-data: {cert}, client-key-data: {key}"),
        )
        .unwrap();
        assert_eq!(read.server, "https://k.example:6443");
        assert_eq!(read.tls_server_name.as_deref(), Some("k.internal"));
        assert!(read.ca_pem.as_deref().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(!read.is_insecure);
        assert_eq!(read.token.as_ref().unwrap().expose(), TOKEN);
        let certificate = read.client_certificate.as_ref().unwrap();
        assert!(certificate.key_pem.expose().contains("EC PRIVATE KEY"));
        let printed = format!("{read:?}");
        assert!(!printed.contains(TOKEN) && !printed.contains("PRIVATE KEY"), "{printed}");
    }

    #[test]
    fn json_is_read_as_yaml_is() {
        let json = r#"{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k",
            "user":"u"}}],"clusters":[{"name":"k","cluster":{"server":"https://[::1]:6443/a/b",
            "insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":{"token":"t"}}]}"#;
        let read = Kubeconfig::parse(json.as_bytes()).unwrap();
        assert_eq!((&read.server[..], read.is_insecure), ("https://[::1]:6443/a/b", true));
    }

    #[test]
    fn programs_files_proxies_and_identities_are_refused_by_name() {
        let server = "server: 'https://k.example'";
        for field in REFUSED_OF_CLUSTER.map(|(field, _)| field) {
            let error = parse(&format!("{server}, {field}: sesame"), "token: t").unwrap_err();
            assert!(error.contains(&format!("cluster.{field} is refused")), "{error}");
            assert!(!error.contains("sesame"), "{error}");
        }
        for field in REFUSED_OF_USER.map(|(field, _)| field) {
            let error = parse(server, &format!("token: t, {field}: [sesame]")).unwrap_err();
            assert!(error.contains(&format!("user.{field} is refused")), "{error}");
            assert!(!error.contains("sesame"), "{error}");
            assert!(parse(server, &format!("token: t, {field}: ''")).is_ok(), "empty is absent");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_without_its_value() {
        let server = "server: 'https://k.example'";
        let half = format!("client-key-data: {}", pem("PRIVATE KEY"));
        let exclude = format!(
            "{server}, insecure-skip-tls-verify: true, certificate-authority-data: {}",
            pem("CERTIFICATE")
        );
        for (cluster, user, wanted) in [
            ("", "token: t", "server is missing"),
            (server, "", "the user has no credential"),
            (server, "token: 'ses ame'", "token contains a space"),
            (server, "token: [sesame]", "token is not a text"),
            (server, "token: t, sesame: sesame", "users[].user has an unknown field"),
            (server, "client-certificate-data: sesame!", "client-certificate-data is not base64"),
            (server, "client-certificate-data: c2VzYW1l", "client-certificate-data is not PEM"),
            (server, &half, "client-key-data has no client-certificate-data"),
            (&exclude, "token: t", "exclude each other"),
            ("server: 'http://k.example'", "token: t", "is not an https URL"),
            ("server: 'https://sesame:x@k.example'", "token: t", "has a user"),
            ("server: 'https://k.example?sesame'", "token: t", "a query"),
            ("server: 'https://'", "token: t", "has no host"),
            ("server: 'https://k.example:0'", "token: t", "has no valid port"),
            ("server: 'https://k.example:+1'", "token: t", "has no valid port"),
            ("server: 'https://[::1'", "token: t", "has no"),
            ("server: 'https://k.example/a/../sesame'", "token: t", "in its path"),
            ("server: 'https://k.example/%2e%2e'", "token: t", "in its path"),
        ] {
            let error = parse(cluster, user).unwrap_err();
            assert!(error.contains(wanted), "{wanted}: {error}");
            assert!(!error.contains("sesame"), "{error}");
        }
    }

    #[test]
    fn a_file_of_ones_own_may_be_long_and_have_a_byte_order_mark() {
        let one = kubeconfig("server: 'https://k.example'", "token: t");
        let padding = format!("# {}\n", "x".repeat(1000)).repeat(1000);
        let long = format!("{one}{padding}");
        assert!(Kubeconfig::parse(long.as_bytes()).is_err());
        let utf_16 = ['\u{feff}'].into_iter().chain(one.chars());
        let utf_16: Vec<u8> = utf_16
            .flat_map(|letter| letter.encode_utf16(&mut [0; 2]).to_vec())
            .flat_map(u16::to_le_bytes)
            .collect();
        let contexts = (0..1000)
            .map(|number| format!("- {{name: n{number}, context: {{cluster: c, user: u}}}}\n"));
        let many =
            one.replace("contexts:\n", &format!("contexts:\n{}", contexts.collect::<String>()));
        for text in [long.as_bytes(), &utf_16, one.as_bytes(), many.as_bytes()] {
            assert_eq!(Kubeconfig::parse_own_file(text).unwrap().server, "https://k.example");
        }
        assert!(Kubeconfig::parse_own_file(&[0xff, 0xfe, 1]).is_err());
    }

    #[test]
    fn a_kubeconfig_with_two_meanings_is_refused() {
        let good = kubeconfig("server: 'https://k.example'", "token: t");
        let parse = |text: &str| Kubeconfig::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(
            parse(&good.replace("kind: Config", "current-context: other"))
                .contains("duplicate field")
        );
        assert!(
            parse(&good.replace("- name: u\n", "- name: other\n"))
                .contains("current context is not in users")
        );
        let two = good.replace("- {name: other, user", "- {name: u, user");
        assert!(parse(&two).contains("two users"));
        assert!(
            parse(&good.replace("current-context: c\n", "")).contains("current-context is missing")
        );
        assert!(parse("[1]").contains("no fields"));
        assert!(parse("\u{7}: {").contains("cannot be read"));
        assert!(parse(&" ".repeat(MAX_KUBECONFIG_BYTES + 1)).contains("more than"));
    }

    #[test]
    fn the_key_of_a_secret_is_found_or_named() {
        let text = STANDARD.encode(kubeconfig("server: 'https://k.example'", "token: t"));
        let data = [("config".to_owned(), SecretText::from(text))].into();
        let secret = secret::Spec { data, ..secret::Spec::default() };
        let reference = KubeconfigRef::default();
        assert!(Kubeconfig::of_secret(&secret, reference.key_or_default()).is_ok());
        let error = Kubeconfig::of_secret(&secret, "other").unwrap_err();
        assert_eq!(error.to_string(), "the Secret has no key \"other\" in its data");
    }
}
