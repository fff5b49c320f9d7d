//! A command's session: which server, with which access key and as whom. Flags are used first, then
//! the environment, then the kubeconfig. Reading kubeconfigs is in `kubeconfig/`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use postern_client::{
    CaDigest, Client, Collection, Error, Proxy, Representation, Selection, ServerUrl, Settings,
    Trust, decode_fields,
};
use postern_kinds::selves::{SelfKind, Status};
use postern_kinds::{
    Fields, Impersonation, Kind, NamespaceNames, SecretText, default_namespace, set_namespace_names,
};
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde_json::{Map, Value, json};
use tracing_subscriber::EnvFilter;

use crate::error::CliError;
use crate::explain::{LOGIN_HINT, by_flags, explain};
use crate::flags::{CollectionFlags, ConnectionFlags, CredentialFlags, NamespaceFlag};
use crate::kubeconfig::{Files, Kubeconfig, ResolvedContext};
use crate::output::escape;
use crate::process::{Process, read_file};
use crate::similar::nearest;
use crate::{base64_text, impersonation_config};

/// The largest file of certificate authorities that is read.
pub(crate) const CA_MAX_BYTES: usize = 1024 * 1024;
/// The largest file with an access key that is read.
const KEY_MAX_BYTES: usize = 16 * 1024;

/// A client of the chosen server, with the context and the namespace of the kubeconfig.
pub(crate) struct Session {
    /// Makes requests.
    pub(crate) client: Client,
    /// The kubeconfig's context, if one was used.
    pub(crate) context: Option<String>,
    /// The namespace of the context; the server's default for requests that name none, if `None`.
    namespace: Option<String>,
    note: Box<dyn Fn(&str) + Send + Sync>,
}

impl Session {
    /// Chooses server, key and identity. The connection is made with the first request.
    pub(crate) fn open(flags: &ConnectionFlags, process: &Process) -> Result<Self, CliError> {
        if flags.target.credential.debug {
            start_log();
        }
        let direct = match &flags.target.server {
            Some(server) => Some(server.as_str()),
            None if flags.target.context.is_some() || flags.target.kubeconfig.is_some() => None,
            None => process.text("POSTERN_SERVER")?,
        };
        let given = given_key(&flags.target.credential, process)?;
        match direct {
            Some(server) => Self::direct(server, given, flags, process),
            None => Self::by_kubeconfig(flags, given, process),
        }
    }

    fn direct(
        server: &str,
        key: Option<SecretText>,
        flags: &ConnectionFlags,
        process: &Process,
    ) -> Result<Self, CliError> {
        let server = ServerUrl::parse(server)
            .map_err(|what| CliError::usage(format!("--server or POSTERN_SERVER: {what}")))?;
        let key = key.ok_or_else(|| {
            CliError::usage("--server requires an access key").hint(
                "set POSTERN_ACCESS_KEY, or pass --access-key - and the key on the standard input",
            )
        })?;
        let impersonation = impersonation_config::choose(&flags.impersonation, None)?;
        let credential = &flags.target.credential;
        let trust = given_trust(credential, process)?.unwrap_or(Trust::System);
        let settings = settings(server, key, trust, credential.timeout);
        Self::new(Settings { impersonation, ..settings }, None, None, process)
    }

    fn by_kubeconfig(
        flags: &ConnectionFlags,
        given: Option<SecretText>,
        process: &Process,
    ) -> Result<Self, CliError> {
        let files = Files::find(flags.target.kubeconfig.as_ref(), process)?;
        let config = Kubeconfig::load(&files)?;
        config.check_missing(process)?;
        let named = named_context(flags.target.context.as_deref(), process)?;
        let resolved = choose(&config, named)?;
        let credential = &flags.target.credential;
        let settings = Settings {
            server: server_of(&config, &resolved)?,
            trust: match &credential.ca_file {
                Some(file) => trust_in(file)?,
                None => trust_of(&resolved)?,
            },
            key: match given {
                Some(key) => key,
                None => key_of(&resolved)?,
            },
            // Also with a key from elsewhere: the kubeconfig decides as whom its server is used.
            impersonation: impersonation_config::choose(&flags.impersonation, Some(&resolved))?,
            tls_server_name: text_in(resolved.cluster, "tls-server-name").map(str::to_owned),
            request_timeout: credential.timeout,
        };
        let mut session = Self::at(settings, &resolved, process)?;
        session.namespace = text_in(resolved.context, "namespace").map(str::to_owned);
        Ok(session)
    }

