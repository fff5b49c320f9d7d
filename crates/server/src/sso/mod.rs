//! Single sign-on: logins through identity providers (`docs/reference/single-sign-on.md`).
//!
//! `auth::oidc` decides what is accepted of a provider, and `registry` makes users and keys. Here are the requests to
//! providers ([`fetch`], [`providers`]), and the requests of browsers ([`browser`]).

mod arriving;
mod browser;
mod command_line;
mod device_polls;
mod document;
mod exchange;
mod fetch;
mod form;
mod login_cookie;
mod logout;
mod places;
mod providers;
mod redeem;
pub(crate) mod refresh;
mod test;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use postern_auth::oidc::login::StateKey;
use postern_flow::Flow;
use postern_kinds::connector::{self, Connector};
use postern_kinds::principal::ConnectorRef;
use postern_listen::network;
use postern_meta::decode::Format;
use postern_meta::status::ApiError;
use postern_proxy::UpstreamAddresses;
use postern_registry::clock::Source;
use postern_registry::registry::Registry;
use serde::Deserialize;
use serde_json::{Value, json};

use self::arriving::ArrivingBodies;
use self::device_polls::DevicePolls;
use self::exchange::NotGiven;
use self::places::{Busy, Place, PlaceLimits, Places};
use self::providers::Providers;
use crate::audit::{Audit, SignIn};
use crate::gateway::Gateway;
use crate::stages::parse::AUTHORIZE_PATH;
use crate::wire::body::Body;
use crate::wire::incoming::IncomingBody;
use crate::wire::respond;

/// The prefix of the paths of connectors.
const CONNECTORS: &str = "/auth/oidc/";

/// The end of the path of back-channel logouts.
const BACKCHANNEL_LOGOUT: &str = "/backchannel-logout";

/// The logins of browsers that are served at once, and those of one connector. Each may wait for a provider.
const MAX_LOGINS: usize = 64;
const MAX_LOGINS_OF_CONNECTOR: usize = 16;

/// The logouts at providers that are served at once, and those of one connector.
const MAX_LOGOUTS: usize = 32;
const MAX_LOGOUTS_OF_CONNECTOR: usize = 16;

/// The exchanges that are served at once, with the logins of the command line.
const MAX_EXCHANGES: usize = 48;

/// The exchanges that verify tokens of one trusted issuer at once. Each may wait for the keys of the issuer.
const MAX_EXCHANGES_OF_ISSUER: usize = 32;

/// The logins, logouts or exchanges of one address that are served at once. Many people and pipelines may have one.
const MAX_OF_ADDRESS: usize = 24;

/// The name of all exchanges, as their places have it. Those of one issuer have places of their own.
const EXCHANGES: &str = "";

/// The address of exchanges that wait for an issuer: each has the place of its own address already.
const ANY_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The most connectors that are listed for a login: more than a page of choices can have.
const MAX_LISTED: usize = 200;

/// The seconds after which a client may retry if too many logins are served.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Why a login is refused if no place is free.
const TOO_MANY: &str = "too many logins at once: try again later";

/// Why the command line cannot log in with a browser.
const NO_CONSOLE: &str =
    "this server has no web console, where users allow such a login: log in with an access key";

/// The purpose for which the key of login states is derived from the server's secret.
const STATE_KEY: &str = "key of login states";

/// The part of the server that logs users in.
pub(crate) struct Sso {
    registry: Arc<Registry>,
    audit: Arc<Audit>,
    source: Arc<dyn Source>,
    providers: Providers,
    /// Slots and rates of the owners of exchanged keys.
    flow: Arc<Flow>,
    gateway: Arc<Gateway>,
    state_key: StateKey,
    /// The bodies that are arriving.
    arriving: ArrivingBodies,
    /// The logins of browsers.
    logins_of_browsers: Places,
    /// The exchanges of tokens and codes.
    logins: Places,
    /// The logouts at providers.
    logouts: Places,
    /// Those exchanges that verify a token of a trusted issuer, by the issuer.
    issuers: Places,
    device_polls: DevicePolls,
    /// The ways to log in, and the revision at which they were read.
    methods: Mutex<Option<(u64, Arc<Value>)>>,
}

