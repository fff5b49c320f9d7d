//! `postern get secret NAME --watch`: one secret, and then each new version of it.

use postern_client::{Change, ChangeType, Collection, Representation, Selection};
use postern_meta::object::Object;
use serde_json::Value;
use zeroize::Zeroizing;

use super::secret_read::{ReadSecret, Sizes, data_of};
use super::secrets::GetSecret;
use crate::changes::{Changes, Event};
use crate::error::CliError;
use crate::output_format::OutputFormat;
use crate::parse::SecretPath;
use crate::process::Process;
use crate::session::Session;
use crate::variables::Data;

/// One secret as it changes.
pub(super) struct SecretChanges<'a> {
    of: Collection<'a>,
    name: String,
    /// The keys that the caller needs.
    keys: Vec<String>,
    changes: Changes<'a>,
    /// The version of the last state; empty while there is no secret.
    version: String,
}

/// A state of a secret.
pub(super) struct SecretState {
    /// The object.
    pub(super) object: Object,
    /// Its values.
    pub(super) data: Data,
}

impl<'a> SecretChanges<'a> {
    /// Begins with the state as it is now; `None` if there is no such secret. If a state lacks one of the `keys`, a note
    /// says so.
    pub(super) async fn begin(
        session: &mut Session,
        of: Collection<'a>,
        name: String,
        keys: Vec<String>,
    ) -> Result<(Self, Option<SecretState>), CliError> {
        let selection = Selection::of_name(&name);
        let begun = Changes::begin(session, of, Representation::Whole, selection).await;
        let (changes, list) = begun.map_err(|error| session.explain(&error))?;
        let mut changes = Self { of, name, keys, changes, version: String::new() };
        let state = changes.state_of_list(session, list)?;
        Ok((changes, state))
    }

    /// Removes the limit of failures in a row.
    pub(super) fn for_ever(self) -> Self {
        Self { changes: self.changes.for_ever(), ..self }
    }

    /// The next state; `None` when the secret was deleted.
    pub(super) async fn next(
        &mut self,
        session: &mut Session,
    ) -> Result<Option<SecretState>, CliError> {
        loop {
            let before = self.version.clone();
            let state = match self.changes.next(session).await? {
                Event::Change(Change { change_type: ChangeType::Deleted, .. }) => {
                    self.version.clear();
                    None
                }
                Event::Change(Change { object, .. }) => Some(self.state_of(session, object)?),
                Event::List(list) => self.state_of_list(session, list)?,
            };
            if self.version != before {
                return Ok(state);
            }
        }
    }

    fn state_of_list(
        &mut self,
        session: &Session,
        mut list: Value,
    ) -> Result<Option<SecretState>, CliError> {
        let items = list.get_mut("items").and_then(Value::as_array_mut);
        if let Some(item) = items.and_then(Vec::pop) {
            return self.state_of(session, item).map(Some);
        }
        self.version.clear();
        Ok(None)
    }

    fn state_of(&mut self, session: &Session, value: Value) -> Result<SecretState, CliError> {
        let mut object = Object::from_value(value).map_err(CliError::new)?;
        let info = self.of.info();
        object.api_version = info.version.to_string();
        info.kind.clone_into(&mut object.kind);
        let data = data_of(self.of, &object).map_err(|error| session.explain(&error))?;
        object.metadata.resource_version.clone_into(&mut self.version);
        for key in self.keys.iter().filter(|key| !data.contains_key(*key)) {
            session.note(&format!("the secret {} has no key {key} any more", self.name));
        }
        Ok(SecretState { object, data })
    }
}

impl GetSecret {
    /// Prints the secret, and then each new version of it.
    pub(super) async fn watch(
        &self,
        session: &mut Session,
        of: Collection<'_>,
        path: SecretPath,
        process: &Process,
    ) -> Result<(), CliError> {
        let (name, keys) = (path.name.clone(), path.key.iter().cloned().collect());
        let (mut changes, first) = SecretChanges::begin(session, of, name, keys).await?;
        let mut text = match first {
            Some(first) => self.version(&path, first, process)?,
            None => None,
        };
        loop {
            if let Some(text) = text {
                process.print_text(text.as_slice())?;
            }
            let Some(state) = changes.next(session).await? else {
                process.print_note(&format!("the secret {} was deleted", path.name));
                text = None;
                continue;
            };
            // A later version can be correct again.
            text = self.version(&path, state, process).unwrap_or_else(|error| {
                process.print_error(&error);
                process.print_warning("this version of the secret is not printed");
                None
            });
        }
    }

    /// The text of one version: a YAML document, a JSON object, or lines with an empty one behind them. `None` if it does
    /// not have the key.
    fn version(
        &self,
        path: &SecretPath,
        state: SecretState,
        process: &Process,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, CliError> {
        let SecretState { object, data } = state;
        if path.key.as_ref().is_some_and(|key| !data.contains_key(key)) {
            return Ok(None);
        }
        let mut text = self
            .text(ReadSecret { path: path.clone(), object, data, sizes: Sizes::new() }, process)?;
        match self.output {
            Some(OutputFormat::Json) => {}
            Some(OutputFormat::Yaml) => text.extend_from_slice(b"---\n"),
            _ => text.push(b'\n'),
        }
        Ok(Some(text))
    }
}