    /// A session for a context. As in kubectl, a proxy that the kubeconfig names wins over the environment.
    fn at(
        settings: Settings,
        resolved: &ResolvedContext<'_>,
        process: &Process,
    ) -> Result<Self, CliError> {
        let mut session = Self::new(settings, Some(resolved.name.to_owned()), None, process)?;
        if let Some(url) = text_in(resolved.cluster, "proxy-url") {
            let wrong = |what| {
                CliError::new(format!("proxy-url of the context {:?}: {what}", resolved.name))
            };
            session.client.set_proxy(Some(Proxy::parse(url).map_err(wrong)?));
        }
        Ok(session)
    }

    /// A session with the settings of a kubeconfig's context, without the environment. It acts as
    /// the impersonated user of the context, or as the bearer of the context's own key.
    pub(crate) fn of_context(
        config: &Kubeconfig,
        resolved: &ResolvedContext<'_>,
        impersonation: Option<Impersonation>,
        request_timeout: Duration,
        process: &Process,
    ) -> Result<Self, CliError> {
        let settings = Settings {
            server: server_of(config, resolved)?,
            key: key_of(resolved)?,
            impersonation,
            trust: trust_of(resolved)?,
            tls_server_name: text_in(resolved.cluster, "tls-server-name").map(str::to_owned),
            request_timeout,
        };
        Self::at(settings, resolved, process)
    }

    /// A session with the current context of one kubeconfig. The environment and its impersonated user are ignored.
    pub(crate) fn of_file(
        path: &Path,
        request_timeout: Duration,
        process: &Process,
    ) -> Result<Self, CliError> {
        let config = Kubeconfig::load(&Files::find(Some(&path.to_owned()), process)?)?;
        let resolved = choose(&config, None)?;
        Self::of_context(&config, &resolved, None, request_timeout, process)
    }

    /// Opens a session as [`Session::open`] does, with the namespace of the command.
    pub(crate) async fn open_in(
        flags: &CollectionFlags,
        process: &Process,
    ) -> Result<(Self, String), CliError> {
        let mut session = Self::open(&flags.connection, process)?;
        let namespace = session.namespace_of(&flags.namespace).await?;
        Ok((session, namespace))
    }

    /// A session with settings that have been chosen. The server's warnings are printed.
    pub(crate) fn new(
        settings: Settings,
        context: Option<String>,
        namespace: Option<String>,
        process: &Process,
    ) -> Result<Self, CliError> {
        let mut client = client_with(settings, process)?;
        let print = process.warning_printer();
        client.set_warning_handler(Box::new(move |text| print(&escape(text))));
        let note = Box::new(process.note_printer());
        Ok(Self { client, context, namespace, note })
    }

    /// Another session with the same server, key and identity, on a separate connection.
    pub(crate) fn again(&self, process: &Process) -> Result<Self, CliError> {
        let (settings, proxy) = (self.client.settings().clone(), self.client.proxy().cloned());
        let (context, namespace) = (self.context.clone(), self.namespace.clone());
        let mut session = Self::new(settings, context, namespace, process)?;
        session.client.set_proxy(proxy);
        Ok(session)
    }

    /// Prints a note about an action of the session.
    pub(crate) fn note(&self, text: &str) {
        (self.note)(&escape(text));
    }

    /// Explains the failure of a request, with the next steps.
    pub(crate) fn explain(&self, error: &Error) -> CliError {
        let acting_as = self.client.impersonation().map(|wanted| wanted.user.as_str());
        explain(error, &self.client.server().to_string(), acting_as)
    }

    /// Explains the failure of a request with fields that the flags have set.
    pub(crate) fn explain_by_flags(&self, error: &Error, flags: &[(&str, &str)]) -> CliError {
        by_flags(self.explain(error), error, flags)
    }

