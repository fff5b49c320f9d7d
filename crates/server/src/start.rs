//! The start and the shutdown of the server: the order in which its parts are opened and closed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use postern_auth::bearer::BearerToken;
use postern_auth::digest::Digester;
use postern_flow::{Flow, Limits};
use postern_registry::admit::UserPolicy;
use postern_registry::cache::Cache;
use postern_registry::clock::Source;
use postern_registry::registry::Registry;
use postern_registry::registry::first_start::{self, Prepared};
use postern_registry::registry::format;
use postern_registry::registry::issued_tokens;
use postern_registry::registry::namespace_names::{self, GivenNames};
use postern_registry::signing_keys::{self, TokenPolicy};
use postern_registry::{controllers, default_namespaces, default_roles, kubeconfig};
use postern_store::seal::Sealed;
use postern_store::{Introduction, Member, RemoteEngine, Store, Watch};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

use crate::admin::socket::Admin;
use crate::admin::{self, Access};
use crate::data_dir::{DataDir, read_if_there, write_private};
use crate::endpoints::console::Console;
use crate::endpoints::version::{self, Build};
use crate::keyring::{KeySource, KeyringSetting};
use crate::members::{self, Membership};
use crate::pipeline::{ClientAddresses, Server, Storage};
use crate::supervise::{on_own_thread, supervise};
use crate::tls::{self, AuthoritySource, CertificateSource, GivenCertificate};
use crate::{database, listen};
use postern_audit::{Audit, AuditSettings};
use postern_gateway::{GatewaySettings, MemberTrust};
use postern_sso::refresh;

/// How long the shutdown waits for each last step.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The directory of the keyring and the TLS keys, if it is not in the data directory.
    pub key_dir: Option<PathBuf>,
    /// Where the at-rest keys come from.
    pub keyring: KeyringSetting,
    /// The address to listen on; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Additional names and addresses at which clients reach this server.
    pub hosts: Vec<String>,
    /// The host at which other servers on the same store reach this one; `None` for the name of this machine.
    pub member_host: Option<String>,
    /// The certificate of the operator; `None` for a self-signed one.
    pub certificate: Option<GivenCertificate>,
    /// How long history is kept, for watches that resume and for reads of past versions.
    pub history: Duration,
    /// How long a shutdown still serves requests while readiness fails.
    pub shutdown_delay: Duration,
    /// How long a shutdown waits for requests in flight.
    pub drain_timeout: Duration,
    /// The limits of flow control.
    pub limits: Limits,
    /// The operator's settings for access keys.
    pub users: UserPolicy,
    /// The operator's settings for endpoint tokens. The default issuer is the address that clients on this machine
    /// use.
    pub tokens: TokenPolicy,
    /// The operator's settings for the audit log.
    pub audit: AuditSettings,
    /// The operator's settings for the gateway.
    pub gateway: GatewaySettings,
    /// For how long a store on other machines may not answer before nothing is decided from memory.
    pub store_silence: Duration,
    /// The store that several servers share; `None` for the database in the data directory.
    pub store: Option<Arc<dyn RemoteEngine>>,
    /// The memory for cached database pages, in bytes.
    pub cache_bytes: usize,
    /// The sources of this build.
    pub build: Build,
    /// The names of namespaces that the first start records.
    pub namespaces: GivenNames,
    /// The version in `/version` for clients of the platform; `None` for Postern's version.
    pub advertised_version: Option<String>,
    /// Whether the web console is served.
    pub console: bool,
    /// How the address of a client is found behind proxies.
    pub clients: ClientAddresses,
    /// The failed logins that one address may have in a minute.
    pub max_login_failures: u32,
}

/// The result of a start, for the operator.
#[derive(Clone, Debug)]
pub struct Welcome {
    /// Whether this was the first start.
    pub first: bool,
    /// The administrator's kubeconfig, or why it cannot be used.
    pub kubeconfig: Result<PathBuf, String>,
    /// Whether other servers may use the store, too. Then this server needs no own kubeconfig.
    pub shares_store: bool,
    /// The address on which the server listens.
    pub address: SocketAddr,
}

/// The parts of a server that its tasks share.
struct Parts {
    registry: Arc<Registry>,
    source: Arc<dyn Source>,
    audit: Arc<Audit>,
    sealed: Arc<Sealed>,
    keys: KeySource,
    server: Arc<Server>,
    /// Why this server may no longer use the store.
    unusable: watch::Receiver<Option<String>>,
}

