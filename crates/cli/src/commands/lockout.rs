//! What stops before a command deletes or disables access keys, users or teams: how many keys and sessions, the
//! caller's own access, and the last access with every permission. The server deletes all of them as before: these
//! checks are of this command line, and see only what the caller can read.

use std::collections::BTreeSet;

use clap::Args;
use postern_client::Collection;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::rbac::ALL;
use postern_kinds::reviews::resource_access_review::{AllowedSubject, ResourceAccessReview};
use postern_kinds::selves::Status;
use postern_kinds::team::{self, Team};
use postern_kinds::user::User;
use postern_kinds::{Info, Kind as _, MANAGEMENT_V1, Principal, user};
use serde_json::{Map, json};

use super::access_reviews::review_of;
use crate::error::CliError;
use crate::flags::DryRun;
use crate::key_list::{self, ListedKey, counted, with_dependents};
use crate::kinds;
use crate::output::escape;
use crate::process::Process;
use crate::session::Session;

/// The flags of commands that can end the access of the caller.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct LockoutFlags {
    /// Do not ask for confirmation, also if your own access ends
    #[arg(short, long)]
    pub(super) yes: bool,

    /// Also end the last access key with every permission. Only `postern admin reset-key` on the machine of the
    /// server restores it
    #[arg(long)]
    force: bool,
}

/// An object, by its kind and name.
pub(crate) type Named = (&'static Info, String);

/// How access ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The object is deleted.
    Delete(DryRun),
    /// The object is disabled.
    Disable(DryRun),
}

impl Ending {
    fn verb(self) -> &'static str {
        match self {
            Self::Delete(_) => "delete",
            Self::Disable(_) => "disable",
        }
    }

    fn is_dry_run(self) -> bool {
        let (Self::Delete(dry_run) | Self::Disable(dry_run)) = self;
        dry_run != DryRun::None
    }
}

/// Prints which keys and sessions stop. If the access of the caller ends, it asks for the name of the object. The end
/// of the last access key with every permission is an error.
pub(crate) async fn check(
    session: &mut Session,
    objects: &[Named],
    ending: Ending,
    flags: LockoutFlags,
    process: &Process,
) -> Result<(), CliError> {
    let objects: Vec<&Named> = objects.iter().filter(|(info, _)| ends_access(info)).collect();
    if objects.is_empty() {
        return Ok(());
    }
    let asked = session.ask_self().await;
    let (_, mut own) = asked.map_err(|error| session.explain(&error))?;
    let keys = key_list::list(session, process).await?;
    let is_impersonating = session.client.impersonation().is_some();
    if is_impersonating && keys.iter().all(|key| key.name != own.access_key) {
        // The impersonated user cannot end the key of the caller.
        own.access_key.clear();
    }
    print_counts(&objects, &keys, process);
    let ended = with_dependents(&keys, |key| objects.iter().any(|object| names(object, key)));
    let own_ends = own_end(&objects, &ended, &own);
    let last = last_access(session, &objects, &keys, &own, process).await?;
    if let Some((_, what)) = &own_ends {
        process.print_warning(what);
    }
    match &last {
        Some(what) if flags.force || ending.is_dry_run() => process.print_warning(what),
        Some(what) => {
            return Err(CliError::new(*what)
                .hint("nothing was done; create another access key first: `postern create accesskey`")
                .hint(
                    "--force ends it; then only `postern admin reset-key` on the machine of the server gives access",
                ));
        }
        None => {}
    }
    let name = own_ends.map(|(name, _)| name).or(last.map(|_| objects[0].1.clone()));
    match name {
        Some(name) if !flags.yes && !ending.is_dry_run() => confirm_name(&name, ending, process),
        _ => Ok(()),
    }
}

/// Asks for the name of the object.
fn confirm_name(name: &str, ending: Ending, process: &Process) -> Result<(), CliError> {
    if !process.stdin_is_terminal() {
        let text = "the command asks for confirmation, and there is no terminal";
        return Err(CliError::usage(text)
            .hint(format!("nothing was done; --yes does it without confirmation: {name}")));
    }
    let verb = ending.verb();
    if process.prompt_line(&format!("To {verb} it, type its name, {name}: "))? == name {
        return Ok(());
    }
    Err(CliError::new("the name was not typed, so nothing was done"))
}

/// Whether access ends with objects of a kind.
fn ends_access(info: &Info) -> bool {
    let kinds = [User::INFO.kind, Team::INFO.kind, OwnedAccessKey::INFO.kind];
    info.version == MANAGEMENT_V1 && kinds.contains(&info.kind)
}

/// The user or team that an object is.
fn principal((info, name): &Named) -> Option<Principal<'_>> {
    if info.kind == User::INFO.kind {
        Some(Principal::User(name))
    } else if info.kind == Team::INFO.kind {
        Some(Principal::Team(name))
    } else {
        None
    }
}

/// Whether an object is the key or its owner.
fn names(object: &Named, key: &ListedKey) -> bool {
    match principal(object) {
        Some(principal) => key.is_of(principal),
        None => key.name == object.1,
    }
}

fn print_counts(objects: &[&Named], keys: &[ListedKey], process: &Process) {
    for object in objects {
        let ended = with_dependents(keys, |key| names(object, key));
        // The end of the key itself needs no line.
        let others =
            ended.into_iter().filter(|key| principal(object).is_some() || key.name != object.1);
        let counted = counted(others);
        if !counted.is_empty() {
            let (info, name) = object;
            let word = word(info);
            process.print_note(&match principal(object) {
                Some(_) => format!("this stops {counted} of the {word} {name}"),
                None => format!("this also stops {counted} made with the {word} {name}"),
            });
        }
    }
}

