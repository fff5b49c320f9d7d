//! Making, switching and replacing access keys.

use clap::{Args, Subcommand};
use postern_client::{Collection, fields};
use postern_kinds::owned_access_key::{Fields, OwnedAccessKey, Owner, Spec};
use postern_kinds::{Kind as _, SecretText, access_key};
use postern_meta::object::{Object, ObjectMeta};
use serde_json::json;

use super::{explain_named, new_object, whoami};
use crate::connect::Session;
use crate::failure::Failure;
use crate::flags::{Connection, ObjectFormat};
use crate::output::tame;
use crate::parse;
use crate::surroundings::Surroundings;

/// A new access key.
#[derive(Args, Debug)]
pub struct Create {
    /// The name of the key [default: one that the server makes]
    #[arg(value_parser = parse::name)]
    name: Option<String>,

    /// The user whose key it is [default: yourself]
    #[arg(long, value_name = "USER", value_parser = parse::name, conflicts_with = "team")]
    user: Option<String>,

    /// The team whose key it is
    #[arg(long, value_name = "TEAM", value_parser = parse::name)]
    team: Option<String>,

    /// How long the key lives, as 720h, 30m, 30d, or plain seconds [default: for ever, unless the
    /// server has a limit]
    #[arg(long, value_name = "DURATION", value_parser = parse::ttl, allow_hyphen_values = true)]
    ttl: Option<i64>,

    /// The name to show to people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    display_name: String,

    /// Print the whole object, in which the key is, or KIND/NAME without it [default: the key
    /// alone]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: Connection,
}

/// What can be switched off.
#[derive(Subcommand, Debug)]
pub enum Disable {
    /// Switch an access key off, at once; `enable` switches it on again.
    #[command(name = "accesskey", visible_alias = "key", alias = "accesskeys")]
    AccessKey(Switch),
}

/// What can be switched on.
#[derive(Subcommand, Debug)]
pub enum Enable {
    /// Switch an access key on again.
    #[command(name = "accesskey", visible_alias = "key", alias = "accesskeys")]
    AccessKey(Switch),
}

/// What can be replaced.
#[derive(Subcommand, Debug)]
pub enum Rotate {
    /// Replace the value of an access key, and print the new key, alone, on the standard output.
    ///
    /// The old value stops working at once. The new one is shown this once.
    #[command(name = "accesskey", visible_alias = "key", alias = "accesskeys")]
    AccessKey(Replace),
}

/// A key to switch.
#[derive(Args, Debug)]
pub struct Switch {
    /// The name of the key
    #[arg(value_parser = parse::name)]
    name: String,

    /// How to print the key's object, in which the key itself is not [default: not at all]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: Connection,
}

/// A key to replace.
#[derive(Args, Debug)]
pub struct Replace {
    /// The name of the key
    #[arg(value_parser = parse::name)]
    name: String,

    #[command(flatten)]
    connection: Connection,
}

fn keys() -> Collection<'static> {
    Collection::of::<OwnedAccessKey>(None)
}

impl Create {
    /// Creates, and prints the key.
    pub(crate) async fn run(self, surroundings: &Surroundings) -> Result<(), Failure> {
        let mut session = Session::open(&self.connection, surroundings)?;
        let metadata =
            ObjectMeta { name: self.name.clone().unwrap_or_default(), ..ObjectMeta::default() };
        let spec = Spec {
            display_name: self.display_name,
            user: self.user.unwrap_or_default(),
            team: self.team.unwrap_or_default(),
            ttl: self.ttl.unwrap_or(0),
            ..Spec::default()
        };
        let fields_of_new = Fields { spec, ..Fields::default() };
        let new = new_object::<OwnedAccessKey>(metadata, &fields_of_new)?;
        let created = session.client.create(keys(), &new).await.map_err(|error| {
            let failure = session.explain(&error);
            if error.is_uncertain() {
                return failure.hint(
                    "if the key was made, its value is lost: `postern list \
                                     accesskeys` shows it, `postern delete accesskey` ends it",
                );
            }
            failure
        })?;
        let name = created.metadata.name.clone();
        let spec =
            fields::<OwnedAccessKey>(&created).map_err(|error| session.explain(&error))?.spec;
        let printed = print_created(created, &spec.key, self.output, surroundings);
        printed.map_err(|failure| lost(failure, &name))?;
        surroundings.say(&format!("access key {} created{}", tame(&name), told(&spec)));
        if self.output != Some(ObjectFormat::Name) {
            surroundings.note("the key is shown this once; keep it safe");
        }
        Ok(())
    }
}