/// The server's certificate while it runs.
struct Certificate {
    renewer: tls::Renewer,
    /// The certificates that clients trust, in PEM.
    trust: String,
}

/// A server that is ready to serve.
pub struct Running {
    parts: Parts,
    background: JoinSet<()>,
    serving: JoinSet<()>,
    certificate: Certificate,
    settings: Settings,
    dir: DataDir,
    address: SocketAddr,
}

/// Opens all parts of the server.
///
/// # Errors
/// When a part cannot be opened. The error names the problem and its solution.
pub async fn open(
    settings: Settings,
    source: Arc<dyn Source>,
) -> anyhow::Result<(Running, Welcome)> {
    seed_random(&source);
    version::set_build(settings.build);
    version::advertise(settings.advertised_version.clone());
    // First: if the port is in use, nothing is left behind.
    let listener = listen::bind(settings.listen)
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    let dir = DataDir::open(&settings.data_dir, settings.key_dir.as_deref())?;
    let keys = KeySource::new(&settings.keyring, &dir);
    let sealed = Arc::new(match settings.store.as_deref() {
        None => database::open(&dir, &keys, settings.cache_bytes).await?,
        Some(remote) => database::open_remote(&keys, remote, false).await?,
    });
    // This is before the first write, so that an invalid policy is found before a key is created.
    let audit = Arc::new(Audit::open(settings.audit.clone(), source.clone())?);
    sealed.set_gate(Box::new(audit.gate()));
    let store: Arc<dyn Store> = sealed.clone();
    let address = listener.local_addr()?;
    name_in_records(&audit, &sealed, &settings, address);
    warn_of_missing_host(&settings, address);
    let hosts = hosts(&settings, address);
    let is_used = first_start::is_used(&store).await?;
    check_prepared(&settings, is_used)?;
    namespace_names::prepare(&store, &settings.namespaces).await?;
    let certificate = certificate_source(&settings, &dir, &store, is_used).await?;
    let tls = tls::prepare(&certificate, &hosts, source.now(), is_used)?;
    let (digester, first) =
        prepare_admin(&dir, &store, &*source, &tls.trust, &settings, address).await?;
    let tokens = token_policy(&settings, address);
    signing_keys::prepare(&store, source.now(), &tokens).await?;
    let cache = Cache::new(store.clone());
    cache.set_store_silence(settings.store_silence);
    let registry =
        Registry::new(store, cache.clone(), source.clone(), digester, settings.users, tokens);
    let registry = Arc::new(registry);
    let limits = settings.limits;
    let members = member_trust(&settings, address, &tls.trust);
    let server = Server::new(
        registry.clone(),
        source.clone(),
        audit.clone(),
        limits,
        Storage { sealed: sealed.clone(), keys: keys.clone() },
        tls.served,
        (settings.gateway.clone(), member_name(&settings, address), members),
    );
    let server = server
        .with_console(settings.console.then(Console::open).flatten())
        .with_clients(settings.clients.clone(), settings.max_login_failures);
    let server = Arc::new(server);
    let acceptor = TlsAcceptor::from(tls.config);
    let mut serving = JoinSet::new();
    serving.spawn(listen::serve(server.clone(), listener, acceptor, settings.drain_timeout));
    // Until the cache is loaded, requests get 503.
    let watch = cache.load().await.context("cannot load the stored objects")?;
    let mut background = JoinSet::new();
    spawn_supervised(&mut background, &registry, &server, watch, settings.history);
    default_namespaces::restore(&registry).await;
    default_roles::restore(&registry).await;
    let unusable =
        join_others(&mut background, &sealed, &registry, &server, &keys, &settings, address)
            .await?;
    server.set_loaded();
    warn_of_new_authority(tls.is_new_authority && !first, &dir);
    let kubeconfig = read_kubeconfig(&dir.admin_kubeconfig()).map(|_| dir.admin_kubeconfig());
    let welcome = Welcome { first, kubeconfig, shares_store: settings.store.is_some(), address };
    let parts = Parts { registry, source, audit, sealed, keys, server, unusable };
    let certificate = Certificate { renewer: tls.renewer, trust: tls.trust };
    Ok((Running { parts, background, serving, certificate, settings, dir, address }, welcome))
}

