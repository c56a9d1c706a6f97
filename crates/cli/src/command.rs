//! The command line: global options, the list of subcommands, and the way from arguments to an exit code.
//!
//! To add a subcommand: a file with an `Args` struct and `async fn run(self, &Context) -> Result<Exit>`, a line in
//! `Command`, a line in `Command::run`.

use crate::context::Context;
use crate::exit::{EXIT_CODES_HELP, Exit, Result, finish, say};
use crate::{
    bag, bench, cat, chmod, chown, cluster, completion, concat, config, demo, device, df, doctor, du, explain, get,
    init, inspect, ls, mkdir, mv, node, policy, put, quota, rm, serve, stat, tail, top, touch, truncate, xattr,
};
use base::error::Error;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;

/// One fast store made of all the devices of a cluster: files, and bags of chunks.
#[derive(Debug, Parser)]
#[command(name = "stormwell", version, max_term_width = 110, after_help = EXIT_CODES_HELP)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Line {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every subcommand.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// The store's address, or those of several nodes, A,B,C, of which the first that answers is asked; `serve` listens there [env: STORMWELL_AT] [default: the configuration's, else 127.0.0.1:7400]
    #[arg(long, value_name = "HOST:PORT", global = true)]
    pub at: Option<String>,
    /// The file with the cluster's secret [env: STORMWELL_SECRET_FILE]
    #[arg(long, value_name = "FILE", global = true)]
    pub secret_file: Option<PathBuf>,
    /// The configuration of a node; other commands take the cluster, its secret and the node's address from it [env: STORMWELL_CONFIG]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Print one JSON object a line on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress and no summary on stderr; errors are still printed
    #[arg(long, global = true)]
    pub quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Put(put::Put),
    Get(get::Get),
    Cat(cat::Cat),
    Ls(ls::Ls),
    Mkdir(mkdir::Mkdir),
    Mv(mv::Mv),
    Rm(rm::Rm),
    Stat(stat::Stat),
    Tail(tail::Tail),
    Explain(explain::Explain),
    Policy(policy::Policy),
    Quota(quota::Quota),
    Touch(touch::Touch),
    Chmod(chmod::Chmod),
    Chown(chown::Chown),
    Xattr(xattr::Xattr),
    Truncate(truncate::Truncate),
    Concat(concat::Concat),
    Du(du::Du),
    Df(df::Df),
    Device(device::Device),
    Node(node::Node),
    Cluster(cluster::Cluster),
    Top(top::Top),
    Doctor(doctor::Doctor),
    Bag(bag::Bag),
    Init(init::Init),
    Config(config::Config),
    Serve(Box<serve::Serve>),
    Inspect(inspect::Inspect),
    Demo(demo::Demo),
    Bench(bench::Bench),
    Completion(completion::Completion),
}

impl Command {
    async fn run(self, context: &Context) -> Result<Exit> {
        match self {
            Command::Put(command) => command.run(context).await,
            Command::Get(command) => command.run(context).await,
            Command::Cat(command) => command.run(context).await,
            Command::Ls(command) => command.run(context).await,
            Command::Mkdir(command) => command.run(context).await,
            Command::Mv(command) => command.run(context).await,
            Command::Rm(command) => command.run(context).await,
            Command::Stat(command) => command.run(context).await,
            Command::Tail(command) => command.run(context).await,
            Command::Explain(command) => command.run(context).await,
            Command::Policy(command) => command.run(context).await,
            Command::Quota(command) => command.run(context).await,
            Command::Touch(command) => command.run(context).await,
            Command::Chmod(command) => command.run(context).await,
            Command::Chown(command) => command.run(context).await,
            Command::Xattr(command) => command.run(context).await,
            Command::Truncate(command) => command.run(context).await,
            Command::Concat(command) => command.run(context).await,
            Command::Du(command) => command.run(context).await,
            Command::Df(command) => command.run(context).await,
            Command::Device(command) => command.run(context).await,
            Command::Node(command) => command.run(context).await,
            Command::Cluster(command) => command.run(context).await,
            Command::Top(command) => command.run(context).await,
            Command::Doctor(command) => command.run(context).await,
            Command::Bag(command) => command.run(context).await,
            Command::Init(command) => command.run(context),
            Command::Config(command) => command.run(context),
            Command::Serve(command) => command.run(context).await,
            Command::Inspect(command) => command.run(context),
            Command::Demo(command) => command.run(context).await,
            Command::Bench(command) => command.run(context).await,
            Command::Completion(command) => command.run(),
        }
    }
}

/// Reads the command line, runs what it asks for, and reports how that ended.
pub fn main() -> ExitCode {
    let line = match Line::try_parse() {
        Ok(line) => line,
        Err(error) => return not_understood(&error),
    };
    // At least two: a disk may keep one for a moment (record 0446).
    let workers = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return finish(Err(Error::from(error).during("start the program's threads").into())),
    };
    let context = Context::new(line.global);
    // On the heap: `block_on` exists once for each kind of runtime, and each would hold a copy of all commands (a minute of building).
    let run: Pin<Box<dyn Future<Output = Result<Exit>>>> = Box::pin(line.command.run(&context));
    let outcome = runtime.block_on(run);
    // Threads that wait for a read of stdin would keep the program alive for nothing.
    runtime.shutdown_background();
    finish(outcome)
}

