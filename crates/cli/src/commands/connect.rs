//! `postern connect`: a context for kubectl that leads to a connected cluster, a virtual cluster or a space, by the
//! shortest way that there is. The parts of a context are in `kubeconfig/connection.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use postern_client::{Collection, Error};
use postern_kinds::cluster::{Cluster, DIRECT_ENDPOINT};
use postern_kinds::project::{Project, namespace_of};
use postern_kinds::project_clusters::ProjectClusters;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{Kind as _, MANAGEMENT_V1};
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde_json::{Map, Value, json};

use crate::error::CliError;
use crate::flags::{CurrentFlag, ImpersonationFlags, KubeconfigFormat};
use crate::kubeconfig::{
    self, Connection, Credential, Files, Kubeconfig, LoginEntries, OtherLogins, Plugin,
    ResolvedContext, Writing,
};
use crate::output::{self, escape};
use crate::process::Process;
use crate::session::{self, Session, start_log};
use crate::{impersonation_config, kinds, parse};

/// The path at which an agent serves its cluster.
const AGENT_CLUSTER_PATH: &str = "/kubernetes/cluster";
/// Projects that are asked at most for the endpoint of a cluster.
const PROJECTS_MAX: usize = 20;
/// The server's words for a caller without the verb `use`.
const REQUIRES_USE: &str = "the verb use";
/// The attempts at an agent that may not know a new right yet, and their interval. The agent asks
/// the server twice a second.
const AGENT_ATTEMPTS_MAX: usize = 25;
const AGENT_INTERVAL: Duration = Duration::from_millis(200);
/// The path of the gateway and of agents before the name of a project.
const PROJECT_PATH: &str = "/project";

/// The targets to which kubectl can be connected.
#[derive(Subcommand, Debug)]
pub enum Connect {
    /// Write a context for a connected cluster.
    ///
    /// The context uses the direct endpoint of the cluster, or else the gateway of the server. The command
    /// first checks that you hold `use` on the cluster. It changes no other entry of the kubeconfig.
    #[command(
        name = kinds::name(&Cluster::INFO),
        visible_aliases = kinds::visible_aliases(&Cluster::INFO),
        aliases = kinds::hidden_aliases(&Cluster::INFO),
    )]
    Cluster(ConnectCluster),
    /// Write a context for a virtual cluster of a project.
    ///
    /// If the virtual cluster has no kubeconfig, the context uses the direct endpoint of its
    /// cluster. Otherwise it uses the gateway of the server. The command first checks that you hold
    /// `use` on it.
    #[command(
        name = kinds::name(&VirtualClusterInstance::INFO),
        visible_aliases = kinds::visible_aliases(&VirtualClusterInstance::INFO),
        aliases = kinds::hidden_aliases(&VirtualClusterInstance::INFO),
    )]
    VirtualCluster(ConnectInProject),
    /// Write a context for a space of a project.
    ///
    /// The context uses the direct endpoint of its cluster, or else the gateway of the server. Its namespace
    /// is that of the space. The command first checks that you hold `use` on it.
    #[command(
        name = kinds::name(&SpaceInstance::INFO),
        visible_aliases = kinds::visible_aliases(&SpaceInstance::INFO),
        aliases = kinds::hidden_aliases(&SpaceInstance::INFO),
    )]
    Space(ConnectInProject),
}

/// A cluster.
#[derive(Args, Debug)]
pub struct ConnectCluster {
    /// The name
    #[arg(value_parser = parse::name)]
    name: String,

    #[command(flatten)]
    flags: ConnectFlags,
}

/// A virtual cluster or a space.
#[derive(Args, Debug)]
pub struct ConnectInProject {
    /// The name
    #[arg(value_parser = parse::name)]
    name: String,

    /// The project of the instance
    #[arg(long, value_name = "PROJECT", value_parser = parse::name)]
    project: String,

    #[command(flatten)]
    flags: ConnectFlags,
}

/// The flags for the new context.
#[derive(Args, Debug)]
#[expect(clippy::doc_markdown, reason = "this is the text of --help")]
struct ConnectFlags {
    /// Use the gateway of the server, even if the cluster has a direct endpoint
    #[arg(long)]
    gateway: bool,

    /// The time-to-live of each endpoint token, such as 10m or seconds [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse::token_ttl, conflicts_with = "gateway")]
    ttl: Option<i64>,