    /// Why a request about a named object failed. Where there is no such object, similar
    /// names are suggested.
    pub(crate) async fn explain_named(
        &mut self,
        of: Collection<'_>,
        name: &str,
        error: &Error,
    ) -> CliError {
        let mut explained = self.explain(error);
        let missing = error.status().is_some_and(|status| {
            let kind = status.details.as_ref().map(|details| details.kind.as_str());
            status.reason == Reason::NotFound && kind == Some(of.info().plural)
        });
        if !missing {
            return explained;
        }
        if let Some(namespace) = of.namespace() {
            explained.message = format!("{} in the namespace {namespace}", explained.message);
        }
        if let Some(namespace) = self.namespace_with(of, name).await {
            let hint = format!("there is one in the namespace {namespace}: -n {namespace}");
            // The next step, before how to find others.
            explained.hints.insert(0, hint);
            return explained;
        }
        // Only a help: an error of this request is not worth printing.
        let names = self.client.some_names(of).await.unwrap_or_default();
        let near = nearest(name, names.iter().map(String::as_str));
        if near.is_empty() {
            return explained;
        }
        explained.hint(format!("did you mean {}?", near.join(" or ")))
    }

    /// The answer to a request about a named object, or why there is none.
    pub(crate) async fn answer<T>(
        &mut self,
        of: Collection<'_>,
        name: &str,
        answer: Result<T, Error>,
    ) -> Result<T, CliError> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain_named(of, name, &error).await),
        }
    }

    /// The answer to a read; `None` if the caller may not read it, or it does not exist.
    pub(crate) fn readable<T>(&self, read: Result<T, Error>) -> Result<Option<T>, CliError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if matches!(error.reason(), Some(Reason::Forbidden | Reason::NotFound)) => {
                Ok(None)
            }
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// The fields of an object of the server.
    pub(crate) fn fields<K: Kind>(
        &self,
        object: &Object,
    ) -> Result<Fields<K::Spec, K::Status>, CliError> {
        decode_fields::<K>(object).map_err(|error| self.explain(&error))
    }

    /// Asks the server for the owner of the session's key, or for the impersonated user. From then
    /// on, the session uses the server's names of namespaces.
    pub(crate) async fn ask_self(&mut self) -> Result<(Object, Status), Error> {
        let request = Object {
            api_version: SelfKind::INFO.version.to_string(),
            kind: SelfKind::INFO.kind.to_owned(),
            fields: Map::from_iter([("spec".to_owned(), json!({}))]),
            ..Object::default()
        };
        let answer = self.client.create(Collection::of::<SelfKind>(None), &request).await?;
        let status = decode_fields::<SelfKind>(&answer)?.status;
        set_names(&status);
        Ok((answer, status))
    }

    /// Another namespace in which there is an object of this name; the default one if it is in several.
    pub(crate) async fn namespace_with(
        &mut self,
        of: Collection<'_>,
        name: &str,
    ) -> Option<String> {
        let namespace = of.namespace()?;
        let everywhere = Collection::new(of.info(), None);
        // Only a help: an error of this request is not worth printing.
        let (metadata, selection) = (Representation::Metadata, Selection::of_name(name));
        let list = self.client.list_selected(everywhere, metadata, &selection).await.ok()?;
        let items = list["items"].as_array()?.iter();
        let metadata = items.map(|item| &item["metadata"]).filter(|one| one["name"] == name);
        let namespaces = metadata.filter_map(|one| one["namespace"].as_str());
        let found: Vec<&str> = namespaces.filter(|other| *other != namespace).collect();
        let default = found.iter().find(|found| **found == default_namespace());
        default.or(found.first()).map(|found| (*found).to_owned())
    }

    /// The namespace of requests that do not name one. [`Session::load_names`] comes before.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_else(|| default_namespace())
    }

    /// The namespace of `-n`, or else of the context, or else the default one of the server, which
    /// is asked for it.
    pub(crate) async fn namespace_of(&mut self, flag: &NamespaceFlag) -> Result<String, CliError> {
        if let Some(namespace) = flag.namespace.as_ref().or(self.namespace.as_ref()) {
            return Ok(namespace.clone());
        }
        self.load_names().await?;
        self.namespace = Some(default_namespace().to_owned());
        Ok(default_namespace().to_owned())
    }

    /// Asks the server for the names of namespaces that its operator chose, for a command that names a project.
    pub(crate) async fn load_names(&mut self) -> Result<(), CliError> {
        let asked = self.ask_self().await;
        asked.map(drop).map_err(|error| self.explain(&error))
    }
}

