//! `postern wait`: until objects have a condition, a value, or are gone. It watches, and asks nothing twice.

use std::time::Duration;

use clap::Args;
use postern_client::{Change, ChangeType, Collection, Representation, Selection};
use postern_kinds::Verb;
use postern_meta::status::Reason;
use serde_json::Value;

use crate::changes::{Changes, Event};
use crate::duration::parse_duration;
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag};
use crate::jsonpath::{self, Path, text_of};
use crate::kinds;
use crate::process::Process;
use crate::resources::{self, KindParser, Wanted};
use crate::session::Session;

/// The longest time to wait; also the one for a negative `--timeout`.
const TIMEOUT_MAX: Duration = Duration::from_hours(7 * 24);
/// The longest that one request may take.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// Wait until objects have a condition.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  \
        postern wait cluster/east --for=condition=Ready --timeout=5m\n  \
        postern wait user ada --for=delete\n  \
        postern wait virtualclusterinstance dev -n p-web --for=jsonpath='{.status.phase}'=Ready",
    mut_arg("timeout", |arg| arg
        .help("How long to wait: 0 checks once, and a negative time is a week")
        .value_parser(timeout)
        .allow_hyphen_values(true)),
)]
pub struct Wait {
    /// A kind and the names of objects; or KIND/NAME, which may be repeated
    #[arg(
        value_name = "KIND[/NAME]",
        required = true,
        value_parser = KindParser,
        hide_possible_values = true
    )]
    words: Vec<String>,

    /// What to wait for: delete, create, condition=TYPE[=STATUS] or jsonpath='{PATH}'[=VALUE]
    #[arg(long = "for", value_name = "CONDITION", required = true, value_parser = condition)]
    condition: Condition,

    /// Wait for all objects with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Wait for all objects with these fields
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,

    /// Wait for all objects of the kind in the namespace
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    namespace: NamespaceFlag,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq)]
enum Condition {
    /// The object does not exist.
    Delete,
    /// The object exists.
    Create,
    /// A condition of the status has this status.
    Status { condition: String, status: String },
    /// A value exists, or is this one.
    Path { path: Path, value: Option<String> },
}

fn condition(text: &str) -> Result<Condition, String> {
    let wrong = || {
        "use delete, create, condition=TYPE, condition=TYPE=STATUS or jsonpath='{PATH}'=VALUE"
            .to_owned()
    };
    match text {
        "delete" => return Ok(Condition::Delete),
        "create" => return Ok(Condition::Create),
        _ => {}
    }
    if let Some(rest) = text.strip_prefix("condition=").filter(|rest| !rest.is_empty()) {
        let (condition, status) = rest.split_once('=').unwrap_or((rest, "True"));
        return Ok(Condition::Status {
            condition: condition.to_owned(),
            status: status.to_owned(),
        });
    }
    let rest = text.strip_prefix("jsonpath=").filter(|rest| !rest.is_empty()).ok_or_else(wrong)?;
    let (path, value) = jsonpath::split_comparison(rest);
    let path = Path::parse(path)?;
    Ok(Condition::Path { path, value: value.map(str::to_owned) })
}

fn timeout(text: &str) -> Result<Duration, String> {
    match text.strip_prefix('-') {
        Some(rest) => parse_duration(rest, TIMEOUT_MAX).map(|_| TIMEOUT_MAX),
        None => parse_duration(text, TIMEOUT_MAX),
    }
}

impl Condition {
    fn representation(&self) -> Representation {
        match self {
            Self::Delete | Self::Create => Representation::Metadata,
            Self::Status { .. } | Self::Path { .. } => Representation::Whole,
        }
    }

    /// The object in a list that is selected by its name. A list has only objects that the caller may read: if it is empty,
    /// a read of the object says whether there is none.
    async fn object_in(
        &self,
        mut list: Value,
        session: &mut Session,
        of: Collection<'_>,
        name: &str,
    ) -> Result<Option<Value>, CliError> {
        let listed = list.get_mut("items").and_then(Value::as_array_mut).and_then(Vec::pop);
        if listed.is_some() || !matches!(self, Self::Delete | Self::Create) {
            return Ok(listed);
        }
        match session.client.get_as(of, name, Representation::Metadata).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.reason() == Some(Reason::NotFound) => Ok(None),
            Err(error) => Err(session.explain(&error)),
        }
    }

    /// Whether an object that exists is as it is waited for.
    fn holds(&self, object: &Value) -> bool {
        match self {
            Self::Delete => false,
            Self::Create => true,
            Self::Status { condition, status } => {
                let same = |field: &Value, wanted: &str| {
                    field.as_str().is_some_and(|text| text.eq_ignore_ascii_case(wanted))
                };
                let mut conditions =
                    object["status"]["conditions"].as_array().into_iter().flatten();
                let found = conditions.find(|one| same(&one["type"], condition));
                found.is_some_and(|one| same(&one["status"], status) && is_current(object, one))
            }
            Self::Path { path, value } => {
                // A list may still be too short for an index.
                let found = path.values(object).unwrap_or_default();
                match value {
                    None => found.iter().any(|value| !value.is_null() && **value != ""),
                    Some(value) => matches!(found[..], [one] if *text_of(one) == *value),
                }
            }
        }
    }
}

