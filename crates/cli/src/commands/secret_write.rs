//! `postern set secret` and `postern unset secret`: writing and removing the values of one secret, each in one write.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use postern_client::{Collection, Error, Representation};
use postern_kinds::project_secret::{self, ProjectSecret};
use postern_kinds::shared_secret::{self, MAX_DATA_BYTES, SharedSecret};
use postern_kinds::{Info, Kind as _, SecretText};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::Reason;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::new_object;
use super::secret_names::{GivenPath, NotUnique};
use super::secret_read::{Need, read};
use super::secrets::LocationFlags;
use crate::batch::{self, Failure};
use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::parse::{self, SecretPath};
use crate::process::{Process, read_file, read_limited};
use crate::session::Session;
use crate::variables::Data;
use crate::{env_file, kinds, output};

/// How often a write is tried when others write the same secret.
const WRITES_MAX: usize = 5;

/// What the standard input is called where a file is named.
const STDIN: &str = "-";

/// The values that can be set.
#[derive(Subcommand, Debug)]
pub enum Set {
    /// Set values of a secret, which is created if it does not exist; other keys stay.
    ///
    /// `set secret NAME.KEY [VALUE]` sets one value. Without VALUE and --from-file the value is read from the standard
    /// input, byte for byte; on a terminal, the command asks for it and does not display it.
    ///
    /// `set secret NAME KEY=VALUE…` sets several values in one write. KEY=@FILE takes the value from a file, and KEY=@-
    /// from the standard input.
    ///
    /// A VALUE on the command line is visible in the list of processes and in the shell's history. An empty value is an
    /// error without --allow-empty.
    ///
    /// NAME ends at the first dot. If only a secret with a longer name exists, the command sets nothing: pass
    /// --key or --whole to name the secret.
    #[command(
        name = kinds::name(&SharedSecret::INFO),
        visible_aliases = kinds::visible_aliases(&SharedSecret::INFO),
        aliases = kinds::hidden_aliases(&SharedSecret::INFO),
    )]
    Secret(SetSecret),
}

/// The values that can be removed.
#[derive(Subcommand, Debug)]
pub enum Unset {
    /// Remove keys of secrets, each with its value; other keys stay.
    ///
    /// NAME ends at the first dot; with --key, NAME is the whole name. The keys of one secret are removed in one write.
    /// A key that does not exist is an error, and nothing of this secret is removed.
    #[command(
        name = kinds::name(&SharedSecret::INFO),
        visible_aliases = kinds::visible_aliases(&SharedSecret::INFO),
        aliases = kinds::hidden_aliases(&SharedSecret::INFO),
    )]
    Secret(UnsetSecret),
}

/// A secret to set.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern set secret db.password < password.txt\n  \
    postern set secret db user=ada password=@-\n  \
    postern set secret db --from-env-file .env")]
pub struct SetSecret {
    /// The secret, with the key in it for one value
    #[arg(value_name = "NAME[.KEY]", value_parser = parse::secret_path)]
    path: SecretPath,

    /// The value of NAME.KEY, where - reads it from the standard input; or KEY=VALUE, KEY=@FILE, KEY=@-. Put a value
    /// that begins with a dash after --
    #[arg(value_name = "VALUE", value_parser = parse::hidden, conflicts_with = "from_file")]
    values: Vec<SecretText>,

    /// The key; NAME is then the whole name of the secret, also with dots
    #[arg(long, value_name = "KEY", value_parser = parse::data_key)]
    key: Option<String>,

    /// Use NAME as the whole name of the secret, dots included
    #[arg(long, conflicts_with = "key")]
    whole: bool,

    /// Take the value of NAME.KEY from this file, byte for byte
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,

    /// Take keys and values from this file with KEY=VALUE lines, such as .env; - is the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "from_file")]
    from_env_file: Option<PathBuf>,

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

/// Keys to remove.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern unset secret db.password db.user\n  \
    postern unset secret tls.server --key crt")]
pub struct UnsetSecret {
    /// The secrets, each with the key in it
    #[arg(value_name = "NAME.KEY", required = true, value_parser = parse::secret_path)]
    paths: Vec<SecretPath>,

