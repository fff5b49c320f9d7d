//! The settings of `postern serve`. Flags override `POSTERN_…` variables, which override the YAML file, which
//! overrides the defaults.

use std::env::VarError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use postern_client::{Proxy, ServerUrl};
use postern_server::{
    AuditLog, AuditSettings, Build, DEFAULT_STORE_SILENCE, DataDir, GatewaySettings,
    GivenCertificate, GivenNames, KeyringSetting, Limits, Settings, Sharing, TokenPolicy,
    UpstreamAddresses, UserPolicy,
};

use crate::client_flags::ClientFlags;
use crate::etcd_flags::EtcdFlags;
use crate::settings_file;
use crate::values::{
    Count, PositiveDuration, WriteBytes, external_url, forwarded_group, host, seconds,
    upstream_network, with_conventions, with_optional_value,
};

/// The commit of the sources, from the build script.
const BUILD: Build =
    Build { commit: env!("POSTERN_COMMIT"), commit_date: env!("POSTERN_COMMIT_DATE") };

/// The bytes in a MiB.
const MIB: usize = 1024 * 1024;

/// `postern serve` and `postern init`, before the settings file is read.
#[derive(Args)]
pub(crate) struct Serve {
    /// A YAML file with these settings, by the names of the flags; an unknown setting is an error
    #[arg(long, env = "POSTERN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    given: Given,
}

/// The flags and variables of this process.
struct Given(ArgMatches);

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

/// The settings of `postern serve` and `postern init`, each with its default.
#[derive(Args)]
#[command(mut_args = |arg| with_optional_value(with_conventions(arg, "POSTERN")))]
struct Flags {
    /// The directory of the database, the keys and the administrator's kubeconfig
    #[arg(long, value_name = "DIR", default_value = "postern-data")]
    data_dir: PathBuf,

    /// The directory of the keyring (seal.keys) and the TLS keys; keep it apart from the database [default:
    /// keys in the data directory]
    #[arg(long, value_name = "DIR")]
    key_dir: Option<PathBuf>,

    /// Where the at-rest keys come from. `file:PATH` is a keyring that is never written, such as a mounted Secret. With
    /// `kms-v2:unix:///PATH` or `transit:https://HOST:PORT/MOUNT/keys/NAME`, they are in the store, wrapped by this KMS
    /// [default: seal.keys in the key directory]
    #[arg(long, value_name = "SOURCE")]
    keyring: Option<String>,

    /// The file with the token for `--keyring transit:…`; it is read for each call
    #[arg(long, value_name = "FILE")]
    transit_token_file: Option<PathBuf>,

    /// The file with the certificate authorities of `--keyring transit:…`, in PEM [default: those of the system]
    #[arg(long, value_name = "FILE")]
    transit_ca_file: Option<PathBuf>,

    /// The store that several servers share, as etcd://HOST:PORT,HOST:PORT/PREFIX. Prepare it with postern init
    /// [default: the database in the data directory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    #[command(flatten)]
    etcd: EtcdFlags,

    #[command(flatten)]
    clients: ClientFlags,

    /// The address to listen on; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:8443")]
    listen: SocketAddr,

    /// A name or address at which clients reach this server; may be repeated. The self-signed certificate covers
    /// all of them, and the kubeconfig has the first
    #[arg(long = "host", value_name = "NAME", value_delimiter = ',', value_parser = host)]
    hosts: Vec<String>,

    /// The host at which other servers on the same store reach this one, to hand over requests to agents [default: the
    /// host name]
    #[arg(long, value_name = "NAME", value_parser = host)]
    member_host: Option<String>,

    /// The file with the server certificate and its chain, in PEM [default: self-signed]
    #[arg(long, value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,

    /// The file with the private key of --tls-cert-file, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key_file: Option<PathBuf>,

    /// How long history is kept, for watches that resume and lists that continue
    #[arg(long, default_value = "5m")]
    history: PositiveDuration,

    /// How long the server still serves after SIGTERM while /readyz fails, so that load balancers remove it first
    /// [default: none]
    #[arg(long)]
    shutdown_delay: Option<PositiveDuration>,

    /// How long a shutdown waits for requests in flight
    #[arg(long, default_value = "10s")]
    drain_timeout: PositiveDuration,

