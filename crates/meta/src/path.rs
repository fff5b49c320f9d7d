//! The path of a field inside an object, kept up to date while an object is
//! walked, and written as in messages: `spec.access[0].name`.

use std::fmt;

/// Maximum bytes that a path keeps of one name: names come from the input.
const MAX_NAME_BYTES: usize = 256;

/// The path of a field or of a list's item.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path(Vec<Segment>);

#[derive(Debug, Clone)]
enum Segment {
    Field(String),
    Index(usize),
}

impl Path {
    /// Enters a field.
    pub(crate) fn push_field(&mut self, name: &str) {
        self.0.push(Segment::Field(crate::quote::cut(name, MAX_NAME_BYTES).to_owned()));
    }

    /// Enters an item of a list.
    pub(crate) fn push_index(&mut self, index: usize) {
        self.0.push(Segment::Index(index));
    }

    /// Leaves what was entered last.
    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if i == 0 => f.write_str(name)?,
                Segment::Field(name) => write!(f, ".{name}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
