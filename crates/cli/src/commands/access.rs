//! `postern access user/ada`: the teams, the roles and the objects that a user, a team or an access key reaches, and why.
//! The server decides about each object, and this module only prints the decisions.

use clap::Args;
use postern_client::{Collection, Representation};
use postern_kinds::access::USE;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::rbac::Subject;
use postern_kinds::reviews::self_subject_access_review::SelfSubjectAccessReview;
use postern_kinds::reviews::subject_access_review::SubjectAccessReview;
use postern_kinds::selves::Status;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{Info, Kind as _, Owner, Principal, Verb};
use serde_json::{Map, Value, json};

use super::access_reviews::{KEY_EXTRA, ask};
use super::roles;
use crate::error::CliError;
use crate::flags::{ConnectionFlags, ObjectFormat};
use crate::kinds;
use crate::output::{self, escape};
use crate::process::Process;
use crate::resources;
use crate::role_bindings::{Who, subject_text};
use crate::session::Session;

/// The most objects that the command asks about.
const OBJECTS_MAX: usize = 500;
/// The verbs that it asks about.
const VERBS: [Verb; 3] = [Verb::Get, Verb::Update, Verb::Delete];

/// How the names of bindings begin that the server makes from access rules.
const ACCESS_RULES: &str = "\"platform:access:";

/// The arguments of `postern access`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern access user/ada\n  \
    postern access team/red -o json\n  \
    postern access accesskey/ci")]
pub struct Access {
    /// The user, team or access key, as KIND/NAME or as KIND NAME
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    words: Vec<String>,

    /// How to print it [default: tables]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// A subject of the question.
struct SubjectOfReview {
    /// The fields of the review that name the subject. The caller itself has none.
    review: Option<Map<String, Value>>,
    /// The user or team whose roles and teams count.
    who: Option<Who>,
}

/// An object that the subject reaches.
struct Reached {
    info: &'static Info,
    namespace: Option<String>,
    name: String,
    reasons: Vec<Reason>,
}

/// Verbs, and what gives them.
#[derive(Debug, PartialEq, Eq)]
struct Reason {
    verbs: Vec<&'static str>,
    why: String,
}

/// Adds a verb to those with the same reason.
fn add_verb(reasons: &mut Vec<Reason>, verb: &'static str, why: String) {
    match reasons.iter_mut().find(|reason| reason.why == why) {
        Some(reason) => reason.verbs.push(verb),
        None => reasons.push(Reason { verbs: vec![verb], why }),
    }
}

impl Access {
    /// Asks about every object, and prints the answers.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let (info, name) = self.subject()?;
        let mut session = Session::open(&self.connection, process)?;
        session.load_names().await?;
        let mut subject = subject_of(&mut session, info, &name).await?;
        let asked = session.ask_self().await;
        let (_, own) = asked.map_err(|error| session.explain(&error))?;
        if is_caller(info, &name, &own) {
            subject.review = None;
            if own.access_key_scope.is_some() {
                process.print_note("the scope of the access key that you use limits the answers");
            }
        }
        let rows = match &subject.who {
            Some(who) => roles::rows(&mut session, Some(who), process).await?.rows,
            None => Vec::new(),
        };
        let teams = match &subject.who {
            Some(who) => who.identities(&mut session).await?.teams,
            None => Vec::new(),
        };
        let objects = objects(&mut session, process).await?;
        let mut reached = Vec::new();
        for (info, namespace, name) in objects {
            reached.extend(ask_about(&mut session, &subject, info, namespace, name).await?);
        }
        let text = match self.output {
            None => {
                let teams = match teams.as_slice() {
                    [] => String::new(),
                    teams => format!("Teams: {}\n\n", escape(&teams.join(", "))),
                };
                let rows = if rows.is_empty() { String::new() } else { roles::table(&rows) + "\n" };
                (teams + &rows + &table(&reached)).into()
            }
            Some(ObjectFormat::Name) => {
                let name = |one: &Reached| output::full_name(one.info, &one.name) + "\n";
                reached.iter().map(name).collect::<String>().into()
            }
            Some(format) => {
                let value = json!({
                    "teams": teams,
                    "roles": roles::as_json(&rows)["items"],
                    "objects": reached.iter().map(as_json).collect::<Vec<_>>(),
                });
                output::formatted(value, format, "")
            }
        };
        process.print_text(text.as_str())
    }

