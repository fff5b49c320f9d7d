//! The settings of `postern serve`. Flags override `POSTERN_…` variables, which override the YAML file, which
//! overrides the defaults.

use std::env::VarError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use postern_client::{Proxy, ServerUrl};
use postern_server::{
    AuditLog, AuditSettings, Build, DEFAULT_STORE_SILENCE, DataDir, GatewaySettings,
    GivenCertificate, GivenNames, KeyPolicy, KeyringSetting, Limits, RemoteStore, Settings,
    TokenPolicy, UpstreamAddresses,
};
use serde::Deserialize;

use crate::client_flags::ClientFlags;
use crate::etcd_flags::EtcdFlags;

/// The commit of the sources, from the build script.
const BUILD: Build =
    Build { commit: env!("POSTERN_COMMIT"), commit_date: env!("POSTERN_COMMIT_DATE") };

/// The settings of one source. All are optional, so that the next source can provide them.
#[derive(Args, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Serve {
    /// A YAML file with these settings, by the names of the flags; an unknown setting is an error
    #[arg(long, env = "POSTERN_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,

    /// The directory of the database, the keys and the administrator's kubeconfig [default: ./postern-data]
    #[arg(long, env = "POSTERN_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// The directory of the keyring (seal.keys) and the TLS keys; keep it apart from the database [default:
    /// keys in the data directory]
    #[arg(long, env = "POSTERN_KEY_DIR", value_name = "DIR")]
    key_dir: Option<PathBuf>,

    /// Where the at-rest keys come from. `file:PATH` is a keyring that is never written, such as a mounted Secret. With
    /// `kms-v2:unix:///PATH` or `transit:https://HOST:PORT/MOUNT/keys/NAME`, they are in the store, wrapped by this KMS
    /// [default: seal.keys in the key directory]
    #[arg(long, env = "POSTERN_KEYRING", value_name = "SOURCE")]
    keyring: Option<String>,

    /// The file with the token for `--keyring transit:…`; it is read for each call
    #[arg(long, env = "POSTERN_TRANSIT_TOKEN_FILE", value_name = "FILE")]
    transit_token_file: Option<PathBuf>,

    /// The file with the certificate authorities of `--keyring transit:…`, in PEM [default: those of the system]
    #[arg(long, env = "POSTERN_TRANSIT_CA_FILE", value_name = "FILE")]
    transit_ca_file: Option<PathBuf>,

    /// The store that several servers share, as etcd://HOST:PORT,HOST:PORT/PREFIX. Prepare it with postern init
    /// [default: the database in the data directory]
    #[arg(long, env = "POSTERN_STORE", value_name = "URL")]
    store: Option<String>,

    #[command(flatten)]
    #[serde(flatten)]
    etcd: EtcdFlags,

    #[command(flatten)]
    #[serde(flatten)]
    clients: ClientFlags,

    /// The address to listen on; port 0 selects a free port [default: 127.0.0.1:8443]
    #[arg(long, env = "POSTERN_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// A name or address at which clients reach this server; may be repeated. The self-signed certificate covers
    /// all of them, and the kubeconfig has the first
    #[arg(long = "host", env = "POSTERN_HOST", value_name = "NAME", value_delimiter = ',')]
    #[serde(rename = "host")]
    hosts: Vec<String>,

    /// The host at which other servers on the same store reach this one, to hand over requests to agents [default: the
    /// host name]
    #[arg(long, env = "POSTERN_MEMBER_HOST", value_name = "NAME")]
    member_host: Option<String>,

    /// The file with the server certificate and its chain, in PEM [default: self-signed]
    #[arg(long, env = "POSTERN_TLS_CERT_FILE", value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,

    /// The file with the private key of --tls-cert-file, in PEM
    #[arg(long, env = "POSTERN_TLS_KEY_FILE", value_name = "FILE")]
    tls_key_file: Option<PathBuf>,

    /// How long history is kept, for watches that resume and lists that continue [default: 5m]
    #[arg(long, env = "POSTERN_HISTORY", value_name = "DURATION")]
    history: Option<String>,

    /// How long the server still serves after SIGTERM while /readyz fails, so that load balancers remove it first
    /// [default: none]
    #[arg(long, env = "POSTERN_SHUTDOWN_DELAY", value_name = "DURATION")]
    shutdown_delay: Option<String>,

    /// How long a shutdown waits for requests in flight [default: 10s]
    #[arg(long, env = "POSTERN_DRAIN_TIMEOUT", value_name = "DURATION")]
    drain_timeout: Option<String>,

    /// Maximum read requests in flight. One owner of access keys has at most an eighth; further requests wait
    /// in the owner's queue [default: 64]
    #[arg(long, env = "POSTERN_MAX_READS_IN_FLIGHT", value_name = "COUNT")]
    max_reads_in_flight: Option<usize>,

    /// Maximum write requests in flight. One owner has at most a quarter, or three quarters while no other
    /// owner sends requests [default: 64]
    #[arg(long, env = "POSTERN_MAX_WRITES_IN_FLIGHT", value_name = "COUNT")]
    max_writes_in_flight: Option<usize>,

    /// Maximum open watches of one owner of access keys [default: 1000]
    #[arg(long, env = "POSTERN_MAX_WATCHES_PER_OWNER", value_name = "COUNT")]
    max_watches_per_owner: Option<usize>,

    /// Maximum access keys of one owner [default: 1000]
    #[arg(long, env = "POSTERN_MAX_KEYS_PER_OWNER", value_name = "COUNT")]
    max_keys_per_owner: Option<usize>,

    /// Maximum bytes that one owner of access keys writes in a minute; no limit for members of system:masters
    /// [default: 268435456]
    #[arg(long, env = "POSTERN_MAX_WRITE_BYTES_PER_OWNER", value_name = "BYTES")]
    max_write_bytes_per_owner: Option<usize>,

    /// The maximum ttl of an access key, for example 720h. It is then also the default ttl [default: no limit]
    #[arg(long, env = "POSTERN_ACCESS_KEY_MAX_TTL", value_name = "DURATION")]
    access_key_max_ttl: Option<String>,

    /// Whether the web console is served at /ui/ [default: true]
    #[arg(
        long,
        env = "POSTERN_CONSOLE",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    console: Option<bool>,

    /// How long a session of the console lasts [default: 12h]
    #[arg(long, env = "POSTERN_CONSOLE_SESSION", value_name = "DURATION")]
    console_session: Option<String>,

    /// How long a store on etcd may not answer before nothing is decided from memory: then requests get 503 [default: 15s]
    #[arg(long, env = "POSTERN_STORE_SILENCE", value_name = "DURATION")]
    store_silence: Option<String>,

    /// How long groups of single sign-on count after the identity provider has last confirmed them [default: 24h]
    #[arg(long, env = "POSTERN_SSO_GROUPS_MAX_AGE", value_name = "DURATION")]
    sso_groups_max_age: Option<String>,

    /// How long a session of the console lasts without a use [default: 30m]
    #[arg(long, env = "POSTERN_CONSOLE_IDLE", value_name = "DURATION")]
    console_idle: Option<String>,

    /// How long an expired access key is kept until it is removed [default: 720h]
    #[arg(long, env = "POSTERN_EXPIRED_KEY_RETENTION", value_name = "DURATION")]
    expired_key_retention: Option<String>,

    /// Allow clusters at every address, including loopback and link-local addresses. For development only: a
    /// kubeconfig can then reach services of this machine
    #[arg(
        long,
        env = "POSTERN_ALLOW_LOCAL_UPSTREAMS",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    allow_local_upstreams: Option<bool>,

    /// A network or address that is allowed for clusters although it is refused by default; may be repeated.
    /// Kubeconfigs can then reach every port there
    #[arg(long, env = "POSTERN_UPSTREAM_ALLOW", value_name = "CIDR", value_delimiter = ',')]
    upstream_allow: Vec<String>,

    /// A network or address that is refused for clusters; may be repeated. It overrides --upstream-allow and
    /// --allow-local-upstreams
    #[arg(long, env = "POSTERN_UPSTREAM_DENY", value_name = "CIDR", value_delimiter = ',')]
    upstream_deny: Vec<String>,

    /// A group of the caller that is forwarded to clusters, in addition to the platform's groups; may be repeated.
    /// It must not begin with system:
    #[arg(long, env = "POSTERN_FORWARD_GROUPS", value_name = "GROUP", value_delimiter = ',')]
    forward_groups: Vec<String>,

    /// The maximum duration of exec, attach, port-forward and other streams to clusters. Watches end when their
    /// access key expires [default: 8h]
    #[arg(long, env = "POSTERN_MAX_SESSION", value_name = "DURATION")]
    max_session: Option<String>,

    /// How long a client may read nothing of a log, exec or other stream of a cluster, before the stream ends
    /// [default: 4h]
    #[arg(long, env = "POSTERN_STREAM_STALL", value_name = "DURATION")]
    stream_stall: Option<String>,

    /// The URL at which clients reach this server, and the issuer of endpoint tokens. It must be the same on every
    /// server of a store [default: https://HOST:PORT, from the first --host and the port of --listen]
    #[arg(long, env = "POSTERN_EXTERNAL_URL", value_name = "URL")]
    external_url: Option<String>,

    /// The version in /version, which other clients of the platform compare with their own. v0.0.0 matches every
    /// client. Another version, such as v3.4.8, also sets major and minor at the root [default: Postern's version]
    #[arg(long, env = "POSTERN_ADVERTISE_VERSION", value_name = "VERSION")]
    advertise_version: Option<String>,

    /// The prefix of project namespaces. It cannot change after the first start [default: p-]
    #[arg(long, env = "POSTERN_PROJECT_NAMESPACE_PREFIX", value_name = "PREFIX")]
    project_namespace_prefix: Option<String>,

    /// The default namespace of shared secrets. It cannot change after the first start [default: platform]
    #[arg(long, env = "POSTERN_DEFAULT_NAMESPACE", value_name = "NAMESPACE")]
    default_namespace: Option<String>,

    /// The maximum ttl of an endpoint token [default: 24h]
    #[arg(long, env = "POSTERN_ENDPOINT_TOKEN_MAX_TTL", value_name = "DURATION")]
    endpoint_token_max_ttl: Option<String>,

    /// How long a key signs endpoint tokens until the next key replaces it [default: 30d]
    #[arg(long, env = "POSTERN_ENDPOINT_TOKEN_KEY_ROTATION", value_name = "DURATION")]
    endpoint_token_key_rotation: Option<String>,

    /// How long an agent serves requests without a connection to this server. A new signing key is published this
    /// long before it signs [default: 24h]
    #[arg(long, env = "POSTERN_MAX_OFFLINE", value_name = "DURATION")]
    max_offline: Option<String>,

    /// The file of the audit log; - is stdout [default: audit/audit.log in the data directory]
    #[arg(long, env = "POSTERN_AUDIT_LOG_PATH", value_name = "FILE")]
    audit_log_path: Option<PathBuf>,

    /// The file with the audit policy, a Policy of audit.k8s.io/v1 [default: metadata of all requests for objects,
    /// without bodies]
    #[arg(long, env = "POSTERN_AUDIT_POLICY_FILE", value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,

    /// The maximum size of the audit log file in MiB. A larger file is rotated, and gets the time in its name
    /// [default: 100]
    #[arg(long, env = "POSTERN_AUDIT_LOG_MAXSIZE", value_name = "MIB")]
    audit_log_maxsize: Option<usize>,

    /// Maximum rotated audit log files; the oldest are removed [default: 10]
    #[arg(long, env = "POSTERN_AUDIT_LOG_MAXBACKUP", value_name = "COUNT")]
    audit_log_maxbackup: Option<usize>,

    /// Send responses with secrets only after their audit record is in the file. By default, the record of a read is
    /// written a few milliseconds later
    #[arg(
        long,
        env = "POSTERN_AUDIT_BEFORE_ANSWER",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    audit_before_answer: Option<bool>,

    /// Whether audit records of exec and attach contain the command (at most 2 KiB) [default: true]
    #[arg(long, env = "POSTERN_AUDIT_EXEC_COMMANDS", value_name = "BOOL")]
    audit_exec_commands: Option<bool>,

    /// The memory for cached database pages, in MiB [default: 32]
    #[arg(long, env = "POSTERN_DB_CACHE_MIB", value_name = "MIB")]
    db_cache_mib: Option<usize>,

    /// The log filter: error, warn, info, debug or trace, also for one module, as in `postern_server=debug`
    /// [default: info]
    #[arg(long, env = "POSTERN_LOG", value_name = "FILTER")]
    log: Option<String>,

    /// The format of the log: text, or json with one object a line [default: text]
    #[arg(long, env = "POSTERN_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,

    /// The OTLP receiver to which traces are sent, over HTTP with protobuf, such as `http://127.0.0.1:4318`
    /// [default: `OTEL_EXPORTER_OTLP_ENDPOINT`, or none]
    #[arg(long, env = "POSTERN_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
}

