//! Which objects of a collection a list or a watch has, and how a server-side apply is done.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Selectors of a list or a watch. An empty one selects all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The label selector: `team=red,env in (a, b)`.
    pub labels: String,
    /// The field selector: `metadata.name=db`.
    pub fields: String,
}

impl Selection {
    /// The selection of one object.
    pub fn of_name(name: &str) -> Self {
        Self { fields: format!("metadata.name={name}"), ..Self::default() }
    }

    /// The selectors as a part of a query, each with a `&` before it.
    pub(crate) fn query(&self) -> String {
        let mut query = String::new();
        for (parameter, text) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)]
        {
            if !text.is_empty() {
                let text = utf8_percent_encode(text, NON_ALPHANUMERIC);
                query = format!("{query}&{parameter}={text}");
            }
        }
        query
    }
}

/// How an object is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyOptions<'a> {
    /// The owner of the fields that are applied.
    pub field_manager: &'a str,
    /// Whether to take fields from other field managers.
    pub force: bool,
    /// Whether the server only returns the resulting object, and stores nothing.
    pub dry_run: bool,
}

impl ApplyOptions<'_> {
    pub(crate) fn query(&self) -> String {
        let manager = utf8_percent_encode(self.field_manager, NON_ALPHANUMERIC);
        let force = if self.force { "&force=true" } else { "" };
        let dry_run = if self.dry_run { "&dryRun=All" } else { "" };
        format!("fieldManager={manager}{force}{dry_run}&fieldValidation=Strict")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_escaped() {
        assert_eq!(Selection::default().query(), "");
        let both = Selection { labels: "a in (b,c)".to_owned(), ..Selection::of_name("x&y") };
        let query = "&labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=metadata%2Ename%3Dx%26y";
        assert_eq!(both.query(), query);
    }

    #[test]
    fn options_of_apply() {
        let options = ApplyOptions { field_manager: "a b", force: true, dry_run: true };
        let query = "fieldManager=a%20b&force=true&dryRun=All&fieldValidation=Strict";
        assert_eq!(options.query(), query);
        let plain = ApplyOptions { field_manager: "p", force: false, dry_run: false };
        assert_eq!(plain.query(), "fieldManager=p&fieldValidation=Strict");
    }
}
