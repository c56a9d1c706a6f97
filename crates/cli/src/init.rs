//! `stormwell init`: a new cluster, which is an id and a secret in two files.

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use crate::settings::{self, FILE_UNSAID};
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
  stormwell init --keepers 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400

Writes FILE with a new cluster's id, and beside it FILE with the ending .secret, which only its owner may read. Neither is replaced if it is there.
Copy both to every machine of the cluster, set `name`, `listen` and `data` there, and without --keepers on all machines but one `meta`; then
stormwell serve --config FILE. Whoever has the secret may do everything: clients are given it with --secret-file.")]
pub struct Init {
    /// Where the configuration is written
    #[arg(value_name = "FILE", default_value = FILE_UNSAID)]
    file: PathBuf,
    /// Who keeps the metadata together: three or five nodes, by the address at which others reach each
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    keepers: Vec<String>,
}

/// The new configuration: what must be there, and what people set next.
fn text(cluster: &str, secret_file: &str, keepers: &[String]) -> String {
    let kept = match keepers {
        [] => "
# Who keeps the metadata: on one machine \"local\", on all others that machine.
meta = \"local\"
# meta = \"node://10.0.0.1:7400\"
"
        .to_string(),
        keepers => {
            let list: Vec<String> = keepers.iter().map(|keeper| format!("\"{keeper}\"")).collect();
            format!(
                "# The nodes that keep the metadata, by their `advertise` or `listen`.\nkeepers = [{}]\n",
                list.join(", ")
            )
        }
    };
    format!(
        "# A node of a Stormwell cluster. docs/operate/configuration.md lists all keys; `stormwell config check FILE` names every
# fault. Paths are relative to this file. Each key is also a variable of the environment: STORMWELL_LISTEN for listen.

# The same on every machine.
cluster = \"{cluster}\"
secret_file = \"{secret_file}\"
{kept}
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
        if !self.keepers.is_empty() {
            let list: Vec<&str> = self.keepers.iter().map(String::as_str).collect();
            settings::keepers(&list).map_err(|error| error.during("--keepers"))?;
        }
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
        if let Err(error) = write_new(&self.file, &text(&cluster, &name, &self.keepers), false) {
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

#[cfg(test)]
mod tests {
    use super::text;
    use crate::settings::keepers;

    /// What is written says who keeps the metadata, once.
    #[test]
    fn who_keeps_the_metadata() {
        let alone = text("c", "s", &[]);
        assert!(alone.contains("\nmeta = \"local\"\n") && !alone.contains("keepers"), "{alone}");
        let three = text("c", "s", &["a:1", "b:2", "[fd00::1]:3"].map(str::to_string));
        assert!(
            three.contains("\nkeepers = [\"a:1\", \"b:2\", \"[fd00::1]:3\"]\n") && !three.contains("meta ="),
            "{three}"
        );
        // Nothing is written that would not be read.
        assert!(keepers(&["a:1", "b:2", "c\":3"]).is_err());
    }
}
