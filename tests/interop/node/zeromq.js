// Each pattern with zeromq.js: `node zeromq.js bind PLACE` prints the places at which it has bound, one check after the other;
// `node zeromq.js connect` reads a place a check from its input.  It ends with status 0 if all checks hold.
// With a third argument `drafts`: the types that are drafts, which the libzmq of zeromq.js has; with `wss`: that it does not have that.

const assert = require('node:assert/strict');
const readline = require('node:readline');
const zmq = require('zeromq');
const draft = require('zeromq/draft');

const [, , role, place] = process.argv;
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const large = 'x'.repeat(300000);

const open = async (socket) => {
  socket.receiveTimeout = 30000;
  socket.linger = 30000;
  if (role === 'bind') {
    await socket.bind(place);
    console.log(socket.lastEndpoint);
  } else {
    socket.connect((await lines.next()).value);
  }
  return socket;
};

const texts = (parts) => parts.map((part) => part.toString());

const checks = {
  async request() {
    const socket = await open(new zmq.Request());
    for (const text of ['one', 'two', large]) {
      await socket.send(text);
      assert.deepEqual(texts(await socket.receive()), [`re: ${text}`]);
    }
    return socket;
  },

  async reply() {
    const socket = await open(new zmq.Reply());
    for (let n = 0; n < 3; n++) {
      const [question] = await socket.receive();
      await socket.send(`re: ${question}`);
    }
    return socket;
  },

  async publish() {
    const socket = await open(new zmq.XPublisher());
    const [subscription] = await socket.receive();
    assert.equal(subscription.toString('latin1'), '\x01tea');
    for (const [key, body] of [['coffee', '1'], ['tea', '2'], ['teapot', large]]) await socket.send([key, body]);
    return socket;
  },

  async subscribe() {
    const socket = new zmq.Subscriber();
    socket.subscribe('tea');
    await open(socket);
    assert.deepEqual(texts(await socket.receive()), ['tea', '2']);
    assert.deepEqual(texts(await socket.receive()), ['teapot', large]);
    return socket;
  },

  async push() {
    const socket = await open(new zmq.Push());
    for (let n = 0; n < 1000; n++) await socket.send(`${n}`);
    await socket.send(['a', '', large]);
    return socket;
  },

  async pull() {
    const socket = await open(new zmq.Pull());
    for (let n = 0; n < 1000; n++) assert.deepEqual(texts(await socket.receive()), [`${n}`]);
    assert.deepEqual(texts(await socket.receive()), ['a', '', large]);
    return socket;
  },

  async dealer() {
    const socket = await open(new zmq.Dealer({ routingId: 'anna' }));
    await socket.send(['', 'question']);
    assert.deepEqual(texts(await socket.receive()), ['', 'answer']);
    return socket;
  },

  async router() {
    const socket = await open(new zmq.Router());
    const [name, ...question] = await socket.receive();
    assert.deepEqual(texts([name, ...question]), ['berta', '', 'question']);
    await socket.send([name, '', 'answer']);
    return socket;
  },

  async pair() {
    const socket = await open(new zmq.Pair());
    for (let n = 0; n < 1000; n++) await socket.send(`${n}`);
    for (let n = 0; n < 1000; n++) assert.deepEqual(texts(await socket.receive()), [`re: ${n}`]);
    await socket.send(['a', '', large]);
    assert.deepEqual(texts(await socket.receive()), ['a', '', large]);
    return socket;
  },

  async xpublish() {
    const socket = await open(new zmq.XPublisher());
    const told = async (verb) => {
      const [what] = await socket.receive();
      assert.equal(what.toString('latin1'), verb);
    };
    await told('\x01tea');
    for (const [key, body] of [['coffee', '1'], ['tea', '2'], ['teapot', large]]) await socket.send([key, body]);
    await told('\x00tea');
    await told('\x01coffee');
    for (const [key, body] of [['tea', '3'], ['coffee', '4']]) await socket.send([key, body]);
    // An XSUB may send as well.
    await told('\x02upwards');
    return socket;
  },

  async xsubscribe() {
    const socket = await open(new zmq.XSubscriber());
    await socket.send('\x01tea');
    assert.deepEqual(texts(await socket.receive()), ['tea', '2']);
    assert.deepEqual(texts(await socket.receive()), ['teapot', large]);
    await socket.send('\x00tea');
    await socket.send('\x01coffee');
    assert.deepEqual(texts(await socket.receive()), ['coffee', '4']);
    await socket.send('\x02upwards');
    return socket;
  },
};

const drafts = {
  async server() {
    const socket = await open(new draft.Server());
    for (const text of ['one', 'two', large]) {
      const [question, from] = await socket.receive();
      assert.equal(question.toString(), text);
      await socket.send(`re: ${question}`, from);
    }
    // Nobody has this routing id.
    await assert.rejects(socket.send('nobody', { routingId: 1 }), { code: 'EHOSTUNREACH' });
    return socket;
  },

  async client() {
    const socket = await open(new draft.Client());
    for (const text of ['one', 'two', large]) {
      await socket.send(text);
      assert.deepEqual(texts(await socket.receive()), [`re: ${text}`]);
    }
    return socket;
  },

  async radio() {
    const socket = await open(new draft.Radio());
    // The other side has joined.
    assert.equal((await lines.next()).value, 'joined');
    // libzmq tells nobody of a JOIN, so the first message may come before it.
    const until = lines.next();
    for (let there = false; !there;) {
      await socket.send('sunny', { group: 'weather' });
      there = await Promise.race([until.then(() => true), new Promise((go) => setTimeout(go, 5, false))]);
    }
    for (const [group, body] of [['we', '0'], ['weather.wien', '1'], ['weather', large], ['', '2'], ['caf\u00e9', '3']]) {
      await socket.send(body, { group });
    }
    return socket;
  },

  async dish() {
    const socket = new draft.Dish();
    socket.join('weather', '', 'caf\u00e9');
    await open(socket);
    const got = [];
    for (let n = 0; n < 3; n++) {
      const [body, { group }] = await socket.receive();
      got.push([group.toString(), body.toString()]);
    }
    assert.deepEqual(got, [['weather', large], ['', '2'], ['caf\u00e9', '3']]);
    socket.leave('weather', 'caf\u00e9');
    console.log('left');
    const [body, { group }] = await socket.receive();
    assert.deepEqual([group.toString(), body.toString()], ['', 'last']);
    return socket;
  },

  async scatter() {
    const socket = await open(new draft.Scatter());
    for (let n = 0; n < 1000; n++) await socket.send(`${n}`);
    await socket.send(large);
    return socket;
  },

  async gather() {
    const socket = await open(new draft.Gather());
    for (let n = 0; n < 1000; n++) assert.deepEqual(texts(await socket.receive()), [`${n}`]);
    assert.deepEqual(texts(await socket.receive()), [large]);
    return socket;
  },
};

// What a libzmq says to `wss` that was built with WebSocket and without GnuTLS.
const withoutTls = {
  async wss() {
    const socket = new zmq.Pull();
    await assert.rejects(socket.bind('wss://127.0.0.1:0/feed'), { code: 'EPROTONOSUPPORT' });
    assert.throws(() => socket.connect('wss://127.0.0.1:1/feed'), { code: 'EPROTONOSUPPORT' });
    return socket;
  },
};

(async () => {
  const chosen = { drafts, wss: withoutTls }[process.argv[4]] ?? checks;
  for (const check of Object.values(chosen)) {
    const socket = await check();
    // The other side says when it has all.
    assert.equal((await lines.next()).value, 'done');
    socket.close();
  }
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
