//! Creating, disabling, enabling and rotating access keys. Reading and deleting them is as for
//! other kinds.

use std::time::Duration;

use clap::{Args, Subcommand};
use postern_client::{Collection, decode_fields};
use postern_kinds::owned_access_key::{Fields, OwnedAccessKey, Spec};
use postern_kinds::{Kind as _, Owner, SecretText, access_key};
use postern_meta::object::{Object, ObjectMeta};
use serde_json::json;

use super::{new_object, successor};
use crate::duration::display_duration;
use crate::error::CliError;
use crate::flags::{ConnectionFlags, ObjectFormat};
use crate::output::{self, escape};
use crate::process::Process;
use crate::scope_flags::ScopeFlags;
use crate::session::Session;
use crate::{kinds, parse};

/// A new access key.
#[derive(Args, Debug)]
pub(crate) struct Create {
    /// The name of the key [default: one that the server makes]
    #[arg(value_parser = parse::name)]
    name: Option<String>,

    /// The user whose key it is [default: yourself]
    #[arg(long, value_name = "USER", value_parser = parse::name, conflicts_with = "team")]
    user: Option<String>,

    /// The team whose key it is
    #[arg(long, value_name = "TEAM", value_parser = parse::name)]
    team: Option<String>,

    /// How long the key is valid, as 720h, 30m, 30d, or plain seconds [default: without end, unless
    /// the server has a limit]
    #[arg(long, value_name = "DURATION", value_parser = parse::ttl, allow_hyphen_values = true)]
    ttl: Option<i64>,

    /// The display name
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    display_name: String,

    /// Print the whole object, in which the key is, or KIND/NAME without it [default: the key
    /// alone]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    scope: ScopeFlags,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// A command for access keys, and for nothing else.
#[derive(Subcommand, Debug)]
pub enum OfAccessKey<A: AccessKeyArgs> {
    /// Its arguments have its description.
    #[command(
        name = kinds::name(&OwnedAccessKey::INFO),
        visible_aliases = kinds::visible_aliases(&OwnedAccessKey::INFO),
        aliases = kinds::hidden_aliases(&OwnedAccessKey::INFO),
        about = A::ABOUT,
        long_about = A::LONG_ABOUT,
    )]
    AccessKey(A),
}

/// The arguments of such a command.
pub trait AccessKeyArgs: Args {
    /// The description of the command, without a full stop.
    const ABOUT: &'static str;

    /// The same at more length, if there is more to say.
    const LONG_ABOUT: Option<&'static str> = None;
}

impl AccessKeyArgs for Switch<true> {
    const ABOUT: &'static str = "Disable an access key, at once; `enable` enables it again";
}

impl AccessKeyArgs for Switch<false> {
    const ABOUT: &'static str = "Enable an access key again";
}

impl AccessKeyArgs for Replace {
    const ABOUT: &'static str =
        "Replace the value of an access key, and print the new key, alone, on the standard output";

    const LONG_ABOUT: Option<&'static str> = Some(
        "Replace the value of an access key, and print the new key, alone, on the standard output.\n\n\
         The old value stops working at once. The new one is shown this once.\n\n\
         With --overlap the key is left as it is, and gets a successor: a new access key of the same \
         owner, with the same groups, scope, type and time to live. The old key ends when the time has \
         passed.",
    );
}

/// A key to disable, or to enable.
#[derive(Args, Debug)]
pub struct Switch<const DISABLED: bool> {
    /// The name of the key
    #[arg(value_parser = parse::name)]
    name: String,

    /// How to print the key's object, in which the key itself is not [default: not at all]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// A key to rotate.
#[derive(Args, Debug)]
pub struct Replace {
    /// The name of the key
    #[arg(value_parser = parse::name)]
    name: String,

    /// Make a successor, and let this key work for so long, as 24h, 30m, 7d, or plain seconds
    #[arg(long, value_name = "DURATION", value_parser = parse::overlap, allow_hyphen_values = true)]
    overlap: Option<Duration>,

    /// The name of the successor [default: NAME- and what the server adds]
    #[arg(long, value_name = "NAME", value_parser = parse::name, requires = "overlap")]
    new_name: Option<String>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// The flags that set fields of a key.
const FLAGS: [(&str, &str); 3] =
    [("spec.user", "--user"), ("spec.team", "--team"), ("spec.ttl", "--ttl")];

/// All access keys.
pub(super) fn keys() -> Collection<'static> {
    Collection::of::<OwnedAccessKey>(None)
}

impl Create {
    /// Creates, and prints the key.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        // A scope that makes no sense fails before a request.
        self.scope.scope()?;
        let mut session = Session::open(&self.connection, process)?;
        if self.scope.names_projects() {
            session.learn_names().await?;
        }
        let scope = self.scope.scope()?;
        let metadata =
            ObjectMeta { name: self.name.clone().unwrap_or_default(), ..ObjectMeta::default() };
        let spec = Spec {
            display_name: self.display_name,
            user: self.user.unwrap_or_default(),
            team: self.team.unwrap_or_default(),
            ttl: self.ttl.unwrap_or(0),
            scope,
            ..Spec::default()
        };
        let fields_of_new = Fields { spec, ..Fields::default() };
        let new = new_object::<OwnedAccessKey>(metadata, &fields_of_new)?;
        let (created, spec) = create(&mut session, &new).await?;
        let name = created.metadata.name.clone();
        let printed = print_created(created, &spec.key, self.output, process);
        printed.map_err(|error| value_lost(error, &name))?;
        process.print_status(&format!("access key {} created{}", escape(&name), describe(&spec)));
        if self.output != Some(ObjectFormat::Name) {
            process.print_note("the key is shown this once; keep it safe");
        }
        Ok(())
    }
}