/// Prepares a store that several servers share: the keyring, the certificate authority and the
/// administrator. Returns the path of the administrator's kubeconfig. Servers never prepare such a
/// store when they start: two of them could do so at once, each with its own keyring.
///
/// # Errors
/// When the store is prepared already, or cannot be used.
pub async fn init(settings: Settings, source: Arc<dyn Source>) -> anyhow::Result<PathBuf> {
    let Some(remote) = settings.store.as_deref() else {
        anyhow::bail!(
            "pass --store: a database in the data directory is prepared by postern serve"
        );
    };
    // Checked before the directory is created, and again under the lock.
    check_no_kubeconfig(&settings.data_dir, remote)?;
    let dir = DataDir::open(&settings.data_dir, settings.key_dir.as_deref())?;
    let _lock = dir.lock_for_init()?;
    check_no_kubeconfig(&settings.data_dir, remote)?;
    let keys = KeySource::new(&settings.keyring, &dir);
    let sealed = Arc::new(database::open_remote(&keys, remote, true).await?);
    let store: Arc<dyn Store> = sealed.clone();
    anyhow::ensure!(
        !first_start::is_used(&store).await?,
        "the store {} is prepared already; if the administrator's key is lost, run postern admin reset-key",
        remote.url()
    );
    namespace_names::prepare(&store, &settings.namespaces).await?;
    let hosts = hosts(&settings, settings.listen);
    let certificate = certificate_source(&settings, &dir, &store, false).await?;
    let tls = tls::prepare(&certificate, &hosts, source.now(), false)?;
    let (_, first) =
        prepare_admin(&dir, &store, &*source, &tls.trust, &settings, settings.listen).await?;
    signing_keys::prepare(&store, source.now(), &token_policy(&settings, settings.listen)).await?;
    sealed.close().await;
    anyhow::ensure!(
        first,
        "another postern init has prepared the store {} at the same time: copy its key directory to all servers",
        remote.url()
    );
    Ok(dir.admin_kubeconfig())
}

/// Checks that no kubeconfig of an administrator would be overwritten: it may have the only key of another store.
fn check_no_kubeconfig(data_dir: &Path, remote: &dyn RemoteEngine) -> anyhow::Result<()> {
    let path = DataDir::admin_kubeconfig_in(data_dir);
    anyhow::ensure!(
        std::fs::symlink_metadata(&path).is_err(),
        "{} exists, and may have the only key of an administrator: if the store {} is prepared already, run postern \
         serve; otherwise move the file away, or pass another --data-dir",
        path.display(),
        remote.url()
    );
    Ok(())
}

/// The operator's certificate, or else one that is signed by the authority of the store or of the key directory.
async fn certificate_source(
    settings: &Settings,
    dir: &DataDir,
    store: &Arc<dyn Store>,
    is_used: bool,
) -> anyhow::Result<CertificateSource> {
    if let Some(given) = &settings.certificate {
        return Ok(CertificateSource::Given(given.clone()));
    }
    let authority = AuthoritySource::find(dir, store, settings.store.is_some(), is_used).await?;
    Ok(CertificateSource::SelfSigned(authority))
}

/// Checks that a store that several servers share was prepared.
fn check_prepared(settings: &Settings, is_used: bool) -> anyhow::Result<()> {
    let unprepared = settings.store.as_ref().filter(|_| !is_used);
    if let Some(remote) = unprepared {
        anyhow::bail!(
            "the store {} is not prepared: run postern init with the same --store and --key-dir first",
            remote.url()
        );
    }
    Ok(())
}

