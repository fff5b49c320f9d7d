//! The archive of an image as the OCI image specification 1.1 says: blobs by their digests, and an index. The
//! configuration also has the health check that Docker reads from it.

use std::collections::BTreeMap;

use anyhow::bail;
use serde::{Serialize, Serializer};

use super::{USER, VOLUME};
use crate::artefacts::archive::{self, Entry};
use crate::artefacts::release::{PACKAGE, Release};

/// The purpose of the image, as `deploy/Containerfile` says it.
const DESCRIPTION: &str = "The management API of a multi-tenant Kubernetes platform";

const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// Settings of the program that differ in a container from those on a machine.
const ENVIRONMENT: &[&str] = &[
    "PATH=/usr/bin",
    "POSTERN_DATA_DIR=/var/lib/postern/data",
    "POSTERN_LISTEN=0.0.0.0:8443",
    "POSTERN_AGENT_STATE_DIR=/var/lib/postern/agent",
    "POSTERN_AGENT_LISTEN=0.0.0.0:9443",
];

/// The ports of the server and of the agent.
const PORTS: &[&str] = &["8443/tcp", "9443/tcp"];

/// A second in Docker's unit.
const SECOND: u64 = 1_000_000_000;

type Labels = BTreeMap<&'static str, String>;

#[derive(Serialize)]
struct Config {
    created: String,
    architecture: &'static str,
    os: &'static str,
    #[serde(rename = "config")]
    execution: Execution,
    rootfs: RootFs,
    history: Vec<History>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Execution {
    user: String,
    #[serde(serialize_with = "as_set")]
    exposed_ports: &'static [&'static str],
    env: &'static [&'static str],
    entrypoint: Vec<String>,
    cmd: Vec<&'static str>,
    #[serde(serialize_with = "as_set")]
    volumes: &'static [&'static str],
    working_dir: &'static str,
    labels: Labels,
    healthcheck: HealthCheck,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct HealthCheck {
    test: Vec<String>,
    interval: u64,
    timeout: u64,
    start_period: u64,
    retries: u32,
}

/// Writes a set as the specification does: an object with an empty object for each member.
fn as_set<S: Serializer>(members: &[&str], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Empty {}
    serializer.collect_map(members.iter().map(|member| (member, Empty {})))
}

#[derive(Serialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: &'static str,
    diff_ids: Vec<String>,
}

#[derive(Serialize)]
struct History {
    created: String,
    created_by: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    media_type: &'static str,
    config: Descriptor,
    layers: Vec<Descriptor>,
    annotations: Labels,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    media_type: &'static str,
    manifests: Vec<Descriptor>,
}

/// The reference to a blob.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: &'static str,
    digest: String,
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<Platform>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    annotations: Labels,
}

#[derive(Serialize)]
struct Platform {
    architecture: &'static str,
    os: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LayoutFile {
    image_layout_version: &'static str,
}

/// The blobs of an image, each by its digest.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    fn add(&mut self, media_type: &'static str, bytes: Vec<u8>) -> Descriptor {
        let digest = archive::sha256(&bytes);
        let size = bytes.len();
        self.0.insert(digest.clone(), bytes);
        let (digest, annotations) = (format!("sha256:{digest}"), Labels::new());
        Descriptor { media_type, digest, size, platform: None, annotations }
    }
}

/// The archive of an image with one layer, which is a tar archive.
pub(crate) fn archive(release: &Release, layer: &[u8]) -> anyhow::Result<Vec<u8>> {
    let architecture = architecture(&release.target)?;
    let mut blobs = Blobs::default();
    let diff_id = format!("sha256:{}", archive::sha256(layer));
    let layer = blobs.add(LAYER_TYPE, archive::gzip(layer)?);
    let config = serde_json::to_vec(&config(release, architecture, diff_id))?;
    let config = blobs.add(CONFIG_TYPE, config);
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST_TYPE,
        config,
        layers: vec![layer],
        annotations: labels(release),
    };
    let mut manifest = blobs.add(MANIFEST_TYPE, serde_json::to_vec(&manifest)?);
    manifest.platform = Some(Platform { architecture, os: "linux" });
    manifest.annotations = names(release);
    let index = Index { schema_version: 2, media_type: INDEX_TYPE, manifests: vec![manifest] };
    let layout = LayoutFile { image_layout_version: "1.0.0" };
    let mut entries = vec![
        Entry::file("oci-layout", serde_json::to_vec(&layout)?),
        Entry::file("index.json", serde_json::to_vec(&index)?),
    ];
    let blob = |(digest, bytes)| Entry::file(format!("blobs/sha256/{digest}"), bytes);
    entries.extend(blobs.0.into_iter().map(blob));
    archive::tar(entries, release.epoch)
}

