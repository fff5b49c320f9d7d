//! What stops before a command takes access: how many keys and sessions, the caller's own access, and the last access key
//! with every permission. Every command that writes a kind of `ways_in.rs` calls it. The server does all of it as before:
//! these checks are of this command line.

use clap::Args;
use postern_client::{Collection, Representation};
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::connector::Connector;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::rbac::{ALL, Subject};
use postern_kinds::reviews::self_subject_access_review::SelfSubjectAccessReview;
use postern_kinds::reviews::subject_access_review::SubjectAccessReview;
use postern_kinds::selves::Status;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_kinds::{Info, Kind as _, MANAGEMENT_V1, Owner, Principal};
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde_json::{Map, Value, json};

use super::access_reviews::{KEY_EXTRA, ask, may, may_read_all, review_of};
use super::ways_in::{self, Change, Effect, World, is_kind};
use crate::error::CliError;
use crate::flags::DryRun;
use crate::key_list::{ListedKey, counted, with_dependents};
use crate::kinds;
use crate::output::escape;
use crate::process::Process;
use crate::role_bindings::{Binding, GROUP_SUBJECT, Identities, Who};
use crate::session::Session;

/// The flag of commands that can end the last access.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ForceFlag {
    /// Also end the last access key with every permission. Only `postern admin reset-key` on the machine of the
    /// server restores it
    #[arg(long)]
    force: bool,
}

/// The flags of commands that can end the access of the caller.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct LockoutFlags {
    /// Do not ask for confirmation, also if your own access ends
    #[arg(short, long)]
    pub(super) yes: bool,

    #[command(flatten)]
    force: ForceFlag,
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

    fn effect(self) -> Effect {
        match self {
            Self::Delete(_) => Effect::Delete,
            Self::Disable(_) | Self::Revoke => Effect::Disable,
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
    let change =
        |(info, name): &Named| Change { info, name: name.clone(), effect: ending.effect() };
    let changes = objects.iter().map(change).collect();
    let Some(view) = View::load(session, changes, process).await? else { return Ok(()) };
    let named = |change: &Change| (change.info, change.name.clone());
    let objects: Vec<Named> =
        view.changes.iter().filter(|change| ends_access(change.info)).map(named).collect();
    if !objects.is_empty() && view.is_unread(&OwnedAccessKey::INFO) {
        process.print_note("you may not read all access keys: the numbers are incomplete");
    }
    print_counts(&objects, &view.keys, process);
    let ended = with_dependents(&view.keys, |key| objects.iter().any(|object| names(object, key)));
    let own_ends = own_end(&objects, &ended, &view.own);
    let last = view.danger(session).await?;
    let own_ends = own_ends.or_else(|| {
        let name = view.changes.first().map(|change| change.name.clone());
        let less = "the access key that you use loses every permission";
        name.filter(|_| view.lessens_own()).map(|name| (name, less.to_owned()))
    });
    if let Some((_, what)) = &own_ends {
        process.print_warning(what);
    }
    let is_last = last.is_some();
    refuse(last, flags.force, ending.is_dry_run(), process)?;
    let first = || view.changes.first().filter(|_| is_last).map(|change| change.name.clone());
    match own_ends.map(|(name, _)| name).or_else(first) {
        Some(name) if !flags.yes && !ending.is_dry_run() => confirm_name(&name, ending, process),
        _ => Ok(()),
    }
}

/// Checks an object before it is replaced by another one. Without a difference that matters, there is no request.
pub(crate) async fn check_write(
    session: &mut Session,
    info: &'static Info,
    before: &Value,
    after: &Value,
    force: ForceFlag,
    process: &Process,
) -> Result<(), CliError> {
    if !ways_in::differs(info, before, after) {
        return Ok(());
    }
    let wrong = |_| CliError::new("the object has no valid metadata");
    let after = Object::from_value(after.clone()).map_err(wrong)?;
    let name = after.metadata.name.clone();
    let change = Change { info, name, effect: Effect::Write(Box::new(after)) };
    check_changes(session, vec![change], force, process).await
}

/// Checks changes that are made together. Only the end of the last access key with every permission is an error.
pub(super) async fn check_changes(
    session: &mut Session,
    changes: Vec<Change>,
    force: ForceFlag,
    process: &Process,
) -> Result<(), CliError> {
    let Some(view) = View::load(session, changes, process).await? else { return Ok(()) };
    let danger = view.danger(session).await?;
    refuse(danger, force, false, process)
}

/// A role that a user or team loses everywhere.
pub(super) struct Revocation<'a> {
    /// The names by which bindings name the user or team.
    pub(super) identities: &'a Identities,
    /// The name of the role.
    pub(super) role: &'a str,
    /// The names of the ClusterRoleBindings that give it.
    pub(super) bindings: &'a [&'a str],
}

