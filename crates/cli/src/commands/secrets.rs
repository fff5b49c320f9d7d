//! `postern get secret` and `postern set secret`: reading and writing the values of shared secrets, and of
//! those of a project.
//! The requests for one secret are in `secret_read.rs`. Watching one secret is in `secret_watch.rs`, listing and deleting secrets in the verbs' own files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use postern_client::{Collection, Representation};
use postern_kinds::project::namespace_of;
use postern_kinds::project_secret::{self, ProjectSecret};
use postern_kinds::shared_secret::{self, MAX_DATA_BYTES, SharedSecret};
use postern_kinds::{Info, Kind as _, SecretText};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::Reason;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::new_object;
use super::secret_names::{FindError, GivenPath, NotFound, NotUnique};
use super::secret_read::{Need, ReadSecret, Search, Sizes, read};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag};
use crate::output::{self, controls_terminal, escape};
use crate::output_format::OutputFormat;
use crate::parse::{self, SecretPath};
use crate::process::{Process, read_file};
use crate::session::Session;
use crate::variables::{Data, VariableFlags, dotenv_lines, shell_lines};
use crate::{base64_text, kinds};

/// How often a write is tried when others write the same secret.
const WRITES_MAX: usize = 5;

/// The values that can be set.
#[derive(Subcommand, Debug)]
pub enum Set {
    /// Set one value of a secret, which is created if it does not exist; other keys stay.
    ///
    /// Without VALUE and --from-file the value is read from the standard input, byte for byte; on a terminal,
    /// the command asks for it and does not display it. A VALUE on the command line is visible in the list of
    /// processes and in the shell's history. An empty value is an error without --allow-empty.
    ///
    /// NAME ends at the first dot. If only a secret with a longer name exists, the command sets nothing: pass
    /// --key to name the secret.
    #[command(
        name = kinds::name(&SharedSecret::INFO),
        visible_aliases = kinds::visible_aliases(&SharedSecret::INFO),
        aliases = kinds::hidden_aliases(&SharedSecret::INFO),
    )]
    Secret(SetSecret),
}

/// A secret to get: `get secret NAME[.KEY]`.
///
/// NAME ends at the first dot. If this secret or its key does not exist, the command tries longer names. For a.b.c,
/// these are the secret a.b.c, and the key c of a.b.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(super) struct GetSecret {
    /// The secret, or one key of it.
    pub(super) path: SecretPath,
    /// The key, where the path is the whole name of the secret.
    pub(super) key: Option<String>,
    /// Whether the path is the whole name of the secret.
    pub(super) whole: bool,
    /// How it is printed.
    pub(super) output: Option<OutputFormat>,
    /// Whether the table of the keys has the values.
    pub(super) all: bool,
    /// Whether each change is printed, too.
    pub(super) watch: bool,
    /// Whether a secret or key that does not exist is no error.
    pub(super) ignore_not_found: bool,
    /// The names of variables.
    pub(super) variables: VariableFlags,
    /// Where the secret is.
    pub(super) location: LocationFlags,
    /// Which server.
    pub(super) connection: ConnectionFlags,
}

/// A secret to set.
#[derive(Args, Debug)]
pub struct SetSecret {
    /// The secret and the key in it
    #[arg(value_name = "NAME.KEY", value_parser = parse::secret_path)]
    path: SecretPath,

    /// The value; - reads it from the standard input. Put one that begins with a dash after --
    #[arg(value_parser = parse::hidden, conflicts_with = "from_file")]
    value: Option<SecretText>,

    /// The key; NAME is then the whole name of the secret, also with dots
    #[arg(long, value_name = "KEY", value_parser = parse::data_key)]
    key: Option<String>,

    /// Take the value from this file, byte for byte
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,

    /// Store an empty value too. Without, it is an error: a command or a variable may have failed
    #[arg(long)]
    allow_empty: bool,

    /// Print KIND/NAME of the secret
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,

    #[command(flatten)]
    location: LocationFlags,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Where a secret is: in a namespace, or in a project.
#[derive(Args, Debug)]
pub(super) struct LocationFlags {
    #[command(flatten)]
    pub(super) namespace: NamespaceFlag,