/// The complete settings, with all defaults.
pub(crate) struct Complete {
    /// The server's settings.
    pub(crate) settings: Settings,
    /// The log and the traces.
    pub(crate) observation: Observation,
}

/// The log and the traces of a service.
pub(crate) struct Observation {
    /// The name of the service in traces.
    pub(crate) service: &'static str,
    /// The log filter.
    pub(crate) log: String,
    /// The format of the log.
    pub(crate) log_format: LogFormat,
    /// The OTLP receiver.
    pub(crate) otlp_endpoint: Option<String>,
}

/// The format of the log.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Text for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

impl From<LogFormat> for postern_telemetry::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

impl Serve {
    /// The settings, completed with those of the file and the defaults.
    ///
    /// # Errors
    /// When the file cannot be read, or a value is invalid; the error names it.
    pub(crate) fn complete(self) -> anyhow::Result<Complete> {
        let file = self.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let given = self.or(file);
        let (limits, keys) = (given.limits()?, given.key_policy()?);
        let (gateway, tokens) = (given.gateway()?, given.token_policy()?);
        let (store, keyring) = (given.remote_store()?, given.keyring()?);
        let store_silence = given.silence()?;
        let certificate = given.certificate()?;
        let client_flags = given.clients.clone();
        for host in given.hosts.iter().chain(&given.member_host) {
            check_host(host)?;
        }
        let data_dir = given.data_dir.unwrap_or_else(|| "postern-data".into());
        let audit = AuditSettings {
            log: match given.audit_log_path {
                None => AuditLog::File(DataDir::audit_log_in(&data_dir)),
                Some(path) if path == Path::new("-") => AuditLog::Stdout,
                Some(path) => AuditLog::File(path),
            },
            policy_file: given.audit_policy_file,
            max_file_bytes: mebibytes("audit-log-maxsize", given.audit_log_maxsize, 100)? as u64,
            max_rotated_files: positive("audit-log-maxbackup", given.audit_log_maxbackup, 10)?,
            before_answer: given.audit_before_answer.unwrap_or_default(),
            exec_commands: given.audit_exec_commands.unwrap_or(true),
        };
        let settings = Settings {
            data_dir,
            audit,
            gateway,
            key_dir: given.key_dir,
            keyring,
            listen: given.listen.unwrap_or_else(|| ([127, 0, 0, 1], 8443).into()),
            hosts: given.hosts,
            member_host: given.member_host,
            certificate,
            history: duration("history", given.history.as_deref(), Duration::from_mins(5))?,
            store_silence,
            shutdown_delay: duration(
                "shutdown-delay",
                given.shutdown_delay.as_deref(),
                Duration::ZERO,
            )?,
            drain_timeout: duration(
                "drain-timeout",
                given.drain_timeout.as_deref(),
                Duration::from_secs(10),
            )?,
            limits,
            keys,
            tokens,
            store,
            cache_bytes: mebibytes("db-cache-mib", given.db_cache_mib, 32)?,
            build: BUILD,
            namespaces: GivenNames {
                project_prefix: given.project_namespace_prefix,
                default_namespace: given.default_namespace,
            },
            advertised_version: given.advertise_version,
            console: given.console.unwrap_or(true),
            clients: client_flags.addresses()?,
            max_login_failures: client_flags.max_login_failures()?,
        };
        let observation = Observation {
            service: "postern",
            log: given.log.unwrap_or_else(|| "info".to_owned()),
            log_format: given.log_format.unwrap_or_default(),
            otlp_endpoint: given.otlp_endpoint,
        };
        Ok(Complete { settings, observation })
    }

