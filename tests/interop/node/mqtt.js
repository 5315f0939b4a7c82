// Everyday life with MQTT.js: `node mqtt.js URL VERSION NAME` prints the checks that hold, and ends with status 0 if all do.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const mqtt = require('mqtt');

const [, , url, version, test] = process.argv;
let name = test;
const protocolVersion = Number(version);

const connect = (clientId, options = {}) => mqtt.connectAsync(url, {
  protocolVersion, clientId: `${name}-${clientId}`, username: 'guest', password: 'guest', reconnectPeriod: 0, ...options,
});

const collect = (client, count) => new Promise((resolve) => {
  const got = [];
  client.on('message', (topic, payload, packet) => {
    got.push({ topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain, properties: packet.properties });
    if (got.length === count) resolve(got);
  });
});

const checks = {
  async publish_and_subscribe() {
    const [subscriber, publisher] = await Promise.all([connect('s'), connect('p')]);
    const granted = await subscriber.subscribeAsync({ [`${name}/+/a`]: { qos: 2 }, [`${name}/b/#`]: { qos: 1 } });
    assert.deepEqual(granted.map((each) => each.qos), [2, 1]);
    const messages = collect(subscriber, 300);
    for (let n = 0; n < 300; n++) await publisher.publishAsync(`${name}/${n}/a`, `${n}`, { qos: n % 3 });
    const got = await messages;
    for (let n = 0; n < 300; n++) {
      const { topic, qos } = got.find((each) => each.payload === `${n}`);
      assert.equal(topic, `${name}/${n}/a`);
      assert.equal(qos, n % 3);
    }
    await subscriber.unsubscribeAsync(`${name}/b/#`);
    await Promise.all([subscriber.endAsync(), publisher.endAsync()]);
  },

  async retained_and_removed() {
    const publisher = await connect('p');
    await publisher.publishAsync(`${name}/r`, 'kept', { qos: 1, retain: true });
    const first = await connect('s');
    const found = collect(first, 1);
    await first.subscribeAsync(`${name}/#`);
    const [message] = await found;
    assert.deepEqual([message.payload, message.retain], ['kept', true]);
    await publisher.publishAsync(`${name}/r`, '', { qos: 1, retain: true });
    await Promise.all([first.endAsync(), publisher.endAsync()]);
  },

  async large_messages() {
    const client = await connect('a');
    // mosquitto 2.0.11 stops sending in the middle of 3 MB over WebSocket.
    const body = 'x'.repeat(url.startsWith('ws') ? 200_000 : 3_000_000);
    const found = collect(client, 1);
    await client.subscribeAsync(name, { qos: 1 });
    await client.publishAsync(name, body, { qos: 1 });
    const [message] = await found;
    assert.ok(message.payload === body);
    await client.endAsync();
  },

  async a_will() {
    const witness = await connect('w');
    const found = collect(witness, 1);
    await witness.subscribeAsync(`${name}/will`, { qos: 1 });
    const dying = await connect('d', { will: { topic: `${name}/will`, payload: Buffer.from('gone'), qos: 1 } });
    dying.stream.destroy();
    const [message] = await found;
    assert.equal(message.payload, 'gone');
    await witness.endAsync();
  },

  async a_session_goes_on() {
    const options = { clean: false, properties: { sessionExpiryInterval: 100 } };
    if (protocolVersion === 4) delete options.properties;
    const first = await connect('s', options);
    await first.subscribeAsync(`${name}/#`, { qos: 1 });
    await first.endAsync();
    const publisher = await connect('p');
    await publisher.publishAsync(`${name}/a`, 'while away', { qos: 1 });
    const second = mqtt.connect(url, {
      protocolVersion, clientId: `${name}-s`, username: 'guest', password: 'guest', reconnectPeriod: 0, ...options,
    });
    const [[connack], [message]] = await Promise.all([once(second, 'connect'), collect(second, 1)]);
    assert.equal(connack.sessionPresent, true);
    assert.equal(message.payload, 'while away');
    await Promise.all([second.endAsync(), publisher.endAsync()]);
    await (await connect('s', { clean: true })).endAsync();
  },

  async properties_and_aliases() {
    if (protocolVersion === 4) return;
    const client = await connect('a', { properties: { topicAliasMaximum: 10 }, autoUseTopicAlias: true, autoAssignTopicAlias: true });
    const found = collect(client, 20);
    await client.subscribeAsync(`${name}/#`, { qos: 1, properties: { subscriptionIdentifier: 5 } });
    for (let n = 0; n < 20; n++) {
      await client.publishAsync(`${name}/${n % 2}`, `${n}`, {
        qos: 1, properties: { userProperties: { a: ['1', '2'], b: '3' }, contentType: 'text/plain', responseTopic: 'r', correlationData: Buffer.from('c') },
      });
    }
    const got = await found;
    assert.deepEqual(got.map((each) => [each.topic, each.payload]), Array.from({ length: 20 }, (_, n) => [`${name}/${n % 2}`, `${n}`]));
    const { userProperties, contentType, responseTopic, correlationData, subscriptionIdentifier } = got[0].properties;
    assert.deepEqual({ ...userProperties }, { a: ['1', '2'], b: '3' });
    assert.deepEqual([contentType, responseTopic, correlationData.toString(), subscriptionIdentifier], ['text/plain', 'r', 'c', 5]);
    await client.endAsync();
  },

  async keep_alive() {
    const client = await connect('a', { keepalive: 1 });
    await new Promise((resolve) => { let pings = 0; client.on('packetreceive', (packet) => { if (packet.cmd === 'pingresp' && ++pings === 2) resolve(); }); });
    assert.ok(client.connected);
    await client.endAsync();
  },

  async a_wrong_password() {
    await assert.rejects(connect('a', { password: 'wrong' }), /Not authorized|Bad username or password|Bad User Name or Password/i);
  },
};

const main = async () => {
  for (const [check, run] of Object.entries(checks)) {
    name = `${test}-${check}`;
    await run();
    console.log(check);
  }
};

main().catch((error) => { console.error(error); process.exit(1); });