/// The response to a request that is refused before it is read, in the form that clients of its path expect.
pub(crate) fn error(path: &str, error: &ApiError, is_page: bool) -> Response<Body> {
    if Sso::is_of_program(path) {
        NotGiven::from(error).response()
    } else if is_page {
        refusal(&Refused::from(error))
    } else {
        respond::error(error, Format::Json, false)
    }
}

/// Whether a response counts as a failed login of the client's address.
pub(crate) fn is_failure(response: &Response<Body>) -> bool {
    let code = response.status();
    (code.is_client_error() || code.is_server_error())
        && response.extensions().get::<Uncounted>().is_none()
}

/// Marks a response that is no success, and no fault of the client: this server or its store is busy, or a person has not
/// decided yet.
#[derive(Clone, Copy)]
struct Uncounted;

/// A request without a credential.
pub(crate) struct Visit<'a> {
    /// The address that it comes from.
    pub(crate) address: IpAddr,
    /// The id of its audit record.
    pub(crate) audit_id: &'a http::HeaderValue,
    /// Whether this server has the web console, where users consent to logins of the command line.
    pub(crate) has_console: bool,
}

/// A Connector, as a login needs it.
#[derive(Deserialize)]
struct StoredConnector {
    metadata: StoredMetadata,
    spec: connector::Spec,
}

#[derive(Deserialize)]
struct StoredMetadata {
    name: String,
    uid: String,
    #[serde(default, rename = "deletionTimestamp")]
    deletion: Option<String>,
}

impl StoredConnector {
    /// Whether users can log in: the connector is neither disabled nor being deleted.
    fn is_enabled(&self) -> bool {
        !self.spec.disabled && self.metadata.deletion.is_none()
    }

    fn reference(&self) -> ConnectorRef {
        let StoredMetadata { name, uid, .. } = &self.metadata;
        ConnectorRef { name: name.clone(), uid: uid.clone() }
    }
}

/// Why a login fails. The text is for the person, the log and the audit record: it has nothing that a provider sent.
#[derive(Debug)]
pub(crate) struct Refused {
    code: StatusCode,
    text: String,
    about: About,
    retry_after_seconds: Option<u32>,
}

/// What is at fault if a login is refused. It decides what a refresh of the login does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    /// This one login, or its answers.
    Login,
    /// The user: the provider or the connector no longer lets them in.
    User,
    /// The provider: others would fail as well.
    Provider,
    /// This server or its store.
    Server,
}

impl Refused {
    fn new(code: StatusCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), about: About::Login, retry_after_seconds: None }
    }

    /// A login of a user whom the provider or the connector does not let in.
    fn of_user(text: impl Into<String>) -> Self {
        Self { about: About::User, ..Self::new(StatusCode::FORBIDDEN, text) }
    }

    /// A login that is refused for what the provider or the browser sent.
    #[expect(clippy::needless_pass_by_value, reason = "most callers have an error to give away")]
    fn forbidden(text: impl ToString) -> Self {
        Self::new(StatusCode::FORBIDDEN, text.to_string())
    }
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self::from(&error)
    }
}

impl From<&ApiError> for Refused {
    fn from(error: &ApiError) -> Self {
        let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let is_of_server = code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS;
        let about = if is_of_server { About::Server } else { About::Login };
        let retry_after_seconds = error.retry_after_seconds();
        Self { about, retry_after_seconds, ..Self::new(code, error.status().message.clone()) }
    }
}

impl From<Busy> for Refused {
    fn from(Busy: Busy) -> Self {
        let refused = Self::new(StatusCode::TOO_MANY_REQUESTS, TOO_MANY);
        let retry_after_seconds = Some(RETRY_AFTER_SECONDS);
        Self { about: About::Server, retry_after_seconds, ..refused }
    }
}

