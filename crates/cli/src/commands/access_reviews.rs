//! `postern can-i` and `postern who-can`: access reviews. The server decides, and this module only
//! prints the decision.

use clap::Args;
use postern_client::Collection;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::rbac::VERBS;
use postern_kinds::reviews::access_preview::AccessPreview;
use postern_kinds::reviews::resource_access_review::{AllowedSubject, ResourceAccessReview};
use postern_kinds::reviews::self_subject_access_review::SelfSubjectAccessReview;
use postern_kinds::reviews::subject_access_review::SubjectAccessReview;
use postern_kinds::reviews::{AccessStatus, NONE_SUCH, is_verb, unknown_in, unknown_verb_of_path};
use postern_kinds::scope::Scope;
use postern_kinds::{Info, Kind, MANAGEMENT_V1, Verb};
use postern_meta::object::Object;
use serde_json::{Map, Value, json};

use crate::error::CliError;
use crate::flags::{ConnectionFlags, ImpersonationFlags, NamespaceFlag, ObjectFormat, TargetFlags};
use crate::output::{self, escape};
use crate::process::Process;
use crate::scope_flags::ScopeFlags;
use crate::session::Session;
use crate::similar::nearest;
use crate::target::{Resource, Target, target};
use crate::{kinds, parse};

/// The key of a review's `extra` that names an access key.
pub(super) const KEY_EXTRA: &str = "platform.sh/access-key";
/// The user name of a team's keys begins with it.
const TEAM_PREFIX: &str = "platform:team:";

/// The arguments that name the verb and the target of a question.
#[derive(Args, Debug)]
struct Question {
    /// The verb, such as get, or * for all
    #[arg(value_parser = parse::verb)]
    verb: String,

    /// The resource, as in other commands or with its group: secret/db, users,
    /// roles.rbac.authorization.k8s.io; or a path: /metrics
    #[arg(value_name = "RESOURCE[/NAME]", value_parser = target)]
    target: Target,

    /// The subresource, such as status
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    subresource: String,

    #[command(flatten)]
    namespace: NamespaceFlag,

    /// Ask about all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

impl Question {
    /// Which part of the question does not exist, as far as this program knows.
    fn unknown(&self) -> Option<String> {
        match &self.target {
            Target::Resource(Resource { group, plural, .. }) => {
                unknown_in(&self.verb, group, plural, postern_kinds::all())
            }
            Target::Path(_) => unknown_verb_of_path(&self.verb),
        }
    }

    /// The error for a question about something that does not exist.
    fn makes_no_sense(&self, unknown: &str) -> CliError {
        let error = CliError::usage(escape(unknown));
        let verbs = nearest(&self.verb, VERBS.iter().copied());
        let is_known = is_verb(&self.verb, postern_kinds::all());
        let near = match self.target.resource() {
            Some(_) if !is_known => verbs.first().map(|verb| (*verb).to_owned()),
            Some(resource) => resource.nearest(),
            None => None,
        };
        match near {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None if unknown.contains(" verb ") => {
                error.hint(format!("the verbs are {}", VERBS.join(", ")))
            }
            None => error.hint(kinds::hint(Verb::Get)),
        }
    }

    /// The attributes for the review. Prints warnings about a target that the user may not have meant.
    async fn attributes(
        &self,
        session: &mut Session,
        process: &Process,
    ) -> Result<Map<String, Value>, CliError> {
        let namespace = session.namespace_of(&self.namespace).await?;
        let resource = self.target.resource();
        let has_none = resource.is_none_or(|resource| resource.is_namespaced == Some(false));
        if has_none && self.namespace.namespace.is_some() {
            process.print_note("the resource is cluster-scoped: -n has no effect");
        }
        let namespace = if self.all_namespaces { "" } else { &namespace };
        Ok(self.target.attributes(&self.verb, &self.subresource, namespace))
    }
}

/// The arguments of `postern can-i`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern can-i get secret/db\n  \
    postern can-i delete secrets -n shop --as ada --why\n  \
    postern can-i list projects --with-key ci\n  \
    postern can-i get secret/db --read-only")]
pub struct CanI {
    #[command(flatten)]
    question: Question,

