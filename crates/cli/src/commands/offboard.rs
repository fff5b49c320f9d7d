//! `postern offboard USER`: shows what stops and what the user owns, disables the user, and moves the owned objects to a new
//! owner. The objects that the caller cannot read are not in it.

use clap::Args;
use postern_client::{Collection, Representation};
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project::{Project, Spec as ProjectSpec};
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_kinds::{Info, Kind as _, Owner, Principal, Verb};
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde_json::{Value, json};

use super::access_reviews::may_read_all;
use super::lockout::{self, Ending, LockoutFlags};
use super::roles;
use crate::batch::{self, Failure};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, DryRun};
use crate::key_list::{self, ListedKey, with_dependents};
use crate::output::{self, escape};
use crate::process::Process;
use crate::role_bindings::{self, Binding, Who, role_text};
use crate::session::Session;
use crate::{kinds, parse};

/// The column of a table with the owner.
const OWNER_COLUMN: &str = "Owner";
/// How often an object is moved when others change it at the same time.
const MOVES_MAX: usize = 5;
/// How often the owned objects are read again. A disabled user creates none, but requests may be on their way.
const READS_MAX: usize = 20;

/// The arguments of `postern offboard`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern offboard ada --dry-run\n  \
    postern offboard ada --transfer-to team/shop")]
pub struct Offboard {
    /// The user
    #[arg(value_name = "USER", value_parser = user_name)]
    name: String,

    /// The new owner of everything that the user owns, as team/NAME or user/NAME. You need `makeowner` on it
    #[arg(long, value_name = "OWNER", value_parser = owner)]
    transfer_to: Option<Who>,

    /// Disable and move also if you may not read all objects that the user can own
    #[arg(long, requires = "transfer_to")]
    partial: bool,

    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// How to print it [default: a table]
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    output: Option<Format>,

    #[command(flatten)]
    lockout: LockoutFlags,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Formats for programs.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Format {
    Json,
    Yaml,
}

/// Parses `NAME` or `user/NAME`.
fn user_name(text: &str) -> Result<String, String> {
    parse::name(text.strip_prefix("user/").unwrap_or(text))
}

/// Parses `user/NAME` or `team/NAME`.
fn owner(text: &str) -> Result<Who, String> {
    match text.split_once('/') {
        Some(("user", name)) => Ok(Who::User(parse::name(name)?)),
        Some(("team", name)) => Ok(Who::Team(parse::name(name)?)),
        _ => Err("an owner is user/NAME or team/NAME".to_owned()),
    }
}

/// An object that the user owns.
#[derive(Clone)]
struct OwnedObject {
    info: &'static Info,
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    resource_version: String,
}

impl OwnedObject {
    /// The object in a table and in a sentence.
    fn described(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}/{}", escape(namespace), escape(&self.name)),
            None => escape(&self.name),
        }
    }

    /// The object in the list of those that a command did not come to.
    fn label(&self) -> String {
        format!("{}/{}", self.kind, self.described())
    }

    /// Whether this is the same object, possibly in another version.
    fn is_same(&self, other: &Self) -> bool {
        (self.kind, &self.namespace, &self.name) == (other.kind, &other.namespace, &other.name)
    }

    /// Makes a user or a team the owner. A change in the meantime is a conflict.
    async fn give_to(
        &self,
        session: &mut Session,
        to: &Who,
        dry_run: DryRun,
    ) -> Result<(), postern_client::Error> {
        let owner = match to {
            Who::User(user) => json!({ "user": user, "team": null }),
            Who::Team(team) => json!({ "user": null, "team": team }),
        };
        let patch = json!({
            "metadata": { "resourceVersion": self.resource_version },
            "spec": { "owner": owner },
        });
        let of = Collection::new(self.info, self.namespace.as_deref());
        match dry_run {
            DryRun::None => session.client.merge_patch(of, &self.name, &patch).await.map(drop),
            DryRun::Server | DryRun::Client => {
                session.client.merge_patch_dry_run(of, &self.name, &patch).await.map(drop)
            }
        }
    }
}

