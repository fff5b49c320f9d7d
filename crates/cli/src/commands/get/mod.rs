//! `postern get`: objects of any kind, by name or all of them, as kubectl prints them. `print.rs`
//! prints the objects, and `watching.rs` prints changes. One secret by name, with its keys and
//! values, is in `secrets.rs`.

mod print;
mod watching;

use clap::Args;
use postern_client::{Collection, Error, Representation, Selection};
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::{Info, Kind as _, Verb};
use postern_meta::status::Reason;
use serde_json::Value;

use self::print::Objects;
use super::by_kind::NamespaceArgs as _;
use super::list::ListNamespaces;
use super::secrets::{GetSecret, LocationFlags};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, LabelFlag};
use crate::jsonpath::Path;
use crate::output_format::{OutputFormat, OutputParser, representation};
use crate::process::Process;
use crate::resources::{self, ObjectWords, Wanted};
use crate::session::Session;
use crate::variables::VariableFlags;
use crate::{kinds, parse};

/// Print objects: all of a kind, or those that are named.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern get users\n  \
    postern get users,teams -o wide\n  \
    postern get user ada bob -o yaml\n  \
    postern get user/ada team/red -o name\n  \
    postern get secrets -A -l team=red --sort-by .metadata.creationTimestamp\n  \
    postern get clusters -w\n  \
    postern get secret db.password\n  \
    postern get secret db -o env --only user,password\n  \
    postern get secret db --only user,password --watch -o dotenv")]
#[command(mut_arg("words", |arg| arg.help(
    "A kind, or several with commas, and the names of objects; or KIND/NAME, which may be repeated. \
     `secret NAME[.KEY]` is one secret, or one key of it"
)))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of kubectl")]
pub struct Get {
    #[command(flatten)]
    objects: ObjectWords,

    /// How to print them [default: a table; of one secret its keys, of one key the value]
    #[arg(short, long, value_name = "FORMAT", value_parser = OutputParser)]
    output: Option<OutputFormat>,

    #[command(flatten)]
    namespaces: ListNamespaces,

    #[command(flatten)]
    labels: LabelFlag,

    /// Only objects with these fields: metadata.name=db
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,

    /// Print the objects, and then each change
    #[arg(short, long)]
    watch: bool,

    /// Print only the changes from now on
    #[arg(long)]
    watch_only: bool,

    /// Sort the objects by the values at this path: .metadata.creationTimestamp
    #[arg(long, value_name = "PATH", value_parser = Path::parse, conflicts_with_all = ["watch", "watch_only"])]
    sort_by: Option<Path>,

    /// Print a table without headings
    #[arg(long)]
    no_headers: bool,

    /// Print the labels as the last column of a table
    #[arg(long)]
    show_labels: bool,

    /// Do not fail when a named object does not exist
    #[arg(long)]
    ignore_not_found: bool,

    #[command(flatten)]
    secret: SecretFlags,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Flags for one secret: `get secret NAME`.
#[derive(Args, Debug)]
#[command(next_help_heading = "One secret")]
struct SecretFlags {
    /// The key; NAME is then the whole name of the secret, also with dots
    #[arg(long, value_name = "KEY", value_parser = parse::data_key)]
    key: Option<String>,

    /// Use the argument as the whole name of the secret, dots included
    #[arg(long, conflicts_with = "key")]
    whole: bool,

    /// Also print the values in the table of keys
    #[arg(long, conflicts_with = "output")]
    all: bool,

    /// Use the project secrets of this project
    #[arg(long, value_name = "PROJECT", value_parser = parse::name, conflicts_with_all = ["namespace", "all_namespaces"])]
    project: Option<String>,