/// Checks the loss of a role as [`check`] does the end of an object.
pub(super) async fn check_revocation(
    session: &mut Session,
    revocation: &Revocation<'_>,
    flags: LockoutFlags,
    process: &Process,
) -> Result<(), CliError> {
    let change = |name: &&str| Change {
        info: &ClusterRoleBinding::INFO,
        name: (*name).to_owned(),
        effect: Effect::Unbind(revocation.identities.clone()),
    };
    let changes = revocation.bindings.iter().map(change).collect();
    let Some(view) = View::load(session, changes, process).await? else { return Ok(()) };
    let danger = view.danger(session).await?;
    let is_last = danger.is_some();
    let role = revocation.role;
    let is_own = view.lessens_own();
    if is_own {
        process.print_warning(&format!(
            "you have every permission by the role {}: without it, your access key has less",
            escape(role)
        ));
    }
    refuse(danger, flags.force, false, process)?;
    if flags.yes || !is_own && !is_last {
        return Ok(());
    }
    confirm_name(role, Ending::Revoke, process)
}

/// Why a change may leave no access key with every permission.
enum Danger {
    /// None is left.
    Last,
    /// It is unknown: the caller may not read all objects of these kinds.
    Unknown { plurals: Vec<&'static str>, asking: Asking },
}

/// Whether the caller may ask the server about others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Allowed,
    Denied,
}

/// The error for the end of the last access with every permission; with `--force` or without a change, a warning.
fn refuse(
    danger: Option<Danger>,
    force: ForceFlag,
    is_dry_run: bool,
    process: &Process,
) -> Result<(), CliError> {
    let Some(danger) = danger else { return Ok(()) };
    let what = match &danger {
        Danger::Last => "no other access key with every permission would be left".to_owned(),
        Danger::Unknown { plurals, .. } => format!(
            "it is unknown whether another access key with every permission would be left: you may not read all {}",
            plurals.join(", ")
        ),
    };
    if force.force || is_dry_run {
        process.print_warning(&what);
        return Ok(());
    }
    let error = CliError::new(what);
    Err(match danger {
        Danger::Last => error
            .hint(
                "nothing was done; create another access key first, without a scope and valid for at least 24h: `postern \
                 create accesskey`",
            )
            .hint(
                "--force ends it; then only `postern admin reset-key` on the machine of the server gives access",
            ),
        Danger::Unknown { asking, .. } => error
            .hint("nothing was done; ask an administrator, who may read them, to do it")
            .hint_if(
                asking == Asking::Denied,
                "a role with the verb create on subjectaccessreviews.authorization.k8s.io lets this command ask the server \
                 whether the access has every permission: then it needs no --force for ordinary users",
            )
            .hint("--force does it without this check; without a terminal, pass --force --yes"),
    })
}

/// What the caller can see of the ways in, and what is to change.
struct View {
    world: World,
    keys: Vec<ListedKey>,
    changes: Vec<Change>,
    outcome: ways_in::Outcome,
    own: Status,
    /// Whether the caller has every permission.
    has_everything: bool,
    /// The kinds of which the caller may not read all objects.
    unread: Vec<&'static Info>,
}

