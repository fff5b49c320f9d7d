//! `postern login --workload-identity`: the token that a platform gives to a pipeline, exchanged for an access key.

use std::path::{Path, PathBuf};
use std::time::Duration;

use postern_client::{Client, FormResponse, ServerUrl, Trust};
use postern_kinds::SecretText;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::busy;
use crate::error::CliError;
use crate::output::escape;
use crate::process::{Process, read_file};
use crate::session::{client_with, settings};

/// The path of exchanges. With the external URL of the server, it is the audience of the token.
const PATH: &str = "/auth/token";

/// The path where the server names its external URL.
const METHODS_PATH: &str = "/auth/methods";

/// The parameter that names this client, as in the other logins.
const CLIENT_ID: &str = "postern-cli";

/// The variable with a token, as GitLab CI sets it by `id_tokens`.
const TOKEN_VARIABLE: &str = "POSTERN_ID_TOKEN";

/// The variables of GitHub Actions: where a token is given, and the credential for it.
const GITHUB_URL: &str = "ACTIONS_ID_TOKEN_REQUEST_URL";
const GITHUB_TOKEN: &str = "ACTIONS_ID_TOKEN_REQUEST_TOKEN";

/// The largest token, in bytes.
const TOKEN_MAX_BYTES: usize = 32 * 1024;

/// How often an exchange is sent that the server cannot serve now.
const ATTEMPTS_MAX: u32 = 8;

/// The wait before the second attempt, if the server names none. It doubles with each attempt.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The token to exchange, and the server.
pub(super) struct Workload<'a> {
    /// The name of the WorkloadIdentity.
    pub(super) identity: &'a str,
    /// The file with the token.
    pub(super) token_file: Option<&'a PathBuf>,
    /// The server.
    pub(super) server: &'a ServerUrl,
    /// The certificate authorities of the server.
    pub(super) trust: &'a Trust,
    /// How long each request may take, and the exchange with all its attempts.
    pub(super) timeout: Duration,
    /// The environment, with the token of the platform.
    pub(super) process: &'a Process,
}

/// Where the token comes from.
enum Source<'a> {
    /// The platform has given it already.
    Given(SecretText),
    /// GitHub Actions gives one for each audience: at this URL, with this credential.
    GitHub { url: &'a str, credential: &'a str },
}

/// The response to an exchange.
struct Exchanged(FormResponse);