/// Announces this server to the others that share its store. Keeps its keyring up to date with the source. The receiver
/// gets the reason if this server may no longer use the store.
async fn join_others(
    background: &mut JoinSet<()>,
    sealed: &Arc<Sealed>,
    registry: &Arc<Registry>,
    server: &Server,
    keys: &KeySource,
    settings: &Settings,
    address: SocketAddr,
) -> anyhow::Result<watch::Receiver<Option<String>>> {
    let (unusable, end) = watch::channel(None);
    let is_shared = sealed.fleet().is_some();
    if !is_shared && !keys.changes_from_outside() {
        return Ok(end);
    }
    let membership = Arc::new(Membership {
        id: registry.servers().id().clone(),
        address: member_name(settings, address),
        sealed: sealed.clone(),
        keys: keys.clone(),
        announced_keys: parking_lot::Mutex::default(),
        unusable,
    });
    if let Some(fleet) = sealed.fleet() {
        let (external_url, source) =
            (registry.token_policy().issuer.clone(), server.source().clone());
        let clock = Arc::new(move || source.now_micro().unix_microseconds() / 1000);
        fleet.introduce(Introduction { external_url, clock });
    }
    if let Err(error) = membership.announce().await {
        // The task below announces this server. It makes no key active before that.
        may_join_later(error, settings, sealed).await?;
    }
    let rotate = move || membership.clone().rotate();
    background.spawn(supervise("at-rest-key", server.restarts().clone(), rotate));
    if is_shared {
        let clocks = registry.clone();
        let (registry, flow) = (registry.clone(), server.flow().clone());
        let follow = move || members::follow(registry.clone(), flow.clone());
        background.spawn(supervise("members", server.restarts().clone(), follow));
        let compare = move || members::follow_clocks(clocks.clone());
        background.spawn(supervise("clocks", server.restarts().clone(), compare));
    }
    Ok(end)
}

/// Checks that a server can start that cannot announce itself, because etcd is full. It serves, and the others do not
/// count it. Otherwise the start fails with the error.
async fn may_join_later(
    error: anyhow::Error,
    settings: &Settings,
    sealed: &Sealed,
) -> anyhow::Result<()> {
    let is_full = |error: &postern_store::Error| matches!(error, postern_store::Error::Full);
    let Some(remote) =
        settings.store.as_ref().filter(|_| error.downcast_ref().is_some_and(is_full))
    else {
        return Err(error);
    };
    check_unannounced(sealed, &remote.members().await?).context(
        "etcd is full, so this server cannot announce itself, and may not start without that",
    )?;
    tracing::error!(
        "this server starts read-only, and the other servers do not count it until etcd has space: {error:#}"
    );
    Ok(())
}

/// Checks that this server supports each decision that the announced servers can make without it.
/// They decide which at-rest key becomes active, and which format is written. While etcd is full,
/// the servers can announce nothing new. After that, this server is announced long before a
/// decision.
fn check_unannounced(sealed: &Sealed, members: &[Member]) -> anyhow::Result<()> {
    let own = sealed.key_ids();
    for Member { address, format, seal_keys, .. } in members {
        anyhow::ensure!(
            *format <= format::NEWEST,
            "the server {address} has a newer version: upgrade this server, or free space in etcd first"
        );
        for key in seal_keys.iter().filter(|key| !own.contains(key)) {
            anyhow::ensure!(
                key.parse().is_ok_and(|id| sealed.is_retired(id)),
                "the server {address} has the at-rest key {key}, and this one lacks it: copy that server's keyring, or \
                 free space in etcd first"
            );
        }
    }
    Ok(())
}

/// Warns that clients do not trust this server yet.
fn warn_of_new_authority(is_new: bool, dir: &DataDir) {
    if is_new {
        tracing::warn!(
            "a new certificate authority was created: give {} to clients that trust an older one",
            dir.ca_certificate().display()
        );
    }
}

/// Warns if the server listens for other machines, and no name is set by which they reach it.
fn warn_of_missing_host(settings: &Settings, address: SocketAddr) {
    let has_url = !settings.hosts.is_empty() || !settings.tokens.issuer.is_empty();
    if address.ip().is_unspecified() && !has_url {
        tracing::warn!(
            "the server listens on all addresses, and its kubeconfigs and certificate are for this machine: --host NAME \
             sets the name that other machines use"
        );
    }
}

/// Requests the first random byte, on another thread. The generator then seeds itself, also from the processor's
/// jitter. This takes longer than all other steps of a first start.
fn seed_random(source: &Arc<dyn Source>) {
    let source = source.clone();
    tokio::task::spawn_blocking(move || source.fill(&mut [0]));
}

/// The names and addresses that the self-signed certificate covers.
fn hosts(settings: &Settings, address: SocketAddr) -> Vec<String> {
    let mut hosts = settings.hosts.clone();
    let obvious = ["localhost", "127.0.0.1", "::1", &host_name()].map(str::to_owned);
    hosts.extend(obvious);
    if !address.ip().is_unspecified() {
        hosts.push(address.ip().to_string());
    }
    hosts.retain(|host| !host.is_empty());
    hosts.dedup();
    hosts
}

