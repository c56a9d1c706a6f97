//! Stdout: the only door for data. Lines are gathered and written in large pieces; a reader that has gone ends the command quietly.

use crate::exit::{Fault, Result};
use base::error::Error;
use serde_json::Value;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

/// Gathered bytes are written at this size: large enough that the system call costs nothing beside the bytes.
const GATHER: usize = 64 << 10;

/// Stdout. Nothing reaches it before `flush`, or before enough is gathered.
pub struct Output {
    file: File,
    gathered: Vec<u8>,
    terminal: bool,
}

impl Output {
    /// The process' stdout.
    pub fn open() -> Result<Output> {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let descriptor =
            stdout.as_fd().try_clone_to_owned().map_err(|error| Error::from(error).during("open stdout"))?;
        Ok(Output { file: File::from(descriptor), gathered: Vec::new(), terminal })
    }

    /// A line of text.
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.gathered.extend_from_slice(text.as_bytes());
        self.gathered.push(b'\n');
        if self.gathered.len() >= GATHER { self.flush() } else { Ok(()) }
    }

    /// An object, as one line of JSON.
    pub fn json(&mut self, object: &Value) -> Result<()> {
        self.line(&object.to_string())
    }

    /// A name for people or programs: on a terminal its control characters are shown, not obeyed.
    pub fn name(&self, name: &str) -> String {
        if self.terminal { crate::show::harmless(name) } else { name.to_string() }
    }

    /// Bytes, at once. Blocks while the reader is slow.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.flush()?;
        write_all(&mut self.file, bytes)
    }

    /// Hands everything gathered to the reader.
    pub fn flush(&mut self) -> Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let gathered = std::mem::take(&mut self.gathered);
        write_all(&mut self.file, &gathered)
    }
}

fn write_all(file: &mut File, bytes: &[u8]) -> Result<()> {
    file.write_all(bytes).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Fault::ClosedPipe,
        _ => Fault::Error(Error::from(error).during("write to stdout")),
    })
}