impl Workload<'_> {
    /// The access key for the token of the platform.
    pub(super) async fn key(&self) -> Result<SecretText, CliError> {
        let end = Instant::now() + self.timeout;
        let source = self.source()?;
        let audience = self.server.at_root(PATH);
        let token = self.token(&source, &audience).await?;
        let exchanged = self.exchange(&token, end).await?;
        if let Some(key) = exchanged.key() {
            return Ok(key);
        }
        if exchanged.text("error") != "invalid_grant" {
            return Err(exchanged.refused());
        }
        // Asked only now: the server limits requests that need no credential, and many jobs can share an address.
        let external = self.external_url().await;
        let wanted = external.as_ref().map(|url| format!("{url}{PATH}"));
        if let (Source::GitHub { .. }, Some(wanted)) = (&source, &wanted)
            && *wanted != audience
            && external.as_deref().is_some_and(|url| self.is_same_host(url))
        {
            let token = self.token(&source, wanted).await?;
            let exchanged = self.exchange(&token, end).await?;
            return exchanged.key().ok_or_else(|| self.with_hints(exchanged.refused(), wanted));
        }
        let wanted = wanted.as_deref().unwrap_or("the server's --external-url with /auth/token");
        Err(self.with_hints(exchanged.refused(), wanted))
    }

    /// Exchanges a token. If the server cannot serve it now, it is sent again until `end`.
    async fn exchange(&self, token: &SecretText, end: Instant) -> Result<Exchanged, CliError> {
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
            ("subject_token", token.expose().trim()),
            ("audience", self.identity),
        ];
        let mut client = self.client(self.server.clone(), SecretText::default(), self.trust)?;
        // The shortest wait, which gets longer each time that the server asks for that.
        let mut slower = Duration::ZERO;
        for attempt in 1.. {
            let answered = timeout_at(end, client.post_form(PATH, &fields)).await;
            let answered = answered.map_err(|_| self.too_late())?;
            let answered = answered.map_err(|error| failed("the exchange failed", &error))?;
            let exchanged = Exchanged(answered);
            if !busy::is_busy(&exchanged.0) || attempt >= ATTEMPTS_MAX {
                return Ok(exchanged);
            }
            // Jobs that were refused together do not come back together.
            let spread = Duration::from_millis(u64::from(self.process.random()) * 4);
            if busy::asks_to_slow_down(&exchanged.0) {
                slower += busy::SLOWER;
            }
            let doubled = WAIT_MIN.saturating_mul(2_u32.saturating_pow(attempt - 1));
            let wait = exchanged.retry_after().unwrap_or(doubled).max(slower) + spread;
            if Instant::now() + wait >= end {
                return Ok(exchanged);
            }
            let (why, seconds) = (exchanged.why(), wait.as_secs_f64().ceil());
            self.process.print_note(&format!(
                "the server cannot do this now, so the next attempt is in {seconds} s: {why}"
            ));
            sleep(wait).await;
        }
        unreachable!("the last attempt returns")
    }

    /// Where the token of the platform comes from.
    fn source(&self) -> Result<Source<'_>, CliError> {
        let process = self.process;
        if let Some(file) = self.token_file {
            return token_in(file).map(Source::Given);
        }
        if let Some(token) = process.text(TOKEN_VARIABLE)? {
            return Ok(Source::Given(SecretText::from(token.to_owned())));
        }
        match (process.text(GITHUB_URL)?, process.text(GITHUB_TOKEN)?) {
            (Some(url), Some(credential)) => Ok(Source::GitHub { url, credential }),
            _ => Err(CliError::usage("there is no token of a platform")
                .hint("--token-file FILE reads it from a file, such as a projected service account token")
                .hint("GitLab CI: set POSTERN_ID_TOKEN with the keyword id_tokens")
                .hint("GitHub Actions: give the job `permissions: id-token: write`")),
        }
    }

    /// The token. A platform that is asked for it gives one for the audience.
    async fn token(&self, source: &Source<'_>, audience: &str) -> Result<SecretText, CliError> {
        let (url, credential) = match source {
            Source::Given(token) => return Ok(token.clone()),
            Source::GitHub { url, credential } => (*url, *credential),
        };
        let wrong = || CliError::new(format!("{GITHUB_URL} is not an https URL"));
        let rest = url.strip_prefix("https://").ok_or_else(wrong)?;
        let (host, path) = rest.split_once('/').ok_or_else(wrong)?;
        let server = ServerUrl::parse(host).map_err(|_| wrong())?;
        let credential = SecretText::from(credential.to_owned());
        let mut client = self.client(server, credential, &Trust::System)?;
        let answered = client.get_at_root(&format!("/{path}"), "audience", audience).await;
        let answer = answered.map_err(|error| failed("GitHub gave no token", &error))?;
        let value = answer.get("value").and_then(Value::as_str);
        let value = value.ok_or_else(|| CliError::new("GitHub gave no token"))?;
        Ok(SecretText::from(value.to_owned()))
    }

    fn client(
        &self,
        server: ServerUrl,
        key: SecretText,
        trust: &Trust,
    ) -> Result<Client, CliError> {
        client_with(settings(server, key, trust.clone(), self.timeout), self.process)
    }

    /// The external URL of the server, if it names one. Only a help: an error of this request is not worth printing.
    async fn external_url(&self) -> Option<String> {
        let client = self.client(self.server.clone(), SecretText::default(), self.trust);
        let methods = client.ok()?.get_at_root(METHODS_PATH, "client_id", CLIENT_ID).await.ok()?;
        let url = methods.get("externalUrl")?.as_str()?.trim_end_matches('/');
        let is_url = url.starts_with("https://") && ServerUrl::parse(url).is_ok();
        is_url.then(|| url.to_owned())
    }

    /// Whether a URL has the host of the server. A token for another host is not requested because a server says so: with
    /// it, that server could log in there itself.
    fn is_same_host(&self, url: &str) -> bool {
        ServerUrl::parse(url).is_ok_and(|url| url.host().eq_ignore_ascii_case(self.server.host()))
    }

    fn with_hints(&self, error: CliError, audience: &str) -> CliError {
        error
            .hint("the audit log of the server says why")
            .hint(format!("the audience of the token must be {}", escape(audience)))
            .hint(format!("its claims must be those of the WorkloadIdentity {:?}", self.identity))
    }

    fn too_late(&self) -> CliError {
        let seconds = self.timeout.as_secs_f64();
        CliError::new(format!("the exchange failed: there is no key after {seconds} s"))
            .hint("--timeout sets a longer time")
    }
}

