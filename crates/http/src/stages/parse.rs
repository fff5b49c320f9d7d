//! `Parsed`: a request, parsed once from its method, path, query and headers.
//!
//! All later stages use it, and never parse the URL again.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use hyper::upgrade::OnUpgrade;
use postern_auth::gateway_path::{self, GatewayTarget};
use postern_auth::kube_request::{KubeRequest, check_host};
use postern_kinds::command_line_consent::CommandLineConsent;
use postern_kinds::console_login_code::ConsoleLoginCode;
use postern_kinds::console_session::ConsoleSession;
use postern_kinds::{AnyKind, BASE_PATH, Verb, all, find};
use postern_meta::gvk::GroupVersion;
use postern_meta::options::Query;
use postern_meta::selector::FieldSelector;
use postern_meta::status::ApiError;
use postern_registry::permit::{ResourceTarget, selectable_fields, stored_kind};

use super::path::{PathShape, Segments, decoded};
use super::websocket;

/// The path of the session of a browser.
pub const SESSION_PATH: &str = "/auth/session";

/// The path of logins of the command line: a browser begins with GET, and a person consents with POST.
pub const AUTHORIZE_PATH: &str = "/auth/authorize";

/// The path of codes for login links.
pub const CODE_PATH: &str = "/auth/code";

