//! The charts: they are well-formed, they render the same objects as before, and they say which value is wrong.

use postern_tests::kubectl::repository;
use serde_json::Value;

use super::helm::{self, CHARTS, case, cases, chart, objects, run, template};
use super::pod_security;

/// How the golden files are written again.
const UPDATE: &str = "POSTERN_UPDATE_CHARTS=1 cargo nextest run --workspace --test tools deploy::\nand review the changes";

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether files are written, and not compared.
pub(crate) fn is_update() -> bool {
    std::env::var_os("POSTERN_UPDATE_CHARTS").is_some()
}

/// Compares a text with a file, or writes the file.
pub(crate) fn compare(path: &std::path::Path, text: &str) {
    if is_update() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        return;
    }
    let known = std::fs::read_to_string(path).unwrap_or_default();
    let differs = known.lines().zip(text.lines()).find(|(known, new)| known != new);
    assert!(
        known == text,
        "{} is not what is rendered now (first difference: {differs:?}). To write it again, run\n{UPDATE}",
        path.display()
    );
}

#[test]
fn a_chart_has_the_version_of_the_workspace() {
    for name in CHARTS {
        let path = chart(name).join("Chart.yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| match line.split_once(": ") {
            Some((key @ ("version" | "appVersion"), _)) => format!("{key}: {VERSION}\n"),
            _ => format!("{line}\n"),
        });
        compare(&path, &lines.collect::<String>());
    }
}

#[test]
fn every_chart_passes_the_strict_lint_with_all_values() {
    for name in CHARTS {
        for values in cases(name) {
            let (chart, file) = (chart(name), case(name, &values));
            let [chart, file] = [&chart, &file].map(|path| path.to_str().unwrap());
            let linted = run(&["lint", "--strict", chart, "--values", file]);
            let linted = linted.unwrap_or_else(|error| panic!("{name} with {values}: {error}"));
            assert!(!linted.contains("[WARNING]"), "{name} with {values}: {linted}");
        }
    }
}

/// The texts in front of the chart's version in a rendered object.
const PLACES_OF_VERSION: [&str; 5] =
    ["postern-", "postern-agent-", "version: ", "version: \"", "postern:"];

/// A version of the chart is in each label. The golden files have a word in its place, so that a release does not
/// change them all.
#[test]
fn the_rendered_objects_are_those_of_the_golden_files() {
    for name in CHARTS {
        for values in cases(name) {
            let rendered = template(name, &case(name, &values)).unwrap();
            let rendered = PLACES_OF_VERSION.iter().fold(rendered, |text, place| {
                text.replace(&format!("{place}{VERSION}"), &format!("{place}VERSION"))
            });
            let golden = helm::own_directory().join("golden").join(name);
            compare(&golden.join(format!("{values}.yaml")), &rendered);
        }
    }
}

#[test]
fn every_rendered_pod_satisfies_the_restricted_standard() {
    for name in CHARTS {
        for values in cases(name) {
            let objects = objects(&template(name, &case(name, &values)).unwrap());
            let pods: Vec<_> = objects.iter().filter_map(pod_security::pod_of).collect();
            assert_eq!(pods.len(), 1, "{name} with {values} has one kind of pod");
            let findings = pod_security::violations(pods[0]);
            assert!(findings.is_empty(), "{name} with {values}: {findings:?}");
        }
    }
}

/// A chart, and the groups of alerts that it carries: those of the server, or those of the agent.
const ALERTS: [(&str, &[&str]); 2] = [
    ("postern", &["postern-server", "postern-store", "postern-etcd", "postern-clusters"]),
    ("postern-agent", &["postern-agent"]),
];

#[test]
fn the_alerts_of_the_charts_are_those_of_the_file_for_prometheus() {
    let all = std::fs::read_to_string(repository().join("deploy/alerts/postern.yaml")).unwrap();
    let groups: Vec<&str> = all.split("\n  - name: ").skip(1).collect();
    let name = |group: &str| group.lines().next().unwrap().to_owned();
    let mut carried = 0;
    for (chart_name, wanted) in ALERTS {
        let own = groups.iter().filter(|group| wanted.contains(&name(group).as_str()));
        let own: Vec<_> = own.map(|group| format!("  - name: {}\n", group.trim_end())).collect();
        carried += own.len();
        let path = chart(chart_name).join("files/alerts.yaml");
        compare(&path, &format!("groups:\n{}", own.join("\n")));
    }
    assert_eq!(carried, groups.len(), "each group of alerts is in one chart");
}