/// Names this server in the audit log, if it has not the store for itself.
fn name_in_records(audit: &Audit, sealed: &Sealed, settings: &Settings, address: SocketAddr) {
    if sealed.fleet().is_some() {
        audit.set_server(member_name(settings, address));
    }
}

/// The address at which the other servers on the same store reach this one: `--member-host`, or the name of this machine.
/// They have `--host` in common.
fn member_name(settings: &Settings, address: SocketAddr) -> String {
    let host = settings.member_host.clone().unwrap_or_else(host_name);
    if host.contains(':') {
        return format!("[{host}]:{}", address.port());
    }
    format!("{host}:{}", address.port())
}

/// How the servers on the same store trust each other. A certificate of our own is always for `localhost`. One of the
/// operator is for the name that clients know.
fn member_trust(settings: &Settings, address: SocketAddr, trust: &str) -> MemberTrust {
    let server_name = match (&settings.certificate, settings.hosts.first()) {
        (None, _) => "localhost".to_owned(),
        (Some(_), Some(host)) => host.clone(),
        (Some(_), None) => member_name(settings, address),
    };
    MemberTrust { authorities: trust.to_owned(), server_name }
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The address at which clients on this machine reach the server: the first `--host`, or the listen address.
fn advertised(settings: &Settings, address: SocketAddr) -> String {
    match settings.hosts.first() {
        Some(host) if host.contains(':') => format!("[{host}]:{}", address.port()),
        Some(host) => format!("{host}:{}", address.port()),
        None if address.ip().is_unspecified() => format!("127.0.0.1:{}", address.port()),
        None => address.to_string(),
    }
}

/// The settings for endpoint tokens, with an issuer.
fn token_policy(settings: &Settings, address: SocketAddr) -> TokenPolicy {
    let mut policy = settings.tokens.clone();
    policy.forward_groups.clone_from(&settings.gateway.forward_groups);
    if policy.issuer.is_empty() {
        policy.issuer = format!("https://{}", advertised(settings, address));
    }
    policy
}

/// Creates the administrator at the first start. Later starts update the kubeconfig.
async fn prepare_admin(
    dir: &DataDir,
    store: &Arc<dyn Store>,
    source: &dyn Source,
    trust: &str,
    settings: &Settings,
    address: SocketAddr,
) -> anyhow::Result<(Digester, bool)> {
    let path = dir.admin_kubeconfig();
    let host = advertised(settings, address);
    let mut announced = false;
    let announce = |key: &BearerToken| {
        announced = true;
        Ok(write_private(&path, &kubeconfig::new(&host, trust, key))?)
    };
    let Prepared { digester, first } = first_start::prepare(store, source, announce).await?;
    let max_ttl_seconds = settings.tokens.max_ttl_seconds;
    issued_tokens::note_unknown(&**store, first, source.now(), max_ttl_seconds).await?;
    if announced && !first {
        // Another server made the first start: the key in this file was never stored.
        std::fs::remove_file(&path)?;
    }
    if !first {
        update_kubeconfig(&path, &host, trust)?;
    }
    Ok((digester, first))
}

/// Updates the address and the certificates in the administrator's kubeconfig, if the file still exists.
fn update_kubeconfig(path: &Path, host: &str, trust: &str) -> std::io::Result<()> {
    let new = read_kubeconfig(path).ok().and_then(|old| kubeconfig::readdressed(&old, host, trust));
    new.map_or(Ok(()), |new| write_private(path, &new))
}

/// The administrator's kubeconfig, or why it cannot be used.
fn read_kubeconfig(path: &Path) -> Result<Zeroizing<String>, String> {
    let text = read_if_there(path).map_err(|error| error.to_string())?;
    let missing = || format!("{} does not exist any more", path.display());
    let text = text.map(Zeroizing::new).ok_or_else(missing)?;
    match kubeconfig::problem(&text) {
        Some(problem) => Err(format!("{} {problem}", path.display())),
        None => Ok(text),
    }
}

impl Running {
    /// Ends with the reason that the receiver gets, for tests.
    #[cfg(test)]
    pub(crate) fn set_unusable(&mut self, unusable: watch::Receiver<Option<String>>) {
        self.parts.unusable = unusable;
    }

    /// Serves requests until `stop` is done, and then drains. Readiness fails first, then watches end, and requests in
    /// flight are completed. Each change of `reload` reads the operator's certificate and the audit policy again.
    ///
    /// # Errors
    /// If other servers have raised the format of the store, so that this server can no longer use
    /// it.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()>,
        reload: watch::Receiver<()>,
    ) -> anyhow::Result<()> {
        let Self { parts, mut background, mut serving, certificate, settings, dir, address } = self;
        let Parts { registry, source, audit, sealed, keys, server, mut unusable } = parts;
        background.spawn(watch_queue(server.flow().clone()));
        let access = Arc::new(Access {
            kubeconfig: dir.admin_kubeconfig(),
            host: advertised(&settings, address),
            trust: ArcSwap::from_pointee(certificate.trust),
        });
        background.spawn(renew_certificate(
            source.clone(),
            reload.clone(),
            access.clone(),
            certificate.renewer,
        ));
        background.spawn(postern_audit::reload_policy(audit.clone(), reload));
        let admin = Admin {
            registry: registry.clone(),
            audit: audit.clone(),
            sealed: sealed.clone(),
            keys,
            dir,
            access,
            server: server.clone(),
            clock: source.clone(),
            busy: Mutex::default(),
            backup: Mutex::default(),
        };
        background.spawn(admin::socket::serve(Arc::new(admin)));
        let drain = async {
            let reason = tokio::select! {
                () = stop => None,
                reason = reason_to_end(&mut unusable) => Some(reason),
            };
            tracing::info!("draining");
            server.fail_readiness();
            if reason.is_none() {
                tokio::time::sleep(settings.shutdown_delay).await;
            }
            server.drain(settings.drain_timeout);
            server.end_gateway(settings.drain_timeout).await;
            reason
        };
        let (_, reason) = tokio::join!(serving.join_next(), drain);
        // A stalled disk or pipe must not block the shutdown.
        let uses = controllers::access_keys::finish(&registry);
        within_end_timeout("cannot store the last use of access keys", uses).await;
        let readers = controllers::readers::finish(&registry);
        within_end_timeout("cannot store the readers of secrets", readers).await;
        background.shutdown().await;
        within_end_timeout("cannot close the database", sealed.close()).await;
        audit.close().await;
        tracing::info!("stopped");
        reason.map_or(Ok(()), |reason| Err(anyhow::Error::msg(reason)))
    }
}

