//! Names of objects and of contexts, as candidates. A name takes at most a few requests, and a second for all of them.
//! Values of secrets are not requested.

use std::time::Duration;

use clap::FromArgMatches as _;
use postern_client::{Collection, decode_fields};
use postern_kinds::project::namespace_of;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::secret_entries::SecretEntries;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::Team;
use postern_kinds::team_members::TeamMembers;
use postern_kinds::user::User;
use postern_kinds::{Info, Kind as _};

use super::Candidate;
use super::position::Position;
use crate::flags::{ConnectionFlags, NamespaceFlag};
use crate::kubeconfig::{Files, Kubeconfig};
use crate::process::Process;
use crate::session::Session;

/// The longest that a user waits for candidates.
const DEADLINE: Duration = Duration::from_secs(1);
/// The most teams whose members are listed.
const TEAMS_MAX: usize = 5;

/// The names of objects that are wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) info: &'static Info,
    /// The start of the names.
    pub(super) start: &'a str,
}

impl Wanted<'_> {
    fn candidates(self, names: Vec<(String, String)>) -> Vec<Candidate> {
        let found = names.into_iter().filter(|(name, _)| name.starts_with(self.start));
        found.map(|(name, about)| Candidate::new(name, &about)).collect()
    }
}

/// The names of objects in the namespace or the project of the command.
pub(super) fn objects(
    position: &Position<'_>,
    wanted: Wanted<'_>,
    process: &Process,
) -> Vec<Candidate> {
    let project = position.value("project").or(position.value("from"));
    let names = ask(position, process, async |session, namespace| {
        if [User::INFO.kind, Team::INFO.kind].contains(&wanted.info.kind) {
            return people(session, wanted.info).await;
        }
        let (info, namespace) = locate(wanted.info, project, session, namespace).await?;
        listed(session, info, namespace.as_deref()).await
    });
    wanted.candidates(names.unwrap_or_default())
}

/// The names of objects in a project.
pub(super) fn in_project(
    position: &Position<'_>,
    wanted: Wanted<'_>,
    project: &str,
    process: &Process,
) -> Vec<Candidate> {
    let names = ask(position, process, async |session, namespace| {
        let (info, namespace) = locate(wanted.info, Some(project), session, namespace).await?;
        listed(session, info, namespace.as_deref()).await
    });
    wanted.candidates(names.unwrap_or_default())
}

/// The keys of a secret.
pub(super) fn keys(position: &Position<'_>, secret: &str, process: &Process) -> Vec<String> {
    let project = position.value("project");
    let keys = ask(position, process, async |session, namespace| {
        let (info, namespace) = locate(&SharedSecret::INFO, project, session, namespace).await?;
        entries(session, Collection::new(info, namespace.as_deref()), secret).await
    });
    keys.unwrap_or_default()
}

/// The secrets and their keys, as `NAME.KEY`, that a text with a dot may begin. The name ends at the first dot, or it is
/// the longer name of another secret.
pub(super) fn paths(position: &Position<'_>, start: &str, process: &Process) -> Vec<String> {
    let project = position.value("project");
    let found = ask(position, process, async |session, namespace| {
        let (info, namespace) = locate(&SharedSecret::INFO, project, session, namespace).await?;
        let of = Collection::new(info, namespace.as_deref());
        let (first, _) = start.split_once('.')?;
        if let Some(keys) = entries(session, of, first).await {
            return Some(keys.into_iter().map(|key| format!("{first}.{key}")).collect());
        }
        let mut found = session.client.some_names(of).await.ok()?;
        let is_before =
            |name: &&String| start.strip_prefix(*name).is_some_and(|end| end.starts_with('.'));
        if let Some(secret) = found.iter().filter(is_before).max_by_key(|name| name.len()).cloned()
        {
            let keys = entries(session, of, &secret).await.unwrap_or_default();
            found.extend(keys.into_iter().map(|key| format!("{secret}.{key}")));
        }
        Some(found)
    });
    found.unwrap_or_default()
}

/// The contexts of the kubeconfig.
pub(super) fn contexts(position: &Position<'_>, process: &Process) -> Vec<String> {
    let file = position.value("kubeconfig").map(Into::into);
    let files = Files::find(file.as_ref(), process);
    let config = files.and_then(|files| Kubeconfig::load(&files));
    config.map_or_else(|_| Vec::new(), |config| config.contexts().map(str::to_owned).collect())
}

