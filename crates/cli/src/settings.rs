//! What a person may set: read from options, environment and one TOML file, in this order of strength, and judged as a whole.

mod address;
mod device;
mod judge;
pub mod key;
mod source;

pub use address::{ADDRESS_UNSAID, keepers};
pub use device::device;
pub use judge::{credentials, serving};
pub use source::{Fault, Origin, Said, Value};

use base::error::Result;
use std::path::{Path, PathBuf};

/// The configuration file when a command that wants one is told nothing.
pub const FILE_UNSAID: &str = "stormwell.toml";

/// Names the configuration file for all commands.
pub const FILE_VARIABLE: &str = "STORMWELL_CONFIG";

/// The store's address for all commands.
pub const ADDRESS_VARIABLE: &str = "STORMWELL_AT";

/// A variable of the environment as text; none if it is not set or empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The configuration file that was said, by option or environment.
pub fn file(option: Option<&Path>) -> Option<PathBuf> {
    option.map(Path::to_path_buf).or_else(|| variable(FILE_VARIABLE).map(PathBuf::from))
}

/// Where the node of this configuration is reached: where it says that others reach it, else where it listens, else where the first of the
/// metadata's keepers is. None if it does not say
/// so, or nobody can connect there: what else is wrong with the file is said where it is read for more.
pub fn address_in(file: &Path) -> Option<String> {
    let (said, _) = source::read(file).ok()?;
    let connectable = |key| match said.get(key)? {
        (Value::Text(at), _) => address::advertised(at).ok(),
        _ => None,
    };
    let first_keeper = || match said.get("keepers")? {
        (Value::List(keepers), _) => address::advertised(keepers.first()?).ok(),
        _ => None,
    };
    connectable("advertise").or_else(|| connectable("listen")).or_else(first_keeper)
}

/// Everything that is said: `options` before the environment before `file`. Faults of reading are in the second part. An error:
/// the file cannot be read at all.
pub fn gather(options: Said, file: Option<&Path>) -> Result<(Said, Vec<Fault>)> {
    let (mut said, mut faults) = (options, Vec::new());
    let (environment, wrong) = source::environment(variable);
    said = said.over(environment);
    faults.extend(wrong);
    if let Some(file) = file {
        let (in_file, wrong) = source::read(file)?;
        said = said.over(in_file);
        faults.extend(wrong);
    }
    Ok((said, faults))
}
