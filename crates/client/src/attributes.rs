//! What is kept with names besides bytes, and changes of closed files that move no bytes: one call each.

use crate::client::Client;
use base::error::{Error, ErrorKind, Result};
use net::message::file::{self, Attributes, NewAttributes};

impl Client {
    /// Changes attributes of a file or directory.
    pub async fn set_attributes(&self, path: &str, new: NewAttributes) -> Result<()> {
        let ask =
            file::SetAttributes { path: path.to_string(), new: Some(new), looked: self.looked(), user: self.user() };
        self.ask(&ask).await.map(|_| ())
    }

    /// Makes an empty file. `Exists` if there is something of that name.
    pub async fn create_empty(&self, path: &str) -> Result<()> {
        let put = file::PutFile { path: path.to_string(), ..file::PutFile::default() };
        let answer = self.ask(&file::PutFiles { files: vec![put] }).await?;
        match answer.results.into_iter().next() {
            Some(failure) if failure.code != 0 => Err(failure.into()),
            Some(_) => Ok(()),
            None => Err(Error::new(
                ErrorKind::Protocol,
                format!("the node did not say whether {path} was made; check that client and node have one version"),
            )),
        }
    }

    /// The extended attributes of a file or directory, in the order of their names' bytes.
    pub async fn xattrs(&self, path: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let answer = self.ask(&file::GetXattrs { path: path.to_string(), name: String::new() }).await?;
        Ok(answer.xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect())
    }

    /// The value of one extended attribute. `NotFound` if there is none of that name.
    pub async fn xattr(&self, path: &str, name: &str) -> Result<Vec<u8>> {
        let answer = self.ask(&file::GetXattrs { path: path.to_string(), name: name.to_string() }).await?;
        let missing = || Error::new(ErrorKind::NotFound, format!("{path} has no extended attribute {name}"));
        answer.xattrs.into_iter().find(|xattr| xattr.name == name).map(|xattr| xattr.value).ok_or_else(missing)
    }

    /// Sets an extended attribute, or with none removes it.
    pub async fn set_xattr(&self, path: &str, name: &str, value: Option<Vec<u8>>) -> Result<()> {
        let ask = file::SetXattr {
            path: path.to_string(),
            name: name.to_string(),
            value,
            asked: self.asked,
            looked: self.looked(),
        };
        self.ask(&ask).await.map(|_| ())
    }

    /// Cuts a closed file to its first `length` bytes. `Invalid` if it has fewer, `Busy` if somebody writes it.
    pub async fn truncate(&self, path: &str, length: u64) -> Result<Attributes> {
        self.ask(&file::Truncate { path: path.to_string(), length, looked: self.looked() }).await
    }

    /// Joins closed files to the end of another, in this order, all or none; they are gone then. Answers with the whole.
    pub async fn concat(&self, target: &str, sources: &[String]) -> Result<Attributes> {
        let (target, sources) = (target.to_string(), sources.to_vec());
        self.ask(&file::Concat { target, sources, asked: self.asked, looked: self.looked() }).await
    }
}
