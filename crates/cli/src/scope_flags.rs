//! The flags that limit the access of a new access key, and the scope that they make. `postern
//! create accesskey` has them.

use std::path::{Path, PathBuf};

use clap::Args;
use postern_client::{Collection, Representation};
use postern_kinds::cluster::Cluster;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project::{Project, namespace_of};
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::scope::{
    Scope, ScopeProject, ScopeResources, ScopeRule, ScopeSpace, ScopeVirtualCluster,
};
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::{AnyKind, Info, Kind as _, MANAGEMENT_V1, default_namespace};
use postern_meta::names::dns1123_subdomain;
use postern_meta::status::Reason;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::manifest;
use crate::output::escape;
use crate::parse;
use crate::process::{Process, read_text_file};
use crate::role_bindings::Location;
use crate::session::Session;

/// Stands for every project, or every space or virtual cluster of a project.
const ALL: &str = "*";
/// The verbs of requests that change nothing.
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];
/// Requests that stay on this server, and go to no cluster through it.
const THIS_SERVER: &str = "Management";

/// The flags for the maximum access of a key.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Scope")]
pub(crate) struct ScopeFlags {
    /// Allow this project and everything in it; * is every project; may be repeated. Scope flags limit the
    /// key to the named objects
    #[arg(long = "project", value_name = "PROJECT", value_parser = name_or_all)]
    projects: Vec<String>,

    /// This space of a project, * for every space of it; may be repeated
    #[arg(long = "space", value_name = "PROJECT/SPACE", value_parser = in_project)]
    spaces: Vec<InProject>,

    /// This virtual cluster of a project, * for every one of it; may be repeated
    #[arg(long = "virtual-cluster", value_name = "PROJECT/NAME", value_parser = in_project)]
    virtual_clusters: Vec<InProject>,

    /// This connected cluster with everything in it, through the gateway and by its own endpoint; may be
    /// repeated
    #[arg(long = "cluster", value_name = "CLUSTER", value_parser = dns1123_name)]
    clusters: Vec<String>,

    /// Allow reading this secret, in the default namespace or in this one; for a project secret, the namespace is that
    /// of the project; may be repeated
    #[arg(long = "secret", value_name = "[NAMESPACE/]NAME", value_parser = secret)]
    secrets: Vec<InNamespace>,

    /// Allow the reads of the command line, such as the list of projects; no secrets
    #[arg(long)]
    allow_cli: bool,

    /// Allow only get, list and watch. Without --project and --cluster, this covers every object
    /// that the owner may read. With them, it covers only these projects (not the content of their
    /// clusters) and the content of these clusters
    #[arg(long, conflicts_with_all = ["spaces", "virtual_clusters", "secrets", "scope_files"])]
    read_only: bool,

    /// Allow the scope in this file, in YAML or JSON, as in spec.scope; may be repeated, the scopes add up
    #[arg(long = "scope-file", value_name = "FILE")]
    scope_files: Vec<PathBuf>,
}

/// An object of a project: the names of both.
#[derive(Clone, Debug)]
struct InProject {
    project: String,
    name: String,
}

/// A secret: its name and its namespace.
#[derive(Clone, Debug)]
struct InNamespace {
    /// `None` for the default one.
    namespace: Option<String>,
    name: String,
}

impl InNamespace {
    /// The namespace of the secret. The server's names of namespaces are known by then.
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_else(|| default_namespace())
    }

    /// The kinds that the secret can be of. In the namespace of a project, there are two.
    fn infos(&self) -> &'static [&'static Info] {
        match Location::of_namespace(Some(self.namespace())) {
            Location::Project(_) => &[&ProjectSecret::INFO, &SharedSecret::INFO],
            Location::Everywhere | Location::Namespace(_) => &[&SharedSecret::INFO],
        }
    }
}

/// Parses a name, or `*`.
fn name_or_all(text: &str) -> Result<String, String> {
    if text != ALL {
        dns1123_subdomain(text)?;
    }
    Ok(text.to_owned())
}

/// Parses a name.
fn dns1123_name(text: &str) -> Result<String, String> {
    dns1123_subdomain(text).map(|()| text.to_owned())
}

