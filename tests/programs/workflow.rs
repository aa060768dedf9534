//! The workflow of GitHub is YAML that GitHub can read, and its steps run scripts that exist.

use std::{fs, path::Path};

use saphyr::{LoadableYamlNode, Yaml};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The lists of steps, of all jobs.
fn steps<'a>(workflow: &'a Yaml<'a>) -> impl Iterator<Item = &'a Yaml<'a>> {
    let jobs = workflow["jobs"].as_mapping().expect("jobs").values();
    jobs.flat_map(|job| job["steps"].as_vec().expect("a job has steps"))
}

#[test]
fn each_step_of_the_workflow_is_a_command_or_an_action() {
    let text = fs::read_to_string(format!("{ROOT}/.github/workflows/ci.yml")).expect("a workflow");
    let workflow = Yaml::load_from_str(&text).expect("valid YAML");
    let mut scripts = 0;
    for step in steps(&workflow[0]) {
        let run = step.as_mapping_get("run").and_then(Yaml::as_str);
        let uses = step.as_mapping_get("uses").and_then(Yaml::as_str);
        assert!(run.is_some() != uses.is_some(), "{step:?}");
        let words = run.unwrap_or_default().split_whitespace();
        for script in
            words.filter(|it| ["ci/", ".ci/", "tests/"].iter().any(|at| it.starts_with(at)))
        {
            assert!(Path::new(ROOT).join(script).is_file(), "{script} does not exist");
            scripts += 1;
        }
    }
    assert!(scripts > 10, "{scripts}");
}
