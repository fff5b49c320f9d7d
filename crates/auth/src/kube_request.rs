//! A parsed request to the API server of any Kubernetes cluster: as kube-apiserver's `RequestInfo`, but stricter.
//!
//! The decision must be about the action that the target carries out. So a request that two parsers could read
//! differently is rejected. The forwarded request is written anew from the parsed one
//! ([`KubeRequest::path_and_query`]).

use http::header::{CONNECTION, HOST, HeaderMap, UPGRADE};
use http::request::Parts;
use http::{Method, Version};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use postern_kinds::access_key;
use postern_meta::names::{dns1123_label, dns1123_subdomain};
use postern_meta::options::Query;
use postern_meta::selector::FieldSelector;
use postern_meta::status::{ApiError, Reason};

use crate::attributes::{Attributes, is_stream, required_verbs};
use crate::kind_scope::has_namespaces;
use crate::plain_path::is_plain_segment;

/// The longest path that is accepted, in bytes.
const MAX_PATH_BYTES: usize = 8 * 1024;

/// The bytes that need no escape in a step of a path. They are RFC 3986's characters of a segment,
/// without those that some parsers give a meaning to.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b'$')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b'*')
    .remove(b'!')
    .remove(b'(')
    .remove(b')');

/// The bytes that need no escape in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'/')
    .remove(b',')
    .remove(b'*');

/// The subresources of a Namespace. Any other segment after its name is a resource in the
/// namespace.
const OF_NAMESPACE: [&str; 2] = ["finalize", "status"];