    /// Use the project secrets of this project
    #[arg(long, value_name = "PROJECT", value_parser = parse::name, conflicts_with = "namespace")]
    pub(super) project: Option<String>,
}

impl LocationFlags {
    /// The kind of the secret, and its namespace. The server is asked for names of namespaces, if necessary.
    pub(super) async fn locate(
        &self,
        session: &mut Session,
    ) -> Result<(&'static Info, String), CliError> {
        let Some(project) = &self.project else {
            return Ok((&SharedSecret::INFO, session.namespace_of(&self.namespace).await?));
        };
        session.load_names().await?;
        Ok((&ProjectSecret::INFO, namespace_of(project)))
    }
}

impl GetSecret {
    /// Reads a secret, and prints the requested part.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let given = GivenPath::new(&self.path, self.key.as_ref(), self.whole)?;
        self.check(&given.path)?;
        let mut session = Session::open(&self.connection, process)?;
        let (info, namespace) = self.location.locate(&mut session).await?;
        let of = Collection::new(info, Some(&namespace));
        let with_key = self.output == Some(OutputFormat::Value);
        let search = Search { with_key, need: self.need(given.path.key.is_some()) };
        let found = match find(&mut session, of, &given, search, process).await {
            Ok(found) => found,
            Err(missing)
                if self.ignore_not_found && missing.is_certain() && given.others().is_some() =>
            {
                return Ok(());
            }
            Err(missing) => return Err(explain_missing(&mut session, of, &given, missing).await),
        };
        if self.watch {
            return self.watch(&mut session, of, found.path, process).await;
        }
        process.print_text(self.text(found, process)?.as_slice())
    }

    /// The parts of the secret that are printed. A watch reads the secret again.
    fn need(&self, has_key: bool) -> Need {
        match self.output {
            _ if self.watch => Need::Names,
            Some(OutputFormat::Json | OutputFormat::Yaml) => Need::Object,
            None if !has_key && !self.all => Need::Names,
            _ => Need::Values,
        }
    }

    /// Refuses arguments that make no sense, before any request.
    fn check(&self, path: &SecretPath) -> Result<(), CliError> {
        let written = path.written();
        if self.all && path.key.is_some() {
            return Err(CliError::usage(format!(
                "--all prints every key, but {written} names one \
                                                key"
            ))
            .hint("if it is the whole name of a secret, add --whole"));
        }
        self.variables.check()?;
        let has_variables = matches!(self.output, Some(OutputFormat::Env | OutputFormat::Dotenv));
        if self.variables.is_used() && !has_variables {
            return Err(CliError::usage("--prefix, --map and --only are for -o env and -o dotenv"));
        }
        if self.watch && self.output == Some(OutputFormat::Value) {
            return Err(CliError::usage("--watch prints values with -o env, -o dotenv or -o json"));
        }
        if self.output == Some(OutputFormat::Value) && path.key.is_none() {
            let name =
                if self.whole { format!("{written} --key KEY") } else { format!("{written}.KEY") };
            return Err(CliError::usage("-o value prints one value: pass NAME.KEY")
                .hint(format!("postern get secret {name}"))
                .hint(format!("postern get secret {written} lists the keys")));
        }
        Ok(())
    }

    /// The secret as it is printed.
    pub(super) fn text(
        &self,
        found: ReadSecret,
        process: &Process,
    ) -> Result<Zeroizing<Vec<u8>>, CliError> {
        let ReadSecret { path, mut object, mut data, sizes } = found;
        if let Some(key) = &path.key {
            keep_only(&mut object, key);
            data.retain(|other, _| other == key);
        }
        let bytes = |text: Zeroizing<String>| Zeroizing::new(text.as_bytes().to_vec());
        match (&self.output, &path.key) {
            (Some(OutputFormat::Json), _) => Ok(bytes(output::json(object.into_value()))),
            (Some(OutputFormat::Yaml), _) => Ok(bytes(output::yaml(object.into_value()))),
            (Some(format @ (OutputFormat::Env | OutputFormat::Dotenv)), _) => {
                let variables = self.variables.variables(&[(&path.name, &data)])?;
                let text = match format {
                    OutputFormat::Env => shell_lines(&variables),
                    _ => dotenv_lines(&variables)?,
                };
                check_terminal(&path.written(), &text, process)?;
                Ok(text)
            }
            (_, Some(key)) => value_text(&path, &data[key], process),
            (_, None) if data.is_empty() && sizes.is_empty() => {
                process.print_status(&format!("the secret {} has no keys", path.name));
                Ok(Zeroizing::default())
            }
            (_, None) if data.is_empty() => Ok(bytes(size_table(&sizes))),
            (_, None) => Ok(bytes(key_table(&data, self.all)?)),
        }
    }
}

