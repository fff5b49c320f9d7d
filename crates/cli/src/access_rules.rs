//! Changes of `spec.access`: the subjects with verbs on an object. Fields that this version does
//! not know stay as they are. Reading and writing the objects is in `commands/share.rs`.

use std::fmt;

use postern_client::Collection;
use postern_meta::object::Object;
use serde_json::{Map, Value, json};

use crate::error::CliError;
use crate::explain::by_flags;
use crate::output::escape;
use crate::session::Session;

/// The name of the entries that `share` makes. It changes no others.
const ENTRY_NAME: &str = "shared";
/// Stands for every user, and for every verb.
const ALL: &str = "*";

/// A user, a team or all users, with whom an object is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The user of this name.
    User(String),
    /// The members of the team of this name.
    Team(String),
    /// Every user.
    AllUsers,
}

impl Subject {
    /// The field of an entry that the subject is in, and its name there.
    fn place(&self) -> (&'static str, &str) {
        match self {
            Self::User(name) => ("users", name),
            Self::Team(name) => ("teams", name),
            Self::AllUsers => ("users", ALL),
        }
    }

    fn is_in(&self, entry: &Value) -> bool {
        let (field, name) = self.place();
        texts(entry, field).any(|text| text == name)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "the user {}", escape(name)),
            Self::Team(name) => write!(f, "the team {}", escape(name)),
            Self::AllUsers => f.write_str("all users"),
        }
    }
}

/// Joins subjects for a sentence.
pub(crate) fn list(subjects: &[Subject]) -> String {
    let names: Vec<_> = subjects.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Grants verbs to the subjects that do not have all of them by one entry. The result is these
/// subjects.
pub(crate) fn grant(
    access: &mut Vec<Value>,
    subjects: &[Subject],
    verbs: &[String],
) -> Vec<Subject> {
    let has =
        |subject: &&Subject| access.iter().any(|entry| subject.is_in(entry) && gives(entry, verbs));
    let (_, new): (Vec<_>, Vec<_>) = subjects.iter().partition(has);
    if new.is_empty() {
        return Vec::new();
    }
    let own = access.iter_mut().find(|entry| is_own_with(entry, verbs));
    let mut made = None;
    let entry = match own {
        Some(entry) => entry,
        None => made.insert(json!({ "name": ENTRY_NAME, "verbs": verbs })),
    };
    for subject in &new {
        add(entry, subject);
    }
    access.extend(made);
    new.into_iter().cloned().collect()
}

/// Removes subjects from all entries, and removes entries without subjects. The result is the
/// subjects that were in an entry.
pub(crate) fn revoke(access: &mut Vec<Value>, subjects: &[Subject]) -> Vec<Subject> {
    let was_in = |subject: &&Subject| access.iter().any(|entry| subject.is_in(entry));
    let found: Vec<_> = subjects.iter().filter(was_in).cloned().collect();
    access.retain_mut(|entry| {
        if !found.iter().any(|subject| subject.is_in(entry)) {
            return true;
        }
        for subject in &found {
            remove(entry, subject);
        }
        ["users", "teams"].iter().any(|field| texts(entry, field).next().is_some())
    });
    found
}

/// Whether an entry gives something to every user.
pub(crate) fn is_open(access: &[Value]) -> bool {
    access.iter().any(|entry| Subject::AllUsers.is_in(entry))
}

/// A list in the spec, which is created where there is none. `None` if the field is no list.
fn list_in_spec<'a>(fields: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Vec<Value>> {
    let spec = fields.entry("spec").or_insert_with(|| json!({})).as_object_mut()?;
    let list = spec.entry(name).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut()
}

/// Changes a list in the spec of an object. The result is the object and the value that `change`
/// returned. A default value from `change` means that nothing changes. `flags` are those that set
/// fields of the list.
pub(crate) async fn edit_list<T: Default + PartialEq>(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    list: &str,
    flags: &[(&str, &str)],
    mut change: impl FnMut(&mut Vec<Value>) -> T,
) -> Result<(Object, T), CliError> {
    let mut changed = Some(T::default());
    let edited = session.client.edit(of, name, |object| {
        changed = list_in_spec(&mut object.fields, list).map(&mut change);
        changed.as_ref().is_some_and(|changed| *changed != T::default())
    });
    match (edited.await, changed) {
        (Ok(object), Some(changed)) => Ok((object, changed)),
        (Ok(_), None) => Err(CliError::new(format!("spec.{list} of {name} is not a list"))),
        (Err(error), _) => {
            let explained = session.explain_named(of, name, &error).await;
            Err(by_flags(explained, &error, flags))
        }
    }
}

/// Whether an entry is one that [`grant`] made for these verbs.
fn is_own_with(entry: &Value, verbs: &[String]) -> bool {
    let same_verbs = texts(entry, "verbs").count() == verbs.len()
        && texts(entry, "verbs").all(|verb| verbs.iter().any(|wanted| wanted == verb));
    entry["name"] == ENTRY_NAME && same_verbs && texts(entry, "subresources").next().is_none()
}

fn gives(entry: &Value, verbs: &[String]) -> bool {
    let has = |verb: &String| texts(entry, "verbs").any(|own| own == verb || own == ALL);
    verbs.iter().all(has)
}