/// Parses `NAME` or `NAMESPACE/NAME`.
fn secret(text: &str) -> Result<InNamespace, String> {
    let (namespace, name) = match text.split_once('/') {
        None => (None, text),
        Some((namespace, name)) => (Some(parse::namespace(namespace)?), name),
    };
    Ok(InNamespace { namespace, name: parse::name(name)? })
}

/// Parses `PROJECT/NAME`.
fn in_project(text: &str) -> Result<InProject, String> {
    let Some((project, name)) = text.split_once('/') else {
        return Err("the project is missing: pass PROJECT/NAME, or PROJECT/* for all in the \
                    project"
            .to_owned());
    };
    Ok(InProject { project: name_or_all(project)?, name: name_or_all(name)? })
}

impl ScopeFlags {
    /// Whether they name projects or secrets. The scope then needs the server's names of namespaces.
    pub(crate) fn needs_namespaces(&self) -> bool {
        !self.projects.is_empty() || !self.secrets.is_empty()
    }

    /// Prints the secrets of the flags that do not exist.
    pub(crate) async fn print_missing(&self, session: &mut Session, process: &Process) {
        let projects = self.projects.iter().map(|name| (&Project::INFO, name));
        let clusters = self.clusters.iter().map(|name| (&Cluster::INFO, name));
        for (info, name) in projects.chain(clusters).filter(|(_, name)| *name != ALL) {
            let of = Collection::new(info, None);
            let read = session.client.get_as(of, name, Representation::Metadata).await;
            if read.is_err_and(|error| error.reason() == Some(Reason::NotFound)) {
                process.print_note(&format!("there is no {} {name}", info.singular));
            }
        }
        for secret in &self.secrets {
            let (namespace, name) = (secret.namespace(), &secret.name);
            let mut is_missing = true;
            for info in secret.infos() {
                let of = Collection::new(info, Some(namespace));
                let read = session.client.get_as(of, name, Representation::Metadata).await;
                is_missing &= read.is_err_and(|error| error.reason() == Some(Reason::NotFound));
            }
            if is_missing {
                let text = format!("there is no secret {name} in the namespace {namespace}");
                process.print_note(&text);
            }
        }
    }

    /// The scope that the flags name, or `None` without any flag. Without a scope, the key has all
    /// rights of its owner.
    ///
    /// # Errors
    /// For flags that a scope cannot express, and for a file that is no scope.
    pub(crate) fn scope(&self) -> Result<Option<Scope>, CliError> {
        let mut scope = Scope { allow_platform_cli: self.allow_cli, ..Scope::default() };
        if self.read_only {
            scope.rules = self.read_rules()?;
        } else {
            let projects = self.projects.iter().cloned();
            scope.projects.extend(projects.map(|project| ScopeProject { project }));
        }
        let verbs =
            if self.read_only { READ_VERBS.map(str::to_owned).to_vec() } else { Vec::new() };
        let clusters = self.clusters.iter().cloned();
        scope.rules.extend(clusters.map(|cluster| ScopeRule {
            cluster,
            verbs: verbs.clone(),
            ..ScopeRule::default()
        }));
        scope.rules.extend(self.secrets.iter().map(|secret| ScopeRule {
            verbs: READ_VERBS.map(str::to_owned).to_vec(),
            resources: vec![ScopeResources {
                group: MANAGEMENT_V1.group.to_owned(),
                resources: secret.infos().iter().map(|info| info.plural.to_owned()).collect(),
                resource_names: vec![secret.name.clone()],
            }],
            namespaces: vec![secret.namespace().to_owned()],
            ..ScopeRule::default()
        }));
        scope.spaces.extend(
            self.spaces
                .iter()
                .cloned()
                .map(|one| ScopeSpace { project: one.project, space: one.name }),
        );
        let virtual_clusters = self.virtual_clusters.iter().cloned();
        scope.virtual_clusters.extend(
            virtual_clusters
                .map(|one| ScopeVirtualCluster { project: one.project, virtual_cluster: one.name }),
        );
        for file in &self.scope_files {
            add(&mut scope, read(file)?);
        }
        // The scope of a file may be empty: it gives access to nothing.
        let is_given = scope != Scope::default() || !self.scope_files.is_empty();
        Ok(is_given.then_some(scope))
    }