/// The kinds of objects that a user can own.
fn owned_kinds() -> impl Iterator<Item = &'static Info> {
    let kinds = postern_kinds::all().iter().filter(|kind| kind.has_ownership());
    let infos = kinds.map(|kind| kind.info()).filter(|info| info.serves(Verb::List));
    infos.filter(|info| info.serves(Verb::Update))
}

/// The objects of all these kinds that a user or team owns.
async fn all_owned(session: &mut Session, owner: &Who) -> Result<Vec<OwnedObject>, CliError> {
    let mut found = Vec::new();
    for info in owned_kinds() {
        found.extend(owned_of(session, info, owner).await?);
    }
    Ok(found)
}

/// What ends with a user, and what the user owns.
struct Plan {
    keys: Vec<ListedKey>,
    /// The keys and login links of other owners that the user has had the values of.
    handed_out: Vec<ListedKey>,
    teams: Vec<String>,
    /// Projects with the roles of the user in them.
    projects: Vec<(String, String)>,
    grants: Vec<Binding>,
    workload_identities: Vec<String>,
    owned: Vec<OwnedObject>,
    /// The kinds of which the caller may not read all objects.
    unseen: Vec<&'static str>,
}

impl Offboard {
    /// Shows, asks, disables, and transfers.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let asks = !self.lockout.yes && !self.dry_run;
        if asks && !process.stdin_is_terminal() {
            let text = "the command asks for confirmation, and there is no terminal";
            return Err(CliError::usage(text)
                .hint("--dry-run prints what would change")
                .hint("--yes does it without confirmation"));
        }
        if self.transfer_to == Some(Who::User(self.name.clone())) {
            return Err(CliError::usage("--transfer-to names the user that leaves"));
        }
        let mut session = Session::open(&self.connection, process)?;
        session.load_names().await?;
        let (of, name) = (Collection::of::<User>(None), self.name.as_str());
        let read = session.client.get(of, name).await;
        let user = session.answer(of, name, read).await?;
        self.check_new_owner(&mut session).await?;
        self.check_caller(&mut session).await?;
        let plan = self.plan(&mut session, &user.metadata.uid, process).await?;
        let dry_run = if self.dry_run { DryRun::Server } else { DryRun::None };
        let objects = [(&User::INFO, self.name.clone())];
        let ending = Ending::Disable(dry_run);
        self.check_transfer(&mut session, &plan, process).await?;
        // A question is about the plan. A refusal without a question prints no data.
        if asks {
            self.print(&plan, process)?;
        }
        lockout::check(&mut session, &objects, ending, self.lockout, process).await?;
        if !asks {
            self.print(&plan, process)?;
        }
        if self.dry_run {
            process.print_status("nothing was changed");
            return Ok(());
        }
        if asks && !process.confirm(&self.question(&plan))? {
            return Err(CliError::new("not confirmed, so nothing was done"));
        }
        let is_disabled = user.fields.get("spec").is_some_and(|spec| spec["disabled"] == true);
        if is_disabled {
            process.print_status(&format!("user {name} was disabled already"));
        } else {
            let patch = json!({ "spec": { "disabled": true } });
            let disabled = session.client.merge_patch(of, name, &patch).await;
            session.answer(of, name, disabled).await?;
            process.print_status(&format!("user {name} disabled"));
        }
        match &self.transfer_to {
            Some(to) => self.transfer(&mut session, to, process).await?,
            None => self.print_new(&mut session, &plan, process).await,
        }
        print_next(name, &plan, process);
        Ok(())
    }

    /// Refuses to move the caller's own objects: a disabled caller can move nothing.
    async fn check_caller(&self, session: &mut Session) -> Result<(), CliError> {
        let asked = session.ask_self().await;
        let (_, own) = asked.map_err(|error| session.explain(&error))?;
        if self.transfer_to.is_none() || own.user.is_none_or(|user| user.name != self.name) {
            return Ok(());
        }
        let text =
            "you are the user that leaves: the user is disabled before the objects are moved";
        Err(CliError::new(text).hint("nothing was done; another administrator can run the command"))
    }

    /// Checks that the new owner exists, and is enabled.
    async fn check_new_owner(&self, session: &mut Session) -> Result<(), CliError> {
        let Some(to) = &self.transfer_to else { return Ok(()) };
        to.check(session, "--transfer-to").await?;
        let Who::User(name) = to else { return Ok(()) };
        let read = session.client.get(Collection::of::<User>(None), name).await;
        let Some(user) = session.readable(read)? else { return Ok(()) };
        if session.fields::<User>(&user)?.spec.disabled {
            let message = format!("--transfer-to: the user {name} is disabled");
            return Err(CliError::new(message).hint("nothing was done"));
        }
        Ok(())
    }

    fn who(&self) -> Who {
        Who::User(self.name.clone())
    }

    fn question(&self, plan: &Plan) -> String {
        let name = &self.name;
        match &self.transfer_to {
            Some(to) if !plan.owned.is_empty() => {
                let count = plan.owned.len();
                format!("Disable {name}, and move {count} owned objects to {}?", text_of(to))
            }
            _ => format!("Disable {name}?"),
        }
    }

    async fn plan(
        &self,
        session: &mut Session,
        uid: &str,
        process: &Process,
    ) -> Result<Plan, CliError> {
        let who = self.who();
        let all = key_list::list(session, process).await?;
        let of_user = |key: &ListedKey| key.is_of(Principal::User(&self.name));
        let keys = with_dependents(&all, of_user).into_iter().filter(|key| key.is_alive);
        let keys: Vec<ListedKey> = keys.cloned().collect();
        let is_handed_out = |key: &&ListedKey| {
            let is_known = key.issued_to.as_ref().is_some_and(|issued| issued.uid == uid);
            is_known && key.is_alive && keys.iter().all(|one| one.name != key.name)
        };
        let handed_out = all.iter().filter(is_handed_out).cloned().collect();
        let identities = who.identities(session).await?;
        let listed = roles::rows(session, Some(&who), process).await?;
        let direct = listed.rows.into_iter().filter(|(_, subject)| identities.is_direct(subject));
        let grants = direct.map(|(binding, _)| binding).filter(|binding| !binding.is_of_server());
        let grants: Vec<Binding> = grants.collect();
        let mut plan = Plan {
            keys,
            handed_out,
            teams: identities.teams.clone(),
            projects: projects_of(session, &self.name).await?,
            grants,
            workload_identities: Vec::new(),
            owned: Vec::new(),
            unseen: listed.unlisted,
        };
        let read: [&Info; 4] =
            [&OwnedAccessKey::INFO, &Team::INFO, &Project::INFO, &WorkloadIdentity::INFO];
        for info in read.into_iter().chain(owned_kinds()) {
            if !plan.unseen.contains(&info.plural) && !may_read_all(session, info).await? {
                plan.unseen.push(info.plural);
            }
        }
        let identities = owned_of(session, &WorkloadIdentity::INFO, &who).await?;
        plan.workload_identities = identities.into_iter().map(|one| one.name).collect();
        plan.owned = all_owned(session, &self.who()).await?;
        Ok(plan)
    }

    fn print(&self, plan: &Plan, process: &Process) -> Result<(), CliError> {
        for plural in &plan.unseen {
            process.print_note(&format!("you may not read all {plural}: some may be missing here"));
        }
        let text = match self.output {
            Some(Format::Json) => output::json(self.as_json(plan)),
            Some(Format::Yaml) => output::yaml(self.as_json(plan)),
            None => {
                let rows = self.rows(plan);
                if rows.is_empty() {
                    let what = if plan.unseen.is_empty() { "" } else { " that you may read" };
                    let name = &self.name;
                    process.print_status(&format!("the user {name} has and owns nothing{what}"));
                    return Ok(());
                }
                let headings = ["KIND", "NAME", "EFFECT"].map(str::to_owned).to_vec();
                output::table(headings, rows).into()
            }
        };
        process.print_text(text.as_str())
    }

    /// The table: what stops, and what is owned.
    fn rows(&self, plan: &Plan) -> Vec<Vec<String>> {
        let row =
            |kind: &str, name: String, effect: &str| vec![kind.to_owned(), name, effect.to_owned()];
        let owned = match &self.transfer_to {
            Some(to) => format!("moves to {}", text_of(to)),
            None => "keeps an owner that is disabled".to_owned(),
        };
        let keys = plan.keys.iter().map(|key| {
            row(if key.is_session { "session" } else { "accesskey" }, escape(&key.name), "stops")
        });
        let handed_out = plan.handed_out.iter().map(|key| {
            let is_code = key.issued_to.as_ref().is_some_and(|issued| issued.is_code);
            let kind = if is_code { "login link" } else { "accesskey" };
            let of = key.owner.as_ref().map_or_else(String::new, owner_text);
            row(
                kind,
                escape(&key.name),
                &format!("stays valid: the user has had it, it belongs to {of}"),
            )
        });
        let teams =
            plan.teams.iter().map(|team| row("team", escape(team), "membership has no effect"));
        let projects = plan.projects.iter().map(|(project, role)| {
            let name = format!("{} ({})", escape(project), escape(role));
            row("project", name, "membership has no effect")
        });
        let grants = plan.grants.iter().map(|binding| {
            let role = format!("{} {}", role_text(&binding.role), binding.location.described());
            row("role", role, &format!("{} has no effect", binding.described()))
        });
        let workloads = plan.workload_identities.iter();
        let workloads = workloads
            .map(|name| row("workloadidentity", escape(name), "gets no access keys; is not moved"));
        let owned = plan.owned.iter().map(|one| row(one.kind, one.described(), &owned));
        let keys = keys.chain(handed_out);
        keys.chain(teams).chain(projects).chain(grants).chain(workloads).chain(owned).collect()
    }

    /// The same for programs.
    fn as_json(&self, plan: &Plan) -> Value {
        let names = |is_session: bool| -> Vec<&str> {
            let keys = plan.keys.iter().filter(|key| key.is_session == is_session);
            keys.map(|key| key.name.as_str()).collect()
        };
        let projects =
            plan.projects.iter().map(|(name, role)| json!({ "name": name, "role": role }));
        let grants = plan.grants.iter().map(|binding| {
            json!({
                "role": binding.role,
                "namespace": binding.location.namespace(),
                "binding": { "kind": binding.location.binding_info().kind, "name": binding.name },
            })
        });
        let owned = plan
            .owned
            .iter()
            .map(|one| json!({ "kind": one.kind, "namespace": one.namespace, "name": one.name }));
        json!({
            "user": self.name,
            "accessKeys": names(false),
            "sessions": names(true),
            "handedOut": plan.handed_out.iter().map(|key| &key.name).collect::<Vec<_>>(),
            "teams": plan.teams,
            "projects": projects.collect::<Vec<_>>(),
            "grants": grants.collect::<Vec<_>>(),
            "workloadIdentities": plan.workload_identities,
            "owned": owned.collect::<Vec<_>>(),
            "transferTo": self.transfer_to.as_ref().map(text_of),
            "notListed": plan.unseen,
        })
    }

    /// Moves everything to the new owner, until nothing is left. The user is disabled by now.
    async fn transfer(
        &self,
        session: &mut Session,
        to: &Who,
        process: &Process,
    ) -> Result<(), CliError> {
        let name = &self.name;
        let next =
            format!("the user {name} stays disabled: run the command again to move the rest");
        let mut tried: Vec<OwnedObject> = Vec::new();
        for _ in 0..READS_MAX {
            let owned = all_owned(session, &self.who()).await.map_err(|error| error.hint(&next))?;
            let is_new = |one: &&OwnedObject| tried.iter().all(|other| !other.is_same(one));
            let new: Vec<OwnedObject> = owned.iter().filter(is_new).cloned().collect();
            if new.is_empty() {
                if owned.is_empty() {
                    return Ok(());
                }
                break;
            }
            let moved = batch::each(
                &new,
                |one| Some(one.label()),
                process,
                async |one| self.move_one(session, one, to, process).await,
            );
            if let Err(error) = moved.await
                && error.is_to_print()
            {
                return Err(error.hint(next));
            }
            tried.extend(new);
        }
        Err(CliError::new(format!("not every object was moved to {}", text_of(to))).hint(next))
    }

    async fn move_one(
        &self,
        session: &mut Session,
        one: &OwnedObject,
        to: &Who,
        process: &Process,
    ) -> Result<(), Failure> {
        let what = format!("{} {}", one.kind, one.described());
        let mut present = one.clone();
        for attempt in 1.. {
            let moved = present.give_to(session, to, DryRun::None).await;
            let Err(error) = moved else { break };
            let is_last = attempt >= MOVES_MAX;
            match error.reason() {
                Some(Reason::Conflict) if !is_last => {}
                Some(Reason::NotFound) => {}
                _ => return Err(Failure::of(&error, session.explain(&error).at(&what))),
            }
            // The object has changed: it may have another owner by now.
            let owned = owned_of(session, one.info, &self.who()).await;
            let owned = owned.map_err(|error| Failure::One(error.at(&what)))?;
            let Some(again) = owned.into_iter().find(|other| other.is_same(one)) else {
                process.print_note(&format!(
                    "{what} does not belong to the user {} any more: it was not moved",
                    self.name
                ));
                return Ok(());
            };
            if is_last {
                return Err(Failure::of(&error, session.explain(&error).at(&what)));
            }
            present = again;
        }
        process.print_status(&format!("{what} moved to {}", text_of(to)));
        Ok(())
    }
}