    /// Maximum read requests in flight. One owner of access keys has at most an eighth; further requests wait
    /// in the owner's queue
    #[arg(long, default_value_t = Limits::default().reading.into())]
    max_reads_in_flight: Count,

    /// Maximum write requests in flight. One owner has at most a quarter, or three quarters while no other
    /// owner sends requests
    #[arg(long, default_value_t = Limits::default().writing.into())]
    max_writes_in_flight: Count,

    /// Maximum open watches of one owner of access keys
    #[arg(long, default_value_t = Limits::default().watches_per_owner.into())]
    max_watches_per_owner: Count,

    #[command(flatten)]
    users: UserFlags,

    /// Maximum bytes that one owner of access keys writes in a minute; no limit for members of system:masters
    #[arg(long, default_value_t = Limits::default().write_bytes_per_owner.into())]
    max_write_bytes_per_owner: WriteBytes,

    /// Whether the web console is served at /ui/
    #[arg(long, default_value_t = true)]
    console: bool,

    /// How long a store on etcd may not answer before nothing is decided from memory: then requests get 503
    #[arg(long, default_value_t = DEFAULT_STORE_SILENCE.into())]
    store_silence: PositiveDuration,

    #[command(flatten)]
    gateway: GatewayFlags,

    #[command(flatten)]
    tokens: TokenFlags,

    /// The version in /version, which other clients of the platform compare with their own. v0.0.0 matches every
    /// client. Another version, such as v3.4.8, also sets major and minor at the root [default: Postern's version]
    #[arg(long, value_name = "VERSION")]
    advertise_version: Option<String>,

    /// The prefix of project namespaces. It cannot change after the first start [default: p-]
    #[arg(long, value_name = "PREFIX")]
    project_namespace_prefix: Option<String>,

    /// The default namespace of shared secrets. It cannot change after the first start [default: platform]
    #[arg(long, value_name = "NAMESPACE")]
    default_namespace: Option<String>,

    #[command(flatten)]
    audit: AuditFlags,

    /// The memory for cached database pages, in MiB
    #[arg(long, value_name = "MIB", default_value = "32")]
    db_cache_mib: Count,

    /// The log filter: error, warn, info, debug or trace, also for one module, as in `postern_server=debug`
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,

    /// The format of the log: text, or json with one object a line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// The OTLP receiver to which traces are sent, over HTTP with protobuf, such as `http://127.0.0.1:4318`
    /// [default: `OTEL_EXPORTER_OTLP_ENDPOINT`, or none]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

/// The settings of users: their access keys, sessions, and whom they may name.
#[derive(Args)]
struct UserFlags {
    /// Maximum access keys of one owner, and maximum sessions besides
    #[arg(long, default_value_t = UserPolicy::default().max_per_owner.into())]
    max_keys_per_owner: Count,

    /// The maximum ttl of an access key, for example 720h. It is then also the default ttl [default: no limit]
    #[arg(long)]
    access_key_max_ttl: Option<PositiveDuration>,

    /// How long a session of the console lasts
    #[arg(long, default_value_t = seconds(UserPolicy::default().session_seconds))]
    console_session: PositiveDuration,

    /// How long a session of the console lasts without a use
    #[arg(long, default_value_t = seconds(UserPolicy::default().session_idle_seconds))]
    console_idle: PositiveDuration,

    /// How long groups of single sign-on count after the identity provider has last confirmed them
    #[arg(long, default_value_t = seconds(UserPolicy::default().sso_groups_max_age_seconds))]
    sso_groups_max_age: PositiveDuration,

    /// How long an expired access key is kept until it is removed
    #[arg(long, default_value_t = seconds(UserPolicy::default().expired_retention_seconds))]
    expired_key_retention: PositiveDuration,

    /// Whom callers may name in access rules without the verb bind: everyone, users of a common team, or only by bind
    #[arg(long, value_name = "WHOM", default_value = "teams")]
    sharing: SharingMode,
}

/// The settings of the gateway to clusters.
#[derive(Args)]
struct GatewayFlags {
    /// Allow clusters at every address, including loopback and link-local addresses. For development only: a
    /// kubeconfig can then reach services of this machine
    #[arg(long)]
    allow_local_upstreams: bool,

