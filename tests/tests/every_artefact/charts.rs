//! The charts on a real kube-apiserver: it accepts every object that they render, and a release is installed, upgraded,
//! rolled back and removed. The cluster has no controllers and no nodes, so no pod starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use postern_tests::kubectl::Kubectl;
use postern_tests::{ControlPlane, Home, downloads};
use serde_json::{Value, json};

use crate::helm::{CHARTS, case, cases, chart, objects};

/// The kinds that the charts use and that a cluster does not have without additions. The test
/// defines them as custom resources without their schemas.
const FOREIGN_KINDS: [(&str, &str, &str); 3] = [
    ("gateway.networking.k8s.io", "v1", "TLSRoute"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor"),
    ("monitoring.coreos.com", "v1", "PrometheusRule"),
];

/// A chart, its workload, the values of the first revision, and the changes of the second one.
const LIVES: [(&str, &str, &str, &str); 3] = [
    (
        "postern",
        "statefulset/main-postern",
        "defaults",
        "hosts={a.example.com},ingress.enabled=true,ingress.controller=nginx,settings.history=10m,\
         metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.tokenSecret.name=metrics,metrics.prometheusRule.enabled=true,\
         tlsRoute.enabled=true,tlsRoute.parentRefs[0].name=public",
    ),
    (
        "postern",
        "deployment/main-postern",
        "etcd",
        "replicas=5,ingress.enabled=true,ingress.controller=nginx,settings.history=10m,\
         metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.tokenSecret.name=metrics,metrics.prometheusRule.enabled=true,\
         tlsRoute.enabled=true,tlsRoute.parentRefs[0].name=public",
    ),
    (
        "postern-agent",
        "deployment/main-postern-agent",
        "service-account",
        "advertise.host=member.example.com,metrics.enabled=true,settings.log=debug,virtualClusters[0].namespace=team-red,virtualClusters[0].name=red,\
         metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,\
         tlsRoute.enabled=true,tlsRoute.parentRefs[0].name=public",
    ),
];

/// A cluster, and helm of one version as its administrator.
struct Cluster {
    home: Home,
    plane: ControlPlane,
    helm: PathBuf,
}

impl Cluster {
    /// Starts it, with the namespaces of the cases and the foreign kinds.
    async fn start(helm: &str) -> Self {
        let home = Home::new();
        let plane = ControlPlane::start(&home).await;
        let cluster = Self { home, plane, helm: downloads::path(helm) };
        for namespace in ["platform", "team-red", "team-blue"] {
            cluster.kubectl(&["create", "namespace", namespace]);
        }
        for (group, version, kind) in FOREIGN_KINDS {
            let plural = format!("{}s", kind.to_lowercase());
            let file = cluster.home.path().join("kind.yaml");
            let definition = format!(
                "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: {plural}.{group}, \
                 annotations: {{api-approved.kubernetes.io: 'https://example.com'}}}}, spec: {{group: {group}, scope: \
                 Namespaced, names: {{plural: {plural}, singular: {}, kind: {kind}}}, versions: [{{name: {version}, \
                 served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, \
                 properties: {{spec: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}}}}}]}}}}",
                kind.to_lowercase()
            );
            std::fs::write(&file, definition).unwrap();
            cluster.kubectl(&["create", "-f", file.to_str().unwrap()]);
            let name = format!("crd/{plural}.{group}");
            cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &name]);
        }
        cluster
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("HOME", self.home.path());
        command.env("KUBECONFIG", self.plane.kubeconfig_of_admin()).stdin(Stdio::null());
        let output = command.output().expect("the program can be started");
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{} {arguments:?}: {out}{err}", program.display());
        out
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.run(&Kubectl::program(), arguments)
    }

    fn helm(&self, arguments: &[&str]) -> String {
        self.run(&self.helm, &[arguments, &["--namespace", "platform"]].concat())
    }

    /// An object of the namespace, or nothing.
    fn get(&self, object: &str) -> Value {
        let words = ["--namespace", "platform", "get", object, "--ignore-not-found", "-o", "json"];
        serde_json::from_str(&self.kubectl(&words)).unwrap_or_default()
    }

    /// The names of all objects of a release, each with its kind.
    fn names_of(&self, release: &str) -> Vec<String> {
        let kinds = "statefulsets,deployments,services,serviceaccounts,configmaps,secrets,networkpolicies,\
                     poddisruptionbudgets,ingresses.networking.k8s.io,persistentvolumeclaims,servicemonitors,\
                     prometheusrules,tlsroutes";
        let label = format!("--selector=app.kubernetes.io/instance={release}");
        let words = ["--namespace", "platform", "get", kinds, &label, "-o", "name"];
        self.kubectl(&words).lines().map(str::to_owned).collect()
    }
}

/// The manifest of a release, rendered by a dry run against this cluster.
fn manifest(cluster: &Cluster, name: &str, values: &Path) -> String {
    let (chart, values) = (chart(name), values.to_str().unwrap());
    let words = ["install", "main", chart.to_str().unwrap(), "--values", values];
    let dry = cluster.helm(&[&words[..], &["--dry-run=server", "--hide-notes"]].concat());
    dry.split_once("MANIFEST:\n").expect("a dry run prints the manifest").1.to_owned()
}

