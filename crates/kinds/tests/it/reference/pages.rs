//! The generated parts of the pages: facts, actions, columns and fields of a kind, and the index of all of them.

use std::fmt::Write as _;

use postern_kinds::action::{Action, ActionRight, Response};
use postern_kinds::{
    AnyKind, MANAGEMENT_V1, ResourceScope, UpdateRule, Verb, all, default_namespace,
};
use postern_meta::names::NameRule;

use crate::reference::{fields, row};

/// The kinds of each page, by its name: those with the same plural are on one.
pub(crate) fn pages() -> Vec<(&'static str, Vec<&'static dyn AnyKind>)> {
    let mut pages: Vec<(&str, Vec<&dyn AnyKind>)> = Vec::new();
    // The page of the stored kind describes its other versions.
    for kind in all().iter().filter(|kind| kind.info().stored_as.is_none()) {
        let plural = kind.info().plural;
        match pages.iter_mut().find(|(name, _)| *name == plural) {
            Some((_, kinds)) => kinds.push(*kind),
            None => pages.push((plural, vec![*kind])),
        }
    }
    pages
}

/// The generated part of a page.
pub(crate) fn generated(kinds: &[&'static dyn AnyKind]) -> String {
    let versions: Vec<_> = kinds.iter().map(|kind| code(kind.info().version)).collect();
    let mut parts: Vec<_> = kinds.iter().map(|kind| of_kind(*kind, &versions.join(", "))).collect();
    parts.dedup();
    let [part] = &parts[..] else { panic!("{kinds:?} have one page, and are not the same") };
    part.clone()
}

/// The kinds of the bodies of actions that are no kinds of their own.
pub(crate) fn bodies(kind: &dyn AnyKind) -> Vec<&'static dyn AnyKind> {
    let mut found: Vec<&dyn AnyKind> = Vec::new();
    for action in kind.info().actions {
        let response = match action.response {
            Response::Object(other) => Some(other),
            Response::Same | Response::ListOf(_) => None,
        };
        for body in action.request.into_iter().chain(response) {
            let name = body.info().kind;
            let is_new = found.iter().all(|known| known.info().kind != name);
            if is_new && all().iter().all(|served| served.info().kind != name) {
                found.push(body);
            }
        }
    }
    found
}

fn of_kind(kind: &'static dyn AnyKind, versions: &str) -> String {
    let mut text = format!("## Facts\n\n{}", facts(kind, versions));
    if kind.info().actions.iter().any(|action| !action.subresource.is_empty()) {
        let _ = write!(text, "\n## Subresources and actions\n\n{}", actions(kind));
    }
    if !kind.info().columns.is_empty() {
        let _ = write!(text, "\n## Columns of `kubectl get`\n\n{}", columns(kind));
    }
    text += "\n## Fields\n\n`apiVersion`, `kind` and `metadata` are [as in every kind](../api.md#metadata). The \
             [index](README.md#rules-of-fields)\nexplains the rules.\n\n";
    text += &fields::table(kind);
    for body in bodies(kind) {
        let info = body.info();
        let _ = write!(text, "\n### {}\n\n{}\n\n", info.kind, info.description);
        text += &fields::table(body);
    }
    text
}

fn facts(kind: &dyn AnyKind, versions: &str) -> String {
    let info = kind.info();
    let scope = match info.scope {
        ResourceScope::Namespaced | ResourceScope::InDefaultNamespace => "namespaced",
        ResourceScope::Cluster => "cluster",
    };
    let names =
        |names: &[&str]| names.iter().map(|name| code(*name)).collect::<Vec<_>>().join(", ");
    let verbs = info.verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>();
    let labels = info.selectable_fields.iter().map(|field| field.label);
    let selectable: Vec<_> =
        [Some("metadata.name"), info.is_namespaced().then_some("metadata.namespace")]
            .into_iter()
            .flatten()
            .chain(labels)
            .collect();
    let mut text = "| fact | value |\n|---|---|\n".to_owned();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            text += &row(&[name.to_owned(), value]);
        }
    };
    add("group and version", versions.to_owned());
    add("scope", scope.to_owned());
    add("plural", code(info.plural));
    add("singular", code(info.singular));
    add("short names", names(info.short));
    add("other names in `postern`", names(info.aliases));
    add("path", path(kind));
    add("verbs", names(&verbs));
    if info.is_stored() {
        add("field selectors", names(&selectable));
        add("names of objects", name_rule(kind));
    }
    let limits = kind.info().max_bytes.map(|bytes| format!("{} KiB as JSON", bytes / 1024));
    add("maximum size", limits.unwrap_or_default());
    add("properties", properties(kind).join("; "));
    text
}