    /// A network or address that is allowed for clusters although it is refused by default; may be repeated.
    /// Kubeconfigs can then reach every port there
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = upstream_network)]
    upstream_allow: Vec<String>,

    /// A network or address that is refused for clusters; may be repeated. It overrides --upstream-allow and
    /// --allow-local-upstreams
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = upstream_network)]
    upstream_deny: Vec<String>,

    /// A group of the caller that is forwarded to clusters, in addition to the platform's groups; may be repeated.
    /// It must not begin with system:
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = forwarded_group)]
    forward_groups: Vec<String>,

    /// The maximum duration of exec, attach, port-forward and other streams to clusters. Watches end when their
    /// access key expires
    #[arg(long, default_value_t = GatewaySettings::default().max_session.into())]
    max_session: PositiveDuration,

    /// How long a client may read nothing of a log, exec or other stream of a cluster, before the stream ends
    #[arg(long, default_value_t = GatewaySettings::default().stream_stall.into())]
    stream_stall: PositiveDuration,
}

/// The settings of endpoint tokens.
#[derive(Args)]
struct TokenFlags {
    /// The URL at which clients reach this server, and the issuer of endpoint tokens. It must be the same on every
    /// server of a store [default: https://HOST:PORT, from the first --host and the port of --listen]
    #[arg(long, value_name = "URL", value_parser = external_url)]
    external_url: Option<String>,

    /// The maximum ttl of an endpoint token
    #[arg(long, default_value_t = seconds(TokenPolicy::default().max_ttl_seconds))]
    endpoint_token_max_ttl: PositiveDuration,

    /// How long a key signs endpoint tokens until the next key replaces it
    #[arg(long, default_value_t = seconds(TokenPolicy::default().rotation_seconds))]
    endpoint_token_key_rotation: PositiveDuration,

    /// How long an agent serves requests without a connection to this server. A new signing key is published
    /// this long before it signs
    #[arg(long, default_value_t = seconds(TokenPolicy::default().max_offline_seconds))]
    max_offline: PositiveDuration,
}

/// The settings of the audit log.
#[derive(Args)]
#[expect(clippy::struct_field_names, reason = "a flag has the name of its field")]
struct AuditFlags {
    /// The file of the audit log; - is stdout [default: audit/audit.log in the data directory]
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,

    /// The file with the audit policy, a Policy of audit.k8s.io/v1 [default: metadata of all requests for objects,
    /// without bodies]
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,

    /// The maximum size of the audit log file in MiB. A larger file is rotated, and gets the time in its name
    #[arg(long, value_name = "MIB", default_value = "100")]
    audit_log_maxsize: Count,

    /// Maximum rotated audit log files; the oldest are removed
    #[arg(long, default_value = "10")]
    audit_log_maxbackup: Count,

    /// Send responses with secrets only after their audit record is in the file. By default, the record of a read is
    /// written a few milliseconds later
    #[arg(long)]
    audit_before_answer: bool,

    /// Whether audit records of exec and attach contain the command (at most 2 KiB)
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    audit_exec_commands: bool,
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people
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

/// Whom callers may name in access rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SharingMode {
    /// Each user and team
    Everyone,
    /// Users and teams of a common team, and the other members of a project
    Teams,
    /// Only users and teams on which the caller has the verb bind
    Bind,
}

impl From<SharingMode> for Sharing {
    fn from(mode: SharingMode) -> Self {
        match mode {
            SharingMode::Everyone => Self::Everyone,
            SharingMode::Teams => Self::Teams,
            SharingMode::Bind => Self::Bind,
        }
    }
}

impl Serve {
    /// The settings of the flags, the environment, the file and the defaults.
    ///
    /// # Errors
    /// When the file cannot be read, or a value is invalid; the error names it.
    pub(crate) fn complete(self) -> anyhow::Result<Complete> {
        let given = self.given.0;
        let flags = match &self.config {
            None => Flags::from_arg_matches(&given)?,
            Some(path) => settings_file::complete(&given, path)?,
        };
        flags.complete()
    }
}