    /// The name of the context to write [default: LOGIN_cluster_NAME, LOGIN_virtualcluster_PROJECT_NAME or
    /// LOGIN_space_PROJECT_NAME]
    #[arg(long = "name", value_name = "NAME", value_parser = context_name)]
    context_name: Option<String>,

    #[command(flatten)]
    current: CurrentFlag,

    #[command(flatten)]
    others: OtherLoginsFlag,

    /// Print a kubeconfig with this context, and change no file. With the gateway, the output contains the
    /// access key
    #[arg(long)]
    print: bool,

    /// Print the written kubeconfig, or the name of the context [default: nothing, or YAML with
    /// --print]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<KubeconfigFormat>,

    #[command(flatten)]
    login: LoginFlags,
}

/// The flag for contexts of other logins.
#[derive(Args, Debug)]
struct OtherLoginsFlag {
    /// Replace a context of this name that was made with another login
    #[arg(long)]
    replace: bool,
}

impl OtherLoginsFlag {
    fn choice(&self) -> OtherLogins {
        if self.replace { OtherLogins::Replace } else { OtherLogins::Keep }
    }
}

/// The login of the context.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connection")]
struct LoginFlags {
    /// The kubeconfig with the login, which gets the context [env: KUBECONFIG, several separated by colons]
    /// [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the login [default: the current one, or the login that it was made with]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// How long one request may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse::timeout)]
    timeout: Duration,

    /// Print method, path and status code of each request on the standard error, never keys or values
    #[arg(long)]
    debug: bool,
}

fn context_name(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("the name must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// The target of a connection.
#[derive(Clone, Debug)]
enum Target {
    Cluster { name: String },
    VirtualCluster { project: String, name: String },
    Space { project: String, name: String },
}

/// The way to it.
#[derive(Debug, Default)]
struct Route {
    /// The endpoint of the cluster: its host, and the authority that verifies it.
    direct: Option<Endpoint>,
    /// The namespace of requests that name none.
    namespace: Option<String>,
    /// Kind and name of the object that the caller may not read, so that its endpoint is unknown.
    unknown: Option<String>,
    /// The server's error for that object, if the status is 404.
    unread: Option<CliError>,
}

/// The endpoint of an agent, as the annotations of the Cluster have it.
#[derive(Debug, PartialEq, Eq)]
struct Endpoint {
    host: String,
    is_insecure: bool,
    ca_data: Option<String>,
}

impl Connect {
    /// Writes the context.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let (target, flags) = match self {
            Self::Cluster(ConnectCluster { name, flags }) => (Target::Cluster { name }, flags),
            Self::VirtualCluster(ConnectInProject { name, project, flags }) => {
                (Target::VirtualCluster { project, name }, flags)
            }
            Self::Space(ConnectInProject { name, project, flags }) => {
                (Target::Space { project, name }, flags)
            }
        };
        if flags.login.debug {
            start_log();
        }
        let mut files = Files::find(flags.login.kubeconfig.as_ref(), process)?;
        // kubectl may read the written file in any directory.
        for path in &mut files.paths {
            *path = process.absolute(path);
        }
        let config = Kubeconfig::load(&files)?;
        config.check_missing(process)?;
        let named = session::named_context(flags.login.context.as_deref(), process)?;
        let login = session::choose(&config, named)?;
        let acting = impersonation_config::choose(&ImpersonationFlags::default(), Some(&login))?;
        let mut session =
            Session::of_context(&config, &login, acting, flags.login.timeout, process)?;
        note_environment(&login, process);
        let (_, who) = session.ask_self().await.map_err(|error| session.explain(&error))?;
        let mut route = target.route(&mut session).await?;
        if flags.gateway {
            route.direct = None;
        }
        target.check(&mut session, &route, process).await?;
        if let Some(unknown) = route.unknown.as_ref().filter(|_| !flags.gateway) {
            process.print_note(&format!(
                "no permission to read the {unknown}: the context uses the gateway, because the \
                 direct endpoint is unknown"
            ));
        }
        let name = flags.context_name.clone();
        let name = name.unwrap_or_else(|| format!("{}_{}", login.name, target.suffix()));
        let is_scoped = who.access_key_scope.is_some();
        let connection = Connection {
            cluster: target.cluster(&session, &login, &route),
            credential: match route.direct {
                Some(_) => {
                    let mut plugin = target.plugin(&config, &login, is_scoped, process);
                    plugin.arguments.extend(flags.ttl.map(|seconds| format!("--ttl={seconds}")));
                    Credential::Plugin(plugin)
                }
                None => Credential::OfLogin,
            },
            namespace: route.namespace.clone(),
            entry: entry_name(&login, &target, flags.context_name.as_deref()),
            login,
            name,
        };
        print(&flags, &connection, process)?;
        target.print_route(&session, &route, process);
        if flags.print {
            return Ok(());
        }
        let others = flags.others.choice();
        let writing = Writing { sets_current: flags.current.set_current, others };
        kubeconfig::connect(&files, &connection, writing)?;
        say_written(&files, &connection.name, flags.current.set_current, process);
        Ok(())
    }
}

