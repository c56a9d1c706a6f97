//! The servers that clients are run against: a real HDFS and Stormwell, each on free ports of loopback, in a directory of its own.

use super::kit::{Kit, SMALL_JVM};
use crate::stage::Run;
use crate::tree;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it answers: eight JVMs at a time, on a busy machine.
pub const START_MAX: Duration = Duration::from_secs(180);

/// Runs a server and ends it, by its id, as soon as whoever started it is gone, however that happened: then the pipe closes.
const KEEPER: &str = r#"
"$@" </dev/null & server=$!
echo $server >"$0.pid"
trap '' INT TERM HUP
cat >/dev/null
kill -TERM $server
for pause in 1 2 3 4 5 6 7 8 9 10; do kill -0 $server 2>/dev/null || exit 0; sleep 0.5; done
kill -KILL $server
"#;

/// A process that lives as long as this value, or as this program.
pub struct Kept {
    keeper: Child,
    log: PathBuf,
    pid: PathBuf,
}

impl Kept {
    /// Starts it; what it prints goes to `NAME.out` in the directory.
    pub fn start(name: &str, run: &Run, directory: &Path) -> Result<Kept, String> {
        let log = directory.join(format!("{name}.out"));
        let file = || File::options().append(true).create(true).open(&log);
        let (output, errors) = file().and_then(|one| Ok((one, file()?))).map_err(|error| format!("{name}: {error}"))?;
        let mut command = Command::new("bash");
        command.args(["-c", KEEPER, name]).args(&run.words).envs(run.environment.iter().cloned());
        command.current_dir(directory).stdin(Stdio::piped()).stdout(output).stderr(errors);
        let keeper = command.spawn().map_err(|error| format!("bash does not start: {error}"))?;
        Ok(Kept { keeper, log, pid: directory.join(format!("{name}.pid")) })
    }

    /// The id of the server itself.
    fn process(&self) -> Result<String, String> {
        let text = fs::read_to_string(&self.pid).map_err(|error| format!("{}: {error}", self.pid.display()))?;
        Ok(text.trim().to_owned())
    }

