//! The path of a field inside an object, made while an object is walked, and written as in
//! messages: `spec.access[0].name`.
//!
//! Each step refers to the one above it on the stack of the walk: nearly all paths are never
//! written, so that no step copies a name.

use std::fmt;

/// Maximum bytes that a path has of one name: names come from the input.
const MAX_NAME_BYTES: usize = 256;

/// The path of a field or of a list's item.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'p> {
    /// The start of a walk, as its path is written.
    Start(&'p str),
    Field(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl<'p> Path<'p> {
    /// The path of the whole value.
    pub(crate) const ROOT: Self = Self::Start("");

    /// The path of a field of the value at this path.
    pub(crate) const fn field(&'p self, name: &'p str) -> Self {
        Self::Field(self, name)
    }

    /// The path of an item of the list at this path.
    pub(crate) const fn index(&'p self, index: usize) -> Self {
        Self::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    /// Recurses as deep as the walk is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Start(text) => f.write_str(text),
            Self::Field(above, name) => {
                above.fmt(f)?;
                if !matches!(above, Self::Start("")) {
                    f.write_str(".")?;
                }
                f.write_str(crate::quote::cut(name, MAX_NAME_BYTES))
            }
            Self::Index(above, index) => {
                above.fmt(f)?;
                write!(f, "[{index}]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_from_its_start() {
        let spec = Path::ROOT.field("spec");
        let access = spec.field("access");
        let (first, item) = (access.index(0), Path::ROOT.index(7));
        let start = Path::Start("spec.access");
        for (path, text) in [
            (Path::ROOT, ""),
            (spec, "spec"),
            (first.field("name"), "spec.access[0].name"),
            (first.index(1), "spec.access[0][1]"),
            (item.field("a"), "[7].a"),
            (start, "spec.access"),
            (start.index(0), "spec.access[0]"),
            (start.field("a"), "spec.access.a"),
        ] {
            assert_eq!(path.to_string(), text);
        }
    }

    #[test]
    fn a_long_name_is_cut() {
        let name = "ä".repeat(1000);
        assert_eq!(Path::ROOT.field(&name).to_string(), "ä".repeat(MAX_NAME_BYTES / 2));
    }
}
