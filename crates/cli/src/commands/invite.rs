//! `postern invite`: a login link for another user.

use std::time::Duration;

use clap::Args;
use postern_client::{Collection, Error, Settings, decode_fields};
use postern_kinds::SecretText;
use postern_kinds::console_login_code::{ConsoleLoginCode, Spec};
use postern_kinds::user::User;
use postern_meta::object::{Object, ObjectMeta};

use super::console::login_link;
use super::login::login_command;
use super::new_object;
use crate::duration::display_duration;
use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::output::escape;
use crate::parse;
use crate::process::Process;
use crate::session::Session;

/// How long a link is valid.
#[derive(Args, Debug)]
pub(crate) struct Validity {
    /// How long the login link is valid, at most 72h [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = validity)]
    valid_for: Option<i64>,
}

/// The fields of the request, and the flags that set them.
const FLAGS: [(&str, &str); 1] = [("spec.ttl", "--valid-for")];

/// The longest validity of a link, in seconds.
const VALID_MAX_SECONDS: i64 = 72 * 60 * 60;

/// Parses how long a link is valid, in seconds.
fn validity(text: &str) -> Result<i64, String> {
    let seconds = parse::token_ttl(text)?;
    if seconds > VALID_MAX_SECONDS {
        return Err("a login link is valid for at most 72h".to_owned());
    }
    Ok(seconds)
}

/// The arguments of `postern invite`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  postern invite ada --valid-for 72h")]
pub struct Invite {
    /// The user
    #[arg(value_name = "USER", value_parser = parse::name)]
    name: String,

    #[command(flatten)]
    validity: Validity,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl Invite {
    /// Prints the link.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        process.require_stdout()?;
        let mut session = Session::open(&self.connection, process)?;
        self.validity.invite(&mut session, &self.name, process).await
    }
}

impl Validity {
    /// Whether the flag is given.
    pub(crate) fn is_given(&self) -> bool {
        self.valid_for.is_some()
    }

    /// Checks that the server makes login links for this caller, before the user exists.
    pub(crate) async fn check(&self, session: &mut Session, user: &str) -> Result<(), CliError> {
        match self.make_code(session, user, true).await? {
            Ok(_) => Ok(()),
            Err(error) if error.status().is_some_and(|status| status.code == 404) => Ok(()),
            Err(error) => {
                let explained = session.explain_by_flags(&error, &FLAGS);
                Err(explained.hint("nothing was done: without --invite, the user can be created"))
            }
        }
    }

    /// Has the server make a code, or only check whether it would.
    async fn make_code(
        &self,
        session: &mut Session,
        user: &str,
        dry_run: bool,
    ) -> Result<Result<Object, Error>, CliError> {
        let users = Collection::of::<User>(None);
        let spec = Spec { ttl: self.valid_for.unwrap_or_default() };
        let body = new_object::<ConsoleLoginCode>(ObjectMeta::default(), spec)?;
        Ok(session.client.act(users, user, "logincode", &body, dry_run).await)
    }

    /// Makes a login link for a user, and prints only the link on the standard output.
    pub(crate) async fn invite(
        &self,
        session: &mut Session,
        user: &str,
        process: &Process,
    ) -> Result<(), CliError> {
        let made = self.make_code(session, user, false).await?;
        let made = made.map_err(|error| session.explain_by_flags(&error, &FLAGS))?;
        let made =
            decode_fields::<ConsoleLoginCode>(&made).map_err(|error| session.explain(&error))?;
        let link = login_link(session, &made.status.code);
        process.print_value(&SecretText::from(link))?;
        let valid = Duration::from_secs(u64::try_from(made.spec.ttl).unwrap_or_default());
        process.print_status(&format!(
            "the link is valid for {}, and for one login as {}: send it to this user alone. To withdraw it: postern delete \
             accesskey {}",
            display_duration(valid),
            escape(&made.status.user_name),
            escape(&made.status.access_key)
        ));
        let Settings { server, trust, .. } = session.client.settings();
        let login = login_command(server, trust);
        process.print_status(&format!("then, on the command line of this user: {login}"));
        Ok(())
    }
}