    fn certificate(&self) -> anyhow::Result<Option<GivenCertificate>> {
        match (self.tls_cert_file.clone(), self.tls_key_file.clone()) {
            (Some(certificate), Some(key)) => Ok(Some(GivenCertificate { certificate, key })),
            (None, None) => Ok(None),
            _ => anyhow::bail!("pass both --tls-cert-file and --tls-key-file, or neither"),
        }
    }

    fn keyring(&self) -> anyhow::Result<KeyringSetting> {
        let Self { keyring, transit_token_file, transit_ca_file, .. } = self;
        KeyringSetting::parse(
            keyring.as_deref(),
            transit_token_file.as_deref(),
            transit_ca_file.as_deref(),
        )
    }

    /// The store that several servers share, if there is one.
    fn remote_store(&self) -> anyhow::Result<Option<RemoteStore>> {
        self.etcd.store(self.store.as_deref())
    }

    fn limits(&self) -> anyhow::Result<Limits> {
        let defaults = Limits::default();
        Ok(Limits {
            reading: positive("max-reads-in-flight", self.max_reads_in_flight, defaults.reading)?,
            writing: positive("max-writes-in-flight", self.max_writes_in_flight, defaults.writing)?,
            watches_per_owner: positive(
                "max-watches-per-owner",
                self.max_watches_per_owner,
                defaults.watches_per_owner,
            )?,
            write_bytes_per_owner: bytes(
                "max-write-bytes-per-owner",
                self.max_write_bytes_per_owner,
                defaults.write_bytes_per_owner,
            )?,
        })
    }

