//! Logging in and out: the kubeconfig's part of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use postern_client::{ServerUrl, Settings, Trust};
use postern_kinds::{HOME_NAMESPACE, SecretText, access_key, selves};
use postern_meta::status::Reason;
use std::path::PathBuf;

use super::whoami;
use crate::connect::{Session, given_key, given_trust, start_log};
use crate::failure::Failure;
use crate::flags::Credential;
use crate::kubeconfig::{self, Files, Kubeconfig};
use crate::surroundings::Surroundings;

/// What the names of contexts that we make begin with.
const CONTEXT_PREFIX: &str = "postern_";

#[expect(clippy::doc_markdown, reason = "this is the text of --help")]
/// Log in: check an access key and keep it in the kubeconfig.
///
/// The key is checked against the server before anything is written. A context, a cluster and a
/// user named postern_HOST are written into the first file of KUBECONFIG, or ~/.kube/config, and
/// become the current context, for this command and for kubectl. All else in the file stays.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern login https://postern.example.com:8443 --ca-file ca.pem\n  \
    postern login https://postern.example.com:8443 --ca-file ca.pem --access-key - < key.txt")]
pub struct Login {
    /// The server, as https://HOST:PORT; the base path may be left out [env: POSTERN_SERVER]
    #[arg(value_name = "URL")]
    url: Option<String>,

    /// The name of the context to write [default: postern_HOST]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The kubeconfig to write [env: KUBECONFIG] [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    credential: Credential,
}

/// Log out: take what `login` wrote out of the kubeconfig.
///
/// The access key itself goes on working for whoever else has it; `postern delete accesskey` ends
/// it.
#[derive(Args, Debug)]
pub struct Logout {
    /// The context to take out [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The kubeconfig to change [env: KUBECONFIG] [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Login {
    /// Checks first, writes then.
    pub(crate) async fn run(self, surroundings: &Surroundings) -> Result<(), Failure> {
        if self.credential.debug {
            start_log();
        }
        let server = self.server(surroundings)?;
        let name = match &self.context {
            Some(name) if name.is_empty() => {
                return Err(Failure::usage("--context: a name is not empty"));
            }
            Some(name) => name.clone(),
            None => context_name(&server),
        };
        let mut files = Files::find(self.kubeconfig.as_ref(), surroundings)?;
        files.must_exist = false;
        // Before the key is asked for: a file that cannot be read would lose the work.
        let known = authority_of(&Kubeconfig::load(&files)?, &name, &server);
        let trust = given_trust(&self.credential, surroundings)?;
        let trust = trust.or(known).unwrap_or(Trust::System);
        let key = match given_key(&self.credential, surroundings)? {
            Some(key) => key,
            None => ask_key(surroundings)?,
        };
        let status = self.check(&server, &key, &trust).await?;
        let authority = match &trust {
            Trust::System => None,
            Trust::Authorities(pem) => Some(STANDARD.encode(pem)),
        };
        let url = server.to_string();
        let login = kubeconfig::Login {
            name: &name,
            server: &url,
            authority: authority.as_deref(),
            key: &key,
        };
        kubeconfig::login(&files, &login)?;
        let who = whoami::owner(&status);
        let file = files.paths.first().map(|path| path.display().to_string()).unwrap_or_default();
        surroundings.say(&format!("logged in to {url} as {who}"));
        surroundings.say(&format!("the current context of {file} is now {name}"));
        Ok(())
    }

    fn server(&self, surroundings: &Surroundings) -> Result<ServerUrl, Failure> {
        let url = match &self.url {
            Some(url) => url.as_str(),
            None => surroundings.text("POSTERN_SERVER")?.ok_or_else(|| {
                Failure::usage("log in where? Give the server's URL")
                    .hint("postern login https://HOST:PORT --ca-file FILE")
            })?,
        };
        ServerUrl::parse(url).map_err(Failure::usage)
    }

