//! `postern test`: whether the server can use the systems that it depends on.

use clap::{Args, Subcommand};
use postern_client::Collection;
use postern_kinds::connector::Connector;
use postern_kinds::connector_test::{ConnectorTest, Spec};

use crate::error::CliError;
use crate::flags::{ConnectionFlags, ObjectFormat};
use crate::output::{self, escape};
use crate::parse;
use crate::process::Process;
use crate::session::Session;

/// The subresource of connectors.
const TEST: &str = "test";

/// The system to test.
#[derive(Subcommand, Debug)]
pub enum Test {
    /// Test a connector: whether the server can use the identity provider.
    ///
    /// The server fetches the discovery document and the keys of the provider, and looks for the
    /// client secret. The command prints the redirect URI to register at the provider, and the
    /// address of a trial login. A trial login shows the claims and the teams of the person, and
    /// begins no session. The exit code is 1 if a check fails. You need `get` on connectors/test.
    #[command(
        after_help = "Examples:\n  postern test connector corp\n  postern test connector corp -o json"
    )]
    Connector(TestConnector),
}

/// The arguments of `postern test connector`.
#[derive(Args, Debug)]
pub struct TestConnector {
    /// The name of the connector
    #[arg(value_parser = parse::name)]
    name: String,

    /// How to print it [default: a table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl TestConnector {
    /// Tests, and prints the result.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        let of = Collection::of::<Connector>(None);
        let object = session.client.get_part(of, &self.name, TEST).await;
        let object = session.answer(of, &self.name, object).await?;
        let tested = session.fields::<ConnectorTest>(&object)?.spec;
        let text = match self.output {
            None => lines(&tested).into(),
            Some(format) => {
                let name = format!("connectortest/{}", self.name);
                output::formatted(object.into_value(), format, &name)
            }
        };
        process.print_text(text.as_str())?;
        let failed = tested.checks.iter().filter(|check| !check.passed).count();
        if failed == 0 {
            return Ok(());
        }
        Err(CliError::new(format!(
            "{failed} of {} checks of the connector {:?} failed",
            tested.checks.len(),
            self.name
        )))
    }
}

fn lines(tested: &Spec) -> String {
    let headings = ["CHECK", "PASSED", "MESSAGE"].map(str::to_owned).to_vec();
    let row = |check: &postern_kinds::connector_test::Check| {
        let passed = if check.passed { "yes" } else { "no" };
        vec![escape(&check.name), passed.to_owned(), escape(&check.message)]
    };
    let table = output::table(headings, tested.checks.iter().map(row).collect());
    let (redirect, trial) = (escape(&tested.redirect_uri), escape(&tested.trial_url));
    let after_logout = match escape(&tested.logout_redirect_uri) {
        uri if uri.is_empty() => String::new(),
        uri => format!("After logout:  {uri}\n"),
    };
    format!("{table}\nRedirect URI:  {redirect}\n{after_logout}Trial login:   {trial}\n")
}
