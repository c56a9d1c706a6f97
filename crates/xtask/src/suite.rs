//! The stages of `cargo x test`, `cargo x ci` and `cargo x nightly`, and `cargo x fuzz`.
//!
//! Every cargo call names the whole workspace and picks tests by target, never by `-p` or `--exclude`: a smaller set of
//! packages asks for fewer features of tokio and its kin, and all of them would be compiled once more for each set.

use crate::stage::{self, Action, Run, Stage};
use crate::{clients, tidy, tool, tree, tutorial};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Crates whose integration tests start servers; everybody else's are unit and model tests.
const END_TO_END_CRATES: [&str; 2] = ["cli", "node"];

/// The end-to-end test, by its full path in crates/cli/tests, that is run again with STORMWELL_DISK=threads.
/// Empty: the stage is left out.
const END_TO_END_ON_THREADS: &str = "kills::nothing_acknowledged_is_lost";

/// Formatting, clippy and tidy, the stages of `test`, then rustdoc without warnings. `Ok(true)` if all passed.
pub fn ci(root: &Path) -> Result<bool, String> {
    tool::set_up()?;
    let mut stages = vec![
        cargo("format", 1, "cargo fmt --all --check"),
        cargo("clippy", 8, "cargo clippy --release --workspace --all-targets --locked -- -D warnings"),
        Stage { name: "tidy", bound: minutes(1), action: Action::Call(tidy_stage), needed: false },
    ];
    stages.extend(test_stages(root)?);
    let docs = Run::of("cargo doc --release --workspace --no-deps --locked").with("RUSTDOCFLAGS", "-Dwarnings");
    stages.push(Stage { name: "docs", bound: minutes(2), action: Action::Run(docs), needed: false });
    stage::run_all(root, stages)
}

/// All stages of `test`, or those named, in the order of the suite. `Ok(true)` if all passed.
pub fn test(root: &Path, names: &[String]) -> Result<bool, String> {
    let mut stages = test_stages(root)?;
    let known: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no stage `{name}`; the stages are {}", known.join(", ")));
    }
    tool::set_up()?;
    stages.retain(|stage| names.is_empty() || names.iter().any(|name| name == stage.name));
    stage::run_all(root, stages)
}

/// What the landing set has no time for, some hours of it: more seeds, each planted fault, more trials, foreign jobs, every decoder for a
/// minute. It changes nothing in the tree; `--record` of the same commands does. `Ok(true)` if all passed.
pub fn nightly(root: &Path, names: &[String]) -> Result<bool, String> {
    tool::set_up()?;
    // Seeds of CI are the first hundred; these are others.
    let experiments = [
        ("simulation", 60, "sim --seeds 1000 --from 1000"),
        ("planted", 120, "sim --planted"),
        ("trials", 90, "trials --count 150"),
        ("blind", 60, "trials --blind"),
        ("clusters", 60, "trials --kind cluster --count 50"),
        ("swallowed", 10, "trials --kind swallowed --count 20"),
        ("attacks", 15, "attacks"),
    ];
    let mut stages =
        vec![Stage { needed: true, ..cargo("build", 12, "cargo build --release --workspace --bins --locked") }];
    stages.extend(experiments.map(|(name, bound, words)| Stage {
        name,
        bound: minutes(bound),
        action: Action::Run(lab_run(root, words)),
        needed: false,
    }));
    stages.push(cargo("fuzz", 90, "cargo x fuzz 60"));
    stages.extend(miri());
    stages.push(cargo("jobs", 10, "cargo x clients jobs"));
    stages.push(cargo("spark", 20, "cargo x clients spark"));
    if let Some(name) = names.iter().find(|name| stages.iter().all(|stage| stage.name != name.as_str())) {
        let known: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
        return Err(format!("there is no stage `{name}` in the nightly set; the stages are {}", known.join(", ")));
    }
    stages.retain(|stage| stage.needed || names.is_empty() || names.iter().any(|name| name == stage.name));
    stage::run_all(root, stages)
}

/// Address space of a process that feeds damaged bytes to decoders, in KiB: one that believes a length which it was sent ends there.
const DECODERS_SPACE_KIB: u64 = 2 << 20;

/// All tests that feed damaged bytes to decoders.
const DECODERS: &str = "cargo test --release --workspace --lib --bins --tests --locked -- fuzz";

