//! The schema of a type: one description for `OpenAPI`, for finding unknown
//! fields, and for checking JSON types.
//!
//! Only JSON types are checked here. Rules between fields, lengths and allowed
//! values are validation, which the kinds do. The schema of whole objects is made
//! in `object`.

use std::sync::OnceLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

mod compile;
mod find;
mod node;
#[cfg(test)]
mod tests;
mod transforms;
mod walk;

use node::Nodes;
pub(crate) use node::{Branch, Field, ItemKey, ItemMerge, Node, Ownership};
pub use walk::TypeMismatch;

/// Where references to definitions point.
const DEFINITIONS_PREFIX: &str = "#/components/schemas/";

/// The `OpenAPI` 3.0 schema of one type with all that it refers to.
#[derive(Debug)]
pub struct Schema {
    root: Value,
    definitions: Map<String, Value>,
    /// The compiled form of both, made when it is first used: not every schema is used to walk a value.
    nodes: OnceLock<Nodes>,
}

impl Schema {
    /// The schema of `T`. The root is `T` itself; types it uses are definitions
    /// under the names they give themselves.
    pub fn of<T: JsonSchema>() -> Self {
        let mut generator = settings().into_generator();
        let mut root = generator.subschema_for::<T>();
        generator.transforms_mut().for_each(|transform| transform.transform(&mut root));
        let definitions = generator.take_definitions(true);
        Self::with_root(root.to_value(), definitions)
    }

    /// Follows a root that is only a reference, so that `root` is the schema
    /// itself, and drops that definition if nothing else refers to it.
    pub(crate) fn with_root(root: Value, mut definitions: Map<String, Value>) -> Self {
        let nodes = OnceLock::new();
        let Some(name) = reference_name(&root).map(str::to_owned) else {
            return Self { root, definitions, nodes };
        };
        let Some(target) = definitions.remove(&name) else {
            return Self { root, definitions, nodes };
        };
        let reference = format!("{DEFINITIONS_PREFIX}{name}");
        let used = std::iter::once(&target)
            .chain(definitions.values())
            .any(|schema| transforms::refers_to(schema, &reference));
        if used {
            definitions.insert(name, target.clone());
        }
        Self { root: target, definitions, nodes }
    }

    /// Adds a property to the root, unless the root has one of that name. References in `schema`
    /// are resolved by [`Schema::add_definitions_of`].
    pub(crate) fn add_property(&mut self, name: &str, schema: Value) {
        self.nodes.take();
        let Value::Object(root) = &mut self.root else { return };
        let properties = root.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(properties) = properties {
            properties.entry(name).or_insert(schema);
        }
    }

    /// Adds `T`, and the types that it uses, to the definitions. Returns a schema that refers to
    /// `T`, or is that of `T` where the type is not a definition.
    pub(crate) fn add_definitions_of<T: JsonSchema>(&mut self) -> Value {
        self.nodes.take();
        let mut generator = settings().into_generator();
        let reference = generator.subschema_for::<T>().to_value();
        self.definitions.extend(generator.take_definitions(true));
        reference
    }

    /// The schemas that the root refers to, by name.
    pub fn definitions(&self) -> &Map<String, Value> {
        &self.definitions
    }

    /// The schema of the type itself; references in it point below
    /// `#/components/schemas/`.
    pub fn root(&self) -> &Value {
        &self.root
    }

    /// The compiled form of the root, for walks of values.
    pub(crate) fn node(&self) -> Node<'_> {
        self.nodes.get_or_init(|| compile::compile(self)).root()
    }

    /// Makes `value` fit the schema where that loses nothing that the schema has.
    /// Removes unknown fields, and fields that are `null`, which means absent.
    /// Makes an integer of a number such as `5.0` where the schema requires one.
    ///
    /// The result has the paths of the unknown fields (`spec.foo`, `spec.access[0].bar`), at most
    /// [`MAX_STRICT_ERRORS`](crate::decode::MAX_STRICT_ERRORS) of them. All unknown fields are removed. Free-form
    /// values of the schema are kept as they are.
    pub fn prune_unknown(&self, value: &mut Value) -> Vec<String> {
        walk::prune(value, self.node())
    }

    /// The paths of the unknown fields below the field at `path`, such as `spec`, or
    /// `spec.scope`; at most [`MAX_STRICT_ERRORS`](crate::decode::MAX_STRICT_ERRORS) of them. None
    /// if there is no such field in `value` or in the schema. For fields that narrow a right:
    /// pruned, an unknown one would widen it, so it is an error under every field validation. To
    /// be called before [`Schema::prune_unknown`].
    pub fn unknown_below(&self, value: &Value, path: &str) -> Vec<String> {
        find::find(value, self.node(), path, find::SearchTarget::Unknown)
    }

    /// The unknown fields of an object itself that have the name of a field below `path`, or that of `path` in other
    /// capitals: it seems that they were meant to be there.
    pub fn misplaced(&self, value: &Value, path: &str) -> Vec<String> {
        find::misplaced(value, self.node(), path)
    }

    /// The paths of the `null` values at and below the field at `path`, as
    /// [`Schema::unknown_below`] does for unknown fields. Where absence means no limit, a `null` is
    /// no way to ask for that.
    pub fn nulls_below(&self, value: &Value, path: &str) -> Vec<String> {
        find::find(value, self.node(), path, find::SearchTarget::Null)
    }

    /// Checks that `value` has the JSON types that the schema requires. `null`
    /// counts as absent and is accepted everywhere but as a list's item. Unknown
    /// fields and the values of enumerations are not checked.
    pub fn check_types(&self, value: &Value) -> Result<(), TypeMismatch> {
        walk::check(value, self.node())
    }

    /// The schema that a reference leads to, also over several references;
    /// anything else is returned as it is.
    pub fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let mut at = schema;
        // A chain of references is as long as there are definitions, at most.
        for _ in 0..=self.definitions.len() {
            match reference_name(at).and_then(|name| self.definitions.get(name)) {
                Some(target) => at = target,
                None => break,
            }
        }
        at
    }
}

/// The name of the definition that `schema` refers to, if it is a
/// reference, or a reference with a description around it.
fn reference_name(schema: &Value) -> Option<&str> {
    let reference = match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref"),
        _ => schema.get("$ref"),
    };
    reference?.as_str()?.strip_prefix(DEFINITIONS_PREFIX)
}

fn settings() -> SchemaSettings {
    let mut settings = SchemaSettings::openapi3();
    settings.meta_schema = None;
    // The first, so that the transform that writes `nullable` finds nothing to do.
    settings.transforms.insert(0, Box::new(transforms::DropNull));
    settings.transforms.push(Box::new(transforms::Simplify));
    settings
}