impl View {
    /// Reads the objects that decide; `None` if no change can matter.
    async fn load(
        session: &mut Session,
        changes: Vec<Change>,
        process: &Process,
    ) -> Result<Option<Self>, CliError> {
        let mut matter = Vec::new();
        for change in changes {
            if may_matter(session, &change).await? {
                matter.push(change);
            }
        }
        if matter.is_empty() {
            return Ok(None);
        }
        let asked = session.ask_self().await;
        let (_, mut own) = asked.map_err(|error| session.explain(&error))?;
        let has_everything = has_everything(session).await?;
        let (mut world, mut unread) = (World::new(process.now_unix_seconds()), Vec::new());
        for info in ways_in::kinds() {
            let of = Collection::new(info, None);
            let listed = session.client.list(of, Representation::Whole).await;
            let Some(mut list) = session.readable(listed)? else {
                unread.push(info);
                continue;
            };
            let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            for object in items.into_iter().filter_map(|item| Object::from_value(item).ok()) {
                world.insert(info, object);
            }
            // A list of a kind of the management API has only the objects that the caller can read.
            if !has_everything && !may_read_all(session, info).await? {
                unread.push(info);
            }
        }
        let keys = world.keys();
        let is_impersonating = session.client.impersonation().is_some();
        if is_impersonating && keys.iter().all(|key| key.name != own.access_key) {
            // The impersonated user cannot end the key of the caller.
            own.access_key.clear();
        }
        let outcome = world.outcome(&matter);
        Ok(Some(Self { world, keys, changes: matter, outcome, own, has_everything, unread }))
    }

    fn is_unread(&self, info: &Info) -> bool {
        self.unread.iter().any(|unread| is_kind(unread, info))
    }

    /// Whether the caller's own key keeps to exist, and loses every permission.
    fn lessens_own(&self) -> bool {
        self.outcome.lost.contains(&self.own.access_key)
    }

    /// What the changes may do to the last way in; `None` if another one is left, or if they take none.
    async fn danger(&self, session: &mut Session) -> Result<Option<Danger>, CliError> {
        if self.outcome.is_any_left {
            return Ok(None);
        }
        if self.unread.is_empty() {
            return Ok((!self.outcome.lost.is_empty()).then_some(Danger::Last));
        }
        for change in &self.changes {
            if self.may_take_a_way_in(session, change).await? {
                let plurals = self.unread.iter().map(|info| info.plural).collect();
                let is_allowed = may(session, "create", &SubjectAccessReview::INFO, "").await?;
                let asking = if is_allowed { Asking::Allowed } else { Asking::Denied };
                return Ok(Some(Danger::Unknown { plurals, asking }));
            }
        }
        Ok(None)
    }

