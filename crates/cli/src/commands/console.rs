//! `postern console`: a login link for the web console.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use postern_client::decode_fields;
use postern_kinds::SecretText;
use postern_kinds::console_login_code::{ConsoleLoginCode, Status};

use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::output::escape;
use crate::process::Process;
use crate::session::Session;

/// The path of the console, and of its page that takes a code.
const CONSOLE_PATH: &str = "/ui/";
const LOGIN_PATH: &str = "/ui/login#code=";

/// The path at which the server makes codes.
const CODE_PATH: &str = "/auth/code";

/// The arguments of `postern console`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  postern console\n  postern console --print")]
pub struct Console {
    /// Print the link, and open no browser
    #[arg(long)]
    print: bool,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl Console {
    /// Opens the console in the browser, or prints the link.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        let Link { login, user, .. } = Link::of(&mut session).await?;
        let user = escape(&user);
        if !self.print && process.open_in_browser(&login) {
            process.print_status(&format!("the console opens in the browser, as {user}"));
            return Ok(());
        }
        process.print_value(&SecretText::from(login))?;
        process.print_status(&format!(
            "the link is valid for 60 seconds, and for one login as {user}"
        ));
        Ok(())
    }
}

/// The login link with a code. Browsers do not send the part with the code.
pub(super) fn login_link(session: &Session, code: &SecretText) -> String {
    session.client.server().at_root(LOGIN_PATH) + code.expose()
}

/// A login link, and the address of the console.
#[derive(Debug)]
pub struct Link {
    /// The address of the console.
    pub console: String,
    /// The login link.
    pub login: String,
    /// The name of the user that it logs in.
    pub user: String,
}

impl Link {
    async fn of(session: &mut Session) -> Result<Self, CliError> {
        let made = session.client.create_at_root(CODE_PATH).await;
        let made = made.and_then(|object| decode_fields::<ConsoleLoginCode>(&object));
        let Status { code, user_name, .. } = made.map_err(|error| session.explain(&error))?.status;
        let login = login_link(session, &code);
        let console = session.client.server().at_root(CONSOLE_PATH);
        Ok(Self { console, login, user: user_name })
    }

    /// A login link with the access key of a kubeconfig. The environment is ignored.
    pub(crate) async fn by_kubeconfig(
        path: &Path,
        timeout: Duration,
        process: &Process,
    ) -> Result<Self, CliError> {
        let mut session = Session::of_file(path, timeout, process)?;
        Self::of(&mut session).await
    }
}