fn texts<'a>(entry: &'a Value, field: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    entry[field].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn add(entry: &mut Value, subject: &Subject) {
    let (field, name) = subject.place();
    let Some(entry) = entry.as_object_mut() else { return };
    let names = entry.entry(field).or_insert(Value::Null);
    match names.as_array_mut() {
        Some(names) if names.iter().any(|own| own == name) => {}
        Some(names) => names.push(json!(name)),
        None => *names = json!([name]),
    }
}

fn remove(entry: &mut Value, subject: &Subject) {
    let (field, name) = subject.place();
    let Some(entry) = entry.as_object_mut() else { return };
    if let Some(names) = entry.get_mut(field).and_then(Value::as_array_mut) {
        names.retain(|own| own != name);
        if names.is_empty() {
            entry.remove(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects(text: &str) -> Vec<Subject> {
        let one = |word: &str| match word.split_once('/') {
            Some(("user", name)) => Subject::User(name.to_owned()),
            Some(("team", name)) => Subject::Team(name.to_owned()),
            _ => Subject::AllUsers,
        };
        text.split_whitespace().map(one).collect()
    }

    fn entries(value: &Value) -> Vec<Value> {
        value.as_array().unwrap().clone()
    }

    #[test]
    fn who_is_new_is_added_to_the_entry_with_the_same_verbs_or_to_a_new_one() {
        let own = json!({ "name": "shared", "verbs": ["list", "get"], "users": ["ada"] });
        let named = json!({ "name": "ops", "verbs": ["get", "list"], "users": ["ada"] });
        let wide = json!({ "name": "shared", "verbs": ["get", "list"], "subresources": ["*"] });
        let all = json!({ "verbs": ["*"], "users": ["*"], "teams": ["red"] });
        let new = json!({ "name": "shared", "verbs": ["get", "list"], "users": ["bob"] });
        let longer = json!({ "name": "shared", "verbs": ["list", "get"], "users": ["ada", "bob"] });
        let of_team = json!({ "name": "shared", "verbs": ["list", "get"], "users": ["ada"], "teams": ["red"] });
        for (before, who, added, after) in [
            (json!([]), "user/bob", "user/bob", json!([new])),
            (json!([own]), "user/bob", "user/bob", json!([longer])),
            (json!([own]), "user/bob user/bob", "user/bob user/bob", json!([longer])),
            (json!([own]), "team/red user/ada", "team/red", json!([of_team])),
            (json!([named]), "user/bob", "user/bob", json!([named, new])),
            (json!([wide]), "user/bob", "user/bob", json!([wide, new])),
            (json!([own]), "user/ada", "", json!([own])),
            (json!([all]), "* team/red", "", json!([all])),
            (json!([all]), "user/bob", "user/bob", json!([all, new])),
        ] {
            let mut access = entries(&before);
            let granted =
                grant(&mut access, &subjects(who), &["get".to_owned(), "list".to_owned()]);
            assert_eq!(granted, subjects(added), "{who} in {before}");
            assert_eq!(access, entries(&after), "{who} in {before}");
        }
    }

    #[test]
    fn fewer_verbs_than_wanted_are_not_enough() {
        let few = json!([{ "name": "shared", "verbs": ["get"], "users": ["ada"] }]);
        let mut access = entries(&few);
        let wanted = ["get".to_owned(), "patch".to_owned()];
        assert_eq!(grant(&mut access, &subjects("user/ada"), &wanted), subjects("user/ada"));
        assert_eq!(access[1], json!({ "name": "shared", "verbs": wanted, "users": ["ada"] }));
        assert_eq!(access[0], few[0]);
    }

    #[test]
    fn who_is_taken_out_is_in_no_entry_and_empty_entries_go() {
        let ada = json!({ "verbs": ["get"], "users": ["ada"] });
        let both =
            json!({ "verbs": ["*"], "users": ["ada", "bob"], "teams": ["ada"], "future": 1 });
        let rest = json!({ "verbs": ["*"], "users": ["bob"], "teams": ["ada"], "future": 1 });
        let team = json!({ "verbs": ["*"], "teams": ["ada"], "future": 1 });
        let nobody = json!({ "verbs": ["get"], "users": [] });
        let open = json!({ "verbs": ["get"], "users": ["*"] });
        for (before, who, found, after) in [
            (json!([ada, both]), "user/ada", "user/ada", json!([rest])),
            (json!([both]), "user/ada user/bob", "user/ada user/bob", json!([team])),
            (json!([ada, nobody]), "user/eve user/ada", "user/ada", json!([nobody])),
            (json!([ada, both]), "team/red", "", json!([ada, both])),
            (json!([open, ada]), "*", "*", json!([ada])),
            (json!([open]), "user/ada", "", json!([open])),
            (json!([]), "user/ada", "", json!([])),
        ] {
            let mut access = entries(&before);
            assert_eq!(revoke(&mut access, &subjects(who)), subjects(found), "{who} in {before}");
            assert_eq!(access, entries(&after), "{who} in {before}");
        }
        assert!(is_open(&[open]) && !is_open(&[ada]));
    }

    #[test]
    fn a_list_in_the_spec_is_created_where_there_is_none() {
        for mut fields in [json!({}), json!({ "spec": {} }), json!({ "spec": { "access": null } })]
        {
            let fields = fields.as_object_mut().unwrap();
            list_in_spec(fields, "access").unwrap().push(json!(1));
            assert_eq!(fields["spec"], json!({ "access": [1] }));
        }
        let mut odd = json!({ "spec": { "access": "x" } });
        assert!(list_in_spec(odd.as_object_mut().unwrap(), "access").is_none());
    }
}