    /// Whether a change can take every permission from a key that the caller may be unable to read. Unknown is yes.
    async fn may_take_a_way_in(
        &self,
        session: &mut Session,
        Change { info, name, effect }: &Change,
    ) -> Result<bool, CliError> {
        if is_kind(info, &OwnedAccessKey::INFO) {
            return self.may_be_a_way_in(session, name).await;
        }
        if is_kind(info, &User::INFO) {
            return self.may_have_everything(session, &Who::User(name.clone())).await;
        }
        if is_kind(info, &Team::INFO) {
            return self.may_have_everything(session, &Who::Team(name.clone())).await;
        }
        if is_kind(info, &ClusterRoleBinding::INFO) {
            let of = Collection::of::<ClusterRoleBinding>(None);
            let read = session.client.get(of, name).await;
            let object = session.readable(read)?;
            let Some(binding) = object.and_then(|object| Binding::of(&object.into_value())) else {
                return Ok(true);
            };
            let is_lost = |subject: &&Subject| match effect {
                Effect::Unbind(identities) => identities.is_direct(subject),
                _ => true,
            };
            for subject in binding.subjects.iter().filter(is_lost) {
                let may_give = match who_of(subject) {
                    Some(who) => self.may_have_everything(session, &who).await?,
                    None if subject.kind == GROUP_SUBJECT => {
                        review(session, json!({ "groups": [subject.name] })).await?
                    }
                    None => review(session, json!({ "user": subject.name })).await?,
                };
                if may_give {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether the key of a name can have every permission.
    async fn may_be_a_way_in(&self, session: &mut Session, name: &str) -> Result<bool, CliError> {
        let key = self.keys.iter().find(|key| key.name == name);
        if key.is_some_and(|key| key.is_scoped) {
            return Ok(false);
        }
        if name == self.own.access_key && self.own.access_key_scope.is_none() {
            return Ok(self.has_everything);
        }
        if key.is_none() {
            let of = Collection::of::<OwnedAccessKey>(None);
            let read = session.client.get_as(of, name, Representation::Metadata).await;
            // The server hides the key from this caller, and rejects the change in the same way.
            if read.is_err_and(|error| error.reason() == Some(Reason::NotFound)) {
                return Ok(false);
            }
        }
        let who = match key.filter(|key| key.groups.is_empty()).and_then(|key| key.owner.as_ref()) {
            Some(Owner::User(user)) => Who::User(user.clone()),
            Some(Owner::Team(team)) => Who::Team(team.clone()),
            _ => return review(session, json!({ "extra": { KEY_EXTRA: [name] } })).await,
        };
        self.may_have_everything(session, &who).await
    }

    /// Whether a user or team can have every permission.
    async fn may_have_everything(
        &self,
        session: &mut Session,
        who: &Who,
    ) -> Result<bool, CliError> {
        if self.unread.iter().all(|info| is_kind(info, &OwnedAccessKey::INFO)) {
            return Ok(self.world.has_everything(who));
        }
        if self.own.access_key_scope.is_none() && is_own(who, &self.own) {
            return Ok(self.has_everything);
        }
        let object = self.world.get(who.info(), who.name());
        let subject = object.and_then(|object| object.fields.get("spec")?["subject"].as_str());
        let user = match who {
            Who::User(name) => subject.filter(|text| !text.is_empty()).unwrap_or(name).to_owned(),
            Who::Team(_) => who.principal().group(),
        };
        review(session, json!({ "user": user })).await
    }
}

/// Whether a change can matter for the ways in, by the object alone. A role that does not give every permission does not,
/// nor does its binding.
async fn may_matter(session: &mut Session, change: &Change) -> Result<bool, CliError> {
    let Change { info, name, .. } = change;
    if !ways_in::decides_if_deleted(info) {
        return Ok(false);
    }
    let mut role = name.clone();
    if is_kind(info, &ClusterRoleBinding::INFO) {
        let read = session.client.get(Collection::new(info, None), name).await;
        let object = session.readable(read)?;
        let Some(binding) = object.and_then(|object| Binding::of(&object.into_value())) else {
            return Ok(true);
        };
        role = binding.role.name;
    } else if !is_kind(info, &ClusterRole::INFO) {
        return Ok(true);
    }
    let read = session.client.get(Collection::of::<ClusterRole>(None), &role).await;
    Ok(session.readable(read)?.is_none_or(|role| ways_in::has_rule_for_everything(&role)))
}

/// Whether the caller has every permission.
pub(super) async fn has_everything(session: &mut Session) -> Result<bool, CliError> {
    let spec = fields_of(json!({ "resourceAttributes": everything() }));
    Ok(ask::<SelfSubjectAccessReview>(session, spec).await?.1.allowed)
}

/// The request that only a caller with every permission may make.
fn everything() -> Value {
    json!({ "verb": ALL, "group": ALL, "resource": ALL })
}

fn fields_of(spec: Value) -> Map<String, Value> {
    match spec {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Whether a subject has every permission, as the server decides. If the caller may not ask, the answer is yes.
async fn review(session: &mut Session, subject: Value) -> Result<bool, CliError> {
    let mut spec = fields_of(subject);
    spec.insert("resourceAttributes".to_owned(), everything());
    let of = Collection::of::<SubjectAccessReview>(None);
    let answer = session.client.create(of, &review_of::<SubjectAccessReview>(spec)).await;
    let Some(answer) = session.readable(answer)? else { return Ok(true) };
    Ok(session.fields::<SubjectAccessReview>(&answer)?.status.allowed)
}

/// The user or team that a subject is. A binding may be for the one of a uid, whom only the name of the object finds.
fn who_of(subject: &Subject) -> Option<Who> {
    if subject.kind != GROUP_SUBJECT {
        return None;
    }
    let user = subject.name.strip_prefix("platform:user:").filter(|user| *user != ALL);
    let team = subject.name.strip_prefix("platform:team:");
    user.map(|name| Who::User(name.to_owned())).or(team.map(|name| Who::Team(name.to_owned())))
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

/// Asks for the name of the object.
pub(super) fn confirm_name(name: &str, ending: Ending, process: &Process) -> Result<(), CliError> {
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

fn print_counts(objects: &[Named], keys: &[ListedKey], process: &Process) {
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
fn own_end(objects: &[Named], ended: &[&ListedKey], own: &Status) -> Option<(String, String)> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Subcommand as _;

    use crate::commands::Command;

    /// What a command does to the access keys with every permission.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Writes {
        /// It writes no access key, user, team, role or binding.
        None,
        /// It only adds them, or gives more permissions.
        Adds,
        /// It changes roles in one project. `projects::check_leaving` asks before the last admin leaves.
        InOneProject,
        /// It can take permissions. A function of this module refuses the end of the last access key.
        Takes(&'static str),
    }

    const CHECK: Writes = Writes::Takes("check");
    const CHECK_WRITE: Writes = Writes::Takes("check_write");
    const CHECK_CHANGES: Writes = Writes::Takes("check_changes");

    const COMMANDS: &[(&str, Writes)] = &[
        ("login", Writes::None),
        ("logout", CHECK_CHANGES),
        ("whoami", Writes::None),
        ("status", Writes::None),
        ("console", Writes::None),
        ("invite", Writes::Adds),
        ("can-i", Writes::None),
        ("who-can", Writes::None),
        ("access", Writes::None),
        ("readers", Writes::None),
        ("get", Writes::None),
        ("describe", Writes::None),
        ("edit", CHECK_WRITE),
        ("set", Writes::None),
        ("unset", Writes::None),
        ("list", Writes::None),
        ("create", Writes::Adds),
        ("apply", CHECK_WRITE),
        ("run", Writes::None),
        ("delete", CHECK),
        // Access rules never give every permission everywhere.
        ("share", Writes::None),
        ("unshare", Writes::None),
        ("add", Writes::Adds),
        ("remove", Writes::InOneProject),
        ("grant", Writes::Adds),
        ("revoke", Writes::Takes("check_revocation")),
        ("roles", Writes::None),
        ("offboard", CHECK),
        ("migrate", Writes::None),
        ("connect", Writes::None),
        ("disable", CHECK),
        ("enable", Writes::Adds),
        ("rotate", CHECK_CHANGES),
        ("test", Writes::None),
        ("token", Writes::None),
        ("version", Writes::None),
        ("completion", Writes::None),
        ("man", Writes::None),
        ("__complete", Writes::None),
    ];

    fn has_force(command: &clap::Command) -> bool {
        command.get_arguments().any(|argument| argument.get_long() == Some("force"))
            || command.get_subcommands().any(has_force)
    }

    #[test]
    fn each_command_that_can_take_the_last_access_key_has_the_check() {
        let root = Command::augment_subcommands(clap::Command::new("postern"));
        let table: BTreeMap<&str, Writes> = COMMANDS.iter().copied().collect();
        let names: Vec<&str> = root.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names.len(), table.len(), "each command has one row: {names:?}");
        for command in root.get_subcommands() {
            let name = command.get_name();
            let writes = table.get(name).expect(name);
            let takes = matches!(writes, Writes::Takes(_));
            assert_eq!(has_force(command), takes, "{name}: {writes:?}");
        }
    }
}