impl Offboard {
    /// Checks that every object can be moved, before the first one is.
    async fn check_transfer(
        &self,
        session: &mut Session,
        plan: &Plan,
        process: &Process,
    ) -> Result<(), CliError> {
        let Some(to) = &self.transfer_to else { return Ok(()) };
        let unseen = owned_kinds().map(|info| info.plural);
        let unseen: Vec<&str> = unseen.filter(|plural| plan.unseen.contains(plural)).collect();
        if !unseen.is_empty() && !self.partial && !self.dry_run {
            let message = format!("you may not read all {}", unseen.join(", "));
            return Err(CliError::new(message)
                .hint("nothing was done: objects that you cannot read would keep the owner")
                .hint("--partial disables the user, and moves the objects that you can read"));
        }
        let checked = batch::each(
            &plan.owned,
            |one| Some(one.label()),
            process,
            async |one| {
                match one.give_to(session, to, DryRun::Server).await {
                    // The move reads an object again that has changed.
                    Ok(()) => Ok(()),
                    Err(error)
                        if matches!(error.reason(), Some(Reason::Conflict | Reason::NotFound)) =>
                    {
                        Ok(())
                    }
                    Err(error) => {
                        let what = format!("{} {}", one.kind, one.described());
                        Err(Failure::of(&error, session.explain(&error).at(&what)))
                    }
                }
            },
        );
        checked.await.inspect_err(|_| {
            process.print_note("not every object can be moved, so nothing was done");
        })
    }

