// Each pattern with JeroMQ 0.3, which speaks ZMTP 2.0: `java OldZmq.java bind` prints the places at which it has bound, one check
// after the other; `java OldZmq.java connect` reads a place a check from its input.  It ends with status 0 if all checks hold.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import org.zeromq.ZMQ;

public class OldZmq {
    static final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    static final ZMQ.Context context = ZMQ.context(1);
    static final String large = "x".repeat(300000);
    static final String[] texts = {"one", "two", large};
    static boolean binds;

    static void same(Object got, Object wanted) {
        if (!got.equals(wanted)) {
            String text = String.valueOf(got);
            throw new AssertionError(text.substring(0, Math.min(200, text.length())));
        }
    }

    static ZMQ.Socket open(int type, String identity) throws Exception {
        ZMQ.Socket socket = context.socket(type);
        socket.setReceiveTimeOut(30000);
        socket.setLinger(30000);
        if (!identity.isEmpty()) socket.setIdentity(identity.getBytes());
        if (type == ZMQ.SUB) socket.subscribe("tea".getBytes());
        if (binds) System.out.println("tcp://127.0.0.1:" + socket.bindToRandomPort("tcp://127.0.0.1"));
        else socket.connect(lines.readLine());
        return socket;
    }

    static void send(ZMQ.Socket socket, String... parts) {
        for (int at = 0; at < parts.length; at++) socket.send(parts[at], at < parts.length - 1 ? ZMQ.SNDMORE : 0);
    }

    static List<String> receive(ZMQ.Socket socket) {
        List<String> parts = new ArrayList<>();
        do {
            byte[] part = socket.recv(0);
            if (part == null) throw new AssertionError("nothing came");
            parts.add(new String(part, java.nio.charset.StandardCharsets.ISO_8859_1));
        } while (socket.hasReceiveMore());
        return parts;
    }

    static ZMQ.Socket request() throws Exception {
        ZMQ.Socket socket = open(ZMQ.REQ, "");
        for (String text : texts) {
            send(socket, text);
            same(receive(socket), List.of("re: " + text));
        }
        return socket;
    }

    static ZMQ.Socket reply() throws Exception {
        ZMQ.Socket socket = open(ZMQ.REP, "");
        for (String text : texts) {
            same(receive(socket), List.of(text));
            send(socket, "re: " + text);
        }
        return socket;
    }

    static ZMQ.Socket publish() throws Exception {
        ZMQ.Socket socket = open(ZMQ.XPUB, "");
        same(receive(socket), List.of("\u0001tea"));
        send(socket, "coffee", "1");
        send(socket, "tea", "2");
        send(socket, "teapot", large);
        return socket;
    }

    static ZMQ.Socket subscribe() throws Exception {
        ZMQ.Socket socket = open(ZMQ.SUB, "");
        // It notices a new connection to a socket that is bound only in a call.
        same(receive(socket), List.of("tea", "2"));
        same(receive(socket), List.of("teapot", large));
        return socket;
    }

    static ZMQ.Socket push() throws Exception {
        ZMQ.Socket socket = open(ZMQ.PUSH, "");
        for (int n = 0; n < 1000; n++) send(socket, "" + n);
        send(socket, "a", "", large);
        return socket;
    }

    static ZMQ.Socket pull() throws Exception {
        ZMQ.Socket socket = open(ZMQ.PULL, "");
        for (int n = 0; n < 1000; n++) same(receive(socket), List.of("" + n));
        same(receive(socket), List.of("a", "", large));
        return socket;
    }

    static ZMQ.Socket dealer() throws Exception {
        ZMQ.Socket socket = open(ZMQ.DEALER, "anna");
        send(socket, "", "question");
        same(receive(socket), List.of("", "answer"));
        return socket;
    }

    static ZMQ.Socket router() throws Exception {
        ZMQ.Socket socket = open(ZMQ.ROUTER, "");
        same(receive(socket), List.of("berta", "", "question"));
        send(socket, "berta", "", "answer");
        return socket;
    }

    static ZMQ.Socket pair() throws Exception {
        ZMQ.Socket socket = open(ZMQ.PAIR, "");
        send(socket, "a", "", large);
        same(receive(socket), List.of("b", "", large));
        return socket;
    }

    interface Check { ZMQ.Socket run() throws Exception; }

    public static void main(String[] arguments) throws Exception {
        binds = arguments[0].equals("bind");
        List<Check> checks = List.of(
            OldZmq::request, OldZmq::reply, OldZmq::publish, OldZmq::subscribe, OldZmq::push, OldZmq::pull,
            OldZmq::dealer, OldZmq::router, OldZmq::pair);
        try {
            for (Check check : checks) {
                ZMQ.Socket socket = check.run();
                // The other side says when it has all.
                same(lines.readLine(), "done");
                socket.close();
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }
}
