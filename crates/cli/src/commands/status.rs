//! `postern status`: the server, the login, until when the access key is valid, and what is wrong.

use clap::{Args, ValueEnum};
use postern_client::Collection;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::scope::Scope;
use postern_kinds::selves;
use postern_meta::Timestamp;
use postern_meta::time::human_duration;
use serde_json::{Value, json};

use super::whoami;
use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::key_list;
use crate::output::{self, escape};
use crate::process::Process;
use crate::session::Session;

/// The path of the readiness check, and of the version.
const READY_PATH: &str = "/management/readyz";
const VERSION_PATH: &str = "/management/version";
/// A key that ends earlier than this is in a warning.
const ENDS_SOON_SECONDS: i64 = 3 * 24 * 3600;

/// The arguments of `postern status`.
#[derive(Args, Debug)]
pub struct Status {
    /// How to print it [default: text]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Formats for programs.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Format {
    Json,
    Yaml,
}

/// When the access key ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyEnd {
    /// It does not end by itself.
    Never,
    /// At this time, in seconds since 1970.
    At(i64),
    /// The caller cannot read the key.
    Unknown,
}

impl KeyEnd {
    /// The end for people.
    fn described(self, now_unix_seconds: i64) -> String {
        match self {
            Self::Never => "the access key has no end".to_owned(),
            Self::At(end) => {
                let left = human_duration(end.saturating_sub(now_unix_seconds));
                format!("{} (in {left})", Timestamp::from_unix_seconds(end))
            }
            Self::Unknown => "unknown: you have no permission to read the access key".to_owned(),
        }
    }
}

/// What the server said.
struct Answers {
    version: Option<String>,
    own: Option<(selves::Status, KeyEnd)>,
    problems: Vec<CliError>,
}

impl Status {
    /// Asks, and prints the answers. Exit code 1 if something is wrong.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        let answers = ask(&mut session).await;
        let now = process.now_unix_seconds();
        if let Some((_, KeyEnd::At(end))) = &answers.own
            && end.saturating_sub(now) < ENDS_SOON_SECONDS
        {
            process.print_warning("the access key ends soon: create another one, or log in again");
        }
        let text = match self.output {
            Some(Format::Json) => output::json(as_json(&session, &answers)),
            Some(Format::Yaml) => output::yaml(as_json(&session, &answers)),
            None => lines(&session, &answers, now).into(),
        };
        process.print_text(text.as_str())?;
        if answers.problems.is_empty() {
            return Ok(());
        }
        for problem in &answers.problems {
            process.print_error(problem);
        }
        Err(CliError::reported())
    }
}

async fn ask(session: &mut Session) -> Answers {
    let mut problems = Vec::new();
    let version = match session.client.get_of_gateway(VERSION_PATH.to_owned()).await {
        Ok(version) => version["gitVersion"].as_str().map(str::to_owned),
        Err(error) => {
            // Without an answer to this one, there is none to the others.
            let problems = vec![session.explain(&error)];
            return Answers { version: None, own: None, problems };
        }
    };
    if let Err(error) = session.client.get_of_gateway(READY_PATH.to_owned()).await
        && error.status().is_some_and(|status| status.code >= 500)
    {
        problems.push(session.explain(&error).at("the server is not ready"));
    }
    let own = match session.ask_self().await {
        Ok((_, own)) => {
            let end = key_end(session, &own.access_key).await;
            Some((own, end))
        }
        Err(error) => {
            problems.push(session.explain(&error));
            None
        }
    };
    Answers { version, own, problems }
}

/// When the key ends. A key with a scope may not be allowed to read itself.
async fn key_end(session: &mut Session, name: &str) -> KeyEnd {
    let Ok(object) = session.client.get(Collection::of::<OwnedAccessKey>(None), name).await else {
        return KeyEnd::Unknown;
    };
    match session.fields::<OwnedAccessKey>(&object) {
        Ok(fields) => key_list::end_of(&object, &fields).map_or(KeyEnd::Never, KeyEnd::At),
        Err(_) => KeyEnd::Unknown,
    }
}

