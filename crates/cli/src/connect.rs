//! Choosing the server, the access key and as whom to act: flags, then the environment, then the
//! kubeconfig.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_client::{Client, ServerUrl, Settings, Trust};
use postern_kinds::{HOME_NAMESPACE, SecretText};
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use crate::explain::explain;
use crate::failure::Failure;
use crate::flags::{Connection, Credential};
use crate::impersonation;
use crate::kubeconfig::{Files, Kubeconfig, Place};
use crate::surroundings::{Surroundings, read_file};

/// The largest file of certificate authorities that is read.
pub(crate) const CA_MAX_BYTES: usize = 1024 * 1024;
/// The largest file with an access key that is read.
const KEY_MAX_BYTES: usize = 16 * 1024;

/// What to do for somebody who is nobody yet.
pub(crate) const LOG_IN: &str =
    "log in with `postern login https://HOST:PORT --access-key - --ca-file FILE`";

/// A server that can be asked, and what is to be known about the way there.
pub(crate) struct Session {
    /// For requests.
    pub(crate) client: Client,
    /// The kubeconfig's context, if it was that which led here.
    pub(crate) context: Option<String>,
    /// The namespace that counts when none is named.
    pub(crate) namespace: String,
}

impl Session {
    /// Chooses, and connects with the first request.
    pub(crate) fn open(flags: &Connection, surroundings: &Surroundings) -> Result<Self, Failure> {
        if flags.credential.debug {
            start_log();
        }
        let direct = match &flags.server {
            Some(server) => Some(server.as_str()),
            None if flags.context.is_some() || flags.kubeconfig.is_some() => None,
            None => surroundings.text("POSTERN_SERVER")?,
        };
        let given = given_key(&flags.credential, surroundings)?;
        match direct {
            Some(server) => Self::direct(server, given, flags, surroundings),
            None => Self::by_kubeconfig(flags, given, surroundings),
        }
    }

    fn direct(
        server: &str,
        key: Option<SecretText>,
        flags: &Connection,
        surroundings: &Surroundings,
    ) -> Result<Self, Failure> {
        let server = ServerUrl::parse(server)
            .map_err(|what| Failure::usage(format!("--server or POSTERN_SERVER: {what}")))?;
        let key = key.ok_or_else(|| {
            Failure::usage("a server is given, but no access key").hint(
                "set POSTERN_ACCESS_KEY, or give --access-key - and the key on the standard input",
            )
        })?;
        let settings = Settings {
            server,
            key,
            impersonation: impersonation::choose(&flags.act_as, None)?,
            trust: given_trust(&flags.credential, surroundings)?.unwrap_or(Trust::System),
            tls_server_name: None,
            request_timeout: flags.credential.timeout,
        };
        Self::new(settings, None, HOME_NAMESPACE.to_owned())
    }

    fn by_kubeconfig(
        flags: &Connection,
        given: Option<SecretText>,
        surroundings: &Surroundings,
    ) -> Result<Self, Failure> {
        let files = Files::find(flags.kubeconfig.as_ref(), surroundings)?;
        let config = Kubeconfig::load(&files)?;
        let place = choose(&config, flags.context.as_deref())?;
        let server = server_of(&config, &place)?;
        let trust = match &flags.credential.ca_file {
            Some(file) => trust_in(file)?,
            None => trust_of(&place)?,
        };
        let key = match given {
            Some(key) => key,
            None => key_of(&place)?,
        };
        let settings = Settings {
            server,
            key,
            // Whoever's key it is: the kubeconfig says with whose rights its server is asked.
            impersonation: impersonation::choose(&flags.act_as, Some(&place))?,
            trust,
            tls_server_name: text_in(place.cluster, "tls-server-name").map(str::to_owned),
            request_timeout: flags.credential.timeout,
        };
        let namespace = text_in(place.context, "namespace").unwrap_or(HOME_NAMESPACE);
        Self::new(settings, Some(place.name.to_owned()), namespace.to_owned())
    }

    /// With everything chosen.
    pub(crate) fn new(
        settings: Settings,
        context: Option<String>,
        namespace: String,
    ) -> Result<Self, Failure> {
        let client = Client::new(settings);
        let client = client.map_err(|error| explain(&error, "https://HOST:PORT", None))?;
        Ok(Self { client, context, namespace })
    }

    /// What went wrong with a request, and what to do about it.
    pub(crate) fn explain(&self, error: &postern_client::Error) -> Failure {
        let acting_as = self.client.impersonation().map(|wanted| wanted.user.as_str());
        explain(error, &self.client.server().to_string(), acting_as)
    }
}

/// Which requests are made, on the standard error.
pub(crate) fn start_log() {
    let started = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("postern_client=debug"))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .try_init();
    // Somebody else's log is as good.
    drop(started);
}

/// The access key of `--access-key` or `POSTERN_ACCESS_KEY`.
pub(crate) fn given_key(
    flags: &Credential,
    surroundings: &Surroundings,
) -> Result<Option<SecretText>, Failure> {
    let (what, key) = match &flags.access_key {
        Some(key) if key.expose() == "-" => {
            let bytes = surroundings.read_in(KEY_MAX_BYTES)?;
            ("the standard input", key_from(&bytes, "the standard input")?)
        }
        Some(key) => ("--access-key", key.clone()),
        None => match surroundings.text("POSTERN_ACCESS_KEY")? {
            Some(key) => ("POSTERN_ACCESS_KEY", SecretText::from(key.trim().to_owned())),
            None => return Ok(None),
        },
    };
    check_key(&key, what)?;
    Ok(Some(key))
}

