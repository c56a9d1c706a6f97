package stormwell.clients;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hdfs.protocol.proto.ClientNamenodeProtocolProtos.GetServerDefaultsRequestProto;
import org.apache.hadoop.ipc.ClientId;
import org.apache.hadoop.ipc.RPC.RpcKind;
import org.apache.hadoop.ipc.protobuf.ProtobufRpcEngine2Protos.RequestHeaderProto;
import org.apache.hadoop.ipc.protobuf.RpcHeaderProtos.RpcRequestHeaderProto.OperationProto;
import org.apache.hadoop.security.SaslRpcServer.AuthMethod;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.thirdparty.protobuf.MessageLite;
import org.apache.hadoop.util.ProtoUtil;

/** What a thousand connections cost that did their handshake and one call each, and then nothing. */
final class Idle {
    private static final int COUNT = 1000;
    private static final String PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
    /** Call number of what says who calls. */
    private static final int CONTEXT = -3;

    private Idle() {}

    /** To be called before the server did anything else: what it has freed it would use again. */
    static void measure(Measured server, String address) throws IOException {
        URI at = URI.create(address);
        double before = server.anonymous();
        List<Socket> sockets = new ArrayList<>();
        try {
            for (int number = 0; number < COUNT; number++) {
                Socket socket = new Socket(at.getHost(), at.getPort());
                sockets.add(socket);
                greet(socket);
            }
            server.note("memory, " + COUNT + " idle connections (MB)", server.anonymous() - before);
        } finally {
            for (Socket socket : sockets) {
                socket.close();
            }
        }
    }

    private static void greet(Socket socket) throws IOException {
        byte[] client = ClientId.getClientId();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        // Version 9, no service class, no SASL.
        bytes.write("hrpc\u0009\0\0".getBytes(StandardCharsets.ISO_8859_1));
        UserGroupInformation user = UserGroupInformation.getCurrentUser();
        frame(bytes, header(CONTEXT, client), ProtoUtil.makeIpcConnectionContext(PROTOCOL, user, AuthMethod.SIMPLE));
        RequestHeaderProto call = RequestHeaderProto.newBuilder().setMethodName("getServerDefaults")
            .setDeclaringClassProtocolName(PROTOCOL).setClientProtocolVersion(1).build();
        frame(bytes, header(0, client), call, GetServerDefaultsRequestProto.getDefaultInstance());
        socket.getOutputStream().write(bytes.toByteArray());
        DataInputStream answer = new DataInputStream(socket.getInputStream());
        answer.readFully(new byte[answer.readInt()]);
    }

    private static MessageLite header(int call, byte[] client) {
        return ProtoUtil.makeRpcRequestHeader(RpcKind.RPC_PROTOCOL_BUFFER, OperationProto.RPC_FINAL_PACKET, call, -1, client);
    }

    private static void frame(ByteArrayOutputStream target, MessageLite... messages) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (MessageLite message : messages) {
            message.writeDelimitedTo(bytes);
        }
        new DataOutputStream(target).writeInt(bytes.size());
        bytes.writeTo(target);
    }
}