fn lines(session: &Session, answers: &Answers, now: i64) -> String {
    let version = answers.version.clone().unwrap_or_default();
    let mut rows = match &answers.own {
        Some((own, end)) => {
            let mut rows = whoami::rows(session, own);
            rows.retain(|(name, _)| *name != "Key scope");
            rows.push(("Valid until", end.described(now)));
            rows.push(("Scope", scope_text(own.access_key_scope.as_ref())));
            rows
        }
        None => vec![
            ("Server", session.client.server().to_string()),
            ("Context", session.context.clone().unwrap_or_default()),
        ],
    };
    rows.push(("Server version", version));
    let problems = answers.problems.iter().map(|problem| problem.message.clone());
    let problems = problems.collect::<Vec<_>>().join("; ");
    rows.push(("Problems", if problems.is_empty() { "none".to_owned() } else { problems }));
    let rows = rows.iter().filter(|(_, value)| !value.is_empty());
    let rows: Vec<_> = rows.map(|(name, value)| vec![format!("{name}:"), escape(value)]).collect();
    output::columns(&rows)
}

/// The scope in a line.
fn scope_text(scope: Option<&Scope>) -> String {
    let Some(scope) = scope else {
        return "none: the key may do everything that its owner may".to_owned();
    };
    let mut parts: Vec<String> = Vec::new();
    parts.extend(scope.projects.iter().map(|one| format!("project {}", one.project)));
    parts.extend(scope.spaces.iter().map(|one| format!("space {}/{}", one.project, one.space)));
    let clusters = scope.virtual_clusters.iter();
    parts.extend(
        clusters.map(|one| format!("virtual cluster {}/{}", one.project, one.virtual_cluster)),
    );
    match scope.rules.len() {
        0 => {}
        1 => parts.push("1 rule".to_owned()),
        rules => parts.push(format!("{rules} rules")),
    }
    if scope.allow_platform_cli {
        parts.push("the reads of the command line".to_owned());
    }
    if parts.is_empty() { "no access".to_owned() } else { format!("only {}", parts.join(", ")) }
}

fn as_json(session: &Session, answers: &Answers) -> Value {
    let own = answers.own.as_ref().map(|(own, _)| own);
    let expires = match answers.own {
        Some((_, KeyEnd::At(end))) => Some(Timestamp::from_unix_seconds(end).to_string()),
        _ => None,
    };
    let problems: Vec<_> = answers.problems.iter().map(|problem| &problem.message).collect();
    json!({
        "server": session.client.server().to_string(),
        "serverVersion": answers.version,
        "context": session.context,
        "namespace": own.map(|_| session.namespace()),
        "actingAs": session.client.impersonation().map(|wanted| &wanted.user),
        "user": own.and_then(|own| own.user.as_ref()).map(|user| &user.name),
        "team": own.and_then(|own| own.team.as_ref()).map(|team| &team.name),
        "subject": own.map(|own| &own.subject),
        "accessKey": own.map(|own| &own.access_key),
        "accessKeyExpires": expires,
        "accessKeyScope": own.and_then(|own| own.access_key_scope.as_ref()),
        "problems": problems,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_one_line() {
        let scope = |value: Value| scope_text(Some(&serde_json::from_value(value).unwrap()));
        assert!(scope_text(None).starts_with("none: "));
        assert_eq!(scope(json!({})), "no access");
        let both = json!({ "projects": [{ "project": "web" }], "rules": [{}, {}] });
        assert_eq!(scope(both), "only project web, 2 rules");
        let cli = json!({ "allowPlatformCli": true, "rules": [{}] });
        assert_eq!(scope(cli), "only 1 rule, the reads of the command line");
    }

    #[test]
    fn the_end_of_a_key_is_a_time_and_a_duration() {
        assert_eq!(KeyEnd::At(86_400).described(0), "1970-01-02T00:00:00Z (in 24h)");
        assert!(KeyEnd::Unknown.described(0).contains("no permission"));
    }
}