/// Reads the secret, and says which it is where the name is longer than up to the first dot.
pub(super) async fn find_secret(
    session: &mut Session,
    of: Collection<'_>,
    given: &GivenPath,
    search: Search,
    process: &Process,
) -> Result<ReadSecret, CliError> {
    match find(session, of, given, search, process).await {
        Ok(secret) => Ok(secret),
        Err(missing) => Err(explain_missing(session, of, given, missing).await),
    }
}

/// Reads the secret as [`find_secret`] does. The error is not explained yet: a missing secret may be no error.
async fn find(
    session: &mut Session,
    of: Collection<'_>,
    given: &GivenPath,
    search: Search,
    process: &Process,
) -> Result<ReadSecret, NotFound> {
    let Search { with_key, need } = search;
    let found = given.find(with_key, async |path| read(session, of, path, need).await).await?;
    if found.path != given.path {
        process.print_note(&found.path.describe());
    }
    Ok(found)
}

/// Why a secret could not be read, and how to say which is meant.
async fn explain_missing(
    session: &mut Session,
    of: Collection<'_>,
    given: &GivenPath,
    missing: NotFound,
) -> CliError {
    let NotFound { reason, unknown } = missing;
    let mut is_open = unknown.is_some() || given.others().is_none();
    let explained = match reason {
        FindError::NoKey(error) => error,
        FindError::Request(error) => {
            is_open |= error.reason() == Some(Reason::Forbidden);
            session.explain_named(of, &given.path.name, &error).await
        }
    };
    let explained = match unknown {
        Some(name) => explained.hint(format!(
            "no permission to check whether the secret {name} exists, which may be \
                           the one"
        )),
        None => explained,
    };
    if is_open { given.with_flags_hint(explained) } else { explained }
}

/// Removes all keys but one from the object's data.
fn keep_only(object: &mut Object, key: &str) {
    let data = object.fields.get_mut("spec").and_then(|spec| spec.get_mut("data"));
    if let Some(Value::Object(data)) = data {
        data.retain(|other, _| other == key);
    }
}

fn decoded(key: &str, value: &SecretText) -> Result<Zeroizing<Vec<u8>>, CliError> {
    base64_text::decode(value.expose())
        .map(Zeroizing::new)
        .ok_or_else(|| CliError::new(format!("the value of {key} is not base64")))
}

/// The value, byte for byte; on a terminal, with a line break behind it.
fn value_text(
    path: &SecretPath,
    value: &SecretText,
    process: &Process,
) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let mut bytes = decoded(&path.written(), value)?;
    check_terminal(&path.written(), &bytes, process)?;
    if process.stdout_is_terminal() && !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Refuses to print bytes to a terminal that could control it.
fn check_terminal(what: &str, bytes: &[u8], process: &Process) -> Result<(), CliError> {
    if !process.stdout_is_terminal() || is_plain_text(bytes) {
        return Ok(());
    }
    let message = format!(
        "the value of {what} ({} bytes) is not plain text and is not printed on a terminal",
        bytes.len()
    );
    Err(CliError::new(message).hint("redirect it into a file or a pipe"))
}

/// Whether the value is plain text, which has no effect on a terminal.
fn is_plain_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|text| text.chars().all(|c| !controls_terminal(c) || matches!(c, '\n' | '\t')))
}