fn path(kind: &dyn AnyKind) -> String {
    let info = kind.info();
    if all().iter().filter(|other| other.info().plural == info.plural).count() > 1 {
        return format!("`/apis/GROUP/VERSION/{}`", info.plural);
    }
    let root = if info.version.group.is_empty() { "/api" } else { "/apis" };
    let namespace = if info.is_namespaced() { "/namespaces/NAMESPACE" } else { "" };
    let has_names = info.is_stored() && info.serves(Verb::Get);
    let name = if has_names { "/NAME" } else { "" };
    format!("`{root}/{}{namespace}/{}{name}`", info.version, info.plural)
}

fn name_rule(kind: &dyn AnyKind) -> String {
    let rule = match kind.info().name_rule {
        NameRule::Subdomain => "DNS subdomain",
        NameRule::PathSegment => "any segment of a path",
    };
    match kind.info().name_prefix {
        Some(prefix) => format!("{rule}; if absent, the server makes one: `{prefix}…`"),
        None => rule.to_owned(),
    }
}

/// The other properties that a kind declares, each with a link to its meaning.
fn properties(kind: &dyn AnyKind) -> Vec<String> {
    let info = kind.info();
    let mut found = Vec::new();
    let mut add = |applies: bool, text: &str| {
        if applies {
            found.push(text.to_owned());
        }
    };
    add(!info.is_stored(), "not stored");
    let is_ours = info.version == MANAGEMENT_V1 && info.is_stored();
    add(is_ours, "[hidden](../api.md#lists-and-visibility) from callers who may not `get` it");
    add(kind.has_ownership(), "has [an owner and access rules](../access-rules.md)");
    add(kind.info().is_counted_in_quotas, "counted in [quotas](../projects.md#quotas)");
    add(info.confidential, "its bodies are never in the [audit log](../audit.md)");
    add(
        info.update == UpdateRule::Unconditional,
        "a PUT without `resourceVersion` replaces the object",
    );
    if info.scope == ResourceScope::InDefaultNamespace {
        found.push(format!("default namespace of clients: `{}`", default_namespace()));
    }
    found
}

fn actions(kind: &dyn AnyKind) -> String {
    let info = kind.info();
    let mut text = "| subresource | verb | needs | request | response | description |\n|---|---|---|---|---|---|\n".to_owned();
    for action in info.actions.iter().filter(|action| !action.subresource.is_empty()) {
        let Action { subresource, verb, right, request, response, description, .. } = action;
        let needs = match right {
            ActionRight::OnSubresource => {
                code(format_args!("{} {}/{subresource}", verb.as_str(), info.plural))
            }
            ActionRight::OnSubresourceAs(verb) => {
                code(format_args!("{verb} {}/{subresource}", info.plural))
            }
            ActionRight::OnObject(verb) => code(format_args!("{verb} {}", info.plural)),
            ActionRight::GetObject => code(format_args!("get {}", info.plural)),
        };
        let is_write = matches!(verb, Verb::Create | Verb::Update | Verb::Patch);
        let own_body = if is_write { info.kind } else { "" };
        let request = request.map_or(own_body, |kind| kind.info().kind).to_owned();
        let response = match response {
            Response::Same => info.kind.to_owned(),
            Response::Object(kind) => kind.info().kind.to_owned(),
            Response::ListOf(kind) => format!("list of {kind}"),
        };
        let description = (*description).to_owned();
        text +=
            &row(&[code(subresource), code(verb.as_str()), needs, request, response, description]);
    }
    text
}

fn columns(kind: &dyn AnyKind) -> String {
    let mut text = "| column | type | content |\n|---|---|---|\n".to_owned();
    for column in kind.info().columns {
        let wide = if column.priority > 0 { " Only with `-o wide`." } else { "" };
        let content = format!("{}{wide}", column.description);
        text += &row(&[column.name.to_owned(), column.r#type.to_owned(), content]);
    }
    text
}

/// The generated part of the index.
pub(crate) fn index() -> String {
    let is_ours = |kind: &&&dyn AnyKind| kind.info().version == MANAGEMENT_V1;
    let mut text = String::new();
    for (title, of_group) in [("Kinds of the platform", true), ("Kinds of other groups", false)] {
        let _ = write!(text, "## {title}\n\n");
        text += "| kind | group and version | scope | verbs | subresources | content |\n|---|---|---|---|---|---|\n";
        for kind in all().iter().filter(|kind| is_ours(kind) == of_group) {
            let info = kind.info();
            let verbs: Vec<_> = info.verbs.iter().map(|verb| verb.as_str()).collect();
            let verbs = if info.verbs.len() == Verb::ALL.len() {
                "all".to_owned()
            } else {
                verbs.join(", ")
            };
            let subresources: Vec<_> = info.subresources().map(code).collect();
            text += &row(&[
                format!("[{}]({}.md)", info.kind, info.plural),
                code(info.version),
                if info.is_namespaced() { "namespaced" } else { "cluster" }.to_owned(),
                verbs,
                subresources.join(", "),
                info.description.to_owned(),
            ]);
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

fn code(text: impl std::fmt::Display) -> String {
    format!("`{text}`")
}
