//! `postern login` and `postern logout`. Changing the kubeconfig itself is in `kubeconfig/`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use postern_client::{CaDigest, Collection, ServerUrl, Trust};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::{Kind as _, SecretText, access_key, default_namespace, selves};
use postern_meta::status::Reason;
use std::path::PathBuf;
use std::time::Duration;

use super::lockout::{self, ForceFlag};
use super::login_browser::BrowserLogin;
use super::login_workload::Workload;
use super::ways_in::{Change, Effect};
use super::whoami;
use crate::error::CliError;
use crate::flags::{CredentialFlags, CurrentFlag};
use crate::kubeconfig::{
    self, ENTRY_PREFIX, Files, Kubeconfig, OtherLogins, ResolvedContext, WrittenLogin, some_of,
};
use crate::output::escape;
use crate::process::Process;
use crate::session::{Session, given_key, given_trust, pinned_trust, settings, start_log};
use crate::{base64_text, parse};

/// How long each request of a logout may take: it does not wait long for a server that is gone.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(10);
/// The path of the session of a key.
const SESSION_PATH: &str = "/auth/session";
/// The type of keys that are made for one login, and end with it.
const LOGIN_TYPE: &str = "Login";

/// The arguments of `postern login`.
#[expect(clippy::doc_markdown, reason = "this is the text of --help")]
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern login https://postern.example.com:8443 --ca-file ca.pem\n  \
    postern login https://postern.example.com:8443 --ca-digest sha256:HEX\n  \
    postern login https://postern.example.com:8443 --no-browser --ttl 8h\n  \
    postern login https://postern.example.com:8443 --ca-file ca.pem --access-key - < key.txt\n  \
    postern login https://postern.example.com:8443 --workload-identity deploy")]
pub struct Login {
    /// The server, as https://HOST:PORT; the base path may be left out [env: POSTERN_SERVER]
    #[arg(value_name = "URL")]
    url: Option<String>,

    /// The name of the context to write [default: postern_HOST_USER]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Replace the context of --context, even if it has the key of another user
    #[arg(long, requires = "context")]
    replace: bool,

    /// The kubeconfig to write [env: KUBECONFIG] [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Exchange the token of a pipeline for the key of this WorkloadIdentity. The token comes from --token-file, from
    /// POSTERN_ID_TOKEN, or from GitHub Actions
    #[arg(long, value_name = "NAME", conflicts_with = "access_key")]
    workload_identity: Option<String>,

    /// The file with the token of the platform
    #[arg(long, value_name = "FILE", requires = "workload_identity")]
    token_file: Option<PathBuf>,

    /// Log in with the browser of this machine. This is the default on a terminal with a browser, if no access key is
    /// given [env: BROWSER]
    #[arg(long, conflicts_with_all = ["access_key", "workload_identity", "no_browser"])]
    browser: bool,

    /// Log in with a browser on another machine: print a link, and wait until the login is allowed there
    #[arg(long, conflicts_with_all = ["access_key", "workload_identity"])]
    no_browser: bool,

    /// The longest lifetime of the key of a login with a browser, as 8h [default: as long as the login of the browser]
    #[arg(long, value_name = "DURATION", value_parser = parse::ttl, conflicts_with_all = ["access_key", "workload_identity"])]
    ttl: Option<i64>,

    /// Trust the certificate authority that the server sends, if its public key has this SHA-256 digest. `postern serve`
    /// and `postern invite` print it
    #[arg(long, value_name = "sha256:HEX", conflicts_with = "ca_file")]
    ca_digest: Option<CaDigest>,

    #[command(flatten)]
    current: CurrentFlag,

    #[command(flatten)]
    credential: CredentialFlags,
}

/// The arguments of `postern logout`.
#[derive(Args, Debug)]
pub struct Logout {
    /// The context to remove [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The kubeconfig to change [env: KUBECONFIG] [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    force: ForceFlag,
}

/// The access key of a login.
struct LoginKey {
    value: SecretText,
    /// Whether a login with a browser has created it for this command.
    is_of_browser: bool,
}