impl Sso {
    /// Single sign-on for the users of a registry. `gateway` reaches connected clusters, and other providers are at
    /// `addresses`.
    pub(crate) fn new(
        registry: Arc<Registry>,
        audit: Arc<Audit>,
        source: Arc<dyn Source>,
        gateway: Arc<Gateway>,
        addresses: UpstreamAddresses,
        flow: Arc<Flow>,
    ) -> Self {
        let proxy = gateway.proxy().clone();
        Self {
            state_key: StateKey::new(registry.digester().derived_key(STATE_KEY)),
            providers: Providers::new(proxy, addresses, source.clone()),
            gateway,
            flow,
            arriving: ArrivingBodies::default(),
            logins_of_browsers: Places::new(PlaceLimits {
                all: MAX_LOGINS,
                of_provider: MAX_LOGINS_OF_CONNECTOR,
                of_address: MAX_OF_ADDRESS,
            }),
            logins: Places::new(PlaceLimits {
                all: MAX_EXCHANGES,
                of_provider: MAX_EXCHANGES,
                of_address: MAX_OF_ADDRESS,
            }),
            logouts: Places::new(PlaceLimits {
                all: MAX_LOGOUTS,
                of_provider: MAX_LOGOUTS_OF_CONNECTOR,
                of_address: MAX_OF_ADDRESS,
            }),
            issuers: Places::new(PlaceLimits {
                all: MAX_EXCHANGES,
                of_provider: MAX_EXCHANGES_OF_ISSUER,
                of_address: MAX_EXCHANGES,
            }),
            device_polls: DevicePolls::default(),
            methods: Mutex::default(),
            registry,
            audit,
            source,
        }
    }

    /// Whether a request is served here, without a credential.
    pub(crate) fn serves(method: &Method, path: &str) -> bool {
        path.starts_with(CONNECTORS)
            || Self::is_of_program(path)
            || (path == AUTHORIZE_PATH && method != Method::POST)
    }

    /// Whether a path is that of programs: exchanges of tokens and codes, and logins with a browser on another machine.
    pub(crate) fn is_of_program(path: &str) -> bool {
        path == exchange::PATH || path == command_line::DEVICE_PATH
    }

    /// Whether a path is that of logouts at a provider.
    pub(crate) fn is_logout(path: &str) -> bool {
        path.starts_with(CONNECTORS) && path.ends_with(BACKCHANNEL_LOGOUT)
    }

    /// The ways to log in. Nothing is decoded for a request after which nothing was written: no credential is needed here.
    pub(crate) fn methods(&self) -> Arc<Value> {
        let revision = self.registry.cache().applied();
        let mut known = self.methods.lock();
        if let Some((at, methods)) = &*known
            && *at == revision
        {
            return methods.clone();
        }
        let methods = Arc::new(self.read_methods());
        *known = Some((revision, methods.clone()));
        methods
    }

    fn read_methods(&self) -> Value {
        let mut methods = vec![json!({ "type": "AccessKey" })];
        let connectors = self.registry.page_to_decide(&Connector, None, MAX_LISTED);
        let connectors = connectors.iter().filter_map(|one| one.part::<StoredConnector>().ok());
        methods.extend(connectors.filter(StoredConnector::is_enabled).map(|one| {
            let name = &one.metadata.name;
            let display_name = Some(&one.spec.display_name).filter(|name| !name.is_empty());
            json!({
                "type": "OIDC",
                "connector": name,
                "displayName": display_name.unwrap_or(name),
                "startURL": format!("{CONNECTORS}{name}/start"),
            })
        }));
        json!({ "methods": methods, "externalUrl": self.own_url() })
    }