/// The documents that describe the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Document {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(&'static str),
    /// `/api/v1` and `/apis/<group>/<version>`
    Resources(GroupVersion),
    /// `/metrics`
    Metrics,
    /// `/metrics/owners`
    OwnerMetrics,
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/api/v1` and `/openapi/v3/apis/<group>/<version>`
    OpenApi(GroupVersion),
}

impl Document {
    /// Whether the document describes the API, and contains nothing stored.
    pub fn describes_the_api(self) -> bool {
        match self {
            Self::CoreVersions
            | Self::Groups
            | Self::Group(_)
            | Self::Resources(_)
            | Self::OpenApiIndex
            | Self::OpenApi(_)
            | Self::OpenApiV2 => true,
            Self::Metrics | Self::OwnerMetrics => false,
        }
    }
}

/// A request to a cluster, a virtual cluster or a space, through the gateway.
#[derive(Debug)]
pub struct GatewayRequest {
    /// The target.
    pub target: GatewayTarget,
    /// The request at the target.
    pub kube: KubeRequest,
    /// The part of the path before the target's own path, without a slash at the end.
    pub prefix: String,
}

/// The target of a path.
#[derive(Clone)]
pub enum Target {
    /// One or more objects.
    Resource(ResourceTarget),
    /// A description of the API.
    Document(Document),
    /// A path at a target behind the gateway.
    Gateway(Arc<GatewayRequest>),
    /// A path that is not served.
    Nothing,
}

/// A parsed request. Its sender is not known yet. Only [`Parsed::new`] makes one. Clones share the
/// content.
#[derive(Clone)]
pub struct Parsed(Arc<Head>);

/// The head of a request, and its parsed target.
struct Head {
    method: Method,
    uri: Uri,
    query: Query,
    headers: HeaderMap,
    version: Version,
    /// The connection after an upgrade to another protocol.
    upgrade: Option<OnUpgrade>,
    /// Whether the client requests an upgrade to another protocol, and whether that is a WebSocket.
    is_upgrade: bool,
    is_websocket: bool,
    target: Target,
    shape: PathShape,
    /// Why the request is invalid. Only authenticated callers get it. Others get 401 for all paths that are not public.
    problem: Option<Box<ApiError>>,
}

impl Parsed {
    /// Parses the head of a request. An error is stored for authenticated callers.
    pub fn new(parts: Parts) -> Self {
        let shape = PathShape::of(parts.uri.path());
        let (parsed, problem) = match read(&parts, shape) {
            Ok(parsed) => (parsed, None),
            Err(problem) => ((Query::default(), Target::Nothing), Some(Box::new(problem))),
        };
        let (query, target) = parsed;
        let Parts { method, uri, headers, version, mut extensions, .. } = parts;
        let upgrade = extensions.remove::<OnUpgrade>();
        let is_upgrade = headers.contains_key(http::header::UPGRADE);
        let is_websocket = is_upgrade && websocket::is_requested(&headers);
        Self(Arc::new(Head {
            method,
            uri,
            query,
            headers,
            version,
            upgrade,
            is_upgrade,
            is_websocket,
            target,
            shape,
            problem,
        }))
    }

    /// A copy of the request with only these headers, in separate memory. So the buffer of the received head can be
    /// freed.
    #[must_use]
    pub fn detached(&self, names: &[HeaderName]) -> Self {
        let Head { method, uri, query, version, target, shape, .. } = &*self.0;
        let mut headers = HeaderMap::new();
        for name in names {
            for value in self.0.headers.get_all(name) {
                // The bytes of a header value are always valid.
                if let Ok(copy) = HeaderValue::from_bytes(value.as_bytes()) {
                    headers.append(name, copy);
                }
            }
        }
        Self(Arc::new(Head {
            method: method.clone(),
            uri: uri.to_string().parse().unwrap_or_default(),
            query: query.clone(),
            headers,
            version: *version,
            upgrade: None,
            is_upgrade: false,
            is_websocket: false,
            target: target.clone(),
            shape: *shape,
            problem: None,
        }))
    }

    /// The request without the names in its path, for audit records: one of them is the value of an access key.
    #[must_use]
    pub fn without_names(&self) -> Self {
        let Head { method, query, headers, version, target, shape, .. } = &*self.0;
        let target = match target {
            Target::Resource(target) => {
                Target::Resource(ResourceTarget { namespace: None, name: None, ..target.clone() })
            }
            Target::Document(document) => Target::Document(*document),
            Target::Gateway(_) | Target::Nothing => Target::Nothing,
        };
        Self(Arc::new(Head {
            method: method.clone(),
            uri: Uri::from_static("/(left-out)"),
            query: query.clone(),
            headers: headers.clone(),
            version: *version,
            upgrade: None,
            is_upgrade: false,
            is_websocket: false,
            target,
            shape: *shape,
            problem: None,
        }))
    }

    /// The error of an invalid request: 400 for an invalid path or query; 405 for a method that the resource does not
    /// support.
    pub fn problem(&self) -> Option<&ApiError> {
        self.0.problem.as_deref()
    }

    /// The HTTP method.
    pub fn method(&self) -> &Method {
        &self.0.method
    }

    /// The path as it was received.
    pub fn path(&self) -> &str {
        self.0.uri.path()
    }

    /// Whether the path is too long to search for keys across several segments.
    pub fn is_deep(&self) -> bool {
        self.0.shape.is_deep()
    }

    /// The length of the longest segment of the path, in bytes.
    pub fn longest_segment_bytes(&self) -> usize {
        self.0.shape.longest_segment_bytes
    }

    /// The path without the base path. The same rules apply to a path with and without it.
    pub fn path_below_base(&self) -> &str {
        let path = self.0.uri.path();
        path.strip_prefix(BASE_PATH).filter(|rest| rest.starts_with('/')).unwrap_or(path)
    }

    /// Whether the client requests an upgrade to another protocol.
    pub fn is_upgrade(&self) -> bool {
        self.0.is_upgrade
    }

    /// Whether the client requests a WebSocket.
    pub fn is_websocket(&self) -> bool {
        self.0.is_websocket
    }

    /// The connection after an upgrade to another protocol.
    pub fn upgrade(&self) -> Option<OnUpgrade> {
        self.0.upgrade.clone()
    }

    /// The HTTP version.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// The path and the query as they were received, for the audit log.
    pub fn uri(&self) -> &Uri {
        &self.0.uri
    }

    /// The query.
    pub fn query(&self) -> &Query {
        &self.0.query
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// The head of the request as it was received, for the gateway.
    pub fn to_head(&self) -> Parts {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        let Head { method, uri, headers, version, upgrade, .. } = &*self.0;
        (parts.method, parts.uri, parts.headers) = (method.clone(), uri.clone(), headers.clone());
        parts.version = *version;
        if let Some(upgrade) = upgrade {
            parts.extensions.insert(upgrade.clone());
        }
        parts
    }

    /// Whether the request accepts the code of a login link. Such a request begins a session, or
    /// asks for the user of the session that the code would begin.
    pub fn takes_code(&self) -> bool {
        self.path() == SESSION_PATH && [Method::GET, Method::POST].contains(self.method())
    }

    /// The parsed target.
    pub fn target(&self) -> &Target {
        &self.0.target
    }

    /// All text values of a header.
    pub fn header_values(&self, name: HeaderName) -> Vec<&str> {
        self.0.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
    }

    /// The first value of a header, if it is text.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.0.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

fn read(parts: &Parts, shape: PathShape) -> Result<(Query, Target), ApiError> {
    check_host(parts)?;
    let raw = parts.uri.path();
    if let Some(path) = gateway_path::at_server(raw) {
        return gateway_request(parts, path?);
    }
    if raw == SESSION_PATH {
        return session_request(parts, &ConsoleSession);
    }
    if raw == AUTHORIZE_PATH {
        return session_request(parts, &CommandLineConsent);
    }
    if raw == CODE_PATH {
        return session_request(parts, &ConsoleLoginCode);
    }
    if shape.is_deep() {
        return Err(ApiError::bad_request(
            "the path is too long: it must have at most 2048 bytes and 16 segments",
        ));
    }
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    // The path is split before it is decoded: an encoded slash must not become a separator.
    let under_base = raw.strip_prefix(BASE_PATH).filter(|rest| rest.starts_with('/'));
    // OpenAPI and metrics are also served at the root.
    let at_root = || Some(raw).filter(|path| path.starts_with("/openapi/") || is_metrics(path));
    let target = match under_base.or_else(at_root) {
        None | Some("/") => Target::Nothing,
        // All programs must read a path in the same way: `//apis` is not `/apis`.
        Some(rest) if rest.starts_with("//") => Target::Nothing,
        Some(rest) => {
            // A trailing slash is accepted, as in kube-apiserver. An empty segment inside is not.
            let rest = rest.strip_prefix('/').unwrap_or(rest);
            let rest = rest.strip_suffix('/').unwrap_or(rest);
            let path = if shape.is_plain { Cow::Borrowed(rest) } else { decoded(rest)?.into() };
            let segments = Segments::of(&path)?;
            target_of(&parts.method, segments.as_slice(), &query)?
        }
    };
    Ok((query, target))
}

