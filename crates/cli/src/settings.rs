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

/// Where the store of this configuration is reached: where its node says that others reach it, else where it listens; then where the metadata's keepers
/// are. Nowhere if it does not say so, or nobody can connect there: what else is wrong with the file is said where it is read for more.
pub fn addresses_in(file: &Path) -> Vec<String> {
    let Ok((said, _)) = source::read(file) else { return Vec::new() };
    let connectable = |key| match said.get(key)? {
        (Value::Text(at), _) => address::advertised(at).ok(),
        _ => None,
    };
    let keepers = match said.get("keepers") {
        Some((Value::List(keepers), _)) => {
            keepers.iter().filter_map(|keeper| address::advertised(keeper).ok()).collect()
        }
        _ => Vec::new(),
    };
    let mut addresses = Vec::from_iter(connectable("advertise").or_else(|| connectable("listen")));
    addresses.extend(keepers.into_iter().filter(|keeper| !addresses.contains(keeper)).collect::<Vec<_>>());
    addresses
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
