//! The object that another one takes its data from. Which kinds do, and what that means for a write, is in
//! `follows`.

use super::AnyKind;
use crate::right::Right;

/// The object that another one takes its data from.
#[derive(Clone)]
pub struct DataSource {
    /// Its kind.
    pub kind: &'static dyn AnyKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl DataSource {
    /// The right to read it.
    pub fn right(&self) -> Right {
        let info = self.kind.info();
        Right {
            namespace: self.namespace.clone(),
            ..Right::cluster("get", info.version.group, info.plural, &self.name)
        }
    }

    pub(crate) fn place(&self) -> (&'static str, &str, &str) {
        (self.kind.info().kind, &self.namespace, &self.name)
    }

    /// Whether it is the same object.
    pub fn is_same(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}