/// Parses a request for the session of a browser, or for a code that begins one.
fn session_request(parts: &Parts, kind: &'static dyn AnyKind) -> Result<(Query, Target), ApiError> {
    let verb = match parts.method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::DELETE => Verb::Delete,
        ref method => {
            let action = method.as_str().to_ascii_lowercase();
            return Err(ApiError::method_not_allowed(kind.info().group_resource(), &action));
        }
    };
    let Some(action) = kind.info().action("", verb) else {
        return Err(ApiError::method_not_allowed(kind.info().group_resource(), verb.as_str()));
    };
    let action = Some(action);
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    Ok((
        query,
        Target::Resource(ResourceTarget {
            kind,
            verb,
            namespace: None,
            name: None,
            action,
            version: None,
        }),
    ))
}

/// Parses a request to a target behind the gateway.
fn gateway_request(
    parts: &Parts,
    path: gateway_path::GatewayPath<'_>,
) -> Result<(Query, Target), ApiError> {
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let kube = KubeRequest::parse(parts, path.rest)?;
    let raw = parts.uri.path();
    let prefix = raw.strip_suffix(path.rest).unwrap_or(raw).to_owned();
    Ok((query, Target::Gateway(Arc::new(GatewayRequest { target: path.target, kube, prefix }))))
}

fn is_metrics(path: &str) -> bool {
    matches!(path.strip_suffix('/').unwrap_or(path), "/metrics" | "/metrics/owners")
}

fn target_of(method: &Method, path: &[&str], query: &Query) -> Result<Target, ApiError> {
    let document = |document| Ok(Target::Document(document));
    match path {
        ["api"] => document(Document::CoreVersions),
        ["apis"] => document(Document::Groups),
        ["apis", group] => {
            let known = all().iter().map(|kind| kind.info().version.group);
            let group = known.filter(|known| !known.is_empty()).find(|known| known == group);
            group.map_or(Ok(Target::Nothing), |group| document(Document::Group(group)))
        }
        ["metrics"] => document(Document::Metrics),
        ["metrics", "owners"] => document(Document::OwnerMetrics),
        ["openapi", "v2"] => document(Document::OpenApiV2),
        ["openapi", "v3"] => document(Document::OpenApiIndex),
        ["openapi", "v3", rest @ ..] => match version_of(rest) {
            Some((version, [])) => document(Document::OpenApi(version)),
            _ => Ok(Target::Nothing),
        },
        path => match version_of(path) {
            Some((version, [])) => document(Document::Resources(version)),
            Some((version, rest)) => resource_target(method, version, rest, query),
            None => Ok(Target::Nothing),
        },
    }
}

