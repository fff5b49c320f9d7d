//! The Containerfile. No test builds it: it needs a builder. `cargo xtask image` makes the image that tests run.

use postern_tests::kubectl::repository;

/// The instructions of all stages, with continued lines joined.
fn instructions() -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("deploy/Containerfile")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let lines = lines.replace("\\\n", " ");
    lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The instructions of the last stage.
fn last_stage() -> Vec<String> {
    let lines = instructions();
    let last = lines.iter().rposition(|line| line.starts_with("FROM ")).unwrap();
    lines[last..].to_vec()
}

#[test]
fn the_image_has_nothing_but_the_program_and_runs_without_root() {
    let stage = last_stage();
    assert_eq!(stage[0], "FROM scratch");
    let of = |name: &str| {
        let found = stage.iter().filter_map(|line| line.strip_prefix(&format!("{name} ")));
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of("RUN"), [""; 0], "there is no shell in it");
    let user = &of("USER")[0];
    let (id, group) = user.split_once(':').expect("a user and a group");
    let ids: [u64; 2] = [id, group].map(|id| id.parse().expect("an id is a number"));
    assert!(!ids.contains(&0), "{user}");
    assert_eq!(of("ENTRYPOINT"), [r#"["/usr/bin/postern"]"#]);
    assert_eq!(of("CMD"), [r#"["serve"]"#]);
    assert!(of("HEALTHCHECK")[0].ends_with(r#"CMD ["/usr/bin/postern", "health"]"#));
    for label in ["title", "description", "licenses", "version", "revision", "source"] {
        let label = format!("org.opencontainers.image.{label}=");
        assert!(of("LABEL")[0].contains(&label), "{label}");
    }
    // The chart runs the image as the same user, on a volume at the same place.
    let values = repository().join("deploy/charts/postern/values.yaml");
    let values: serde_json::Value =
        serde_saphyr::from_str(&std::fs::read_to_string(values).unwrap()).unwrap();
    let of_chart = ["runAsUser", "runAsGroup"].map(|name| values[name].as_u64().unwrap());
    assert_eq!(ids, of_chart);
    assert_eq!(of("VOLUME"), [r#"["/var/lib/postern"]"#]);
}

/// The program is built like a release: with the console, the features and the profile of `cargo
/// xtask dist`.
#[test]
fn the_program_is_that_of_a_release() {
    let lines = instructions();
    let position = |part: &str| lines.iter().position(|line| line.contains(part)).expect(part);
    let build = position("cargo build ");
    assert!(position("npm run build") < position("COPY --from=console"));
    assert!(position("COPY --from=console") < build, "the program has the console in it");
    for part in ["--profile dist", "--locked", "--features otel"] {
        assert!(lines[build].contains(part), "{part}");
    }
    assert!(position("-Cstrip=symbols") < build);
    // Earlier builds on the machine do not get into it.
    let ignored = repository().join("deploy/Containerfile.dockerignore");
    let ignored = std::fs::read_to_string(ignored).unwrap();
    for part in ["target", "console/dist", "console/node_modules"] {
        assert!(ignored.lines().any(|line| line == part), "{part}");
    }
}
