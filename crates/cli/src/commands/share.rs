//! `postern share KIND NAME` and `postern unshare KIND NAME`: the users and teams with verbs on an
//! object. How the access rules change is in `access_rules.rs`.

use std::convert::Infallible;

use clap::Args;
use postern_client::Collection;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::{AnyKind, Info, Kind as _, Verb, access::USE};
use postern_meta::object::Object;
use serde_json::Value;

use super::by_kind::{KindArgs, OfKind};
use crate::access_rules::{self, Subject, edit_list};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag};
use crate::process::Process;
use crate::{kinds, parse};

/// With whom.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct SubjectFlags {
    /// A user; may be repeated
    #[arg(long = "user", value_name = "USER", value_parser = parse::name)]
    users: Vec<String>,

    /// A team, that is, its members; may be repeated
    #[arg(long = "team", value_name = "TEAM", value_parser = parse::name)]
    teams: Vec<String>,

    /// Every user
    #[arg(long)]
    all_users: bool,
}

impl SubjectFlags {
    fn subjects(&self) -> Vec<Subject> {
        let users = self.users.iter().cloned().map(Subject::User);
        let teams = self.teams.iter().cloned().map(Subject::Team);
        let all = self.all_users.then_some(Subject::AllUsers);
        let mut subjects = Vec::new();
        for subject in users.chain(teams).chain(all) {
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        subjects
    }
}

/// An object, and with whom it is shared.
#[derive(Args, Debug)]
struct Sharing {
    /// The object's whole name
    #[arg(value_parser = parse::name)]
    name: String,

    #[command(flatten)]
    with: SubjectFlags,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// An object to share.
#[derive(Args, Debug)]
pub struct Share {
    #[command(flatten)]
    sharing: Sharing,

    /// The verbs to grant, separated by commas; * is every verb. You can grant only verbs that you hold
    /// [default: get,list,watch; for clusters, virtual clusters and spaces also use]
    #[arg(long, value_name = "VERBS", value_delimiter = ',', value_parser = parse::verb)]
    verbs: Vec<String>,
}

/// The arguments of `postern unshare`.
#[derive(Args, Debug)]
pub struct Unshare {
    #[command(flatten)]
    sharing: Sharing,
}

impl KindArgs for Share {
    const VERB: Verb = Verb::Update;
    type NamespaceArgs = NamespaceFlag;
    type Special = Infallible;

    fn is_for(kind: &dyn AnyKind) -> bool {
        kind.has_ownership()
    }

    fn about(info: &Info) -> String {
        format!("Give users and teams access to one of the {}", kinds::plural_name(info))
    }

    fn consequence(_info: &Info) -> Option<&'static str> {
        Some(
            "Adds the users and teams to the access rules of the object (spec.access). Every \
             reader of the object can see these rules. The server creates Roles and bindings for \
             them in the same transaction.",
        )
    }
}

impl KindArgs for Unshare {
    const VERB: Verb = Verb::Update;
    type NamespaceArgs = NamespaceFlag;
    type Special = Infallible;

    fn is_for(kind: &dyn AnyKind) -> bool {
        kind.has_ownership()
    }

    fn about(info: &Info) -> String {
        format!("Take the access to one of the {} back", kinds::plural_name(info))
    }

    fn consequence(_info: &Info) -> Option<&'static str> {
        Some(
            "Removes the users and teams from all access rules of the object (spec.access), \
             including rules that other users added. Their open watches end. Permissions from \
             other sources stay: ownership, roles, teams, and rules for all users.",
        )
    }
}

/// The flags that set fields of access rules.
const FLAGS: [(&str, &str); 3] = [
    ("spec.access.users", "--user"),
    ("spec.access.teams", "--team"),
    ("spec.access.verbs", "--verbs"),
];

/// The default verbs of a share: to read the object, and to use a cluster, a virtual cluster or a space.
fn default_verbs(info: &Info) -> Vec<String> {
    let reads = [Verb::Get, Verb::List, Verb::Watch].map(|verb| verb.as_str().to_owned());
    let uses = kinds::is_target(info).then(|| USE.to_owned());
    reads.into_iter().chain(uses).collect()
}