/// The key alone, unless more was asked for.
fn print_created(
    created: Object,
    key: &SecretText,
    format: Option<ObjectFormat>,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    if format.is_some() {
        return super::print(created, &OwnedAccessKey::INFO, format, surroundings);
    }
    if key.expose().is_empty() {
        return Err(Failure::new("the server answered without the key"));
    }
    print_key(key, surroundings)
}

fn print_key(key: &SecretText, surroundings: &Surroundings) -> Result<(), Failure> {
    let line = SecretText::from(format!("{}\n", key.expose()));
    surroundings.out(line.expose().as_bytes())
}

/// A key that could not be told is a key that nobody has.
fn lost(failure: Failure, name: &str) -> Failure {
    failure.loud().hint(format!(
        "the access key {} works, but nobody has it: `postern rotate accesskey {0}` makes a new \
         value, `postern delete accesskey {0}` ends it",
        tame(name)
    ))
}

/// Whose key it is, and how long it lives.
fn told(spec: &Spec) -> String {
    let owner = match spec.owner() {
        Some(Owner::User(name)) => format!(" for the user {}", tame(&name)),
        Some(Owner::Team(name)) => format!(" for the team {}", tame(&name)),
        Some(Owner::Subject(name)) => format!(" for {}", tame(&name)),
        None => String::new(),
    };
    match spec.ttl {
        0 => format!("{owner}; it does not expire"),
        seconds => format!("{owner}; it expires in {}", parse::spoken(seconds)),
    }
}

impl Switch {
    /// Switches.
    pub(crate) async fn run(
        self,
        disabled: bool,
        surroundings: &Surroundings,
    ) -> Result<(), Failure> {
        let mut session = Session::open(&self.connection, surroundings)?;
        let patch = json!({ "spec": { "disabled": disabled } });
        let patched = session.client.merge_patch(keys(), &self.name, &patch).await;
        let object = match patched {
            Ok(object) => object,
            Err(error) => {
                return Err(explain_named(&mut session, keys(), &self.name, &error).await);
            }
        };
        let word = if disabled { "disabled" } else { "enabled" };
        surroundings.say(&format!("access key {} {word}", self.name));
        super::print(object, &OwnedAccessKey::INFO, self.output, surroundings)
    }
}

impl Replace {
    /// Makes a new value here, so that no answer has to carry it.
    pub(crate) async fn run(self, surroundings: &Surroundings) -> Result<(), Failure> {
        let mut session = Session::open(&self.connection, surroundings)?;
        // Asked first: afterwards the session's own key may be the one that has gone.
        let own = whoami::ask(&mut session).await;
        let own = own.is_ok_and(|(_, status)| status.access_key == self.name);
        let key = access_key::generate(&mut || surroundings.random());
        let patch = json!({ "spec": { "key": key.expose() } });
        if let Err(error) = session.client.merge_patch(keys(), &self.name, &patch).await {
            let failure = explain_named(&mut session, keys(), &self.name, &error).await;
            return Err(if error.is_uncertain() {
                failure.hint("run it again: the value of this attempt is not told")
            } else {
                failure
            });
        }
        print_key(&key, surroundings).map_err(|failure| lost(failure, &self.name))?;
        surroundings.say(&format!("access key {} rotated; its old value is dead", self.name));
        surroundings.note("the key is shown this once; keep it safe");
        if own {
            let server = session.client.server();
            surroundings.note(&format!(
                "this was the key that you are logged in with: log in with the new one, `postern \
                 login {server} --access-key -`"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_key_it_is_and_how_long_it_lives() {
        let user = Spec { user: "ada".to_owned(), ttl: 5400, ..Spec::default() };
        assert_eq!(told(&user), " for the user ada; it expires in 1h30m");
        let team = Spec { team: "red".to_owned(), ..Spec::default() };
        assert_eq!(told(&team), " for the team red; it does not expire");
        assert_eq!(
            crate::output::full_name(&OwnedAccessKey::INFO, "ci"),
            "ownedaccesskey.management.platform.sh/ci"
        );
    }
}