    #[command(flatten)]
    variables: VariableFlags,
}

impl SecretFlags {
    fn is_used(&self) -> bool {
        self.key.is_some()
            || self.whole
            || self.all
            || self.project.is_some()
            || self.variables.is_used()
    }
}

impl Get {
    /// Reads, and prints.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        if self.is_one_secret() {
            return self.one_secret()?.run(process).await;
        }
        let wanted = resources::wanted(&self.objects.words, Verb::Get)?;
        self.check(&wanted)?;
        let mut session = Session::open(&self.connection, process)?;
        if self.watch || self.watch_only {
            return self.watch_objects(&mut session, &wanted, process).await;
        }
        let (objects, mut failures) = self.read(&mut session, &wanted).await?;
        self.print(objects, &wanted, process)?;
        if failures.len() == 1 {
            return Err(failures.remove(0));
        }
        for error in &failures {
            process.print_error(error);
        }
        if failures.is_empty() { Ok(()) } else { Err(CliError::reported()) }
    }

    /// Whether it is about the keys and values of one secret: `get secret NAME`, in a format that kubectl does not have
    /// for several objects.
    fn is_one_secret(&self) -> bool {
        let [kind, _] = &self.objects.words[..] else { return false };
        let found = kinds::find(&kind.to_ascii_lowercase(), kinds::all());
        if found.is_none_or(|info| info.kind != SharedSecret::INFO.kind) {
            return false;
        }
        let is_for_objects = self.namespaces.all_namespaces
            || self.labels.selector.is_some()
            || self.field_selector.is_some()
            || self.watch_only
            || self.sort_by.is_some()
            || self.no_headers
            || self.show_labels;
        let has_format = match self.output {
            None => !self.watch,
            Some(OutputFormat::Json | OutputFormat::Yaml) => true,
            Some(ref format) => format.is_for_secret(),
        };
        !is_for_objects && has_format
    }

    fn one_secret(self) -> Result<GetSecret, CliError> {
        let written = self.objects.words.last().map_or("", String::as_str);
        let path = parse::secret_path(written)
            .map_err(|what| CliError::usage(format!("invalid NAME[.KEY]: {what}")))?;
        let SecretFlags { key, whole, all, project, variables } = self.secret;
        Ok(GetSecret {
            path,
            key,
            whole,
            output: self.output,
            all,
            watch: self.watch,
            ignore_not_found: self.ignore_not_found,
            variables,
            location: LocationFlags { namespace: self.namespaces.namespace, project },
            connection: self.connection,
        })
    }

    /// Refuses flags that make no sense together, before any request.
    fn check(&self, wanted: &[Wanted]) -> Result<(), CliError> {
        let for_secret = self.output.as_ref().is_some_and(OutputFormat::is_for_secret);
        if for_secret || self.secret.is_used() {
            let message = "-o value, -o env, -o dotenv, --key, --whole, --all, --project, --prefix, --map and \
                           --only are for one secret";
            return Err(CliError::usage(message).hint("postern get secret NAME"));
        }
        let is_table = matches!(self.output, None | Some(OutputFormat::Wide));
        if self.show_labels && !is_table {
            let message = "--show-labels cannot be used with this -o: only tables have labels";
            return Err(CliError::usage(message));
        }
        let named = wanted.iter().find(|one| one.name.is_some());
        if let Some(one) = wanted.iter().find(|one| one.name.is_none() && !can_list(one.info)) {
            let message = format!("{} needs the NAME of an object", kinds::name(one.info));
            return Err(CliError::usage(message));
        }
        if named.is_some() && self.namespaces.all_namespaces {
            return Err(CliError::usage("an object with a name is in one namespace: omit -A"));
        }
        if named.is_some() && (self.labels.selector.is_some() || self.field_selector.is_some()) {
            return Err(CliError::usage("names and selectors cannot be used together"));
        }
        Ok(())
    }

    fn selection(&self) -> Selection {
        let fields = self.field_selector.clone().unwrap_or_default();
        Selection { fields, ..self.labels.selection() }
    }

    fn representation(&self) -> Representation {
        representation(self.output.as_ref(), self.sort_by.as_ref())
    }

    /// The namespace of the objects of a kind, unless it is all of them.
    async fn namespace_of(
        &self,
        session: &mut Session,
        info: &Info,
    ) -> Result<Option<String>, CliError> {
        match self.namespaces.flag().filter(|_| info.is_namespaced()) {
            Some(flag) => session.namespace_of(flag).await.map(Some),
            None => Ok(None),
        }
    }

    /// Reads the objects, kind by kind, and goes on after an error that is about one of them.
    async fn read(
        &self,
        session: &mut Session,
        wanted: &[Wanted],
    ) -> Result<(Vec<Objects>, Vec<CliError>), CliError> {
        let mut all: Vec<Objects> = Vec::new();
        let mut failures = Vec::new();
        for one in wanted {
            let namespace = self.namespace_of(session, one.info).await?;
            let of = Collection::new(one.info, namespace.as_deref());
            let read = match &one.name {
                None => {
                    let selection = self.selection();
                    session.client.list_selected(of, self.representation(), &selection).await
                }
                Some(name) => session.client.get_as(of, name, self.representation()).await,
            };
            let value = match (read, &one.name) {
                (Ok(value), _) => value,
                (Err(error), Some(name)) if self.ignores(&error) => {
                    if let Some(hint) = one_value(one.info, name, &error) {
                        session.note(&hint);
                    }
                    continue;
                }
                (Err(error), name) => {
                    let explained = match name {
                        Some(name) => explain_named(session, of, name, &error).await,
                        None => session.explain(&error),
                    };
                    if error.fails_all_requests() {
                        return Err(explained);
                    }
                    failures.push(explained);
                    continue;
                }
            };
            let is_list = one.name.is_none();
            let parts = Objects::new(one.info, namespace, value, self.representation(), is_list);
            match all.last_mut().filter(|last| last.info.kind == parts.info.kind && !is_list) {
                Some(last) => last.items.extend(parts.items),
                None => all.push(parts),
            }
        }
        Ok((all, failures))
    }

    fn ignores(&self, error: &Error) -> bool {
        self.ignore_not_found && error.reason() == Some(Reason::NotFound)
    }
}

/// Why an object with a name was not read.
async fn explain_named(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    error: &Error,
) -> CliError {
    let mut explained = session.explain_named(of, name, error).await;
    explained.hints.extend(one_value(of.info(), name, error));
    explained
}

/// How to get one value, where `NAME.KEY` was taken as the name of a secret that does not exist.
fn one_value(info: &Info, name: &str, error: &Error) -> Option<String> {
    let is_meant = info.kind == SharedSecret::INFO.kind
        && name.contains('.')
        && error.reason() == Some(Reason::NotFound);
    is_meant.then(|| {
        format!(
            "{name} was taken as the name of a secret. One value of a secret is `postern get secret \
             NAME.KEY` with one argument, and without -o or with -o value, env, dotenv, json or \
             yaml"
        )
    })
}

/// Whether all objects of the kind can be listed.
fn can_list(info: &Info) -> bool {
    info.serves(Verb::List)
}

/// The metadata of an object, or of the object in the row of a table.
fn object_of(item: &Value, representation: Representation) -> &Value {
    if representation.is_table() { &item["object"] } else { item }
}