fn config(release: &Release, architecture: &'static str, diff_id: String) -> Config {
    let program = format!("/usr/bin/{PACKAGE}");
    let test = vec!["CMD".to_owned(), program.clone(), "health".to_owned()];
    let health = HealthCheck {
        test,
        interval: 10 * SECOND,
        timeout: 5 * SECOND,
        start_period: 60 * SECOND,
        retries: 3,
    };
    let execution = Execution {
        user: format!("{USER}:{USER}"),
        exposed_ports: PORTS,
        env: ENVIRONMENT,
        entrypoint: vec![program],
        cmd: vec!["serve"],
        volumes: &[VOLUME],
        working_dir: VOLUME,
        labels: labels(release),
        healthcheck: health,
    };
    let created_by = "cargo xtask image";
    Config {
        created: release.date.clone(),
        architecture,
        os: "linux",
        execution,
        rootfs: RootFs { kind: "layers", diff_ids: vec![diff_id] },
        history: vec![History { created: release.date.clone(), created_by }],
    }
}

/// OCI's predefined annotations, which are the labels of the image, too.
fn labels(release: &Release) -> Labels {
    let mut labels = Labels::from([
        ("org.opencontainers.image.title", PACKAGE.to_owned()),
        ("org.opencontainers.image.description", DESCRIPTION.to_owned()),
        ("org.opencontainers.image.version", release.version.clone()),
        ("org.opencontainers.image.revision", release.commit.clone()),
        ("org.opencontainers.image.created", release.date.clone()),
        ("org.opencontainers.image.licenses", release.licence.clone()),
    ]);
    if let Some(repository) = &release.repository {
        labels.insert("org.opencontainers.image.source", repository.clone());
    }
    labels
}

/// The names that an image gets when it is loaded: by tools of OCI, and by containerd and Docker.
fn names(release: &Release) -> Labels {
    let version = &release.version;
    Labels::from([
        ("org.opencontainers.image.ref.name", version.clone()),
        ("io.containerd.image.name", format!("localhost/{PACKAGE}:{version}")),
    ])
}