    /// Ask about this user
    #[arg(id = "as", long, value_name = "USER", value_parser = parse::identity)]
    user: Option<String>,

    /// Ask about the access keys of this team
    #[arg(long, value_name = "TEAM", value_parser = parse::name, conflicts_with = "as")]
    as_team: Option<String>,

    /// Ask about this access key, within its scope
    #[arg(long, value_name = "NAME", value_parser = parse::name, conflicts_with_all = ["as", "as_team"])]
    with_key: Option<String>,

    /// Also print the rule that allows it, or the nearest rule that fails
    #[arg(long)]
    why: bool,

    #[command(flatten)]
    scope: ScopeFlags,

    #[command(flatten)]
    target_flags: TargetFlags,
}

/// The arguments of `postern who-can`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern who-can get secret/db\n  \
    postern who-can create projects -o json")]
pub struct WhoCan {
    #[command(flatten)]
    question: Question,

    /// How to print it [default: a table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// A review's spec.
enum Review {
    /// About the caller.
    Own(Map<String, Value>),
    /// About another user, a team or an access key.
    OfSubject(Map<String, Value>),
}

impl CanI {
    /// Asks, and prints the answer. No is exit code 1.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let connection = ConnectionFlags {
            target: self.target_flags.clone(),
            // The review names whom it is about. As whom the question is asked, a kubeconfig may say.
            impersonation: ImpersonationFlags::default(),
        };
        let is_of_other = self.user.is_some() || self.as_team.is_some() || self.with_key.is_some();
        if self.scope.scope()?.is_some() && is_of_other {
            let text = "the scope flags ask about a new access key of your own";
            return Err(CliError::usage(text).hint("omit --as, --as-team and --with-key"));
        }
        let mut session = Session::open(&connection, process)?;
        let attributes = self.question.attributes(&mut session, process).await?;
        if self.scope.needs_namespaces() {
            session.load_names().await?;
        }
        let AccessStatus { allowed: is_allowed, reason, evaluation_error, .. } = match self
            .scope
            .scope()?
        {
            Some(scope) => preview(&mut session, attributes, &scope).await?,
            None => match self.review(attributes) {
                Review::Own(spec) => ask::<SelfSubjectAccessReview>(&mut session, spec).await?.1,
                Review::OfSubject(spec) => ask::<SubjectAccessReview>(&mut session, spec).await?.1,
            },
        };
        if let Some(unknown) = reason.lines().next().filter(|line| line.starts_with(NONE_SUCH)) {
            return Err(self.question.makes_no_sense(unknown));
        }
        let mut text = if is_allowed { "yes\n".to_owned() } else { "no\n".to_owned() };
        if self.why {
            text.push_str(&lines(&reason));
        }
        if !evaluation_error.is_empty() {
            let error = escape(&evaluation_error);
            process.print_warning(&format!("the server could not evaluate every rule: {error}"));
        }
        process.print_text(text.as_str())?;
        if is_allowed { Ok(()) } else { Err(CliError::reported()) }
    }

    /// The review to ask for.
    fn review(&self, attributes: Map<String, Value>) -> Review {
        let field = match self.question.target {
            Target::Resource(_) => "resourceAttributes",
            Target::Path(_) => "nonResourceAttributes",
        };
        let mut spec = Map::from_iter([(field.to_owned(), Value::Object(attributes))]);
        let team = self.as_team.as_ref().map(|team| format!("{TEAM_PREFIX}{team}"));
        if let Some(user) = self.user.clone().or(team) {
            spec.insert("user".to_owned(), json!(user));
        }
        if let Some(key) = &self.with_key {
            spec.insert("extra".to_owned(), json!({ KEY_EXTRA: [key] }));
        }
        if spec.len() == 1 { Review::Own(spec) } else { Review::OfSubject(spec) }
    }
}