    fn upstream_addresses(&self) -> anyhow::Result<UpstreamAddresses> {
        let any = self.allow_local_upstreams.unwrap_or_default().then(UpstreamAddresses::any);
        let mut addresses = any.unwrap_or_default();
        for network in &self.upstream_allow {
            addresses.allow(network).context("--upstream-allow")?;
        }
        for network in &self.upstream_deny {
            addresses.deny(network).context("--upstream-deny")?;
        }
        Ok(addresses)
    }

    fn gateway(&self) -> anyhow::Result<GatewaySettings> {
        for group in &self.forward_groups {
            anyhow::ensure!(!group.is_empty(), "--forward-groups: a group must not be empty");
            anyhow::ensure!(
                !group.starts_with("system:"),
                "--forward-groups: groups that begin with system: are never forwarded, remove \
                 {group:?}"
            );
        }
        let defaults = GatewaySettings::default();
        let stall = self.stream_stall.as_deref();
        Ok(GatewaySettings {
            upstream_addresses: self.upstream_addresses()?,
            forward_groups: self.forward_groups.clone(),
            max_session: duration(
                "max-session",
                self.max_session.as_deref(),
                defaults.max_session,
            )?,
            stream_stall: duration("stream-stall", stall, defaults.stream_stall)?,
        })
    }