impl Login {
    /// Checks the key, then writes it.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        if self.credential.debug {
            start_log();
        }
        let server = self.server(process)?;
        if self.context.as_ref().is_some_and(String::is_empty) {
            return Err(CliError::usage("--context: the name must not be empty"));
        }
        let files = Files::find(self.kubeconfig.as_ref(), process)?;
        // The file need not exist: it is created. It is read before the key is asked for, so that the user types no key
        // if the file cannot be read.
        let known = authority_of(&Kubeconfig::load(&files)?, &server);
        let trust = match self.ca_digest {
            Some(digest) => pinned_trust(&server, digest, self.credential.timeout, process).await?,
            None => given_trust(&self.credential, process)?.or(known).unwrap_or(Trust::System),
        };
        let key = match &self.workload_identity {
            Some(identity) => {
                let workload = Workload {
                    identity,
                    token_file: self.token_file.as_ref(),
                    server: &server,
                    trust: &trust,
                    timeout: self.credential.timeout,
                    process,
                };
                LoginKey { value: workload.key().await?, is_of_browser: false }
            }
            None => self.key(&server, &trust, process).await?,
        };
        let (mut session, status) = self.check(&server, &key.value, &trust, process).await?;
        let authority = match &trust {
            Trust::System | Trust::Pinned(_) => None,
            Trust::Authorities(pem) => Some(STANDARD.encode(pem)),
        };
        let url = server.to_string();
        let own = entry_name(&server, &status);
        let (name, entry) = match &self.context {
            // Two contexts of one user may have keys with different scopes.
            Some(name) if *name != own => (name.clone(), format!("{own}/{name}")),
            _ => (own.clone(), own),
        };
        // Pipelines read the secrets of the default namespace, and need the same one in each run.
        let is_pipeline = self.workload_identity.is_some();
        let secret_namespaces =
            if is_pipeline { &[][..] } else { status.secret_namespaces.as_slice() };
        let login = kubeconfig::Login {
            context: &name,
            entry: &entry,
            server: &url,
            authority: authority.as_deref(),
            key: &key.value,
            sets_current: self.current.set_current,
            others: if self.replace { OtherLogins::Replace } else { OtherLogins::Keep },
            secret_namespaces,
        };
        let written = match kubeconfig::login(&files, &login) {
            // No other file has the key, so nothing could use it or end it.
            Err(error) if key.is_of_browser => {
                let ended = session.client.delete_at_root(SESSION_PATH).await;
                let hint = "the login could not be ended on the server: end it on the sessions page of the console";
                return Err(error.hint_if(ended.is_err(), hint));
            }
            written => written?,
        };
        let who = whoami::owner(&status);
        let file = files.paths.first().map(|path| path.display().to_string()).unwrap_or_default();
        process.print_status(&format!("logged in to {url} as {who}"));
        say_others(&written, process);
        process.print_status(&if self.current.set_current {
            format!("the current context of {file} is now {name}")
        } else {
            format!("{file} has the context {name}")
        });
        say_namespace(&written.namespace, secret_namespaces, process);
        Ok(())
    }

    /// The access key: the given one, or the key of a login with a browser.
    async fn key(
        &self,
        server: &ServerUrl,
        trust: &Trust,
        process: &Process,
    ) -> Result<LoginKey, CliError> {
        let by_browser =
            BrowserLogin { server, trust, timeout: self.credential.timeout, ttl_seconds: self.ttl };
        let of_browser = |value| LoginKey { value, is_of_browser: true };
        let given = |value| LoginKey { value, is_of_browser: false };
        if self.no_browser {
            return by_browser.on_another_machine(process).await.map(of_browser);
        }
        if self.browser {
            return by_browser.on_this_machine(process).await.map(of_browser);
        }
        if self.credential.reads_key_from_stdin() && process.stdin_is_terminal() {
            return process.prompt_hidden("Access key").map(given);
        }
        match given_key(&self.credential, process)? {
            Some(key) => Ok(given(key)),
            None if !process.stdin_is_terminal() => Err(CliError::usage("no access key is given")
                .hint("--access-key - reads it from the standard input")
                .hint("POSTERN_ACCESS_KEY takes it from the environment")
                .hint("--no-browser logs in with a browser on another machine")),
            None if process.has_browser() => {
                by_browser.on_this_machine(process).await.map(of_browser)
            }
            None => by_browser.on_another_machine(process).await.map(of_browser),
        }
    }

    fn server(&self, process: &Process) -> Result<ServerUrl, CliError> {
        let url = match &self.url {
            Some(url) => url.as_str(),
            None => process.text("POSTERN_SERVER")?.ok_or_else(|| {
                CliError::usage("no server URL is given: pass https://HOST:PORT")
                    .hint("postern login https://HOST:PORT --ca-file FILE")
            })?,
        };
        ServerUrl::parse(url).map_err(CliError::usage)
    }

    /// Asks the server for the owner of the key, in a session with it.
    async fn check(
        &self,
        server: &ServerUrl,
        key: &SecretText,
        trust: &Trust,
        process: &Process,
    ) -> Result<(Session, selves::Status), CliError> {
        // This checks the key, so the settings of a kubeconfig do not matter.
        let settings =
            settings(server.clone(), key.clone(), trust.clone(), self.credential.timeout);
        let mut session = Session::new(settings, None, None, process)?;
        let asked = session.ask_self().await;
        let status = asked.map(|(_, status)| status).map_err(|error| {
            let mistyped = error.reason() == Some(Reason::Unauthorized)
                && key.expose().starts_with(access_key::PREFIX)
                && !access_key::is_well_formed(key.expose());
            let wrong = "the checksum of the access key is invalid: copy the whole key again";
            session.explain(&error).hint_if(mistyped, wrong).hint("nothing was written")
        })?;
        Ok((session, status))
    }
}

