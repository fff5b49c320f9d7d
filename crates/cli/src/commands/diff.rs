//! `postern diff -f`: what `apply` would change. The server says what each object would be, and stores nothing. Values of
//! secrets are never printed.

use clap::Args;
use postern_client::ApplyOptions;
use postern_kinds::{Info, Verb};
use postern_meta::encode_yaml;
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::apply::{FIELD_MANAGER, apply, collection, explain};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag};
use crate::kinds;
use crate::manifest::Manifest;
use crate::manifest_files::FileFlags;
use crate::output::{LAST_APPLIED, escape, full_name};
use crate::process::Process;
use crate::session::Session;

/// The exit code when there are differences.
const DIFFERENT_CODE: u8 = 1;
/// The exit code after an error.
const FAILED_CODE: u8 = 2;
/// Lines around a difference.
const CONTEXT_LINES: usize = 3;

/// Print what `apply` would change.
#[derive(Args, Debug)]
pub struct Diff {
    #[command(flatten)]
    files: FileFlags,

    /// Take fields that another field manager owns
    #[arg(long)]
    force_conflicts: bool,

    /// As in kubectl. Objects are always applied by the server
    #[arg(long, hide = true)]
    server_side: bool,

    /// The owner of the applied fields
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    field_manager: String,

    #[command(flatten)]
    namespace: NamespaceFlag,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl Diff {
    /// Compares, and prints the differences. The exit code is 0 without differences, 1 with some, and 2 after an
    /// error.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        match self.compare(process).await {
            Ok(false) => Ok(()),
            Ok(true) => Err(CliError::exit(DIFFERENT_CODE)),
            Err(error) => Err(error.into_code(FAILED_CODE)),
        }
    }

    /// Whether there are differences.
    async fn compare(&self, process: &Process) -> Result<bool, CliError> {
        let manifests = self.files.read(Verb::Patch, &self.connection, &self.namespace, process)?;
        let mut session = Session::open(&self.connection, process)?;
        session.load_namespace(Some(&self.namespace)).await?;
        let namespace = session.namespace_or(&self.namespace);
        let (mut different, mut failed) = (false, false);
        for manifest in &manifests {
            let compared = match manifest {
                Ok(manifest) => self.compare_one(&mut session, manifest, &namespace).await,
                Err(error) => Err(error.clone()),
            };
            match compared {
                Ok(None) => {}
                Ok(Some(text)) => {
                    different = true;
                    let text = process.fit_for_stdout(text.as_bytes());
                    let text = String::from_utf8_lossy(&text);
                    process
                        .write_stdout(coloured(&text, process.stdout_is_coloured()).as_bytes())?;
                }
                Err(error) => {
                    process.print_error(&error);
                    failed = true;
                }
            }
        }
        if failed { Err(CliError::reported()) } else { Ok(different) }
    }

    /// The differences of one object, if there are any.
    async fn compare_one(
        &self,
        session: &mut Session,
        manifest: &Manifest,
        namespace: &str,
    ) -> Result<Option<String>, CliError> {
        let of = collection(manifest, namespace);
        let live = match session.client.get(of, &manifest.object.metadata.name).await {
            Ok(object) => Some(object),
            Err(error) if error.reason() == Some(Reason::NotFound) => None,
            Err(error) => return Err(explain(session, manifest, &error)),
        };
        let options = ApplyOptions {
            field_manager: &self.field_manager,
            force: self.force_conflicts,
            dry_run: true,
        };
        let merged = apply(session, manifest, namespace, options).await;
        let merged = merged.map_err(|error| explain(session, manifest, &error))?;
        let name = escape(&full_name(manifest.info, &merged.metadata.name));
        let (live, merged) = texts(manifest.info, live, merged);
        Ok(difference(&live, &merged, &name))
    }
}

/// Both states as YAML, without what differs in every write, and without values.
fn texts(info: &Info, live: Option<Object>, merged: Object) -> (String, String) {
    let is_new = live.is_none();
    let mut live = live.map_or(Value::Null, |object| comparable(object, is_new));
    let mut merged = comparable(merged, is_new);
    for path in kinds::secret_fields(info) {
        let at = kinds::json_pointer(path);
        mask(live.pointer_mut(&at), merged.pointer_mut(&at));
    }
    let text = |value: &Value| if value.is_null() { String::new() } else { encode_yaml(value) };
    (text(&live), text(&merged))
}

