//! `postern login` with a browser. A browser on this machine brings a code to a port of the command
//! line (RFC 8252). For a browser on another machine, the command line asks again and again (RFC
//! 8628).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use postern_client::{Client, FormResponse, ServerUrl, Trust};
use postern_kinds::SecretText;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::busy;
use crate::error::CliError;
use crate::output::escape;
use crate::process::Process;
use crate::session::{client_with, settings};

/// The client that the server knows.
const CLIENT_ID: &str = "postern-cli";

/// The paths of the server, and the path of the command line's own port.
const AUTHORIZE_PATH: &str = "/auth/authorize";
const DEVICE_PATH: &str = "/auth/device";
const TOKEN_PATH: &str = "/auth/token";
const CALLBACK_PATH: &str = "/callback";

/// How long the person may take.
const LOGIN_TIME: Duration = Duration::from_mins(10);

/// The connections that are served at once, the bytes of a request, and its time. Browsers open connections that they do
/// not use.
const MAX_CONNECTIONS: usize = 16;
const MAX_REQUEST_BYTES: usize = 8 * 1024;
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Characters of a code, and of the name of a machine.
const MAX_CODE_CHARS: usize = 256;
const MAX_HOST_CHARS: usize = 64;

/// The shortest and the longest pause between two requests, unless the server names a longer one.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_mins(1);

/// How often a request is sent that the server cannot serve now, and the longest wait before the next attempt.
const ATTEMPTS_MAX: u32 = 5;
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The requests in a row that may fail while the person decides.
const MAX_FAILURES: u32 = 5;

/// A login with a browser.
pub(super) struct BrowserLogin<'a> {
    /// The server.
    pub(super) server: &'a ServerUrl,
    /// The certificate authorities of the server.
    pub(super) trust: &'a Trust,
    /// How long each request may take.
    pub(super) timeout: Duration,
    /// The requested lifetime of the key in seconds.
    pub(super) ttl_seconds: Option<i64>,
}

/// The result that the browser brought.
enum Brought {
    Code(SecretText),
    Denied,
}