/// Each object is in the namespace of the release, unless its kind has none or it belongs to a virtual cluster.
/// Otherwise helm would write to `default` in some of its commands.
#[test]
fn every_object_names_its_namespace_and_its_release() {
    for name in CHARTS {
        for values in cases(name) {
            for object in objects(&template(name, &case(name, &values)).unwrap()) {
                let metadata = &object["metadata"];
                let kind = object["kind"].as_str().unwrap();
                let wanted = match kind {
                    "ClusterRole" | "ClusterRoleBinding" => Value::Null,
                    "Role" | "RoleBinding" => metadata["namespace"].clone(),
                    _ => "platform".into(),
                };
                assert_eq!(metadata["namespace"], wanted, "{name} with {values}: {metadata}");
                let release = &metadata["labels"]["app.kubernetes.io/instance"];
                assert_eq!(release, "main", "{name} with {values}: {metadata}");
            }
        }
    }
}

/// The values of a chart that need no others.
pub(crate) fn smallest(name: &str) -> std::path::PathBuf {
    case(name, if name == "postern" { "defaults" } else { "service-account" })
}

/// A chart, values that cannot be used, and the message.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "postern",
        "settings.histroy=5m",
        "at '/settings': additional properties 'histroy' not allowed",
    ),
    ("postern", "settings.history=soon", "at '/settings/history': 'soon' does not match pattern"),
    (
        "postern",
        "settings.data-dir=/x",
        "at '/settings': additional properties 'data-dir' not allowed",
    ),
    ("postern", "service.port=0", "at '/service/port': minimum: got 0, want 1"),
    ("postern", "service.type=ExternalName", "at '/service/type': value must be one of"),
    ("postern", "persistence.data.size=large", "at '/persistence/data/size'"),
    ("postern", "runAsUser=0", "at '/runAsUser': minimum: got 0, want 1"),
    ("postern", "replicas=3", "replicas is for several servers"),
    ("postern", "replicas=0", "at '/replicas': minimum: got 0, want 1"),
    ("postern", "store.url=redis://a/p", "at '/store/url'"),
    ("postern", "store.url=etcd://a", "at '/store/url'"),
    ("postern", "store.url=etcd://a/p,persistence.data.size=20Gi", "remove one of them"),
    ("postern", "store.url=etcd://a/p,persistence.backup.enabled=true", "remove one of them"),
    ("postern", "store.url=etcd://a/p", "hosts is empty"),
    (
        "postern",
        "store.url=etcd://a/p,tls.secretName=a,hosts={a}",
        "set exactly one of keyring.secretName",
    ),
    (
        "postern",
        "store.url=etcd://a/p,tls.secretName=a,hosts={a},keyring.secretName=a,keyring.source=b",
        "set exactly one of keyring.secretName",
    ),
    (
        "postern",
        "store.url=etcd://a/p,tls.secretName=a,hosts={a},keyring.secretName=a",
        "store.caSecret.name is empty",
    ),
    (
        "postern",
        "store.url=etcd://a/p,tls.secretName=a,hosts={a},keyring.secretName=a,store.user=a",
        "set both store.user and store.passwordSecret.name",
    ),
    ("postern", "keyring.secretName=a", "store.url is empty"),
    ("postern", "store.caSecret.name=a", "store.url is empty"),
    ("postern", "externalUrl=http://a", "at '/externalUrl'"),
    ("postern", "externalUrl=https://a?b", "at '/externalUrl'"),
    ("postern", "hosts={postern.example.com:8443}", "at '/hosts/0'"),
    ("postern", "hosts={a..b}", "at '/hosts/0'"),
    ("postern", "hosts={Postern.example.com}", "at '/hosts/0'"),
    ("postern", "hosts={192.0.2}", "at '/hosts/0'"),
    ("postern", "hosts={a:b:c}", "at '/hosts/0'"),
    ("postern", "listenAddress=192.0.2", "at '/listenAddress'"),
    ("postern", "clusterDomain=a..b", "at '/clusterDomain'"),
    ("postern", "tls.secretName=a..b", "at '/tls/secretName'"),
    ("postern", "fullnameOverride=a.b", "at '/fullnameOverride'"),
    ("postern", "fullnameOverride=1a", "at '/fullnameOverride'"),
    ("postern", "nameOverride=a.b", "at '/nameOverride'"),
    ("postern", "service.nodePort=30443", "service.type is ClusterIP"),
    ("postern", "service.externalTrafficPolicy=Local", "service.type is ClusterIP"),
    (
        "postern",
        "service.type=NodePort,service.loadBalancerSourceRanges={192.0.2.0/24}",
        "service.loadBalancerSourceRanges needs the service.type LoadBalancer",
    ),
    (
        "postern",
        "service.type=LoadBalancer,service.loadBalancerSourceRanges={all/0}",
        "at '/service/loadBalancerSourceRanges/0'",
    ),
    ("postern", "podLabels.app\\.kubernetes\\.io/name=a", "podLabels has app.kubernetes.io/name"),
    (
        "postern",
        "podLabels.app\\.kubernetes\\.io/instance=a",
        "podLabels has app.kubernetes.io/instance",
    ),
    ("postern", "podAnnotations.checksum/settings=a", "podAnnotations has checksum/settings"),
    (
        "postern",
        "networkPolicy.storePeers[0].podSelector.a=b",
        "networkPolicy.storePeers is added to networkPolicy.egress",
    ),
    ("postern", "ingress.enabled=true", "hosts has no name"),
    ("postern", "tlsRoute.enabled=true,hosts={192.0.2.7}", "hosts has no name"),
    ("postern", "tlsRoute.enabled=true,hosts={a}", "tlsRoute.parentRefs is empty"),
    ("postern", "ingress.enabled=true,hosts={a}", "ingress needs TLS passthrough"),
    (
        "postern",
        "metrics.serviceMonitor.enabled=true",
        "metrics.serviceMonitor.tokenSecret.name is empty",
    ),
    (
        "postern",
        "metrics.serviceMonitor.tokenSecret.key=a/b",
        "at '/metrics/serviceMonitor/tokenSecret/key'",
    ),
    (
        "postern",
        "metrics.prometheusRule.runbookBaseUrl=a",
        "at '/metrics/prometheusRule/runbookBaseUrl'",
    ),
    ("postern-agent", "secrets.mode=some", "at '/secrets/mode': value must be one of"),
    ("postern-agent", "cluster=", "cluster is empty"),
    ("postern-agent", "server.url=", "server.url is empty"),
    ("postern-agent", "server.caDigest=", "set exactly one of server.caDigest"),
    ("postern-agent", "server.caSecret.name=x", "set exactly one of server.caDigest"),
    ("postern-agent", "server.caDigest=sha256:ab", "at '/server/caDigest'"),
    ("postern-agent", "key.existingSecret.name=", "set exactly one of key.existingSecret.name"),
    ("postern-agent", "key.value=x", "set exactly one of key.existingSecret.name"),
    ("postern-agent", "advertise.host=,advertise.ca=system", "advertise.host is empty"),
    ("postern-agent", "tlsRoute.enabled=true,advertise.host=", "advertise.host is no name"),
    (
        "postern-agent",
        "ingress.enabled=true,advertise.host=192.0.2.7:9443",
        "advertise.host is no name",
    ),
    (
        "postern-agent",
        "advertise.host=a.example.com,advertise.ca=secret",
        "set both advertise.ca to secret and advertise.caSecret.name",
    ),
    (
        "postern-agent",
        "advertise.host=a.example.com,advertise.caSecret.name=a",
        "set both advertise.ca to secret and advertise.caSecret.name",
    ),
    ("postern-agent", "advertise.host=a..b", "at '/advertise/host'"),
    ("postern-agent", "advertise.host=a:b:c", "at '/advertise/host'"),
    ("postern-agent", "service.type=LoadBalancer", "advertise.host is empty"),
    ("postern-agent", "service.port=8443", "advertise.host is empty"),
    ("postern-agent", "networkPolicy.from[0].podSelector.a=b", "advertise.host is empty"),
    ("postern-agent", "networkPolicy.metricsFrom[0].podSelector.a=b", "metrics.enabled is false"),
    ("postern-agent", "advertise.host=a,service.nodePort=30443", "service.type is ClusterIP"),
    (
        "postern-agent",
        "advertise.host=a,service.loadBalancerSourceRanges={192.0.2.0/24}",
        "service.loadBalancerSourceRanges needs the service.type LoadBalancer",
    ),
    (
        "postern-agent",
        "podLabels.app\\.kubernetes\\.io/name=a",
        "podLabels has app.kubernetes.io/name",
    ),
    ("postern-agent", "podAnnotations.checksum/files=a", "podAnnotations has checksum/files"),
    ("postern-agent", "settings.key-file=/x", "additional properties 'key-file' not allowed"),
    ("postern-agent", "metrics.serviceMonitor.enabled=true", "metrics.enabled is false"),
    ("postern-agent", "virtualClusters[0].name=x", "missing property 'namespace'"),
    (
        "postern-agent",
        "virtualClusters[0].name=x,virtualClusters[0].namespace=a.b",
        "at '/virtualClusters/0/namespace'",
    ),
    (
        "postern-agent",
        "virtualClusters[0].name=x,virtualClusters[0].namespace=a,rbac.create=false",
        "virtualClusters creates Roles for the ServiceAccount",
    ),
    (
        "postern-agent",
        "virtualClusters[0].name=x,virtualClusters[0].namespace=a,upstream.kubeconfigSecret.name=a",
        "virtualClusters creates Roles for the ServiceAccount",
    ),
];