/// Waits until this server may no longer use the store.
async fn reason_to_end(unusable: &mut watch::Receiver<Option<String>>) -> String {
    loop {
        if let Some(reason) = unusable.borrow_and_update().clone() {
            return reason;
        }
        if unusable.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Renews the certificate, and updates the administrator's kubeconfig after each renewal.
fn renew_certificate(
    source: Arc<dyn Source>,
    reload: watch::Receiver<()>,
    access: Arc<Access>,
    renewer: tls::Renewer,
) -> impl Future<Output = ()> + use<> {
    renewer.run(source, reload, move |trust| {
        access.trust.store(Arc::new(trust.to_owned()));
        if let Err(error) = update_kubeconfig(&access.kubeconfig, &access.host, trust) {
            tracing::error!(
                "cannot write the new certificate to the administrator's kubeconfig: {error}"
            );
        }
    })
}

async fn within_end_timeout(failure: &str, work: impl Future<Output = ()>) {
    if tokio::time::timeout(END_TIMEOUT, work).await.is_err() {
        tracing::error!("{failure} within {END_TIMEOUT:?}");
    }
}

/// Starts the supervised tasks: the cache's follower and the controllers.
fn spawn_supervised(
    background: &mut JoinSet<()>,
    registry: &Arc<Registry>,
    server: &Server,
    watch: Box<dyn Watch>,
    history: Duration,
) {
    let restarts = server.restarts();
    let first = parking_lot::Mutex::new(Some(watch));
    let cache = registry.cache().clone();
    // Every request waits for the cache. So its follower has a dedicated thread, and does not wait for one behind
    // requests.
    let follow =
        supervise("cache", restarts.clone(), move || cache.clone().follow(first.lock().take()));
    background.spawn(on_own_thread("cache", follow));
    let cache = registry.cache().clone();
    background.spawn(supervise("lag", restarts.clone(), move || cache.clone().watch_lag()));
    let mut controller = |name, run: fn(Arc<Registry>) -> BoxFuture<'static, ()>| {
        let registry = registry.clone();
        background.spawn(supervise(name, restarts.clone(), move || run(registry.clone())));
    };
    controller("namespaces", |registry| controllers::namespaces::run(registry).boxed());
    controller("reaper", |registry| controllers::reaper::run(registry).boxed());
    controller("garbage", |registry| controllers::garbage::run(registry).boxed());
    controller("roles", |registry| controllers::roles::run(registry).boxed());
    controller("access-keys", |registry| controllers::access_keys::run(registry).boxed());
    controller("readers", |registry| controllers::readers::run(registry).boxed());
    controller("events", |registry| controllers::events::run(registry).boxed());
    controller("quota-events", |registry| controllers::events::run_quotas(registry).boxed());
    controller("impersonations", |registry| controllers::impersonations::run(registry).boxed());
    controller("phases", |registry| controllers::phases::run(registry).boxed());
    controller("offers", |registry| controllers::offers::run(registry).boxed());
    controller("signing-keys", |registry| controllers::signing_keys::run(registry).boxed());
    let (follows, flow) = (registry.clone(), server.flow().clone());
    background.spawn(supervise("project-secrets", restarts.clone(), move || {
        controllers::project_secrets::run(follows.clone(), flow.clone())
    }));
    let (of, tunnels) = (registry.clone(), server.gateway().tunnels().clone());
    background.spawn(supervise("connected-agents", restarts.clone(), move || {
        postern_gateway::report_agents(of.clone(), tunnels.clone())
    }));
    let (of, attempt) =
        (registry.clone(), postern_gateway::probe_attempt(registry, server.gateway()));
    background.spawn(supervise("probes", restarts.clone(), move || {
        controllers::probes::run(of.clone(), attempt.clone())
    }));
    let sso = server.sso().clone();
    background.spawn(supervise("sso-refresh", restarts.clone(), move || refresh::run(sso.clone())));
    let registry = registry.clone();
    background.spawn(supervise("compaction", restarts.clone(), move || {
        controllers::compaction::run(registry.clone(), history)
    }));
}

async fn watch_queue(flow: Arc<Flow>) {
    flow.watch_queue().await;
}

#[cfg(test)]
mod answer_order;

#[cfg(test)]
mod tests {
    mod kept_connection;

    use postern_store::hostile::{Faults, Remote};
    use postern_store::seal::Keyring;

    use super::*;

    #[tokio::test]
    async fn a_server_starts_unannounced_only_if_the_others_can_decide_nothing_without_it() {
        let remote = Remote::new(Faults::default());
        let first = Keyring::generate().unwrap();
        let second = first.rotated().unwrap();
        let sealed = Sealed::open(remote.connect(), second.clone()).await.unwrap();
        let member = |format, keyring: &Keyring| Member {
            id: "other".into(),
            address: "other:1".to_owned(),
            format,
            seal_keys: keyring.ids().iter().map(ToString::to_string).collect(),
        };
        check_unannounced(&sealed, &[]).unwrap();
        let same = [member(format::NEWEST, &first), member(format::NEWEST, &second)];
        check_unannounced(&sealed, &same).unwrap();
        let newer = check_unannounced(&sealed, &[member(format::NEWEST + 1, &second)]);
        assert!(newer.unwrap_err().to_string().contains("has a newer version"));

        // Another server can make its third key active without this one.
        let third = second.rotated().unwrap();
        let others = [member(format::NEWEST, &third)];
        let lacks = check_unannounced(&sealed, &others).unwrap_err().to_string();
        assert!(lacks.contains(&third.current().to_string()), "{lacks}");
        assert!(lacks.contains("copy that server's keyring"), "{lacks}");
        // A retired key cannot become active again. A server that was set up later may lack it.
        sealed.use_keyring(third.clone()).await.unwrap();
        sealed.activate_prepared_key().await.unwrap();
        let late = third.without(second.current()).unwrap();
        sealed.use_keyring(late).await.unwrap();
        check_unannounced(&sealed, &others).unwrap();
    }
}
