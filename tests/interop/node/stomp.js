// Everyday life with @stomp/stompjs over WebSocket: `node stomp.js CHECK URL NAME` ends with status 0 if the check holds.

const assert = require('node:assert/strict');
const { WebSocket } = require('ws');
const { Client } = require('@stomp/stompjs');

const [, , check, url, name] = process.argv;

const connect = (options = {}) => new Promise((resolve, reject) => {
  const client = new Client({
    // As a browser does: with the names of the subprotocols.
    webSocketFactory: () => new WebSocket(url, ['v12.stomp', 'v11.stomp', 'v10.stomp']),
    connectHeaders: { login: 'guest', passcode: 'guest', host: '/' },
    reconnectDelay: 0,
    heartbeatIncoming: 0,
    heartbeatOutgoing: 0,
    ...options,
    onConnect: (frame) => resolve([client, frame]),
    onStompError: (frame) => reject(new Error(frame.headers.message)),
  });
  client.activate();
});

const receipt = (client, act) => new Promise((resolve) => {
  const id = `receipt-${Math.random()}`;
  client.watchForReceipt(id, resolve);
  act({ receipt: id });
});

const collect = (client, destination, count, headers = {}, onMessage = () => {}) => new Promise((resolve) => {
  const got = [];
  client.subscribe(destination, (message) => {
    got.push(message);
    onMessage(message);
    if (got.length === count) resolve(got);
  }, headers);
});

const checks = {
  async send_and_subscribe() {
    const [client, connected] = await connect();
    assert.equal(connected.headers.version, '1.2');
    const bodies = Array.from({ length: 500 }, (_, n) => `${n} ü`);
    const coming = collect(client, `/queue/${name}`, bodies.length);
    for (const body of bodies) client.publish({ destination: `/queue/${name}`, body });
    assert.deepEqual((await coming).map((message) => message.body), bodies);
    await client.deactivate();
  },

  async acknowledge_and_return() {
    const [client] = await connect();
    const destination = `/queue/${name}`;
    for (const body of ['a', 'b']) await receipt(client, (headers) => client.publish({ destination, body, headers }));
    const got = await collect(client, destination, 3, { ack: 'client-individual' }, (message) => {
      if (message.body === 'a' && message.headers.redelivered === 'false') message.nack();
      else message.ack();
    });
    assert.deepEqual(got.map((message) => message.body).sort(), ['a', 'a', 'b']);
    await client.deactivate();
  },

  async headers_and_octets() {
    const [client] = await connect();
    const destination = `/queue/${name}`;
    const coming = collect(client, destination, 1);
    const binaryBody = Uint8Array.from([0, 10, 13, 255, 0]);
    const headers = { own: 'a:b\nwith \\ and\rreturn', 'content-type': 'application/octet-stream' };
    client.publish({ destination, binaryBody, headers });
    const [message] = await coming;
    assert.deepEqual(Array.from(message.binaryBody), Array.from(binaryBody));
    assert.equal(message.headers.own, headers.own);
    assert.equal(message.headers['content-type'], 'application/octet-stream');
    await client.deactivate();
  },

  async transactions() {
    const [client] = await connect();
    const destination = `/queue/${name}`;
    const coming = collect(client, destination, 2);
    const dropped = client.begin();
    client.publish({ destination, body: 'dropped', headers: { transaction: dropped.id } });
    dropped.abort();
    const kept = client.begin();
    for (const body of ['a', 'b']) client.publish({ destination, body, headers: { transaction: kept.id } });
    kept.commit();
    assert.deepEqual((await coming).map((message) => message.body), ['a', 'b']);
    await client.deactivate();
  },

  async topics_and_unsubscribe() {
    const [client] = await connect();
    const got = [];
    let first;
    const came = new Promise((resolve) => { first = resolve; });
    const subscription = client.subscribe(`/topic/${name}.*`, (message) => { got.push(message.body); first(); });
    const coming = collect(client, `/topic/${name}.#`, 3);
    client.publish({ destination: `/topic/${name}.a.b`, body: '1' });
    client.publish({ destination: `/topic/${name}.a`, body: '2' });
    await came;
    await receipt(client, (headers) => subscription.unsubscribe(headers));
    client.publish({ destination: `/topic/${name}.a`, body: '3' });
    assert.deepEqual((await coming).map((message) => message.body), ['1', '2', '3']);
    assert.deepEqual(got, ['2']);
    await client.deactivate();
  },

  async heart_beats() {
    const [client, connected] = await connect({ heartbeatIncoming: 1000, heartbeatOutgoing: 1000 });
    assert.equal(connected.headers['heart-beat'], '1000,1000');
    await new Promise((resolve) => { setTimeout(resolve, 3500); });
    assert.equal(client.connected, true);
    await client.deactivate();
  },

  async together_with_amqp() {
    const [client] = await connect();
    const coming = collect(client, `/queue/${name}-to-stomp`, 1);
    client.publish({
      destination: `/queue/${name}-to-amqp`,
      body: 'from stomp ü',
      headers: { persistent: 'true', 'correlation-id': '7', own: 'value' },
    });
    const [message] = await coming;
    assert.equal(message.body, 'from amqp ü');
    assert.equal(message.headers['correlation-id'], '8');
    assert.equal(message.headers.number, '5');
    await client.deactivate();
  },

  async a_wrong_password() {
    await assert.rejects(
      connect({ connectHeaders: { login: 'guest', passcode: 'wrong', host: '/' } }), /Bad CONNECT/,
    );
  },
};

checks[check]().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
