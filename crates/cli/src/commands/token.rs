//! `postern token`: a token for connected clusters, also as kubectl's credential plugin.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use clap::{Args, ValueEnum};
use postern_client::{Collection, Error};
use postern_kinds::SecretText;
use postern_kinds::direct_cluster_endpoint_token::{DirectClusterEndpointToken, Spec};
use postern_kinds::scope::{Scope, ScopeProject, ScopeRule, ScopeSpace, ScopeVirtualCluster};
use postern_meta::decode::decode_typed;
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::StatusDetails;
use postern_meta::time::Timestamp;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::new_object;
use crate::error::CliError;
use crate::explain::LOGIN_HINT;
use crate::flags::ConnectionFlags;
use crate::kubeconfig::{Files, Kubeconfig, LoginEntries};
use crate::process::Process;
use crate::session::{Session, start_log};
use crate::token_cache::{CachedToken, TokenCache};
use crate::{impersonation_config, output, parse};

/// The environment variable with the input of kubectl's credential plugins.
const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";

/// The server's words for a token that no cluster would accept.
const REACHES_NOTHING: &str = "the token would reach no connected cluster";

/// The versions in which kubectl takes a credential. The first is for a client that names none: clients that know `v1`
/// always name their version.
const EXEC_VERSIONS: [&str; 2] =
    ["client.authentication.k8s.io/v1beta1", "client.authentication.k8s.io/v1"];

/// How a token is printed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum TokenFormat {
    /// The whole object in JSON.
    Json,
    /// The whole object in YAML.
    Yaml,
}

/// Print a token for connected clusters.
#[derive(Args, Debug)]
#[expect(clippy::doc_markdown, reason = "this is the text of --help")]
pub struct Token {
    /// The time-to-live of the token; it never outlives the access key [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse::token_ttl)]
    ttl: Option<i64>,

    /// Only for this project, or for one instance in it
    #[arg(long, value_name = "PROJECT", value_parser = parse::name)]
    project: Option<String>,