/// A table of the keys with the sizes of their values, which were not read.
fn size_table(sizes: &Sizes) -> Zeroizing<String> {
    let headings = vec!["KEY".to_owned(), "BYTES".to_owned()];
    let rows = sizes.iter().map(|(key, bytes)| vec![escape(key), bytes.to_string()]);
    Zeroizing::new(output::table(headings, rows.collect()))
}

/// A table of the keys with the sizes of their values and, with `all`, the values.
fn key_table(data: &Data, all: bool) -> Result<Zeroizing<String>, CliError> {
    let mut headings = vec!["KEY".to_owned(), "BYTES".to_owned()];
    if all {
        headings.push("VALUE".to_owned());
    }
    let mut rows = Vec::new();
    for (key, value) in data {
        let bytes = decoded(key, value)?;
        let mut row = vec![escape(key), bytes.len().to_string()];
        if all {
            row.push(match std::str::from_utf8(&bytes) {
                Ok(text) => escape(text),
                Err(_) => "<binary>".to_owned(),
            });
        }
        rows.push(row);
    }
    Ok(Zeroizing::new(output::table(headings, rows)))
}

impl SetSecret {
    /// Sets one key, and creates the secret where it does not exist.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        if self.reads_stdin() && self.connection.target.credential.reads_key_from_stdin() {
            return Err(CliError::usage(
                "the standard input cannot be both the access key and the value",
            )
            .hint("give the value with --from-file, or the key in POSTERN_ACCESS_KEY"));
        }
        let given = GivenPath::new(&self.path, self.key.as_ref(), false)?;
        let SecretPath { name, key: Some(key) } = &given.path else {
            let name = &given.path.name;
            return Err(CliError::usage(format!("no key is given: pass {name}.KEY")));
        };
        let mut session = Session::open(&self.connection, process)?;
        let (info, namespace) = self.location.locate(&mut session).await?;
        let value = self.value(&given.path, process)?;
        if value.is_empty() && !self.allow_empty {
            return Err(self.empty());
        }
        let value = SecretText::from(STANDARD.encode(&value));
        let of = Collection::new(info, Some(&namespace));
        let made = write(&mut session, of, &given, key, &value).await?;
        let what = if made { "created with the key" } else { "has a new value for the key" };
        process.print_status(&format!("secret {name} in the namespace {namespace} {what} {key}"));
        if self.output.is_none() {
            return Ok(());
        }
        let name = output::full_name(info, name);
        process.print_text(format!("{name}\n"))
    }

    /// The error for a value without any byte.
    fn empty(&self) -> CliError {
        let message = match (&self.from_file, &self.value) {
            (Some(file), _) => format!("{} is empty; nothing was done", file.display()),
            (None, Some(value)) if value.expose() != "-" => {
                "the value is empty; nothing was done".to_owned()
            }
            _ => "the input was empty; nothing was done".to_owned(),
        };
        CliError::new(message).hint("to store an empty value, pass --allow-empty")
    }

    fn reads_stdin(&self) -> bool {
        self.from_file.is_none() && self.value.as_ref().is_none_or(|value| value.expose() == "-")
    }

    fn value(&self, path: &SecretPath, process: &Process) -> Result<Zeroizing<Vec<u8>>, CliError> {
        if let Some(file) = &self.from_file {
            return read_file(file, MAX_DATA_BYTES);
        }
        match &self.value {
            Some(value) if value.expose() != "-" => {
                Ok(Zeroizing::new(value.expose().as_bytes().to_vec()))
            }
            None if process.stdin_is_terminal() => {
                let value = process.prompt_hidden(&format!("Value of {}", path.written()))?;
                Ok(Zeroizing::new(value.expose().as_bytes().to_vec()))
            }
            _ => {
                let bytes = process.read_stdin(MAX_DATA_BYTES)?;
                let break_at = bytes.iter().position(|byte| *byte == b'\n');
                if break_at.is_some_and(|at| at + 1 == bytes.len()) {
                    process.print_note(
                        "the value ends with a line break; use printf '%s' to avoid it",
                    );
                }
                Ok(bytes)
            }
        }
    }
}

