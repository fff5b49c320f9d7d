//! `postern edit`: an object in the user's editor. Edits are never lost: the file is kept after an
//! error.

use clap::Args;
use postern_client::{Collection, Error, Representation};
use postern_kinds::Verb;
use postern_meta::encode_yaml;
use postern_meta::object::Object;
use postern_meta::status::Reason;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::lockout::{self, ForceFlag};
use crate::editor::EditedFile;
use crate::error::CliError;
use crate::flags::{CollectionFlags, ObjectFormat};
use crate::kinds;
use crate::manifest::value_of;
use crate::output::{self, escape};
use crate::process::Process;
use crate::resources::{self, ObjectWords, Wanted};
use crate::session::Session;

/// The owner of the edited fields.
pub(super) const FIELD_MANAGER: &str = "postern-edit";
/// How often the editor is opened for one object.
const ROUNDS_MAX: usize = 20;

/// Edit objects.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    postern edit user ada\n  \
    KUBE_EDITOR=nano postern edit cluster/east")]
pub struct Edit {
    #[command(flatten)]
    objects: ObjectWords,

    /// Output format of the edited object [default: no output]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    force: ForceFlag,

    #[command(flatten)]
    collection: CollectionFlags,
}

/// How one round of editing has ended.
enum Round {
    /// The object was changed.
    Written(Box<Object>),
    /// The object needs no change.
    Unchanged,
    /// The user edits the object again, for this reason.
    Again(String),
}

impl Edit {
    /// Edits one object after the other; the first error ends it.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let wanted = resources::wanted(&self.objects.words, Verb::Patch)?;
        if let Some(one) = wanted.iter().find(|one| one.name.is_none()) {
            let message = format!("{} needs the NAME of an object", kinds::name(one.info));
            return Err(CliError::usage(message));
        }
        let (mut session, namespace) = Session::open_in(&self.collection, process).await?;
        for Wanted { info, name } in wanted {
            let of = Collection::new(info, Some(&namespace));
            let name = name.unwrap_or_default();
            let Some(object) = edit(&mut session, of, &name, self.force, process).await? else {
                process.print_status("nothing was changed");
                continue;
            };
            process.print_status(&format!("{} {} edited", kinds::name(info), escape(&name)));
            output::print_object(object, info, self.output, process)?;
        }
        Ok(())
    }
}

/// Edits an object until the server takes it; `None` where nothing is changed.
async fn edit(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    force: ForceFlag,
    process: &Process,
) -> Result<Option<Object>, CliError> {
    let original = session.client.get_as(of, name, Representation::Whole).await;
    let original = without_managed_fields(session.answer(of, name, original).await?);
    let mut file = EditedFile::create(process)?;
    match edit_file(session, of, &original, &mut file, force, process).await {
        Ok(edited) => {
            file.remove()?;
            Ok(edited)
        }
        Err(error) if file.is_unchanged() => {
            // Without edits, the file contains nothing that could be lost.
            let _ = file.remove();
            Err(error)
        }
        Err(error) => {
            Err(error.hint(format!("what was edited is kept in {}", file.path().display())))
        }
    }
}

async fn edit_file(
    session: &mut Session,
    of: Collection<'_>,
    original: &Value,
    file: &mut EditedFile,
    force: ForceFlag,
    process: &Process,
) -> Result<Option<Object>, CliError> {
    let mut body = Zeroizing::new(encode_yaml(original));
    let mut failure: Option<String> = None;
    for _ in 0..ROUNDS_MAX {
        file.write(Zeroizing::new(header(failure.as_deref()) + &body))?;
        let edited = without_comments(&file.edit(process)?)?;
        if edited.trim().is_empty() || *edited == *body {
            return match failure {
                None => Ok(None),
                Some(_) if edited.trim().is_empty() => Ok(None),
                Some(failure) => Err(CliError::new(failure)),
            };
        }
        // Errors name the lines of the file as it is opened again: below the comments and the reason, which is one line.
        let above = header(Some("reason")).lines().count();
        let numbered = Zeroizing::new("\n".repeat(above) + &edited);
        let round = take(session, of, original, numbered.as_bytes(), force, process).await?;
        match round {
            Round::Written(object) => return Ok(Some(*object)),
            Round::Unchanged => return Ok(None),
            Round::Again(reason) => {
                process.print_note(&format!("the editor is opened again: {reason}"));
                failure = Some(reason);
                body = edited;
            }
        }
    }
    Err(CliError::new(failure.unwrap_or_default()))
}