    /// For this virtual cluster of the project alone
    #[arg(long, value_name = "NAME", value_parser = parse::name, requires = "project",
          conflicts_with = "space")]
    virtual_cluster: Option<String>,

    /// For this space of the project alone
    #[arg(long, value_name = "NAME", value_parser = parse::name, requires = "project")]
    space: Option<String>,

    /// For this connected cluster alone
    #[arg(long, value_name = "CLUSTER", value_parser = parse::name, conflicts_with = "project")]
    cluster: Option<String>,

    /// Print an ExecCredential, as kubectl takes it from a credential plugin. The token is cached until less
    /// than a fifth of its lifetime is left [default: when kubectl asks]
    #[arg(long, conflicts_with = "output")]
    exec_credential: bool,

    /// The entries of the login in the kubeconfig, as `connect` writes them: no other login takes its place
    #[arg(long, num_args = 2, value_names = ["CLUSTER", "USER"], hide = true,
          conflicts_with_all = ["context", "server", "access_key"])]
    login: Vec<String>,

    /// How to print it [default: the token alone]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<TokenFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl Token {
    /// Asks for a token, and prints it.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let asked_by_kubectl = if self.output.is_none() { process.text(EXEC_INFO)? } else { None };
        if self.exec_credential || asked_by_kubectl.is_some() {
            return self.print_credential(asked_by_kubectl, process).await;
        }
        let mut session = self.session(process)?;
        let issued = issue(&mut session, self.spec()).await;
        let object = issued.map_err(|error| self.refused(&session, &error))?;
        let text = match self.output {
            None => return process.print_value(&token_in(&object)?),
            Some(TokenFormat::Json) => output::json(object.into_value()),
            Some(TokenFormat::Yaml) => output::yaml(object.into_value()),
        };
        process.print_text(text.as_str())
    }

    /// The session of the login that the flags name. The environment may have the key of another person, so it does not
    /// count for a login that `connect` named.
    fn session(&self, process: &Process) -> Result<Session, CliError> {
        let [cluster, user] = self.login.as_slice() else {
            return Session::open(&self.connection, process);
        };
        let target = &self.connection.target;
        if target.credential.debug {
            start_log();
        }
        let files = Files::find(target.kubeconfig.as_ref(), process)?;
        let config = Kubeconfig::load(&files)?;
        config.check_missing(process)?;
        let login = config.login_with(LoginEntries { cluster, user }).ok_or_else(|| {
            let message = format!("the kubeconfig has no login with the user {user:?}");
            CliError::new(message).hint(LOGIN_HINT)
        })?;
        let acting = impersonation_config::choose(&self.connection.impersonation, Some(&login))?;
        Session::of_context(&config, &login, acting, target.credential.timeout, process)
    }

    /// Why there is no token, in terms of the flags.
    fn refused(&self, session: &Session, error: &Error) -> CliError {
        let named = [
            ("--cluster", &self.cluster),
            ("--virtual-cluster", &self.virtual_cluster),
            ("--space", &self.space),
            ("--project", &self.project),
        ];
        let named = named.iter().find_map(|(flag, name)| Some((*flag, name.as_ref()?)));
        let Some((flag, name)) = named else {
            return session.explain_by_flags(error, &[("spec.ttl", "--ttl")]);
        };
        let details = error.status().and_then(|status| status.details.as_ref());
        let reaches_nothing = |details: &StatusDetails| {
            details.causes.iter().any(|cause| cause.message.contains(REACHES_NOTHING))
        };
        if details.is_some_and(reaches_nothing) {
            let message = format!("{flag} {name}: {REACHES_NOTHING}");
            return CliError::new(message)
                .hint(
                    "check the name, that the instance is on a cluster, and that you hold `use` \
                       on it",
                )
                .hint(
                    "the scope of the access key also limits the token: `postern whoami -o \
                       yaml` shows it",
                );
        }
        session.explain_by_flags(error, &[("spec.ttl", "--ttl"), ("spec.scope", flag)])
    }

    fn spec(&self) -> Spec {
        Spec { ttl: self.ttl, scope: self.scope(), rules: None }
    }

    /// The scope that the flags name, or `None` for the scope of the access key.
    fn scope(&self) -> Option<Scope> {
        let mut scope = Scope::default();
        if let Some(cluster) = self.cluster.clone() {
            scope.rules.push(ScopeRule { cluster, ..ScopeRule::default() });
            return Some(scope);
        }
        let project = self.project.clone()?;
        match (self.virtual_cluster.clone(), self.space.clone()) {
            (Some(virtual_cluster), _) => {
                scope.virtual_clusters.push(ScopeVirtualCluster { project, virtual_cluster });
            }
            (None, Some(space)) => scope.spaces.push(ScopeSpace { project, space }),
            (None, None) => scope.projects.push(ScopeProject { project }),
        }
        Some(scope)
    }

    /// Prints a credential for kubectl: the token that is kept, as long as it is good.
    async fn print_credential(
        &self,
        exec_info: Option<&str>,
        process: &Process,
    ) -> Result<(), CliError> {
        let api_version = exec_version(exec_info)?;
        let spec = self.spec();
        let mut session = self.session(process)?;
        let cache = TokenCache::of(process, &cache_name(&session, &spec));
        let (now, caller) = (process.now_unix_seconds(), process.parent_id());
        let kept = cache.as_ref().and_then(TokenCache::read).filter(|kept| kept.counts(now));
        let token = match kept {
            Some(kept) if kept.is_good_for(caller, now) => kept,
            kept => match (issue(&mut session, spec).await, kept) {
                (Ok(object), _) => issued_token(&object)?,
                // The central server may be away, so a token that is still valid is useful.
                (Err(error), Some(kept)) if is_away(&error) => kept,
                (Err(error), _) => return Err(self.refused(&session, &error)),
            },
        };
        let token = CachedToken { given_to: caller, ..token };
        if let Some(Err(error)) = cache.map(|cache| cache.write(&token, now)) {
            process.print_note(&format!("the token is not cached: {}", error.message));
        }
        let credential = json!({
            "apiVersion": api_version,
            "kind": "ExecCredential",
            "status": {
                "expirationTimestamp": Timestamp::from_unix_seconds(token.expires),
                "token": token.token.expose(),
            },
        });
        process.print_text(output::json(credential).as_str())
    }
}