    /// The kind and the name of the subject.
    fn subject(&self) -> Result<(&'static Info, String), CliError> {
        let wrong = || {
            CliError::usage("pass user/NAME, team/NAME or accesskey/NAME")
                .hint("`postern who-can` lists who reaches an object")
        };
        let mut wanted = resources::wanted(&self.words, Verb::Get)?;
        let (Some(one), true) = (wanted.pop(), wanted.is_empty()) else { return Err(wrong()) };
        let is_subject = [User::INFO.kind, Team::INFO.kind, OwnedAccessKey::INFO.kind];
        match one.name {
            Some(name) if is_subject.contains(&one.info.kind) => Ok((one.info, name)),
            _ => Err(wrong()),
        }
    }
}

/// The subject in the form that reviews take. It must exist.
async fn subject_of(
    session: &mut Session,
    info: &'static Info,
    name: &str,
) -> Result<SubjectOfReview, CliError> {
    let of = Collection::new(info, None);
    let read = session.client.get(of, name).await;
    let object = session.answer(of, name, read).await?;
    if info.kind == OwnedAccessKey::INFO.kind {
        let owner = session.fields::<OwnedAccessKey>(&object)?.spec.owner();
        let who = match owner {
            Some(Owner::User(user)) => Some(Who::User(user)),
            Some(Owner::Team(team)) => Some(Who::Team(team)),
            Some(Owner::Subject(_)) | None => None,
        };
        let extra = json!({ KEY_EXTRA: [name] });
        let review = Some(Map::from_iter([("extra".to_owned(), extra)]));
        return Ok(SubjectOfReview { review, who });
    }
    let (user, who) = if info.kind == User::INFO.kind {
        let subject = session.fields::<User>(&object)?.spec.subject;
        let user = if subject.is_empty() { name.to_owned() } else { subject };
        (user, Who::User(name.to_owned()))
    } else {
        (Principal::Team(name).group(), Who::Team(name.to_owned()))
    };
    let review = Some(Map::from_iter([("user".to_owned(), json!(user))]));
    Ok(SubjectOfReview { review, who: Some(who) })
}

/// The objects that can be shared and that the caller can list: kind, namespace and name.
async fn objects(
    session: &mut Session,
    process: &Process,
) -> Result<Vec<(&'static Info, Option<String>, String)>, CliError> {
    let mut objects = Vec::new();
    for kind in postern_kinds::all().iter().filter(|kind| kind.has_ownership()) {
        let info = kind.info();
        let list = session.client.list(Collection::new(info, None), Representation::Metadata).await;
        let Some(list) = session.readable(list)? else {
            process.print_note(&format!("you have no permission to list {}", info.plural));
            continue;
        };
        for item in list["items"].as_array().into_iter().flatten() {
            let metadata = &item["metadata"];
            let namespace = metadata["namespace"].as_str().map(str::to_owned);
            let name = metadata["name"].as_str().unwrap_or_default().to_owned();
            objects.push((info, namespace, name));
        }
    }
    if objects.len() > OBJECTS_MAX {
        process.print_warning(&format!(
            "there are {} objects, and the answer is about the first {OBJECTS_MAX}",
            objects.len()
        ));
        objects.truncate(OBJECTS_MAX);
    }
    Ok(objects)
}

