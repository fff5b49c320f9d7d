//! `postern whoami`: the owner of the access key, or the impersonated user.

use clap::Args;
use postern_kinds::Kind as _;
use postern_kinds::selves::Status;

use crate::error::CliError;
use crate::flags::{ConnectionFlags, ObjectFormat};
use crate::output::{self, escape};
use crate::process::Process;
use crate::session::Session;

/// Print the identity of the access key, or the impersonated identity.
#[derive(Args, Debug)]
pub struct Whoami {
    /// How to print it [default: text]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl Whoami {
    /// Asks, and prints the answer.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        let asked = session.ask_self().await;
        let (object, status) = asked.map_err(|error| session.explain(&error))?;
        let text = match self.output {
            None => lines(&session, &status).into(),
            Some(format) => output::formatted(object.into_value(), format, &name_of(&status)),
        };
        process.print_text(text.as_str())
    }
}

/// The owner of the key, for a sentence.
pub(crate) fn owner(status: &Status) -> String {
    match (&status.user, &status.team) {
        (Some(user), _) => format!("the user {}", escape(&user.name)),
        (None, Some(team)) => format!("the team {}", escape(&team.name)),
        (None, None) => escape(&status.subject),
    }
}

fn name_of(status: &Status) -> String {
    match (&status.user, &status.team) {
        (Some(user), _) => output::full_name(&postern_kinds::user::User::INFO, &user.name),
        (None, Some(team)) => output::full_name(&postern_kinds::team::Team::INFO, &team.name),
        (None, None) => format!("subject/{}", escape(&status.subject)),
    }
}

fn lines(session: &Session, status: &Status) -> String {
    let rows = rows(session, status);
    let rows = rows.iter().filter(|(_, value)| !value.is_empty());
    let rows: Vec<_> = rows.map(|(name, value)| vec![format!("{name}:"), escape(value)]).collect();
    output::columns(&rows)
}

/// The identity in lines with a label each. A value may be empty.
pub(super) fn rows(session: &Session, status: &Status) -> Vec<(&'static str, String)> {
    let user = status.user.clone().unwrap_or_default();
    let team = status.team.clone().unwrap_or_default();
    let teams: Vec<_> = user.teams.iter().map(|team| team.name.as_str()).collect();
    let display_name =
        if user.display_name.is_empty() { team.display_name } else { user.display_name };
    let acting_as = session.client.impersonation().map_or("", |wanted| &wanted.user);
    let scope = status.access_key_scope.is_some();
    vec![
        ("User", user.name),
        ("Team", team.name),
        ("Display name", display_name),
        ("Email", user.email),
        ("Teams", teams.join(", ")),
        ("Subject", status.subject.clone()),
        ("Groups", status.groups.join(", ")),
        ("Access key", status.access_key.clone()),
        ("Key type", status.access_key_type.clone()),
        ("Key scope", if scope { "limited; see -o yaml".to_owned() } else { String::new() }),
        ("Acting as", acting_as.to_owned()),
        ("Server", session.client.server().to_string()),
        ("Context", session.context.clone().unwrap_or_default()),
        ("Namespace", session.namespace().to_owned()),
    ]
}
