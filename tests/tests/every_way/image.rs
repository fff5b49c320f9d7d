//! Server and agent from the image of `cargo xtask image`, as a container runtime runs them: in namespaces of their own,
//! without root. The root directory is read-only. There is a volume for the data and one for the keys.
//!
//! `unshare` takes the place of the runtime. The network is the one of the machine.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use postern_tests::cli::CliUser;
use postern_tests::kubectl::repository;
use postern_tests::{AgentSetup, Home, Server, Setup, binary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The mount point of the volume for the keys.
const KEYS: &str = "/var/lib/postern-keys";

/// Starts a program of the image. It gets the arguments of the script, with the volume's path in the image in place of
/// the path here. `--kill-child` ends it with the script.
const SCRIPT: &str = r#"#!/bin/bash
set -eu
root='ROOT'; home='HOME'; volume='VOLUME'; key_home='KEY_HOME'; key_volume='KEY_VOLUME'
set -- "${@//$home/$volume}"
unshare=$(command -v unshare); bash=$(command -v bash); mount=$(command -v mount)
ENVIRONMENT
exec "$unshare" --user --map-root-user --mount --pid --fork --kill-child "$bash" -eu -c '
unshare=$1 mount=$2 root=$3 home=$4 volume=$5 key_home=$6 key_volume=$7
shift 7
"$mount" --bind "$root" "$root"
"$mount" --bind "$home" "$root$volume"
"$mount" --bind "$key_home" "$root$key_volume"
"$mount" -o remount,bind,ro,nosuid,nodev "$root"
exec "$unshare" --user --map-user=USER --map-group=GROUP --root "$root" --wd "$volume" -- "$@"
' in-image "$unshare" "$mount" "$root" "$home" "$volume" "$key_home" "$key_volume" ENTRYPOINT "$@"
"#;

/// An unpacked image.
struct Image {
    /// The directory that is the root of a container.
    root: PathBuf,
    config: Value,
}

impl Image {
    /// Makes the image with the binary under test, and unpacks it.
    fn make(directory: &Path) -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut make = Command::new(cargo);
        make.current_dir(repository()).args(["xtask", "image", "--binary"]).arg(binary::path());
        output_of(make.arg("--out").arg(directory));
        let mut check = Command::new("sha256sum");
        output_of(check.current_dir(directory).args(["--check", "--strict", "SHA256SUMS"]));
        let mut files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let archive = files.find(|path| path.extension().is_some_and(|end| end == "tar"));
        let (layout, root) = (directory.join("layout"), directory.join("root"));
        unpack(&archive.expect("there is an image"), &layout);
        let index = json_of(&layout.join("index.json"));
        let manifest = json_of(&blob(&layout, &index["manifests"][0]));
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 1);
        let layer = blob(&layout, &layers[0]);
        unpack(&layer, &root);
        let mut list = Command::new("tar");
        let listed =
            output_of(list.args(["--list", "--verbose", "--numeric-owner", "--file"]).arg(layer));
        assert_owners(&listed);
        Self { root, config: json_of(&blob(&layout, &manifest["config"]))["config"].clone() }
    }

    /// The script that starts the program of the image with these homes as the volumes.
    fn script(&self, home: &Home, keys: &Home) -> PathBuf {
        let texts = |field: &str| {
            let values = self.config[field].as_array().unwrap().iter();
            values.map(|value| value.as_str().unwrap()).collect::<Vec<_>>()
        };
        let (user, group) = self.config["User"].as_str().unwrap().split_once(':').unwrap();
        let volumes = self.config["Volumes"].as_object().unwrap();
        let volume = volumes.keys().next().expect("there is a volume");
        assert_eq!(self.config["WorkingDir"], *volume);
        // A variable that the test sets replaces the one of the image.
        let set = |variable: &&str| {
            let (name, value) = variable.split_once('=').unwrap();
            let value =
                if name == "PATH" { value.to_owned() } else { format!("${{{name}-{value}}}") };
            format!("export {name}={value}\n")
        };
        let environment: String = texts("Env").iter().map(set).collect();
        let script = [
            ("ROOT", self.root.to_str().unwrap()),
            ("KEY_HOME", keys.path().to_str().unwrap()),
            ("KEY_VOLUME", KEYS),
            ("HOME", home.path().to_str().unwrap()),
            ("VOLUME", volume),
            ("ENVIRONMENT", &environment),
            ("USER", user),
            ("GROUP", group),
            ("ENTRYPOINT", &texts("Entrypoint").join(" ")),
        ]
        .into_iter()
        .fold(SCRIPT.to_owned(), |script, (name, value)| script.replace(name, value));
        let path = home.path().join("in-image");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn command(&self) -> Vec<String> {
        serde_json::from_value(self.config["Cmd"].clone()).unwrap()
    }

    /// Runs the health check. The result says whether it succeeded, with its output.
    fn check_health(&self, script: &Path) -> (bool, String) {
        let test: Vec<&str> = self.config["Healthcheck"]["Test"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap())
            .collect();
        assert_eq!(test[..2], ["CMD", "/usr/bin/postern"]);
        run(script, &test[2..])
    }
}

