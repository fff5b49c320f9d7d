//! Sets of field paths, and the operations on them.
//!
//! A set is a tree: a node has a path element, whether the path that ends there
//! is in the set, and the nodes below it. Nodes are sorted, so that operations
//! walk two trees in step; a node without any path is never kept.

use std::cmp::Ordering;
use std::fmt;

use super::element::PathElement;

/// The number of nodes up to which a set is added node by node, and not by a walk over both.
const FEW_NODES: usize = 8;

/// A set of paths of fields. That a path is in the set says nothing about the
/// paths above or below it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: Vec<Node>,
}

/// A node of the tree: in the set itself, or with nodes below it, or both.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: PathElement,
    pub(super) is_member: bool,
    pub(super) children: FieldSet,
}

impl FieldSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// The empty set, with room for this many elements at its top.
    pub(super) fn with_capacity(elements: usize) -> Self {
        Self { nodes: Vec::with_capacity(elements) }
    }

    /// The set of these paths, each given as the names of fields.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether the set has no path.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of paths in the set.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.is_member) + node.children.len()).sum()
    }

    /// Adds one path. The empty path, which is the whole object, has no owner and is
    /// left out.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => self.add(last.clone(), true, Self::new()),
            [first, rest @ ..] => {
                let mut below = Self::new();
                below.insert(rest);
                self.add(first.clone(), false, below);
            }
        }
    }

    /// Whether exactly this path is in the set.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        let Some(node) = self.get(first) else { return false };
        if rest.is_empty() { node.is_member } else { node.children.contains(rest) }
    }

    /// The node with `element`: the part of the set at and below it.
    pub(super) fn get(&self, element: &PathElement) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        self.nodes.get(at)
    }

    /// The part of the set below one field; `None` if it has nothing at or below the field.
    pub(super) fn below_field(&self, name: &str) -> Option<&Self> {
        self.field(name).map(|node| &node.children)
    }

    /// Whether the field itself is in the set.
    pub(super) fn contains_field(&self, name: &str) -> bool {
        self.field(name).is_some_and(|node| node.is_member)
    }

    fn field(&self, name: &str) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| match &node.element {
            PathElement::Field(field) => field.as_str().cmp(name),
            // Fields come first.
            _ => Ordering::Greater,
        });
        self.nodes.get(at.ok()?)
    }

    /// The part of the set that is at and below one element.
    pub(super) fn at_and_below(mut self, element: &PathElement) -> Self {
        self.nodes.retain(|node| node.element == *element);
        self
    }

    /// Adds the paths at and below one element. Cheap when elements come in order.
    pub(super) fn add(&mut self, element: PathElement, is_member: bool, children: Self) {
        if !is_member && children.is_empty() {
            return;
        }
        let index = match self.nodes.last().map(|last| last.element.cmp(&element)) {
            None | Some(Ordering::Less) => Err(self.nodes.len()),
            _ => self.nodes.binary_search_by(|node| node.element.cmp(&element)),
        };
        match index {
            Ok(at) => {
                if let Some(node) = self.nodes.get_mut(at) {
                    node.is_member |= is_member;
                    node.children.unite(children);
                }
            }
            Err(at) => self.nodes.insert(at, Node { element, is_member, children }),
        }
    }

    /// The set of these nodes, which may be in any order, and may have an element several
    /// times.
    pub(super) fn from_nodes(mut nodes: Vec<Node>) -> Self {
        let has_paths = |node: &Node| node.is_member || !node.children.is_empty();
        let is_set = nodes.is_sorted_by(|left, right| left.element < right.element)
            && nodes.iter().all(has_paths);
        if is_set {
            return Self { nodes };
        }
        // Stable: ordered input takes one pass.
        nodes.sort_by(|left, right| left.element.cmp(&right.element));
        let mut merged: Vec<Node> = Vec::with_capacity(nodes.len());
        let mut nodes = nodes.into_iter().peekable();
        while let Some(mut first) = nodes.next() {
            // All together, since one by one would copy the first ones again with each.
            let mut children = Vec::new();
            while let Some(same) = nodes.next_if(|next| next.element == first.element) {
                first.is_member |= same.is_member;
                children.extend(same.children.nodes);
            }
            if !children.is_empty() {
                children.extend(std::mem::take(&mut first.children.nodes));
                first.children = Self::from_nodes(children);
            }
            if has_paths(&first) {
                merged.push(first);
            }
        }
        Self { nodes: merged }
    }

    /// The set of all paths of `sets`.
    pub(super) fn union_of(sets: impl IntoIterator<Item = Self>) -> Self {
        Self::from_nodes(sets.into_iter().flat_map(|set| set.nodes).collect())
    }

    /// Adds all paths of `other`: the union.
    pub fn unite(&mut self, other: Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        if other.nodes.len() <= FEW_NODES {
            for Node { element, is_member, children } in other.nodes {
                self.add(element, is_member, children);
            }
            return;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len() + other.nodes.len());
        let mut mine = std::mem::take(&mut self.nodes).into_iter().peekable();
        let mut theirs = other.nodes.into_iter().peekable();
        while let (Some(left), Some(right)) = (mine.peek(), theirs.peek()) {
            match left.element.cmp(&right.element) {
                Ordering::Less => nodes.extend(mine.next()),
                Ordering::Greater => nodes.extend(theirs.next()),
                Ordering::Equal => {
                    nodes.extend(mine.next().zip(theirs.next()).map(|(mut left, right)| {
                        left.is_member |= right.is_member;
                        left.children.unite(right.children);
                        left
                    }));
                }
            }
        }
        nodes.extend(mine);
        nodes.extend(theirs);
        self.nodes = nodes;
    }

    /// Removes the paths of `other`: the difference. Returns whether any was in the
    /// set. Paths below those of `other` stay.
    pub fn subtract(&mut self, other: &Self) -> bool {
        let mut changed = false;
        self.subtract_with(other, &mut |node, taken| {
            changed |= node.is_member && taken.is_member;
            node.is_member &= !taken.is_member;
            changed |= node.children.subtract(&taken.children);
        });
        changed
    }

    /// Removes the paths of `other` and everything below them.
    pub fn subtract_below(&mut self, other: &Self) {
        self.subtract_with(other, &mut |node, taken| {
            if taken.is_member {
                node.is_member = false;
                node.children = Self::new();
            } else {
                node.children.subtract_below(&taken.children);
            }
        });
    }

    fn subtract_with(&mut self, other: &Self, take: &mut dyn FnMut(&mut Node, &Node)) {
        let mut theirs = &other.nodes[..];
        self.nodes.retain_mut(|node| {
            let (found, rest) = find(theirs, &node.element);
            theirs = rest;
            if let Some(taken) = found {
                take(node, taken);
            }
            node.is_member || !node.children.is_empty()
        });
    }

    /// The paths that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::new();
        let mut theirs = &other.nodes[..];
        for node in &self.nodes {
            let (found, rest) = find(theirs, &node.element);
            theirs = rest;
            if let Some(right) = found {
                let children = node.children.intersection(&right.children);
                both.add(node.element.clone(), node.is_member && right.is_member, children);
            }
        }
        both
    }

    /// Calls `visit` with each path, parents before children.
    pub fn for_each<'a>(&'a self, visit: &mut dyn FnMut(&[&'a PathElement])) {
        self.walk(&mut Vec::new(), visit);
    }

    fn walk<'a>(
        &'a self,
        path: &mut Vec<&'a PathElement>,
        visit: &mut dyn FnMut(&[&'a PathElement]),
    ) {
        for node in &self.nodes {
            path.push(&node.element);
            if node.is_member {
                visit(path);
            }
            node.children.walk(path, visit);
            path.pop();
        }
    }

    /// The paths as conflicts name them, such as `.spec.displayName`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.for_each(&mut |path| paths.push(path.iter().map(ToString::to_string).collect()));
        paths
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}

/// The node with `element`, if there is one, and the nodes behind it. Nodes are skipped in
/// steps that double, so that a small set is looked up in a large one without a walk over all of it.
/// One update is subtracted from the sets of many managers.
fn find<'a>(nodes: &'a [Node], element: &PathElement) -> (Option<&'a Node>, &'a [Node]) {
    let mut bound = 1;
    while nodes.get(bound - 1).is_some_and(|node| node.element < *element) {
        bound *= 2;
    }
    let near = nodes.get(..bound.min(nodes.len())).unwrap_or(nodes);
    let index = near.partition_point(|node| node.element < *element);
    match nodes.get(index..) {
        Some([found, rest @ ..]) if found.element == *element => (Some(found), rest),
        Some(rest) => (None, rest),
        None => (None, &[]),
    }
}

impl fmt::Debug for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.paths()).finish()
    }
}