impl Exchanged {
    fn key(&self) -> Option<SecretText> {
        busy::key_in(&self.0)
    }

    fn text(&self, name: &str) -> &str {
        busy::text(&self.0, name)
    }

    /// The reason of the server. The rate limit, and a server that is starting, answer with a Status.
    fn why(&self) -> String {
        let fields = ["error_description", "message", "error"];
        let texts = fields.into_iter().map(|name| self.text(name));
        let why = texts.into_iter().find(|text| !text.is_empty());
        why.map_or_else(|| format!("HTTP {}", self.0.code), escape)
    }

    /// How long the server asks to wait.
    fn retry_after(&self) -> Option<Duration> {
        busy::retry_after(&self.0)
    }

    fn refused(&self) -> CliError {
        if busy::is_busy(&self.0) {
            let error = CliError::new(format!("the server gives no key now: {}", self.why()));
            return match self.retry_after() {
                Some(wait) => error
                    .hint(format!("try again in {} s", wait.as_secs()))
                    .hint("a longer --timeout waits for it"),
                None => error.hint("try again in a moment"),
            };
        }
        match (self.text("error"), self.text("error_description")) {
            ("", _) if self.text("message").is_empty() => {
                CliError::new("the server does not exchange tokens")
            }
            ("", _) => CliError::new(format!("the server gave no key: {}", self.why())),
            (error, description) => {
                let refused =
                    CliError::new(format!("the server refused the token: {}", escape(error)));
                if description.is_empty() { refused } else { refused.hint(escape(description)) }
            }
        }
    }
}

fn failed(what: &str, error: &postern_client::Error) -> CliError {
    CliError::new(format!("{what}: {error}"))
}

fn token_in(file: &Path) -> Result<SecretText, CliError> {
    let bytes = read_file(file, TOKEN_MAX_BYTES)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| CliError::new(format!("{} is not UTF-8", file.display())))?;
    Ok(SecretText::from(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_says_why_and_when_to_try_again() {
        let exchanged = |code, seconds, body| {
            Exchanged(FormResponse { code, retry_after: Some(Duration::from_secs(seconds)), body })
        };
        let status = |code, seconds| {
            exchanged(code, seconds, json!({ "kind": "Status", "message": "too many" }))
        };
        let oauth = |code, error: &str, description: &str| {
            exchanged(code, 0, json!({ "error": error, "error_description": description }))
        };
        for (exchanged, wanted) in [
            (status(429, 42), "the server gives no key now: too many | try again in 42 s"),
            (status(503, 0), "the server gives no key now: too many | try again in a moment"),
            (
                oauth(429, "temporarily_unavailable", "maxLive"),
                "the server gives no key now: maxLive | try again in a moment",
            ),
            (status(404, 0), "the server gave no key: too many"),
            (oauth(400, "invalid_request", "no\u{1b}"), "the token: invalid_request | no\\u{1b}"),
            (exchanged(404, 0, json!({})), "the server does not exchange tokens"),
            (
                oauth(400, "slow_down", "too often"),
                "the server gives no key now: too often | try again in a moment",
            ),
            (
                exchanged(503, 7, Value::Null),
                "the server gives no key now: HTTP 503 | try again in 7 s",
            ),
        ] {
            let error = exchanged.refused();
            let said = format!("{} | {}", error.message, error.hints.join(" | "));
            assert!(said.contains(wanted), "{said}");
        }
        let forever = status(429, u64::MAX).retry_after();
        assert_eq!(forever, Some(Duration::from_hours(1)));
    }
}
