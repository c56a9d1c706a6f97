//! `stormwell bench`, as far as it can be tried in seconds.

use crate::store::{binary, run, scratch};
use serde_json::Value;

/// The rows about many names come when they are named, with figures, and find every name that was made, before and after a kill. The rows
/// print objects, and stderr says how far it is.
#[test]
fn many_names() {
    let scratch = scratch("bench");
    let rows = ["names_memory", "names_restart", "names_stat", "names_load"];
    let mut command = binary();
    command.args(["bench", "--quick", "--json", "--names", "10000", "--only", &rows.join(",")]);
    command.arg("--data").arg(scratch.path());
    let ended = run(command, b"").done();
    let objects: Vec<Value> = ended.text().lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let names: Vec<&str> = objects.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, rows);
    assert!(objects.iter().all(|row| row["value"].as_f64().is_some_and(|value| value > 0.0)), "{objects:?}");
    assert!(objects[0]["note"].as_str().is_some_and(|note| note.contains("11000 empty files")), "{}", objects[0]);
    assert!(ended.stderr.contains("creates while the other half is removed"), "{}", ended.stderr);
}
