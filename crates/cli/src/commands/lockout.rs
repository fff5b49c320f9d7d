//! What stops before a command deletes or disables access keys, users or teams: how many keys and sessions, the
//! caller's own access, and the last access with every permission. The server deletes all of them as before: these
//! checks are of this command line, and see only what the caller can read.

use std::collections::BTreeSet;

use clap::Args;
use postern_client::Collection;
use postern_kinds::connector::Connector;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::rbac::ALL;
use postern_kinds::reviews::resource_access_review::{AllowedSubject, ResourceAccessReview};
use postern_kinds::selves::Status;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_kinds::{Info, Kind as _, MANAGEMENT_V1, Owner, Principal};
use serde_json::{Map, json};

use super::access_reviews::{may_read_all, review_of};
use crate::error::CliError;
use crate::flags::DryRun;
use crate::key_list::{self, ListedKey, counted, with_dependents};
use crate::kinds;
use crate::output::escape;
use crate::process::Process;
use crate::role_bindings::Who;
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
    /// A role is revoked.
    Revoke,
}

impl Ending {
    fn verb(self) -> &'static str {
        match self {
            Self::Delete(_) => "delete",
            Self::Disable(_) => "disable",
            Self::Revoke => "revoke",
        }
    }

    fn is_dry_run(self) -> bool {
        match self {
            Self::Delete(dry_run) | Self::Disable(dry_run) => dry_run != DryRun::None,
            Self::Revoke => false,
        }
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
    if !may_read_all(session, &OwnedAccessKey::INFO).await? {
        process.print_note(
            "you may not read all access keys: the numbers and the check of the last access are incomplete",
        );
    }
    print_counts(&objects, &keys, process);
    let ended = with_dependents(&keys, |key| objects.iter().any(|object| names(object, key)));
    let own_ends = own_end(&objects, &ended, &own);
    let last = last_access(session, &objects, &keys, &own, process).await?;
    if let Some((_, what)) = &own_ends {
        process.print_warning(what);
    }
    check_last(last, ending, flags, process)?;
    match own_ends.map(|(name, _)| name).or(last.map(|_| objects[0].1.clone())) {
        Some(name) if !flags.yes && !ending.is_dry_run() => confirm_name(&name, ending, process),
        _ => Ok(()),
    }
}

/// The error for the end of the last access with every permission; with `--force` or without a change, a warning.
fn check_last(
    last: Option<&'static str>,
    ending: Ending,
    flags: LockoutFlags,
    process: &Process,
) -> Result<(), CliError> {
    let Some(what) = last else { return Ok(()) };
    if flags.force || ending.is_dry_run() {
        process.print_warning(what);
        return Ok(());
    }
    Err(CliError::new(what)
        .hint("nothing was done; create another access key first: `postern create accesskey`")
        .hint(
            "--force ends it; then only `postern admin reset-key` on the machine of the server gives access",
        ))
}

/// A role that a user or team loses everywhere.
pub(super) struct Revocation<'a> {
    /// The user or team.
    pub(super) who: &'a Who,
    /// The name of the role.
    pub(super) role: &'a str,
    /// The names of the ClusterRoleBindings that give it.
    pub(super) bindings: &'a [&'a str],
}

/// Checks the loss of a role as [`check`] does the end of an object. It asks only about the caller's own user and teams,
/// if every permission of the caller is by the role.
pub(super) async fn check_revocation(
    session: &mut Session,
    revocation: &Revocation<'_>,
    flags: LockoutFlags,
    process: &Process,
) -> Result<(), CliError> {
    let asked = session.ask_self().await;
    let (_, own) = asked.map_err(|error| session.explain(&error))?;
    if !is_own(revocation.who, &own) {
        return Ok(());
    }
    let Some(subjects) = holders_of_everything(session).await? else { return Ok(()) };
    let has_everything = subjects_of("AccessKey", &subjects).any(|key| key == own.access_key);
    let loss = Loss { teams: Vec::new(), subjects: revocation.subjects_left(&subjects) };
    if !has_everything || loss.subjects == subjects {
        return Ok(());
    }
    let keys = key_list::list(session, process).await?;
    let own_key = keys.iter().find(|key| key.name == own.access_key);
    if let Some(key) = own_key
        && loss.keeps(session, key).await?
    {
        return Ok(());
    }
    let role = revocation.role;
    process.print_warning(&format!(
        "you have every permission by the role {}: without it, your access key has less",
        escape(role)
    ));
    let ending = Ending::Revoke;
    let is_last = is_last(session, &keys, &subjects, &BTreeSet::new(), Some(&loss)).await?;
    check_last(is_last.then_some(LAST_ACCESS), ending, flags, process)?;
    if flags.yes { Ok(()) } else { confirm_name(role, ending, process) }
}

/// Whether the caller is this user, or in this team.
fn is_own(who: &Who, own: &Status) -> bool {
    match who {
        Who::User(name) => own.user.as_ref().is_some_and(|user| user.name == *name),
        Who::Team(name) => {
            let teams = own.user.iter().flat_map(|user| &user.teams).chain(&own.team);
            teams.into_iter().any(|team| team.name == *name)
        }
    }
}