/// Creates a key, and returns its object with its spec, in which the key is.
pub(super) async fn create(
    session: &mut Session,
    new: &Object,
) -> Result<(Object, Spec), CliError> {
    let created = session.client.create(keys(), new).await.map_err(|error| {
        session.explain_by_flags(&error, &FLAGS).hint_if(
            error.is_uncertain(),
            "if the key was created, its value is lost: `postern list accesskeys` shows it, \
             `postern delete accesskey` deletes it",
        )
    })?;
    let fields = decode_fields::<OwnedAccessKey>(&created);
    Ok((created, fields.map_err(|error| session.explain(&error))?.spec))
}

/// Prints the key alone, unless a format was asked for.
fn print_created(
    created: Object,
    key: &SecretText,
    format: Option<ObjectFormat>,
    process: &Process,
) -> Result<(), CliError> {
    if format.is_some() {
        return output::print_object(created, &OwnedAccessKey::INFO, format, process);
    }
    if key.expose().is_empty() {
        return Err(CliError::new("the server answered without the key"));
    }
    print_key(key, process)
}

/// Prints a key alone on the standard output.
pub(super) fn print_key(key: &SecretText, process: &Process) -> Result<(), CliError> {
    let line = SecretText::from(format!("{}\n", key.expose()));
    process.write_stdout(line.expose().as_bytes())
}

/// The error for a key that could not be printed. The key is valid, but its value is lost.
pub(super) fn value_lost(error: CliError, name: &str) -> CliError {
    error.output_matters().hint(format!(
        "the access key {} works, but its value is lost: `postern rotate accesskey {0}` makes a \
         new value, `postern delete accesskey {0}` deletes it",
        escape(name)
    ))
}

/// The owner of the key and its lifetime, for a sentence.
pub(super) fn describe(spec: &Spec) -> String {
    let owner = match spec.owner() {
        Some(Owner::User(name)) => format!(" for the user {}", escape(&name)),
        Some(Owner::Team(name)) => format!(" for the team {}", escape(&name)),
        Some(Owner::Subject(name)) => format!(" for {}", escape(&name)),
        None => String::new(),
    };
    match u64::try_from(spec.ttl) {
        Ok(seconds @ 1..) => {
            let ttl = display_duration(Duration::from_secs(seconds));
            format!("{owner}; it expires in {ttl}")
        }
        _ => format!("{owner}; it does not expire"),
    }
}

impl<const DISABLED: bool> Switch<DISABLED> {
    /// Disables or enables.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        let patch = json!({ "spec": { "disabled": DISABLED } });
        let patched = session.client.merge_patch(keys(), &self.name, &patch).await;
        let object = match patched {
            Ok(object) => object,
            Err(error) => {
                return Err(session.explain_named(keys(), &self.name, &error).await);
            }
        };
        let word = if DISABLED { "disabled" } else { "enabled" };
        process.print_status(&format!("access key {} {word}", self.name));
        output::print_object(object, &OwnedAccessKey::INFO, self.output, process)
    }
}

impl Replace {
    /// Replaces the value, or makes a successor.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        // Asked first: the session's own key may be the one that is replaced.
        let own = session.ask_self().await;
        let own = own.is_ok_and(|(_, status)| status.access_key == self.name);
        match self.overlap {
            None => replace_value(&mut session, &self.name, process).await?,
            Some(overlap) => {
                let new_name = self.new_name.as_deref();
                successor::rotate(&mut session, &self.name, new_name, overlap, process).await?;
            }
        }
        if own {
            let server = session.client.server();
            process.print_note(&format!(
                "this was the key that you are logged in with: log in with the new one, `postern \
                 login {server} --access-key -`"
            ));
        }
        Ok(())
    }
}

/// Makes the new value on this machine, so that it is in no answer.
async fn replace_value(
    session: &mut Session,
    name: &str,
    process: &Process,
) -> Result<(), CliError> {
    let key = access_key::generate(&mut || process.random());
    let patch = json!({ "spec": { "key": key.expose() } });
    if let Err(error) = session.client.merge_patch(keys(), name, &patch).await {
        let explained = session.explain_named(keys(), name, &error).await;
        return Err(explained.hint_if(
            error.is_uncertain(),
            "run it again: the value of this attempt is not printed",
        ));
    }
    print_key(&key, process).map_err(|error| value_lost(error, name))?;
    process.print_status(&format!("access key {name} rotated; its old value is no longer valid"));
    process.print_note("the key is shown this once; keep it safe");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_key_it_is_and_how_long_it_lives() {
        let user = Spec { user: "ada".to_owned(), ttl: 5400, ..Spec::default() };
        assert_eq!(describe(&user), " for the user ada; it expires in 1h30m");
        let team = Spec { team: "red".to_owned(), ..Spec::default() };
        assert_eq!(describe(&team), " for the team red; it does not expire");
        assert_eq!(
            crate::output::full_name(&OwnedAccessKey::INFO, "ci"),
            "ownedaccesskey.management.platform.sh/ci"
        );
    }
}
