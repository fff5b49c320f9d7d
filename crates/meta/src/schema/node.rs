//! The compiled form of a schema: nodes, in which references are resolved and keywords are typed.
//!
//! Every walk of a value along its schema uses nodes. Writes walk several times, and a look-up of keywords by name for
//! each value takes several times as long. How keywords are read is in `compile`.

use serde_json::Value;

/// The index of a node in [`Nodes`].
pub(super) type NodeId = usize;

/// The index of a branch in [`Nodes`].
pub(super) type BranchId = usize;

/// All nodes of a schema. They refer to each other by index, so that a definition may refer to itself.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) places: Vec<NodeData>,
    pub(super) branches: Vec<BranchData>,
    pub(super) root: NodeId,
    /// The node of a value with a schema that follows from the value itself.
    pub(super) deduced: NodeId,
}

/// The statements of the schema about a value at one place.
#[derive(Debug)]
pub(super) struct NodeData {
    /// The schema that references lead to.
    pub(super) target: BranchId,
    /// The schemas that the value may fit: the target, or the branches of its union.
    pub(super) branches: Box<[BranchId]>,
    pub(super) ownership: Ownership,
    pub(super) item_merge: Option<ItemMerge>,
}

/// A schema that is neither a reference nor a union.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one fact of the schema")]
pub(super) struct BranchData {
    pub(super) json_type: Option<JsonType>,
    pub(super) properties: Properties,
    /// The schema of the fields that are not in `properties`.
    pub(super) others: Option<NodeId>,
    pub(super) items: Option<NodeId>,
    /// Whether fields that are not in `properties` may have any name and value.
    pub(super) is_free: bool,
    pub(super) has_properties: bool,
    /// Whether an object has the fields that the schema names and no others.
    pub(super) is_struct: bool,
    /// Whether the schema of a field that it does not name follows from the field's value.
    pub(super) is_deduced: bool,
}

/// The named fields of a schema, sorted by length and then by name: most steps of a search compare only lengths.
#[derive(Debug, Default)]
pub(super) struct Properties(Box<[(Box<str>, NodeId)]>);

/// A JSON type that a schema requires, with the format that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonType {
    String { is_time: bool },
    Integer { min: i64, max: u64 },
    Number,
    Boolean,
    Object,
    Array,
}

/// How a value is owned, and so compared, merged and pruned.
#[derive(Debug, PartialEq)]
pub(crate) enum Ownership {
    /// As a whole: a scalar, something atomic, or something free-form.
    Whole,
    /// By its fields, or the entries of a map.
    Fields,
    /// By its items, each of which is its own identity.
    Set,
    /// By its items, each of which these fields identify.
    Items(Box<[ItemKey]>),
}

/// A field that identifies an item of a list.
#[derive(Debug, PartialEq)]
pub(crate) struct ItemKey {
    pub(crate) name: Box<str>,
    /// The value of an item without the field.
    pub(crate) default: Option<Value>,
}

/// How a strategic merge patch merges a list by its items.
#[derive(Debug, PartialEq)]
pub(crate) struct ItemMerge {
    /// The field that identifies an item. `None` if its value does.
    pub(crate) key: Option<Box<str>>,
}

/// The schema of a value at one place.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    nodes: &'a Nodes,
    data: &'a NodeData,
}

/// One of the schemas that a value may fit.
#[derive(Clone, Copy)]
pub(crate) struct Branch<'a> {
    nodes: &'a Nodes,
    data: &'a BranchData,
}

/// One field, by the schema.
pub(crate) enum Field<'a> {
    /// It may have any value.
    Free,
    /// It has a schema.
    Known(Node<'a>),
    /// It is not in the schema.
    Unknown,
}

impl Nodes {
    /// The schema of the whole value.
    pub(super) fn root(&self) -> Node<'_> {
        self.node(self.root)
    }

    fn node(&self, id: NodeId) -> Node<'_> {
        Node { nodes: self, data: &self.places[id] }
    }

    fn branch(&self, id: BranchId) -> Branch<'_> {
        Branch { nodes: self, data: &self.branches[id] }
    }
}

