//! `stormwell init`: a new cluster, which is an id and a secret in two files.

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use crate::settings::FILE_UNSAID;
use base::error::{Error, ErrorKind};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Makes a new cluster: its configuration and its secret
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell init
  stormwell init /etc/stormwell/stormwell.toml

Writes FILE with a new cluster's id, and beside it FILE with the ending .secret, which only its owner may read. Neither is replaced if it is there.
Copy both to every machine of the cluster, set `name`, `listen` and `data` there, and on all machines but one `meta`; then
stormwell serve --config FILE. Whoever has the secret may do everything: clients are given it with --secret-file.")]
pub struct Init {
    /// Where the configuration is written
    #[arg(value_name = "FILE", default_value = FILE_UNSAID)]
    file: PathBuf,
}

/// The new configuration: what must be there, and what people set next.
fn text(cluster: &str, secret_file: &str) -> String {
    format!(
        "# A node of a Stormwell cluster. docs/operate/configuration.md lists all keys; `stormwell config check FILE` names every
# fault. Paths are relative to this file. Each key is also a variable of the environment: STORMWELL_LISTEN for listen.

# The same on every machine.
cluster = \"{cluster}\"
secret_file = \"{secret_file}\"

# Who keeps the metadata: on one machine \"local\", on all others that machine.
meta = \"local\"
# meta = \"node://10.0.0.1:7400\"

# This machine.
# name = \"node1\"
# site = \"default\"
# rack = \"default\"
# listen = \"10.0.0.1:7400\"
# data = [\"/nvme/stormwell:ssd\", \"/disk/stormwell:hdd:2T\"]
"
    )
}

/// 256 bits straight from the system, as hexadecimal digits.
fn draw<const BYTES: usize>() -> base::error::Result<String> {
    let mut bytes = [0; BYTES];
    os::random::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that was not there, durably.
fn write_new(path: &Path, text: &str, private: bool) -> base::error::Result<()> {
    let mut file = if private { os::file::create_new_private(path)? } else { os::file::create_new(path)? };
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| Error::from(error).during(format!("write {}", path.display())))
}

impl Init {
    /// Writes both files.
    pub fn run(self, context: &Context) -> Result<Exit> {
        let secret_file = self.file.with_extension("secret");
        let name = match secret_file.file_name() {
            Some(name) if secret_file != self.file => name.to_string_lossy().into_owned(),
            _ => {
                let text =
                    format!("{} is no name for a configuration; write for instance {FILE_UNSAID}", self.file.display());
                return Err(Error::new(ErrorKind::Invalid, text).into());
            }
        };
        for path in [&self.file, &secret_file] {
            if os::file::exists(path)? {
                let text = format!(
                    "{} is there already, and nothing was changed; it may be all that knows a cluster: name another file, or move it away",
                    path.display()
                );
                return Err(Error::new(ErrorKind::Exists, text).into());
            }
        }
        let directory = self.file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        os::file::create_directories(directory)?;
        let cluster = draw::<16>()?;
        // The secret first: a configuration without one would be of no use.
        write_new(&secret_file, &format!("{}\n", draw::<32>()?), true)?;
        if let Err(error) = write_new(&self.file, &text(&cluster, &name), false) {
            // A secret of no cluster would be in the way of the next attempt; the error that counts is the first.
            let _ = os::file::remove(&secret_file);
            return Err(error.into());
        }
        os::file::sync_directory(directory)?;
        if context.json {
            let mut output = Output::open()?;
            let (file, secret) = (self.file.display().to_string(), secret_file.display().to_string());
            output.json(&json!({ "cluster": cluster, "config": file, "secret_file": secret }))?;
            output.flush()?;
        }
        if !context.quiet {
            let (file, secret) = (self.file.display(), secret_file.display());
            say(&format!("stormwell: cluster {cluster}: wrote {file}, and its secret to {secret}"));
        }
        Ok(Exit::Done)
    }
}