/// OCI's name of an architecture, which is also Go's name.
fn architecture(target: &str) -> anyhow::Result<&'static str> {
    match target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => bail!("the architecture of {target} has no name in an image"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use serde_json::{Value, json};

    use super::*;
    use crate::artefacts::release::example;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let file = |entry: std::io::Result<tar::Entry<_>>| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().display().to_string(), bytes)
        };
        archive.entries().unwrap().map(file).collect()
    }

    fn json_of(bytes: &[u8]) -> Value {
        std::str::from_utf8(bytes).unwrap().parse().unwrap()
    }

    /// The blob that a descriptor names, after its size and digest are compared.
    fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let bytes = &files[&format!("blobs/sha256/{digest}")];
        assert_eq!(archive::sha256(bytes), digest);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    #[test]
    fn every_blob_is_found_from_the_index() {
        let layer = archive::tar(vec![Entry::file("a", "b")], 9).unwrap();
        let image = super::archive(&example(), &layer).unwrap();
        assert_eq!(image, super::archive(&example(), &layer).unwrap());
        let files = files(&image);
        assert_eq!(json_of(&files["oci-layout"]), json!({ "imageLayoutVersion": "1.0.0" }));
        let index = json_of(&files["index.json"]);
        assert_eq!(index["mediaType"], INDEX_TYPE);
        let entry = &index["manifests"][0];
        assert_eq!(entry["platform"], json!({ "architecture": "amd64", "os": "linux" }));
        assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], "0.2.0");
        let manifest = json_of(blob(&files, entry));
        assert_eq!(manifest["mediaType"], MANIFEST_TYPE);
        assert_eq!(manifest["config"]["mediaType"], CONFIG_TYPE);
        assert_eq!(manifest["layers"][0]["mediaType"], LAYER_TYPE);
        let mut unpacked = Vec::new();
        let compressed = blob(&files, &manifest["layers"][0]);
        flate2::read::GzDecoder::new(compressed).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, layer);
        let config = json_of(blob(&files, &manifest["config"]));
        let diff_id = format!("sha256:{}", archive::sha256(&layer));
        assert_eq!(config["rootfs"], json!({ "type": "layers", "diff_ids": [diff_id] }));
    }

    #[test]
    fn the_configuration_is_the_one_of_a_container_without_root() {
        let mut release = example();
        let config = |release: &Release| {
            serde_json::to_value(config(release, "amd64", "sha256:1".to_owned())).unwrap()
        };
        let made = config(&release);
        let execution = &made["config"];
        for (field, expected) in [
            ("User", json!("65532:65532")),
            ("Entrypoint", json!(["/usr/bin/postern"])),
            ("Cmd", json!(["serve"])),
            ("WorkingDir", json!("/var/lib/postern")),
            ("Volumes", json!({ "/var/lib/postern": {} })),
            ("ExposedPorts", json!({ "8443/tcp": {}, "9443/tcp": {} })),
        ] {
            assert_eq!(execution[field], expected, "{field}");
        }
        let health = &execution["Healthcheck"];
        assert_eq!(health["Test"], json!(["CMD", "/usr/bin/postern", "health"]));
        assert_eq!(health["StartPeriod"], 60_000_000_000_u64);
        assert_eq!(made["created"], "1970-01-01T00:00:09Z");
        let labels = execution["Labels"].as_object().unwrap();
        for (label, expected) in [
            ("title", "postern"),
            ("description", DESCRIPTION),
            ("version", "0.2.0"),
            ("revision", "0123abcd"),
            ("created", "1970-01-01T00:00:09Z"),
            ("licenses", "Apache-2.0"),
        ] {
            assert_eq!(labels[&format!("org.opencontainers.image.{label}")], expected);
        }
        assert!(!labels.contains_key("org.opencontainers.image.source"), "there is no repository");
        release.repository = Some("https://example.com/postern".to_owned());
        let labels = &config(&release)["config"]["Labels"];
        assert_eq!(labels["org.opencontainers.image.source"], "https://example.com/postern");
    }

    /// The image that a builder makes from the Containerfile runs in the same way.
    #[test]
    fn the_containerfile_has_the_same_configuration() {
        let path = crate::shell::workspace_root().unwrap().join("deploy/Containerfile");
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.replace("\\\n", " ");
        let stage = text.rsplit("\nFROM ").next().unwrap();
        let words: Vec<_> = stage.split_whitespace().collect();
        let stage = words.join(" ") + " ";
        let instructions = [
            format!("ENV {}", ENVIRONMENT.join(" ")),
            format!("USER {USER}:{USER}"),
            format!("WORKDIR {VOLUME}"),
            format!("VOLUME [\"{VOLUME}\"]"),
            format!("EXPOSE {}", PORTS.join(" ").replace("/tcp", "")),
            format!("org.opencontainers.image.description=\"{DESCRIPTION}\""),
            "ENTRYPOINT [\"/usr/bin/postern\"]".to_owned(),
            "CMD [\"serve\"]".to_owned(),
            "HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
                CMD [\"/usr/bin/postern\", \"health\"]"
                .to_owned(),
        ];
        for instruction in instructions {
            assert!(stage.contains(&format!("{instruction} ")), "{instruction}: {stage}");
        }
    }

    #[test]
    fn an_architecture_has_the_name_that_images_have_for_it() {
        for (target, expected) in [
            ("x86_64-unknown-linux-gnu", Some("amd64")),
            ("aarch64-unknown-linux-gnu", Some("arm64")),
            ("riscv64gc-unknown-linux-gnu", None),
        ] {
            assert_eq!(architecture(target).ok(), expected);
        }
    }
}