/// The command by which another user logs in at a server that this client trusts so. A server with an authority of its
/// own also sends it, so its digest is enough.
pub(crate) fn login_command(server: &ServerUrl, trust: &Trust) -> String {
    let login = format!("postern login {}", server.at_root(""));
    match (trust.self_made(), trust) {
        (Some(digest), _) => format!("{login} --ca-digest {digest}"),
        (None, Trust::System) => login,
        (None, _) => format!("{login} --ca-file CA.pem"),
    }
}

/// Reports the namespace of the context, and where the caller may create shared secrets.
fn say_namespace(namespace: &str, secret_namespaces: &[String], process: &Process) {
    let is_allowed = kubeconfig::may_create_in(secret_namespaces, namespace);
    let mut text = format!("commands without -n use the namespace {}", escape(namespace));
    if is_allowed {
        text.push_str(", in which you may create shared secrets");
    }
    process.print_status(&text);
    if !is_allowed && let Some(first) = secret_namespaces.first() {
        let first = escape(first);
        let hint =
            format!("you may create shared secrets in the namespace {first}: pass -n {first}");
        process.print_status(&hint);
    } else if namespace != default_namespace() {
        let default = escape(default_namespace());
        process.print_status(&format!("secrets in the namespace {default} need -n {default}"));
    }
}

/// Reports the effect of the login on other contexts of the server.
fn say_others(others: &WrittenLogin, process: &Process) {
    if !others.renewed.is_empty() {
        let names = some_of(&others.renewed);
        process.print_status(&format!("the new key also counts in the contexts {names}"));
    }
    if !others.kept.is_empty() {
        process.print_note(&format!(
            "other contexts of this server keep the key of their own login: {}",
            some_of(&others.kept)
        ));
    }
}

impl Logout {
    /// Deletes the key, if it was made for a login, and removes the entries, if `login` wrote them.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let files = Files::find(self.kubeconfig.as_ref(), process)?;
        let config = Kubeconfig::load(&files)?;
        config.check_missing(process)?;
        let name = match self.context.as_deref().or(config.current()) {
            Some(name) => name.to_owned(),
            None => {
                return Err(CliError::new("not logged in: the kubeconfig has no current context")
                    .hint(format!("--context names one: {}", config.contexts_hint())));
            }
        };
        let none = |name: &str| {
            CliError::new(format!("the kubeconfig has no context {name:?}"))
                .hint(config.contexts_hint())
        };
        let resolved = config.resolve(&name).ok_or_else(|| none(&name))?;
        // For a context that `connect` wrote, this removes its login.
        let resolved = match resolved.login() {
            Some(login) => config.login_of(&login).ok_or_else(|| none(login.context))?,
            None => resolved,
        };
        let name = resolved.name.to_owned();
        if !kubeconfig::is_login(&resolved) {
            let message = format!("the context {name:?} was not written by `postern login`");
            return Err(CliError::new(message)
                .hint("it may contain the only copy of its key, so it was not removed")
                .hint("to remove it, delete its entries from the kubeconfig"));
        }
        delete_login_key(&config, &resolved, self.force, process).await?;
        let broken = kubeconfig::logout(&files, &name, resolved.entries())?;
        if !broken.is_empty() {
            process.print_warning(&format!(
                "contexts without a credential, because they used this login: {}",
                some_of(&broken)
            ));
        }
        process.print_status(&format!(
            "logged out: the context {name} was removed from the kubeconfig"
        ));
        Ok(())
    }
}