    /// The key; NAME is then the whole name of the secret, also with dots; may be repeated
    #[arg(long = "key", value_name = "KEY", value_parser = parse::data_key)]
    keys: Vec<String>,

    /// A key or a secret that does not exist is no error
    #[arg(long)]
    ignore_not_found: bool,

    /// Print KIND/NAME of each secret
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,

    #[command(flatten)]
    location: LocationFlags,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Where a value comes from.
enum Source<'a> {
    /// The command line.
    Text(&'a str),
    /// The standard input.
    Stdin,
    /// A file.
    File(&'a Path),
}

impl SetSecret {
    /// Sets the keys in one write, and creates the secret where it does not exist.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let given = GivenPath::new(&self.path, self.key.as_ref(), self.whole)?;
        let sources = self.sources(&given.path)?;
        self.check_stdin(&sources)?;
        let mut session = Session::open(&self.connection, process)?;
        let (info, namespace) = self.location.locate(&mut session).await?;
        let data = self.data(&given.path, &sources, process)?;
        let of = Collection::new(info, Some(&namespace));
        let made = write(&mut session, of, &given, &data).await?;
        let keys: Vec<&str> = data.keys().map(String::as_str).collect();
        let what = match (made, keys.len()) {
            (true, 1) => "created with the key",
            (true, _) => "created with the keys",
            (false, 1) => "has a new value for the key",
            (false, _) => "has new values for the keys",
        };
        let (name, keys) = (&given.path.name, keys.join(", "));
        process.print_status(&format!("secret {name} in the namespace {namespace} {what} {keys}"));
        if made && self.location.is_default() {
            // The user may have meant that one. The default namespace of another login is another one.
            if let Some(other) = session.namespace_with(of, name).await {
                process.print_note(&format!(
                    "there is also a secret {name} in the namespace {other}: to change that one, pass -n {other}"
                ));
            }
        }
        print_name(self.output.as_ref(), info, name, process)
    }

    /// The keys, and where their values come from. An argument that is wrong may be a secret, and is not repeated.
    fn sources(&self, path: &SecretPath) -> Result<Vec<(String, Source<'_>)>, CliError> {
        if let Some(key) = &path.key {
            return Ok(vec![(key.clone(), self.one_source(path)?)]);
        }
        if self.from_file.is_some() || (self.values.is_empty() && self.from_env_file.is_none()) {
            let name = &path.name;
            return Err(CliError::usage(format!("no key is given: pass {name}.KEY"))
                .hint(format!("several values: postern set secret {name} KEY=VALUE KEY=@FILE")));
        }
        let mut sources: Vec<(String, Source<'_>)> = Vec::new();
        for (index, value) in self.values.iter().enumerate() {
            let wrong = |what: &str| {
                let hidden = "(not printed, because it may be secret)";
                CliError::usage(format!("value {} {hidden} {what}", index + 1))
            };
            let Some((key, text)) = value.expose().split_once('=') else {
                return Err(wrong("is not KEY=VALUE")
                    .hint(format!("for one value: postern set secret {}.KEY VALUE", path.name)));
            };
            let key = parse::data_key(key).map_err(|_| wrong("has no valid key before ="))?;
            // A base64 text ends with =, and is no key.
            if text == "=" || text.is_empty() && !self.allow_empty {
                return Err(wrong("has no value after =")
                    .hint(format!("for one value: postern set secret {}.KEY VALUE", path.name))
                    .hint_if(text.is_empty(), "to store an empty value, pass --allow-empty"));
            }
            if let Some(known) = sources.iter().position(|(known, _)| *known == key) {
                return Err(wrong(&format!("has the same key as value {}", known + 1)));
            }
            let source = match text.strip_prefix('@') {
                None => Source::Text(text),
                Some(STDIN) => Source::Stdin,
                Some(file) => Source::File(Path::new(file)),
            };
            sources.push((key, source));
        }
        Ok(sources)
    }

    /// Where the value of the one key comes from.
    fn one_source(&self, path: &SecretPath) -> Result<Source<'_>, CliError> {
        if self.from_env_file.is_some() {
            return Err(CliError::usage("--from-env-file has the keys: pass the NAME alone")
                .hint(format!("if {} is the whole name, add --whole", path.written())));
        }
        match (&self.from_file, self.values.as_slice()) {
            (Some(file), _) => Ok(Source::File(file)),
            (None, []) => Ok(Source::Stdin),
            (None, [value]) if value.expose() == STDIN => Ok(Source::Stdin),
            (None, [value]) => Ok(Source::Text(value.expose())),
            (None, _) => {
                let message = format!(
                    "{} is one key, and has {} values: quote a value with spaces, and put a value that begins with - \
                     after --",
                    path.written(),
                    self.values.len()
                );
                Err(CliError::usage(message)
                    .hint("several values: postern set secret NAME KEY=VALUE KEY=VALUE"))
            }
        }
    }

    /// Refuses two uses of the standard input.
    fn check_stdin(&self, sources: &[(String, Source<'_>)]) -> Result<(), CliError> {
        let values = sources.iter().filter(|(_, source)| matches!(source, Source::Stdin)).count();
        let env_file = usize::from(self.from_env_file.as_deref() == Some(Path::new(STDIN)));
        let key = usize::from(self.connection.target.credential.reads_key_from_stdin());
        if key > 0 && values + env_file > 0 {
            let message = "the standard input cannot be both the access key and the value";
            return Err(CliError::usage(message)
                .hint("give the value with --from-file, or the key in POSTERN_ACCESS_KEY"));
        }
        if values + env_file > 1 {
            return Err(CliError::usage("the standard input can be the value of one key only"));
        }
        Ok(())
    }

    /// All values, in base64.
    fn data(
        &self,
        path: &SecretPath,
        sources: &[(String, Source<'_>)],
        process: &Process,
    ) -> Result<Data, CliError> {
        let mut data = Data::new();
        for (key, source) in sources {
            let value = match source {
                Source::Text(text) => Zeroizing::new(text.as_bytes().to_vec()),
                Source::Stdin => from_stdin(&format!("{}.{key}", path.name), process)?,
                // A path behind = may be a secret that begins with @.
                Source::File(file) if path.key.is_none() => value_file(key, file)?,
                Source::File(file) => read_file(file, MAX_DATA_BYTES)?,
            };
            if value.is_empty() && !self.allow_empty {
                return Err(self.empty(path, key, source));
            }
            data.insert(key.clone(), SecretText::from(STANDARD.encode(&value)));
        }
        for (key, value) in self.env_file(process)? {
            if value.is_empty() && !self.allow_empty {
                return Err(empty_key(&key));
            }
            let encoded = SecretText::from(STANDARD.encode(&value));
            if data.insert(key.clone(), encoded).is_some() {
                return Err(CliError::usage(format!("the key {key} has two values")));
            }
        }
        if data.is_empty() {
            return Err(CliError::new("the file of --from-env-file has no keys; nothing was done"));
        }
        Ok(data)
    }

    fn env_file(&self, process: &Process) -> Result<env_file::Entries, CliError> {
        let Some(file) = &self.from_env_file else { return Ok(Vec::new()) };
        let is_stdin = file == Path::new(STDIN);
        let bytes = if is_stdin {
            process.read_stdin(MAX_DATA_BYTES)?
        } else {
            read_file(file, MAX_DATA_BYTES)?
        };
        let name =
            if is_stdin { "the standard input".to_owned() } else { file.display().to_string() };
        env_file::parse(&bytes).map_err(|what| {
            CliError::new(format!("{name}: {what}")).hint("nothing was done: correct the file")
        })
    }

    /// The error for a value without any byte.
    fn empty(&self, path: &SecretPath, key: &str, source: &Source<'_>) -> CliError {
        let message = match (&self.from_file, source) {
            _ if path.key.is_none() => return empty_key(key),
            (Some(file), _) => format!("{} is empty; nothing was done", file.display()),
            (None, Source::Stdin) => "the input was empty; nothing was done".to_owned(),
            (None, _) => "the value is empty; nothing was done".to_owned(),
        };
        CliError::new(message).hint("to store an empty value, pass --allow-empty")
    }
}

fn empty_key(key: &str) -> CliError {
    CliError::new(format!("the value of {key} is empty; nothing was done"))
        .hint("to store an empty value, pass --allow-empty")
}

/// The value of a key from the standard input.
fn from_stdin(what: &str, process: &Process) -> Result<Zeroizing<Vec<u8>>, CliError> {
    if process.stdin_is_terminal() {
        let value = process.prompt_hidden(&format!("Value of {what}"))?;
        return Ok(Zeroizing::new(value.expose().as_bytes().to_vec()));
    }
    let bytes = process.read_stdin(MAX_DATA_BYTES)?;
    let break_at = bytes.iter().position(|byte| *byte == b'\n');
    if break_at.is_some_and(|at| at + 1 == bytes.len()) {
        process.print_note("the value ends with a line break; use printf '%s' to avoid it");
    }
    Ok(bytes)
}

/// The content of the file behind `KEY=@`. Errors do not repeat the path.
fn value_file(key: &str, file: &Path) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let opened = File::open(file).map_err(|error| {
        CliError::new(format!("cannot read the file after {key}=@: {error}; nothing was done"))
            .hint(format!("for a value that begins with @: postern set secret NAME.{key} VALUE"))
    })?;
    read_limited(opened, MAX_DATA_BYTES, &format!("the file after {key}=@"))
}

fn print_name(
    format: Option<&String>,
    info: &Info,
    name: &str,
    process: &Process,
) -> Result<(), CliError> {
    if format.is_none() {
        return Ok(());
    }
    process.print_text(output::full_name(info, name) + "\n")
}

/// Patches the secret, or creates it where it does not exist, and tries again when others write it
/// at the same time. Returns whether the secret was created.
async fn write(
    session: &mut Session,
    of: Collection<'_>,
    given: &GivenPath,
    data: &Data,
) -> Result<bool, CliError> {
    let name = &given.path.name;
    let values = data.iter().map(|(key, value)| (key.clone(), json!(value.expose())));
    let patch = json!({ "spec": { "data": values.collect::<Map<_, _>>() } });
    let new = new_secret(of.info(), name, data)?;
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
                _ => return Err(explain_create(session, of, name, &error).await),
            },
        }
    }
    unreachable!("the last attempt returns")
}

/// The error of a create, with another name or namespace where that helps.
async fn explain_create(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    error: &Error,
) -> CliError {
    let mut explained = session.explain(error);
    if error.reason() == Some(Reason::AlreadyExists) {
        let hint = format!(
            "the name is taken by a secret that you may not see: choose another name, such as {name}-2"
        );
        return explained.hint(hint);
    }
    if error.reason() != Some(Reason::Forbidden) || of.info().kind != SharedSecret::INFO.kind {
        return explained;
    }
    // Only a help: an error of this request is not worth printing.
    let asked = session.ask_self().await;
    let first = asked.ok().and_then(|(_, status)| status.secret_namespaces.into_iter().next());
    if let Some(first) = first.filter(|first| Some(first.as_str()) != of.namespace()) {
        let hint =
            format!("you may create shared secrets in the namespace {first}: pass -n {first}");
        // The user can do this without another one.
        explained.hints.insert(0, hint);
    }
    explained
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

fn new_secret(info: &Info, name: &str, data: &Data) -> Result<Object, CliError> {
    let data = data.clone();
    let metadata = ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() };
    if info.kind == ProjectSecret::INFO.kind {
        let spec = project_secret::Spec { data, ..project_secret::Spec::default() };
        return new_object::<ProjectSecret>(metadata, spec);
    }
    let spec = shared_secret::Spec { data, ..shared_secret::Spec::default() };
    new_object::<SharedSecret>(metadata, spec)
}

impl UnsetSecret {
    /// Removes the keys, secret by secret.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let by_secret = self.by_secret()?;
        let mut session = Session::open(&self.connection, process)?;
        let (info, namespace) = self.location.locate(&mut session).await?;
        let of = Collection::new(info, Some(&namespace));
        let by_secret: Vec<(String, Vec<String>)> = by_secret.into_iter().collect();
        let label = |(name, keys): &(String, Vec<String>)| {
            let paths: Vec<String> = keys.iter().map(|key| format!("{name}.{key}")).collect();
            Some(paths.join(", "))
        };
        batch::each(&by_secret, label, process, async |(name, keys)| {
            let present = self.present(&mut session, of, name, keys).await?;
            if present.is_empty() {
                return Ok(());
            }
            remove(&mut session, of, name, &present).await?;
            let word = if present.len() == 1 { "key" } else { "keys" };
            let keys = present.join(", ");
            let text = format!("secret {name} in the namespace {namespace} lost the {word} {keys}");
            process.print_status(&text);
            print_name(self.output.as_ref(), info, name, process).map_err(Failure::All)
        })
        .await
    }