/// Sets the names of namespaces for this process as a server says them. One from before it said them has the default
/// ones.
fn set_names(status: &Status) {
    let defaults = NamespaceNames::default();
    let or = |told: &String, default: String| if told.is_empty() { default } else { told.clone() };
    let names = NamespaceNames {
        project_prefix: or(&status.project_namespace_prefix, defaults.project_prefix),
        default_namespace: or(&status.default_namespace, defaults.default_namespace),
    };
    // A command asks one server.
    let _ = set_namespace_names(&names);
}

/// Settings with a server, a key and its authorities, and nothing else.
pub(crate) fn settings(
    server: ServerUrl,
    key: SecretText,
    trust: Trust,
    request_timeout: Duration,
) -> Settings {
    let (impersonation, tls_server_name) = (None, None);
    Settings { server, key, impersonation, trust, tls_server_name, request_timeout }
}

/// A client that uses the proxy of the environment.
pub(crate) fn client_with(settings: Settings, process: &Process) -> Result<Client, CliError> {
    let client = Client::new(settings);
    let mut client = client.map_err(|error| explain(&error, "https://HOST:PORT", None))?;
    client.set_proxy(proxy_for(client.server(), process)?);
    Ok(client)
}

/// The trust in the authority of a server that has this digest. The server sends the authority.
pub(crate) async fn pinned_trust(
    server: &ServerUrl,
    digest: CaDigest,
    timeout: Duration,
    process: &Process,
) -> Result<Trust, CliError> {
    let proxy = proxy_for(server, process)?;
    let pinned = postern_client::pinned_trust(server, proxy.as_ref(), digest, timeout).await;
    pinned.map_err(|error| explain(&error, &server.to_string(), None).hint("nothing was written"))
}

/// The proxy that the environment names for a server.
fn proxy_for(server: &ServerUrl, process: &Process) -> Result<Option<Proxy>, CliError> {
    let variable = |name: &str| {
        process.text(name).map(|text| text.map(str::to_owned)).map_err(|error| error.message)
    };
    Proxy::of_environment(server, variable).map_err(CliError::usage)
}

/// Starts to print requests on the standard error.
pub(crate) fn start_log() {
    let started = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("postern_client=debug"))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .try_init();
    // An error means that a log is set up already.
    drop(started);
}

/// The problem with a key on the command line, and other ways to give it.
const KEY_IS_VISIBLE: &str = "an access key on the command line is visible in the process list \
                              and in the shell's history: pass --access-key - and the key on the \
                              standard input, or set POSTERN_ACCESS_KEY";

/// The access key of `--access-key` or `POSTERN_ACCESS_KEY`. Warns of a key that is written on the
/// command line.
pub(crate) fn given_key(
    flags: &CredentialFlags,
    process: &Process,
) -> Result<Option<SecretText>, CliError> {
    let (what, key) = match &flags.access_key {
        Some(_) if flags.reads_key_from_stdin() => {
            let bytes = process.read_stdin(KEY_MAX_BYTES)?;
            ("the standard input", key_from(&bytes, "the standard input")?)
        }
        Some(key) => {
            process.print_warning(KEY_IS_VISIBLE);
            ("--access-key", key.clone())
        }
        None => match process.text("POSTERN_ACCESS_KEY")? {
            Some(key) => ("POSTERN_ACCESS_KEY", SecretText::from(key.trim().to_owned())),
            None => return Ok(None),
        },
    };
    check_key(&key, what)?;
    Ok(Some(key))
}

/// Checks that a key can be sent at all.
fn check_key(key: &SecretText, what: &str) -> Result<(), CliError> {
    if key.expose().is_empty() {
        return Err(CliError::usage(format!("the access key in {what} is empty")));
    }
    if !key.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = format!("the access key in {what} contains invalid characters");
        return Err(CliError::usage(message).hint("a key is one word without spaces"));
    }
    Ok(())
}

fn key_from(bytes: &[u8], what: &str) -> Result<SecretText, CliError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| CliError::usage(format!("the access key in {what} is not UTF-8")))?;
    Ok(SecretText::from(text.trim().to_owned()))
}