    /// The rules for reading alone. The parts of a scope add up, so the projects must not be
    /// among its projects: they are named in the rules.
    fn read_rules(&self) -> Result<Vec<ScopeRule>, CliError> {
        let verbs = READ_VERBS.map(str::to_owned).to_vec();
        if self.projects.is_empty() && !self.clusters.is_empty() {
            return Ok(Vec::new());
        }
        if self.projects.is_empty() {
            return Ok(vec![ScopeRule { verbs, ..ScopeRule::default() }]);
        }
        if self.projects.iter().any(|project| project == ALL) {
            let message = "a scope cannot express --read-only with --project '*': its rules name \
                           namespaces, and new projects have new namespaces";
            return Err(CliError::usage(message).hint(
                "name the projects, or pass only --read-only, which allows every read of the owner",
            ));
        }
        let rule = ScopeRule {
            verbs,
            request_targets: vec![THIS_SERVER.to_owned()],
            ..ScopeRule::default()
        };
        let plural = Project::INFO.plural;
        let themselves = ScopeResources {
            group: MANAGEMENT_V1.group.to_owned(),
            resources: vec![plural.to_owned(), format!("{plural}/*")],
            resource_names: self.projects.clone(),
        };
        let namespaces = self.projects.iter().map(|project| namespace_of(project)).collect();
        Ok(vec![
            ScopeRule {
                resources: vec![themselves],
                namespaces: vec![String::new()],
                ..rule.clone()
            },
            ScopeRule { namespaces, ..rule },
        ])
    }
}

/// Adds all parts of a scope to another.
fn add(scope: &mut Scope, more: Scope) {
    scope.allow_platform_cli |= more.allow_platform_cli;
    scope.projects.extend(more.projects);
    scope.spaces.extend(more.spaces);
    scope.virtual_clusters.extend(more.virtual_clusters);
    scope.rules.extend(more.rules);
}

fn read(file: &Path) -> Result<Scope, CliError> {
    let bytes = read_text_file(file)?;
    scope_of(&bytes).map_err(|what| {
        CliError::new(format!("{}: {}", file.display(), escape(&what))).hint(
            "a scope is a mapping, as in spec.scope of an access key: projects, spaces, virtualClusters, \
             rules, allowPlatformCli; {} gives access to nothing",
        )
    })
}