/// The name of the cluster and the user of a context. It begins with the user of the login, which has the server and the
/// owner of the key in it. Two contexts for the same target may differ in the way, so a name of their own is in it too.
fn entry_name(login: &ResolvedContext<'_>, target: &Target, context: Option<&str>) -> String {
    let entry = format!("{}_{}", login.user_name, target.suffix());
    match context {
        Some(context) => format!("{entry}/{context}"),
        None => entry,
    }
}

/// Prints the requested output on the standard output.
fn print(
    flags: &ConnectFlags,
    connection: &Connection<'_>,
    process: &Process,
) -> Result<(), CliError> {
    let format = flags.output.or(flags.print.then_some(KubeconfigFormat::Yaml));
    let text = match format {
        None => return Ok(()),
        Some(KubeconfigFormat::Name) => format!("{}\n", escape(&connection.name)).into(),
        Some(KubeconfigFormat::Json) => output::json(connection.alone(flags.print)?),
        Some(KubeconfigFormat::Yaml) => output::yaml(connection.alone(flags.print)?),
    };
    process.print_text(text.as_str())
}

/// Reports the written context, and names the next step.
fn say_written(files: &Files, name: &str, is_current: bool, process: &Process) {
    let file = files.paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    if is_current {
        process.print_status(&format!("the current context of {file} is now {name}"));
        process.print_status("next: kubectl auth can-i --list");
    } else {
        process.print_status(&format!("{file} has the context {name}"));
        process.print_status(&format!("next: kubectl --context {name} auth can-i --list"));
    }
}

/// Notes that the environment's login is ignored here, because kubectl would not know of it.
fn note_environment(login: &ResolvedContext<'_>, process: &Process) {
    let set = ["POSTERN_SERVER", "POSTERN_ACCESS_KEY"];
    let set: Vec<_> = set.into_iter().filter(|name| process.variable(name).is_some()).collect();
    if !set.is_empty() {
        process.print_note(&format!(
            "{} is ignored: the context uses the login {}",
            set.join(" and "),
            login.name
        ));
    }
}

impl Target {
    /// Its path, at the gateway behind `/kubernetes`.
    fn path(&self) -> String {
        match self {
            Self::Cluster { name } => format!("/cluster/{name}"),
            Self::VirtualCluster { project, name } => {
                format!("{PROJECT_PATH}/{project}/virtualcluster/{name}")
            }
            Self::Space { project, name } => format!("{PROJECT_PATH}/{project}/space/{name}"),
        }
    }

    /// Its path at the agent of its cluster, which serves one cluster alone.
    fn path_at_agent(&self) -> String {
        match self {
            Self::Cluster { .. } => AGENT_CLUSTER_PATH.to_owned(),
            Self::VirtualCluster { .. } | Self::Space { .. } => {
                format!("/kubernetes{}", self.path())
            }
        }
    }

    /// The suffix of its context's name, after the name of the login.
    fn suffix(&self) -> String {
        match self {
            Self::Cluster { name } => format!("cluster_{name}"),
            Self::VirtualCluster { project, name } => format!("virtualcluster_{project}_{name}"),
            Self::Space { project, name } => format!("space_{project}_{name}"),
        }
    }

    /// Its description, in a sentence.
    fn described(&self) -> String {
        match self {
            Self::Cluster { name } => format!("the cluster {name}"),
            Self::VirtualCluster { project, name } => {
                format!("the virtual cluster {name} of the project {project}")
            }
            Self::Space { project, name } => format!("the space {name} of the project {project}"),
        }
    }

