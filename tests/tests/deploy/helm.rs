//! helm on the charts of this repository, with values from a file or from the command line. It has no cluster.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use postern_tests::downloads;
use postern_tests::kubectl::repository;
use serde_json::Value;

/// The charts.
pub(crate) const CHARTS: [&str; 2] = ["postern", "postern-agent"];

/// The directory of a chart.
pub(crate) fn chart(name: &str) -> PathBuf {
    repository().join("deploy/charts").join(name)
}

/// The directory of these tests.
pub(crate) fn own_directory() -> PathBuf {
    repository().join("tests/tests/deploy")
}

/// The names of the files with values of a chart, without their ending, sorted.
pub(crate) fn cases(chart: &str) -> Vec<String> {
    let directory = own_directory().join("cases").join(chart);
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> =
        files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    assert!(!names.is_empty(), "{chart} has no values to test");
    names
}

/// The file with the values of a case.
pub(crate) fn case(chart: &str, name: &str) -> PathBuf {
    own_directory().join("cases").join(chart).join(format!("{name}.yaml"))
}

/// The output of the newest helm, or its error.
pub(crate) fn run(arguments: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(downloads::path("1.37/helm"));
    command.args(arguments).env_clear().env("HOME", home.path()).stdin(Stdio::null());
    let output = command.output().expect("helm can be started");
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    if output.status.success() { Ok(out) } else { Err(format!("{out}{err}")) }
}

/// The objects of a chart with the values of a file, as YAML.
pub(crate) fn template(chart_name: &str, values: &Path) -> Result<String, String> {
    let (chart, values) = (chart(chart_name), values.to_str().unwrap().to_owned());
    let chart = chart.to_str().unwrap();
    run(&["template", "main", chart, "--namespace", "platform", "--values", &values])
}

/// The objects in YAML documents.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let documents = format!("\n{text}");
    let documents = documents.split("\n---").filter(|one| one.contains("kind:"));
    documents.map(|one| serde_saphyr::from_str(one).expect("a rendered object is YAML")).collect()
}
