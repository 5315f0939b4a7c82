// Everyday life with amqplib: `node everyday.js CHECK PORT NAME` ends with status 0 if the check holds.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const amqp = require('amqplib');

const [, , check, port, name] = process.argv;
const url = `amqp://guest:guest@127.0.0.1:${port}`;

const collect = async (channel, queue, count, options, onMessage = () => {}) => {
  const got = [];
  await new Promise((resolve, reject) => {
    channel.consume(queue, (message) => {
      got.push(message);
      onMessage(message);
      if (got.length === count) resolve();
    }, options).catch(reject);
  });
  return got;
};

const texts = (messages) => messages.map((message) => message.content.toString());

const checks = {
  async publish_consume_acknowledge(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue(name, { durable: false });
    assert.equal(queue, name);
    for (let n = 0; n < 1000; n++) channel.sendToQueue(name, Buffer.from(`${n}`));
    await channel.prefetch(50);
    const got = await collect(channel, name, 1000, {}, (message) => channel.ack(message));
    assert.deepEqual(texts(got), Array.from({ length: 1000 }, (_, n) => `${n}`));
    assert.equal((await channel.checkQueue(name)).consumerCount, 1);
    await channel.cancel(got[0].fields.consumerTag);
    assert.equal((await channel.deleteQueue(name)).messageCount, 0);
  },

  async topology(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertExchange(name, 'topic', { durable: false, alternateExchange: `${name}.rest` });
    await channel.assertExchange(`${name}.rest`, 'fanout', { durable: false });
    await channel.assertExchange(`${name}.in`, 'headers', { durable: false, internal: true });
    await channel.bindExchange(`${name}.in`, name, 'a.#');
    await channel.assertQueue(name, { durable: false });
    await channel.bindQueue(name, `${name}.in`, '', { 'x-match': 'any', wanted: true, 'also-wanted': 1 });
    const rest = (await channel.assertQueue('', { exclusive: true })).queue;
    await channel.bindQueue(rest, `${name}.rest`, '');
    channel.publish(name, 'a.b', Buffer.from('yes'), { headers: { wanted: true } });
    channel.publish(name, 'a.b', Buffer.from('no'), { headers: { wanted: false } });
    channel.publish(name, 'b', Buffer.from('rest'));
    await channel.waitForConfirms();
    assert.equal((await channel.get(name, { noAck: true })).content.toString(), 'yes');
    assert.equal(await channel.get(name), false);
    assert.equal((await channel.get(rest, { noAck: true })).content.toString(), 'rest');
    await channel.unbindQueue(name, `${name}.in`, '', { 'x-match': 'any', wanted: true, 'also-wanted': 1 });
    await channel.unbindExchange(`${name}.in`, name, 'a.#');
    await channel.deleteExchange(`${name}.in`, { ifUnused: true });
  },

  async confirms_and_nacks(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue(name, { durable: true, maxLength: 3, overflow: 'reject-publish' });
    let confirmed = 0;
    for (let n = 0; n < 3; n++) {
      channel.sendToQueue(name, Buffer.from('x'), { persistent: true }, (error) => { if (!error) confirmed++; });
    }
    await channel.waitForConfirms();
    assert.equal(confirmed, 3);
    const refused = new Promise((resolve) => channel.sendToQueue(name, Buffer.from('x'), {}, resolve));
    assert.ok(await refused instanceof Error);
    await channel.deleteQueue(name);
  },

  async returns(connection) {
    const channel = await connection.createConfirmChannel();
    const returned = once(channel, 'return');
    channel.publish('', name, Buffer.from('lost'), { mandatory: true });
    const [message] = await returned;
    assert.equal(message.fields.replyCode, 312);
    assert.equal(message.content.toString(), 'lost');
    await channel.waitForConfirms();
  },

  async requeue_reject_recover_and_dead_letters(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(`${name}.dead`, { durable: false });
    await channel.assertQueue(name, {
      durable: false, deadLetterExchange: '', deadLetterRoutingKey: `${name}.dead`, maxPriority: 4,
    });
    channel.sendToQueue(name, Buffer.from('low'), { priority: 1 });
    channel.sendToQueue(name, Buffer.from('high'), { priority: 4 });
    const [high, low] = await collect(channel, name, 2, {});
    assert.deepEqual(texts([high, low]).sort(), ['high', 'low']);
    await channel.cancel(high.fields.consumerTag);
    channel.nack(high, false, true);
    const again = await channel.get(name);
    assert.equal(again.fields.redelivered, true);
    await channel.recover();
    const third = await channel.get(name);
    channel.reject(third, false);
    const [dead] = await collect(channel, `${name}.dead`, 1, { noAck: true });
    assert.equal(dead.properties.headers['x-death'][0].reason, 'rejected');
    assert.equal(dead.properties.headers['x-first-death-queue'], name);
  },

  async properties_of_all_types_and_large_bodies(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(name, { durable: false });
    const headers = {
      text: 'Grüße 世界', small: -5, large: 2 ** 50, fraction: 1.25, yes: true, none: null,
      list: [1, 'two', [3]], table: { nested: { deep: 1 } }, bytes: Buffer.from([0, 255]),
    };
    const body = Buffer.alloc(20_000_000, 'x');
    channel.sendToQueue(name, body, {
      headers, contentType: 'text/plain', contentEncoding: 'utf-8', correlationId: 'c', replyTo: 'r',
      messageId: 'm', type: 't', appId: 'a', userId: 'guest', timestamp: 1700000000, expiration: 60000,
    });
    const [message] = await collect(channel, name, 1, { noAck: true });
    assert.ok(message.content.equals(body));
    assert.deepEqual({ ...message.properties.headers }, headers);
    assert.equal(message.properties.timestamp, 1700000000);
    assert.equal(message.properties.expiration, '60000');
    assert.equal(message.properties.userId, 'guest');
  },

  async remote_procedure_calls_by_direct_reply(connection) {
    const [caller, worker] = await Promise.all([connection.createChannel(), connection.createChannel()]);
    await worker.assertQueue(name, { durable: false });
    await worker.consume(name, (request) => {
      const answer = Number(request.content) * 2;
      worker.sendToQueue(request.properties.replyTo, Buffer.from(`${answer}`), {
        correlationId: request.properties.correlationId,
      });
    }, { noAck: true });
    const answers = collect(caller, 'amq.rabbitmq.reply-to', 100, { noAck: true });
    for (let n = 0; n < 100; n++) {
      caller.sendToQueue(name, Buffer.from(`${n}`), { replyTo: 'amq.rabbitmq.reply-to', correlationId: `${n}` });
    }
    for (const answer of await answers) {
      assert.equal(Number(answer.content), 2 * Number(answer.properties.correlationId));
    }
  },

  async a_consumer_is_told_that_its_queue_is_gone(connection) {
    const [channel, other] = await Promise.all([connection.createChannel(), connection.createChannel()]);
    await channel.assertQueue(name, { durable: false });
    const told = collect(channel, name, 1, {});
    await channel.checkQueue(name);
    await other.deleteQueue(name);
    assert.deepEqual(await told, [null]);
  },

  async time_to_live_and_expiry(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue(`${name}.late`, { durable: false });
    await channel.assertQueue(name, {
      durable: false, messageTtl: 30, expires: 60000, deadLetterExchange: '', deadLetterRoutingKey: `${name}.late`,
    });
    channel.sendToQueue(name, Buffer.from('x'));
    const [late] = await collect(channel, `${name}.late`, 1, { noAck: true });
    assert.equal(late.properties.headers['x-death'][0].reason, 'expired');
  },

  async misuse_closes_the_channel_and_nothing_else(connection) {
    const channel = await connection.createChannel();
    const error = once(channel, 'error');
    await assert.rejects(channel.checkQueue(`${name}.none`), /404/);
    const [closed] = await error;
    assert.equal(closed.code, 404);
    const second = await connection.createChannel();
    const refused = once(second, 'error');
    second.ack({ fields: { deliveryTag: 99 } });
    assert.equal((await refused)[0].code, 406);
    const third = await connection.createChannel();
    await third.assertQueue(name, { durable: false });
  },

  async misuse_closes_the_connection(connection) {
    const channel = await connection.createChannel();
    const { product, version } = connection.connection.serverProperties;
    const later = product === 'RabbitMQ' && parseInt(version) >= 4; // it closes only the channel
    channel.on('error', () => {});
    const error = once(later ? channel : connection, 'error');
    channel.assertExchange(name, 'no-such-type').catch(() => {});
    assert.equal((await error)[0].code, later ? 406 : 503);
  },

  async a_wrong_password_and_virtual_host(_) {
    await assert.rejects(amqp.connect(`amqp://guest:wrong@127.0.0.1:${port}`), /ACCESS[_-]REFUSED/);
    await assert.rejects(amqp.connect(`${url}/nope`), /ConnectionClose/);
  },

  async a_close_with_much_behind_it_is_answered(_) {
    const connection = await amqp.connect(url);
    const errors = [];
    connection.on('error', (error) => errors.push(error));
    const channel = await connection.createChannel();
    await channel.assertQueue(name, { durable: false, exclusive: true });
    const body = Buffer.alloc(2000);
    for (let n = 0; n < 10000; n++) channel.sendToQueue(name, body);
    await connection.close(); // in front of what is not sent yet
    assert.deepEqual(errors, []);
  },

  async heartbeats(_) {
    const connection = await amqp.connect(`${url}?heartbeat=1`);
    await new Promise((resolve) => setTimeout(resolve, 3500));
    await (await connection.createChannel()).assertQueue(name, { durable: false });
    await connection.close();
  },
};

const main = async () => {
  const connection = await amqp.connect(url);
  connection.on('error', () => {});
  await checks[check](connection);
  await connection.close().catch((error) => { if (check !== 'misuse_closes_the_connection') throw error; });
};

if (check === undefined) console.log(Object.keys(checks).join('\n'));
else main().catch((error) => { console.error(error); process.exit(1); });