/// Runs a command to its end, which has to be a success.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn unpack(archive: &Path, directory: &Path) {
    std::fs::create_dir_all(directory).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--no-same-owner", "--file"]).arg(archive).arg("--directory");
    output_of(tar.arg(directory));
}

fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().unwrap();
    layout.join("blobs").join(digest.replace(':', "/"))
}

fn json_of(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Only the directories of volumes belong to the user of the image, only `/tmp` is for all, and there is no shell.
fn assert_owners(listed: &str) {
    let lines: Vec<_> = listed.lines().collect();
    let with = |start: &str| {
        let found = lines.iter().filter(|line| line.starts_with(start));
        found.map(|line| line.rsplit(' ').next().unwrap()).collect::<Vec<_>>()
    };
    let volumes = ["var/lib/postern/", "var/lib/postern-keys/"];
    assert_eq!(with("drwx------ 65532/65532 "), volumes, "{listed}");
    assert_eq!(with("drwxrwxrwt 0/0 "), ["tmp/"], "{listed}");
    let others = lines.len() - 3;
    assert_eq!(
        with("drwxr-xr-x 0/0 ").len()
            + with("-rw-r--r-- 0/0 ").len()
            + with("-rwxr-xr-x 0/0 ").len(),
        others
    );
    let programs: Vec<_> = with("-rwxr-xr-x 0/0 ");
    let programs: Vec<_> = programs.iter().filter(|path| !path.contains(".so")).collect();
    assert_eq!(programs, [&"usr/bin/postern"], "{listed}");
}

/// The process in the container: the child of `unshare`, which has become the program.
fn inner(outer: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"));
    children.unwrap().trim().parse().expect("unshare has one child")
}

/// Checks that the process is the first of its namespace, with the image's user and without a
/// capability.
fn assert_confined(process: u32) {
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap();
    let status = of("status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().to_owned()
    };
    assert!(field("NSpid").ends_with("\t1"), "{status}");
    assert_eq!(field("CapEff"), "0000000000000000");
    for map in ["uid_map", "gid_map"] {
        let ids = of(map);
        let ids: Vec<_> = ids.split_whitespace().collect();
        assert_eq!((ids[0], ids[2]), ("65532", "1"), "{map}");
    }
}

/// Runs a command of the image. The result says whether it succeeded, with its output.
fn run(script: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(script).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn server_and_agent_run_from_the_image_without_root_on_a_read_only_root() {
    let probe = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "true"];
    let permitted = Command::new("unshare").args(probe).status();
    assert!(
        permitted.is_ok_and(|status| status.success()),
        "this machine does not permit `unshare {}`: containers need user namespaces",
        probe.join(" ")
    );
    let directory = Home::new();
    let image = Image::make(directory.path());
    let (home, keys) = (Home::new(), Home::new());
    // A volume that is new gets the owner and the mode of its mount point.
    let mount_point = image.root.join(KEYS.trim_start_matches('/'));
    assert_eq!(mode_of(&mount_point), 0o700);
    assert_eq!(std::fs::read_dir(&mount_point).unwrap().count(), 0);
    let script = image.script(&home, &keys);
    assert!(run(&script, &["--version"]).1.starts_with("postern "));
    let (written, said) = run(&script, &["man", "--out", "/usr/share/man"]);
    assert!(!written && said.contains("Read-only file system"), "{said}");
    let (written, said) = run(&script, &["man", "--out", "/var/lib/postern/man"]);
    assert!(written && home.path().join("man/postern.1").exists(), "{said}");

    let central = Setup::bare(&home).program(script.clone());
    let central = image.command().into_iter().fold(central, Setup::argument);
    let central = central.argument("--allow-local-upstreams").argument("--drain-timeout=1s");
    let central = central.environment("POSTERN_KEY_DIR", format!("{KEYS}/keys"));
    let mut central = central.environment("POSTERN_LISTEN", "127.0.0.1:0").start().await;
    assert_confined(inner(central.id()));
    assert_eq!(mode_of(&keys.path().join("keys")), 0o700);
    assert_eq!(mode_of(&keys.path().join("keys/seal.keys")), 0o600);
    assert!(!home.data().join("keys").exists(), "the data are apart from the keys");
    let (healthy, said) = image.check_health(&script);
    assert!(healthy, "{said}");

    let member = Server::start().await;
    let cli = CliUser::new().with("KUBECONFIG", home.kubeconfig().to_str().unwrap());
    let key = cli.ok(&["create", "cluster", "member"]).await;
    let upstream = home.path().join("upstream");
    std::fs::copy(member.home().kubeconfig(), &upstream).unwrap();
    let agent = AgentSetup::new(&home, central.kubeconfig(), "member", key.trim(), &upstream)
        .program(script.clone())
        .argument("--advertise=127.0.0.1")
        .argument("--allow-local-upstreams");
    let agent = agent.start().await;
    assert_confined(inner(agent.id()));
    drop(agent);

    // The first process of a namespace has to handle the signal itself.
    let process = Pid::from_raw(inner(central.id()).try_into().unwrap()).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    let status = central.ended().await;
    assert!(status.success(), "the server ended with {status}: {}", home.logged());
    let (healthy, said) = image.check_health(&script);
    assert!(!healthy, "there is no server: {said}");
}