    /// Who the key belongs to, as the server says.
    async fn check(
        &self,
        server: &ServerUrl,
        key: &SecretText,
        trust: &Trust,
    ) -> Result<selves::Status, Failure> {
        let settings = Settings {
            server: server.clone(),
            key: key.clone(),
            // It is the key that is checked, whatever a kubeconfig says.
            impersonation: None,
            trust: trust.clone(),
            tls_server_name: None,
            request_timeout: self.credential.timeout,
        };
        let mut session = Session::new(settings, None, HOME_NAMESPACE.to_owned())?;
        let asked = whoami::ask(&mut session).await;
        asked.map(|(_, status)| status).map_err(|error| {
            let failure = session.explain(&error);
            let mistyped = error.reason() == Some(Reason::Unauthorized)
                && key.expose().starts_with(access_key::PREFIX)
                && !access_key::is_well_formed(key.expose());
            let failure = if mistyped {
                failure.hint("the key's checksum is wrong: it was mistyped, or not copied whole")
            } else {
                failure
            };
            failure.hint("nothing was written")
        })
    }
}

impl Logout {
    /// Takes the entries out, if it was `login` that wrote them.
    pub(crate) fn run(self, surroundings: &Surroundings) -> Result<(), Failure> {
        let files = Files::find(self.kubeconfig.as_ref(), surroundings)?;
        let config = Kubeconfig::load(&files)?;
        let name = match self.context.as_deref().or(config.current()) {
            Some(name) => name.to_owned(),
            None => {
                return Err(Failure::new("not logged in: the kubeconfig has no current context")
                    .hint("--context names one; `kubectl config get-contexts` lists them"));
            }
        };
        let Some(place) = config.place(&name) else {
            return Err(Failure::new(format!("the kubeconfig has no context {name:?}"))
                .hint("`kubectl config get-contexts` lists them"));
        };
        let ours = place.context["cluster"] == name.as_str()
            && place.context["user"] == name.as_str()
            && place.cluster["server"].as_str().is_some_and(ServerUrl::is_ours);
        if !ours {
            let message = format!("the context {name:?} was not written by `postern login`");
            return Err(Failure::new(message)
                .hint("it may hold the only copy of its key, so it is left alone")
                .hint("`kubectl config delete-context` and `delete-user` take it out"));
        }
        kubeconfig::logout(&files, &name)?;
        surroundings.say(&format!("logged out: the context {name} is gone from the kubeconfig"));
        Ok(())
    }
}

/// `postern_HOST`, and the port where it is not the usual one.
fn context_name(server: &ServerUrl) -> String {
    let host = server.host();
    if server.port() == 443 {
        format!("{CONTEXT_PREFIX}{host}")
    } else {
        format!("{CONTEXT_PREFIX}{host}_{}", server.port())
    }
}

/// The authority of the last login at this server: who comes again need not bring it again.
fn authority_of(config: &Kubeconfig, name: &str, server: &ServerUrl) -> Option<Trust> {
    let place = config.place(name)?;
    let same = place.cluster["server"] == server.to_string();
    let data = place.cluster["certificate-authority-data"].as_str().filter(|_| same)?;
    Trust::of_pem(STANDARD.decode(data).ok()?).ok()
}

fn ask_key(surroundings: &Surroundings) -> Result<SecretText, Failure> {
    if surroundings.in_is_terminal() {
        return surroundings.ask_hidden("Access key");
    }
    Err(Failure::usage("no access key was given")
        .hint("--access-key - reads it from the standard input")
        .hint("POSTERN_ACCESS_KEY takes it from the environment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_named_for_their_servers() {
        for (url, name) in [
            ("https://h.example.com", "postern_h.example.com"),
            ("https://127.0.0.1:8443", "postern_127.0.0.1_8443"),
            ("https://[::1]:8443", "postern_::1_8443"),
        ] {
            assert_eq!(context_name(&ServerUrl::parse(url).unwrap()), name);
        }
    }
}
