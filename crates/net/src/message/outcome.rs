//! How a question ended that has no more to say.

use base::error::{Error, ErrorKind};
use prost::Message;

/// The answer to a question that only wants to be done.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Done {}

/// Why a question was not answered.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Failure {
    /// `base::error::ErrorKind::code`.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// What happened, whether data is safe, what to do next.
    #[prost(string, tag = "2")]
    pub text: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { code: error.kind().code(), text: error.text().to_string() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::new(ErrorKind::from_code(failure.code), failure.text)
    }
}
