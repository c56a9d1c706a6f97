//! How calls and answers are headed (RpcHeader.proto, IpcConnectionContext.proto, ProtobufRpcEngine2.proto).

use bytes::Bytes;
use prost::Message;

/// Before everything that a client sends.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RequestHeader {
    /// `KIND_PROTOCOL_BUFFER`.
    #[prost(int32, optional, tag = "1")]
    pub kind: Option<i32>,
    /// `OPERATION_FINAL`.
    #[prost(int32, optional, tag = "2")]
    pub operation: Option<i32>,
    /// The call's number; negative ones are no calls.
    #[prost(sint32, required, tag = "3")]
    pub call: i32,
    /// 16 bytes that name the client; may be empty where no call is made.
    #[prost(bytes = "bytes", required, tag = "4")]
    pub client: Bytes,
    /// How often the call was made before; -1 where no call is made.
    #[prost(sint32, optional, tag = "5", default = "-1")]
    pub retry: Option<i32>,
}

/// Before every answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResponseHeader {
    /// The call's number; negative ones as their 32 bits.
    #[prost(uint32, required, tag = "1")]
    pub call: u32,
    /// `STATUS_SUCCESS` and the others.
    #[prost(int32, required, tag = "2")]
    pub status: i32,
    /// `VERSION`.
    #[prost(uint32, optional, tag = "3")]
    pub version: Option<u32>,
    /// The full name of a Java exception class.
    #[prost(string, optional, tag = "4")]
    pub class: Option<String>,
    /// What happened, for people.
    #[prost(string, optional, tag = "5")]
    pub text: Option<String>,
    /// `ERROR_APPLICATION` and the others.
    #[prost(int32, optional, tag = "6")]
    pub detail: Option<i32>,
}

/// What a client says that would prove who it is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sasl {
    /// `SASL_NEGOTIATE` and the others.
    #[prost(int32, required, tag = "2")]
    pub state: i32,
}

/// Who calls, over the whole of a connection.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ConnectionContext {
    /// Who.
    #[prost(message, optional, tag = "2")]
    pub user: Option<UserInformation>,
    /// Which protocol the connection is mostly for.
    #[prost(string, optional, tag = "3")]
    pub protocol: Option<String>,
}

/// Whose calls these are.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct UserInformation {
    /// In whose name.
    #[prost(string, optional, tag = "1")]
    pub effective: Option<String>,
    /// Who acts for them, if it is somebody else.
    #[prost(string, optional, tag = "2")]
    pub real: Option<String>,
}

/// Which method a call is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CallHeader {
    /// The method's name, UTF-8.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub method: Bytes,
    /// The protocol's name, UTF-8.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub protocol: Bytes,
    /// The protocol's version; 1 for all of them.
    #[prost(uint64, required, tag = "3")]
    pub version: u64,
}

/// The first bytes of a connection that carries calls.
pub const MAGIC: [u8; 4] = *b"hrpc";
/// Version of the protocol that frames follow.
pub const VERSION: u8 = 9;
/// How users prove who they are: they do not.
pub const AUTHENTICATION_NONE: u8 = 0;
/// By SASL; clients that hold a token of any kind say this.
pub const AUTHENTICATION_SASL: u8 = 0xDF;

/// `RequestHeader::kind` of all calls.
pub const KIND_PROTOCOL_BUFFER: i32 = 2;
/// `RequestHeader::operation` of all calls.
pub const OPERATION_FINAL: i32 = 0;

/// `call` where it is not known which call is answered.
pub const CALL_UNKNOWN: i32 = -1;
/// `call` of a `ConnectionContext`.
pub const CALL_CONTEXT: i32 = -3;
/// `call` of a sign of life, which is not answered.
pub const CALL_PING: i32 = -4;
/// `call` of a `Sasl`.
pub const CALL_SASL: i32 = -33;

/// `Sasl::state`: done.
pub const SASL_SUCCESS: i32 = 0;
/// `Sasl::state`: which ways are there?
pub const SASL_NEGOTIATE: i32 = 1;

/// `ResponseHeader::status`: done.
pub const STATUS_SUCCESS: i32 = 0;
/// `ResponseHeader::status`: this call was not done.
pub const STATUS_ERROR: i32 = 1;
/// `ResponseHeader::status`: the connection ends.
pub const STATUS_FATAL: i32 = 2;

/// `ResponseHeader::detail`: the method refused.
pub const ERROR_APPLICATION: i32 = 1;
/// `ResponseHeader::detail`: there is no such method.
pub const ERROR_NO_SUCH_METHOD: i32 = 2;
/// `ResponseHeader::detail`: there is no such protocol.
pub const ERROR_NO_SUCH_PROTOCOL: i32 = 3;
/// `ResponseHeader::detail`: the protocol has another version.
pub const ERROR_VERSION_MISMATCH: i32 = 6;
/// `ResponseHeader::detail`: the connection ends for another reason.
pub const FATAL_UNKNOWN: i32 = 10;
/// `ResponseHeader::detail`: a frame's header makes no sense.
pub const FATAL_INVALID_HEADER: i32 = 12;
/// `ResponseHeader::detail`: a frame cannot be read.
pub const FATAL_DESERIALIZING: i32 = 13;
/// `ResponseHeader::detail`: frames of another version.
pub const FATAL_VERSION_MISMATCH: i32 = 14;
/// `ResponseHeader::detail`: the user may not connect.
pub const FATAL_UNAUTHORIZED: i32 = 15;
