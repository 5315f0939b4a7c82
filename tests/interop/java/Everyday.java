// Everyday life with RabbitMQ's client for Java: `java Everyday.java PORT NAME` ends with status 0 if all holds.

import com.rabbitmq.client.*;
import com.rabbitmq.client.impl.LongStringHelper;

import java.io.IOException;
import java.util.*;
import java.util.concurrent.*;

public class Everyday {
    static final int TIME_LIMIT = 20;
    static ConnectionFactory factory = new ConnectionFactory();
    static String name;

    public static void main(String[] arguments) throws Exception {
        factory.setHost("127.0.0.1");
        factory.setPort(Integer.parseInt(arguments[0]));
        factory.setRequestedHeartbeat(1);
        name = arguments[1];
        try (Connection connection = factory.newConnection()) {
            publishAndConsume(connection);
            headersAndLargeBodies(connection);
            returnsAndConfirms(connection);
            rejectsAndDeadLetters(connection);
            transactions(connection);
            remoteProcedureCalls(connection);
            queueGone(connection);
            misuse(connection);
            Thread.sleep(3000); // three heartbeats
            check(connection.isOpen(), "heartbeats keep the connection");
        }
        wrongPassword();
        recovery();
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static BlockingQueue<Delivery> consume(Channel channel, String queue, boolean autoAck) throws IOException {
        BlockingQueue<Delivery> got = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, autoAck, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope e, AMQP.BasicProperties p, byte[] body) {
                got.add(new Delivery(e, p, body));
            }
        });
        return got;
    }

    static Delivery next(BlockingQueue<Delivery> got) throws InterruptedException {
        Delivery delivery = got.poll(TIME_LIMIT, TimeUnit.SECONDS);
        check(delivery != null, "a message came in time");
        return delivery;
    }

    record Delivery(Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
        String text() {
            return new String(body);
        }
    }

    static void publishAndConsume(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String exchange = name + ".logs", queue = name + ".q";
        channel.exchangeDeclare(exchange, BuiltinExchangeType.TOPIC, false, true, null);
        channel.queueDeclare(queue, false, false, true, null);
        channel.queueBind(queue, exchange, "kern.*");
        channel.basicQos(20);
        BlockingQueue<Delivery> got = consume(channel, queue, false);
        for (int n = 0; n < 500; n++) {
            channel.basicPublish(exchange, n % 2 == 0 ? "kern.info" : "cron.info", null, ("" + n).getBytes());
        }
        for (int n = 0; n < 500; n += 2) {
            Delivery delivery = next(got);
            check(delivery.text().equals("" + n), "in order");
            if (n % 20 == 0) channel.basicAck(delivery.envelope().getDeliveryTag(), true);
        }
        channel.close();
    }

    static void headersAndLargeBodies(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        Map<String, Object> headers = new HashMap<>();
        headers.put("text", LongStringHelper.asLongString("Grüße 世界"));
        headers.put("int", 7);
        headers.put("long", 1L << 40);
        headers.put("double", 1.5);
        headers.put("float", 0.5f);
        headers.put("short", (short) -3);
        headers.put("byte", (byte) -1);
        headers.put("decimal", new java.math.BigDecimal("12.34"));
        headers.put("date", new Date(1_700_000_000_000L));
        headers.put("yes", true);
        headers.put("none", null);
        headers.put("list", List.of(1, 2));
        headers.put("table", Map.of("a", 1));
        byte[] body = new byte[20_000_000];
        new Random(1).nextBytes(body);
        AMQP.BasicProperties properties = MessageProperties.PERSISTENT_BASIC.builder().headers(headers).build();
        channel.basicPublish("", queue, properties, body);
        Delivery delivery = next(consume(channel, queue, true));
        check(Arrays.equals(delivery.body(), body), "a large body");
        check(delivery.properties().getHeaders().equals(headers), delivery.properties().getHeaders().toString());
        channel.close();
    }

    static void returnsAndConfirms(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        BlockingQueue<Integer> returned = new LinkedBlockingQueue<>();
        channel.addReturnListener((code, text, exchange, key, properties, body) -> returned.add(code));
        String queue = channel.queueDeclare().getQueue();
        for (int n = 0; n < 100; n++) channel.basicPublish("", queue, true, null, new byte[100]);
        channel.basicPublish("", name + ".nowhere", true, null, new byte[0]);
        channel.waitForConfirmsOrDie(TIME_LIMIT * 1000);
        check(returned.poll(TIME_LIMIT, TimeUnit.SECONDS) == 312, "returned");
        check(channel.messageCount(queue) == 100, "all are there");
        check(channel.queuePurge(queue).getMessageCount() == 100, "purged");
        channel.close();
    }

    static void rejectsAndDeadLetters(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String dead = channel.queueDeclare().getQueue();
        Map<String, Object> arguments = Map.of(
            "x-dead-letter-exchange", "", "x-dead-letter-routing-key", dead, "x-max-priority", 3);
        String queue = channel.queueDeclare("", false, true, true, arguments).getQueue();
        channel.basicPublish("", queue, null, "x".getBytes());
        GetResponse response = channel.basicGet(queue, false);
        channel.basicNack(response.getEnvelope().getDeliveryTag(), false, true);
        response = channel.basicGet(queue, false);
        check(response.getEnvelope().isRedeliver(), "redelivered");
        channel.basicReject(response.getEnvelope().getDeliveryTag(), false);
        Delivery delivery = next(consume(channel, dead, true));
        check(delivery.properties().getHeaders().get("x-first-death-reason").toString().equals("rejected"), "dead");
        channel.close();
    }

    static void transactions(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        channel.txSelect();
        channel.basicPublish("", queue, null, "no".getBytes());
        channel.txRollback();
        channel.basicPublish("", queue, null, "yes".getBytes());
        channel.txCommit();
        check(new String(channel.basicGet(queue, true).getBody()).equals("yes"), "committed");
        channel.close();
    }

    static void remoteProcedureCalls(Connection connection) throws Exception {
        Channel serving = connection.createChannel(), calling = connection.createChannel();
        String queue = serving.queueDeclare().getQueue();
        RpcServer server = new RpcServer(serving, queue) {
            @Override
            public byte[] handleCall(byte[] request, AMQP.BasicProperties properties) {
                return (new String(request) + "!").getBytes();
            }
        };
        Thread thread = new Thread(() -> {
            try {
                server.mainloop();
            } catch (IOException | ShutdownSignalException error) {
                throw new IllegalStateException(error);
            }
        });
        thread.start();
        RpcClient client = new RpcClient(calling, "", queue, TIME_LIMIT * 1000);
        for (int n = 0; n < 50; n++) check(client.stringCall("hi " + n).equals("hi " + n + "!"), "answered");
        client.close();
        serving.close(); // ends its main loop
        thread.join(TIME_LIMIT * 1000);
    }

    static void queueGone(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        CountDownLatch told = new CountDownLatch(1);
        channel.basicConsume(queue, true, new DefaultConsumer(channel) {
            @Override
            public void handleCancel(String tag) {
                told.countDown();
            }
        });
        channel.queueDelete(queue);
        check(told.await(TIME_LIMIT, TimeUnit.SECONDS), "told that the queue is gone");
        channel.close();
    }

    static void misuse(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        try {
            channel.queueDeclarePassive(name + ".none");
            check(false, "refused");
        } catch (IOException error) {
            AMQP.Channel.Close reason =
                (AMQP.Channel.Close) ((ShutdownSignalException) error.getCause()).getReason();
            check(reason.getReplyCode() == 404, "404");
        }
        check(!channel.isOpen() && connection.isOpen(), "the channel alone is closed");
    }

    static void wrongPassword() throws Exception {
        ConnectionFactory wrong = factory.clone();
        wrong.setPassword("wrong");
        try {
            wrong.newConnection();
            check(false, "refused");
        } catch (AuthenticationFailureException error) {
            check(error.getMessage().contains("ACCESS_REFUSED"), error.getMessage());
        }
    }

    // The client closes its own socket under the connection: it comes back with queues and consumers.
    static void recovery() throws Exception {
        factory.setNetworkRecoveryInterval(100);
        CountDownLatch recovered = new CountDownLatch(1);
        List<java.net.Socket> sockets = new CopyOnWriteArrayList<>();
        factory.setSocketConfigurator(sockets::add);
        try (Connection connection = factory.newConnection()) {
            ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
                @Override
                public void handleRecovery(Recoverable recoverable) {
                    recovered.countDown();
                }

                @Override
                public void handleRecoveryStarted(Recoverable recoverable) {
                }
            });
            Channel channel = connection.createChannel();
            String queue = channel.queueDeclare(name + ".recovering", false, true, true, null).getQueue();
            BlockingQueue<Delivery> got = consume(channel, queue, true);
            sockets.get(0).close();
            check(recovered.await(TIME_LIMIT, TimeUnit.SECONDS), "recovered");
            channel.basicPublish("", queue, null, "after".getBytes());
            check(next(got).text().equals("after"), "consumes again");
        }
    }
}
