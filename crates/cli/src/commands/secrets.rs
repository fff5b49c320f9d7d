//! `postern get secret`: reading the values of shared secrets, and of those of a project.
//! The requests for one secret are in `secret_read.rs`, and writes in `secret_write.rs`. Watching one secret is in `secret_watch.rs`, listing and deleting secrets in the verbs' own files.

use clap::Args;
use postern_client::Collection;
use postern_kinds::project::namespace_of;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::{Info, Kind as _, SecretText};
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde_json::Value;
use zeroize::Zeroizing;

use super::secret_names::{FindError, GivenPath, NotFound};
use super::secret_read::{Need, ReadSecret, Search, Sizes, read};
use crate::base64_text;
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag};
use crate::output::{self, controls_terminal, escape};
use crate::output_format::OutputFormat;
use crate::parse::{self, SecretPath};
use crate::process::Process;
use crate::session::Session;
use crate::variables::{Data, VariableFlags, dotenv_lines, shell_lines};

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
    /// Whether no flag names the location.
    pub(super) fn is_default(&self) -> bool {
        self.namespace.namespace.is_none() && self.project.is_none()
    }

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

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

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
