//! How calls and answers are headed (RpcHeader.proto, IpcConnectionContext.proto, ProtobufRpcEngine2.proto).

include!(concat!(env!("OUT_DIR"), "/rpc.rs"));

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
