// Everyday life with the old client for .NET: `mono Everyday.exe PROTOCOL CHECK PORT NAME` ends with status 0 if the check holds.

using System;
using System.Collections;
using System.Linq;
using System.Text;
using System.Threading;
using RabbitMQ.Client;
using RabbitMQ.Client.Content;
using RabbitMQ.Client.Events;
using RabbitMQ.Client.Exceptions;
using RabbitMQ.Client.MessagePatterns;

static class Everyday
{
    const int Patience = 30000;

    static ConnectionFactory factory;

    static byte[] Bytes(string text) { return Encoding.UTF8.GetBytes(text); }

    static string Text(byte[] bytes) { return Encoding.UTF8.GetString(bytes); }

    static void Same(object got, object wanted)
    {
        if (!Equals(got, wanted)) throw new Exception("got " + got + ", wanted " + wanted);
    }

    static int Refused(Action action)
    {
        try { action(); }
        catch (OperationInterruptedException refusal) { return refusal.ShutdownReason.ReplyCode; }
        return 0;
    }

    static BasicDeliverEventArgs Next(Subscription subscription)
    {
        BasicDeliverEventArgs message;
        if (!subscription.Next(Patience, out message)) throw new Exception("nothing came");
        return message;
    }

    // The checks.

    static void PublishConsumeAcknowledge(IConnection connection, string name)
    {
        var channel = connection.CreateModel();
        channel.QueueDeclare(name);
        channel.BasicQos(0, 50, false);
        for (var number = 0; number < 1000; number++) channel.BasicPublish("", name, null, Bytes("" + number));
        var subscription = new Subscription(channel, name, false);
        for (var number = 0; number < 1000; number++)
        {
            Same(Text(Next(subscription).Body), "" + number);
            subscription.Ack();
        }
        subscription.Close();
        Same(channel.QueueDelete(name, false, false, false), 0u);
    }

    static void PropertiesAndLargeBodies(IConnection connection, string name)
    {
        var channel = connection.CreateModel();
        channel.QueueDeclare(name);
        var body = new byte[3 << 20];
        new Random(1).NextBytes(body);
        var sent = channel.CreateBasicProperties();
        sent.ContentType = "text/plain";
        sent.ContentEncoding = "utf-8";
        sent.SetPersistent(true);
        sent.Priority = 4;
        sent.CorrelationId = "correlation";
        sent.ReplyToAddress = new PublicationAddress("direct", "exchange", "key");
        sent.Expiration = "60000";
        sent.MessageId = "message";
        sent.Timestamp = new AmqpTimestamp(1600000000);
        sent.Type = "type";
        sent.UserId = "guest";
        sent.AppId = "application";
        sent.ClusterId = "cluster";
        sent.Headers = new Hashtable {
            { "small", -5 }, { "text", "Grüße" }, { "decimal", 12.345m }, { "time", new AmqpTimestamp(5) },
            { "table", new Hashtable { { "nested", new Hashtable { { "deep", 1 } } } } },
        };
        channel.BasicPublish("", name, sent, body);
        channel.TxSelect();  // whose answer comes after the message is in the queue
        var message = channel.BasicGet(name, true);
        var got = message.BasicProperties;
        Same(message.Body.SequenceEqual(body), true);
        Same(
            string.Join(" ", new object[] { got.ContentType, got.ContentEncoding, got.DeliveryMode, got.Priority,
                got.CorrelationId, got.ReplyToAddress, got.Expiration, got.MessageId, got.Timestamp.UnixTime,
                got.Type, got.UserId, got.AppId, got.ClusterId }),
            "text/plain utf-8 2 4 correlation direct://exchange/key 60000 message 1600000000 type guest application cluster");
        Same(got.Headers["small"], -5);
        Same(Text((byte[]) got.Headers["text"]), "Grüße");
        Same(got.Headers["decimal"], 12.345m);
        Same(((AmqpTimestamp) got.Headers["time"]).UnixTime, 5L);
        Same(((IDictionary) ((IDictionary) got.Headers["table"])["nested"])["deep"], 1);
        channel.QueueDelete(name, false, false, false);
    }

    static void MessagesOfTypes(IConnection connection, string name)
    {
        var channel = connection.CreateModel();
        channel.QueueDeclare(name);
        channel.TxSelect();
        var builder = new MapMessageBuilder(channel);
        builder.Body["number"] = 1;
        builder.Body["text"] = "two";
        channel.BasicPublish("", name, (IBasicProperties) builder.GetContentHeader(), builder.GetContentBody());
        channel.TxCommit();
        var message = channel.BasicGet(name, true);
        var reader = new MapMessageReader(message.BasicProperties, message.Body);
        Same(reader.Body["number"], 1);
        Same(reader.Body["text"], "two");
        channel.QueueDelete(name, false, false, false);
    }