/// The authorities of `--ca-file` or `POSTERN_CA_FILE`.
pub(crate) fn given_trust(
    flags: &CredentialFlags,
    process: &Process,
) -> Result<Option<Trust>, CliError> {
    let file = flags.ca_file.clone();
    let file = file.or_else(|| process.variable("POSTERN_CA_FILE").map(PathBuf::from));
    file.map(|file| trust_in(&file)).transpose()
}

fn trust_in(file: &Path) -> Result<Trust, CliError> {
    let pem = read_file(file, CA_MAX_BYTES)?;
    Trust::of_pem(pem.to_vec())
        .map_err(|error| CliError::new(format!("cannot use {}: {error}", file.display())))
}

/// The name of the context: that of the flag, or else of `POSTERN_CONTEXT`.
pub(crate) fn named_context<'a>(
    flag: Option<&'a str>,
    process: &'a Process,
) -> Result<Option<&'a str>, CliError> {
    match flag {
        Some(name) => Ok(Some(name)),
        None => process.text("POSTERN_CONTEXT"),
    }
}

/// The context of the login: the named one, or else the current one. A context that `connect` wrote
/// stands for the login that it was made with.
pub(crate) fn choose<'a>(
    config: &'a Kubeconfig,
    named: Option<&str>,
) -> Result<ResolvedContext<'a>, CliError> {
    let chosen = named_or_current(config, named)?;
    let Some(login) = chosen.login() else { return Ok(chosen) };
    config.login_of(&login).ok_or_else(|| {
        let message = format!(
            "the context {:?} needs the login {:?}, which no longer exists",
            chosen.name, login.context
        );
        with_context_hint(CliError::new(message), config).hint(LOGIN_HINT)
    })
}

fn named_or_current<'a>(
    config: &'a Kubeconfig,
    named: Option<&str>,
) -> Result<ResolvedContext<'a>, CliError> {
    if let Some(name) = named {
        return config.resolve(name).ok_or_else(|| {
            let near = nearest(name, config.contexts());
            let error = CliError::new(format!("the kubeconfig has no context {name:?}"));
            match near.first() {
                Some(near) => error.hint(format!("did you mean {near}?")),
                None => error.hint(config.contexts_hint()),
            }
        });
    }
    let Some(current) = config.current() else {
        let error = CliError::new("not logged in: the kubeconfig has no current context");
        return Err(with_context_hint(error, config).hint(LOGIN_HINT));
    };
    config.resolve(current).ok_or_else(|| {
        let message = format!(
            "the kubeconfig has no context {current:?}, which is its current \
                               context"
        );
        with_context_hint(CliError::new(message), config).hint(LOGIN_HINT)
    })
}

/// Adds a hint with the name of a context that is for a Postern server.
fn with_context_hint(error: CliError, config: &Kubeconfig) -> CliError {
    let context = config.contexts().find(|name| {
        let resolved = config.resolve(name);
        resolved.is_some_and(|resolved| {
            text_in(resolved.cluster, "server").is_some_and(ServerUrl::is_postern)
        })
    });
    match context {
        Some(name) => error.hint(format!("there is a context for this server: --context {name}")),
        None => error,
    }
}

/// The server of a context. It must be a Postern server: no key, and no other cluster's
/// credential, is sent to any other.
fn server_of(config: &Kubeconfig, resolved: &ResolvedContext<'_>) -> Result<ServerUrl, CliError> {
    let url = text_in(resolved.cluster, "server");
    let Some(url) = url.filter(|url| ServerUrl::is_postern(url)) else {
        let message = format!(
            "not logged in: the context {:?} does not name a Postern server",
            resolved.name
        );
        return Err(with_context_hint(CliError::new(message), config).hint(LOGIN_HINT));
    };
    if resolved.cluster["insecure-skip-tls-verify"] == true {
        let message = format!(
            "the context {:?} has insecure-skip-tls-verify, which is not supported",
            resolved.name
        );
        return Err(CliError::new(message).hint("log in again with --ca-file"));
    }
    ServerUrl::parse(url).map_err(|what| {
        CliError::new(format!("the server of the context {:?}: {what}", resolved.name))
    })
}