/// The kind in a sentence.
pub(super) fn word(info: &Info) -> &'static str {
    if info.kind == OwnedAccessKey::INFO.kind { "access key" } else { kinds::name(info) }
}

/// The object with which the caller's own access ends, and the end in a sentence.
fn own_end(objects: &[&Named], ended: &[&ListedKey], own: &Status) -> Option<(String, String)> {
    let user = own.user.as_ref().map(|user| user.name.as_str());
    let team = own.team.as_ref().map(|team| team.name.as_str());
    let own_principal = user.map(Principal::User).or(team.map(Principal::Team));
    for object in objects {
        let (info, name) = object;
        let what = match principal(object) {
            Some(of) if Some(of) == own_principal => {
                format!("the {} {name} is the owner of the access key that you use", word(info))
            }
            None if *name == own.access_key => format!("you use the access key {name}"),
            _ => continue,
        };
        return Some((name.clone(), format!("{what}: your access ends at once")));
    }
    let is_own = |key: &&&ListedKey| key.name == own.access_key;
    let key = ended.iter().find(is_own).filter(|key| !key.name.is_empty())?;
    let name = &objects.first()?.1;
    let what = format!("the access key that you use, {}, ends with {name}", escape(&key.name));
    Some((name.clone(), what))
}

/// Why no access key with every permission is left; `None` if one is left, or if none ends. The caller may be unable to
/// find out, which a note says.
async fn last_access(
    session: &mut Session,
    objects: &[&Named],
    keys: &[ListedKey],
    own: &Status,
    process: &Process,
) -> Result<Option<&'static str>, CliError> {
    let ended = with_dependents(keys, |key| objects.iter().any(|object| names(object, key)));
    let teams = objects.iter().filter(|(info, _)| info.kind == Team::INFO.kind);
    let teams: Vec<&str> = teams.map(|(_, name)| name.as_str()).collect();
    if !ended.iter().any(|key| key.is_alive) && teams.is_empty() {
        return Ok(None);
    }
    let Some(subjects) = holders_of_everything(session).await? else {
        // A caller without this permission has not every permission, unless the key has a scope.
        let user = own.user.as_ref().map(|user| Principal::User(&user.name));
        let is_own = |key: &&ListedKey| user.is_some_and(|user| key.is_of(user));
        if own.access_key_scope.is_some() || !ended.iter().all(is_own) || !teams.is_empty() {
            process.print_note(
                "you have no permission to check whether another access key with every permission is left",
            );
        }
        return Ok(None);
    };
    let lost = lost_with_teams(session, &teams, &subjects).await?;
    let with_every: BTreeSet<&str> = subjects_of("AccessKey", &subjects).collect();
    let ended: BTreeSet<&str> = ended.iter().map(|key| key.name.as_str()).collect();
    let with_all = keys.iter().filter(|key| with_every.contains(key.name.as_str()));
    let (gone, left): (Vec<_>, Vec<_>) = with_all.partition(|key| {
        let is_lost = lost.iter().any(|user| key.is_of(Principal::User(user)));
        is_lost || ended.contains(key.name.as_str())
    });
    if gone.is_empty() || left.iter().any(|key| !key.is_session) {
        return Ok(None);
    }
    Ok(Some("no other access key with every permission would be left"))
}

/// The subjects with every permission; `None` if the caller may not ask.
async fn holders_of_everything(
    session: &mut Session,
) -> Result<Option<Vec<AllowedSubject>>, CliError> {
    let spec = ["verb", "group", "resource"].map(|field| (field.to_owned(), json!(ALL)));
    let review = review_of::<ResourceAccessReview>(Map::from_iter(spec));
    let of = Collection::of::<ResourceAccessReview>(None);
    let answer = session.client.create(of, &review).await;
    let Some(answer) = session.readable(answer)? else { return Ok(None) };
    Ok(Some(session.fields::<ResourceAccessReview>(&answer)?.status.subjects))
}

fn subjects_of<'a>(
    kind: &'static str,
    subjects: &'a [AllowedSubject],
) -> impl Iterator<Item = &'a str> {
    subjects.iter().filter(move |one| one.kind == kind).map(|one| one.name.as_str())
}

/// The members of teams that have every permission only by these teams.
async fn lost_with_teams(
    session: &mut Session,
    teams: &[&str],
    subjects: &[AllowedSubject],
) -> Result<BTreeSet<String>, CliError> {
    let mut lost = BTreeSet::new();
    for name in teams {
        let read = session.client.get(Collection::of::<Team>(None), name).await;
        let Some(object) = session.readable(read)? else { continue };
        let team::Spec { users, groups, .. } = session.fields::<Team>(&object)?.spec;
        let gives = subjects_of("Team", subjects).any(|one| one == *name)
            || subjects_of("Group", subjects).any(|one| groups.iter().any(|group| group == one));
        if gives {
            lost.extend(users);
        }
    }
    let mut kept = BTreeSet::new();
    for name in &lost {
        if subjects_of("User", subjects).any(|one| one == name)
            || has_by_group(session, name, subjects).await?
        {
            kept.insert(name.clone());
        }
    }
    Ok(lost.difference(&kept).cloned().collect())
}

/// Whether one of the user's own groups has every permission.
async fn has_by_group(
    session: &mut Session,
    user: &str,
    subjects: &[AllowedSubject],
) -> Result<bool, CliError> {
    let read = session.client.get(Collection::of::<User>(None), user).await;
    let Some(object) = session.readable(read)? else { return Ok(false) };
    let user::Spec { groups, .. } = session.fields::<User>(&object)?.spec;
    Ok(subjects_of("Group", subjects).any(|one| groups.iter().any(|group| group == one)))
}
