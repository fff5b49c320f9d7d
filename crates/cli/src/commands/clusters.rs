//! Creating clusters: the object, and the credential of its agent. Everything else about clusters
//! is as for other kinds.

use clap::Args;
use postern_client::Collection;
use postern_kinds::cluster::{CONNECT, Cluster, Spec, agent_subject};
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::owned_access_key::{self, OwnedAccessKey};
use postern_kinds::rbac::RBAC_GROUP;
use postern_kinds::scope::{Scope, ScopeResources, ScopeRule};
use postern_kinds::{Kind as _, KubeconfigRef, MANAGEMENT_V1};
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_meta::status::Reason;
use serde_json::json;

use super::{access_keys, new_object};
use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::parse;
use crate::process::Process;
use crate::session::Session;

/// The role of agents.
const AGENT_ROLE: &str = "platform-agent";

/// The least permissions of an agent's credential in its cluster. It may act as callers, which the
/// cluster's own roles then judge. It may also read whether the namespaces of spaces exist.
const LEAST_ROLE: &str = r"apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: postern-agent
rules:
- apiGroups: ['']
  resources: [users, groups]
  verbs: [impersonate]
- apiGroups: ['']
  resources: [namespaces]
  verbs: [get]
";

/// The further Role of an agent in a namespace with virtual clusters, which gives access to their kubeconfigs.
const VIRTUAL_CLUSTERS_ROLE: &str = r"apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: postern-agent
  namespace: NAMESPACE
rules:
- apiGroups: ['']
  resources: [secrets]
  resourceNames: [vc-NAME]
  verbs: [get]
";

/// A new cluster.
#[derive(Args, Debug)]
pub(crate) struct CreateCluster {
    /// The name
    #[arg(value_parser = parse::name)]
    name: String,

    /// The display name
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    display_name: String,

    /// The Secret with the kubeconfig of the cluster, as NAMESPACE/NAME [default: none, the cluster has an
    /// agent]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = secret)]
    kubeconfig_secret: Option<KubeconfigRef>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Parses `NAMESPACE/NAME`.
fn secret(text: &str) -> Result<KubeconfigRef, String> {
    let (namespace, name) =
        text.split_once('/').ok_or_else(|| "a Secret is NAMESPACE/NAME".to_owned())?;
    Ok(KubeconfigRef {
        secret_name: parse::name(name)?,
        secret_namespace: parse::name(namespace)?,
        ..KubeconfigRef::default()
    })
}

impl CreateCluster {
    /// Creates, and prints the access key of the agent.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        if self.kubeconfig_secret.is_none() {
            process.require_stdout()?;
        }
        let mut session = Session::open(&self.connection, process)?;
        let name = self.name.as_str();
        let spec = Spec {
            display_name: self.display_name,
            config: self.kubeconfig_secret,
            ..Spec::default()
        };
        let metadata = ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() };
        let new = new_object::<Cluster>(metadata, spec)?;
        let created = session.client.create(Collection::of::<Cluster>(None), &new).await;
        let flags = [
            ("spec.config.secretName", "--kubeconfig-secret"),
            ("spec.config.secretNamespace", "--kubeconfig-secret"),
            ("spec.config.key", "--kubeconfig-secret"),
            ("spec.config", "--kubeconfig-secret"),
        ];
        let cluster = created.map_err(|error| session.explain_by_flags(&error, &flags))?;
        process.print_status(&format!("cluster {name} created"));
        let undone = |error: CliError| {
            error.hint(format!(
                "the access key or binding of the agent could not be created: correct the cause, \
                 run `postern delete cluster {name}`, and create the cluster again"
            ))
        };
        let bindings = Collection::of::<ClusterRoleBinding>(None);
        let bound = session.client.create(bindings, &binding(&cluster)).await;
        bound.map_err(|error| undone(session.explain(&error)))?;
        let created = access_keys::create(&mut session, &key(&cluster)?).await;
        print_agent_key(&created.map_err(undone)?, process)?;
        process.print_note(
            "no later command can print the access key of the agent: store it in a \
                            file",
        );
        print_start(&session, name, process);
        process.print_note(&format!(
            "only administrators can use the cluster: run `postern share cluster {name} --user \
             USER` to give access"
        ));
        Ok(())
    }
}

/// A new access key for the agent of a cluster.
#[derive(Args, Debug)]
pub(crate) struct CreateAgentKey {
    /// The name of the cluster
    #[arg(value_parser = parse::name)]
    cluster: String,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl CreateAgentKey {
    /// Creates the access key, and the binding if it is missing, and prints the key.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        process.require_stdout()?;
        let mut session = Session::open(&self.connection, process)?;
        let name = self.cluster.as_str();
        let cluster = session.client.get(Collection::of::<Cluster>(None), name).await;
        let cluster = cluster.map_err(|error| session.explain(&error))?;
        let bindings = Collection::of::<ClusterRoleBinding>(None);
        match session.client.create(bindings, &binding(&cluster)).await {
            Err(error) if error.reason() != Some(Reason::AlreadyExists) => {
                return Err(session.explain(&error));
            }
            _ => {}
        }
        let new = key(&cluster)?;
        let key_name = new.metadata.name.as_str();
        if session.client.get(Collection::of::<OwnedAccessKey>(None), key_name).await.is_ok() {
            let message =
                format!("the agent of the cluster {name} has an access key already: {key_name}");
            return Err(CliError::new(message).hint(format!(
                "`postern rotate accesskey {key_name}` replaces its value; for the scope that agents of this \
                 version need, run `postern delete accesskey {key_name}` and then this command again"
            )));
        }
        print_agent_key(&access_keys::create(&mut session, &new).await?, process)?;
        process.print_note(
            "no later command can print the access key of the agent: store it in a file",
        );
        Ok(())
    }
}