impl BrowserLogin<'_> {
    /// The access key, by a browser on this machine.
    pub(super) async fn on_this_machine(&self, process: &Process) -> Result<SecretText, CliError> {
        let wrong = |error| CliError::new(format!("cannot listen on this machine: {error}"));
        let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.map_err(wrong)?,
        };
        let own = listener.local_addr().map_err(wrong)?;
        let redirect_uri = format!("http://{own}{CALLBACK_PATH}");
        let (verifier, state) = (random(process, 32), random(process, 16));
        let mut url = self.server.at_root(AUTHORIZE_PATH);
        url.push_str("?response_type=code&redirect_uri=");
        for c in redirect_uri.chars() {
            match c {
                ':' => url.push_str("%3A"),
                '/' => url.push_str("%2F"),
                '[' => url.push_str("%5B"),
                ']' => url.push_str("%5D"),
                other => url.push(other),
            }
        }
        for (name, value) in
            self.asked(verifier.expose()).iter().chain([&("state", state.expose().to_owned())])
        {
            // None of the values needs an escape.
            for part in ["&", *name, "=", value] {
                url.push_str(part);
            }
        }
        process.print_status(&format!(
            "Allow the login in the browser. It opens this page:\n\n  {url}\n"
        ));
        if !process.start_browser(&url) {
            process.print_note(
                "no browser could be started: open the page yourself, or use --no-browser on a machine without one",
            );
        }
        let answer = tokio::time::timeout(LOGIN_TIME, brought(&listener, &state)).await;
        let code = match answer.map_err(|_| too_late())?? {
            Brought::Code(code) => code,
            Brought::Denied => return Err(denied()),
        };
        let fields = [
            ("grant_type", "authorization_code"),
            ("client_id", CLIENT_ID),
            ("code", code.expose()),
            ("redirect_uri", &redirect_uri),
            ("code_verifier", verifier.expose()),
        ];
        let mut client = self.client(process)?;
        key_in(&post_patiently(&mut client, TOKEN_PATH, &fields, process).await?)
    }

    /// The access key, by a browser on another machine.
    pub(super) async fn on_another_machine(
        &self,
        process: &Process,
    ) -> Result<SecretText, CliError> {
        let verifier = random(process, 32);
        let asked = self.asked(verifier.expose());
        let asked: Vec<(&str, &str)> =
            asked.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut client = self.client(process)?;
        let FormResponse { code, body: begun, .. } =
            post_patiently(&mut client, DEVICE_PATH, &asked, process).await?;
        let text = |name: &str| begun.get(name).and_then(Value::as_str).unwrap_or_default();
        let (device_code, user_code) = (text("device_code"), text("user_code"));
        if code != 200 || device_code.is_empty() {
            return Err(refused(&begun, "the server has no login for the command line"));
        }
        let page = escape(text("verification_uri_complete"));
        let user_code = escape(user_code);
        process.print_status(&format!(
            "Open this page in a browser, on any machine:\n\n  {page}\n\nand enter there: {user_code}\n"
        ));
        let seconds = |name: &str| begun.get(name).and_then(Value::as_u64).map(Duration::from_secs);
        let interval =
            seconds("interval").unwrap_or(busy::SLOWER).clamp(MIN_INTERVAL, MAX_INTERVAL);
        let time = seconds("expires_in").unwrap_or(LOGIN_TIME).min(LOGIN_TIME);
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("client_id", CLIENT_ID),
            ("device_code", device_code),
            ("code_verifier", verifier.expose()),
        ];
        tokio::time::timeout(time, ask_until_allowed(&mut client, &fields, interval))
            .await
            .map_err(|_| too_late())?
    }

    /// The fields that both requests have.
    fn asked(&self, verifier: &str) -> Vec<(&'static str, String)> {
        let challenge = BASE64URL.encode(digest(&SHA256, verifier.as_bytes()));
        let mut fields = vec![
            ("client_id", CLIENT_ID.to_owned()),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256".to_owned()),
            ("host", host_name()),
        ];
        fields.extend(self.ttl_seconds.map(|ttl| ("ttl", ttl.to_string())));
        fields
    }

    fn client(&self, process: &Process) -> Result<Client, CliError> {
        let key = SecretText::default();
        client_with(settings(self.server.clone(), key, self.trust.clone(), self.timeout), process)
    }
}

/// Posts a form. If the server cannot serve it now, it is sent again after the time that the server names. The server has
/// done nothing with it, so the code in it is still good.
async fn post_patiently(
    client: &mut Client,
    path: &str,
    fields: &[(&str, &str)],
    process: &Process,
) -> Result<FormResponse, CliError> {
    let mut pause = MIN_INTERVAL;
    for attempt in 1.. {
        let answer = client.post_form(path, fields).await.map_err(failed)?;
        let wait = busy::retry_after(&answer).unwrap_or(pause);
        if !busy::is_busy(&answer) || attempt >= ATTEMPTS_MAX || wait > WAIT_MAX {
            return Ok(answer);
        }
        let seconds = wait.as_secs_f64().ceil();
        process.print_note(&format!(
            "the server cannot do this now, so the next attempt is in {seconds} s"
        ));
        tokio::time::sleep(wait).await;
        pause *= 2;
    }
    unreachable!("the last attempt returns")
}

/// Asks for the key until the login is allowed, or has ended.
async fn ask_until_allowed(
    client: &mut Client,
    fields: &[(&str, &str)],
    mut interval: Duration,
) -> Result<SecretText, CliError> {
    let (mut failures, mut wait) = (0, interval);
    loop {
        tokio::time::sleep(wait).await;
        match client.post_form(TOKEN_PATH, fields).await {
            Ok(answer) => {
                failures = 0;
                match judged(&answer, interval) {
                    Judged::Ended(result) => return result,
                    Judged::Pending { interval: next, wait: named } => {
                        (interval, wait) = (next, named);
                    }
                }
            }
            Err(error) => {
                failures += 1;
                if failures >= MAX_FAILURES {
                    return Err(failed(error));
                }
                // A server that does not answer is asked less often, for as long as it does not.
                wait = (wait * 2).min(MAX_INTERVAL);
            }
        }
    }
}