    /// The keys to remove, by the names of their secrets.
    fn by_secret(&self) -> Result<BTreeMap<String, Vec<String>>, CliError> {
        if !self.keys.is_empty() {
            let [path] = self.paths.as_slice() else {
                return Err(CliError::usage("--key is for one secret: pass one NAME"));
            };
            let name = parse::name(&path.written()).map_err(CliError::usage)?;
            return Ok(BTreeMap::from([(name, self.keys.clone())]));
        }
        let mut by_secret: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for path in &self.paths {
            let Some(key) = &path.key else {
                let name = &path.name;
                return Err(CliError::usage(format!("no key is given: pass {name}.KEY"))
                    .hint(format!("`postern delete secret {name}` deletes the whole secret")));
            };
            let keys = by_secret.entry(path.name.clone()).or_default();
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        Ok(by_secret)
    }

    /// The keys that the secret has. No values are read. A caller that may not read the secret may still change it.
    async fn present(
        &self,
        session: &mut Session,
        of: Collection<'_>,
        name: &str,
        keys: &[String],
    ) -> Result<Vec<String>, Failure> {
        let mut present = Vec::new();
        for key in keys {
            let path = SecretPath { name: name.to_owned(), key: Some(key.clone()) };
            match read(session, of, path.clone(), Need::Names).await {
                Ok(Ok(_)) => present.push(key.clone()),
                Ok(Err(_)) if self.ignore_not_found => {}
                Ok(Err(no_key)) => return Err(Failure::One(self.with_name_hint(no_key, &path))),
                Err(error) if error.reason() == Some(Reason::Forbidden) => return Ok(keys.to_vec()),
                Err(error) if error.reason() == Some(Reason::NotFound) && self.ignore_not_found => {
                    return Ok(Vec::new());
                }
                Err(error) => {
                    let explained = session.explain_named(of, name, &error).await;
                    return Err(Failure::of(&error, self.with_name_hint(explained, &path)));
                }
            }
        }
        Ok(present)
    }

    /// Adds how to name a secret with dots.
    fn with_name_hint(&self, error: CliError, path: &SecretPath) -> CliError {
        let has_dots = path.key.as_ref().is_some_and(|key| key.contains('.'));
        error.hint_if(
            has_dots && self.keys.is_empty(),
            "if the name of the secret has a dot: postern unset secret NAME --key KEY",
        )
    }
}

/// Removes keys in one write, and tries again when others write the secret at the same time.
async fn remove(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    keys: &[String],
) -> Result<(), Failure> {
    let nulls = keys.iter().map(|key| (key.clone(), Value::Null));
    let patch = json!({ "spec": { "data": nulls.collect::<Map<_, _>>() } });
    for attempt in 1.. {
        match session.client.merge_patch(of, name, &patch).await {
            Ok(_) => return Ok(()),
            Err(error) if error.reason() == Some(Reason::Conflict) && attempt < WRITES_MAX => {}
            Err(error) => {
                let explained = session.explain_named(of, name, &error).await;
                return Err(Failure::of(&error, explained));
            }
        }
    }
    unreachable!("the last attempt returns")
}