    fn silence(&self) -> anyhow::Result<Duration> {
        duration("store-silence", self.store_silence.as_deref(), DEFAULT_STORE_SILENCE)
    }

    fn key_policy(&self) -> anyhow::Result<KeyPolicy> {
        let defaults = KeyPolicy::default();
        let seconds = |name, text: Option<&str>| {
            let span = text.map(|text| duration(name, Some(text), Duration::ZERO)).transpose()?;
            anyhow::Ok(span.map(|span| i64::try_from(span.as_secs()).unwrap_or(i64::MAX)))
        };
        let retention = seconds("expired-key-retention", self.expired_key_retention.as_deref())?;
        let session = seconds("console-session", self.console_session.as_deref())?;
        let idle = seconds("console-idle", self.console_idle.as_deref())?;
        let max_age = seconds("sso-groups-max-age", self.sso_groups_max_age.as_deref())?;
        Ok(KeyPolicy {
            max_ttl_seconds: seconds("access-key-max-ttl", self.access_key_max_ttl.as_deref())?,
            expired_retention_seconds: retention.unwrap_or(defaults.expired_retention_seconds),
            max_per_owner: positive(
                "max-keys-per-owner",
                self.max_keys_per_owner,
                defaults.max_per_owner,
            )?,
            session_seconds: session.unwrap_or(defaults.session_seconds).max(1),
            session_idle_seconds: idle.unwrap_or(defaults.session_idle_seconds).max(1),
            sso_groups_max_age_seconds: max_age
                .unwrap_or(defaults.sso_groups_max_age_seconds)
                .max(1),
        })
    }