/// The meaning of a response to a request for the key.
#[derive(Debug, PartialEq)]
enum Judged {
    /// The login has ended.
    Ended(Result<SecretText, CliError>),
    /// The login has not ended. The next request comes after `wait`; later ones, after `interval`.
    Pending { interval: Duration, wait: Duration },
}

/// Judges an answer to a request that came after this interval.
fn judged(answer: &FormResponse, interval: Duration) -> Judged {
    let interval = match busy::text(answer, "error") {
        "authorization_pending" => interval,
        "expired_token" => return Judged::Ended(Err(too_late())),
        "access_denied" => return Judged::Ended(Err(denied())),
        _ if busy::is_busy(answer) => (interval + busy::SLOWER).min(MAX_INTERVAL.max(interval)),
        _ => return Judged::Ended(key_in(answer)),
    };
    let wait = busy::retry_after(answer).map_or(interval, |named| named.max(interval));
    Judged::Pending { interval, wait }
}

fn key_in(answer: &FormResponse) -> Result<SecretText, CliError> {
    busy::key_in(answer).ok_or_else(|| refused(&answer.body, "the server gave no access key"))
}

/// Waits until a browser brings the answer to this login. Other requests get an error, and change nothing.
async fn brought(listener: &TcpListener, state: &SecretText) -> Result<Brought, CliError> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let wrong = |error| CliError::new(format!("cannot listen on this machine: {error}"));
                let (stream, _) = accepted.map_err(wrong)?;
                let state = state.clone();
                connections.spawn(async move {
                    tokio::time::timeout(REQUEST_TIME, serve(stream, &state)).await.ok().flatten()
                });
            }
            Some(served) = connections.join_next() => {
                if let Ok(Some(brought)) = served {
                    return Ok(brought);
                }
            }
        }
    }
}

/// Serves one request of a browser.
async fn serve(mut stream: TcpStream, state: &SecretText) -> Option<Brought> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_REQUEST_BYTES || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let answer = std::str::from_utf8(line).ok().and_then(|line| answer_in(line, state));
    let (status, text) = match &answer {
        Some(Brought::Code(_)) => {
            ("200 OK", "The terminal has the answer. You can close this page.")
        }
        Some(Brought::Denied) => ("200 OK", "The login was denied. You can close this page."),
        None => ("404 Not Found", "This page belongs to no login that has begun here."),
    };
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Postern</title><p>{text}</p></html>\n"
    );
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n\
         Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    // If the browser has gone, its code is still used.
    if stream.write_all(response.as_bytes()).await.is_ok() {
        drop(stream.shutdown().await);
    }
    answer
}

/// The answer in the first line of a request; `None` unless it is to the login with this state.
fn answer_in(line: &str, state: &SecretText) -> Option<Brought> {
    let rest = line.strip_prefix("GET ")?.strip_prefix(CALLBACK_PATH)?.strip_prefix('?')?;
    let (query, _) = rest.split_once(" HTTP/1.")?;
    let only = |name: &str| {
        let mut values = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .filter(|(known, _)| *known == name)
            .map(|(_, value)| value);
        values.next().filter(|_| values.next().is_none())
    };
    let is_own = only("state").is_some_and(|sent| {
        let (sent, own) = (sent.as_bytes(), state.expose().as_bytes());
        aws_lc_rs::constant_time::verify_slices_are_equal(sent, own).is_ok()
    });
    if !is_own {
        return None;
    }
    let is_code = |code: &&str| {
        let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !code.is_empty() && code.len() <= MAX_CODE_CHARS && code.bytes().all(is_char)
    };
    match (only("error"), only("code").filter(is_code)) {
        (Some(_), _) => Some(Brought::Denied),
        (None, Some(code)) => Some(Brought::Code(SecretText::from(code.to_owned()))),
        (None, None) => None,
    }
}

fn random(process: &Process, bytes: usize) -> SecretText {
    let random: Vec<u8> = (0..bytes).map(|_| process.random()).collect();
    SecretText::from(BASE64URL.encode(random))
}

/// The name of this machine, which the person sees before the consent.
fn host_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let known = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
    name.chars().map(known).take(MAX_HOST_CHARS).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "it is used with map_err")]
