//! One subcommand for each kind that serves a verb, made at run time from the kinds themselves: `postern list KIND`,
//! `postern delete KIND NAME`. The file of the verb has the code of the command.

use std::fmt::Debug;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use postern_kinds::{AnyKind, Info, Verb};

use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag};
use crate::kinds;
use crate::process::Process;
use crate::session::Session;

/// The arguments of one verb, which are the same for every kind.
pub trait KindArgs: Args {
    /// Kinds that serve this verb get a subcommand.
    const VERB: Verb;

    /// Whether a kind that serves the verb has the command.
    fn is_for(_kind: &dyn AnyKind) -> bool {
        true
    }

    /// Flags that only kinds with namespaces have.
    type NamespaceArgs: NamespaceArgs + Debug;

    /// Subcommands that are written for one kind. Where one has a kind's name, the kind gets no
    /// other. `Infallible` is none.
    type Special: Subcommand + Debug;

    /// The subcommand's name.
    fn name(info: &Info) -> &'static str {
        kinds::name(info)
    }

    /// The description of the subcommand, in one sentence without a full stop.
    fn about(info: &Info) -> String;

    /// Further effects of the command for this kind, in whole sentences.
    fn consequence(_info: &Info) -> Option<&'static str> {
        None
    }
}

/// Flags for the namespace of a collection.
pub trait NamespaceArgs: Args {
    /// The flag for one namespace; `None` for all of them.
    fn flag(&self) -> Option<&NamespaceFlag>;
}

impl NamespaceArgs for NamespaceFlag {
    fn flag(&self) -> Option<&NamespaceFlag> {
        Some(self)
    }
}

/// A verb's subcommand.
#[derive(Debug)]
pub enum ByKind<A: KindArgs> {
    /// A command that is written for its kind.
    Special(A::Special),
    /// A command that is made from the kind.
    Generic(OfKind<A>),
}

/// A subcommand that is made from a kind, with its arguments.
#[derive(Debug)]
pub struct OfKind<A: KindArgs> {
    /// The kind.
    pub(crate) info: &'static Info,
    /// The arguments that only kinds with namespaces have.
    pub(crate) namespace_args: Option<A::NamespaceArgs>,
    /// The other arguments.
    pub(crate) args: A,
}

impl<A: KindArgs> OfKind<A> {
    /// Opens a session, with the namespace of the objects. `None` is all of them, or a kind without namespaces.
    pub(super) async fn open(
        &self,
        connection: &ConnectionFlags,
        process: &Process,
    ) -> Result<(Session, Option<String>), CliError> {
        let mut session = Session::open(connection, process)?;
        let namespace = match self.namespace_args.as_ref().and_then(NamespaceArgs::flag) {
            Some(flag) => Some(session.namespace_of(flag).await?),
            None => None,
        };
        Ok((session, namespace))
    }
}

/// Adds a kind's subcommand. Names that another subcommand has are left to that one.
fn add_kind<A: KindArgs>(command: Command, info: &'static Info) -> Command {
    let is_free = |name: &&str| command.find_subcommand(name).is_none();
    let all = std::iter::once(A::name(info)).chain(kinds::names(info));
    let mut names: Vec<_> = all.filter(is_free).collect();
    if names.is_empty() {
        return command;
    }
    let name = names.remove(0);
    names.retain(|other| *other != name);
    let visible = kinds::visible_aliases(info);
    let (visible, hidden): (Vec<_>, _) = names.into_iter().partition(|n| visible.contains(n));
    let about = A::about(info);
    let mut subcommand = Command::new(name).visible_aliases(visible).aliases(hidden);
    if info.is_namespaced() {
        subcommand = A::NamespaceArgs::augment_args(subcommand);
    }
    let consequence = A::consequence(info);
    let long_about = [Some(about.as_str()), Some(info.description), consequence];
    let long_about: Vec<_> =
        long_about.into_iter().flatten().map(|text| text.trim_end_matches('.')).collect();
    command.subcommand(
        A::augment_args(subcommand)
            .about(format!("{about}. {}", info.description.trim_end_matches('.')))
            .long_about(format!("{}.", long_about.join(".\n\n"))),
    )
}

impl<A: KindArgs> Subcommand for ByKind<A> {
    fn augment_subcommands(command: Command) -> Command {
        let command = A::Special::augment_subcommands(command);
        infos::<A>()
            .fold(command, add_kind::<A>)
            .subcommand_required(true)
            .arg_required_else_help(true)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        A::Special::has_subcommand(name) || find::<A>(name).is_some()
    }
}

/// The kinds that have the command.
fn infos<A: KindArgs>() -> impl Iterator<Item = &'static Info> {
    kinds::served_where(A::VERB, A::is_for)
}

/// The kind that a name is of.
fn find<A: KindArgs>(name: &str) -> Option<&'static Info> {
    infos::<A>().find(|info| kinds::names(info).contains(&name))
}

impl<A: KindArgs> FromArgMatches for ByKind<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        if matches.subcommand_name().is_some_and(A::Special::has_subcommand) {
            return A::Special::from_arg_matches(matches).map(Self::Special);
        }
        let Some((name, matches)) = matches.subcommand() else {
            return Err(Error::raw(ErrorKind::MissingSubcommand, "a kind is required"));
        };
        let Some(info) = find::<A>(name) else {
            return Err(Error::raw(ErrorKind::InvalidSubcommand, "this kind is not served"));
        };
        let namespaced = info.is_namespaced().then(|| A::NamespaceArgs::from_arg_matches(matches));
        let namespace_args = namespaced.transpose()?;
        Ok(Self::Generic(OfKind { info, namespace_args, args: A::from_arg_matches(matches)? }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use postern_kinds::Kind as _;
    use postern_kinds::team::Team;
    use postern_kinds::user::User;

    use super::*;
    use crate::commands::list::List;

    #[test]
    fn a_name_that_another_subcommand_has_is_left_to_it() {
        let taken = Command::new("list")
            .subcommand(Command::new("users"))
            .subcommand(Command::new("team").alias("teams"));
        let command = add_kind::<List>(add_kind::<List>(taken, &User::INFO), &Team::INFO);
        let names: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
        assert_eq!(names, ["users", "team", "user"]);
        command.clone().debug_assert();
        let matches = command.try_get_matches_from(["list", "user"]).unwrap();
        let Ok(ByKind::<List>::Generic(user)) = ByKind::from_arg_matches(&matches) else {
            panic!("the subcommand is the kind's");
        };
        assert_eq!(user.info.kind, "User");
    }
}
