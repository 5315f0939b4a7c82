<?php
/** A day with the extension stomp: php stomp.php CHECK PORT DESTINATION. */

declare(strict_types=1);

[, $check, $port, $destination] = $argv;

function connect(string $port): Stomp
{
    $stomp = new Stomp("tcp://127.0.0.1:$port", 'guest', 'guest');
    $stomp->setReadTimeout(20);
    return $stomp;
}

function same(mixed $wanted, mixed $got): void
{
    if ($wanted !== $got) {
        fwrite(STDERR, 'wanted ' . var_export($wanted, true) . ', got ' . var_export($got, true) . "\n");
        exit(1);
    }
}

$checks = [
    // A message comes before the receipt that send waits for: the extension keeps it.
    'receipts' => function () use ($port, $destination): void {
        $stomp = connect($port);
        same(true, $stomp->subscribe($destination, ['ack' => 'auto']));
        foreach (['first', 'second', "with\0a NUL", str_repeat('x', 100000)] as $number => $body) {
            same(true, $stomp->send($destination, $body, ['receipt' => "r$number"]));
            same($body, $stomp->readFrame()->body);
        }
    },
    'acknowledgements' => function () use ($port, $destination): void {
        $stomp = connect($port);
        $stomp->subscribe($destination);
        same(true, $stomp->send($destination, 'one', ['receipt' => 'r', 'persistent' => 'true', 'colour' => 'red']));
        $frame = $stomp->readFrame();
        same(['one', 'red'], [$frame->body, $frame->headers['colour']]);
        unset($stomp);
        $other = connect($port);
        $other->subscribe($destination);
        $again = $other->readFrame();
        same(['one', 'true'], [$again->body, $again->headers['redelivered']]);
        same(true, $other->ack($again, ['receipt' => 'acknowledged']));
    },
    'transactions' => function () use ($port, $destination): void {
        $stomp = connect($port);
        $stomp->subscribe($destination, ['ack' => 'auto']);
        foreach (['aborted' => 'abort', 'committed' => 'commit'] as $body => $end) {
            same(true, $stomp->begin($body));
            same(true, $stomp->send($destination, $body, ['transaction' => $body]));
            same(true, $stomp->$end($body));
        }
        same('committed', $stomp->readFrame()->body);
        same(false, $stomp->hasFrame());
    },
    'errors' => function () use ($port): void {
        $stomp = connect($port);
        same(false, $stomp->subscribe('/nowhere/to/be/found', ['receipt' => 'r']));
        same(true, is_string($stomp->error()));
    },
];

$checks[$check]();
