//! `postern version`: the versions of this program and of the server.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::output::{self, escape};
use crate::process::Process;
use crate::session::Session;

/// Print the version of this program, and that of the server.
#[derive(Args, Debug)]
pub struct Version {
    /// Print the version of this program alone, and send no request
    #[arg(long)]
    client: bool,

    /// How to print it [default: text]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// The fields of both formats: `clientVersion.version`, and the server's `/version` as `serverVersion`.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Format {
    Json,
    Yaml,
}

impl Version {
    /// Prints both versions. Without a response, the version of this program is printed before the
    /// error.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let asked = if self.client { Ok(None) } else { self.ask(process).await.map(Some) };
        let server = asked.as_ref().ok().and_then(Option::as_ref);
        process.print_text(self.text(server))?;
        asked.map(drop)
    }

    /// The server's document. Its path is public, so an access key that has expired is no error.
    async fn ask(&self, process: &Process) -> Result<Value, CliError> {
        let mut session = Session::open(&self.connection, process)?;
        let answer = session.client.get_of_gateway("/management/version".to_owned()).await;
        answer.map_err(|error| session.explain(&error))
    }

    fn text(&self, server: Option<&Value>) -> String {
        let own = concat!("v", env!("CARGO_PKG_VERSION"));
        let Some(format) = self.output else {
            let server =
                server.map(|server| escape(server["gitVersion"].as_str().unwrap_or("unknown")));
            let line = server.map(|version| format!("Server version: {version}\n"));
            return format!("Client version: {own}\n{}", line.unwrap_or_default());
        };
        let mut versions = json!({ "clientVersion": { "version": own } });
        if let Some(server) = server {
            versions["serverVersion"] = server.clone();
        }
        match format {
            Format::Json => output::json(versions).to_string(),
            Format::Yaml => output::yaml(versions).to_string(),
        }
    }
}