    fn token_policy(&self) -> anyhow::Result<TokenPolicy> {
        let defaults = TokenPolicy::default();
        let seconds = |name, text: Option<&str>, default| {
            let Some(text) = text else { return anyhow::Ok(default) };
            let span = duration(name, Some(text), Duration::ZERO)?;
            Ok(i64::try_from(span.as_secs()).unwrap_or(i64::MAX))
        };
        let max_ttl = self.endpoint_token_max_ttl.as_deref();
        let rotation = self.endpoint_token_key_rotation.as_deref();
        let max_offline = self.max_offline.as_deref();
        Ok(TokenPolicy {
            forward_groups: Vec::new(),
            issuer: self.external_url.as_deref().map(external_url).transpose()?.unwrap_or_default(),
            max_ttl_seconds: seconds("endpoint-token-max-ttl", max_ttl, defaults.max_ttl_seconds)?,
            rotation_seconds: seconds(
                "endpoint-token-key-rotation",
                rotation,
                defaults.rotation_seconds,
            )?,
            max_offline_seconds: seconds("max-offline", max_offline, defaults.max_offline_seconds)?,
        })
    }

    fn or(self, other: Self) -> Self {
        Self {
            config: self.config,
            data_dir: self.data_dir.or(other.data_dir),
            key_dir: self.key_dir.or(other.key_dir),
            keyring: self.keyring.or(other.keyring),
            transit_token_file: self.transit_token_file.or(other.transit_token_file),
            transit_ca_file: self.transit_ca_file.or(other.transit_ca_file),
            store: self.store.or(other.store),
            etcd: self.etcd.or(other.etcd),
            clients: self.clients.or(other.clients),
            listen: self.listen.or(other.listen),
            hosts: list_or(self.hosts, other.hosts),
            member_host: self.member_host.or(other.member_host),
            tls_cert_file: self.tls_cert_file.or(other.tls_cert_file),
            tls_key_file: self.tls_key_file.or(other.tls_key_file),
            history: self.history.or(other.history),
            shutdown_delay: self.shutdown_delay.or(other.shutdown_delay),
            store_silence: self.store_silence.or(other.store_silence),
            drain_timeout: self.drain_timeout.or(other.drain_timeout),
            max_reads_in_flight: self.max_reads_in_flight.or(other.max_reads_in_flight),
            max_writes_in_flight: self.max_writes_in_flight.or(other.max_writes_in_flight),
            max_watches_per_owner: self.max_watches_per_owner.or(other.max_watches_per_owner),
            max_keys_per_owner: self.max_keys_per_owner.or(other.max_keys_per_owner),
            max_write_bytes_per_owner: self
                .max_write_bytes_per_owner
                .or(other.max_write_bytes_per_owner),
            access_key_max_ttl: self.access_key_max_ttl.or(other.access_key_max_ttl),
            console: self.console.or(other.console),
            console_session: self.console_session.or(other.console_session),
            sso_groups_max_age: self.sso_groups_max_age.or(other.sso_groups_max_age),
            console_idle: self.console_idle.or(other.console_idle),
            expired_key_retention: self.expired_key_retention.or(other.expired_key_retention),
            external_url: self.external_url.or(other.external_url),
            advertise_version: self.advertise_version.or(other.advertise_version),
            project_namespace_prefix: self
                .project_namespace_prefix
                .or(other.project_namespace_prefix),
            default_namespace: self.default_namespace.or(other.default_namespace),
            endpoint_token_max_ttl: self.endpoint_token_max_ttl.or(other.endpoint_token_max_ttl),
            endpoint_token_key_rotation: self
                .endpoint_token_key_rotation
                .or(other.endpoint_token_key_rotation),
            max_offline: self.max_offline.or(other.max_offline),
            audit_log_path: self.audit_log_path.or(other.audit_log_path),
            audit_policy_file: self.audit_policy_file.or(other.audit_policy_file),
            audit_log_maxsize: self.audit_log_maxsize.or(other.audit_log_maxsize),
            audit_log_maxbackup: self.audit_log_maxbackup.or(other.audit_log_maxbackup),
            allow_local_upstreams: self.allow_local_upstreams.or(other.allow_local_upstreams),
            upstream_allow: list_or(self.upstream_allow, other.upstream_allow),
            upstream_deny: list_or(self.upstream_deny, other.upstream_deny),
            forward_groups: list_or(self.forward_groups, other.forward_groups),
            max_session: self.max_session.or(other.max_session),
            stream_stall: self.stream_stall.or(other.stream_stall),
            audit_before_answer: self.audit_before_answer.or(other.audit_before_answer),
            audit_exec_commands: self.audit_exec_commands.or(other.audit_exec_commands),
            db_cache_mib: self.db_cache_mib.or(other.db_cache_mib),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
            otlp_endpoint: self.otlp_endpoint.or(other.otlp_endpoint),
        }
    }
}

