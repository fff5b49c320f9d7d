//! `postern test`: whether what the server depends on can be used.

use clap::{Args, Subcommand};
use postern_client::{Collection, decode_fields};
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

/// What is tested.
#[derive(Subcommand, Debug)]
pub enum Test {
    /// Test a connector: whether the server can use the identity provider.
    ///
    /// The server fetches the discovery document and the keys of the provider, and looks for the client secret. The
    /// command prints the redirect URI to register at the provider, and the address of a trial login. A trial login shows the
    /// claims and the teams of the person who logs in, and begins no session. The exit code is 1 if a check fails. You
    /// need `get` on connectors/test.
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

impl Test {
    /// Tests, and prints the result.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let Self::Connector(command) = self;
        command.run(process).await
    }
}

impl TestConnector {
    async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        let of = Collection::of::<Connector>(None);
        let object = match session.client.get_part(of, &self.name, TEST).await {
            Ok(object) => object,
            Err(error) => return Err(session.explain_named(of, &self.name, &error).await),
        };
        let tested = decode_fields::<ConnectorTest>(&object);
        let tested = tested.map_err(|error| session.explain(&error))?.spec;
        let text = match self.output {
            None => lines(&tested).into(),
            Some(ObjectFormat::Json) => output::json(object.into_value()),
            Some(ObjectFormat::Yaml) => output::yaml(object.into_value()),
            Some(ObjectFormat::Name) => format!("connectortest/{}\n", self.name).into(),
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