    /// Names the objects that the user owns now and did not own before.
    async fn print_new(&self, session: &mut Session, plan: &Plan, process: &Process) {
        // The caller has no access any more if it is this user.
        let Ok(owned) = all_owned(session, &self.who()).await else {
            process.print_note("objects that are new meanwhile could not be listed");
            return;
        };
        for one in owned.iter().filter(|one| plan.owned.iter().all(|known| !known.is_same(one))) {
            process.print_warning(&format!(
                "{} {} is new, and belongs to the user {}: run the command again",
                one.kind,
                one.described(),
                self.name
            ));
        }
    }
}

/// Prints what stays of a user or team that is deleted: how many objects lose their owner, and its bindings.
pub(super) async fn print_left_behind(
    session: &mut Session,
    who: &Who,
    process: &Process,
) -> Result<(), CliError> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for one in all_owned(session, who).await? {
        let plural = kinds::plural_name(one.info);
        match counts.iter_mut().find(|(of, _)| *of == plural) {
            Some((_, count)) => *count += 1,
            None => counts.push((plural, 1)),
        }
    }
    if !counts.is_empty() {
        let counts = counts.iter().map(|(plural, count)| format!("{plural}: {count}"));
        let counts: Vec<String> = counts.collect();
        process.print_note(&format!(
            "objects of {} that lose their owner: {}",
            who.described(),
            counts.join(", ")
        ));
    }
    let identities = who.identities(session).await?;
    let mut stay = Vec::new();
    for info in [&ClusterRoleBinding::INFO, &RoleBinding::INFO] {
        let listed = role_bindings::list(session, Collection::new(info, None)).await?;
        let is_of = |binding: &Binding| {
            !binding.is_of_server() && binding.subjects.iter().any(|one| identities.is_direct(one))
        };
        stay.extend(listed.unwrap_or_default().into_iter().filter(is_of));
    }
    let has_more = !counts.is_empty() || !stay.is_empty();
    if !stay.is_empty() {
        let stay: Vec<String> = stay.iter().map(Binding::described).collect();
        process.print_note(&format!(
            "bindings that stay, and give their roles to a later {} of this name: {}",
            who.principal().kind(),
            stay.join(", ")
        ));
    }
    if let Who::User(name) = who
        && has_more
    {
        process
            .print_note(&format!("`postern offboard {name}` shows them, and can move the objects"));
    }
    Ok(())
}

