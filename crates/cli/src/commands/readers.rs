//! `postern readers secret/db`: who read the values of a shared secret lately. The server keeps the last readers, and this
//! is no audit log.

use clap::Args;
use postern_client::{Collection, Error};
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{Kind as _, Verb};
use postern_meta::object::{Object, json_bytes};
use postern_meta::time::Timestamp;
use postern_meta::{decode_typed, human_duration};
use serde::Deserialize;

use crate::error::CliError;
use crate::flags::{CollectionFlags, ObjectFormat};
use crate::output::{self, escape};
use crate::process::Process;
use crate::resources::{self, KindParser};
use crate::session::Session;

/// The arguments of `postern readers`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern readers secret/db\n  \
    postern readers secret/db -n shop -o json")]
pub struct Readers {
    /// The secret, as KIND/NAME or as KIND NAME
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2, value_parser = KindParser,
          hide_possible_values = true)]
    words: Vec<String>,

    /// How to print them [default: a table]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    collection: CollectionFlags,
}

/// The response of the server.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
struct Listed {
    readers: Vec<Reader>,
    /// The time from which on readers are kept.
    since: Option<Timestamp>,
    /// Whether there were more readers.
    truncated: bool,
}

/// An identity that was sent values.
#[derive(Deserialize, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
struct Reader {
    via: String,
    object: String,
    user: String,
    team: String,
    display_name: String,
    access_key: String,
    access_key_display_name: String,
    first_time: Option<Timestamp>,
    last_time: Option<Timestamp>,
    count: u64,
}

impl Readers {
    /// Asks, and prints.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let name = self.secret()?;
        let (mut session, namespace) = Session::open_in(&self.collection, process).await?;
        let of = Collection::of::<SharedSecret>(Some(&namespace));
        let asked = session.client.get_part(of, &name, "readers").await;
        let object = session.answer(of, &name, asked).await?;
        let listed = decode(&object).map_err(|error| session.explain(&error))?;
        let text = match self.output {
            Some(ObjectFormat::Json) => output::json(object.into_value()),
            Some(ObjectFormat::Yaml) => output::yaml(object.into_value()),
            Some(ObjectFormat::Name) => names(&listed.readers).into(),
            None if listed.readers.is_empty() => String::new().into(),
            None => table(&listed.readers, process.now_unix_seconds()).into(),
        };
        process.print_text(text.as_str())?;
        process.print_note(&listed.note());
        Ok(())
    }

    /// The name of the secret.
    fn secret(&self) -> Result<String, CliError> {
        match &resources::wanted(&self.words, Verb::Get)?[..] {
            [one] if one.info.kind == SharedSecret::INFO.kind => match &one.name {
                Some(name) => Ok(name.clone()),
                None => Err(CliError::usage("no secret is named: postern readers secret/NAME")),
            },
            [one] => {
                let message = format!("readers of {} are not kept", one.info.plural);
                Err(CliError::usage(message).hint("postern readers secret/NAME"))
            }
            _ => Err(CliError::usage("one secret has to be named: postern readers secret/NAME")),
        }
    }
}

impl Listed {
    /// What the list is not.
    fn note(&self) -> String {
        let since = self.since.map(|time| format!(" since {time}")).unwrap_or_default();
        let what = match (self.readers.is_empty(), self.truncated) {
            (true, _) => format!("no reader{since}"),
            (false, true) => format!("the last readers{since}; there were more"),
            (false, false) => format!("the readers{since}"),
        };
        format!(
            "{what}. This is no audit log: each read is in the audit log of the server, see \
             docs/how-to/search-the-audit-log.md"
        )
    }
}

fn decode(object: &Object) -> Result<Listed, Error> {
    decode_typed(&json_bytes(&object.fields)).map_err(|error| Error::Unexpected {
        code: 200,
        what: format!("the answer is no list of readers: {error}"),
    })
}

fn table(readers: &[Reader], now_unix_seconds: i64) -> String {
    let headings = ["WHO", "VIA", "KEY", "FIRST", "LAST", "COUNT"].map(str::to_owned).to_vec();
    let age = |time: Option<Timestamp>| {
        let seconds = time.map(|time| now_unix_seconds.saturating_sub(time.unix_seconds()));
        seconds.map_or_else(|| "-".to_owned(), human_duration)
    };
    let row = |reader: &Reader| {
        vec![
            escape(&reader.who()),
            escape(&reader.route()),
            escape(&labelled(&reader.access_key, &reader.access_key_display_name)),
            age(reader.first_time),
            age(reader.last_time),
            reader.count.to_string(),
        ]
    };
    output::table(headings, readers.iter().map(row).collect())
}

