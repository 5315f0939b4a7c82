// Everyday life with amqp-client.js: `node amqp_client.js CHECK PORT NAME` ends with status 0 if the check holds.

const assert = require('node:assert/strict');
const { AMQPClient, AMQPSession } = require('@cloudamqp/amqp-client');

const [, , check, port, name] = process.argv;
const url = `amqp://guest:guest@127.0.0.1:${port}`;

const collect = async (channel, queue, count, options, onMessage = () => {}) => {
  const got = [];
  let consumer;
  await new Promise((resolve, reject) => {
    channel.basicConsume(queue, options, async (message) => {
      got.push(message);
      await onMessage(message);
      if (got.length === count) resolve();
    }).then((made) => { consumer = made; }, reject);
  });
  await consumer.cancel();
  return got;
};

const texts = (messages) => messages.map((message) => message.bodyString());
const numbers = (count) => Array.from({ length: count }, (_, n) => `${n}`);

const checks = {
  async publish_consume_acknowledge(connection) {
    const channel = await connection.channel();
    const queue = await channel.queueDeclare(name, { durable: false });
    assert.deepEqual(queue, { name, messageCount: 0, consumerCount: 0 });
    await Promise.all(numbers(1000).map((n) => channel.basicPublish('', name, n)));
    await channel.prefetch(50);
    const got = await collect(channel, name, 1000, { noAck: false }, (message) => message.ack());
    assert.deepEqual(texts(got), numbers(1000));
    assert.equal((await channel.queueDelete(name)).messageCount, 0);
  },

  async consume_in_a_loop(connection) {
    const channel = await connection.channel();
    await channel.queueDeclare(name, { durable: false });
    for (const n of numbers(10)) await channel.basicPublish('', name, n);
    const consumer = await channel.basicConsume(name, { noAck: false });
    const got = [];
    for await (const message of consumer.messages) {
      got.push(message.bodyString());
      await message.ack();
      if (got.length === 10) break;
    }
    assert.deepEqual(got, numbers(10));
  },

  async confirms_returns_and_properties(connection) {
    const channel = await connection.channel();
    await channel.confirmSelect();
    await channel.queueDeclare(name, { durable: false });
    const properties = {
      contentType: 'text/plain', contentEncoding: 'utf-8', correlationId: 'c', replyTo: 'r', messageId: 'm', type: 't',
      appId: 'a', userId: 'guest', priority: 3, deliveryMode: 2, expiration: '60000', timestamp: new Date(1700000000000),
      headers: { text: 'Grüße 世界', small: -5, fraction: 1.25, yes: true, none: null, list: [1, 'two'], table: { deep: 1 } },
    };
    assert.equal(await channel.basicPublish('', name, 'x'.repeat(1_000_000), properties), 1);
    const message = await channel.basicGet(name, { noAck: true });
    assert.equal(message.bodySize, 1_000_000);
    assert.deepEqual({ ...message.properties }, properties);
    assert.equal(await channel.basicGet(name), null);
    const returned = new Promise((resolve) => { channel.onReturn = resolve; });
    await channel.basicPublish('', `${name}.none`, 'lost', {}, true);
    assert.equal((await returned).replyCode, 312);
  },

  async exchanges_requeue_and_dead_letters(connection) {
    const channel = await connection.channel();
    await channel.exchangeDeclare(name, 'topic', { durable: false });
    await channel.exchangeDeclare(`${name}.in`, 'fanout', { durable: false });
    await channel.exchangeBind(`${name}.in`, name, 'a.#');
    await channel.queueDeclare(`${name}.dead`, { durable: false });
    const dead = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': `${name}.dead` };
    await channel.queueDeclare(name, { durable: false }, dead);
    await channel.queueBind(name, `${name}.in`, '');
    await channel.basicPublish(name, 'a.b', 'x');
    await channel.basicPublish(name, 'b', 'to nobody');
    await (await channel.basicGet(name, { noAck: false })).nack(true);
    const again = await channel.basicGet(name, { noAck: false });
    assert.equal(again.redelivered, true);
    await again.reject(false);
    const [last] = await collect(channel, `${name}.dead`, 1, { noAck: true });
    assert.equal(last.properties.headers['x-death'][0].reason, 'rejected');
    assert.equal((await channel.queuePurge(name)).messageCount, 0);
  },

  async transactions(connection) {
    const channel = await connection.channel();
    await channel.queueDeclare(name, { durable: false });
    await channel.txSelect();
    await channel.basicPublish('', name, 'rolled back');
    await channel.txRollback();
    await channel.basicPublish('', name, 'committed');
    await channel.txCommit();
    assert.equal((await channel.basicGet(name, { noAck: true })).bodyString(), 'committed');
    assert.equal(await channel.basicGet(name), null);
  },

  async many_channels(connection) {
    const channels = await Promise.all(numbers(100).map(() => connection.channel()));
    assert.equal(new Set(channels.map((channel) => channel.id)).size, 100);
    await channels[0].queueDeclare(name, { durable: false });
    await Promise.all(channels.map((channel) => channel.basicPublish('', name, `${channel.id}`)));
    await Promise.all(channels.slice(1).map((channel) => channel.close()));
    const got = await collect(channels[0], name, 100, { noAck: true });
    assert.equal(new Set(texts(got)).size, 100);
    assert.equal((await connection.channel()).closed, false);
  },

  async misuse_closes_the_channel_and_nothing_else(connection) {
    const channel = await connection.channel();
    await assert.rejects(channel.queueDeclare(`${name}.none`, { passive: true }), /404|NOT_FOUND/);
    assert.equal(channel.closed, true);
    const second = await connection.channel();
    await second.queueDeclare(name, { durable: false });
  },

  async a_consumer_ends_when_its_queue_is_gone(connection) {
    const [channel, other] = await Promise.all([connection.channel(), connection.channel()]);
    await channel.queueDeclare(name, { durable: false });
    const consumer = await channel.basicConsume(name, { noAck: true }, () => {});
    const ended = assert.rejects(consumer.wait(), /cancel/i);
    await other.queueDelete(name);
    await ended;
  },

  async another_secret(connection) {
    await connection.updateSecret('another', 'it is time');
    await (await connection.channel()).queueDeclare(name, { durable: false });
  },

  async a_wrong_password_and_virtual_host(_) {
    await assert.rejects(new AMQPClient(`amqp://guest:wrong@127.0.0.1:${port}`).connect(), /ACCESS[_-]REFUSED|closed/);
    await assert.rejects(new AMQPClient(`${url}/nope`).connect(), /NOT_ALLOWED|nope/);
  },

  async heartbeats(_) {
    const connection = await new AMQPClient(`${url}?heartbeat=1`).connect();
    assert.equal(connection.heartbeat, 1);
    const channel = await connection.channel();
    await new Promise((resolve) => setTimeout(resolve, 3500));
    await channel.queueDeclare(name, { durable: false });
    await connection.close();
  },

  async a_close_with_much_in_front_of_it_is_clean(_) {
    const connection = await new AMQPClient(url).connect();
    const errors = [];
    connection.onerror = (error) => errors.push(error);
    const channel = await connection.channel();
    await channel.queueDeclare(name, { durable: false });
    const body = Buffer.alloc(2000);
    const published = numbers(10000).map(() => channel.basicPublish('', name, body));
    await connection.close();
    assert.equal((await Promise.allSettled(published)).filter((each) => each.status === 'rejected').length, 0);
    assert.deepEqual(errors, []);
    const another = await new AMQPClient(url).connect();
    const { messageCount } = await (await another.channel()).queueDelete(name);
    assert.equal(messageCount, 10000);
    await another.close();
  },

  async a_session(_) {
    const session = await AMQPSession.connect(url);
    const queue = await session.queue(name, { durable: false });
    const got = new Promise((resolve) => { queue.subscribe((message) => resolve(message.bodyString())); });
    await queue.publish('hello');
    assert.equal(await got, 'hello');
    await queue.delete();
    await session.stop();
  },
};

const main = async () => {
  const connection = await new AMQPClient(url).connect();
  await checks[check](connection);
  await connection.close();
};

if (check === undefined) console.log(Object.keys(checks).join('\n'));
else main().catch((error) => { console.error(error); process.exit(1); });