fn comparable(object: Object, is_new: bool) -> Value {
    let mut value = object.into_value();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
        // Applying does not change it.
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        if is_new {
            // The server chooses them anew in every dry run.
            metadata.remove("uid");
            metadata.remove("creationTimestamp");
        }
    }
    value
}

/// Replaces values, such that only whether they differ can be seen.
fn mask(live: Option<&mut Value>, merged: Option<&mut Value>) {
    const HIDDEN: &str = "***";
    let (mut none_live, mut none_merged) = (json!({}), json!({}));
    let live = live.unwrap_or(&mut none_live);
    let merged = merged.unwrap_or(&mut none_merged);
    let (Some(live), Some(merged)) = (live.as_object_mut(), merged.as_object_mut()) else {
        (*live, *merged) = (json!(HIDDEN), json!(HIDDEN));
        return;
    };
    for (key, value) in live.iter_mut() {
        let other = merged.get_mut(key);
        let differs = other.as_ref().is_some_and(|other| **other != *value);
        *value = json!(if differs { "*** (before)" } else { HIDDEN });
        if let Some(other) = other {
            *other = json!(if differs { "*** (after)" } else { HIDDEN });
        }
    }
    for (key, value) in merged.iter_mut() {
        if !live.contains_key(key) {
            *value = json!(HIDDEN);
        }
    }
}

/// A unified diff; `None` for equal texts.
fn difference(live: &str, merged: &str, name: &str) -> Option<String> {
    let diff = TextDiff::from_lines(live, merged);
    if diff.iter_all_changes().all(|change| change.tag() == ChangeTag::Equal) {
        return None;
    }
    let (old, new) = (format!("live/{name}"), format!("merged/{name}"));
    let mut unified = diff.unified_diff();
    Some(unified.context_radius(CONTEXT_LINES).header(&old, &new).to_string())
}

fn coloured(text: &str, is_coloured: bool) -> String {
    if !is_coloured {
        return text.to_owned();
    }
    let line = |line: &str| {
        let colour = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => "1",
            [b'+', ..] => "32",
            [b'-', ..] => "31",
            [b'@', ..] => "36",
            _ => return format!("{line}\n"),
        };
        format!("\x1b[{colour}m{line}\x1b[0m\n")
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use postern_kinds::Kind as _;
    use postern_kinds::shared_secret::SharedSecret;
    use postern_kinds::user::User;

    use super::*;

    fn object(spec: &Value) -> Object {
        let annotations = json!({ LAST_APPLIED: "{\"spec\":{\"data\":{\"a\":\"aHVzaA==\"}}}" });
        let metadata = json!({
            "name": "db", "resourceVersion": "1", "uid": "u", "annotations": annotations,
        });
        Object::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn values_of_secrets_are_not_printed() {
        let before = json!({ "data": { "a": "aHVzaA==", "b": "aHVzaA==", "c": "aHVzaA==" } });
        let after = json!({ "data": { "a": "aHVzaA==", "b": "aHVzaDI=", "d": "aHVzaA==" } });
        let (live, merged) = texts(&SharedSecret::INFO, Some(object(&before)), object(&after));
        let diff = difference(&live, &merged, "x").unwrap();
        assert!(!diff.contains("aHVz"), "{diff}");
        for line in [
            "--- live/x",
            "+++ merged/x",
            "     a: ",
            "-    b: ",
            "+    b: ",
            "-    c: ",
            "+    d: ",
        ] {
            assert!(diff.contains(line), "{line}: {diff}");
        }
        assert!(diff.contains("*** (before)") && diff.contains("*** (after)"), "{diff}");
        let (live, merged) = texts(&SharedSecret::INFO, None, object(&after));
        assert!(live.is_empty() && !merged.contains("aHVz") && !merged.contains("uid"), "{merged}");
        let odd = object(&json!({ "data": "aHVzaA==" }));
        let (_, merged) = texts(&SharedSecret::INFO, Some(object(&before)), odd);
        assert!(!merged.contains("aHVz"), "{merged}");
    }

    #[test]
    fn equal_objects_have_no_difference() {
        let spec = json!({ "displayName": "Ada" });
        let (live, merged) = texts(&User::INFO, Some(object(&spec)), object(&spec));
        assert_eq!(difference(&live, &merged, "x"), None);
        assert!(live.contains("uid"), "an object that exists keeps its uid: {live}");
    }

    #[test]
    fn colours_are_for_terminals() {
        let text = "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z\n";
        assert_eq!(coloured(text, false), text);
        let coloured = coloured(text, true);
        assert!(coloured.contains("\x1b[31m-x\x1b[0m\n") && coloured.ends_with(" z\n"));
    }
}