/// Whether a condition is about the object as it is, and not about an earlier generation of it.
fn is_current(object: &Value, condition: &Value) -> bool {
    let observed = condition["observedGeneration"].as_i64();
    let observed = observed.or(object["status"]["observedGeneration"].as_i64());
    let generation = object["metadata"]["generation"].as_i64();
    observed.zip(generation).is_none_or(|(observed, generation)| observed >= generation)
}

/// How waiting for one object has ended.
enum Outcome {
    Met,
    /// There is no such object.
    Missing,
    /// It was deleted meanwhile.
    Deleted,
    /// Its time is over.
    Late,
}

impl Wait {
    /// Waits for one object after the other, all within one time.
    pub(crate) async fn run(mut self, process: &Process) -> Result<(), CliError> {
        let limit = self.connection.target.credential.timeout;
        self.connection.target.credential.timeout =
            limit.clamp(Duration::from_secs(1), REQUEST_TIMEOUT_MAX);
        let wanted = resources::wanted(&self.words, Verb::Watch)?;
        self.check(&wanted)?;
        let mut session = Session::open(&self.connection, process)?;
        session.load_namespace(Some(&self.namespace)).await?;
        let namespace = session.namespace_or(&self.namespace);
        let mut failed = false;
        let deadline = tokio::time::Instant::now() + limit;
        for one in self.named(&mut session, wanted, &namespace).await? {
            let of = Collection::new(one.info, Some(&namespace));
            let name = one.name.unwrap_or_default();
            let what = format!("{} {name}", kinds::name(one.info));
            process.show_progress(&format!("waiting for {what}"));
            let ended = self.wait_for(&mut session, of, &name, limit, deadline).await;
            process.clear_progress();
            let error = match ended? {
                Outcome::Met => {
                    process.print_status(&format!("{what}: condition met"));
                    continue;
                }
                Outcome::Missing => match session.client.get(of, &name).await {
                    Err(error) => session.explain_named(of, &name, &error).await,
                    Ok(_) => CliError::new(format!("{what} was created just now: wait again")),
                },
                Outcome::Deleted => CliError::new(format!("{what} was deleted meanwhile")),
                Outcome::Late => {
                    CliError::new(format!("timed out waiting for the condition on {what}"))
                        .hint("--timeout sets how long to wait")
                }
            };
            process.print_error(&error);
            failed = true;
        }
        if failed { Err(CliError::reported()) } else { Ok(()) }
    }

    fn check(&self, wanted: &[Wanted]) -> Result<(), CliError> {
        let selects = self.all || self.selector.is_some() || self.field_selector.is_some();
        if selects && wanted.iter().any(|one| one.name.is_some()) {
            return Err(CliError::usage("names and selectors cannot be used together"));
        }
        if !selects && wanted.iter().any(|one| one.name.is_none()) {
            let error = CliError::usage("no object is named");
            return Err(error.hint("pass a NAME, a selector with -l, or --all"));
        }
        Ok(())
    }

    /// The objects, by name: those of a selection as it is now.
    async fn named(
        &self,
        session: &mut Session,
        wanted: Vec<Wanted>,
        namespace: &str,
    ) -> Result<Vec<Wanted>, CliError> {
        let mut objects = Vec::new();
        for one in wanted {
            if one.name.is_some() {
                objects.push(one);
                continue;
            }
            let selection = Selection {
                labels: self.selector.clone().unwrap_or_default(),
                fields: self.field_selector.clone().unwrap_or_default(),
            };
            let of = Collection::new(one.info, Some(namespace));
            let found =
                session.client.list_selected(of, Representation::Metadata, &selection).await;
            let found = found.map_err(|error| session.explain(&error))?;
            let items = found["items"].as_array().map_or(&[][..], Vec::as_slice).iter();
            let names = items.filter_map(|item| item["metadata"]["name"].as_str());
            let before = objects.len();
            objects
                .extend(names.map(|name| Wanted { info: one.info, name: Some(name.to_owned()) }));
            if objects.len() == before && self.condition != Condition::Delete {
                return Err(CliError::new(format!("no {} match", one.info.plural)));
            }
        }
        Ok(objects)
    }