impl Flags {
    fn complete(self) -> anyhow::Result<Complete> {
        let certificate = match (self.tls_cert_file, self.tls_key_file) {
            (Some(certificate), Some(key)) => Some(GivenCertificate { certificate, key }),
            (None, None) => None,
            _ => anyhow::bail!("pass both --tls-cert-file and --tls-key-file, or neither"),
        };
        let settings = Settings {
            audit: self.audit.settings(&self.data_dir),
            data_dir: self.data_dir,
            key_dir: self.key_dir,
            keyring: KeyringSetting::parse(
                self.keyring.as_deref(),
                self.transit_token_file.as_deref(),
                self.transit_ca_file.as_deref(),
            )?,
            listen: self.listen,
            hosts: self.hosts,
            member_host: self.member_host,
            certificate,
            history: self.history.get(),
            store_silence: self.store_silence.get(),
            shutdown_delay: self.shutdown_delay.map(PositiveDuration::get).unwrap_or_default(),
            drain_timeout: self.drain_timeout.get(),
            limits: Limits {
                reading: self.max_reads_in_flight.get(),
                writing: self.max_writes_in_flight.get(),
                watches_per_owner: self.max_watches_per_owner.get(),
                write_bytes_per_owner: self.max_write_bytes_per_owner.get(),
            },
            users: self.users.policy(),
            tokens: self.tokens.policy(),
            gateway: self.gateway.settings()?,
            store: self.etcd.store(self.store.as_deref())?,
            cache_bytes: self.db_cache_mib.get() * MIB,
            build: BUILD,
            namespaces: GivenNames {
                project_prefix: self.project_namespace_prefix,
                default_namespace: self.default_namespace,
            },
            advertised_version: self.advertise_version,
            console: self.console,
            max_login_failures: self.clients.max_login_failures,
            clients: self.clients.addresses()?,
        };
        let observation = Observation {
            service: "postern",
            log: self.log,
            log_format: self.log_format,
            otlp_endpoint: self.otlp_endpoint,
        };
        Ok(Complete { settings, observation })
    }
}

impl UserFlags {
    fn policy(&self) -> UserPolicy {
        UserPolicy {
            max_ttl_seconds: self.access_key_max_ttl.map(PositiveDuration::seconds),
            expired_retention_seconds: self.expired_key_retention.seconds(),
            max_per_owner: self.max_keys_per_owner.get(),
            session_seconds: self.console_session.seconds(),
            session_idle_seconds: self.console_idle.seconds(),
            sso_groups_max_age_seconds: self.sso_groups_max_age.seconds(),
            sharing: self.sharing.into(),
        }
    }
}

impl GatewayFlags {
    fn settings(self) -> anyhow::Result<GatewaySettings> {
        let any = self.allow_local_upstreams.then(UpstreamAddresses::any);
        let mut upstream_addresses = any.unwrap_or_default();
        self.upstream_allow.iter().try_for_each(|network| upstream_addresses.allow(network))?;
        self.upstream_deny.iter().try_for_each(|network| upstream_addresses.deny(network))?;
        Ok(GatewaySettings {
            upstream_addresses,
            forward_groups: self.forward_groups,
            max_session: self.max_session.get(),
            stream_stall: self.stream_stall.get(),
        })
    }
}

impl TokenFlags {
    fn policy(self) -> TokenPolicy {
        TokenPolicy {
            issuer: self.external_url.unwrap_or_default(),
            max_ttl_seconds: self.endpoint_token_max_ttl.seconds(),
            rotation_seconds: self.endpoint_token_key_rotation.seconds(),
            max_offline_seconds: self.max_offline.seconds(),
            ..TokenPolicy::default()
        }
    }
}