fn version_of<'p, 's>(path: &'p [&'s str]) -> Option<(GroupVersion, &'p [&'s str])> {
    let (group, version, rest) = match path {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !group.is_empty() => (*group, *version, rest),
        _ => return None,
    };
    let mut served = all().iter().map(|kind| kind.info().version);
    let found = served.find(|known| known.group == group && known.version == version)?;
    Some((found, rest))
}

fn resource_target(
    method: &Method,
    version: GroupVersion,
    rest: &[&str],
    query: &Query,
) -> Result<Target, ApiError> {
    // `namespaces/<name>` alone is the Namespace object. With more segments, it is a scope.
    let served = |plural| find(version.group, version.version, plural);
    let has_subresource = |plural, subresource: &str| {
        let kind = served(plural).filter(|kind| !kind.info().is_namespaced());
        kind.is_some_and(|kind| kind.info().subresources().any(|name| name == subresource))
    };
    let (namespace, plural, name, subresource) = match rest {
        [plural, name, sub] if has_subresource(plural, sub) => (None, *plural, Some(*name), *sub),
        ["namespaces", namespace, plural] => (Some(*namespace), *plural, None, ""),
        ["namespaces", namespace, plural, name] => (Some(*namespace), *plural, Some(*name), ""),
        ["namespaces", namespace, plural, name, sub] if !sub.is_empty() => {
            (Some(*namespace), *plural, Some(*name), *sub)
        }
        [plural] => (None, *plural, None, ""),
        [plural, name] => (None, *plural, Some(*name), ""),
        _ => return Ok(Target::Nothing),
    };
    let Some(kind) = served(plural) else { return Ok(Target::Nothing) };
    let info = kind.info();
    let misplaced = if info.is_namespaced() {
        namespace.is_none() && name.is_some()
    } else {
        namespace.is_some()
    };
    if misplaced {
        return Ok(Target::Nothing);
    }
    if !subresource.is_empty() {
        return subresource_target(method, kind, namespace, name, subresource, query);
    }
    let verb = verb_of(kind, method, name.is_some(), query)?;
    // A write to a collection needs a namespace. A read can be for all namespaces.
    let writes = matches!(verb, Verb::Create | Verb::DeleteCollection);
    if writes && info.is_namespaced() && namespace.is_none() {
        return Err(ApiError::method_not_allowed(info.group_resource(), verb.as_str()));
    }
    let name = match name {
        Some(name) => Some(name.to_owned()),
        None => selected_name(kind, verb, query)?,
    };
    let namespace = namespace.map(str::to_owned);
    let action = info.action("", verb);
    let (kind, version) = stored_kind(kind);
    Ok(Target::Resource(ResourceTarget { kind, verb, namespace, name, action, version }))
}

/// The target of a subresource, by the kind's table of actions.
fn subresource_target(
    method: &Method,
    kind: &'static dyn AnyKind,
    namespace: Option<&str>,
    name: Option<&str>,
    subresource: &str,
    query: &Query,
) -> Result<Target, ApiError> {
    let info = kind.info();
    if !info.subresources().any(|known| known == subresource) {
        return Ok(Target::Nothing);
    }
    let can_be_watched = info.action(subresource, Verb::Watch).is_some();
    let verb = match *method {
        Method::GET if can_be_watched && query.flag("watch")?.unwrap_or(false) => Verb::Watch,
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        _ => Verb::Delete,
    };
    let action = info.action(subresource, verb);
    let action =
        action.ok_or_else(|| ApiError::method_not_allowed(info.group_resource(), verb.as_str()))?;
    let (namespace, name) = (namespace.map(str::to_owned), name.map(str::to_owned));
    let action = Some(action);
    Ok(Target::Resource(ResourceTarget { kind, verb, namespace, name, action, version: None }))
}

fn verb_of(
    kind: &'static dyn AnyKind,
    method: &Method,
    named: bool,
    query: &Query,
) -> Result<Verb, ApiError> {
    let info = kind.info();
    let not_allowed =
        |action: &str| Err(ApiError::method_not_allowed(info.group_resource(), action));
    let verb = match (method, named) {
        // With a name in the path it stays a get, as in kube-apiserver. A caller with permission to
        // get one object must not be able to watch all objects.
        (&Method::GET | &Method::HEAD, true) => Verb::Get,
        (&Method::GET | &Method::HEAD, false) if query.flag("watch")?.unwrap_or(false) => {
            Verb::Watch
        }
        (&Method::GET | &Method::HEAD, false) => Verb::List,
        (&Method::POST, false) => Verb::Create,
        (&Method::PUT, true) => Verb::Update,
        (&Method::PATCH, true) => Verb::Patch,
        (&Method::DELETE, true) => Verb::Delete,
        (&Method::DELETE, false) => Verb::DeleteCollection,
        (&Method::POST, true) => return not_allowed("create"),
        (&Method::PUT, false) => return not_allowed("update"),
        (&Method::PATCH, false) => return not_allowed("patch"),
        (method, _) => return not_allowed(&method.as_str().to_ascii_lowercase()),
    };
    if info.serves(verb) { Ok(verb) } else { not_allowed(verb.as_str()) }
}