/// Something that can be sent as a key at all.
fn check_key(key: &SecretText, what: &str) -> Result<(), Failure> {
    if key.expose().is_empty() {
        return Err(Failure::usage(format!("the access key in {what} is empty")));
    }
    if !key.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = format!("the access key in {what} holds characters that no access key has");
        return Err(Failure::usage(message).hint("a key is one word without spaces"));
    }
    Ok(())
}

fn key_from(bytes: &[u8], what: &str) -> Result<SecretText, Failure> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("the access key in {what} is not UTF-8")))?;
    Ok(SecretText::from(text.trim().to_owned()))
}

/// The authorities of `--ca-file` or `POSTERN_CA_FILE`.
pub(crate) fn given_trust(
    flags: &Credential,
    surroundings: &Surroundings,
) -> Result<Option<Trust>, Failure> {
    let file = flags.ca_file.clone();
    let file = file.or_else(|| surroundings.variable("POSTERN_CA_FILE").map(PathBuf::from));
    file.map(|file| trust_in(&file)).transpose()
}

fn trust_in(file: &Path) -> Result<Trust, Failure> {
    let pem = read_file(file, CA_MAX_BYTES)?;
    Trust::of_pem(pem.to_vec())
        .map_err(|error| Failure::new(format!("cannot use {}: {error}", file.display())))
}

/// The context that is named, or the current one.
fn choose<'a>(config: &'a Kubeconfig, named: Option<&str>) -> Result<Place<'a>, Failure> {
    if let Some(name) = named {
        return config.place(name).ok_or_else(|| {
            let near = crate::similar::nearest(name, config.contexts());
            let failure = Failure::new(format!("the kubeconfig has no context {name:?}"));
            match near.first() {
                Some(near) => failure.hint(format!("did you mean {near}?")),
                None => failure.hint("`kubectl config get-contexts` lists them"),
            }
        });
    }
    let Some(current) = config.current() else {
        let failure = Failure::new("not logged in: the kubeconfig has no current context");
        return Err(with_ours(failure, config).hint(LOG_IN));
    };
    config.place(current).ok_or_else(|| {
        let message = format!("the kubeconfig's current context, {current:?}, is not in it");
        with_ours(Failure::new(message), config).hint(LOG_IN)
    })
}

/// Names a context that would do.
fn with_ours(failure: Failure, config: &Kubeconfig) -> Failure {
    let ours = config.contexts().find(|name| {
        let place = config.place(name);
        place.is_some_and(|place| text_in(place.cluster, "server").is_some_and(ServerUrl::is_ours))
    });
    match ours {
        Some(name) => failure.hint(format!("there is a context for this server: --context {name}")),
        None => failure,
    }
}

/// The server of a context. A key, or another cluster's credential, goes to nobody else.
fn server_of(config: &Kubeconfig, place: &Place<'_>) -> Result<ServerUrl, Failure> {
    let url = text_in(place.cluster, "server");
    let Some(url) = url.filter(|url| ServerUrl::is_ours(url)) else {
        let message = format!("not logged in: the context {:?} leads to no Postern", place.name);
        return Err(with_ours(Failure::new(message), config).hint(LOG_IN));
    };
    if place.cluster["insecure-skip-tls-verify"] == true {
        let message = format!(
            "the context {:?} asks not to verify the server's certificate, which is never done: \
             an access key goes with every request",
            place.name
        );
        return Err(Failure::new(message).hint("log in again with --ca-file"));
    }
    if text_in(place.cluster, "proxy-url").is_some() {
        let message =
            format!("the context {:?} asks for a proxy, which is not supported", place.name);
        return Err(Failure::new(message));
    }
    ServerUrl::parse(url)
        .map_err(|what| Failure::new(format!("the server of the context {:?}: {what}", place.name)))
}

fn trust_of(place: &Place<'_>) -> Result<Trust, Failure> {
    let wrong = |what: &str| {
        Failure::new(format!("the certificate authority of the context {:?}: {what}", place.name))
    };
    if let Some(data) = text_in(place.cluster, "certificate-authority-data") {
        let pem = STANDARD.decode(data).map_err(|_| wrong("it is not base64"))?;
        return Trust::of_pem(pem).map_err(|error| wrong(&error.to_string()));
    }
    match text_in(place.cluster, "certificate-authority") {
        Some(file) => trust_in(&place.cluster_dir.join(file)),
        None => Ok(Trust::System),
    }
}

fn key_of(place: &Place<'_>) -> Result<SecretText, Failure> {
    let key = match (text_in(place.user, "token"), text_in(place.user, "tokenFile")) {
        (_, Some(file)) => {
            let path = place.user_dir.join(file);
            key_from(&read_file(&path, KEY_MAX_BYTES)?, &path.display().to_string())?
        }
        (Some(token), None) => SecretText::from(token.to_owned()),
        (None, None) => {
            let message = format!(
                "not logged in: the user of the context {:?} has no access key",
                place.name
            );
            return Err(Failure::new(message).hint(LOG_IN));
        }
    };
    check_key(&key, "the kubeconfig")?;
    Ok(key)
}

/// A text that is there and not empty.
fn text_in<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value[field].as_str().filter(|text| !text.is_empty())
}
