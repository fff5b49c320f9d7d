//! `postern login --workload-identity`: the token that a platform gives to a pipeline, exchanged for an access key.

use std::path::{Path, PathBuf};
use std::time::Duration;

use postern_client::{Client, ServerUrl, Settings, Trust};
use postern_kinds::SecretText;
use serde_json::Value;

use crate::error::CliError;
use crate::process::{Process, read_file};

/// The path of exchanges. With the address of the server, it is the audience of the token.
const PATH: &str = "/auth/token";

/// The variable with a token, as GitLab CI sets it by `id_tokens`.
const TOKEN_VARIABLE: &str = "POSTERN_ID_TOKEN";

/// The variables of GitHub Actions: where a token is given, and the credential for it.
const GITHUB_URL: &str = "ACTIONS_ID_TOKEN_REQUEST_URL";
const GITHUB_TOKEN: &str = "ACTIONS_ID_TOKEN_REQUEST_TOKEN";

/// The largest token, in bytes.
const TOKEN_MAX_BYTES: usize = 32 * 1024;

/// What is exchanged, and where.
pub(super) struct Workload<'a> {
    /// The name of the WorkloadIdentity.
    pub(super) identity: &'a str,
    /// The file with the token.
    pub(super) token_file: Option<&'a PathBuf>,
    /// The server.
    pub(super) server: &'a ServerUrl,
    /// The certificate authorities of the server.
    pub(super) trust: &'a Trust,
    /// How long each request may take.
    pub(super) timeout: Duration,
}

impl Workload<'_> {
    /// The access key for the token of the platform.
    pub(super) async fn key(&self, process: &Process) -> Result<SecretText, CliError> {
        let token = self.token(process).await?;
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
            ("subject_token", token.expose().trim()),
            ("audience", self.identity),
        ];
        let mut client = self.client(self.server.clone(), SecretText::default(), self.trust)?;
        let answered = client.post_form(PATH, &fields).await;
        let (code, answer) = answered.map_err(|error| failed("the exchange failed", &error))?;
        match answer.get("access_token").and_then(Value::as_str) {
            Some(key) if code == 200 => Ok(SecretText::from(key.to_owned())),
            _ => Err(self.refused(&answer)),
        }
    }

    /// The token of the platform.
    async fn token(&self, process: &Process) -> Result<SecretText, CliError> {
        if let Some(file) = self.token_file {
            return token_in(file);
        }
        if let Some(token) = process.text(TOKEN_VARIABLE)? {
            return Ok(SecretText::from(token.to_owned()));
        }
        match (process.text(GITHUB_URL)?, process.text(GITHUB_TOKEN)?) {
            (Some(url), Some(token)) => self.github_token(url, token).await,
            _ => Err(CliError::usage("there is no token of a platform")
                .hint("--token-file FILE reads it from a file, such as a projected service account token")
                .hint("GitLab CI: set POSTERN_ID_TOKEN with the keyword id_tokens")
                .hint("GitHub Actions: give the job `permissions: id-token: write`")),
        }
    }

    /// Asks GitHub Actions for a token for this server.
    async fn github_token(&self, url: &str, token: &str) -> Result<SecretText, CliError> {
        let wrong = || CliError::new(format!("{GITHUB_URL} is not an https URL"));
        let rest = url.strip_prefix("https://").ok_or_else(wrong)?;
        let (host, path) = rest.split_once('/').ok_or_else(wrong)?;
        let server = ServerUrl::parse(host).map_err(|_| wrong())?;
        let (path, audience) = (format!("/{path}"), self.server.at_root(PATH));
        let mut client = self.client(server, SecretText::from(token.to_owned()), &Trust::System)?;
        let answered = client.get_at_root(&path, ("audience", &audience)).await;
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
        let settings = Settings {
            server,
            key,
            impersonation: None,
            trust: trust.clone(),
            tls_server_name: None,
            request_timeout: self.timeout,
        };
        Client::new(settings).map_err(|error| failed("cannot connect", &error))
    }

    fn refused(&self, answer: &Value) -> CliError {
        let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
        let error = match text("error") {
            "" => "the server does not exchange tokens".to_owned(),
            error => format!("the server refused the token: {error}"),
        };
        let error = CliError::new(error);
        if text("error") == "invalid_grant" {
            return error
                .hint("the audit log of the server says why")
                .hint(format!("the audience of the token must be {}", self.server.at_root(PATH)))
                .hint(format!(
                    "its claims must be those of the WorkloadIdentity {:?}",
                    self.identity
                ));
        }
        match text("error_description") {
            "" => error,
            description => error.hint(description.to_owned()),
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
