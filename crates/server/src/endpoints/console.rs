//! The web console at `/ui/`: the files that `npm run build` makes in `console/`, inside the program. A debug build reads
//! them from that directory instead, so that a change is seen without another build.
//!
//! The files have nothing secret and need no credential. The console itself logs in (`docs/reference/sessions.md`).

use std::collections::HashMap;
use std::path::{Component, Path};
use std::sync::{Arc, OnceLock};

use http::header::{ACCEPT, CACHE_CONTROL, HeaderValue, LOCATION};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use postern_meta::decode::Format;
use postern_meta::status::{ApiError, Reason};

use super::fixed::Fixed;
use postern_http::wire::body::Body;
use postern_http::wire::respond;

/// The path below which the console is served.
pub(crate) const PATH: &str = "/ui/";

/// The pages to which command lines of other servers send a browser, and the pages of the console in their place.
const PAGES_OF_OTHERS: [(&str, &str); 2] = [("/login", PATH), ("/profile/access-keys", "/ui/keys")];

/// The page for every path that is no file. The console itself interprets the path.
const INDEX: &str = "index.html";

/// The directory of files with a hash in their names.
const HASHED: &str = "assets/";

/// How long browsers keep a file: its name changes with its content.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// How long browsers keep every other file: they ask each time whether it has changed.
const REVALIDATED: HeaderValue = HeaderValue::from_static("no-cache");

/// The page of a program that was built without the files.
const MISSING: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
    <title>Postern</title>\n\
    <h1>The web console is not in this program</h1>\n\
    <p>Run <code>cargo xtask serve</code> in the repository: it builds the console and starts the server with it. \
    Release archives and images have the console.</p>\n\
    <p>The API, kubectl and the command line work without it.</p>\n</html>\n";

/// The files in the program, by name: only the committed ones in a debug build, and none without the feature `console`.
/// `build.rs` lists them.
const BUILT: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The directory from which a debug build reads the files.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../console/dist");

/// The console.
pub(crate) struct Console {
    /// The files of the program, by name. Each is compressed at its first use.
    files: HashMap<&'static str, File>,
}

struct File {
    content: &'static [u8],
    packed: OnceLock<Arc<Fixed>>,
}

impl Console {
    /// The console, if this program was built with it.
    pub(crate) fn open() -> Option<Self> {
        let file = |content| File { content, packed: OnceLock::new() };
        let files = BUILT.iter().map(|(name, content)| (*name, file(*content))).collect();
        cfg!(feature = "console").then_some(Self { files })
    }

    #[expect(clippy::disallowed_methods, reason = "a debug build reads the files of the console")]
    fn file(&self, name: &str) -> Option<Arc<Fixed>> {
        let pack = |content| Arc::new(Fixed::packed(media_type(name), content));
        if cfg!(debug_assertions) {
            let is_below =
                Path::new(name).components().all(|one| matches!(one, Component::Normal(_)));
            let content =
                is_below.then(|| std::fs::read(Path::new(DIRECTORY).join(name)).ok())??;
            return Some(pack(content));
        }
        let file = self.files.get(name)?;
        Some(file.packed.get_or_init(|| pack(file.content.to_vec())).clone())
    }

    /// The file with this name, or the page of the console.
    fn page(&self, name: &str, request: &HeaderMap) -> Response<Body> {
        let named = Some(name).filter(|name| !name.is_empty()).and_then(|name| self.file(name));
        let is_hashed = name.starts_with(HASHED);
        if is_hashed && named.is_none() {
            // A page of an older console asks for it. Another page in its place would be run as a script.
            let error = ApiError::new(404, Reason::NotFound, "the console has no such file");
            return respond::error(&error, Format::Json, false);
        }
        let missing = || Arc::new(Fixed::packed(media_type(INDEX), MISSING.as_bytes().to_vec()));
        let file = named.or_else(|| self.file(INDEX)).unwrap_or_else(missing);
        let mut response = file.response(request);
        let caching = if is_hashed { IMMUTABLE } else { REVALIDATED };
        response.headers_mut().insert(CACHE_CONTROL, caching);
        response
    }
}

/// Whether a path is one of the console.
pub(crate) fn is_below(path: &str) -> bool {
    path.starts_with(PATH) || path == PATH.trim_end_matches('/')
}

/// The response to a request for the console; `None` for other paths. A browser at the root of the server, or at a page of
/// another server's console, is sent to the console.
pub(crate) fn response<T>(console: &Console, request: &Request<T>) -> Option<Response<Body>> {
    let path = request.uri().path();
    if let Some(name) = path.strip_prefix(PATH) {
        return Some(console.page(name, request.headers()));
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_browser = || {
        let accepted = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
        reads && accepted.is_some_and(|accepted| accepted.contains("text/html"))
    };
    let trimmed = path.trim_end_matches('/');
    let of_others = PAGES_OF_OTHERS.iter().find(|(page, _)| reads && *page == trimmed);
    let is_for_console = is_below(path) || (path == "/" && is_browser());
    let page = match of_others {
        Some((_, page)) => page,
        None if is_for_console => PATH,
        None => return None,
    };
    let mut response = respond::empty(StatusCode::FOUND);
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(page));
    Some(response)
}

fn media_type(name: &str) -> &'static str {
    match Path::new(name).extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json" | "map") => "application/json",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