fn trust_of(resolved: &ResolvedContext<'_>) -> Result<Trust, CliError> {
    let wrong = |what: &str| {
        CliError::new(format!(
            "the certificate authority of the context {:?}: {what}",
            resolved.name
        ))
    };
    if let Some(data) = text_in(resolved.cluster, "certificate-authority-data") {
        let pem = base64_text::decode_pem(data).ok_or_else(|| wrong("it is not base64"))?;
        return Trust::of_pem(pem).map_err(|error| wrong(&error.to_string()));
    }
    match text_in(resolved.cluster, "certificate-authority") {
        Some(file) => trust_in(&resolved.cluster_dir.join(file)),
        None => Ok(Trust::System),
    }
}

fn key_of(resolved: &ResolvedContext<'_>) -> Result<SecretText, CliError> {
    let key = match (text_in(resolved.user, "token"), text_in(resolved.user, "tokenFile")) {
        (token, Some(file)) => {
            let path = resolved.user_dir.join(file);
            let read = read_file(&path, KEY_MAX_BYTES);
            let read = read.and_then(|bytes| key_from(&bytes, &path.display().to_string()));
            match (read, token) {
                // As in kubectl, the file wins as long as there is a token in it.
                (Ok(key), Some(token)) if key.expose().is_empty() => {
                    SecretText::from(token.to_owned())
                }
                (Err(_), Some(token)) => SecretText::from(token.to_owned()),
                (read, _) => read?,
            }
        }
        (Some(token), None) => SecretText::from(token.to_owned()),
        (None, None) => {
            let message = format!(
                "not logged in: the user of the context {:?} has no access key",
                resolved.name
            );
            return Err(CliError::new(message).hint(LOGIN_HINT));
        }
    };
    check_key(&key, "the kubeconfig")?;
    Ok(key)
}

/// A field's text, unless it is missing or empty.
fn text_in<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value[field].as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;
    use crate::kubeconfig::LoginEntries;

    fn write(path: &Path, content: impl AsRef<[u8]>) {
        File::create(path).unwrap().write_all(content.as_ref()).unwrap();
    }

    /// The key and the authority of a user and a cluster of a kubeconfig.
    fn chosen(
        user: &Value,
        cluster: &Value,
    ) -> (Result<SecretText, CliError>, Result<Trust, CliError>) {
        let home = tempfile::tempdir().unwrap();
        write(&home.path().join("key"), " pst_file\n");
        write(&home.path().join("empty"), "\n");
        write(&home.path().join("binary"), b"\xff");
        let config = json!({
            "clusters": [{ "name": "h", "cluster": cluster }],
            "users": [{ "name": "h", "user": user }],
        });
        let path = home.path().join("config");
        write(&path, config.to_string());
        let process = Process::with(&[]);
        let config = Kubeconfig::load(&Files::find(Some(&path), &process).unwrap()).unwrap();
        let login = config.login_with(LoginEntries { cluster: "h", user: "h" }).unwrap();
        (key_of(&login), trust_of(&login))
    }

    #[test]
    fn a_token_counts_if_the_file_next_to_it_has_none() {
        let key = |user: Value| chosen(&user, &Value::Null).0;
        assert_eq!(key(json!({ "token": "t", "tokenFile": "key" })).unwrap().expose(), "pst_file");
        for file in ["missing", "empty", "binary", "."] {
            let next_to_it = key(json!({ "token": "t", "tokenFile": file })).unwrap();
            assert_eq!(next_to_it.expose(), "t", "{file}");
            assert!(key(json!({ "tokenFile": file })).is_err(), "{file}");
        }
        assert_eq!(key(json!({ "token": "t", "tokenFile": "" })).unwrap().expose(), "t");
    }

    #[test]
    fn base64_of_an_authority_may_have_line_breaks() {
        let trust =
            |data: &str| chosen(&Value::Null, &json!({ "certificate-authority-data": data })).1;
        let none = trust("a-b").err().unwrap();
        assert!(none.message.contains("not base64"), "{none:?}");
        for data in ["aGVsbG8=", "aGVs\n  bG8=\n"] {
            let decoded = trust(data).err().unwrap();
            assert!(decoded.message.contains("no certificate"), "{decoded:?}");
        }
    }
}
