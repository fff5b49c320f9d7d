//! Reading and writing shared secrets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use postern_client::{Collection, Error, fields};
use postern_kinds::shared_secret::{self, MAX_DATA_BYTES, SharedSecret};
use postern_kinds::{Kind as _, SecretText};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::Reason;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{explain_named, new_object};
use crate::connect::Session;
use crate::failure::Failure;
use crate::flags::{Connection, Namespace, SecretFormat};
use crate::output::{self, tame};
use crate::parse::{self, SecretPath};
use crate::similar::nearest;
use crate::surroundings::{Surroundings, read_file};

/// How often a write is tried again that met another's.
const WRITES_MAX: usize = 5;

/// What can be got.
#[derive(Subcommand, Debug)]
pub enum Get {
    /// Print one value of a shared secret, or tell which keys it has.
    ///
    /// With NAME.KEY the value itself is printed, decoded, byte for byte. On a terminal a line
    /// break follows; into a pipe or a file nothing is added. With NAME alone the keys are told
    /// with their sizes, and no values unless --all is given.
    ///
    /// NAME.KEY splits at the first dot. A secret whose own name has a dot is for kubectl.
    #[command(alias = "secrets")]
    Secret(GetSecret),
}

/// What can be set.
#[derive(Subcommand, Debug)]
pub enum Set {
    /// Set one value of a shared secret, which is made if it is missing; other keys stay.
    ///
    /// Without VALUE and --from-file the value is read from the standard input, byte for byte; on
    /// a terminal it is asked for and not shown. A VALUE on the command line can be seen in the
    /// list of processes and in the shell's history.
    #[command(alias = "secrets")]
    Secret(SetSecret),
}

/// A secret to get.
#[derive(Args, Debug)]
pub struct GetSecret {
    /// The secret, or one key of it
    #[arg(value_name = "NAME[.KEY]", value_parser = parse::secret_path)]
    path: SecretPath,

    /// How to print it [default: value for NAME.KEY, a table of the keys for NAME]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<SecretFormat>,

    /// Show all values in the table, too
    #[arg(long, conflicts_with = "output")]
    all: bool,

    #[command(flatten)]
    namespace: Namespace,

    #[command(flatten)]
    connection: Connection,
}

/// A secret to set.
#[derive(Args, Debug)]
pub struct SetSecret {
    /// The secret and the key in it
    #[arg(value_name = "NAME.KEY", value_parser = parse::secret_key)]
    path: SecretPath,

    /// The value; - reads it from the standard input. One that begins with a dash stands behind --
    #[arg(value_parser = parse::hidden, conflicts_with = "from_file")]
    value: Option<SecretText>,

    /// Take the value from this file, byte for byte
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,

    /// Print KIND/NAME of the secret
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,

    #[command(flatten)]
    namespace: Namespace,

    #[command(flatten)]
    connection: Connection,
}

/// The values of a secret, by their keys.
type Data = BTreeMap<String, SecretText>;

impl GetSecret {
    /// Reads, and prints what was asked for.
    pub(crate) async fn run(self, surroundings: &Surroundings) -> Result<(), Failure> {
        self.check()?;
        let mut session = Session::open(&self.connection, surroundings)?;
        let namespace = self.namespace.namespace.as_ref().unwrap_or(&session.namespace).clone();
        let of = Collection::of::<SharedSecret>(Some(&namespace));
        let mut object = match session.client.get(of, &self.path.name).await {
            Ok(object) => object,
            Err(error) => return Err(missing(&mut session, of, &self.path, &error).await),
        };
        let data =
            fields::<SharedSecret>(&object).map_err(|error| session.explain(&error))?.spec.data;
        if let Some(key) = &self.path.key {
            if !data.contains_key(key) {
                return Err(no_key(&self.path.name, key, &data));
            }
            keep_only(&mut object, key);
        }
        match (self.output, &self.path.key) {
            (Some(SecretFormat::Json), _) => {
                surroundings.out(output::json(object.into_value()).as_bytes())
            }
            (Some(SecretFormat::Yaml), _) => {
                surroundings.out(output::yaml(object.into_value()).as_bytes())
            }
            (_, Some(key)) => print_value(&self.path, &data[key], surroundings),
            (_, None) if data.is_empty() => {
                surroundings.say(&format!("the secret {} has no keys", self.path.name));
                Ok(())
            }
            (_, None) => surroundings.out(key_table(&data, self.all)?.as_bytes()),
        }
    }

