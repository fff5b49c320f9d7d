//! The candidates for the word at the cursor: commands, flags, and the values of an argument. The name of a value
//! (`USER`, `PROJECT`) says what its values are. Those that are objects come from `names.rs`.

use clap::{Arg, Command, ValueHint};
use postern_kinds::access::USE;
use postern_kinds::cluster::Cluster;
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project::Project;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{Info, Kind as _, Verb};

use super::Candidate;
use super::names::{self, Wanted};
use super::position::{Position, is_repeated, longs, takes_value};
use crate::kinds;
use crate::process::Process;

/// The short names of the roles that every project has.
const PROJECT_ROLES: [&str; 3] = ["admin", "user", "viewer"];

/// The candidates for a word.
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    /// Whether the names of files are candidates.
    pub(super) has_files: bool,
}

impl Found {
    pub(super) fn of(candidates: Vec<Candidate>) -> Self {
        Self { candidates, has_files: false }
    }

    fn files() -> Self {
        Self { candidates: Vec::new(), has_files: true }
    }

    /// The candidates with a text before each.
    fn behind(mut self, prefix: &str) -> Self {
        for candidate in &mut self.candidates {
            candidate.value.insert_str(0, prefix);
        }
        self
    }

    /// The candidates with a text behind each, after which the word goes on.
    fn followed_by(mut self, end: &str) -> Self {
        self.candidates.iter_mut().for_each(|one| one.value.push_str(end));
        self
    }
}