impl<'a> Node<'a> {
    /// The schemas that the value may fit: one, or the branches of a union.
    pub(crate) fn branches(self) -> impl Iterator<Item = Branch<'a>> {
        self.data.branches.iter().map(move |&id| self.nodes.branch(id))
    }

    /// The schema that references lead to, with its own keywords even if it is a union.
    pub(crate) fn target(self) -> Branch<'a> {
        self.nodes.branch(self.data.target)
    }

    /// The field in the schema, from the first branch that has it.
    pub(crate) fn field(self, name: &str) -> Field<'a> {
        let known = self.branches().find_map(|branch| match branch.property(name) {
            Some(property) => Some(Field::Known(property)),
            None if branch.data.is_free => Some(Field::Free),
            None => branch.others().map(Field::Known),
        });
        known.unwrap_or(Field::Unknown)
    }

    /// The schema of a list's items, from the first branch that has it.
    pub(crate) fn items(self) -> Option<Self> {
        self.branches().find_map(Branch::items)
    }

    /// Whether any value fits, so that `null` is a value like others.
    pub(crate) fn takes_any_value(self) -> bool {
        self.branches().any(|branch| branch.data.json_type.is_none() && branch.data.is_free)
    }

    /// Whether a number must be an integer.
    pub(super) fn requires_integer(self) -> bool {
        let mut types = self.branches().map(|branch| branch.data.json_type);
        types.all(|of| matches!(of, Some(JsonType::Integer { .. })))
    }

    /// How the value is owned.
    pub(crate) fn ownership(self) -> &'a Ownership {
        &self.data.ownership
    }

    /// How a patch merges the value as a list; `None` if it replaces it.
    pub(crate) fn item_merge(self) -> Option<&'a ItemMerge> {
        self.data.item_merge.as_ref()
    }

    /// The schema of a value, if it follows from the value itself.
    pub(crate) fn deduced(self) -> Self {
        self.nodes.node(self.nodes.deduced)
    }
}

impl<'a> Branch<'a> {
    /// The schema of a field that is named.
    pub(crate) fn property(self, name: &str) -> Option<Node<'a>> {
        self.data.properties.get(name).map(|id| self.nodes.node(id))
    }

    /// The schema of the fields that are not named.
    pub(crate) fn others(self) -> Option<Node<'a>> {
        self.data.others.map(|id| self.nodes.node(id))
    }

    /// The schema of a list's items.
    pub(crate) fn items(self) -> Option<Node<'a>> {
        self.data.items.map(|id| self.nodes.node(id))
    }

    /// The JSON type that it requires, if it is only one.
    pub(super) fn json_type(self) -> Option<JsonType> {
        self.data.json_type
    }

    /// Whether it names fields.
    pub(crate) fn has_properties(self) -> bool {
        self.data.has_properties
    }

    /// Whether an object has the fields that the schema names, unlike a map.
    pub(crate) fn is_struct(self) -> bool {
        self.data.is_struct
    }

    /// Whether the schema of a field that it does not name follows from the field's value.
    pub(crate) fn is_deduced(self) -> bool {
        self.data.is_deduced
    }
}

impl Properties {
    fn get(&self, name: &str) -> Option<NodeId> {
        let key = (name.len(), name);
        let found = self.0.binary_search_by(|(known, _)| (known.len(), &**known).cmp(&key));
        found.ok().map(|index| self.0[index].1)
    }
}

impl FromIterator<(Box<str>, NodeId)> for Properties {
    fn from_iter<I: IntoIterator<Item = (Box<str>, NodeId)>>(properties: I) -> Self {
        let mut properties: Vec<_> = properties.into_iter().collect();
        properties.sort_by(|(left, _), (right, _)| (left.len(), left).cmp(&(right.len(), right)));
        Self(properties.into())
    }
}

impl JsonType {
    /// The type as messages and schemas name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::String { .. } => "string",
            Self::Integer { .. } => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Object => "object",
            Self::Array => "array",
        }
    }
}