    async fn wait_for(
        &self,
        session: &mut Session,
        of: Collection<'_>,
        name: &str,
        limit: Duration,
        deadline: tokio::time::Instant,
    ) -> Result<Outcome, CliError> {
        let representation = self.condition.representation();
        let begun = Changes::begin(session, of, representation, Selection::of_name(name)).await;
        let (mut changes, list) = begun.map_err(|error| session.explain(&error))?;
        let first = self.condition.object_in(list, session, of, name).await?;
        let uid = first.as_ref().map(|object| object["metadata"]["uid"].clone());
        match (&first, &self.condition) {
            (None, Condition::Delete) => return Ok(Outcome::Met),
            (None, Condition::Create) => {}
            (None, _) => return Ok(Outcome::Missing),
            (Some(object), condition) if condition.holds(object) => return Ok(Outcome::Met),
            (Some(_), _) => {}
        }
        if limit.is_zero() {
            return Ok(Outcome::Late);
        }
        let until_it_holds = async {
            loop {
                let now = match changes.next(session).await? {
                    Event::Change(Change { change_type: ChangeType::Deleted, .. }) => None,
                    Event::Change(Change { object, .. }) => Some(object),
                    Event::List(list) => self.condition.object_in(list, session, of, name).await?,
                };
                if let Some(outcome) = self.outcome(now.as_ref(), uid.as_ref()) {
                    return Ok(outcome);
                }
            }
        };
        tokio::time::timeout_at(deadline, until_it_holds).await.unwrap_or(Ok(Outcome::Late))
    }

    /// The outcome of a change, unless more have to come. `uid` is that of the object that there was first.
    fn outcome(&self, object: Option<&Value>, uid: Option<&Value>) -> Option<Outcome> {
        match (object, &self.condition) {
            (None, Condition::Delete) => Some(Outcome::Met),
            // With another uid, it is another object of the same name: the first one is gone.
            (Some(object), Condition::Delete) => {
                uid.is_some_and(|uid| object["metadata"]["uid"] != *uid).then_some(Outcome::Met)
            }
            (None, Condition::Create) => None,
            (None, _) => Some(Outcome::Deleted),
            (Some(object), condition) => condition.holds(object).then_some(Outcome::Met),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_are_parsed_and_checked() {
        let object = json!({
            "metadata": { "name": "a" },
            "status": {
                "phase": "Ready", "count": 3, "empty": "",
                "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Synced", "status": "False" }],
            },
        });
        for (text, wanted) in [
            ("create", true),
            ("delete", false),
            ("condition=Ready", true),
            ("condition=ready=true", true),
            ("condition=Ready=False", false),
            ("condition=Synced", false),
            ("condition=Synced=False", true),
            ("condition=Absent", false),
            ("jsonpath={.status.phase}=Ready", true),
            ("jsonpath=.status.phase=Ready", true),
            ("jsonpath={.status.phase}=Pending", false),
            ("jsonpath={.status.count}=3", true),
            ("jsonpath={.status.phase}", true),
            ("jsonpath={.status.empty}", false),
            ("jsonpath={.status.absent}", false),
            ("jsonpath={.status.conditions[?(@.type==\"Synced\")].status}=False", true),
            ("jsonpath={.status.conditions[*].status}=True", false),
            ("jsonpath={.status.conditions[7].status}=True", false),
        ] {
            assert_eq!(condition(text).unwrap().holds(&object), wanted, "{text}");
        }
        for wrong in ["", "deleted", "condition=", "jsonpath=", "jsonpath={.a", "jsonpath={}"] {
            assert!(condition(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_condition_of_an_earlier_generation_does_not_count() {
        let ready = condition("condition=Ready").unwrap();
        for (generation, of_condition, of_status, wanted) in [
            (json!(2), json!(1), json!(null), false),
            (json!(2), json!(2), json!(1), true),
            (json!(2), json!(null), json!(1), false),
            (json!(2), json!(null), json!(null), true),
            (json!(null), json!(1), json!(null), true),
        ] {
            let one =
                json!({ "type": "Ready", "status": "True", "observedGeneration": of_condition });
            let status = json!({ "observedGeneration": of_status, "conditions": [one] });
            let object = json!({ "metadata": { "generation": generation }, "status": status });
            assert_eq!(ready.holds(&object), wanted, "{object}");
        }
    }

    #[test]
    fn times_to_wait() {
        assert_eq!(timeout("0"), Ok(Duration::ZERO));
        assert_eq!(timeout("0s"), Ok(Duration::ZERO));
        assert_eq!(timeout("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(timeout("-1s"), Ok(TIMEOUT_MAX));
        assert!(timeout("soon").is_err() && timeout("-x").is_err() && timeout("8d").is_err());
    }
}