/// The users and teams, each once.
fn names(readers: &[Reader]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for reader in readers {
        let line = match (reader.user.as_str(), reader.team.as_str()) {
            ("", "") => continue,
            ("", team) => output::full_name(&Team::INFO, team),
            (user, _) => output::full_name(&User::INFO, user),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

impl Reader {
    /// The user, or the team of the key.
    fn who(&self) -> String {
        match (self.user.as_str(), self.team.as_str()) {
            ("", "") => "-".to_owned(),
            ("", team) => labelled(&format!("team {team}"), &self.display_name),
            (user, _) => labelled(user, &self.display_name),
        }
    }

    /// How the values left the server, and where they went.
    fn route(&self) -> String {
        match (self.via.as_str(), self.object.as_str()) {
            (via, "") => via.to_owned(),
            (via, object) => format!("{via} {object}"),
        }
    }
}

/// A name, with the one that people know.
fn labelled(name: &str, label: &str) -> String {
    match (name, label) {
        ("", "") => "-".to_owned(),
        (name, label) if label.is_empty() || label == name => name.to_owned(),
        (name, label) => format!("{name} ({label})"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed() -> Listed {
        let object = Object::from_value(json!({
            "apiVersion": "management.platform.sh/v1",
            "kind": "SharedSecretReaders",
            "metadata": { "name": "db", "namespace": "default" },
            "since": "2026-11-30T13:00:00Z",
            "readers": [
                { "via": "Request", "user": "ada", "displayName": "Ada", "accessKey": "key-x7",
                  "accessKeyDisplayName": "laptop", "firstTime": "2026-11-30T13:10:00Z",
                  "lastTime": "2026-11-30T13:59:30Z", "count": 3 },
                { "via": "Sync", "object": "p-web/db", "user": "ada",
                  "firstTime": "2026-11-30T13:20:00Z", "lastTime": "2026-11-30T13:50:00Z", "count": 2 },
                { "via": "Agent", "object": "east\u{1b}[2J", "team": "shop", "accessKey": "ci",
                  "lastTime": "2026-11-30T13:40:00Z", "count": 1 },
            ],
        }));
        decode(&object.unwrap()).unwrap()
    }

    #[test]
    fn readers_are_rows_with_ages() {
        let now: Timestamp = "2026-11-30T14:00:00Z".parse().unwrap();
        let table = table(&listed().readers, now.unix_seconds());
        let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split("   ").collect()).collect();
        let rows: Vec<String> = rows
            .iter()
            .map(|row| {
                let cells = row.iter().map(|cell| cell.trim()).filter(|cell| !cell.is_empty());
                cells.collect::<Vec<_>>().join("|")
            })
            .collect();
        assert_eq!(
            rows,
            [
                "WHO|VIA|KEY|FIRST|LAST|COUNT",
                "ada (Ada)|Request|key-x7 (laptop)|50m|30s|3",
                "ada|Sync p-web/db|-|40m|10m|2",
                "team shop|Agent east\\u{1b}[2J|ci|-|20m|1",
            ]
        );
        let names = names(&listed().readers);
        assert_eq!(names, "user.management.platform.sh/ada\nteam.management.platform.sh/shop\n");
    }

    #[test]
    fn the_note_says_what_the_list_is_not() {
        let note = listed().note();
        assert!(note.starts_with("the readers since 2026-11-30T13:00:00Z."), "{note}");
        assert!(note.contains("no audit log") && note.contains("search-the-audit-log"), "{note}");
        let more = Listed { truncated: true, ..listed() }.note();
        assert!(more.contains("there were more"), "{more}");
        assert!(Listed::default().note().starts_with("no reader."), "{more}");
    }

    #[test]
    fn only_a_secret_has_readers() {
        let secret = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let mut command = Readers::augment_args(clap::Command::new("readers"));
            let mut line = vec!["readers".to_owned()];
            line.extend(words);
            let matches = command.try_get_matches_from_mut(line).unwrap();
            let readers = <Readers as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
            readers.secret().map_err(|error| error.message)
        };
        assert_eq!(secret(&["secret/db"]), Ok("db".to_owned()));
        assert_eq!(secret(&["ss", "db"]), Ok("db".to_owned()));
        for (words, wanted) in [
            (&["user/ada"][..], "readers of users are not kept"),
            (&["secret"], "no secret is named"),
            (&["secret/a", "secret/b"], "one secret"),
        ] {
            let said = secret(words).unwrap_err();
            assert!(said.contains(wanted), "{words:?}: {said}");
        }
    }
}