impl WhoCan {
    /// Asks, and prints the answer.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let mut session = Session::open(&self.connection, process)?;
        let spec = self.question.attributes(&mut session, process).await?;
        if let Some(unknown) = self.question.unknown() {
            return Err(self.question.makes_no_sense(&unknown));
        }
        let (answer, status) = ask::<ResourceAccessReview>(&mut session, spec).await?;
        if !status.complete {
            let reason = match status.incomplete_reason.as_str() {
                "" => "the server does not say why",
                reason => reason,
            };
            process.print_warning(&format!("the list may be incomplete: {}", escape(reason)));
        }
        let subjects = status.subjects.as_slice();
        if subjects.is_empty() {
            process.print_status("no known subject has this permission");
        }
        let text = match self.output {
            Some(ObjectFormat::Json) => output::json(answer.into_value()),
            Some(ObjectFormat::Yaml) => output::yaml(answer.into_value()),
            Some(ObjectFormat::Name) => subjects.iter().map(full_name).collect::<String>().into(),
            None if subjects.is_empty() => return Ok(()),
            None => table(subjects).into(),
        };
        process.print_text(text.as_str())
    }
}

/// The server's decision about a request with a new access key of this scope.
async fn preview(
    session: &mut Session,
    attributes: Map<String, Value>,
    scope: &Scope,
) -> Result<AccessStatus, CliError> {
    let spec = Map::from_iter([
        ("requests".to_owned(), json!([attributes])),
        ("scope".to_owned(), json!(scope)),
    ]);
    let (_, mut status) = ask::<AccessPreview>(session, spec).await?;
    let Some(result) = status.results.pop() else {
        return Err(CliError::new("the server sent no decision"));
    };
    let (allowed, reason) = (result.allowed, result.reason);
    Ok(AccessStatus { allowed, reason, ..AccessStatus::default() })
}

/// A review with this spec.
pub(super) fn review_of<K: Kind>(spec: Map<String, Value>) -> Object {
    Object {
        api_version: K::INFO.version.to_string(),
        kind: K::INFO.kind.to_owned(),
        fields: Map::from_iter([("spec".to_owned(), Value::Object(spec))]),
        ..Object::default()
    }
}

/// The server's answer to a review, and its status.
pub(super) async fn ask<K: Kind>(
    session: &mut Session,
    spec: Map<String, Value>,
) -> Result<(Object, K::Status), CliError> {
    let answer = session.client.create(Collection::of::<K>(None), &review_of::<K>(spec)).await;
    let answer = answer.map_err(|error| session.explain(&error))?;
    let status = session.fields::<K>(&answer)?.status;
    Ok((answer, status))
}

/// Whether the caller can read every object of a kind. A list of a kind of the management API is never denied: it has
/// only the objects that the caller can read.
pub(super) async fn may_read_all(session: &mut Session, info: &Info) -> Result<bool, CliError> {
    may(session, Verb::Get.as_str(), info, "").await
}

/// Whether the caller has a verb on an object of a kind, or without a name on all.
pub(super) async fn may(
    session: &mut Session,
    verb: &str,
    info: &Info,
    name: &str,
) -> Result<bool, CliError> {
    let (group, resource) = (info.version.group, info.plural);
    let attributes = json!({ "verb": verb, "group": group, "resource": resource, "name": name });
    let spec = Map::from_iter([("resourceAttributes".to_owned(), attributes)]);
    Ok(ask::<SelfSubjectAccessReview>(session, spec).await?.1.allowed)
}

/// A reason of the server, line by line, each with a line break.
fn lines(text: &str) -> String {
    text.lines().map(|line| escape(line) + "\n").collect()
}