/// The next steps.
fn print_next(name: &str, plan: &Plan, process: &Process) {
    if !plan.handed_out.is_empty() {
        let names: Vec<String> = plan.handed_out.iter().map(|key| escape(&key.name)).collect();
        process.print_warning(&format!(
            "the user {name} has had access keys of others, which stay valid: `postern rotate accesskey` or `postern delete \
             accesskey` for {}. The audit log has the keys that were created with them",
            names.join(", ")
        ));
    }
    if !plan.grants.is_empty() {
        process.print_note(&format!(
            "a later user of the name {name} would have the roles above: `postern revoke ROLE --user {name}` \
             removes them"
        ));
    }
    process.print_note(
        "secret syncs that the user wrote stop, too; the API does not tell which these are",
    );
    process
        .print_status(&format!("next: `postern delete user {name}` also deletes the access keys"));
}

/// The owner of a key, as `user/NAME`, `team/NAME` or `subject/NAME`.
fn owner_text(owner: &Owner) -> String {
    match owner {
        Owner::User(name) => format!("user/{}", escape(name)),
        Owner::Team(name) => format!("team/{}", escape(name)),
        Owner::Subject(name) => format!("subject/{}", escape(name)),
    }
}

/// `user/NAME` or `team/NAME`.
fn text_of(who: &Who) -> String {
    format!("{}/{}", who.principal().kind(), who.name())
}