/// Patches the secret, or creates it where it does not exist, and tries again when others write it
/// at the same time. Returns whether the secret was created.
async fn write(
    session: &mut Session,
    of: Collection<'_>,
    given: &GivenPath,
    key: &str,
    value: &SecretText,
) -> Result<bool, CliError> {
    let name = &given.path.name;
    let patch = json!({ "spec": { "data": { (key): value.expose() } } });
    let new = new_secret(of.info(), name, key, value)?;
    let mut is_unique = false;
    for attempt in 1.. {
        let Err(refused) = session.client.merge_patch(of, name, &patch).await else {
            return Ok(false);
        };
        let last = attempt >= WRITES_MAX;
        match refused.reason() {
            Some(Reason::Conflict) if !last => continue,
            // The caller may be allowed to create, but not to learn that it does not exist.
            Some(Reason::NotFound | Reason::Forbidden) => {}
            _ => return Err(session.explain(&refused)),
        }
        if !is_unique {
            check_unique(session, of, given).await?;
            is_unique = true;
        }
        match session.client.create(of, &new).await {
            Ok(_) => return Ok(true),
            Err(error) => match (error.reason(), refused.reason()) {
                // Another client created it meanwhile.
                (Some(Reason::AlreadyExists), Some(Reason::NotFound)) if !last => {}
                // The secret exists, and the caller may not change it.
                (Some(Reason::AlreadyExists), Some(Reason::Forbidden)) => {
                    return Err(session.explain(&refused));
                }
                _ => return Err(session.explain(&error)),
            },
        }
    }
    unreachable!("the last attempt returns")
}

/// Checks that no other secret can be meant. No values are asked for.
async fn check_unique(
    session: &mut Session,
    of: Collection<'_>,
    given: &GivenPath,
) -> Result<(), CliError> {
    let ask = async |name: &str| {
        session.client.get_as(of, name, Representation::Metadata).await.map(drop)
    };
    given.check_unique(ask).await.map_err(|error| match error {
        NotUnique::Name(error) => error,
        NotUnique::Request(error) => session.explain(&error),
    })
}

fn new_secret(info: &Info, name: &str, key: &str, value: &SecretText) -> Result<Object, CliError> {
    let data = BTreeMap::from([(key.to_owned(), value.clone())]);
    let metadata = ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() };
    if info.kind == ProjectSecret::INFO.kind {
        let spec = project_secret::Spec { data, ..project_secret::Spec::default() };
        return new_object::<ProjectSecret>(metadata, spec);
    }
    let spec = shared_secret::Spec { data, ..shared_secret::Spec::default() };
    new_object::<SharedSecret>(metadata, spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pairs: &[(&str, &[u8])]) -> Data {
        let one = |(key, value): &(&str, &[u8])| {
            ((*key).to_owned(), SecretText::from(STANDARD.encode(value)))
        };
        pairs.iter().map(one).collect()
    }

    #[test]
    fn values_are_hidden_unless_all_are_wanted() {
        let data = data(&[("bin", &[0xff]), ("empty", b""), ("two", b"hush\n\x1b[2J")]);
        let hidden = key_table(&data, false).unwrap();
        assert_eq!(*hidden, "KEY     BYTES\nbin     1\nempty   0\ntwo     9\n");
        let table = key_table(&data, true).unwrap();
        assert!(table.contains("<binary>") && table.contains("hush\\n\\u{1b}[2J"), "{table:?}");
    }

    #[test]
    fn what_is_not_printed_to_a_terminal() {
        assert!(is_plain_text("päss\n\tword".as_bytes()));
        assert!(!is_plain_text(b"\x1b[2J"));
        assert!(!is_plain_text(&[0xff]));
    }

    #[test]
    fn keep_only_leaves_one_key() {
        let value = json!({ "metadata": { "name": "db" }, "spec": { "data": { "a": "QQ==", "b": "Qg==" }, "owner": {} } });
        let mut object = Object::from_value(value).unwrap();
        keep_only(&mut object, "b");
        assert_eq!(object.fields["spec"], json!({ "data": { "b": "Qg==" }, "owner": {} }));
    }
}