    /// The arguments of `token` for it alone.
    fn token_arguments(&self) -> Vec<String> {
        let all = match self {
            Self::Cluster { name } => vec!["--cluster", name],
            Self::VirtualCluster { project, name } => {
                vec!["--project", project, "--virtual-cluster", name]
            }
            Self::Space { project, name } => vec!["--project", project, "--space", name],
        };
        all.into_iter().map(str::to_owned).collect()
    }

    /// The command by which its owner gives `use` on it to a user.
    fn share_command(&self) -> String {
        let (kind, name, namespace) = match self {
            Self::Cluster { name } => (kinds::name(&Cluster::INFO), name, String::new()),
            Self::VirtualCluster { project, name } => {
                let kind = kinds::name(&VirtualClusterInstance::INFO);
                (kind, name, format!(" -n {}", namespace_of(project)))
            }
            Self::Space { project, name } => {
                let kind = kinds::name(&SpaceInstance::INFO);
                (kind, name, format!(" -n {}", namespace_of(project)))
            }
        };
        format!("postern share {kind} {name}{namespace} --user USER --verbs get,use")
    }

    /// Finds the way to it. An object that the caller may not read shows no direct endpoint.
    async fn route(&self, session: &mut Session) -> Result<Route, CliError> {
        if !matches!(self, Self::Cluster { .. }) {
            session.load_names().await?;
        }
        let namespace = self.namespace();
        let mut route = Route::default();
        let cluster = match self {
            Self::Cluster { name } => name.clone(),
            Self::VirtualCluster { name, .. } => {
                let of = Collection::of::<VirtualClusterInstance>(Some(&namespace));
                let Some(object) = read(session, of, name, &mut route).await? else {
                    return Ok(route);
                };
                let spec = session.fields::<VirtualClusterInstance>(&object)?.spec;
                if spec.config.is_some() {
                    // The virtual cluster is reached by its own kubeconfig, which the agent of its
                    // cluster does not have.
                    return Ok(route);
                }
                spec.cluster_ref.unwrap_or_default().cluster
            }
            Self::Space { name, .. } => {
                let of = Collection::of::<SpaceInstance>(Some(&namespace));
                let Some(object) = read(session, of, name, &mut route).await? else {
                    return Ok(route);
                };
                let spec = session.fields::<SpaceInstance>(&object)?.spec;
                let at = spec.cluster_ref.unwrap_or_default();
                route.namespace = Some(at.namespace).filter(|namespace| !namespace.is_empty());
                at.cluster
            }
        };
        if cluster.is_empty() {
            return Ok(route);
        }
        let object = read(session, Collection::of::<Cluster>(None), &cluster, &mut route).await?;
        if !matches!(self, Self::Cluster { .. }) {
            // The error is about the cluster, and not about the target of the context.
            route.unread = None;
        }
        let annotations = match object {
            Some(object) => Some(object.metadata.annotations),
            None => self.in_projects(session, &cluster).await?,
        };
        let Some(annotations) = annotations else { return Ok(route) };
        (route.unknown, route.unread) = (None, None);
        route.direct = Endpoint::of(&annotations);
        Ok(route)
    }

    /// The endpoint of the cluster as a project has it, for a caller that may not read the Cluster.
    /// `None` if no project that the caller may read lists it.
    async fn in_projects(
        &self,
        session: &mut Session,
        cluster: &str,
    ) -> Result<Option<BTreeMap<String, String>>, CliError> {
        let of = Collection::of::<Project>(None);
        let projects = match self {
            Self::VirtualCluster { project, .. } | Self::Space { project, .. } => {
                vec![project.clone()]
            }
            Self::Cluster { .. } => {
                let listed = session.client.some_names(of).await;
                session.readable(listed)?.unwrap_or_default()
            }
        };
        for project in projects.into_iter().take(PROJECTS_MAX) {
            let listed = session.client.get_part(of, &project, "clusters").await;
            let Some(listed) = session.readable(listed)? else { continue };
            let clusters = session.fields::<ProjectClusters>(&listed)?.spec.clusters;
            let found = clusters.into_iter().find(|one| one.metadata.name == cluster);
            if let Some(found) = found {
                return Ok(Some(found.metadata.annotations));
            }
        }
        Ok(None)
    }