/// The projects with the user as a member, each with the role.
async fn projects_of(session: &mut Session, user: &str) -> Result<Vec<(String, String)>, CliError> {
    let of = Collection::of::<Project>(None);
    let listed = session.client.list(of, Representation::Whole).await;
    let Some(list) = session.readable(listed)? else { return Ok(Vec::new()) };
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let mut projects = Vec::new();
    for object in items.into_iter().filter_map(|item| Object::from_value(item).ok()) {
        let ProjectSpec { members, .. } = session.fields::<Project>(&object)?.spec;
        let own = members.into_iter().filter(|one| one.kind == User::INFO.kind && one.name == user);
        projects.extend(own.map(|one| (object.metadata.name.clone(), one.cluster_role)));
    }
    Ok(projects)
}

/// The objects of a kind that a user or team owns. Only tables are read, so no value leaves the server.
async fn owned_of(
    session: &mut Session,
    info: &'static Info,
    owner: &Who,
) -> Result<Vec<OwnedObject>, CliError> {
    let has_column = info.columns.iter().any(|column| column.name == OWNER_COLUMN);
    let representation = if has_column { Representation::Table } else { Representation::Whole };
    let listed = session.client.list(Collection::new(info, None), representation).await;
    let Some(list) = session.readable(listed)? else { return Ok(Vec::new()) };
    let metadata = if has_column { owned_rows(&list, owner) } else { owned_items(&list, owner) };
    let object = |metadata: &Value| OwnedObject {
        info,
        kind: kinds::name(info),
        namespace: metadata["namespace"].as_str().map(str::to_owned),
        name: metadata["name"].as_str().unwrap_or_default().to_owned(),
        resource_version: metadata["resourceVersion"].as_str().unwrap_or_default().to_owned(),
    };
    Ok(metadata.into_iter().map(object).collect())
}