/// Prints a new key of an agent, alone on the standard output.
fn print_agent_key(
    (created, spec): &(Object, owned_access_key::Spec),
    process: &Process,
) -> Result<(), CliError> {
    let printed = process.print_value(&spec.key);
    printed.map_err(|error| access_keys::value_lost(error, &created.metadata.name))
}

/// Prints the command that starts the agent, and the permissions that it needs in its cluster.
fn print_start(session: &Session, name: &str, process: &Process) {
    let server = session.client.server();
    let (trust, about) = match session.client.authority() {
        Some(digest) => (
            format!("--ca-digest {digest}"),
            "If the server does not send the certificate of its authority, pass --ca-file CA.pem \
             in place of the digest.",
        ),
        None => {
            ("--ca-file CA.pem".to_owned(), "CA.pem has the certificate authority of this server.")
        }
    };
    process.print_note(&format!(
        "start the agent in the cluster:\n\n  postern agent --server {server} \\\n    {trust} \\\n    \
         --cluster {name} --key-file KEYFILE --upstream KUBECONFIG \\\n    --state-dir DIR\n\n\
         The agent opens all connections itself. {about} In the cluster, the user of KUBECONFIG needs this \
         role:\n\n{LEAST_ROLE}"
    ));
    let chart_trust = match session.client.authority() {
        Some(digest) => format!("--set server.caDigest={digest}"),
        None => "--set-file server.caBundle=CA.pem".to_owned(),
    };
    process.print_note(&format!(
        "or install the chart of the agent, which creates the role, with the key in a Secret:\n\n  \
         kubectl create namespace postern-agent\n  \
         kubectl --namespace postern-agent create secret generic {name} --from-file=key=KEYFILE\n  \
         helm upgrade --install postern-agent deploy/charts/postern-agent --namespace postern-agent \\\n    \
         --set cluster={name},server.url={server} {chart_trust} \\\n    \
         --set key.existingSecret.name={name}\n"
    ));
    process.print_note(&format!(
        "for virtual clusters through the agent, also create this role and a RoleBinding in the \
         namespace of each one:\n\n{VIRTUAL_CLUSTERS_ROLE}"
    ));
}

/// The metadata of an object that belongs to a cluster.
fn of(cluster: &Object) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: Cluster::INFO.version.to_string(),
        kind: Cluster::INFO.kind.to_owned(),
        name: cluster.metadata.name.clone(),
        uid: cluster.metadata.uid.clone(),
        ..OwnerReference::default()
    };
    ObjectMeta {
        name: format!("agent-{}", cluster.metadata.name),
        owner_references: vec![owner],
        ..ObjectMeta::default()
    }
}

fn binding(cluster: &Object) -> Object {
    let role = json!({ "apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": AGENT_ROLE });
    let subject = agent_subject(&cluster.metadata.name);
    let subject = json!({ "apiGroup": RBAC_GROUP, "kind": "User", "name": subject });
    Object {
        api_version: ClusterRoleBinding::INFO.version.to_string(),
        kind: ClusterRoleBinding::INFO.kind.to_owned(),
        metadata: of(cluster),
        fields: [("roleRef".to_owned(), role), ("subjects".to_owned(), json!([subject]))]
            .into_iter()
            .collect(),
    }
}

/// The access key of an agent. The role is for all clusters; the scope leaves its own.
fn key(cluster: &Object) -> Result<Object, CliError> {
    let name = &cluster.metadata.name;
    let rule = |verbs: &[&str], resources: &[&str]| ScopeRule {
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        resources: vec![ScopeResources {
            group: MANAGEMENT_V1.group.to_owned(),
            resources: resources.iter().map(|resource| (*resource).to_owned()).collect(),
            resource_names: vec![name.clone()],
        }],
        request_targets: vec!["Management".to_owned()],
        ..ScopeRule::default()
    };
    let rules = vec![
        rule(&["get", "patch"], &["clusters", "clusters/agentconfig", "clusters/status"]),
        rule(&["watch"], &["clusters/agentconfig"]),
        rule(
            &["create"],
            &["clusters/auditevents", "clusters/endpoint", "clusters/secretsubscriptions"],
        ),
        rule(&[CONNECT], &["clusters/tunnel"]),
    ];
    let spec = owned_access_key::Spec {
        display_name: format!("The agent of the cluster {name}"),
        subject: agent_subject(name),
        scope: Some(Scope { rules, ..Scope::default() }),
        ..owned_access_key::Spec::default()
    };
    new_object::<OwnedAccessKey>(of(cluster), spec)
}
