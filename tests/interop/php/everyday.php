<?php
// Everyday life with php-amqplib: `php everyday.php CHECK PORT NAME` ends with status 0 if the check holds.

require_once 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPConnectionClosedException;
use PhpAmqpLib\Exception\AMQPProtocolChannelException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

error_reporting(E_ALL & ~E_DEPRECATED); // this version is older than PHP 8.2
set_error_handler(function ($level, $text, $file, $line) {
    if (error_reporting() & $level) {
        throw new ErrorException($text, 0, $level, $file, $line);
    }
});

function same($got, $wanted)
{
    if ($got !== $wanted) {
        throw new Exception('got ' . json_encode($got) . ', wanted ' . json_encode($wanted));
    }
}

function connect($port, $password = 'guest')
{
    return new AMQPStreamConnection('127.0.0.1', $port, 'guest', $password);
}

function wait_for($channel, $there)
{
    while (!$there()) {
        $channel->wait(null, false, 60);
    }
}

const TABLE = [
    'text' => 'Grüße 世界', 'small' => -5, 'large' => 2 ** 50, 'yes' => true, 'none' => null,
    'list' => [1, 'two', [3]], 'table' => ['nested' => ['deep' => 1]],
];

$checks = [
    'publish_consume_acknowledge' => function ($connection, $name) {
        $channel = $connection->channel();
        $channel->queue_declare($name, false, false, false, false);
        for ($number = 0; $number < 1000; $number++) {
            $channel->batch_basic_publish(new AMQPMessage("$number"), '', $name);
        }
        $channel->publish_batch();
        $channel->basic_qos(0, 50, false);
        $got = [];
        $tag = $channel->basic_consume($name, '', false, false, false, false, function ($message) use (&$got) {
            $got[] = (int) $message->body;
            $message->ack();
        });
        wait_for($channel, function () use (&$got) {
            return count($got) === 1000;
        });
        same($got, range(0, 999));
        $channel->basic_cancel($tag);
        same($channel->queue_delete($name), 0);
    },

    'topology' => function ($connection, $name) {
        $channel = $connection->channel();
        $channel->confirm_select();
        $channel->exchange_declare("$name.rest", 'fanout', false, false, false);
        $alternate = new AMQPTable(['alternate-exchange' => "$name.rest"]);
        $channel->exchange_declare($name, 'topic', false, false, false, false, false, $alternate);
        $channel->exchange_declare("$name.in", 'headers', false, false, false, true);
        $channel->exchange_bind("$name.in", $name, 'a.#');
        $channel->queue_declare($name, false, false, false, false);
        $wanted = new AMQPTable(['x-match' => 'any', 'wanted' => true, 'also' => 1]);
        $channel->queue_bind($name, "$name.in", '', false, $wanted);
        [$rest] = $channel->queue_declare('', false, false, true);
        $channel->queue_bind($rest, "$name.rest");
        foreach (['yes' => true, 'no' => false] as $body => $value) {
            $headers = ['application_headers' => new AMQPTable(['wanted' => $value])];
            $channel->basic_publish(new AMQPMessage($body, $headers), $name, 'a.b');
        }
        $channel->basic_publish(new AMQPMessage('rest'), $name, 'b');
        $channel->wait_for_pending_acks(60);
        same($channel->basic_get($name, true)->body, 'yes');
        same($channel->basic_get($name, true), null);
        same($channel->basic_get($rest, true)->body, 'rest');
        $channel->queue_unbind($name, "$name.in", '', $wanted);
        $channel->exchange_unbind("$name.in", $name, 'a.#');
        foreach (["$name.in", $name, "$name.rest"] as $exchange) {
            $channel->exchange_delete($exchange);
        }
        $channel->queue_delete($name);
    },

    'confirms_and_nacks' => function ($connection, $name) {
        $channel = $connection->channel();
        $channel->confirm_select();
        $confirmed = $refused = 0;
        $channel->set_ack_handler(function () use (&$confirmed) {
            $confirmed++;
        });
        $channel->set_nack_handler(function () use (&$refused) {
            $refused++;
        });
        $limit = new AMQPTable(['x-max-length' => 3, 'x-overflow' => 'reject-publish']);
        $channel->queue_declare($name, false, true, false, false, false, $limit);
        for ($number = 0; $number < 4; $number++) {
            $channel->basic_publish(new AMQPMessage('x', ['delivery_mode' => 2]), '', $name);
        }
        $channel->wait_for_pending_acks(60);
        same([$confirmed, $refused], [3, 1]);
        $channel->queue_delete($name);
    },

    'returns' => function ($connection, $name) {
        $channel = $connection->channel();
        $returned = [];
        $channel->set_return_listener(function ($code, $text, $exchange, $key, $message) use (&$returned) {
            $returned[] = [$code, $message->body];
        });
        $channel->basic_publish(new AMQPMessage('lost'), '', $name, true);
        wait_for($channel, function () use (&$returned) {
            return count($returned) > 0;
        });
        same($returned, [[312, 'lost']]);
    },

    'requeue_reject_and_dead_letters' => function ($connection, $name) {
        $channel = $connection->channel();
        $channel->queue_declare("$name.dead", false, false, false, false);
        $dead = new AMQPTable(['x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => "$name.dead"]);
        $channel->queue_declare($name, false, false, false, false, false, $dead);
        $channel->basic_publish(new AMQPMessage('x'), '', $name);
        $channel->basic_get($name)->nack(true);
        $again = $channel->basic_get($name);
        same($again->isRedelivered(), true);
        $arrived = [];
        $channel->basic_consume("$name.dead", '', false, true, false, false, function ($message) use (&$arrived) {
            $arrived[] = $message->get('application_headers')->getNativeData()['x-death'][0];
        });
        $again->reject(false);
        wait_for($channel, function () use (&$arrived) {
            return count($arrived) > 0;
        });
        same([$arrived[0]['reason'], $arrived[0]['count']], ['rejected', 1]);
        $channel->queue_delete($name);
        $channel->queue_delete("$name.dead");
    },

    'properties_of_all_types_and_large_bodies' => function ($connection, $name) {
        $channel = $connection->channel();
        $channel->queue_declare($name, false, false, false, false);
        $body = str_repeat('x', 20000000);
        $sent = [
            'content_type' => 'text/plain', 'content_encoding' => 'utf-8', 'delivery_mode' => 2, 'priority' => 3,
            'correlation_id' => 'c', 'reply_to' => 'r', 'expiration' => '60000', 'message_id' => 'm',
            'timestamp' => 1700000000, 'type' => 't', 'user_id' => 'guest', 'app_id' => 'a',
        ];
        $all = $sent + ['application_headers' => new AMQPTable(TABLE)];
        $channel->basic_publish(new AMQPMessage($body, $all), '', $name);
        $message = $channel->basic_get($name, true);
        same($message->body === $body, true);
        foreach ($sent as $key => $value) {
            same($message->get($key), $value);
        }
        // RabbitMQ 4 sorts them.
        $headers = $message->get('application_headers')->getNativeData();
        $sent = TABLE;
        ksort($headers);
        ksort($sent);
        same($headers, $sent);
        $channel->queue_delete($name);
    },

    'a_queue_that_goes_away' => function ($connection, $name) {
        $channel = $connection->channel();
        $channel->queue_declare($name, false, false, false, false);
        $channel->basic_consume($name, 'mine', false, true, false, false, function () {
        });
        $connection->channel()->queue_delete($name);
        try {
            $channel->wait(null, false, 60);
        } catch (PhpAmqpLib\Exception\AMQPBasicCancelException $gone) {
            same($gone->consumerTag, 'mine');
            return;
        }
        throw new Exception('it was not told');
    },

    'requests_and_replies' => function ($connection, $name) {
        $server = $connection->channel();
        $server->queue_declare($name, false, false, true);
        $server->basic_consume($name, '', false, true, false, false, function ($request) use ($server) {
            $properties = ['correlation_id' => $request->get('correlation_id')];
            $answer = new AMQPMessage(strtoupper($request->body), $properties);
            $server->basic_publish($answer, '', $request->get('reply_to'));
        });
        $client = $connection->channel();
        $answers = [];
        $reply_to = 'amq.rabbitmq.reply-to';
        $client->basic_consume($reply_to, '', false, true, false, false, function ($answer) use (&$answers) {
            $answers[] = [$answer->get('correlation_id'), $answer->body];
        });
        $client->basic_publish(new AMQPMessage('hello', ['reply_to' => $reply_to, 'correlation_id' => '1']), '', $name);
        $server->wait(null, false, 60);
        wait_for($client, function () use (&$answers) {
            return count($answers) > 0;
        });
        same($answers, [['1', 'HELLO']]);
    },

    'transactions' => function ($connection, $name) {
        $channel = $connection->channel();
        $channel->queue_declare($name, false, false, false, false);
        $channel->tx_select();
        $channel->basic_publish(new AMQPMessage('no'), '', $name);
        $channel->tx_rollback();
        $channel->basic_publish(new AMQPMessage('yes'), '', $name);
        $channel->tx_commit();
        same($channel->basic_get($name, true)->body, 'yes');
        same($channel->basic_get($name, true), null);
        $channel->queue_delete($name);
    },

    'misuse' => function ($connection, $name) {
        $connection->channel()->queue_declare($name, false, false, true, false);
        $refused = [
            404 => function ($channel) use ($name) {
                $channel->queue_declare("$name.none", true);
            },
            403 => function ($channel) {
                $channel->queue_declare('amq.mine');
            },
            406 => function ($channel) use ($name) {
                $channel->queue_declare($name, false, false, true, true);
            },
        ];
        foreach ($refused as $code => $wrong) {
            $got = 0;
            try {
                $wrong($connection->channel());
            } catch (AMQPProtocolChannelException $error) {
                $got = $error->getCode();
            }
            same($got, $code);
        }
    },

    'a_wrong_password' => function ($connection, $name) use ($argv) {
        try {
            connect($argv[2], 'wrong');
        } catch (AMQPConnectionClosedException $refused) {
            same(strpos($refused->getMessage(), 'ACCESS_REFUSED') === 0, true);
            return;
        }
        throw new Exception('a wrong password was taken');
    },
];

[, $check, $port, $name] = $argv;
$connection = connect($port);
$checks[$check]($connection, $name);
$connection->close();