/// The metadata of the rows of a table with this owner.
fn owned_rows<'a>(table: &'a Value, owner: &Who) -> Vec<&'a Value> {
    let mut columns = table["columnDefinitions"].as_array().into_iter().flatten();
    let Some(at) = columns.position(|column| column["name"] == OWNER_COLUMN) else {
        return Vec::new();
    };
    let owner = text_of(owner);
    let rows = table["rows"].as_array().into_iter().flatten();
    let of_user = rows.filter(|row| row["cells"][at] == owner.as_str());
    of_user.map(|row| &row["object"]["metadata"]).collect()
}

/// The metadata of the items of a list with this owner.
fn owned_items<'a>(list: &'a Value, owner: &Who) -> Vec<&'a Value> {
    let items = list["items"].as_array().into_iter().flatten();
    let of_owner =
        items.filter(|item| item["spec"]["owner"][owner.principal().kind()] == owner.name());
    of_owner.map(|item| &item["metadata"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_found_in_tables_and_in_lists() {
        let table = json!({
            "columnDefinitions": [{ "name": "Name" }, { "name": "Owner" }],
            "rows": [
                { "cells": ["a", "user/ada"], "object": { "metadata": { "name": "a" } } },
                { "cells": ["b", "team/ada"], "object": { "metadata": { "name": "b" } } },
                { "cells": ["user/ada", ""], "object": { "metadata": { "name": "c" } } },
            ],
        });
        let ada = Who::User("ada".to_owned());
        assert_eq!(owned_rows(&table, &ada), [&json!({ "name": "a" })]);
        let team = Who::Team("ada".to_owned());
        assert_eq!(owned_rows(&table, &team), [&json!({ "name": "b" })]);
        let list = json!({ "items": [
            { "metadata": { "name": "a" }, "spec": { "owner": { "user": "ada" } } },
            { "metadata": { "name": "b" }, "spec": { "owner": { "team": "ada" } } },
            { "metadata": { "name": "c" }, "spec": {} },
        ] });
        assert_eq!(owned_items(&list, &ada), [&json!({ "name": "a" })]);
        assert_eq!(owned_items(&list, &team), [&json!({ "name": "b" })]);
        assert_eq!(owned_items(&json!({}), &ada), [&Value::Null; 0]);
    }

    #[test]
    fn an_owner_has_its_kind() {
        assert_eq!(owner("team/shop"), Ok(Who::Team("shop".to_owned())));
        assert_eq!(owner("user/bob").map(|who| text_of(&who)), Ok("user/bob".to_owned()));
        for wrong in ["shop", "group/ops", "team/", "team/a/b"] {
            assert!(owner(wrong).is_err(), "{wrong}");
        }
        assert_eq!(user_name("user/ada"), user_name("ada"));
    }
}