/// Whether the server is unreachable or unable to answer.
fn is_away(error: &Error) -> bool {
    match error.status() {
        Some(status) => status.code >= 500 || status.code == 429,
        None => matches!(
            error,
            Error::Resolve { .. }
                | Error::Connect { .. }
                | Error::Timeout { .. }
                | Error::Lost { .. }
        ),
    }
}

async fn issue(session: &mut Session, spec: Spec) -> Result<Object, Error> {
    let object = new_object::<DirectClusterEndpointToken>(ObjectMeta::default(), spec);
    // The command itself makes this request, which can always be encoded.
    let object = object.unwrap_or_default();
    let of = Collection::of::<DirectClusterEndpointToken>(None);
    session.client.create(of, &object).await
}

fn token_in(object: &Object) -> Result<SecretText, CliError> {
    let token = object.fields.get("status").and_then(|status| status["token"].as_str());
    let token = token.filter(|token| !token.is_empty());
    let missing = || CliError::new("the answer of the server has no token");
    token.map(|token| SecretText::from(token.to_owned())).ok_or_else(missing)
}

/// The token of an answer, with the times that it says itself (RFC 7519 section 4.1).
fn issued_token(object: &Object) -> Result<CachedToken, CliError> {
    let token = token_in(object)?;
    let payload = token.expose().split('.').nth(1).unwrap_or_default();
    let times = BASE64URL.decode(payload).ok().and_then(|payload| {
        let said: Value = decode_typed(&Zeroizing::new(payload)).ok()?;
        Some((said["iat"].as_i64()?, said["exp"].as_i64()?))
    });
    let unreadable = || CliError::new("the token of the server cannot be read");
    let (issued, expires) = times.ok_or_else(unreadable)?;
    Ok(CachedToken { token, issued, expires, given_to: 0 })
}

/// The version in which kubectl wants the credential.
fn exec_version(exec_info: Option<&str>) -> Result<&'static str, CliError> {
    let Some(info) = exec_info else { return Ok(EXEC_VERSIONS[0]) };
    let info: Value = decode_typed(info.as_bytes()).map_err(|_| {
        CliError::new(format!(
            "{EXEC_INFO} does not contain an ExecCredential in \
                                            JSON"
        ))
    })?;
    let wanted = info["apiVersion"].as_str().unwrap_or_default();
    EXEC_VERSIONS.iter().find(|known| **known == wanted).copied().ok_or_else(|| {
        let message = format!("{EXEC_INFO} asks for the version {}", output::escape(wanted));
        CliError::new(message)
            .hint(format!("set apiVersion: {} in the kubeconfig", EXEC_VERSIONS.join(" or ")))
    })
}

/// The name under which a token is kept: a digest of all that it depends on.
fn cache_name(session: &Session, spec: &Spec) -> String {
    let client = &session.client;
    let server = client.server().to_string();
    let acting = client
        .impersonation()
        .map(|wanted| json!([wanted.user, wanted.groups, wanted.uid, wanted.extra]));
    let parts = json!([server, client.key().expose(), acting, spec]).to_string();
    BASE64URL.encode(digest(&SHA256, Zeroizing::new(parts).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_the_version_that_it_asks_for() {
        let of =
            |version: &str| json!({ "apiVersion": version, "kind": "ExecCredential" }).to_string();
        for version in EXEC_VERSIONS {
            assert_eq!(exec_version(Some(&of(version))).unwrap(), version);
        }
        assert_eq!(exec_version(None).unwrap(), EXEC_VERSIONS[0]);
        let old = of("client.authentication.k8s.io/v1alpha1");
        assert!(exec_version(Some(&old)).unwrap_err().message.contains("v1alpha1"));
        assert!(exec_version(Some("x")).is_err());
    }
}
