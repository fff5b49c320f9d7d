//! Fields, and values of fields, that the server takes from clients of the platform and that have no effect. The warnings to
//! these clients and the reference come from the same table.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::unserved::is_empty;

/// A field that the server keeps and that has no effect, or values of it that have none.
#[derive(Clone, Copy, Debug)]
pub struct NoEffect {
    /// The path of the field. `[]` is any item of a list.
    pub path: &'static str,
    /// The values without effect. If there is none, no value has an effect.
    pub values: &'static [&'static str],
    /// Whether a create with it gets a warning. It does not where typed clients always send the field.
    warns: bool,
}

impl NoEffect {
    /// Those of projects. Typed clients always send the group of a member.
    pub(crate) const OF_PROJECTS: &'static [Self] =
        &[Self::field("spec.allowedTemplates"), Self::field("spec.members[].group").silent()];

    /// A field that never has an effect.
    pub(crate) const fn field(path: &'static str) -> Self {
        Self { path, values: &[], warns: true }
    }

    /// Values of a field that have no effect.
    pub(crate) const fn values(path: &'static str, values: &'static [&'static str]) -> Self {
        Self { path, values, warns: true }
    }

    /// The same without a warning.
    pub(crate) const fn silent(self) -> Self {
        Self { warns: false, ..self }
    }

    /// Adds a warning for each place in the fields of an object that has it.
    fn warn(&self, fields: &Map<String, Value>, warnings: &mut Vec<String>) {
        let (first, rest) = self.path.split_once('.').unwrap_or((self.path, ""));
        if let Some(value) = fields.get(first) {
            self.look(value, first, rest, warnings);
        }
    }

    /// Looks at a value, of which `rest` is the remaining path.
    fn look(&self, value: &Value, at: &str, rest: &str, warnings: &mut Vec<String>) {
        if rest.is_empty() {
            return self.warn_about(value, at, warnings);
        }
        let (step, rest) = rest.split_once('.').unwrap_or((rest, ""));
        let (name, is_list) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
        let Some(value) = value.get(name) else { return };
        let at = format!("{at}.{name}");
        if !is_list {
            return self.look(value, &at, rest, warnings);
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            self.look(item, &format!("{at}[{index}]"), rest, warnings);
        }
    }

    fn warn_about(&self, value: &Value, at: &str, warnings: &mut Vec<String>) {
        if self.values.is_empty() {
            if !is_empty(value) {
                warnings.push(format!("{at} is kept and has no effect"));
            }
            return;
        }
        let given = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let given = given.iter().filter_map(Value::as_str);
        for found in given.filter(|value| self.values.contains(value)) {
            warnings.push(format!("{at}: the value \"{found}\" is kept and has no effect"));
        }
    }
}

/// The warnings about a new object with these fields.
pub(super) fn warnings(table: &[NoEffect], fields: &Map<String, Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    for entry in table.iter().filter(|entry| entry.warns) {
        entry.warn(fields, &mut warnings);
    }
    warnings
}

/// The table of a kind, with the entry of access rules if it has these.
pub(super) fn table(
    own: &'static [NoEffect],
    of_access: Option<NoEffect>,
) -> Cow<'static, [NoEffect]> {
    match of_access {
        None => Cow::Borrowed(own),
        Some(of_access) => own.iter().copied().chain([of_access]).collect::<Vec<_>>().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_warning_names_the_place_and_the_value() {
        let table = [
            NoEffect::field("spec.old"),
            NoEffect::values("spec.type", &["A", "B"]),
            NoEffect::values("spec.rules[].subs", &["x"]),
            NoEffect::field("spec.quiet").silent(),
        ];
        let of = |spec: Value| {
            let Value::Object(fields) = json!({ "spec": spec }) else { unreachable!() };
            warnings(&table, &fields)
        };
        assert_eq!(
            of(json!({ "old": { "a": "" }, "type": "C", "rules": [{ "subs": ["y"] }] })),
            [""; 0]
        );
        assert_eq!(of(json!({ "old": null, "rules": {}, "quiet": 1 })), [""; 0]);
        assert_eq!(
            of(json!({ "old": { "a": "b" }, "type": "B", "rules": [{}, { "subs": ["y", "x"] }] })),
            [
                "spec.old is kept and has no effect",
                "spec.type: the value \"B\" is kept and has no effect",
                "spec.rules[1].subs: the value \"x\" is kept and has no effect",
            ]
        );
    }
}