/// Deletes the key of a context if it was made for one login. A key that is gone already is no
/// error. If the server cannot be asked about the key, a warning says so.
///
/// # Errors
/// If no other access key with every permission would be left, and if the deletion fails. The caller can try again, because
/// the key still exists.
async fn delete_login_key(
    config: &Kubeconfig,
    resolved: &ResolvedContext<'_>,
    force: ForceFlag,
    process: &Process,
) -> Result<(), CliError> {
    let unknown = |why: &str| {
        process.print_warning(&format!(
            "cannot delete the access key on the server, so it may still be valid: {why}"
        ));
    };
    let mut session = match Session::of_context(config, resolved, None, LOGOUT_TIMEOUT, process) {
        Ok(session) => session,
        Err(error) => {
            unknown(&error.message);
            return Ok(());
        }
    };
    let status = match session.ask_self().await {
        Ok((_, status)) => status,
        // The key is not valid any more.
        Err(error) if error.reason() == Some(Reason::Unauthorized) => return Ok(()),
        Err(error) => {
            unknown(&session.explain(&error).message);
            return Ok(());
        }
    };
    let key = &status.access_key;
    // The key of a login with a browser is a session, regardless of its type.
    match session.client.delete_at_root(SESSION_PATH).await {
        Ok(()) => {
            process.print_status(&format!("the access key {} was deleted", escape(key)));
            return Ok(());
        }
        Err(error) if error.reason() == Some(Reason::Unauthorized) => return Ok(()),
        // Other keys are no sessions. One that cannot be deleted so may be deleted as every key.
        Err(_) => {}
    }
    if status.access_key_type != LOGIN_TYPE || key.is_empty() {
        return Ok(());
    }
    let info = &OwnedAccessKey::INFO;
    let deletion = Change { info, name: key.clone(), effect: Effect::Delete };
    lockout::check_changes(&mut session, vec![deletion], force, process).await?;
    match session.client.delete(Collection::of::<OwnedAccessKey>(None), key).await {
        Ok(_) => process.print_status(&format!("the access key {} was deleted", escape(key))),
        Err(error) if matches!(error.reason(), Some(Reason::NotFound | Reason::Unauthorized)) => {}
        Err(error) => {
            return Err(session.explain(&error).hint(format!(
                "the access key {} is still valid, so you are still logged in: try again, or delete \
                 the entries of the context {} from the kubeconfig",
                escape(key),
                escape(resolved.name)
            )));
        }
    }
    Ok(())
}

/// The name `postern_HOST_USER`, with the port if it is not 443. The names of users and teams have no underscore.
fn entry_name(server: &ServerUrl, status: &selves::Status) -> String {
    let host = server.host();
    let port = if server.port() == 443 { String::new() } else { format!("_{}", server.port()) };
    let owner = match (&status.user, &status.team) {
        (Some(user), _) => user.name.clone(),
        (None, Some(team)) => format!("team_{}", team.name),
        (None, None) => format!("subject_{}", escape(&status.subject)),
    };
    format!("{ENTRY_PREFIX}{host}{port}_{owner}")
}

/// The authority of a login at this server, which need not be given again.
fn authority_of(config: &Kubeconfig, server: &ServerUrl) -> Option<Trust> {
    let cluster = config.login_cluster(&server.to_string())?;
    let data = cluster["certificate-authority-data"].as_str()?;
    Trust::of_pem(base64_text::decode_pem(data)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_named_for_their_servers_and_users() {
        let ada = selves::UserInfo { name: "ada".to_owned(), ..Default::default() };
        let ops = selves::TeamInfo { name: "ops".to_owned(), ..Default::default() };
        let user = selves::Status { user: Some(ada), ..Default::default() };
        let team = selves::Status { team: Some(ops), ..Default::default() };
        for (url, status, name) in [
            ("https://h.example.com", &user, "postern_h.example.com_ada"),
            ("https://127.0.0.1:8443", &user, "postern_127.0.0.1_8443_ada"),
            ("https://[::1]:8443", &team, "postern_::1_8443_team_ops"),
        ] {
            assert_eq!(entry_name(&ServerUrl::parse(url).unwrap(), status), name);
        }
    }
}