    /// Waits until `ready` says so.
    fn wait(&self, what: &str, mut ready: impl FnMut() -> bool) -> Result<(), String> {
        let start = Instant::now();
        while !ready() {
            if start.elapsed() > START_MAX {
                return Err(format!("{what} did not answer; it said\n{}", self.said()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The last that it printed and, if it is of a kit, that it logged.
    pub fn said(&self) -> String {
        last_lines(&self.log) + &last_lines(&self.log.with_extension("log"))
    }
}

impl Kept {
    /// Tells it to end, without waiting until it has.
    fn tell_to_end(&mut self) {
        drop(self.keeper.stdin.take());
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.tell_to_end();
        let _ = self.keeper.wait();
    }
}

/// A formatted HDFS that does not run yet.
pub struct PreparedHdfs {
    name_node: Run,
    data_nodes: Vec<Run>,
    place: PathBuf,
    port: u16,
    web: u16,
}

impl PreparedHdfs {
    /// What a client will write as fs.defaultFS.
    pub fn address(&self) -> String {
        format!("hdfs://127.0.0.1:{}", self.port)
    }

    /// Starts it and waits until it takes files.
    pub fn start(self) -> Result<Hdfs, String> {
        let name_node = Kept::start("namenode", &self.name_node, &self.place)?;
        name_node.wait("the NameNode", || connects(self.port))?;
        let mut hdfs = Hdfs { data_nodes: Vec::new(), name_node, port: self.port };
        for (number, run) in self.data_nodes.iter().enumerate() {
            hdfs.data_nodes.push(Kept::start(&format!("datanode-{number}"), run, &self.place)?);
        }
        let live = format!("\"NumLiveDataNodes\" : {},", self.data_nodes.len());
        for data_node in &hdfs.data_nodes {
            data_node.wait("the DataNode", || {
                let state = page(self.web, "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState");
                state.contains(&live) && state.contains("\"FSState\" : \"Operational\"")
            })?;
        }
        Ok(hdfs)
    }
}

/// One NameNode of a real HDFS and its DataNodes. The DataNodes go first.
pub struct Hdfs {
    data_nodes: Vec<Kept>,
    name_node: Kept,
    port: u16,
}

impl Hdfs {
    /// Formats one with one DataNode in this directory. `sync`: a file that is closed is on stable media.
    pub fn prepare(kit: &Kit, directory: &Path, options: &[&str], sync: bool) -> Result<PreparedHdfs, String> {
        let data = directory.join("hdfs-server/data");
        Hdfs::prepare_on(kit, directory, options, sync, &[data])
    }

    /// The same with a DataNode for each of these directories.
    pub fn prepare_on(
        kit: &Kit,
        directory: &Path,
        options: &[&str],
        sync: bool,
        data: &[PathBuf],
    ) -> Result<PreparedHdfs, String> {
        let place = directory.join("hdfs-server");
        let [port, web] = free_ports()?;
        let configure = |name: &str, data: &Path| {
            let configuration = place.join(name);
            fs::create_dir_all(&configuration).map_err(|error| format!("{}: {error}", place.display()))?;
            let text = site(&place, (port, web), data, sync);
            for name in ["core-site.xml", "hdfs-site.xml"] {
                fs::write(configuration.join(name), &text).map_err(|error| format!("{name}: {error}"))?;
            }
            Ok::<PathBuf, String>(configuration)
        };
        // The NameNode has no use for a DataNode's directory.
        let configuration = configure("conf", &place)?;
        let server = |options: &[&str], configuration: &Path, name: &str, class: &str| {
            kit.configured(options, configuration, name, &format!("org.apache.hadoop.hdfs.server.{class}"))
        };
        let mut format = server(&SMALL_JVM, &configuration, "format", "namenode.NameNode");
        format.words.extend(["-format", "-nonInteractive"].map(str::to_owned));
        format.execute(&place, Some(START_MAX))?;
        let name_node = server(options, &configuration, "namenode", "namenode.NameNode");
        let mut data_nodes = Vec::with_capacity(data.len());
        for (number, data) in data.iter().enumerate() {
            let name = format!("datanode-{number}");
            let configuration = configure(&format!("conf-{number}"), data)?;
            data_nodes.push(server(options, &configuration, &name, "datanode.DataNode"));
        }
        Ok(PreparedHdfs { name_node, data_nodes, place, port, web })
    }

    /// What a client writes as fs.defaultFS.
    pub fn address(&self) -> String {
        format!("hdfs://127.0.0.1:{}", self.port)
    }

    /// The ids of its processes, with commas.
    pub fn processes(&self) -> Result<String, String> {
        let mut ids = self.name_node.process()?;
        for data_node in &self.data_nodes {
            let _ = write!(ids, ",{}", data_node.process()?);
        }
        Ok(ids)
    }
}

impl Drop for Hdfs {
    fn drop(&mut self) {
        // All at once, or eight take as long as eight.
        self.data_nodes.iter_mut().for_each(Kept::tell_to_end);
    }
}

/// A node of Stormwell that does not run yet.
pub struct PreparedStormwell {
    run: Run,
    place: PathBuf,
    ports: [u16; 2],
}

impl PreparedStormwell {
    /// Says one option more when it is started.
    pub fn say(&mut self, option: &str, value: &str) {
        self.run.words.extend([option, value].map(str::to_owned));
    }

    /// What a client will write as fs.defaultFS.
    pub fn address(&self) -> String {
        format!("hdfs://127.0.0.1:{}", self.ports[1])
    }

    /// Starts it and waits until the gateway answers.
    pub fn start(self) -> Result<Stormwell, String> {
        let server = self.run()?;
        Ok(Stormwell { server, store: format!("127.0.0.1:{}", self.ports[0]), prepared: self })
    }

    fn run(&self) -> Result<Kept, String> {
        let server = Kept::start("stormwell", &self.run, &self.place)?;
        server.wait("Stormwell", || connects(self.ports[1]))?;
        Ok(server)
    }
}

/// A node of Stormwell with its HDFS gateway.
pub struct Stormwell {
    server: Kept,
    store: String,
    prepared: PreparedStormwell,
}

impl Stormwell {
    /// What is needed to start it on an empty directory.
    pub fn prepare(root: &Path, directory: &Path) -> Result<PreparedStormwell, String> {
        Stormwell::prepare_with(root, &directory.join("stormwell-server"), "data")
    }

    /// The same with what `--data` says, in a directory that is not there yet.
    pub fn prepare_with(root: &Path, place: &Path, data: &str) -> Result<PreparedStormwell, String> {
        let place = place.to_owned();
        fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        let ports = free_ports()?;
        let mut run = program(root);
        run.words.extend(["serve", "--console", "off", "--data", data].map(str::to_owned));
        for (option, port) in ["--at", "--hdfs"].into_iter().zip(ports) {
            run.words.extend([option.to_owned(), format!("127.0.0.1:{port}")]);
        }
        Ok(PreparedStormwell { run, place, ports })
    }

    /// Makes a cluster: its configuration and its secret.
    pub fn init(root: &Path, configuration: &Path) -> Result<(), String> {
        let mut run = program(root);
        run.words.extend(["init".to_owned(), configuration.display().to_string()]);
        run.execute(configuration.parent().unwrap_or(configuration), Some(START_MAX))
    }

    /// A node of a cluster, below `place`, with its bytes in these directories there; `keeper`: where the node is that keeps the metadata, none:
    /// this one does.
    pub fn prepare_node(
        root: &Path,
        place: &Path,
        configuration: &Path,
        (name, data): (&str, &[&str]),
        keeper: Option<&str>,
    ) -> Result<PreparedStormwell, String> {
        let place = place.join(name);
        fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        let ports = free_ports()?;
        let mut run = program(root);
        let meta = keeper.map_or("local".to_owned(), |keeper| format!("node://{keeper}"));
        let configuration = configuration.display().to_string();
        run.words.extend(["serve", "--console", "off"].map(str::to_owned));
        run.words.extend(data.iter().flat_map(|data| ["--data", data]).map(str::to_owned));
        run.words.extend(["--config", &configuration, "--name", name, "--meta", &meta].map(str::to_owned));
        for (option, port) in ["--listen", "--hdfs"].into_iter().zip(ports) {
            run.words.extend([option.to_owned(), format!("127.0.0.1:{port}")]);
        }
        Ok(PreparedStormwell { run, place, ports })
    }

    /// Makes a cluster of so many nodes below a directory, and starts them; the first one keeps the metadata.
    pub fn cluster(root: &Path, directory: &Path, count: usize) -> Result<Vec<Stormwell>, String> {
        let configuration = directory.join("stormwell.toml");
        Stormwell::init(root, &configuration)?;
        let mut nodes: Vec<Stormwell> = Vec::new();
        for number in 0..count {
            let keeper = nodes.first().map(Stormwell::store);
            let name = format!("node-{number}");
            nodes.push(Stormwell::prepare_node(root, directory, &configuration, (&name, &["data"]), keeper)?.start()?);
        }
        Ok(nodes)
    }

    /// Starts it on an empty directory and waits until the gateway answers.
    pub fn start(root: &Path, directory: &Path) -> Result<Stormwell, String> {
        Stormwell::prepare(root, directory)?.start()
    }

    /// What a client writes as fs.defaultFS.
    pub fn address(&self) -> String {
        self.prepared.address()
    }

    /// Where `stormwell` finds it.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// The id of its process.
    pub fn processes(&self) -> Result<String, String> {
        self.server.process()
    }

    /// Kills it with -9 and starts it again on the same directory and ports.
    pub fn kill_and_start(&mut self) -> Result<(), String> {
        let process = self.server.process()?;
        let killed = Command::new("kill").args(["-KILL", &process]).status();
        if !killed.is_ok_and(|status| status.success()) {
            return Err(format!("process {process} cannot be killed"));
        }
        let port = self.prepared.ports[1];
        self.server.wait("the end of Stormwell", || !connects(port))?;
        self.server = self.prepared.run()?;
        Ok(())
    }
}

/// The program `stormwell`, without arguments.
fn program(root: &Path) -> Run {
    let mut run = Run::of("");
    run.words.push(tree::release_directory(root).join("stormwell").display().to_string());
    run
}

/// The configuration of HDFS: everything on loopback, the names in this directory and the bytes in another one, one replica, no bound on
/// small blocks. DataNodes take ports when they start: one that was free before may be another one's connection by then.
fn site(place: &Path, (port, web): (u16, u16), bytes: &Path, sync: bool) -> String {
    let at = |port: u16| format!("127.0.0.1:{port}");
    properties([
        ("fs.defaultFS", format!("hdfs://{}", at(port))),
        ("dfs.namenode.rpc-address", at(port)),
        ("dfs.namenode.http-address", at(web)),
        ("dfs.datanode.address", at(0)),
        ("dfs.datanode.http.address", at(0)),
        ("dfs.datanode.ipc.address", at(0)),
        ("dfs.namenode.name.dir", format!("file://{}", place.join("name").display())),
        ("dfs.datanode.data.dir", format!("file://{}", bytes.display())),
        ("hadoop.tmp.dir", place.join("tmp").display().to_string()),
        ("dfs.replication", "1".to_owned()),
        ("dfs.namenode.fs-limits.min-block-size", "0".to_owned()),
        ("fs.trash.interval", "60".to_owned()),
        ("dfs.datanode.synconclose", sync.to_string()),
    ])
}

/// What Hadoop's programs read their configuration from.
pub fn properties<const COUNT: usize>(all: [(&str, String); COUNT]) -> String {
    let mut text = String::from("<configuration>\n");
    for (name, value) in all {
        let _ = writeln!(text, "<property><name>{name}</name><value>{value}</value></property>");
    }
    text + "</configuration>\n"
}

/// The last lines of a file, none if it is not there.
pub fn last_lines(file: &Path) -> String {
    let said = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(20)..].iter().map(|line| format!("{line}\n")).collect()
}

/// Ports that nobody listens on now, all different.
pub fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT], String> {
    let wrong = |error: std::io::Error| format!("no free port on loopback: {error}");
    let mut held = Vec::with_capacity(COUNT);
    let mut ports = [0; COUNT];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(wrong)?;
        *port = listener.local_addr().map_err(wrong)?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn connects(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), Duration::from_secs(1)).is_ok()
}

/// A page over HTTP, or nothing.
fn page(port: u16, path: &str) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let asked = write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
        let _ = asked.and_then(|()| stream.read_to_string(&mut text));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Kept, Run, free_ports};
    use std::path::Path;

    fn alive(id: &str) -> bool {
        Path::new("/proc").join(id).exists()
    }

    /// A server ends with the value that keeps it, and free ports are different ones.
    #[test]
    fn kept() {
        let directory = std::env::temp_dir().join(format!("stormwell-kept-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a fresh directory");
        let mut run = Run::of("bash -c");
        run.words.push("echo $$; exec sleep 600".to_owned());
        let kept = Kept::start("sleep", &run, &directory).expect("bash is there");
        let said = directory.join("sleep.out");
        kept.wait("sleep", || std::fs::read_to_string(&said).is_ok_and(|text| text.ends_with('\n')))
            .expect("it says its id");
        let id = std::fs::read_to_string(&said).expect("it was read before").trim().to_owned();
        assert!(alive(&id));
        drop(kept);
        assert!(!alive(&id));
        std::fs::remove_dir_all(&directory).expect("it is ours");
        let [one, two] = free_ports().expect("loopback has ports");
        assert_ne!(one, two);
    }
}