impl Revocation<'_> {
    /// The subjects that still have the permission without the bindings.
    fn subjects_left(&self, subjects: &[AllowedSubject]) -> Vec<AllowedSubject> {
        let is_who = |subject: &AllowedSubject| {
            subject.kind == self.who.info().kind && subject.name == self.who.name()
        };
        let is_by = |source: &String| {
            self.bindings
                .iter()
                .any(|name| source.starts_with(&format!("ClusterRoleBinding \"{name}\" ")))
        };
        let is_left = |subject: &&AllowedSubject| {
            !is_who(subject) || subject.via.is_empty() || !subject.via.iter().all(is_by)
        };
        subjects.iter().filter(is_left).cloned().collect()
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
    let kinds = [
        User::INFO.kind,
        Team::INFO.kind,
        OwnedAccessKey::INFO.kind,
        WorkloadIdentity::INFO.kind,
        Connector::INFO.kind,
    ];
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

/// Whether an object is the key, or the key ends with it.
fn names(object: &Named, key: &ListedKey) -> bool {
    let (info, name) = object;
    match principal(object) {
        Some(principal) => key.is_of(principal),
        None if is_key(info) => key.name == *name,
        None => key.is_made_by(info, name),
    }
}

fn is_key(info: &Info) -> bool {
    info.kind == OwnedAccessKey::INFO.kind
}

fn print_counts(objects: &[&Named], keys: &[ListedKey], process: &Process) {
    for object in objects {
        let ended = with_dependents(keys, |key| names(object, key));
        // The end of the key itself needs no line.
        let others = ended.into_iter().filter(|key| !is_key(object.0) || key.name != object.1);
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
    if is_key(info) { "access key" } else { kinds::name(info) }
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
            None if is_key(info) && *name == own.access_key => {
                format!("you use the access key {name}")
            }
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
    // Of a key that the caller cannot read, only the name is known.
    let named = objects.iter().filter(|(info, _)| is_key(info)).map(|(_, name)| name.as_str());
    let named: Vec<&str> = named.collect();
    let is_unseen = named.iter().any(|name| keys.iter().all(|key| key.name != *name));
    if !ended.iter().any(|key| key.is_alive) && teams.is_empty() && !is_unseen {
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
    let mut gone: BTreeSet<&str> = ended.iter().map(|key| key.name.as_str()).collect();
    gone.extend(named);
    let loss = (!teams.is_empty()).then(|| {
        let is_left = |one: &&AllowedSubject| {
            one.kind != Team::INFO.kind || !teams.contains(&one.name.as_str())
        };
        Loss { subjects: subjects.iter().filter(is_left).cloned().collect(), teams: teams.clone() }
    });
    let is_last = is_last(session, keys, &subjects, &gone, loss.as_ref()).await?;
    Ok(is_last.then_some(LAST_ACCESS))
}

/// The end of the last access in a sentence.
const LAST_ACCESS: &str = "no other access key with every permission would be left";

/// Whether keys with every permission end, and none is left. A key that the caller cannot read is left.
async fn is_last(
    session: &mut Session,
    keys: &[ListedKey],
    subjects: &[AllowedSubject],
    gone: &BTreeSet<&str>,
    loss: Option<&Loss<'_>>,
) -> Result<bool, CliError> {
    let mut is_any_gone = false;
    for name in subjects_of("AccessKey", subjects) {
        let key = keys.iter().find(|key| key.name == name);
        let is_kept = match (key, loss) {
            _ if gone.contains(name) => false,
            (Some(key), Some(loss)) => loss.keeps(session, key).await?,
            _ => true,
        };
        if is_kept && key.is_none_or(|key| !key.is_session) {
            return Ok(false);
        }
        is_any_gone |= !is_kept;
    }
    Ok(is_any_gone)
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

/// What gives every permission after the command.
struct Loss<'a> {
    /// The teams that end. Without any, a role ends.
    teams: Vec<&'a str>,
    /// The subjects that still have every permission.
    subjects: Vec<AllowedSubject>,
}

impl Loss<'_> {
    /// Whether the owner of a key with every permission keeps it.
    async fn keeps(&self, session: &mut Session, key: &ListedKey) -> Result<bool, CliError> {
        let who = match &key.owner {
            Some(Owner::User(user)) => Who::User(user.clone()),
            Some(Owner::Team(team)) => Who::Team(team.clone()),
            Some(Owner::Subject(_)) | None => return Ok(true),
        };
        let identities = who.identities(session).await?;
        let is_lost = |team: &String| self.teams.contains(&team.as_str());
        if !self.teams.is_empty() && !identities.teams.iter().any(is_lost) {
            return Ok(true);
        }
        let identities = who.identities_without(session, &self.teams).await?;
        Ok(self.subjects.iter().any(|one| match one.kind.as_str() {
            "Team" => {
                one.name == who.name() && matches!(who, Who::Team(_))
                    || identities.teams.contains(&one.name)
            }
            "User" => one.name == who.name() && matches!(who, Who::User(_)),
            "Group" => identities.is_in(&one.name),
            _ => false,
        }))
    }
}