fn failed(error: postern_client::Error) -> CliError {
    CliError::new(format!("the login failed: {error}")).hint("nothing was written")
}

fn refused(answer: &Value, otherwise: &str) -> CliError {
    let text =
        |name: &str| answer.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    // A rate limit answers with a Status.
    let why = text("error_description").or_else(|| text("message")).or_else(|| text("error"));
    let why = why.map_or_else(|| otherwise.to_owned(), escape);
    CliError::new(format!("the login failed: {why}")).hint("nothing was written")
}

fn too_late() -> CliError {
    CliError::new("the login was not allowed within 10 minutes").hint("nothing was written")
}

fn denied() -> CliError {
    CliError::new("the login was denied in the browser").hint("nothing was written")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code(line: &str) -> Option<String> {
        match answer_in(line, &SecretText::from("state-1".to_owned()))? {
            Brought::Code(code) => Some(code.expose().to_owned()),
            Brought::Denied => Some("denied".to_owned()),
        }
    }

    #[test]
    fn only_an_answer_with_the_own_state_counts() {
        for (line, wanted) in [
            ("GET /callback?code=abc&state=state-1 HTTP/1.1", Some("abc")),
            ("GET /callback?state=state-1&code=abc HTTP/1.0", Some("abc")),
            ("GET /callback?error=access_denied&state=state-1 HTTP/1.1", Some("denied")),
            ("GET /callback?code=abc&state=state-2 HTTP/1.1", None),
            ("GET /callback?code=abc HTTP/1.1", None),
            ("GET /callback?error=access_denied HTTP/1.1", None),
            ("GET /callback?code=abc&state=state-1&state=state-1 HTTP/1.1", None),
            ("GET /callback?code=a%20b&state=state-1 HTTP/1.1", None),
            ("GET /callback?code=&state=state-1 HTTP/1.1", None),
            ("GET /other?code=abc&state=state-1 HTTP/1.1", None),
            ("GET /callback/?code=abc&state=state-1 HTTP/1.1", None),
            ("POST /callback?code=abc&state=state-1 HTTP/1.1", None),
            ("GET /callback?code=abc&state=state-1", None),
            ("", None),
        ] {
            assert_eq!(code(line).as_deref(), wanted, "{line}");
        }
    }

    #[test]
    fn the_server_says_how_often_it_is_asked() {
        let answer = |code, seconds: Option<u64>, body| FormResponse {
            code,
            retry_after: seconds.map(Duration::from_secs),
            body,
        };
        let oauth = |code, seconds, error: &str| answer(code, seconds, json!({ "error": error }));
        let pending = |interval, wait| {
            let [interval, wait] = [interval, wait].map(Duration::from_secs);
            Judged::Pending { interval, wait }
        };
        let status = json!({ "kind": "Status", "details": { "retryAfterSeconds": 42 } });
        for (answer, wanted) in [
            (oauth(400, None, "authorization_pending"), pending(5, 5)),
            (oauth(400, None, "slow_down"), pending(10, 10)),
            (oauth(400, Some(30), "slow_down"), pending(10, 30)),
            (oauth(400, Some(1), "slow_down"), pending(10, 10)),
            (answer(429, Some(17), Value::Null), pending(10, 17)),
            (answer(503, None, Value::Null), pending(10, 10)),
            (answer(429, None, status), pending(10, 42)),
        ] {
            assert_eq!(judged(&answer, Duration::from_secs(5)), wanted, "{answer:?}");
        }
        let slow = oauth(400, None, "slow_down");
        assert_eq!(judged(&slow, Duration::from_secs(59)), pending(60, 60));
        for ended in ["access_denied", "expired_token", "invalid_grant"] {
            let ended = judged(&oauth(400, Some(9), ended), Duration::from_secs(5));
            assert!(matches!(ended, Judged::Ended(Err(_))), "{ended:?}");
        }
        let key = answer(200, None, json!({ "access_token": "key" }));
        assert!(matches!(judged(&key, Duration::from_secs(5)), Judged::Ended(Ok(_))));
    }

    #[test]
    fn the_name_of_the_machine_needs_no_escape() {
        let name = host_name();
        assert!(name.len() <= MAX_HOST_CHARS);
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)));
    }
}