#[tokio::test]
async fn the_server_accepts_every_object_in_a_dry_run() {
    let cluster = Cluster::start("1.37/helm").await;
    for name in CHARTS {
        for values in cases(name) {
            let rendered = objects(&manifest(&cluster, name, &case(name, &values)));
            let file = cluster.home.path().join("objects.json");
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": rendered });
            std::fs::write(&file, list.to_string()).unwrap();
            let words =
                ["apply", "--server-side", "--dry-run=server", "-f", file.to_str().unwrap()];
            let accepted = cluster.kubectl(&words).lines().count();
            assert_eq!(accepted, rendered.len(), "{name} with {values}");
        }
    }
}

/// Every optional object is installed, by the newest helm and by the oldest one.
#[tokio::test]
async fn a_release_is_installed_upgraded_rolled_back_and_removed() {
    for helm in ["1.37/helm", "1.20/helm"] {
        let cluster = Cluster::start(helm).await;
        for (name, kind, values, changes) in LIVES {
            let (chart, values) = (chart(name), case(name, values));
            let [chart, values] = [&chart, &values].map(|path| path.to_str().unwrap());
            let started = Instant::now();
            cluster.helm(&["install", "main", chart, "--values", values]);
            println!("{helm} installed {name} in {} ms", started.elapsed().as_millis());
            let (installed, names) = (cluster.get(kind), cluster.names_of("main"));
            cluster.helm(&["upgrade", "main", chart, "--values", values, "--set", changes]);
            let upgraded = cluster.get(kind);
            assert_eq!(upgraded["metadata"]["uid"], installed["metadata"]["uid"], "{name}");
            assert_ne!(upgraded["spec"]["template"], installed["spec"]["template"], "{name}");
            let added = cluster.names_of("main");
            for (group, _, kind) in FOREIGN_KINDS {
                let kind = format!("{}.{group}/", kind.to_lowercase());
                let is_added = added.iter().any(|object| object.starts_with(&kind));
                assert!(is_added, "{name}: the upgrade adds a {kind}: {added:?}");
            }
            cluster.helm(&["rollback", "main", "1"]);
            let back = cluster.get(kind);
            assert_eq!(back["metadata"]["uid"], installed["metadata"]["uid"], "{name}");
            assert_eq!(back["spec"], installed["spec"], "{name}");
            assert_eq!(cluster.names_of("main"), names, "{name}");
            cluster.helm(&["uninstall", "main"]);
            let left = cluster.names_of("main");
            let kept = match name {
                "postern" => vec![],
                _ => vec!["persistentvolumeclaim/main-postern-agent"],
            };
            assert_eq!(left, kept, "{name}");
        }
    }
}

/// The Secret that the chart made of the agent's key is the same after an upgrade and a rollback.
#[tokio::test]
async fn an_upgrade_and_a_rollback_keep_the_key_of_the_agent() {
    let cluster = Cluster::start("1.37/helm").await;
    let (chart, values) = (chart("postern-agent"), case("postern-agent", "key-value"));
    let [chart, values] = [&chart, &values].map(|path| path.to_str().unwrap());
    cluster.helm(&["install", "main", chart, "--values", values]);
    let secret = || cluster.get("secret/main-postern-agent-key");
    let key = secret()["data"].clone();
    assert_eq!(key["key"], "YW4tYWNjZXNzLWtleS1vZi1hdC1sZWFzdC0zMi1jaGFyYWN0ZXJz");
    let uid = secret()["metadata"]["uid"].clone();
    let changes = ["upgrade", "main", chart, "--reuse-values", "--set", "settings.log=debug"];
    cluster.helm(&changes);
    assert_eq!((&secret()["data"], &secret()["metadata"]["uid"]), (&key, &uid));
    cluster.helm(&["rollback", "main", "1"]);
    assert_eq!((&secret()["data"], &secret()["metadata"]["uid"]), (&key, &uid));
}

/// The stored pods after the cluster's own admission: its defaults do not change the security of
/// the pod.
#[tokio::test]
async fn the_cluster_stores_the_pod_as_it_was_rendered() {
    let cluster = Cluster::start("1.37/helm").await;
    for name in CHARTS {
        let values = if name == "postern" { "defaults" } else { "service-account" };
        let (chart, values) = (chart(name), case(name, values));
        let [chart, values] = [&chart, &values].map(|path| path.to_str().unwrap());
        cluster.helm(&["install", name, chart, "--values", values]);
        let kind = if name == "postern" { "statefulset" } else { "deployment" };
        let stored = cluster.get(&format!("{kind}/{name}"));
        let rendered = crate::helm::template(name, Path::new(values)).unwrap();
        let rendered =
            objects(&rendered).into_iter().find(|one| !one["spec"]["template"].is_null());
        let rendered = rendered.unwrap()["spec"]["template"]["spec"].clone();
        let stored = &stored["spec"]["template"]["spec"];
        for field in
            ["/securityContext", "/containers/0/securityContext", "/automountServiceAccountToken"]
        {
            assert_eq!(stored.pointer(field), rendered.pointer(field), "{name}{field}");
        }
    }
}
