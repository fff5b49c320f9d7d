//! The Debian package: its files, and its life on a machine. The machine is a copy of this one's root, in which only the
//! test writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use postern_tests::Home;
use postern_tests::kubectl::repository;

/// The package that `cargo xtask test --all` made: `POSTERN_TEST_DEB`, or the output of `cargo
/// xtask deb`.
fn package() -> PathBuf {
    let path = std::env::var_os("POSTERN_TEST_DEB");
    PathBuf::from(path.expect("POSTERN_TEST_DEB names the package: `cargo xtask deb` makes one"))
}

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out
}

/// The mode and the owner of each file in the package.
fn files() -> BTreeMap<String, (String, String)> {
    let list = output(Command::new("dpkg-deb").arg("--contents").arg(package()));
    let rows = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.map(|row| {
        let path = row[5].trim_start_matches('.').to_owned();
        (path, (row[0].to_owned(), row[1].to_owned()))
    })
    .collect()
}

#[test]
fn the_package_has_these_files_with_these_modes() {
    let files = files();
    for (path, (mode, owner)) in &files {
        let is_program = path == "/usr/bin/postern";
        let expected = match path.ends_with('/') {
            true => "drwxr-xr-x",
            false if is_program => "-rwxr-xr-x",
            false => "-rw-r--r--",
        };
        assert_eq!((mode.as_str(), owner.as_str()), (expected, "0/0"), "{path}");
    }
    for path in [
        "/usr/bin/postern",
        "/usr/lib/systemd/system/postern.service",
        "/usr/lib/systemd/system/postern-agent.service",
        "/usr/lib/sysusers.d/postern.conf",
        "/usr/lib/tmpfiles.d/postern.conf",
        "/etc/postern/postern.yaml",
        "/usr/share/doc/postern/agent.env.example",
        "/usr/share/doc/postern/copyright",
        "/usr/share/man/man1/postern.1.gz",
        "/usr/share/man/man1/postern-serve.1.gz",
        "/usr/share/bash-completion/completions/postern",
        "/usr/share/zsh/vendor-completions/_postern",
        "/usr/share/fish/vendor_completions.d/postern.fish",
    ] {
        assert!(files.contains_key(path), "{path} is not in {:?}", files.keys());
    }
}

#[test]
fn the_package_names_its_configuration_files_its_scripts_and_its_dependencies() {
    let home = Home::new();
    let control = home.path().join("control");
    output(Command::new("dpkg-deb").arg("--control").arg(package()).arg(&control));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&control.join("conffiles")), "/etc/postern/postern.yaml\n");
    for script in ["postinst", "prerm", "postrm"] {
        let source = repository().join("deploy/debian").join(script);
        assert_eq!(read(&control.join(script)), read(&source), "{script}");
    }
    let field = |name: &str| {
        let text = output(Command::new("dpkg-deb").arg("--field").arg(package()).arg(name));
        text.trim().to_owned()
    };
    assert_eq!(field("Package"), "postern");
    let version = env!("CARGO_PKG_VERSION");
    assert!(field("Version").starts_with(version), "{}", field("Version"));
    let depends = field("Depends");
    assert!(depends.contains("libc6 (>= ") && depends.contains("systemd (>= 250)"), "{depends}");
}

#[test]
fn the_paths_in_the_units_are_in_the_package() {
    let home = Home::new();
    output(Command::new("dpkg-deb").arg("--extract").arg(package()).arg(home.path()));
    for unit in ["postern.service", "postern-agent.service"] {
        let text = home.path().join("usr/lib/systemd/system").join(unit);
        let text = std::fs::read_to_string(text).unwrap();
        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=/")).unwrap();
        let program = home.path().join(start.split(' ').next().unwrap());
        let version = output(Command::new(program).arg("--version"));
        assert_eq!(version.trim(), format!("postern {}", env!("CARGO_PKG_VERSION")));
    }
}

/// Makes a copy of the root that only this process sees, and runs the commands of [`LIFE`] in it.
const MACHINE: &str = r#"set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /dev "$1/root/dev"
mount --rbind /proc "$1/root/proc"
cp "$2" "$1/root/postern.deb"
exec chroot "$1/root" sh -euc "$3"
"#;

/// Installs the package, starts the server as its unit does, installs the package again, and purges it.
const LIFE: &str = r"
dpkg --no-triggers --install /postern.deb > /dev/null
stat --format '%n %a %U' /var/lib/postern /var/lib/postern-keys /var/lib/postern-agent /etc/postern-agent
setpriv --reuid postern --regid postern --clear-groups env POSTERN_LISTEN=127.0.0.1:0 \
    postern serve --config /etc/postern/postern.yaml > /tmp/out 2> /tmp/err &
tries=0
until grep -q admin.kubeconfig /tmp/out; do
    tries=$((tries + 1))
    if [ $tries -gt 600 ] || ! kill -0 $!; then cat /tmp/err; exit 1; fi
    sleep 0.1
done
kill -TERM $!
wait $!
stat --format '%n %a %U' /var/lib/postern/admin.kubeconfig /var/lib/postern-keys/seal.keys
echo '# mine' >> /etc/postern/postern.yaml
dpkg --no-triggers --install /postern.deb > /dev/null
tail -n 1 /etc/postern/postern.yaml
dpkg --no-triggers --purge postern > /dev/null
stat --format '%n %a' /var/lib/postern/db/postern.redb /var/lib/postern-keys/seal.keys
ls /usr/bin/postern /etc/postern/postern.yaml 2> /dev/null || echo gone
";

#[test]
fn the_package_is_installed_upgraded_and_purged_and_the_data_and_the_keys_stay() {
    let namespace = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.arg("--mount").args(words);
        command
    };
    if !namespace(&["mount", "-t", "tmpfs", "none", "/mnt"]).status().unwrap().success() {
        println!("skipped: this user may not mount");
        return;
    }
    let home = Home::new();
    let mut machine = namespace(&["bash", "-c", MACHINE, "bash"]);
    let said = output(machine.arg(home.path()).arg(package()).arg(LIFE));
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "/var/lib/postern 700 postern",
            "/var/lib/postern-keys 700 postern",
            "/var/lib/postern-agent 700 postern-agent",
            "/etc/postern-agent 700 root",
            "/var/lib/postern/admin.kubeconfig 600 postern",
            "/var/lib/postern-keys/seal.keys 600 postern",
            "# mine",
            "/var/lib/postern/db/postern.redb 600",
            "/var/lib/postern-keys/seal.keys 600",
            "gone",
        ]
    );
}