    /// What makes no sense is refused before anybody is asked.
    fn check(&self) -> Result<(), Failure> {
        let written = self.path.written();
        if self.all && self.path.key.is_some() {
            return Err(Failure::usage(format!("--all shows every key, and {written} is one")));
        }
        if self.output == Some(SecretFormat::Value) && self.path.key.is_none() {
            return Err(Failure::usage("-o value prints one value: name its key")
                .hint(format!("postern get secret {written}.KEY"))
                .hint(format!("postern get secret {written} tells which keys there are")));
        }
        Ok(())
    }
}

/// The object with one key alone in its data.
fn keep_only(object: &mut Object, key: &str) {
    let data = object.fields.get_mut("spec").and_then(|spec| spec.get_mut("data"));
    if let Some(Value::Object(data)) = data {
        data.retain(|other, _| other == key);
    }
}

fn decoded(key: &str, value: &SecretText) -> Result<Zeroizing<Vec<u8>>, Failure> {
    STANDARD
        .decode(value.expose())
        .map(Zeroizing::new)
        .map_err(|_| Failure::new(format!("the value of {key} is not base64")))
}

fn print_value(
    path: &SecretPath,
    value: &SecretText,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let mut bytes = decoded(&path.written(), value)?;
    if surroundings.out_is_terminal() {
        if !is_harmless(&bytes) {
            let message = format!(
                "the value of {} has {} bytes that are no plain text, and could upset the terminal",
                path.written(),
                bytes.len()
            );
            return Err(Failure::new(message).hint("send it into a file or a pipe"));
        }
        if !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
    }
    surroundings.out(&bytes)
}

/// Text that does nothing to a terminal but stand there.
fn is_harmless(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|text| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')))
}

/// Which keys there are, how large their values, and, if wanted, the values.
fn key_table(data: &Data, all: bool) -> Result<Zeroizing<String>, Failure> {
    let mut headings = vec!["KEY".to_owned(), "BYTES".to_owned()];
    if all {
        headings.push("VALUE".to_owned());
    }
    let mut rows = Vec::new();
    for (key, value) in data {
        let bytes = decoded(key, value)?;
        let mut row = vec![tame(key), bytes.len().to_string()];
        if all {
            row.push(match std::str::from_utf8(&bytes) {
                Ok(text) => tame(text),
                Err(_) => "<binary>".to_owned(),
            });
        }
        rows.push(row);
    }
    Ok(Zeroizing::new(output::table(headings, rows)))
}

/// A secret that is not there. One whose own name has dots may be what was meant.
async fn missing(
    session: &mut Session,
    of: Collection<'_>,
    path: &SecretPath,
    error: &Error,
) -> Failure {
    let failure = explain_named(session, of, &path.name, error).await;
    if path.key.is_none() || error.reason() != Some(Reason::NotFound) {
        return failure;
    }
    let whole = path.written();
    if session.client.get(of, &whole).await.is_err() {
        return failure;
    }
    failure.hint(format!(
        "there is a secret named {whole}, but NAME.KEY splits at the first dot: use `kubectl get \
         sharedsecret {whole} -n {} -o yaml`",
        of.namespace().unwrap_or_default()
    ))
}

fn no_key(name: &str, key: &str, data: &Data) -> Failure {
    let failure = Failure::new(format!("the secret {name} has no key {key}"));
    let near = nearest(key, data.keys().map(String::as_str));
    if near.is_empty() {
        return failure.hint(format!("`postern get secret {name}` tells which keys there are"));
    }
    failure.hint(format!("did you mean {}?", near.join(" or ")))
}

impl SetSecret {
    /// Sets one key, and makes the secret where it is missing.
    pub(crate) async fn run(self, surroundings: &Surroundings) -> Result<(), Failure> {
        let piped_key = self.connection.credential.access_key.as_ref();
        if self.reads_in() && piped_key.is_some_and(|key| key.expose() == "-") {
            return Err(Failure::usage(
                "the standard input cannot be both the access key and the value",
            )
            .hint("give the value with --from-file, or the key in POSTERN_ACCESS_KEY"));
        }
        let mut session = Session::open(&self.connection, surroundings)?;
        let value = SecretText::from(STANDARD.encode(&self.value(surroundings)?));
        let namespace = self.namespace.namespace.as_ref().unwrap_or(&session.namespace).clone();
        let of = Collection::of::<SharedSecret>(Some(&namespace));
        let (name, key) = (&self.path.name, self.path.key.as_deref().unwrap_or_default());
        let made = write(&mut session, of, name, key, &value).await;
        let made = made.map_err(|error| session.explain(&error))?;
        let what = if made { "created with the key" } else { "has a new value for the key" };
        surroundings.say(&format!("secret {name} in the namespace {namespace} {what} {key}"));
        if self.output.is_none() {
            return Ok(());
        }
        let name = output::full_name(&SharedSecret::INFO, name);
        surroundings.out(format!("{name}\n").as_bytes())
    }