impl OfKind<Share> {
    /// Shares.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let Share { sharing: Sharing { name, with, connection }, verbs } = &self.args;
        let verbs = if verbs.is_empty() { &default_verbs(self.info) } else { verbs };
        let (mut session, namespace) = self.open(connection, process).await?;
        let of = Collection::new(self.info, namespace.as_deref());
        let wanted = with.subjects();
        let (_, new) = edit_list(&mut session, of, name, "access", &FLAGS, |access| {
            access_rules::grant(access, &wanted, verbs)
        })
        .await?;
        let (kind, verbs) = (kinds::name(self.info), verbs.join(", "));
        let old: Vec<_> = wanted.into_iter().filter(|one| !new.contains(one)).collect();
        if !new.is_empty() {
            let with = access_rules::list(&new);
            process.print_status(&format!("{kind} {name} shared with {with}: {verbs}"));
            // Readers have the namespace of their own login as the default.
            if let Some(namespace) = namespace.filter(|_| self.info.kind == SharedSecret::INFO.kind)
            {
                process
                    .print_status(&format!("to read it: postern get secret {name} -n {namespace}"));
            }
        }
        if !old.is_empty() {
            let with = access_rules::list(&old);
            process.print_note(&format!("{kind} {name} was shared with {with} already: {verbs}"));
        }
        Ok(())
    }
}

impl OfKind<Unshare> {
    /// Takes back.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let Sharing { name, with, connection } = &self.args.sharing;
        let (mut session, namespace) = self.open(connection, process).await?;
        let of = Collection::new(self.info, namespace.as_deref());
        let wanted = with.subjects();
        let (object, found) = edit_list(&mut session, of, name, "access", &FLAGS, |access| {
            access_rules::revoke(access, &wanted)
        })
        .await?;
        let kind = kinds::name(self.info);
        let absent: Vec<_> = wanted.iter().filter(|one| !found.contains(one)).cloned().collect();
        if !found.is_empty() {
            let with = access_rules::list(&found);
            process.print_status(&format!("{kind} {name} is no longer shared with {with}"));
        }
        if !absent.is_empty() {
            let with = access_rules::list(&absent);
            process.print_note(&format!("{kind} {name} was not shared with {with}"));
        }
        for note in left(&object, &wanted) {
            process.print_note(&note);
        }
        Ok(())
    }
}

/// The sources, in the object itself, from which some of the subjects still have access.
fn left(object: &Object, subjects: &[Subject]) -> Vec<String> {
    let spec = &object.fields.get("spec").unwrap_or(&Value::Null);
    let mut notes = Vec::new();
    let access = spec["access"].as_array().map_or(&[][..], Vec::as_slice);
    let is_user = |one: &Subject| matches!(one, Subject::User(_));
    if access_rules::is_open(access) && subjects.iter().any(is_user) {
        notes.push("it is still shared with all users: pass --all-users to revoke that".to_owned());
    }
    for subject in subjects {
        let owns = match subject {
            Subject::User(name) => spec["owner"]["user"] == name.as_str(),
            Subject::Team(name) => spec["owner"]["team"] == name.as_str(),
            Subject::AllUsers => false,
        };
        if owns {
            notes.push(format!("{subject} is the owner, and keeps every permission on it"));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_note_says_by_what_somebody_still_has_access() {
        let spec = json!({ "owner": { "user": "ada" }, "access": [{ "users": ["*"] }] });
        let mut object = Object::default();
        object.fields.insert("spec".to_owned(), spec);
        let user = |name: &str| [Subject::User(name.to_owned())];
        assert_eq!(left(&object, &user("ada")).len(), 2);
        assert_eq!(left(&object, &user("bob")).len(), 1);
        assert!(left(&object, &[Subject::Team("ada".to_owned()), Subject::AllUsers]).is_empty());
        assert!(left(&Object::default(), &user("ada")).is_empty());
    }
}
