//! Lists, as the server tells them.

use clap::{Args, Subcommand};
use postern_client::{Collection, Form};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{Info, Kind as _};
use serde_json::Value;

use crate::connect::Session;
use crate::failure::Failure;
use crate::flags::{Connection, ListFormat, Namespace};
use crate::output;
use crate::surroundings::Surroundings;

/// What can be listed.
#[derive(Subcommand, Debug)]
pub enum List {
    /// List the shared secrets of a namespace; their values are not shown.
    #[command(alias = "secret")]
    Secrets(Secrets),
    /// List the access keys that you may see.
    #[command(name = "accesskeys", aliases = ["accesskey", "keys"])]
    AccessKeys(Whole),
    /// List users.
    #[command(alias = "user")]
    Users(Whole),
    /// List teams.
    #[command(alias = "team")]
    Teams(Whole),
}

/// A list of secrets.
#[derive(Args, Debug)]
pub struct Secrets {
    #[command(flatten)]
    namespace: Namespace,

    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    #[command(flatten)]
    whole: Whole,
}

/// A list of what has no namespace.
#[derive(Args, Debug)]
pub struct Whole {
    /// How to print it [default: a table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ListFormat>,

    #[command(flatten)]
    connection: Connection,
}

impl List {
    /// Lists.
    pub(crate) async fn run(self, surroundings: &Surroundings) -> Result<(), Failure> {
        match self {
            Self::Secrets(Secrets { namespace, all_namespaces, whole }) => {
                let mut session = Session::open(&whole.connection, surroundings)?;
                let namespace = namespace.namespace.unwrap_or_else(|| session.namespace.clone());
                let namespace = (!all_namespaces).then_some(namespace.as_str());
                let of = Collection::of::<SharedSecret>(namespace);
                show(&mut session, of, whole.output, surroundings).await
            }
            Self::AccessKeys(whole) => whole.run(&OwnedAccessKey::INFO, surroundings).await,
            Self::Users(whole) => whole.run(&User::INFO, surroundings).await,
            Self::Teams(whole) => whole.run(&Team::INFO, surroundings).await,
        }
    }
}

impl Whole {
    async fn run(self, info: &'static Info, surroundings: &Surroundings) -> Result<(), Failure> {
        let mut session = Session::open(&self.connection, surroundings)?;
        let of = Collection::new(info, None);
        show(&mut session, of, self.output, surroundings).await
    }
}

async fn show(
    session: &mut Session,
    of: Collection<'_>,
    format: Option<ListFormat>,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let form = match format {
        None | Some(ListFormat::Wide) => Form::Table,
        Some(ListFormat::Name) => Form::Metadata,
        Some(ListFormat::Json | ListFormat::Yaml) => Form::Whole,
    };
    let list = session.client.list(of, form).await.map_err(|error| session.explain(&error))?;
    let text = match format {
        Some(ListFormat::Json) => output::json(list),
        Some(ListFormat::Yaml) => output::yaml(list),
        Some(ListFormat::Name) => names(&list, of.info()).into(),
        None | Some(ListFormat::Wide) => {
            if list["rows"].as_array().is_none_or(Vec::is_empty) {
                surroundings.say(&nothing(of));
                return Ok(());
            }
            let everywhere = of.info().is_namespaced() && of.namespace().is_none();
            output::server_table(&list, format.is_some(), everywhere).into()
        }
    };
    surroundings.out(text.as_bytes())
}

fn nothing(of: Collection<'_>) -> String {
    match of.namespace() {
        Some(namespace) => format!("no {} in the namespace {namespace}", of.info().plural),
        None => format!("no {}", of.info().plural),
    }
}

fn names(list: &Value, info: &Info) -> String {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = items.iter().filter_map(|item| item["metadata"]["name"].as_str());
    names.map(|name| output::full_name(info, name) + "\n").collect()
}