/// The values of a repeatable setting, or those of the next source.
fn list_or(given: Vec<String>, other: Vec<String>) -> Vec<String> {
    if given.is_empty() { other } else { given }
}

fn read_file(path: &Path) -> anyhow::Result<Serve> {
    #[expect(clippy::disallowed_methods, reason = "the binary reads its own settings")]
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the settings file {} of --config", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("invalid settings in {}", path.display()))
}

/// The maximum duration of a setting.
const DURATION_MAX: Duration = Duration::from_hours(366 * 24);

/// Parses the duration of a setting, in the format of all flags of `postern`.
pub(crate) fn duration(
    name: &str,
    text: Option<&str>,
    default: Duration,
) -> anyhow::Result<Duration> {
    let Some(text) = text else { return Ok(default) };
    postern_cli::parse_positive_duration(text, DURATION_MAX)
        .map_err(|error| anyhow::anyhow!("--{name} {text:?}: {error}"))
}

/// The HTTP proxy to a server that the environment names.
///
/// # Errors
/// As [`Proxy::of_environment`]; the error names the variable.
pub(crate) fn proxy_of_environment(server: &ServerUrl) -> anyhow::Result<Option<Proxy>> {
    let variable = |name: &str| match std::env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(format!("the environment variable {name} is not UTF-8"))
        }
    };
    Proxy::of_environment(server, variable).map_err(anyhow::Error::msg)
}

/// Checks that a host is a DNS name or an IP address. It is written into certificates and kubeconfigs.
fn check_host(host: &str) -> anyhow::Result<()> {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = host.len() <= 253 && host.split('.').all(label);
    anyhow::ensure!(
        name || host.parse::<std::net::IpAddr>().is_ok(),
        "invalid --host {host:?}: must be a DNS name or an IP address (IPv6 without brackets)"
    );
    Ok(())
}

/// The URL without a slash at its end, for comparisons.
fn external_url(text: &str) -> anyhow::Result<String> {
    let url = text.trim_end_matches('/');
    let rest = url.strip_prefix("https://").unwrap_or_default();
    let is_url = !rest.is_empty()
        && rest.bytes().all(|byte| byte.is_ascii_graphic())
        && !rest.contains(['?', '#', '@', '"', '\\']);
    anyhow::ensure!(is_url, "invalid --external-url {text:?}: must be https://HOST[:PORT][/PATH]");
    Ok(url.to_owned())
}

fn positive(name: &str, given: Option<usize>, default: usize) -> anyhow::Result<usize> {
    let value = given.unwrap_or(default);
    // No machine has more, and sums of these values cannot overflow.
    anyhow::ensure!(
        (1..=1_000_000).contains(&value),
        "invalid --{name} {value}: must be from 1 to 1000000"
    );
    Ok(value)
}

/// The minimum of the bytes that an owner may write in a minute: one object of the maximum size.
const MIN_WRITE_BYTES: usize = 1_000_000;

fn bytes(name: &str, given: Option<usize>, default: usize) -> anyhow::Result<usize> {
    let value = given.unwrap_or(default);
    let most = 1 << 40;
    anyhow::ensure!(
        (MIN_WRITE_BYTES..=most).contains(&value),
        "invalid --{name} {value}: must be from {MIN_WRITE_BYTES} to {most}"
    );
    Ok(value)
}