/// Reads a scope. Unknown content is an error: without it, the scope could be wider.
fn scope_of(bytes: &[u8]) -> Result<Scope, String> {
    const PATH: &str = "spec.scope";
    let scope = manifest::value_of(bytes)?;
    if !scope.is_object() {
        return Err("there is no mapping in it".to_owned());
    }
    let whole = json!({ "spec": { "scope": scope } });
    let schema = OwnedAccessKey.schema();
    if let Some(field) = schema.unknown_below(&whole, PATH).first() {
        return Err(format!("unknown field {field} in a scope"));
    }
    if let Some(field) = schema.nulls_below(&whole, PATH).first() {
        return Err(format!("{field} is null: leave it out, or give a value"));
    }
    schema.check_types(&whole).map_err(|mismatch| mismatch.to_string())?;
    let Value::Object(mut whole) = whole else { return Err("it is no mapping".to_owned()) };
    let scope = whole["spec"]["scope"].take();
    serde_json::from_value(scope).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: ScopeFlags,
    }

    fn scope(words: &str) -> Result<Value, String> {
        let words = std::iter::once("x").chain(words.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let scope = line.flags.scope().map_err(|error| error.message)?;
        Ok(serde_json::to_value(scope).unwrap())
    }

    #[test]
    fn each_flag_adds_to_the_scope_and_no_flag_is_no_scope() {
        assert_eq!(scope(""), Ok(Value::Null));
        for (words, wanted) in [
            ("--allow-cli", json!({ "allowPlatformCli": true })),
            (
                "--project web --project *",
                json!({ "projects": [{ "project": "web" }, { "project": "*" }] }),
            ),
            (
                "--space web/dev --virtual-cluster web/* --allow-cli",
                json!({
                    "allowPlatformCli": true,
                    "spaces": [{ "project": "web", "space": "dev" }],
                    "virtualClusters": [{ "project": "web", "virtualCluster": "*" }],
                }),
            ),
            (
                "--cluster east --cluster west",
                json!({ "rules": [{ "cluster": "east" }, { "cluster": "west" }] }),
            ),
            (
                "--cluster east --read-only",
                json!({ "rules": [{ "cluster": "east", "verbs": ["get", "list", "watch"] }] }),
            ),
            ("--read-only", json!({ "rules": [{ "verbs": ["get", "list", "watch"] }] })),
            (
                "--secret db --secret p-web/tls.v2",
                json!({ "rules": [
                {
                    "verbs": ["get", "list", "watch"],
                    "resources": [{
                        "group": "management.platform.sh",
                        "resources": ["sharedsecrets"],
                        "resourceNames": ["db"],
                    }],
                    "namespaces": ["platform"],
                },
                {
                    "verbs": ["get", "list", "watch"],
                    "resources": [{
                        "group": "management.platform.sh",
                        "resources": ["projectsecrets", "sharedsecrets"],
                        "resourceNames": ["tls.v2"],
                    }],
                    "namespaces": ["p-web"],
                },
            ] }),
            ),
        ] {
            assert_eq!(scope(words), Ok(wanted), "{words}");
        }
        for wrong in [
            "--project a/b",
            "--space dev",
            "--space /dev",
            "--virtual-cluster web/",
            "--cluster *",
            "--secret a/b/c",
            "--secret /db",
            "--secret platform/",
            "--secret *",
        ] {
            assert!(scope(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn reading_alone_narrows_the_projects_or_is_refused() {
        let wanted = json!({ "rules": [
            {
                "verbs": ["get", "list", "watch"],
                "resources": [{
                    "group": "management.platform.sh",
                    "resources": ["projects", "projects/*"],
                    "resourceNames": ["web", "shop"],
                }],
                "namespaces": [""],
                "requestTargets": ["Management"],
            },
            {
                "verbs": ["get", "list", "watch"],
                "namespaces": ["p-web", "p-shop"],
                "requestTargets": ["Management"],
            },
        ]});
        assert_eq!(scope("--read-only --project web --project shop"), Ok(wanted));
        let refused = scope("--read-only --project *").unwrap_err();
        assert!(refused.contains("a scope cannot express"), "{refused}");
        for other in ["--secret db", "--space a/b", "--virtual-cluster a/b", "--scope-file f"] {
            let refused = scope(&format!("--read-only {other}")).unwrap_err();
            assert!(refused.contains("cannot be used with"), "{refused}");
        }
    }

    #[test]
    fn a_file_adds_to_the_flags() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
            path.display().to_string()
        };
        let one = file("one", "projects:\n- project: web\nrules:\n- verbs: [get]\n");
        let two = file("two", "{\"rules\": [{\"verbs\": [\"list\"]}], \"allowPlatformCli\": true}");
        let words = format!("--project shop --scope-file {one} --scope-file {two}");
        let wanted = json!({
            "allowPlatformCli": true,
            "projects": [{ "project": "shop" }, { "project": "web" }],
            "rules": [{ "verbs": ["get"] }, { "verbs": ["list"] }],
        });
        assert_eq!(scope(&words), Ok(wanted));
        let empty = file("empty", "{}");
        assert_eq!(scope(&format!("--scope-file {empty}")), Ok(json!({})), "nothing is allowed");
    }

    #[test]
    fn what_is_not_understood_in_a_file_is_an_error() {
        for (text, wanted) in [
            ("", "no mapping"),
            ("- projects", "no mapping"),
            ("projects", "no mapping"),
            ("project: [{project: web}]", "unknown field spec.scope.project in"),
            ("rules: [{verb: [get]}]", "unknown field spec.scope.rules[0].verb in"),
            ("rules: null", "spec.scope.rules is null"),
            ("projects: web", "spec.scope.projects: expected"),
            ("rules: []\nrules: []", "duplicate field rules"),
            ("rules: [", "line"),
        ] {
            let what = scope_of(text.as_bytes()).expect_err(text);
            assert!(what.contains(wanted), "{text:?}: {what}");
        }
    }
}
