//! Messages that frame every call (RpcHeader.proto, IpcConnectionContext.proto, ProtobufRpcEngine2.proto).