/// Asks the server, in a session with the flags of the command line. `None` without an answer in time. The command never
/// asks the user, prints no message, and reads no key from the standard input.
fn ask<T>(
    position: &Position<'_>,
    process: &Process,
    question: impl AsyncFnOnce(&mut Session, &NamespaceFlag) -> Option<T>,
) -> Option<T> {
    if position.value("access_key") == Some("-") {
        return None;
    }
    // The `--as` of `can-i` is the user of the question.
    let is_question = position.path.first() == Some(&"can-i");
    let mut given = vec!["postern".to_owned()];
    for (id, value) in &position.flags {
        let leading = position.leading.get_arguments().find(|arg| arg.get_id().as_str() == id);
        if let Some(long) = leading.and_then(clap::Arg::get_long)
            && !matches!(long, "debug" | "timeout")
            && !(is_question && long == "as")
        {
            given.push(format!("--{long}={value}"));
        }
    }
    let matches = position.leading.clone().try_get_matches_from(given).ok()?;
    let mut flags = ConnectionFlags::from_arg_matches(&matches).ok()?;
    let namespace = NamespaceFlag::from_arg_matches(&matches).ok()?;
    flags.target.credential.timeout = DEADLINE;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let answer = runtime.block_on(async {
        let asked = async {
            let mut session = Session::open(&flags, &process.silent()).ok()?;
            question(&mut session, &namespace).await
        };
        tokio::time::timeout(DEADLINE, asked).await.ok().flatten()
    });
    // A thread that still resolves a name is not waited for.
    runtime.shutdown_background();
    answer
}

/// The kind and the namespace. Secrets with a project are its project secrets.
async fn locate(
    info: &'static Info,
    project: Option<&str>,
    session: &mut Session,
    flag: &NamespaceFlag,
) -> Option<(&'static Info, Option<String>)> {
    if !info.is_namespaced() {
        return Some((info, None));
    }
    let Some(project) = project else {
        return Some((info, Some(session.namespace_of(flag).await.ok()?)));
    };
    session.load_names().await.ok()?;
    let info = if info.kind == SharedSecret::INFO.kind { &ProjectSecret::INFO } else { info };
    Some((info, Some(namespace_of(project))))
}

/// The names of objects, without descriptions.
async fn listed(
    session: &mut Session,
    info: &'static Info,
    namespace: Option<&str>,
) -> Option<Vec<(String, String)>> {
    let names = session.client.some_names(Collection::new(info, namespace)).await.ok()?;
    Some(names.into_iter().map(|name| (name, String::new())).collect())
}

/// The users or teams that the caller may list. A caller without a role lists at most itself: its teams follow, or the
/// members of these, whom it may name.
async fn people(session: &mut Session, info: &'static Info) -> Option<Vec<(String, String)>> {
    let mut found = listed(session, info, None).await.unwrap_or_default();
    if found.len() > 1 {
        return Some(found);
    }
    let mut add = |name: String, display_name: String| {
        if !found.iter().any(|(known, _)| *known == name) {
            found.push((name, display_name));
        }
    };
    let (_, own) = session.ask_self().await.ok()?;
    let teams = own.user.map(|user| user.teams).unwrap_or_default();
    if info.kind == Team::INFO.kind {
        for team in teams {
            add(team.name, team.display_name);
        }
        return Some(found);
    }
    for team in teams.iter().take(TEAMS_MAX) {
        let part = session.client.get_part(Collection::of::<Team>(None), &team.name, "members");
        let Ok(members) = part.await else { continue };
        let Ok(members) = decode_fields::<TeamMembers>(&members) else { continue };
        for user in members.spec.users {
            add(user.name, user.display_name);
        }
    }
    Some(found)
}

/// The names of the entries of a secret.
async fn entries(session: &mut Session, of: Collection<'_>, secret: &str) -> Option<Vec<String>> {
    let object = session.client.get_part(of, secret, "entries").await.ok()?;
    let entries = decode_fields::<SecretEntries>(&object).ok()?.spec.entries;
    Some(entries.into_iter().map(|entry| entry.name).collect())
}