/// Sends the edited object, if it is valid.
async fn take(
    session: &mut Session,
    of: Collection<'_>,
    original: &Value,
    edited: &[u8],
    force: ForceFlag,
    process: &Process,
) -> Result<Round, CliError> {
    let edited = match value_of(edited) {
        Ok(edited) if edited.is_object() => edited,
        Ok(_) => return Ok(Round::Again("this is no object".to_owned())),
        Err(what) => return Ok(Round::Again(what)),
    };
    for field in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"] {
        if edited.pointer(field) != original.pointer(field) {
            let field = field.trim_start_matches('/').replace('/', ".");
            return Ok(Round::Again(format!("{field} cannot be changed")));
        }
    }
    let Some(mut patch) = merge_patch(original, &edited) else { return Ok(Round::Unchanged) };
    lockout::check_write(session, of.info(), original, &edited, force, process).await?;
    // The version protects the writes of other clients, because lists are replaced as a whole.
    let version = &original["metadata"]["resourceVersion"];
    match patch.get_mut("metadata").and_then(Value::as_object_mut) {
        Some(metadata) => drop(metadata.insert("resourceVersion".to_owned(), version.clone())),
        None => patch["metadata"] = json!({ "resourceVersion": version }),
    }
    let name = original["metadata"]["name"].as_str().unwrap_or_default();
    match session.client.merge_patch_as(of, name, &patch, FIELD_MANAGER).await {
        Ok(object) => Ok(Round::Written(Box::new(object))),
        Err(error) if can_be_corrected(&error) => Ok(Round::Again(escape(&error.to_string()))),
        Err(error) => Err(session.explain(&error)),
    }
}

/// Whether the user can correct the object, such that the server takes it.
fn can_be_corrected(error: &Error) -> bool {
    error.reason() != Some(Reason::Conflict)
        && error.status().is_some_and(|status| matches!(status.code, 400 | 413 | 422))
}

fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// The comments at the beginning of the file.
fn header(failure: Option<&str>) -> String {
    let mut header = "# Edit the object, and save the file. Lines that begin with # are ignored.\n\
                      # An empty file, or one without changes, changes nothing.\n#\n"
        .to_owned();
    if let Some(failure) = failure {
        header.push_str("# It was not accepted:\n");
        header.extend(failure.lines().flat_map(|line| ["#   ", line, "\n"]));
        header.push_str("#\n");
    }
    header
}

/// The text without the lines that begin with `#`. In a value of several lines, such lines are indented.
fn without_comments(bytes: &[u8]) -> Result<Zeroizing<String>, CliError> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| CliError::new("the edited file is not UTF-8"))?;
    let lines = text.split_inclusive('\n').filter(|line| !line.starts_with('#'));
    Ok(Zeroizing::new(lines.collect()))
}

/// The JSON merge patch (RFC 7396) from one value to another; `None` for equal ones.
fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(before) => {
                if let Some(change) = merge_patch(before, value) {
                    patch.insert(name.clone(), change);
                }
            }
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_has_only_what_was_edited() {
        let from = json!({ "a": 1, "b": { "c": [1, 2], "d": "x", "e": {} }, "f": null });
        for (to, wanted) in [
            (json!({ "a": 1, "b": { "c": [1, 2], "d": "x", "e": {} }, "f": null }), None),
            (json!({ "a": 2, "b": from["b"], "f": null }), Some(json!({ "a": 2 }))),
            (
                json!({ "a": 1, "b": { "c": [1], "e": {}, "g": { "h": 1 } }, "f": null }),
                Some(json!({ "b": { "c": [1], "d": null, "g": { "h": 1 } } })),
            ),
            (json!({ "a": 1, "b": "x", "f": null }), Some(json!({ "b": "x" }))),
        ] {
            let patch = merge_patch(&from, &to);
            assert_eq!(patch, wanted, "{to}");
            if let Some(patch) = patch {
                let merged = postern_meta::patch::apply_merge_patch(from.clone(), &patch);
                assert_eq!(merged.unwrap(), to);
            }
        }
    }

    #[test]
    fn comments_are_no_part_of_the_object() {
        let text = format!("{}a: |\n  # in a value\n#b\nc: 1\n", header(Some("two\nlines")));
        assert!(text.contains("#   two\n#   lines\n"), "{text}");
        let body = without_comments(text.as_bytes()).unwrap();
        assert_eq!(*body, "a: |\n  # in a value\nc: 1\n");
        assert!(without_comments(&[0xff]).is_err());
    }
}