/// The reviews of the caller's own permissions or identity: API group and resource.
const OWN_REVIEWS: [(&str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

/// The first steps of the paths that describe an API.
const DESCRIPTIONS: [&str; 4] = ["api", "apis", "openapi", "version"];

/// A request to a Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeRequest {
    verb: &'static str,
    what: RequestKind,
    is_upgrade: bool,
    follows_log: bool,
    path_and_query: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestKind {
    Resource(Resource),
    Description(String),
    Path(String),
}

/// A resource, as a path names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resource {
    group: String,
    version: String,
    plural: String,
    subresource: String,
    namespace: String,
    name: String,
}

impl KubeRequest {
    /// Reads a request. `path` is its path at the target, as it was sent.
    ///
    /// # Errors
    /// 400 for a request that two parsers could read differently, and for one that no Kubernetes client
    /// sends. 405 for a method that no Kubernetes client uses.
    pub fn parse(parts: &Parts, path: &str) -> Result<Self, ApiError> {
        let is_http2 = matches!(parts.version, Version::HTTP_2 | Version::HTTP_3);
        if !is_http2 && parts.uri.authority().is_some() {
            // RFC 9112 section 3.2.2: the Host in the target would count, and not the header.
            return Err(bad("the request target must be a path, not a URL"));
        }
        let verb = verb_of(&parts.method)?;
        let raw_query = parts.uri.query().unwrap_or_default();
        let query = Query::parse(raw_query)?;
        let (segments, ends_in_slash) = segments(path)?;
        let mut read = Self {
            verb,
            what: RequestKind::Path(String::new()),
            is_upgrade: is_upgrade(&parts.headers),
            follows_log: false,
            path_and_query: String::new(),
        };
        let keeps_slash = read.read(&segments, ends_in_slash, &query)?;
        let steps: Vec<_> =
            segments.iter().map(|step| utf8_percent_encode(step, SEGMENT)).collect();
        for step in steps {
            read.path_and_query.push('/');
            read.path_and_query.extend(step);
        }
        if segments.is_empty() || keeps_slash {
            read.path_and_query.push('/');
        }
        write_query(raw_query, &mut read.path_and_query)?;
        Ok(read)
    }

    /// The attributes for a decision.
    pub fn attributes(&self) -> Attributes<'_> {
        let verb = self.verb;
        match &self.what {
            RequestKind::Resource(at) => Attributes::Resource {
                verb,
                group: &at.group,
                resource: &at.plural,
                subresource: &at.subresource,
                namespace: &at.namespace,
                name: &at.name,
            },
            RequestKind::Description(path) => Attributes::Description { verb, path },
            RequestKind::Path(path) => Attributes::Path { verb, path },
        }
    }

    /// The verbs of which the request needs every one.
    pub fn required_verbs(&self) -> impl Iterator<Item = &'static str> + use<> {
        required_verbs(self.verb, self.subresource(), self.is_upgrade)
    }

    /// The verb: Kubernetes' for a resource, and else the method in lower case.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// The version of the API; empty if the request is for no resource.
    pub fn version(&self) -> &str {
        if let RequestKind::Resource(at) = &self.what { &at.version } else { "" }
    }

    fn subresource(&self) -> &str {
        if let RequestKind::Resource(at) = &self.what { &at.subresource } else { "" }
    }

    /// Whether it asks for a protocol upgrade of its connection.
    pub fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    /// Whether the request may change something. A stream can carry any data. A review of the
    /// caller's own access has the verb create, but changes nothing.
    pub fn changes(&self) -> bool {
        !self.is_own_review()
            && self.required_verbs().any(|verb| !matches!(verb, "get" | "head" | "list" | "watch"))
    }

    fn is_own_review(&self) -> bool {
        let Attributes::Resource { verb: "create", group, resource, subresource: "", .. } =
            self.attributes()
        else {
            return false;
        };
        !self.is_upgrade && OWN_REVIEWS.contains(&(group, resource))
    }

    /// Whether it opens a bidirectional stream. Such a stream continues after its token has expired
    /// (`docs/reference/endpoint-tokens.md#lifetime`).
    pub fn is_stream(&self) -> bool {
        self.is_upgrade || is_stream(self.subresource())
    }

    /// Whether the request can last long, as a watch or a stream. It then has no separate time
    /// limit.
    pub fn is_long(&self) -> bool {
        self.is_stream() || self.is_watch() || self.follows_log || self.is_by_proxy()
    }

    /// Whether the request goes to a workload through the subresource `proxy`. The response is then
    /// that of the workload, even a 401.
    pub fn is_by_proxy(&self) -> bool {
        self.subresource() == "proxy"
    }

    /// The path and query for the target, written from the parsed request.
    pub fn path_and_query(&self) -> &str {
        &self.path_and_query
    }

    /// Reads the path's segments. Returns whether a slash at the end has a meaning.
    fn read(&mut self, path: &[String], slash: bool, query: &Query) -> Result<bool, ApiError> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let (group, version, rest) = match path.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => {
                let whole = format!("/{}{}", path.join("/"), if slash { "/" } else { "" });
                let is_path = matches!(path_attributes("", &whole), Attributes::Path { .. });
                self.what = if is_path {
                    RequestKind::Path(whole)
                } else {
                    RequestKind::Description(whole)
                };
                return Ok(slash);
            }
        };
        check_step(group.is_empty() || dns1123_subdomain(group).is_ok(), "API group")?;
        check_step(dns1123_label(version).is_ok(), "API version")?;
        let rest = self.special_verb(rest)?;
        let (mut at, has_subresource) = resource_of(rest)?;
        (at.group, at.version) = (group.to_owned(), version.to_owned());
        if !at.namespace.is_empty() && has_namespaces(group, &at.plural) == Some(false) {
            return Err(bad(format!("{} have no namespace, and the path has one", at.plural)));
        }
        self.set_verb(&mut at, query)?;
        self.follows_log = at.subresource == "log" && query.flag("follow")?.unwrap_or(false);
        self.what = RequestKind::Resource(at);
        // The rest after a subresource is for the server of that subresource: `proxy/` is not
        // `proxy`.
        Ok(slash && has_subresource)
    }

    /// Takes a path segment that means a verb off the path: `watch/` before a resource, from older
    /// clients.
    fn special_verb<'a, 'p>(&mut self, path: &'p [&'a str]) -> Result<&'p [&'a str], ApiError> {
        match path {
            ["watch", rest @ ..] => {
                if self.verb != "get" || rest.is_empty() {
                    return Err(bad("a path with watch/ is read with GET, and names a resource"));
                }
                self.verb = "watch";
                Ok(rest)
            }
            ["proxy", ..] => Err(bad(
                "paths with proxy/ before a resource are not supported: use the subresource proxy",
            )),
            rest => Ok(rest),
        }
    }

    /// Sets the verb of a request for a resource, and the name that a field selector asks for.
    fn set_verb(&mut self, at: &mut Resource, query: &Query) -> Result<(), ApiError> {
        let is_collection = at.name.is_empty();
        self.verb = match self.verb {
            "get" | "head" if !is_collection => "get",
            "get" | "head" if query.flag("watch")?.unwrap_or(false) => "watch",
            "get" | "head" => "list",
            "post" => "create",
            "put" => "update",
            "delete" if is_collection => "deletecollection",
            verb => verb,
        };
        if !is_collection || !matches!(self.verb, "list" | "watch" | "deletecollection") {
            return Ok(());
        }
        // As upstream, only a list and a watch of one name count as requests for that name.
        let Some(text) = query.single("fieldSelector")? else { return Ok(()) };
        let selector = FieldSelector::parse_any(text).map_err(bad)?;
        if self.verb != "deletecollection"
            && let Some(name) = selector.exact("metadata.name")
            && check_segment(name).is_ok()
        {
            name.clone_into(&mut at.name);
        }
        Ok(())
    }
}

/// Checks that there is exactly one Host, which HTTP/1.1 requires (RFC 9112 section 3.2): two
/// readers of one request must not see two servers in it.
///
/// # Errors
/// 400 for none, and for more than one.
pub fn check_host(parts: &Parts) -> Result<(), ApiError> {
    let hosts = parts.headers.get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && parts.version == Version::HTTP_11) {
        return Err(bad("a request has exactly one Host header"));
    }
    Ok(())
}

/// The attributes of a path that is no resource.
pub fn path_attributes<'a>(verb: &'a str, path: &'a str) -> Attributes<'a> {
    let first = path.strip_prefix('/').and_then(|path| path.split('/').next());
    if first.is_some_and(|first| DESCRIPTIONS.contains(&first)) {
        Attributes::Description { verb, path }
    } else {
        Attributes::Path { verb, path }
    }
}