/// A table of the subjects that can, one a row, with everything that gives them the permission.
fn table(subjects: &[AllowedSubject]) -> String {
    let headings = ["KIND", "NAME", "SIZE", "THROUGH"].map(str::to_owned).to_vec();
    let rows = subjects.iter().map(|subject| {
        let size = subject.size.map_or_else(String::new, |size| size.to_string());
        let via = escape(&subject.via.join("; "));
        vec![escape(&subject.kind), escape(&subject.name), size, via]
    });
    output::table(headings, rows.collect())
}

/// The name `KIND/NAME` of a subject as a line, as kubectl takes it where the subject is an object.
fn full_name(subject: &AllowedSubject) -> String {
    let name = escape(&subject.name);
    let of_object = |info: &&Info| info.version == MANAGEMENT_V1 && info.kind == subject.kind;
    let info = match subject.kind.as_str() {
        "AccessKey" => Some(&OwnedAccessKey::INFO),
        _ => postern_kinds::all().iter().map(|kind| kind.info()).find(of_object),
    };
    match info {
        Some(info) => output::full_name(info, &name) + "\n",
        None => format!("{}/{name}\n", escape(&subject.kind.to_lowercase())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        command: CanI,
    }

    fn review(words: &str) -> (bool, Value) {
        let line = Line::try_parse_from(words.split(' ')).map_err(|error| error.to_string());
        let command = line.unwrap().command;
        let attributes = command.question.target.attributes(&command.question.verb, "", "shop");
        match command.review(attributes) {
            Review::Own(spec) => (true, Value::Object(spec)),
            Review::OfSubject(spec) => (false, Value::Object(spec)),
        }
    }

    #[test]
    fn a_question_about_somebody_else_is_another_review() {
        let attributes = json!({
            "verb": "get", "group": "management.platform.sh", "resource": "sharedsecrets",
            "name": "db", "namespace": "shop",
        });
        for (flags, wanted) in [
            ("", json!({})),
            (" --as ada", json!({ "user": "ada" })),
            (" --as-team red", json!({ "user": "platform:team:red" })),
            (" --with-key ci", json!({ "extra": { "platform.sh/access-key": ["ci"] } })),
        ] {
            let (is_own, mut spec) = review(&format!("can-i get secret/db{flags}"));
            assert_eq!(is_own, flags.is_empty(), "{flags}");
            let found = spec.as_object_mut().unwrap().remove("resourceAttributes");
            assert_eq!((found, spec), (Some(attributes.clone()), wanted), "{flags}");
        }
        let (_, spec) = review("can-i get /metrics");
        let wanted = json!({ "nonResourceAttributes": { "verb": "get", "path": "/metrics" } });
        assert_eq!(spec, wanted);
    }

    #[test]
    fn a_row_for_each_subject() {
        let subject = |kind: &str, name: &str, size, via: &[&str]| AllowedSubject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            size,
            via: via.iter().map(|&text| text.to_owned()).collect(),
        };
        let subjects = [
            subject("User", "ada", None, &["owner of the object", "team red"]),
            subject("Group", "ops\u{1b}[2J", Some(12), &["ClusterRoleBinding ops"]),
        ];
        let wanted = [
            "KIND    NAME           SIZE   THROUGH",
            "User    ada                   owner of the object; team red",
            "Group   ops\\u{1b}[2J   12     ClusterRoleBinding ops",
            "",
        ];
        assert_eq!(table(&subjects), wanted.join("\n"));
        let names: String = subjects.iter().map(full_name).collect();
        assert_eq!(names, "user.management.platform.sh/ada\ngroup/ops\\u{1b}[2J\n");
        let key = full_name(&subject("AccessKey", "ci", None, &[]));
        assert_eq!(key, "ownedaccesskey.management.platform.sh/ci\n");
    }

    #[test]
    fn a_reason_keeps_its_lines_and_controls_no_terminal() {
        assert_eq!(lines("a:\n  - b\u{1b}[2J"), "a:\n  - b\\u{1b}[2J\n");
        assert_eq!(lines(""), "");
    }
}