    static void TransactionsAndRecovery(IConnection connection, string name)
    {
        var channel = connection.CreateModel();
        channel.QueueDeclare(name);
        channel.TxSelect();
        channel.BasicPublish("", name, null, Bytes("never"));
        channel.TxRollback();
        channel.BasicPublish("", name, null, Bytes("once"));
        Same(channel.BasicGet(name, true), null);
        channel.TxCommit();
        Same(channel.BasicGet(name, false).Redelivered, false);
        channel.BasicRecover(true);
        var again = channel.BasicGet(name, false);
        Same(Text(again.Body) + again.Redelivered, "onceTrue");
        channel.BasicReject(again.DeliveryTag, true);
        channel.QueueDelete(name, false, false, false);
    }

    static void ReturnsAndTopology(IConnection connection, string name)
    {
        var channel = connection.CreateModel();
        var returned = new ManualResetEvent(false);
        channel.BasicReturn += (model, what) => { if (what.ReplyCode == 312) returned.Set(); };
        channel.ExchangeDeclare(name, "topic");
        channel.QueueDeclare(name);
        channel.QueueBind(name, name, "a.#", false, null);
        channel.BasicPublish(name, "b", true, false, null, Bytes("for nobody"));
        Same(returned.WaitOne(Patience), true);
        channel.QueueUnbind(name, name, "a.#", null);
        channel.QueueDelete(name, false, false, false);
        channel.ExchangeDelete(name, false, false);
    }

    class Echo : SimpleRpcServer
    {
        public Echo(Subscription requests) : base(requests) { }

        public override byte[] HandleSimpleCall(bool again, IBasicProperties asked, byte[] body, out IBasicProperties answer)
        {
            answer = null;
            return body.Reverse().ToArray();
        }
    }

    static void RequestsAndReplies(IConnection connection, string name)
    {
        var channel = connection.CreateModel();
        channel.QueueDeclare(name);
        var server = new Echo(new Subscription(channel, name));
        new Thread(server.MainLoop) { IsBackground = true }.Start();
        var client = new SimpleRpcClient(connection.CreateModel(), name) { TimeoutMilliseconds = Patience };
        for (var number = 0; number < 20; number++) Same(Text(client.Call(Bytes("12"))), "21");
        client.Close();
        server.Close();
        connection.CreateModel().QueueDelete(name, false, false, false);
    }

    static void Misuse(IConnection connection, string name)
    {
        Same(Refused(() => connection.CreateModel().QueueDeclare(name, true, false, false, false, false, null)), 404);
        var channel = connection.CreateModel();
        channel.QueueDeclare(name);
        Same(Refused(() => connection.CreateModel().QueueDeclare(name, true)), 406);
        channel.BasicConsume(name, null, new QueueingBasicConsumer(channel));
        Same(Refused(() => connection.CreateModel().QueueDelete(name, true, false, false)), 406);
        channel.QueueDelete(name, false, false, false);
        Same(connection.IsOpen, true);
        // Errors that close the connection.
        Same(Refused(() => channel.ExchangeDeclare(name, "odd")), 503);
        Same(connection.IsOpen, false);
        Same(Refused(() => factory.CreateConnection().CreateModel().BasicQos(100, 0, false)), 540);
    }

    static void WrongLogins(IConnection connection, string name)
    {
        foreach (var wrong in new[] { new { Password = "wrong", Host = "/" }, new { Password = "guest", Host = "/nowhere" } })
        {
            factory.Password = wrong.Password;
            factory.VirtualHost = wrong.Host;
            try { factory.CreateConnection(); }
            catch (BrokerUnreachableException unreachable)
            {
                var errors = unreachable.ConnectionErrors.Values.Cast<Exception>();
                var refusal = wrong.Host == "/" ? typeof(PossibleAuthenticationFailureException) : typeof(OperationInterruptedException);
                Same(errors.Single().GetType(), refusal);
                continue;
            }
            throw new Exception("it is in");
        }
    }

    static int Main(string[] arguments)
    {
        factory = new ConnectionFactory { HostName = "127.0.0.1", Port = int.Parse(arguments[2]), RequestedHeartbeat = 60 };
        factory.Protocol = Protocols.Lookup(arguments[0]);
        var checks = new Action<IConnection, string>[] {
            PublishConsumeAcknowledge, PropertiesAndLargeBodies, MessagesOfTypes, TransactionsAndRecovery,
            ReturnsAndTopology, RequestsAndReplies, Misuse, WrongLogins,
        };
        var connection = factory.CreateConnection();
        checks.Single(check => check.Method.Name == arguments[1])(connection, arguments[3]);
        if (connection.IsOpen) connection.Close(200, "done", Patience);
        return 0;
    }
}