    /// Serves a request of a browser, a program or a provider. What is scarce is taken after its body has arrived.
    pub(crate) async fn serve(
        &self,
        request: Request<IncomingBody>,
        visit: Visit<'_>,
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        let (of, address) = ((&head.uri, &head.headers), visit.address);
        let record = SignIn::begin(&self.audit, of, address, visit.audit_id);
        match head.uri.path() {
            command_line::DEVICE_PATH if !visit.has_console => {
                record.end(StatusCode::NOT_FOUND, Some(NO_CONSOLE));
                return NotGiven::of(StatusCode::NOT_FOUND, "access_denied", NO_CONSOLE).response();
            }
            command_line::DEVICE_PATH => {
                return self.begin_device(&head, body, address, record).await;
            }
            exchange::PATH => return self.exchange(&head, body, address, record).await,
            _ => {}
        }
        let path = head.uri.path().strip_prefix(CONNECTORS).unwrap_or_default();
        let served = match path.split_once('/') {
            None if head.uri.path() == AUTHORIZE_PATH && !visit.has_console => {
                Err(Refused::new(StatusCode::NOT_FOUND, NO_CONSOLE))
            }
            None if head.uri.path() == AUTHORIZE_PATH => command_line::authorize(&head),
            Some((name, "backchannel-logout")) => {
                return self.logout(name, (&head, address), body, record).await;
            }
            Some((name, page @ ("start" | "callback"))) => {
                drop(body);
                match self.place_of_browser(name, &head, address).await {
                    Err(refused) => Err(refused),
                    Ok(_place) if page == "start" => self.start(name, &head).await,
                    Ok(_place) => return self.callback(name, &head, address, record).await,
                }
            }
            _ => Err(Refused::new(StatusCode::NOT_FOUND, "there is no such page")),
        };
        served.unwrap_or_else(|refused| {
            record.end(refused.code, Some(&refused.text));
            refusal(&refused)
        })
    }

    /// A place for the login of a browser, which has no body.
    async fn place_of_browser(
        &self,
        connector: &str,
        head: &http::request::Parts,
        address: IpAddr,
    ) -> Result<Place, Refused> {
        allowed(&head.method, &Method::GET)?;
        Ok(self.logins_of_browsers.take(connector, network(address)).await?)
    }

    /// An enabled connector.
    ///
    /// # Errors
    /// 404 if there is none of this name.
    async fn connector(&self, name: &str) -> Result<StoredConnector, Refused> {
        self.registry.cache().wait_until_current().await?;
        let found = self.registry.read_to_decide(&Connector, None, name)?;
        let found = found.map(|found| found.part::<StoredConnector>()).transpose()?;
        found.filter(StoredConnector::is_enabled).ok_or_else(|| {
            let text = "there is no connector of this name, or it is disabled";
            Refused::new(StatusCode::NOT_FOUND, text)
        })
    }

    /// The address of this server for browsers, without a slash at the end.
    fn own_url(&self) -> &str {
        &self.registry.token_policy().issuer
    }

    /// Where the provider sends the browser back to. Each connector has its own, so that the answer of one provider
    /// never counts as that of another.
    fn redirect_uri(&self, connector: &str) -> String {
        format!("{}{CONNECTORS}{connector}/callback", self.own_url())
    }

    fn now(&self) -> i64 {
        self.source.now().unix_seconds()
    }

    fn random(&self) -> [u8; 32] {
        let mut random = [0; 32];
        self.source.fill(&mut random);
        random
    }
}

/// The hash of the id of a session at a provider.
fn session_hash(session: &str) -> String {
    hex::encode(digest(&SHA256, session.as_bytes()))
}

fn allowed(method: &Method, wanted: &Method) -> Result<(), Refused> {
    if method == wanted {
        return Ok(());
    }
    Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, format!("use {wanted} on this path")))
}

/// A plain page that says why a login failed. Nothing of it is HTML.
fn refusal(refused: &Refused) -> Response<Body> {
    let wait = refused.retry_after_seconds;
    let then = wait.map_or_else(
        || "Go back, and begin it again.".to_owned(),
        |seconds| format!("Wait {seconds} s. Then go back, and begin it again."),
    );
    let text = format!("The login failed: {}.\n\n{then}\n", refused.text);
    let mut response = respond::text(refused.code, text);
    if let Some(seconds) = wait {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if refused.about == About::Server {
        response.extensions_mut().insert(Uncounted);
    }
    response
}