/// The verbs that the subject has on an object, and why; `None` for none.
async fn ask_about(
    session: &mut Session,
    subject: &SubjectOfReview,
    info: &'static Info,
    namespace: Option<String>,
    name: String,
) -> Result<Option<Reached>, CliError> {
    let uses = kinds::is_target(info).then_some(USE);
    let mut reasons = Vec::new();
    for verb in VERBS.map(Verb::as_str).into_iter().chain(uses) {
        let attributes = json!({
            "verb": verb,
            "group": info.version.group,
            "resource": info.plural,
            "namespace": namespace.as_deref().unwrap_or_default(),
            "name": name,
        });
        let of_request = ("resourceAttributes".to_owned(), attributes);
        let status = match subject.review.clone() {
            Some(mut spec) => {
                spec.extend([of_request]);
                ask::<SubjectAccessReview>(session, spec).await?.1
            }
            None => ask::<SelfSubjectAccessReview>(session, Map::from_iter([of_request])).await?.1,
        };
        if status.allowed {
            let why = status.reason.lines().next().unwrap_or_default();
            add_verb(&mut reasons, verb, why.to_owned());
        }
    }
    Ok((!reasons.is_empty()).then_some(Reached { info, namespace, name, reasons }))
}

/// Whether a user, team or access key is the caller.
fn is_caller(info: &Info, name: &str, own: &Status) -> bool {
    if info.kind == OwnedAccessKey::INFO.kind {
        return own.access_key == name;
    }
    let (user, team) = (own.user.as_ref(), own.team.as_ref());
    if info.kind == User::INFO.kind {
        user.is_some_and(|user| user.name == name)
    } else {
        team.is_some_and(|team| team.name == name)
    }
}

fn table(reached: &[Reached]) -> String {
    if reached.is_empty() {
        return "no objects\n".to_owned();
    }
    let headings = ["KIND", "NAMESPACE", "NAME", "VERBS", "WHY"].map(str::to_owned).to_vec();
    let row = |one: &Reached, reason: &Reason| {
        let namespace = escape(one.namespace.as_deref().unwrap_or_default());
        let kind = kinds::name(one.info).to_owned();
        let why = escape(&in_words(&reason.why));
        vec![kind, namespace, escape(&one.name), reason.verbs.join(","), why]
    };
    let rows =
        reached.iter().flat_map(|one| one.reasons.iter().map(move |reason| row(one, reason)));
    output::table(headings, rows.collect())
}

/// The reason of the server in fewer words. An access rule of the object is named by its subject.
fn in_words(why: &str) -> String {
    let why = why.trim_start_matches("RBAC: allowed by ");
    let subject = why.split_once(" to ").and_then(|(_, rest)| rest.split_once(", rule "));
    let subject = subject.and_then(|(subject, _)| subject.split_once(' '));
    let Some((kind, name)) = subject.filter(|_| why.contains(ACCESS_RULES)) else {
        return why.to_owned();
    };
    let (kind, name) = (kind.to_owned(), name.trim_matches('"').to_owned());
    let subject = Subject { kind, name, ..Subject::default() };
    format!("access rule of the object for {}", subject_text(&subject))
}

fn as_json(one: &Reached) -> Value {
    json!({
        "kind": one.info.kind,
        "namespace": one.namespace,
        "name": one.name,
        "reasons": one
            .reasons
            .iter()
            .map(|reason| json!({ "verbs": reason.verbs, "why": reason.why }))
            .collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_has_its_reason() {
        let mut reasons = Vec::new();
        for (verb, why) in [("get", "role"), ("use", "rule"), ("delete", "role")] {
            add_verb(&mut reasons, verb, why.to_owned());
        }
        let reason = |verbs: &[&'static str], why: &str| Reason {
            verbs: verbs.to_vec(),
            why: why.to_owned(),
        };
        assert_eq!(reasons, [reason(&["get", "delete"], "role"), reason(&["use"], "rule")]);
    }

    #[test]
    fn an_access_rule_is_named_by_its_subject() {
        let by_rule = "RBAC: allowed by RoleBinding \"platform:access:sharedsecrets:db:0/platform\" of Role \
                       \"platform:access:sharedsecrets:db:0\" to Group \"platform:team:red\", rule 0";
        assert_eq!(in_words(by_rule), "access rule of the object for team/red");
        let owner = "RBAC: allowed by ownership of the object";
        assert_eq!(in_words(owner), "ownership of the object");
    }
}