impl AuditFlags {
    fn settings(self, data_dir: &Path) -> AuditSettings {
        AuditSettings {
            log: match self.audit_log_path {
                None => AuditLog::File(DataDir::audit_log_in(data_dir)),
                Some(path) if path == Path::new("-") => AuditLog::Stdout,
                Some(path) => AuditLog::File(path),
            },
            policy_file: self.audit_policy_file,
            max_file_bytes: (self.audit_log_maxsize.get() * MIB) as u64,
            max_rotated_files: self.audit_log_maxbackup.get(),
            before_answer: self.audit_before_answer,
            exec_commands: self.audit_exec_commands,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of words, with a file of this text.
    fn flags(words: &[&str], file: &str) -> anyhow::Result<Flags> {
        let command = Flags::augment_args(Command::new("serve").no_binary_name(true));
        settings_file::with_text(&command.try_get_matches_from(words)?, file)
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let file = "log: debug\nhost: [a.example, b.example]\nhistory: 9m\n";
        let found = flags(&["--log=warn", "--host=c.example"], file).unwrap();
        assert_eq!((found.log.as_str(), found.hosts), ("warn", vec!["c.example".to_owned()]));
        assert_eq!((found.history.to_string().as_str(), found.db_cache_mib.get()), ("9m", 32));
        assert_eq!(flags(&[], file).unwrap().hosts, ["a.example", "b.example"]);
    }

    #[test]
    fn a_flag_takes_back_a_true_in_the_file() {
        let of = |words: &[&str]| {
            let file = "audit-before-answer: yes\nallow-local-upstreams: true\n";
            let found = flags(words, file).unwrap();
            (found.audit.audit_before_answer, found.gateway.allow_local_upstreams)
        };
        assert_eq!(of(&[]), (true, true));
        assert_eq!(of(&["--audit-before-answer=false"]), (false, true));
        assert_eq!(of(&["--audit-before-answer", "--allow-local-upstreams=false"]), (true, false));
    }

    #[test]
    fn an_error_of_the_file_names_the_entry() {
        for (file, said) in [
            (
                "histroy: 5m",
                "unexpected argument '--histroy' found; tip: a similar argument exists: '--history'",
            ),
            ("config: x", "unexpected argument '--config' found"),
            ("help: true", "unexpected argument '--help' found"),
            (
                "history: soon",
                "invalid value 'soon' for '--history <DURATION>': write a duration as",
            ),
            (
                "db-cache-mib: 0",
                "invalid value '0' for '--db-cache-mib <MIB>': must be from 1 to 1000000",
            ),
            ("log-format: xml", "invalid value 'xml' for '--log-format <FORMAT>'"),
            ("host: [a b]", "invalid value 'a b' for '--host <NAME>': must be a DNS name"),
            ("host: a.example", "expected sequence start"),
        ] {
            // A flag that overrides the entry does not hide the error.
            for words in [&[][..], &["--history=1h", "--db-cache-mib=1", "--host=a"]] {
                let error = flags(words, file).err().unwrap().to_string();
                assert!(error.contains(said) && !error.contains("Usage"), "{file}: {error}");
            }
        }
        for file in ["", "{}", "store:\nhost: ~\nconsole:\n"] {
            assert!(flags(&[], file).is_ok(), "{file}");
        }
    }

    #[test]
    fn networks_of_upstreams_are_checked_at_the_start() {
        let of = |words: &[&str]| {
            anyhow::Ok(flags(words, "")?.complete()?.settings.gateway.upstream_addresses)
        };
        let mut expected = UpstreamAddresses::default();
        expected.allow("192.0.2.5/32").unwrap();
        expected.deny("10.0.0.0/8").unwrap();
        expected.deny("fd00::/8").unwrap();
        let found = of(&["--upstream-allow=192.0.2.5", "--upstream-deny=10.0.0.0/8, fd00::/8"]);
        assert_eq!(found.unwrap(), expected);
        for (words, said) in [
            (["--upstream-allow=10.0.0.0/33", "--log=info"], "\"10.0.0.0/33\" is no network"),
            (
                ["--upstream-deny=10.0.0.0/8", "--upstream-deny=10.0.0.1/8"],
                "\"10.0.0.1/8\" has bits after",
            ),
            (["--upstream-deny=", "--log=info"], "\"\" is no network"),
        ] {
            let error = of(&words).unwrap_err().to_string();
            let flag = words[0].split('=').next().unwrap();
            assert!(error.contains(&format!("'{flag} <CIDR>'")) && error.contains(said), "{error}");
        }
    }

    /// The test checks nothing if git is missing, or does not trust the owner of the files.
    #[test]
    fn a_build_in_a_repository_knows_its_commit() {
        let git = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output();
        if git.is_ok_and(|output| output.status.success()) {
            assert_eq!(BUILD.commit.len(), 40, "{BUILD:?}");
            assert!(BUILD.commit_date.ends_with('Z'), "{BUILD:?}");
        }
    }
}