/// The name in a field selector: a list or watch of exactly one name is authorized for that name.
fn selected_name(
    kind: &dyn AnyKind,
    verb: Verb,
    query: &Query,
) -> Result<Option<String>, ApiError> {
    if !matches!(verb, Verb::List | Verb::Watch) {
        return Ok(None);
    }
    let Some(text) = query.get("fieldSelector") else { return Ok(None) };
    let selector =
        FieldSelector::parse(text, &selectable_fields(kind)).map_err(ApiError::bad_request)?;
    Ok(selector.exact("metadata.name").map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "/kubernetes/management/apis/management.platform.sh/v1";

    /// The result of parsing a request as a short text, or the code of its error.
    fn read(method: &str, path: &str) -> String {
        let request = http::Request::builder().method(method).uri(path).header("host", "h");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        match super::read(&parts, PathShape::of(parts.uri.path())).map(|(_, target)| target) {
            Err(error) => error.code().to_string(),
            Ok(Target::Nothing) => "nothing".to_owned(),
            Ok(Target::Document(document)) => format!("{document:?}"),
            Ok(Target::Gateway(request)) => {
                format!("{} {}", request.prefix, request.kube.path_and_query())
            }
            Ok(Target::Resource(target)) => format!(
                "{} {} {} {}",
                target.verb.as_str(),
                target.kind.info().plural,
                target.namespace.as_deref().unwrap_or("-"),
                target.name.as_deref().unwrap_or("-"),
            ),
        }
    }

    #[test]
    fn methods_and_paths_become_verbs() {
        for (method, path, want) in [
            ("GET", "/namespaces/a/sharedsecrets", "list sharedsecrets a -"),
            ("GET", "/sharedsecrets", "list sharedsecrets - -"),
            ("GET", "/namespaces/a/sharedsecrets?watch=1", "watch sharedsecrets a -"),
            ("GET", "/namespaces/a/sharedsecrets/", "list sharedsecrets a -"),
            ("GET", "/namespaces/a/sharedsecrets/b", "get sharedsecrets a b"),
            // With a name in the path it stays a get, and does not become a watch of the collection.
            ("GET", "/namespaces/a/sharedsecrets/b?watch=1", "get sharedsecrets a b"),
            ("HEAD", "/namespaces/a/sharedsecrets/b", "get sharedsecrets a b"),
            ("POST", "/namespaces/a/sharedsecrets", "create sharedsecrets a -"),
            ("PUT", "/namespaces/a/sharedsecrets/b", "update sharedsecrets a b"),
            ("PATCH", "/namespaces/a/sharedsecrets/b", "patch sharedsecrets a b"),
            ("DELETE", "/namespaces/a/sharedsecrets/b", "delete sharedsecrets a b"),
            ("DELETE", "/namespaces/a/sharedsecrets", "deletecollection sharedsecrets a -"),
            ("GET", "/users/admin", "get users - admin"),
            ("GET", "/users/ada/accesskeys", "get users - ada"),
            ("GET", "/users/ada/accesskeys?watch=1", "get users - ada"),
            ("GET", "/clusters/east/agentconfig", "get clusters - east"),
            ("GET", "/clusters/east/agentconfig?watch=1", "watch clusters - east"),
            ("HEAD", "/clusters/east/agentconfig?watch=1", "get clusters - east"),
            ("POST", "/users/ada/accesskeys", "405"),
            ("GET", "/users/ada/secrets", "nothing"),
            ("GET", "/selves/me", "get selves - me"),
            ("GET", "/selves", "405"),
            ("POST", "/sharedsecrets", "405"),
            ("DELETE", "/sharedsecrets", "405"),
            ("DELETE", "/users", "deletecollection users - -"),
            ("OPTIONS", "/sharedsecrets", "405"),
            ("GET", "/sharedsecrets?watch=maybe", "400"),
        ] {
            assert_eq!(read(method, &format!("{GROUP}{path}")), want, "{method} {path}");
        }
    }

    #[test]
    fn a_list_of_one_name_is_authorized_for_that_name() {
        let list =
            |selector| read("GET", &format!("{GROUP}/sharedsecrets?fieldSelector={selector}"));
        assert_eq!(list("metadata.name%3Db"), "list sharedsecrets - b");
        assert_eq!(list("metadata.name!%3Db"), "list sharedsecrets - -");
        assert_eq!(list("metadata.name%5E%3Db"), "list sharedsecrets - -");
        assert_eq!(list("metadata.name^=b"), "list sharedsecrets - -");
        assert_eq!(list("metadata.name^=b,metadata.name=bc"), "list sharedsecrets - bc");
        assert_eq!(list("metadata.name^==b"), "400");
        assert_eq!(list("spec.data%3Db"), "400");
    }

    #[test]
    fn bad_segments_and_paths_without_a_resource() {
        for (path, want) in [
            ("/namespaces/a/sharedsecrets/..", "400"),
            ("/namespaces/a/sharedsecrets/%2e%2e", "400"),
            ("/namespaces/a/sharedsecrets/b%2fc", "400"),
            ("/namespaces/a/sharedsecrets/%00", "400"),
            ("/namespaces/a/sharedsecrets/%ff", "400"),
            ("/namespaces/a//b", "400"),
            ("/namespaces/a/sharedsecrets/b/status", "nothing"),
            ("/namespaces/a/users/admin", "nothing"),
            ("/sharedsecrets/b", "nothing"),
            ("/nothing", "nothing"),
        ] {
            assert_eq!(read("GET", &format!("{GROUP}{path}")), want, "{path}");
        }
        // The same path at the root is not served, and neither is the misspelt one.
        assert_eq!(read("GET", "/apis/management.platform.sh/v1/sharedsecrets"), "nothing");
        assert_eq!(read("GET", &GROUP.replace("kubernetes", "kubenretes")), "nothing");
        assert_eq!(read("GET", "/kubernetes/management/"), "nothing");
        for path in ["//apis", "/kubernetes/management//apis", "/kubernetes/managementapis"] {
            assert_eq!(read("GET", path), "nothing", "{path}");
        }
    }

    #[test]
    fn a_namespace_is_an_object_and_a_scope() {
        let core = |rest: &str| read("GET", &format!("/kubernetes/management/api/v1{rest}"));
        assert_eq!(core("/namespaces"), "list namespaces - -");
        assert_eq!(core("/namespaces/a"), "get namespaces - a");
        assert_eq!(core(""), "Resources(GroupVersion { group: \"\", version: \"v1\" })");
        assert_eq!(read("GET", "/openapi/v3"), "OpenApiIndex");
    }

    #[test]
    fn paths_of_the_gateway_are_read_by_the_gateway() {
        for (path, want) in [
            ("/kubernetes/cluster/c/api/v1/pods", "/kubernetes/cluster/c /api/v1/pods"),
            ("/kubernetes/cluster/c", "/kubernetes/cluster/c /"),
            ("/kubernetes/cluster/c/", "/kubernetes/cluster/c /"),
            ("/kubernetes/project/p/space/s/version", "/kubernetes/project/p/space/s /version"),
            ("/kubernetes/cluster/c//api/v1/pods", "400"),
            ("/kubernetes/cluster/c/api/../../management/api", "400"),
            ("/kubernetes/cluster/c%2fx/api", "400"),
            ("//kubernetes/cluster/c", "nothing"),
        ] {
            assert_eq!(read("GET", path), want, "{path}");
        }
    }

    #[test]
    fn one_host_and_one_only() {
        let read = |hosts: &[&str], version| {
            let mut request = http::Request::builder().uri(GROUP).version(version);
            for host in hosts {
                request = request.header("host", *host);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            super::read(&parts, PathShape::of(parts.uri.path()))
                .map_or_else(|error| error.code(), |_| 200)
        };
        assert_eq!(read(&["h"], http::Version::HTTP_11), 200);
        assert_eq!(read(&[], http::Version::HTTP_11), 400);
        assert_eq!(read(&["h", "h"], http::Version::HTTP_11), 400);
        assert_eq!(read(&[], http::Version::HTTP_2), 200);
    }
}
