//! A kind that is another version of a stored kind, in a separate group.

use postern_meta::object::Object;
use serde_json::{Map, Value};

use super::AnyKind;

/// How the objects of a kind are stored: as those of another kind, with other names of the fields next to `metadata`.
#[derive(Clone, Copy, Debug)]
pub struct StoredAs {
    /// The stored kind.
    pub kind: &'static dyn AnyKind,
    /// The fields with another name: here, and in the stored kind.
    pub renamed: &'static [(&'static str, &'static str)],
}

impl StoredAs {
    /// The stored form of an object.
    pub fn stored(self, object: Object) -> Object {
        let names = self.renamed.iter().copied();
        with_names(object, self.kind, names)
    }

    /// The form of a stored object in another version.
    pub fn in_version(self, object: Object, version: &dyn AnyKind) -> Object {
        let names = self.renamed.iter().map(|(here, stored)| (*stored, *here));
        with_names(object, version, names)
    }
}

fn with_names(
    mut object: Object,
    kind: &dyn AnyKind,
    names: impl Iterator<Item = (&'static str, &'static str)>,
) -> Object {
    let info = kind.info();
    object.api_version = info.version.to_string();
    info.kind.clone_into(&mut object.kind);
    let mut renamed: Map<String, Value> = Map::new();
    for (from, to) in names {
        if let Some(value) = object.fields.remove(from) {
            renamed.insert(to.to_owned(), value);
        }
    }
    object.fields.extend(renamed);
    object
}