    fn reads_in(&self) -> bool {
        self.from_file.is_none() && self.value.as_ref().is_none_or(|value| value.expose() == "-")
    }

    fn value(&self, surroundings: &Surroundings) -> Result<Zeroizing<Vec<u8>>, Failure> {
        if let Some(file) = &self.from_file {
            return read_file(file, MAX_DATA_BYTES);
        }
        match &self.value {
            Some(value) if value.expose() != "-" => {
                Ok(Zeroizing::new(value.expose().as_bytes().to_vec()))
            }
            None if surroundings.in_is_terminal() => {
                let value =
                    surroundings.ask_hidden(&format!("Value of {}", self.path.written()))?;
                Ok(Zeroizing::new(value.expose().as_bytes().to_vec()))
            }
            _ => {
                let bytes = surroundings.read_in(MAX_DATA_BYTES)?;
                let break_at = bytes.iter().position(|byte| *byte == b'\n');
                if break_at.is_some_and(|at| at + 1 == bytes.len()) {
                    surroundings.note(
                        "the value ends with a line break, which is kept; printf '%s' adds none",
                    );
                }
                Ok(bytes)
            }
        }
    }
}

/// Patches, and creates what is not there; whoever else writes meanwhile is met by trying again.
/// Tells whether the secret was made.
async fn write(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    key: &str,
    value: &SecretText,
) -> Result<bool, Error> {
    let patch = json!({ "spec": { "data": { (key): value.expose() } } });
    let new = new_secret(name, key, value)?;
    for attempt in 1.. {
        let Err(refused) = session.client.merge_patch(of, name, &patch).await else {
            return Ok(false);
        };
        let last = attempt >= WRITES_MAX;
        match refused.reason() {
            Some(Reason::Conflict) if !last => continue,
            // Who may create need not be allowed to know that there is nothing yet.
            Some(Reason::NotFound | Reason::Forbidden) => {}
            _ => return Err(refused),
        }
        match session.client.create(of, &new).await {
            Ok(_) => return Ok(true),
            Err(error) => match (error.reason(), refused.reason()) {
                // Made by somebody else meanwhile.
                (Some(Reason::AlreadyExists), Some(Reason::NotFound)) if !last => {}
                // There it is, and may not be changed.
                (Some(Reason::AlreadyExists), Some(Reason::Forbidden)) => return Err(refused),
                _ => return Err(error),
            },
        }
    }
    unreachable!("the last attempt returns")
}

fn new_secret(name: &str, key: &str, value: &SecretText) -> Result<Object, Error> {
    let spec = shared_secret::Spec {
        data: BTreeMap::from([(key.to_owned(), value.clone())]),
        ..shared_secret::Spec::default()
    };
    let fields = shared_secret::Fields { spec, ..shared_secret::Fields::default() };
    let metadata = ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() };
    new_object::<SharedSecret>(metadata, &fields).map_err(|_| Error::Name(name.to_owned()))
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
        let shown = key_table(&data, true).unwrap();
        assert!(shown.contains("<binary>") && shown.contains("hush\\n\\u{1b}[2J"), "{shown:?}");
    }

    #[test]
    fn what_a_terminal_is_spared() {
        assert!(is_harmless("päss\n\tword".as_bytes()));
        assert!(!is_harmless(b"\x1b[2J"));
        assert!(!is_harmless(&[0xff]));
    }

    #[test]
    fn one_key_alone_is_left() {
        let value = json!({ "metadata": { "name": "db" }, "spec": { "data": { "a": "QQ==", "b": "Qg==" }, "owner": {} } });
        let mut object = Object::from_value(value).unwrap();
        keep_only(&mut object, "b");
        assert_eq!(object.fields["spec"], json!({ "data": { "b": "Qg==" }, "owner": {} }));
    }

    #[test]
    fn a_missing_key_names_its_neighbour() {
        let failure = no_key("db", "pasword", &data(&[("password", b"hush")]));
        assert_eq!(failure.hints, ["did you mean password?"]);
    }
}
