//! promtool accepts the rules, and their unit tests pass.

use std::process::Command;

use postern_tests::kubectl::repository;
use postern_tests::prometheus::program;

#[test]
fn promtool_accepts_the_rules_and_their_unit_tests_pass() {
    let Some(promtool) = program("promtool") else { return };
    for arguments in [["check", "rules", "postern.yaml"], ["test", "rules", "postern_test.yaml"]] {
        let mut command = Command::new(&promtool);
        command.current_dir(repository().join("deploy/alerts")).args(arguments);
        let output = command.output().unwrap();
        let printed = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success(), "{arguments:?}: {}{}", printed[0], printed[1]);
        assert!(printed[0].contains("SUCCESS"), "{arguments:?}: {}{}", printed[0], printed[1]);
    }
}