fn mebibytes(name: &str, given: Option<usize>, default: usize) -> anyhow::Result<usize> {
    Ok(positive(name, given, default)? * 1024 * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let of = |text| duration("history", Some(text), Duration::ZERO);
        assert_eq!(of("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(of("1h30m").unwrap(), Duration::from_mins(90));
        assert_eq!(of("30d").unwrap(), Duration::from_hours(720));
        assert_eq!(of("5").unwrap(), Duration::from_secs(5));
        for wrong in ["", "5x", "-5m", "0s", "x", "9000000h", "1.5h", "PT5M"] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.contains("--history"), "{wrong}: {error}");
            let by_cli = postern_cli::parse_positive_duration(wrong, DURATION_MAX).unwrap_err();
            assert!(error.ends_with(&by_cli), "the same message as for every flag: {error}");
        }
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let file = Serve { log: Some("debug".to_owned()), ..Serve::default() };
        let flags = Serve { log: Some("warn".to_owned()), ..Serve::default() };
        assert_eq!(flags.or(file).log.as_deref(), Some("warn"));
    }

    #[test]
    fn a_flag_takes_back_a_true_in_the_file() {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            serve: Serve,
        }
        let of = |flags: &[&str]| {
            let words = std::iter::once("serve").chain(flags.iter().copied());
            let given = <Flags as clap::Parser>::try_parse_from(words).unwrap().serve;
            let file: Serve =
                serde_saphyr::from_str("audit-before-answer: true\nallow-local-upstreams: true\n")
                    .unwrap();
            let settings = given.or(file);
            (settings.audit_before_answer, settings.allow_local_upstreams)
        };
        assert_eq!(of(&[]), (Some(true), Some(true)));
        assert_eq!(of(&["--audit-before-answer=false"]), (Some(false), Some(true)));
        assert_eq!(of(&["--audit-before-answer", "--allow-local-upstreams=false"]).1, Some(false));
    }

    #[test]
    fn networks_of_upstreams_are_checked_at_the_start() {
        let of = |allow: &[&str], deny: &[&str]| {
            let texts = |networks: &[&str]| networks.iter().map(|&text| text.to_owned()).collect();
            let (upstream_allow, upstream_deny) = (texts(allow), texts(deny));
            Serve { upstream_allow, upstream_deny, ..Serve::default() }.upstream_addresses()
        };
        let mut expected = UpstreamAddresses::default();
        expected.allow("192.0.2.5/32").unwrap();
        expected.deny("10.0.0.0/8").unwrap();
        expected.deny("fd00::/8").unwrap();
        assert_eq!(of(&["192.0.2.5"], &["10.0.0.0/8", " fd00::/8"]).unwrap(), expected);
        let error = |allow: &[&str], deny: &[&str]| format!("{:#}", of(allow, deny).unwrap_err());
        let said = error(&["10.0.0.0/33"], &[]);
        assert!(said.starts_with("--upstream-allow: \"10.0.0.0/33\" is no network"), "{said}");
        let said = error(&[], &["10.0.0.0/8", "10.0.0.1/8"]);
        assert!(said.starts_with("--upstream-deny: \"10.0.0.1/8\" has bits after"), "{said}");
        assert!(error(&[], &[""]).starts_with("--upstream-deny: \"\" is no network"));
    }

    #[test]
    fn hosts() {
        for good in ["localhost", "a-b.example.com", "10.0.0.1", "::1"] {
            assert!(check_host(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "x/y", "https://x", "[::1]", "x\ny", "-x", "*.x", "a..b"] {
            assert!(check_host(bad).is_err(), "{bad}");
        }
    }

    /// It checks nothing if git is missing, or does not trust the owner of the files.
    #[test]
    fn a_build_in_a_repository_knows_its_commit() {
        let git = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output();
        if git.is_ok_and(|output| output.status.success()) {
            assert_eq!(BUILD.commit.len(), 40, "{BUILD:?}");
            assert!(BUILD.commit_date.ends_with('Z'), "{BUILD:?}");
        }
    }

    #[test]
    fn external_urls() {
        assert_eq!(external_url("https://a.example.com/").unwrap(), "https://a.example.com");
        assert_eq!(external_url("https://a:8443/p/").unwrap(), "https://a:8443/p");
        for bad in [
            "",
            "a.example.com",
            "http://a",
            "https://",
            "https://a b",
            "https://u@a",
            "https://a?b",
        ] {
            assert!(external_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_count_of_zero_is_rejected() {
        assert!(positive("db-cache-mib", Some(0), 1).is_err());
    }
}