#[test]
fn a_wrong_value_is_refused_with_a_message_that_names_it() {
    for name in CHARTS {
        template(name, &smallest(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for (name, wrong, message) in WRONG {
        let (chart, values) = (chart(name), smallest(name));
        let [chart, values] = [&chart, &values].map(|path| path.to_str().unwrap());
        let words = ["template", "main", chart, "--values", values];
        let refused = run(&[&words[..], &["--set", wrong]].concat()).unwrap_err();
        assert!(refused.contains(message), "{name} --set {wrong}: {refused}");
    }
}

/// The objects of a release, or the error. The Services of the agent need a host.
fn release(chart_name: &str, release: &str, more: &[&str]) -> Result<String, String> {
    let (chart, values) = (chart(chart_name), smallest(chart_name));
    let [chart, values] = [&chart, &values].map(|path| path.to_str().unwrap());
    let host: &[&str] =
        if chart_name == "postern" { &[] } else { &["--set", "advertise.host=a.example.com"] };
    let words = ["template", release, chart, "--namespace", "456", "--values", values];
    run(&[&words, host, more].concat())
}

#[test]
fn a_name_is_a_string_and_a_service_can_have_it() {
    for name in CHARTS {
        let refused = release(name, "123", &[]).unwrap_err();
        let message = format!("the name of the objects is 123-{name}, and the name of a Service");
        assert!(refused.contains(&message), "{refused}");

        let more = "fullnameOverride=on,nameOverride=789,priorityClassName=off";
        let mut words = vec!["--set-string", more];
        if name == "postern-agent" {
            words.extend([
                "--set-string",
                "virtualClusters[0].namespace=1,virtualClusters[0].name=2",
            ]);
        }
        let text = release(name, "123", &words).unwrap();
        for object in objects(&text) {
            let metadata = &object["metadata"];
            assert!(metadata["name"].is_string(), "{name}: {metadata}");
            let namespace = metadata.get("namespace");
            assert!(namespace.is_none_or(Value::is_string), "{name}: {metadata}");
            let labels = metadata["labels"].as_object().unwrap();
            assert!(labels.values().all(Value::is_string), "{name}: {metadata}");
        }
        // For the YAML of Kubernetes, these words are booleans.
        for word in ["on", "off"] {
            assert!(text.contains(&format!(": \"{word}\"\n")), "{name}: {word}");
            assert!(!text.contains(&format!(": {word}\n")), "{name}: {word}");
        }

        let text = release(name, "a.b", &[]).unwrap();
        let services = objects(&text).into_iter().filter(|one| one["kind"] == "Service");
        let names: Vec<_> = services.map(|one| one["metadata"]["name"].clone()).collect();
        assert!(!names.is_empty(), "{name}");
        let has_dot = |one: &Value| one.as_str().unwrap().contains('.');
        assert!(!names.iter().any(has_dot), "{name}: {names:?}");
    }
}

/// A server has one store, so the objects of one form do not exist in the other form.
#[test]
fn with_a_shared_store_there_is_a_deployment_and_no_volume_that_stays() {
    for values in ["defaults", "everything", "etcd", "etcd-everything"] {
        let objects = objects(&template("postern", &case("postern", values)).unwrap());
        let count = |kind: &str| objects.iter().filter(|one| one["kind"] == kind).count();
        let is_shared = values.starts_with("etcd");
        let forms = (count("Deployment"), count("StatefulSet"), count("Service"));
        assert_eq!(forms, if is_shared { (1, 0, 1) } else { (0, 1, 2) }, "{values}");
        let pod = objects.iter().find_map(pod_security::pod_of).unwrap();
        let volumes = pod["volumes"].as_array().unwrap().iter();
        let of_claims = volumes.filter(|one| one.get("persistentVolumeClaim").is_some()).count();
        assert_eq!(of_claims, 0, "{values}");
        let spread = pod["topologySpreadConstraints"].as_array().map_or(0, Vec::len);
        assert_eq!(spread > 0, is_shared, "{values}");
        let settings = objects.iter().find(|one| one["kind"] == "ConfigMap").unwrap();
        let settings = settings["data"]["settings.yaml"].as_str().unwrap();
        assert_eq!(settings.contains("\nstore: etcd://"), is_shared, "{values}: {settings}");
        let variables = pod["containers"][0]["env"].as_array().unwrap();
        let has_keyring = variables.iter().any(|one| one["name"] == "POSTERN_KEYRING");
        assert_eq!(has_keyring, is_shared, "{values}");
    }
}

/// Each file that the settings name is in a directory that the pod mounts.
#[test]
fn the_pod_mounts_each_file_that_the_settings_name() {
    for values in cases("postern") {
        let objects = objects(&template("postern", &case("postern", &values)).unwrap());
        let pod = objects.iter().find_map(pod_security::pod_of).unwrap();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap().iter();
        let mounts: Vec<_> = mounts.map(|one| one["mountPath"].as_str().unwrap()).collect();
        let settings = objects.iter().find(|one| one["kind"] == "ConfigMap").unwrap();
        let settings = settings["data"]["settings.yaml"].as_str().unwrap();
        let variables = pod["containers"][0]["env"].to_string();
        let words = settings.split_whitespace().chain(variables.split('"'));
        let files = words.filter_map(|word| word.split_once("/etc/postern/"));
        for (_, file) in files {
            let directory = format!("/etc/postern/{}", file.rsplit_once('/').unwrap().0);
            assert!(mounts.contains(&directory.as_str()), "{values}: {file} is not mounted");
        }
    }
}

/// An upgrade must not touch these, or the pod gets another `PersistentVolumeClaim` without its data, or the cluster
/// refuses the change.
#[test]
fn the_data_the_keys_and_the_selectors_are_the_same_for_every_change_that_an_upgrade_allows() {
    let of = |values: &str| {
        let objects = objects(&template("postern", &case("postern", values)).unwrap());
        let set = objects.into_iter().find(|one| one["kind"] == "StatefulSet").unwrap();
        let claims = set["spec"]["volumeClaimTemplates"].as_array().unwrap();
        let claims: Vec<_> = claims.iter().map(|one| one["metadata"]["name"].clone()).collect();
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        let variables = container["env"].as_array().unwrap().iter();
        let directories: Vec<_> = variables
            .filter(|one| one["name"].as_str().unwrap().ends_with("_DIR"))
            .map(|one| one["value"].clone())
            .collect();
        let mounts = container["volumeMounts"].as_array().unwrap().iter();
        let mounts: Vec<_> = mounts.map(|one| one["mountPath"].clone()).take(2).collect();
        (
            claims,
            directories,
            mounts,
            set["spec"]["selector"].clone(),
            set["spec"]["serviceName"].clone(),
        )
    };
    assert_eq!(of("defaults"), of("ingress-nginx"));
    let (claims, directories, mounts, ..) = of("defaults");
    assert_eq!(claims, ["data", "keys"]);
    assert_eq!(directories, ["/var/lib/postern/data", "/var/lib/postern-keys/keys"]);
    assert_eq!(mounts, ["/var/lib/postern", "/var/lib/postern-keys"]);
}
