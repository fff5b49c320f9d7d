//! `postern roles`: which users and teams have which role, and by which binding.

use clap::Args;
use postern_client::Collection;
use postern_kinds::Kind as _;
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::default_namespace;
use postern_kinds::rbac::{ALL, Subject};
use postern_kinds::reviews::self_subject_rules_review::{ResourceRule, SelfSubjectRulesReview};
use postern_kinds::role_binding::RoleBinding;
use serde_json::{Map, Value, json};

use super::access_reviews::ask;
use crate::error::CliError;
use crate::flags::{ConnectionFlags, ObjectFormat};
use crate::output::{self, escape};
use crate::parse;
use crate::process::Process;
use crate::role_bindings::{self, Binding, Who, role_text, subject_text};
use crate::session::Session;

/// The arguments of `postern roles`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern roles\n  \
    postern roles --user ada\n  \
    postern roles --team red -o json")]
pub struct Roles {
    /// Only the roles of this user, also those by teams and groups
    #[arg(long, value_name = "USER", value_parser = parse::name, conflicts_with = "team")]
    user: Option<String>,

    /// Only the roles of this team
    #[arg(long, value_name = "TEAM", value_parser = parse::name)]
    team: Option<String>,

    /// How to print it [default: a table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// A role that a binding gives to one subject.
type Row = (Binding, Subject);

/// Roles, and the kinds of bindings that the caller may not list.
pub(super) struct ListedRoles {
    pub(super) rows: Vec<Row>,
    pub(super) unlisted: Vec<&'static str>,
}

impl Roles {
    /// Lists, and prints.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        let who = match (self.user, self.team) {
            (Some(user), _) => Some(Who::User(user)),
            (None, team) => team.map(Who::Team),
        };
        let asked = session.ask_self().await;
        let (_, own) = asked.map_err(|error| session.explain(&error))?;
        let namespace = own.secret_namespaces.first().filter(|name| *name != ALL);
        let namespace = namespace.map_or_else(|| default_namespace().to_owned(), Clone::clone);
        let is_own = match &who {
            None => true,
            Some(Who::User(name)) => own.user.is_some_and(|user| user.name == *name),
            Some(Who::Team(name)) => own.team.is_some_and(|team| team.name == *name),
        };
        let ListedRoles { rows, unlisted } = rows(&mut session, who.as_ref(), process).await?;
        if rows.is_empty() && !unlisted.is_empty() && is_own && self.output.is_none() {
            return print_own_rules(&mut session, &namespace, process).await;
        }
        if rows.is_empty() && unlisted.is_empty() {
            process.print_status("no roles");
        }
        let text = match self.output {
            Some(ObjectFormat::Json) => output::json(as_json(&rows)),
            Some(ObjectFormat::Yaml) => output::yaml(as_json(&rows)),
            Some(ObjectFormat::Name) => names(&rows).into(),
            None if rows.is_empty() => return Ok(()),
            None => table(&rows).into(),
        };
        process.print_text(text.as_str())
    }
}

/// Prints what the caller may do. The server tells that every caller, but not by which roles.
async fn print_own_rules(
    session: &mut Session,
    namespace: &str,
    process: &Process,
) -> Result<(), CliError> {
    let spec = Map::from_iter([("namespace".to_owned(), json!(namespace))]);
    let (_, status) = ask::<SelfSubjectRulesReview>(session, spec).await?;
    process.print_note(&format!(
        "the roles are unknown; this is what you may do everywhere and in the namespace {namespace}, apart from objects \
         that are yours or shared with you"
    ));
    let headings = ["VERBS", "GROUP", "RESOURCES", "NAMES"].map(str::to_owned).to_vec();
    let listed = |words: &[String]| escape(&words.join(","));
    let row = |rule: &ResourceRule| {
        let (group, names) = (listed(&rule.api_groups), listed(&rule.resource_names));
        vec![listed(&rule.verbs), group, listed(&rule.resources), names]
    };
    let rows = status.resource_rules.iter().map(row).collect();
    process.print_text(output::table(headings, rows))
}

/// The roles of a user or a team, or of all subjects. Notes name the bindings that the caller may not list.
pub(super) async fn rows(
    session: &mut Session,
    who: Option<&Who>,
    process: &Process,
) -> Result<ListedRoles, CliError> {
    let identities = match who {
        Some(who) => {
            who.check(session, who.flag()).await?;
            Some(who.identities(session).await?)
        }
        None => None,
    };
    let (mut rows, mut unlisted) = (Vec::new(), Vec::new());
    for info in [&ClusterRoleBinding::INFO, &RoleBinding::INFO] {
        let Some(bindings) = role_bindings::list(session, Collection::new(info, None)).await?
        else {
            process.print_note(&format!("you have no permission to list all {}", info.plural));
            unlisted.push(info.plural);
            continue;
        };
        for binding in bindings {
            let subjects = binding.subjects.iter();
            let included = subjects.filter(|subject| {
                identities.as_ref().is_none_or(|identities| identities.includes(subject))
            });
            rows.extend(included.map(|subject| (binding.clone(), subject.clone())));
        }
    }
    Ok(ListedRoles { rows, unlisted })
}

/// A table with one role of one subject a row.
pub(super) fn table(rows: &[Row]) -> String {
    let headings = ["WHO", "ROLE", "WHERE", "BINDING"].map(str::to_owned).to_vec();
    let row = |(binding, subject): &Row| {
        let location = binding.location.described();
        vec![subject_text(subject), role_text(&binding.role), location, binding.described()]
    };
    output::table(headings, rows.iter().map(row).collect())
}

/// The same for programs.
pub(super) fn as_json(rows: &[Row]) -> Value {
    let item = |(binding, subject): &Row| {
        let kind = binding.location.binding_info().kind;
        json!({
            "subject": subject,
            "role": binding.role,
            "namespace": binding.location.namespace(),
            "binding": { "kind": kind, "name": binding.name },
        })
    };
    json!({ "items": rows.iter().map(item).collect::<Vec<_>>() })
}

/// The names of the bindings, each binding once. Bindings of two namespaces can have one name.
fn names(rows: &[Row]) -> String {
    let mut bindings: Vec<&Binding> = Vec::new();
    for (binding, _) in rows {
        if !bindings.contains(&binding) {
            bindings.push(binding);
        }
    }
    let name = |binding: &&Binding| {
        output::full_name(binding.location.binding_info(), &binding.name) + "\n"
    };
    bindings.iter().map(name).collect()
}