/// What the values of an argument are.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Nothing that is known: a new name, a duration, a text.
    Unknown,
    /// Names of files.
    Files,
    /// Values of the argument's own parser.
    Listed,
    /// Contexts of the kubeconfig.
    Contexts,
    /// Names of objects.
    Objects(&'static Info),
    /// Objects in a project, as `PROJECT/NAME`.
    InProject(&'static Info),
    /// Kinds, and names behind them.
    Words(&'static [&'static Info]),
    /// The kinds that these are of, as `KIND/NAME`.
    Prefixed(&'static [(&'static str, &'static Info)]),
    /// Secrets, with their keys behind a dot. This text is behind a name without a key.
    SecretPaths(&'static str),
    /// Keys of the secret that another argument names, with a text behind each.
    Keys(&'static str),
    /// Roles.
    Roles,
    /// Verbs of the API.
    Verbs,
}

/// The kinds of `postern access`.
const SUBJECT_KINDS: &[&Info] = &[&User::INFO, &Team::INFO, &OwnedAccessKey::INFO];
/// Users and teams.
const PRINCIPALS: &[(&str, &Info)] = &[("user", &User::INFO), ("team", &Team::INFO)];

/// The candidates for a word.
pub(super) fn find(position: &Position<'_>, current: &str, process: &Process) -> Found {
    if let Some(arg) = position.pending {
        return values(position, arg, current, process);
    }
    if !position.is_escaped && current.starts_with('-') {
        return match position.flag(current) {
            Some((arg, Some(value))) => {
                let start = &current[..current.len() - value.len()];
                values(position, arg, value, process).behind(start)
            }
            _ => Found::of(flags(position, current)),
        };
    }
    if let Some((kind, name)) = current.split_once('/')
        && position.positionals.is_empty()
        && position.command.get_positionals().next().is_none()
        && let Some(of_kind) = position.command.find_subcommand(kind)
    {
        return find(&position.below(of_kind), name, process).behind(&format!("{kind}/"));
    }
    let mut found = match position.positional() {
        Some(arg) => values(position, arg, current, process),
        None => Found::of(Vec::new()),
    };
    if position.positionals.is_empty() && !position.is_escaped {
        let mut all = subcommands(position.command, current);
        all.retain(|one| !found.candidates.iter().any(|other| other.value == one.value));
        found.candidates.splice(0..0, all);
    }
    found
}

fn subcommands(command: &Command, start: &str) -> Vec<Candidate> {
    let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
    let named = visible.flat_map(|one| {
        let about = one.get_about().map(ToString::to_string).unwrap_or_default();
        let names = one.get_name_and_visible_aliases().into_iter();
        names.map(move |name| Candidate::new(name, &about)).collect::<Vec<_>>()
    });
    named.filter(|one| one.value.starts_with(start)).collect()
}

/// The flags that may be here, without those that are given already.
fn flags(position: &Position<'_>, start: &str) -> Vec<Candidate> {
    let own = position.command.get_arguments().filter(|arg| !arg.is_positional());
    let leading = position.leading.get_arguments().filter(|_| position.path.is_empty());
    let is_free = |arg: &&Arg| {
        !arg.is_hide_set() && (is_repeated(arg) || position.value(arg.get_id().as_str()).is_none())
    };
    let help = Candidate::new("--help", "Print help");
    let named = own.chain(leading).filter(is_free).flat_map(|arg| {
        let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let names = longs(arg).into_iter();
        names.map(|name| Candidate::new(format!("--{name}"), &about)).collect::<Vec<_>>()
    });
    let mut all: Vec<_> = named.chain([help]).collect();
    all.retain(|one| one.value.starts_with(start));
    all
}

/// The values of an argument. Behind a comma, another one of several begins.
fn values(position: &Position<'_>, arg: &Arg, current: &str, process: &Process) -> Found {
    let source = source(position, arg);
    let is_list = arg.get_value_delimiter() == Some(',') || matches!(source, Source::Words(_));
    match current.rfind(',').filter(|_| is_list) {
        Some(comma) => {
            let (before, start) = current.split_at(comma + 1);
            of_source(position, arg, source, start, process).behind(before)
        }
        None => of_source(position, arg, source, current, process),
    }
}

fn of_source(
    position: &Position<'_>,
    arg: &Arg,
    source: Source,
    start: &str,
    process: &Process,
) -> Found {
    let objects = |info, start| names::objects(position, Wanted { info, start }, process);
    match source {
        Source::Unknown => Found::of(Vec::new()),
        Source::Files => Found::files(),
        Source::Listed => {
            let listed = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
            let all = listed.map(|value| {
                let about = value.get_help().map(ToString::to_string).unwrap_or_default();
                Candidate::new(value.get_name(), &about)
            });
            starting(all, start)
        }
        Source::Contexts => starting(plain(names::contexts(position, process)), start),
        Source::Objects(info) => Found::of(objects(info, start)),
        Source::InProject(info) => match start.split_once('/') {
            None => Found::of(objects(&Project::INFO, start)).followed_by("/"),
            Some((project, start)) => {
                let found = names::in_project(position, Wanted { info, start }, project, process);
                Found::of(found).behind(&format!("{project}/"))
            }
        },
        Source::Words(kinds) => words(position, kinds, start, process),
        Source::Prefixed(kinds) => match start.split_once('/') {
            None => {
                let kinds = kinds.iter().map(|(kind, _)| Candidate::new(*kind, ""));
                starting(kinds, start).followed_by("/")
            }
            Some((kind, start)) => match kinds.iter().find(|(known, _)| *known == kind) {
                Some((_, info)) => Found::of(objects(info, start)).behind(&format!("{kind}/")),
                None => Found::of(Vec::new()),
            },
        },
        Source::SecretPaths(end) => secret_paths(position, end, start, process),
        Source::Keys(end) => {
            let keys = secret_of(position).map(|secret| names::keys(position, &secret, process));
            starting(plain(keys.unwrap_or_default()), start).followed_by(end)
        }
        Source::Roles => {
            let is_of_project =
                position.value("project").is_some() || position.path.ends_with(&["member"]);
            let own = PROJECT_ROLES.iter().filter(|_| is_of_project);
            let mut found = starting(own.map(|role| Candidate::new(*role, "")), start);
            if found.candidates.is_empty() {
                found.candidates = objects(&ClusterRole::INFO, start);
            }
            found
        }
        Source::Verbs => {
            let verbs = Verb::ALL.iter().map(|verb| verb.as_str()).chain([USE]);
            starting(verbs.map(|verb| Candidate::new(verb, "")), start)
        }
    }
}

fn plain(values: Vec<String>) -> impl Iterator<Item = Candidate> {
    values.into_iter().map(|value| Candidate::new(value, ""))
}

fn starting(all: impl Iterator<Item = Candidate>, start: &str) -> Found {
    Found::of(all.filter(|one| one.value.starts_with(start)).collect())
}

/// What the values of an argument are.
fn source(position: &Position<'_>, arg: &Arg) -> Source {
    let verb = position.path.first().copied().unwrap_or_default();
    let name = arg.get_value_names().and_then(|names| names.first());
    let name = name.map(ToString::to_string).unwrap_or_default();
    match name.as_str() {
        "FILE" | "DIR" | "COMMAND" => Source::Files,
        "USER" => Source::Objects(&User::INFO),
        "TEAM" => Source::Objects(&Team::INFO),
        "PROJECT" => Source::Objects(&Project::INFO),
        "NAMESPACE" => Source::Objects(&Namespace::INFO),
        "CLUSTER" => Source::Objects(&Cluster::INFO),
        "ROLE" => Source::Roles,
        "VERB" | "VERBS" => Source::Verbs,
        "OWNER" | "MEMBER[:ROLE]" => Source::Prefixed(PRINCIPALS),
        "PROJECT/SPACE" => Source::InProject(&SpaceInstance::INFO),
        "PROJECT/NAME" => Source::InProject(&VirtualClusterInstance::INFO),
        "[NAMESPACE/]NAME" => Source::Objects(&SharedSecret::INFO),
        "NAME[.KEY]" => Source::SecretPaths(""),
        "NAME.KEY" => Source::SecretPaths("."),
        "KEY" if arg.get_id() == "access_key" => Source::Unknown,
        "KEY" | "KEY,…" => Source::Keys(""),
        "KEY=NAME" => Source::Keys("="),
        // Behind the name of a secret without a key: KEY=VALUE.
        "VALUE" if !has_key(position) => Source::Keys("="),
        "KIND[/NAME]" | "KIND/NAME" | "RESOURCE[/NAME]" if verb == "access" => {
            Source::Words(SUBJECT_KINDS)
        }
        "KIND[/NAME]" | "KIND/NAME" | "RESOURCE[/NAME]" => Source::Words(&[]),
        "NAME" => of_name(position, arg),
        _ if takes_value(arg) && !arg.get_possible_values().is_empty() => Source::Listed,
        _ if arg.get_value_hint() == ValueHint::AnyPath => Source::Files,
        _ => Source::Unknown,
    }
}

/// A value that is a name: the command or the flag says of which kind.
fn of_name(position: &Position<'_>, arg: &Arg) -> Source {
    let id = arg.get_id().as_str();
    match (position.path.as_slice(), id) {
        (_, "context" | "context_name") => Source::Contexts,
        (_, "with_key") => Source::Objects(&OwnedAccessKey::INFO),
        (_, "virtual_cluster") => Source::Objects(&VirtualClusterInstance::INFO),
        (_, "space") => Source::Objects(&SpaceInstance::INFO),
        (["create", "agent-key"], _) => Source::Objects(&Cluster::INFO),
        (["create", ..], _) => Source::Unknown,
        ([.., kind], _) if arg.is_positional() => {
            kinds::find(kind, kinds::all()).map_or(Source::Unknown, Source::Objects)
        }
        _ => Source::Unknown,
    }
}

/// `KIND NAME…` or `KIND/NAME…`. Without `only`, every kind is one of them.
fn words(position: &Position<'_>, only: &[&'static Info], start: &str, process: &Process) -> Found {
    let is_meant =
        |info: &&'static Info| only.is_empty() || only.iter().any(|one| one.kind == info.kind);
    let kinds = || kinds::served(Verb::Get).filter(is_meant);
    let given: &[String] = match position.path.as_slice() {
        // The verb is before the resource.
        ["can-i" | "who-can"] => position.positionals.get(1..).unwrap_or_default(),
        _ => &position.positionals,
    };
    if let Some((kind, name)) = start.split_once('/') {
        let Some(info) = kinds::find(kind, kinds()) else { return Found::of(Vec::new()) };
        let found = names::objects(position, Wanted { info, start: name }, process);
        return Found::of(found).behind(&format!("{kind}/"));
    }
    let has_slash = given.first().is_some_and(|first| first.contains('/'));
    if let Some(kind) = given.first().filter(|_| !has_slash) {
        let Some(info) = kinds::find(kind, kinds()) else { return Found::of(Vec::new()) };
        if info.kind == SharedSecret::INFO.kind && position.path.starts_with(&["get"]) {
            return secret_paths(position, "", start, process);
        }
        return Found::of(names::objects(position, Wanted { info, start }, process));
    }
    let names = kinds().flat_map(|info| {
        let names = [kinds::name(info), kinds::plural_name(info)];
        let names = names.into_iter().chain(info.short.iter().copied());
        names.map(move |name| Candidate::new(name, info.description))
    });
    if has_slash {
        let singular = kinds().map(|info| Candidate::new(kinds::name(info), info.description));
        return starting(singular, start).followed_by("/");
    }
    starting(names, start)
}

/// Secrets, and the keys of one behind a dot. `end` follows a name without a key.
fn secret_paths(position: &Position<'_>, end: &str, start: &str, process: &Process) -> Found {
    if start.contains('.') {
        return starting(plain(names::paths(position, start, process)), start);
    }
    let wanted = Wanted { info: &SharedSecret::INFO, start };
    Found::of(names::objects(position, wanted, process)).followed_by(end)
}

/// The secret that another argument names.
fn secret_of(position: &Position<'_>) -> Option<String> {
    let word = match position.path.first() {
        Some(&"get") => match position.positionals.first()?.split_once('/') {
            Some((_, name)) => name,
            None => position.positionals.get(1)?,
        },
        Some(&"run") => position.value("secrets")?,
        _ => position.positionals.first()?,
    };
    Some(word.to_owned())
}

/// Whether the path of a secret has a key, so that a value follows.
fn has_key(position: &Position<'_>) -> bool {
    let first = position.positionals.first();
    first.is_none_or(|path| path.contains('.') && position.value("whole").is_none())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    /// The values that nothing lists: new names, texts, numbers, and what is secret.
    const UNKNOWN: [&str; 15] = [
        "ADDRESS",
        "BOOL",
        "DURATION",
        "GROUP",
        "KEY",
        "NAME",
        "NAMESPACE/NAME",
        "PATH",
        "SELECTOR",
        "TEXT",
        "UID",
        "URL",
        "VALUE",
        "restart|signal:NAME|ignore",
        "sha256:HEX",
    ];

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        _command: crate::Command,
    }

    fn check<'a>(command: &'a Command, path: &mut Vec<&'a str>, root: &Command) {
        let words: Vec<String> = path.iter().map(ToString::to_string).collect();
        Position::of(&words, root, |position| {
            for arg in position.command.get_arguments().filter(|arg| takes_value(arg)) {
                let name = arg.get_value_names().unwrap()[0].to_string();
                let is_known = !matches!(source(position, arg), Source::Unknown);
                assert!(is_known || UNKNOWN.contains(&name.as_str()), "{path:?}: {name}");
            }
        });
        // The kinds of one verb have the same arguments: the first two are enough.
        let is_by_kind = ["list", "delete", "share", "unshare"].contains(&command.get_name());
        let count = if is_by_kind { 2 } else { usize::MAX };
        for next in command.get_subcommands().filter(|one| !one.is_hide_set()).take(count) {
            path.push(next.get_name());
            check(next, path, root);
            path.pop();
        }
    }

    #[test]
    fn it_is_decided_for_each_argument_whether_its_values_are_known() {
        let root = Line::command();
        check(&root, &mut Vec::new(), &root);
    }
}
