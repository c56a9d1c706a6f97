//! Runs the documents that people follow as a reader would: every `sh` block, in order, in one shell, in a fresh directory
//! for each document.

use crate::clients::servers::free_ports;
use crate::stage::{self, Run};
use crate::tree;
use std::path::Path;
use std::time::Duration;

/// The documents whose commands are run.
const TUTORIALS: [&str; 3] =
    ["docs/start.md", "docs/operate/read-data-off-a-dead-node.md", "docs/operate/replace-a-device.md"];

/// Runs the session as a process group of its own and ends what is left of it, however the session or this shell ends. (Job control,
/// `set -m`, would do the same, and say `Done` of a session that ends before it is switched off again.)
const SUPERVISOR: &str = r#"
trap 'kill -KILL -- "-$session" 2>/dev/null' EXIT
trap 'exit 130' INT TERM
setsid bash "$0" & session=$!
wait "$session"
"#;

/// Runs each tutorial with the built `stormwell` first on PATH and a store address of its own.
pub fn run(root: &Path, limit: Option<Duration>) -> Result<(), String> {
    let release = tree::release_directory(root);
    if !release.join("stormwell").is_file() {
        return Err(format!("{} holds no stormwell; run `cargo x test build` first", release.display()));
    }
    TUTORIALS.into_iter().try_for_each(|name| follow(root, name, &release, limit))
}

fn follow(root: &Path, name: &str, release: &Path, limit: Option<Duration>) -> Result<(), String> {
    let text = std::fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let address = format!("127.0.0.1:{}", free_ports::<1>()?[0]);
    stage::aside("tutorial", |directory| {
        // Beside the directory that the reader works in, so that the tutorial never meets its own script.
        let script = directory.join("script");
        let place = directory.join("reader");
        std::fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        std::fs::write(&script, session(name, &text)?).map_err(|error| format!("{}: {error}", script.display()))?;
        let run = supervised(&script.display().to_string())
            .with("PATH", &format!("{}:{path}", release.display()))
            .with("STORMWELL_AT", &address);
        run.execute(&place, limit)
    })?
}

fn supervised(script: &str) -> Run {
    let mut run = Run::of("bash -c");
    run.words.extend([SUPERVISOR.to_owned(), script.to_owned()]);
    run
}

/// The shell session of a tutorial. Each line keeps its number, so that bash names the line of the document that failed.
fn session(name: &str, document: &str) -> Result<String, String> {
    let mut lines = Vec::new();
    let mut title = String::new();
    let mut fence = None;
    let mut blocks = 0;
    for (index, line) in document.lines().enumerate() {
        let number = index + 1;
        match (fence, line.strip_prefix("```")) {
            (None, Some(language)) => {
                fence = Some(language.trim() == "sh");
                if fence == Some(true) {
                    blocks += 1;
                    lines.push(format!("printf '%s\\n' '--- {name}:{number} {}'", title.replace('\'', "")));
                    continue;
                }
            }
            (Some(_), Some(_)) => fence = None,
            (Some(true), None) => {
                lines.push(line.to_owned());
                continue;
            }
            (Some(false), None) => {}
            (None, None) => {
                if line.starts_with('#') {
                    line.trim_start_matches('#').trim().clone_into(&mut title);
                }
            }
        }
        lines.push(String::new());
    }
    if fence.is_some() {
        return Err(format!("{name}: the last code block is not closed"));
    }
    if blocks == 0 {
        return Err(format!("{name} has no ```sh block; a tutorial that runs nothing proves nothing"));
    }
    // The first line is the document's title and holds no command.
    let report = format!("printf '%s\\n' \"{name}:$LINENO: ended with $?: $BASH_COMMAND\" >&2");
    lines[0] = format!("set -Eeuo pipefail; trap '{report}' ERR");
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::{session, supervised};
    use std::process::Command;

    /// Plays a document as the stage does; each test names its own script.
    fn play(name: &str, document: &str) -> (bool, String) {
        let script = std::env::temp_dir().join(format!("stormwell-xtask-{}-{name}.sh", std::process::id()));
        std::fs::write(&script, session("docs/start.md", document).expect("a good document")).expect("a script");
        let words = supervised(&script.display().to_string()).words;
        let output = Command::new(&words[0]).args(&words[1..]).output().expect("bash");
        std::fs::remove_file(&script).expect("the script is still there");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    /// Blocks run in order in one shell, other languages do not run, and each block's title is printed.
    #[test]
    fn in_order() {
        let document =
            "# Start\n\n## One\n```sh\nname=wind\n```\n```text\nfalse\n```\n## It's two\n```sh\necho $name\n```\n";
        let (ok, text) = play("order", document);
        assert!(ok, "{text}");
        assert_eq!(text, "--- docs/start.md:4 One\n--- docs/start.md:11 Its two\nwind\n");
    }

    /// A failing command ends the session and is named with its line in the document.
    #[test]
    fn failing_line() {
        let (ok, text) = play("line", "# Start\n\n```sh\ntrue\ntest 1 = 2\necho unreached\n```\n");
        assert!(!ok);
        assert!(text.contains("docs/start.md:5: ended with 1: test 1 = 2"), "{text}");
        assert!(!text.contains("unreached\n"), "{text}");
    }

    /// A failure inside a pipe or a function counts; what was started in the background ends with the session.
    #[test]
    fn strict_and_clean() {
        let (ok, _) = play("pipe", "# Start\n```sh\nfalse | cat\n```\n");
        assert!(!ok);
        // The session's own trap does not keep what it forgot alive.
        let (ok, text) =
            play("clean", "# Start\n```sh\ntrap 'true' EXIT\nsleep 600 > /dev/null 2>&1 &\necho $!\n```\n");
        assert!(ok, "{text}");
        let id = text.lines().last().expect("the number of the process");
        let stat = std::path::Path::new("/proc").join(id).join("stat");
        let state = || std::fs::read_to_string(&stat).unwrap_or_default();
        // A zombie that nobody has collected yet is dead; one that was killed needs a moment of a processor to die.
        let dead = || state().is_empty() || state().contains(") Z ");
        let gone = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            dead()
        });
        assert!(gone, "the background process {id} lives on: {}", state());
    }

    /// A document without blocks, or with one left open, is refused.
    #[test]
    fn refused() {
        assert!(session("docs/start.md", "# Start\n").is_err());
        assert!(session("docs/start.md", "# Start\n```sh\ntrue\n").is_err());
    }
}