    /// The namespace that the object is in; empty where it has none.
    fn namespace(&self) -> String {
        match self {
            Self::Cluster { .. } => String::new(),
            Self::VirtualCluster { project, .. } | Self::Space { project, .. } => {
                namespace_of(project)
            }
        }
    }

    /// Checks with the gateway that the caller gets to it: it decides by the same rules as an agent does.
    async fn check(
        &self,
        session: &mut Session,
        route: &Route,
        process: &Process,
    ) -> Result<(), CliError> {
        let Err(error) = self.ask(session).await else { return Ok(()) };
        let Some(status) = error.status() else {
            // Something answered, which is no cluster of Kubernetes.
            let is_answer = matches!(error, Error::Unexpected { .. });
            return if is_answer { Ok(()) } else { Err(session.explain(&error)) };
        };
        let is_ours =
            status.details.as_ref().is_some_and(|details| details.group == MANAGEMENT_V1.group);
        let message = escape(&status.message);
        let nothing = "nothing was written";
        match status.code {
            404 if is_ours => {
                Err(route.unread.clone().unwrap_or_else(|| session.explain(&error)).hint(nothing))
            }
            403 => Err(self.forbidden(message, route).hint(nothing)),
            502 | 504 if route.direct.is_none() => {
                process.print_warning(&format!(
                    "the server cannot reach {}: {message}",
                    self.described()
                ));
                Ok(())
            }
            503 if route.direct.is_none() => {
                Err(CliError::new(format!("{}: {message}", self.described())).hint(nothing))
            }
            401 | 429 | 500 => Err(session.explain(&error).hint(nothing)),
            // The decision comes first. The way from the server to the cluster is not the caller's.
            _ => Ok(()),
        }
    }

