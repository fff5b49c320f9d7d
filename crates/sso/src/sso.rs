//! `Sso`: the state of logins, and the limits of those that are served at once.

use super::arriving::ArrivingBodies;
use super::device_polls::DevicePolls;
use super::places::{PlaceLimits, Places};
use super::providers::Providers;
use crate::Refused;
use crate::connector::StoredConnector;
use aws_lc_rs::digest::{SHA256, digest};
use http::StatusCode;
use parking_lot::Mutex;
use postern_audit::Audit;
use postern_flow::Flow;
use postern_gateway::Gateway;
use postern_kinds::connector::Connector;
use postern_oidc::login::StateKey;
use postern_proxy::UpstreamAddresses;
use postern_registry::clock::Source;
use postern_registry::registry::Registry;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The prefix of the paths of connectors.
pub(crate) const CONNECTORS: &str = "/auth/oidc/";

/// The end of the path of back-channel logouts.
pub(crate) const BACKCHANNEL_LOGOUT: &str = "/backchannel-logout";

/// The logins of browsers that are served at once, and those of one connector. Each may wait for a provider.
pub(crate) const MAX_LOGINS: usize = 64;
pub(crate) const MAX_LOGINS_OF_CONNECTOR: usize = 16;

/// The logouts at providers that are served at once, and those of one connector.
pub(crate) const MAX_LOGOUTS: usize = 32;
pub(crate) const MAX_LOGOUTS_OF_CONNECTOR: usize = 16;

/// The exchanges that are served at once, with the logins of the command line.
pub(crate) const MAX_EXCHANGES: usize = 48;

/// The exchanges that verify tokens of one trusted issuer at once. Each may wait for the keys of the issuer.
pub(crate) const MAX_EXCHANGES_OF_ISSUER: usize = 32;

/// The logins, logouts or exchanges of one address that are served at once. Many people and pipelines may have one.
pub(crate) const MAX_OF_ADDRESS: usize = 24;

/// The name of all exchanges for their places. The exchanges of one issuer have separate places.
pub(crate) const EXCHANGES: &str = "";

/// The address of exchanges that wait for an issuer. Each exchange already has the place of its
/// address.
pub(crate) const ANY_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The most connectors that are listed for a login: more than a page of choices can have.
pub(crate) const MAX_LISTED: usize = 200;

/// Why the command line cannot log in with a browser.
pub(crate) const NO_CONSOLE: &str =
    "this server has no web console, where users allow such a login: log in with an access key";

/// The purpose for which the key of login states is derived from the server's secret.
pub(crate) const STATE_KEY: &str = "key of login states";

/// The part of the server that logs users in.
pub struct Sso {
    pub(crate) registry: Arc<Registry>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) providers: Providers,
    /// Slots and rates of the owners of exchanged keys.
    pub(crate) flow: Arc<Flow>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) state_key: StateKey,
    /// The bodies that are arriving.
    pub(crate) arriving: ArrivingBodies,
    /// The logins of browsers.
    pub(crate) logins_of_browsers: Places,
    /// The exchanges of tokens and codes.
    pub(crate) logins: Places,
    /// The logouts at providers.
    pub(crate) logouts: Places,
    /// Those exchanges that verify a token of a trusted issuer, by the issuer.
    pub(crate) issuers: Places,
    pub(crate) device_polls: DevicePolls,
    /// The ways to log in, and the revision at which they were read.
    pub(crate) methods: Mutex<Option<(u64, Arc<Value>)>>,
}

impl Sso {
    /// Single sign-on for the users of a registry. `gateway` reaches connected clusters, and other providers are at
    /// `addresses`.
    pub fn new(
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

    /// The ways to log in. Nothing is decoded for a request after which nothing was written: no credential is needed here.
    pub fn methods(&self) -> Arc<Value> {
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

    pub(crate) fn read_methods(&self) -> Value {
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

    /// An enabled connector.
    ///
    /// # Errors
    /// 404 if there is none of this name.
    pub(crate) async fn connector(&self, name: &str) -> Result<StoredConnector, Refused> {
        self.registry.cache().wait_until_current().await?;
        let found = self.registry.read_to_decide(&Connector, None, name)?;
        let found = found.map(|found| found.part::<StoredConnector>()).transpose()?;
        found.filter(StoredConnector::is_enabled).ok_or_else(|| {
            let text = "there is no connector of this name, or it is disabled";
            Refused::new(StatusCode::NOT_FOUND, text)
        })
    }

    /// The address of this server for browsers, without a slash at the end.
    pub(crate) fn own_url(&self) -> &str {
        &self.registry.token_policy().issuer
    }

    /// Where the provider sends the browser back to. Each connector has its own, so that the answer of one provider
    /// never counts as that of another.
    pub(crate) fn redirect_uri(&self, connector: &str) -> String {
        format!("{}{CONNECTORS}{connector}/callback", self.own_url())
    }

    pub(crate) fn now(&self) -> i64 {
        self.source.now().unix_seconds()
    }

    pub(crate) fn random(&self) -> [u8; 32] {
        let mut random = [0; 32];
        self.source.fill(&mut random);
        random
    }
}

/// The hash of the id of a session at a provider.
pub(crate) fn session_hash(session: &str) -> String {
    hex::encode(digest(&SHA256, session.as_bytes()))
}