/// Help and version go to stdout and are no failure; everything else is a usage error.
fn not_understood(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that went away needs no help text.
            let _ = error.print();
            ExitCode::from(Exit::Done as u8)
        }
        _ => {
            let text = error.render().to_string();
            say(&format!("stormwell: {}", text.strip_prefix("error: ").unwrap_or(&text).trim_end()));
            ExitCode::from(Exit::Usage as u8)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Line;
    use clap::{CommandFactory, Parser};

    /// clap finds no contradiction in what is declared.
    #[test]
    fn declarations_hold() {
        Line::command().debug_assert();
    }

    /// Every subcommand says in one plain sentence what it does, and shows an example.
    #[test]
    fn every_command_has_a_sentence_and_an_example() {
        fn check(command: &clap::Command, path: &str) {
            for inner in command.get_subcommands() {
                let name = format!("{path} {}", inner.get_name());
                let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
                assert!(about.len() > 15 && !about.contains('\n'), "{name}: {about:?}");
                let after = inner.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(inner.has_subcommands() || after.contains(&name), "{name}: {after:?}");
                check(inner, &name);
            }
        }
        check(&Line::command(), "stormwell");
    }

    const GOOD: &[&str] = &[
        "put a b /c",
        "put - /c --overwrite",
        "--at 127.0.0.1:1 --json put a /b",
        "put a /b --at 127.0.0.1:1 --follow",
        "get /a -",
        "get /a /b . --sync --overwrite",
        "cat /a /b --offset 4K --length 1MiB",
        "ls",
        "ls -l -h -R /",
        "ls -lhR /a",
        "mkdir -p /a/b",
        "mv --replace /a /b",
        "rm -r /a /b",
        "stat / --json",
        "touch -c -a --time-ms 5 /a /b",
        "chmod 0 /a",
        "tail -n 3 -f /a",
        "tail -c 1K /a",
        "explain /a --json",
        "policy set /a --tier hdd --replicas 1",
        "policy set /a --inherit",
        "policy get /a",
        "quota set /a --names 5 --bytes 1T",
        "quota set /a --bytes none",
        "quota get /a --json",
        "chmod -R u+x,go= /a /b",
        "chmod -x /a",
        "chown -R ada:staff /a",
        "xattr set /a user.b c",
        "xattr ls /a --json",
        "truncate --size 1M /a",
        "concat /a /b /c",
        "du -s -h /",
        "df -h",
        "device ls --json",
        "node ls --json",
        "node drain b",
        "node rm b",
        "cluster status --json",
        "doctor --data a --data b --json",
        "top --interval 500ms --count 3 --json",
        "serve --as-new a --data a",
        "bag create b --exists-ok",
        "bag push b - --lines --chunk 1M",
        "bag push b a.log c.log --create",
        "bag pull b --exec wc -j 4",
        "bag pull b --no-wait",
        "bag seal b",
        "bag rewind b",
        "bag create b --retain --compression zstd",
        "bag stat b --json",
        "bag ls",
        "bag rm b",
        "serve",
        "serve --data a:ssd:10G --data b --at 127.0.0.1:0",
        "serve --console off --log json",
        "serve --config a.toml --listen 127.0.0.1:0 --meta node://a:1 --name n --site s --rack r --advertise b:1",
        "ls / --secret-file s --config c",
        "init",
        "init a.toml --json",
        "config check",
        "config keys --json",
        "config check a.toml --json",
        "inspect a",
        "inspect a b --list --json",
        "inspect a --verify --export b",
        "completion bash",
    ];

    const BAD: &[&str] = &[
        "",
        "putt a b",
        "put",
        "put a",
        "get /a",
        "cat",
        "cat /a --length many",
        "mv /a",
        "chmod 9 /a",
        "tail -n 3 -c 3 /a",
        "policy set /a --tier floppy",
        "policy set /a --replicas 17",
        "policy set /a --replicas 0",
        "policy set /a --inherit --tier hdd",
        "quota set /a --names many",
        "quota",
        "chmod u+q /a",
        "truncate /a",
        "concat /a",
        "xattr set /a user.b",
        "bag",
        "device",
        "top --interval 0",
        "top --interval soon",
        "top --count 0",
        "bag pull b -j 0 --exec true",
        "bag pull b -j 2",
        "bag push b --chunk 0",
        "bag push b --chunk 1T",
        "serve --data x:floppy",
        "serve --log xml",
        "serve --at 127.0.0.1:1 --listen 127.0.0.1:1",
        "config",
        "inspect",
        "inspect a --export",
        "completion basic",
    ];

    /// Command lines that people type are understood, wherever the global options stand, and wrong ones are not.
    #[test]
    fn lines() {
        for good in GOOD {
            let words = std::iter::once("stormwell").chain(good.split(' '));
            assert!(Line::try_parse_from(words).is_ok(), "{good}");
        }
        for bad in BAD {
            let words = std::iter::once("stormwell").chain(bad.split_whitespace());
            assert!(Line::try_parse_from(words).is_err(), "{bad}");
        }
    }
}