    /// Sends a request that every caller with access may send. An agent learns of a new right a
    /// moment later than the server.
    async fn ask(&self, session: &mut Session) -> Result<(), Error> {
        for attempt in 1.. {
            let answer = session.client.get_of_gateway(format!("{}/version", self.path())).await;
            match answer {
                Err(error) if attempt < AGENT_ATTEMPTS_MAX && is_refused_by_agent(&error) => {
                    tokio::time::sleep(AGENT_INTERVAL).await;
                }
                answer => return answer.map(drop),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// The error for a caller without access. If the caller may neither use nor see the target, it may not exist.
    fn forbidden(&self, message: String, route: &Route) -> CliError {
        if !message.contains(REQUIRES_USE) {
            return CliError::new(message)
                .hint("`postern whoami -o yaml` shows whose access key it is, and its scope");
        }
        let error = route.unread.clone().unwrap_or_else(|| CliError::new(message));
        let share = self.share_command();
        error.hint(format!("ask the owner to run `{share}`"))
    }

    /// The `cluster` of the entry.
    fn cluster(&self, session: &Session, login: &ResolvedContext<'_>, route: &Route) -> Value {
        if let Some(endpoint) = &route.direct {
            return endpoint.cluster(&self.path_at_agent());
        }
        // The server is the same one, and is verified and reached in the same way.
        let mut cluster = Map::new();
        let fields =
            ["certificate-authority-data", "certificate-authority", "tls-server-name", "proxy-url"];
        for field in fields {
            if let Some(value) = login.cluster.get(field) {
                cluster.insert(field.to_owned(), value.clone());
            }
        }
        kubeconfig::make_absolute(&mut cluster, "certificate-authority", login.cluster_dir);
        let url = session.client.server().of_gateway(&self.path());
        cluster.insert("server".to_owned(), json!(url));
        Value::Object(cluster)
    }

    /// The credential plugin for the direct endpoint. A key with a scope gets tokens with that scope: a
    /// narrower one might not be contained in it.
    fn plugin(
        &self,
        config: &Kubeconfig,
        login: &ResolvedContext<'_>,
        is_scoped: bool,
        process: &Process,
    ) -> Plugin {
        // The entries are named, and not the context: another login may get its name.
        let LoginEntries { cluster, user } = login.entries();
        let words = ["token", "--exec-credential", "--login", cluster, user];
        let mut arguments: Vec<_> = words.map(str::to_owned).into();
        if !is_scoped {
            arguments.extend(self.token_arguments());
        }
        let kubeconfig = config.paths().map(Path::to_owned).collect();
        Plugin { command: process.own_command(), arguments, kubeconfig }
    }

    /// Says which way it is.
    fn print_route(&self, session: &Session, route: &Route, process: &Process) {
        let what = self.described();
        let Some(endpoint) = &route.direct else {
            let server = session.client.server().authority();
            process.print_status(&format!("{what} is reached through the gateway of {server}"));
            return;
        };
        let host = escape(&endpoint.host);
        process.print_status(&format!("{what} is reached directly, at {host}"));
        if endpoint.is_insecure {
            process.print_warning(&format!(
                "the certificate of {host} is not verified ({DIRECT_ENDPOINT}-insecure): an \
                 attacker on the network can read and change all data, and use your token"
            ));
        }
    }
}

/// Whether an agent denied `use` to the caller. Responses of the server itself name the object.
fn is_refused_by_agent(error: &Error) -> bool {
    let status = error.status().filter(|status| status.code == 403);
    status.is_some_and(|status| {
        let kind = status.details.as_ref().map_or("", |details| &details.kind);
        kind.is_empty() && status.message.contains(REQUIRES_USE)
    })
}

/// Reads an object. The result is `None` if the caller may not read it or if it does not exist. The
/// server does not tell these cases apart; `route` then has the reason.
async fn read(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    route: &mut Route,
) -> Result<Option<Object>, CliError> {
    match session.client.get(of, name).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if matches!(error.reason(), Some(Reason::Forbidden | Reason::NotFound)) => {
            if error.reason() == Some(Reason::NotFound) {
                route.unread = Some(session.explain_named(of, name, &error).await);
            }
            route.unknown = Some(format!("{} {name}", kinds::name(of.info())));
            Ok(None)
        }
        Err(error) => Err(session.explain(&error)),
    }
}

impl Endpoint {
    /// The endpoint that the annotations of a Cluster name.
    fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let with = |suffix: &str| {
            let value = annotations.get(&format!("{DIRECT_ENDPOINT}{suffix}"));
            value.filter(|value| !value.is_empty()).cloned()
        };
        Some(Self {
            host: with("")?,
            is_insecure: with("-insecure").is_some_and(|text| text == "true"),
            // kubectl takes it with line breaks, but other programs that read the kubeconfig may not.
            ca_data: with("-ca-data").map(|data| data.split_ascii_whitespace().collect()),
        })
    }

    fn cluster(&self, path: &str) -> Value {
        let mut cluster = Map::new();
        cluster.insert("server".to_owned(), json!(format!("https://{}{path}", self.host)));
        if self.is_insecure {
            // kubectl refuses both together.
            cluster.insert("insecure-skip-tls-verify".to_owned(), json!(true));
        } else if let Some(data) = &self.ca_data {
            cluster.insert("certificate-authority-data".to_owned(), json!(data));
        }
        Value::Object(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_what_the_annotations_say() {
        let of = |annotations: &[(&str, &str)]| {
            let named = annotations
                .iter()
                .map(|(suffix, value)| (format!("{DIRECT_ENDPOINT}{suffix}"), (*value).to_owned()));
            Endpoint::of(&named.collect()).map(|endpoint| endpoint.cluster("/kubernetes/cluster"))
        };
        let server = "https://h:9443/kubernetes/cluster";
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("", "")]), None);
        assert_eq!(of(&[("-ca-data", "Y2E=")]), None);
        assert_eq!(
            of(&[("", "h:9443"), ("-ca-data", "Y2E=")]),
            Some(json!({ "server": server, "certificate-authority-data": "Y2E=" }))
        );
        assert_eq!(
            of(&[("", "h:9443"), ("-ca-data", "Y2E="), ("-insecure", "true")]),
            Some(json!({ "server": server, "insecure-skip-tls-verify": true }))
        );
        let verified = of(&[("", "h:9443"), ("-insecure", "yes")]);
        assert_eq!(verified, Some(json!({ "server": server })), "only true is true");
    }

    #[test]
    fn an_agent_serves_its_one_cluster_without_a_name() {
        let (project, name) = ("web".to_owned(), "v".to_owned());
        let cluster = Target::Cluster { name: "east".to_owned() };
        assert_eq!(cluster.path(), "/cluster/east");
        assert_eq!(cluster.path_at_agent(), "/kubernetes/cluster");
        let instance = Target::VirtualCluster { project, name };
        assert_eq!(instance.path_at_agent(), "/kubernetes/project/web/virtualcluster/v");
        assert_eq!(instance.suffix(), "virtualcluster_web_v");
    }
}