/// Whether a request asks to switch to another protocol. Either header is enough, because parsers
/// differ.
fn is_upgrade(headers: &HeaderMap) -> bool {
    let names_upgrade = |value: &http::HeaderValue| {
        let mut tokens = value.as_bytes().split(|byte| *byte == b',');
        tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
    };
    headers.contains_key(UPGRADE) || headers.get_all(CONNECTION).iter().any(names_upgrade)
}

fn verb_of(method: &Method) -> Result<&'static str, ApiError> {
    Ok(match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => {
            let message = format!("the method {method} is not supported");
            return Err(ApiError::new(405, Reason::MethodNotAllowed, message));
        }
    })
}

/// The decoded steps of a path, and whether it ends in a slash.
fn segments(path: &str) -> Result<(Vec<String>, bool), ApiError> {
    if path.len() > MAX_PATH_BYTES {
        return Err(bad(format!("the path is longer than {MAX_PATH_BYTES} bytes")));
    }
    let inner = path.strip_prefix('/').ok_or_else(|| bad("the path does not begin with '/'"))?;
    if inner.is_empty() {
        return Ok((Vec::new(), false));
    }
    let (inner, slash) = inner.strip_suffix('/').map_or((inner, false), |inner| (inner, true));
    // Split first, decode then: an encoded slash must not become a separator.
    let steps = inner.split('/').map(segment).collect::<Result<_, _>>()?;
    Ok((steps, slash))
}

fn segment(raw: &str) -> Result<String, ApiError> {
    if is_plain_segment(raw) {
        return Ok(raw.to_owned());
    }
    check_encoding(raw)?;
    let text = percent_decode_str(raw).decode_utf8();
    let text = text.map_err(|_| bad("the path is not UTF-8 after percent-decoding"))?;
    if access_key::is_well_formed(&text) {
        return Err(bad("the path contains an access key, which may now be in logs: rotate that \
                        key"));
    }
    check_segment(&text)?;
    Ok(text.into_owned())
}

/// Checks that a step of a path means nothing but itself, however often it is decoded.
fn check_segment(text: &str) -> Result<(), ApiError> {
    let has_meaning = |c: char| matches!(c, '/' | '\\' | '%' | ';' | '?' | '#') || c.is_control();
    if matches!(text, "" | "." | "..") || text.chars().any(has_meaning) {
        return Err(bad(
            "ambiguous path: a segment is empty, '.', '..', or contains '/', a backslash, '%', \
             ';', '?', '#' or a control character, plain or encoded",
        ));
    }
    Ok(())
}

/// Checks that every '%' begins an encoded byte.
fn check_encoding(raw: &str) -> Result<(), ApiError> {
    let complete = |code: &str| {
        code.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    };
    if raw.split('%').skip(1).all(complete) && raw.is_ascii() {
        return Ok(());
    }
    Err(bad("invalid percent-encoding in the path or query"))
}

/// The resource that the steps after the version name, and whether a subresource is among them.
fn resource_of(path: &[&str]) -> Result<(Resource, bool), ApiError> {
    let (namespace, path) = match path {
        ["namespaces", _, sub, ..] if OF_NAMESPACE.contains(sub) => ("", path),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        path => ("", path),
    };
    check_step(namespace.is_empty() || dns1123_label(namespace).is_ok(), "namespace")?;
    let step = |index: usize| path.get(index).copied().unwrap_or_default();
    let (resource, name, subresource) = (step(0), step(1), step(2));
    let is_word = |text: &str| {
        text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    check_step(is_word(resource), "resource")?;
    check_step(is_word(subresource), "subresource")?;
    let owned = str::to_owned;
    let found = Resource {
        plural: owned(resource),
        subresource: owned(subresource),
        namespace: owned(namespace),
        name: owned(name),
        ..Resource::default()
    };
    Ok((found, path.len() >= 3))
}

fn check_step(is_valid: bool, what: &str) -> Result<(), ApiError> {
    if is_valid { Ok(()) } else { Err(bad(format!("the path has no valid {what}"))) }
}

/// Encodes a query again, with one encoding for each name and value.
fn write_query(raw: &str, out: &mut String) -> Result<(), ApiError> {
    check_encoding(raw)?;
    if raw.contains([';', '#']) {
        // Some parsers separate parameters with `;`, and some drop a parameter that contains one.
        return Err(bad("the query has a ';' that is not encoded"));
    }
    let mut separator = '?';
    for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
        out.push(std::mem::replace(&mut separator, '&'));
        let (name, value) = pair.split_once('=').map_or((pair, None), |(n, v)| (n, Some(v)));
        write_part(name, out)?;
        if let Some(value) = value {
            out.push('=');
            write_part(value, out)?;
        }
    }
    Ok(())
}

fn write_part(raw: &str, out: &mut String) -> Result<(), ApiError> {
    let spaced = raw.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8();
    let text = text.map_err(|_| bad("the query is not UTF-8 once decoded"))?;
    out.extend(utf8_percent_encode(&text, QUERY));
    Ok(())
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::bad_request(message)
}

#[cfg(test)]
mod tests;