/// Those tests, each for this many seconds, in so little memory that no decoder can take whatever it is told to. Built before: a compiler
/// needs more.
fn decoders(seconds: u64) -> Run {
    let words = ["sh", "-c"].map(str::to_owned).into_iter();
    let limited = format!("ulimit -v {DECODERS_SPACE_KIB} && exec {DECODERS}");
    let run = Run { words: words.chain([limited]).collect(), environment: Vec::new(), must_print: None };
    // A heap for each thread would set aside 64 MiB of addresses each.
    run.with("STORMWELL_FUZZ_SECONDS", &seconds.to_string()).with("MALLOC_ARENA_MAX", "2")
}

/// Runs every test with `fuzz` in its name, each for this many seconds of random input. An error if there is none.
pub fn fuzz(root: &Path, seconds: u64) -> Result<bool, String> {
    let listing = Command::new("cargo")
        .args(DECODERS.split_whitespace().skip(1))
        .args(["--list", "--format", "terse"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !listing.status.success() {
        return Ok(false);
    }
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let count = listing.lines().filter(|line| line.ends_with(": test")).count();
    if count == 0 {
        return Err("no test has `fuzz` in its name".to_owned());
    }
    let run = decoders(seconds);
    println!("{count} tests, {seconds} s each\nrepeat: {}", run.shell());
    match run.execute(root, None) {
        Ok(()) => Ok(true),
        Err(text) => {
            println!("fuzz: FAILED: {text}");
            Ok(false)
        }
    }
}

/// Runs an experiment of the crate `lab`, built for the whole workspace as the tests are. `Ok(true)` if it found nothing.
pub fn lab(root: &Path, experiment: &str, arguments: &[String]) -> Result<bool, String> {
    Run::of("cargo build --release --workspace --bins --locked").execute(root, None)?;
    let mut run = lab_run(root, experiment);
    run.words.extend_from_slice(arguments);
    match run.execute(root, None) {
        Ok(()) => Ok(true),
        Err(text) => {
            eprintln!("{experiment}: {text}");
            Ok(false)
        }
    }
}

/// A run of the built program `lab` with these words.
fn lab_run(root: &Path, words: &str) -> Run {
    let mut run = Run::of(words);
    run.words.insert(0, tree::release_directory(root).join("lab").display().to_string());
    run
}

/// The attacks that CI makes, one for each thing that was to be had from others: processor time, memory for messages, calls, answers,
/// packets and reads, and places. Judged as beside other work, so that they see a server that ends or stands still, not one that is slow.
const ATTACKS: &str = "attacks ranges credit nested concat paths-hdfs xattrs-hdfs empty-hdfs unread-hdfs blocks-hdfs packets-hdfs \
                       sums-hdfs reads-hdfs silent-store idle-store unread-store bags silent-console slow-hdfs --seconds 3 --connections 3000";

fn test_stages(root: &Path) -> Result<Vec<Stage>, String> {
    let targets = test_targets(root)?;
    let pick = |end_to_end: bool| -> String {
        let picked = targets.iter().filter(|(owner, _)| END_TO_END_CRATES.contains(&owner.as_str()) == end_to_end);
        picked.map(|(_, target)| format!(" --test {target}")).collect()
    };
    let mut stages = vec![
        Stage { needed: true, ..cargo("build", 12, "cargo build --release --workspace --all-targets --locked") },
        cargo("unit", 6, &format!("cargo test --release --workspace --locked --lib --bins{}", pick(false))),
        Stage { name: "decoders", bound: minutes(3), action: Action::Run(decoders(5)), needed: false },
    ];
    let end_to_end = pick(true);
    if !end_to_end.is_empty() {
        stages.push(cargo("end-to-end", 10, &format!("cargo test --release --workspace --locked{end_to_end}")));
    }
    if !END_TO_END_ON_THREADS.is_empty() {
        stages.push(on_threads(&end_to_end));
    }
    // A hundred seeds take a quarter of a minute for one node and two minutes for a cluster; of the trials `cargo x trials` runs
    // hundreds. Three clusters are tried at once.
    let experiments = [
        ("simulation", 6, "sim --seeds 100"),
        ("trials", 3, "trials --count 15"),
        ("clusters", 3, "trials --kind cluster --count 3"),
        ("swallowed", 3, "trials --kind swallowed --count 2"),
        ("attacks", 4, ATTACKS),
    ];
    for (name, bound, words) in experiments {
        let action = Action::Run(lab_run(root, words));
        stages.push(Stage { name, bound: minutes(bound), action, needed: false });
    }
    stages.push(Stage { name: "tutorial", bound: minutes(3), action: Action::Call(tutorial::run), needed: false });
    let demo = tree::release_directory(root).join("stormwell").display().to_string();
    let demo = Run { words: vec![demo, "demo".to_owned()], environment: Vec::new(), must_print: None };
    stages.push(Stage { name: "demo", bound: minutes(3), action: Action::RunAside(demo), needed: false });
    // Six minutes from cold: one for downloads, four for the contract suites, which sleep a lot.
    stages.push(Stage { name: "clients", bound: minutes(10), action: Action::Call(clients::stage), needed: false });
    Ok(stages)
}

/// The one end-to-end test that is repeated on the thread backend; it fails if the test is not there.
fn on_threads(end_to_end: &str) -> Stage {
    let words = format!("cargo test --release --workspace --locked{end_to_end} -- --exact {END_TO_END_ON_THREADS}");
    let mut run = Run::of(&words).with("STORMWELL_DISK", "threads");
    run.must_print = Some(format!("test {END_TO_END_ON_THREADS} ... ok"));
    Stage { name: "threads", bound: minutes(2), action: Action::Run(run), needed: false }
}

/// The integration tests of the tree as (crate, target), in the order of their names.
fn test_targets(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut targets = Vec::new();
    for file in tree::files(root)? {
        let parts: Vec<&str> = file.path.split('/').collect();
        match parts.as_slice() {
            ["crates", owner, "tests", target, "main.rs"] => targets.push(((*owner).to_owned(), (*target).to_owned())),
            ["crates", owner, "tests", file] => {
                targets.extend(file.strip_suffix(".rs").map(|target| ((*owner).to_owned(), target.to_owned())));
            }
            _ => {}
        }
    }
    Ok(targets)
}

fn tidy_stage(root: &Path, _limit: Option<Duration>) -> Result<(), String> {
    if tidy::run(root)? { Ok(()) } else { Err("the tree breaks its rules (above)".to_owned()) }
}

/// Unsafe code that asks the system for nothing but memory, run by Miri, which is a part of Rust's nightly toolchain; where that is not, it is
/// left out with a word.
fn miri() -> Option<Stage> {
    let there = Command::new("cargo").args(["+nightly", "miri", "--version"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("miri is left out: `rustup toolchain install nightly --component miri,rust-src` installs it");
        return None;
    }
    let words = "cargo +nightly miri test -p base --lib --locked --target-dir target/miri -- buffer::tests";
    Some(cargo("miri", 10, words))
}

fn cargo(name: &'static str, bound: u64, words: &str) -> Stage {
    Stage { name, bound: minutes(bound), action: Action::Run(Run::of(words)), needed: false }
}

fn minutes(number: u64) -> Duration {
    Duration::from_secs(number * 60)
}

#[cfg(test)]
mod tests {
    use super::{decoders, test_stages, test_targets};
    use crate::stage::Action;
    use crate::tree;

    /// Every integration test of the tree is run by exactly one stage, and the build comes first.
    #[test]
    fn nothing_is_left_out() {
        let root = tree::root().expect("tests run inside the tree");
        let stages = test_stages(&root).expect("git is there");
        assert!(stages[0].name == "build" && stages[0].needed);
        let targets = test_targets(&root).expect("git is there");
        assert!(targets.iter().any(|(owner, target)| owner == "sim" && target == "sim"), "{targets:?}");
        for (_, target) in targets {
            let runs = stages.iter().filter(|stage| match &stage.action {
                Action::Run(run) if stage.name != "threads" => run.words[0] == "cargo" && run.words.contains(&target),
                _ => false,
            });
            assert_eq!(runs.count(), 1, "{target}");
        }
    }

    /// What the tests of decoders are run with does bound the memory of a process: one that asks for more has none.
    #[test]
    fn decoders_have_little_memory() {
        let run = decoders(5);
        let [shell, option, line] = &run.words[..] else { panic!("{:?}", run.words) };
        let limit =
            line.strip_suffix(super::DECODERS).and_then(|line| line.strip_suffix("exec ")).expect("a limit first");
        let asked = format!("{limit}ulimit -v");
        let output = std::process::Command::new(shell).args([option, &asked]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2097152", "KiB");
    }
}
