// MQTT.js as its documentation shows it.  Arguments: role, url, QoS, count, size.  Speaks one line of JSON at a time.
'use strict';
const mqtt = require('mqtt');
const [role, url, level, number, size] = process.argv.slice(2);
const qos = Number(level), count = Number(number), topic = 'mqtt.js';
const say = (what) => console.log(JSON.stringify(what));
const lines = require('readline').createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const heard = async () => { if ((await lines.next()).done) process.exit(); };
const seconds = () => Number(process.hrtime.bigint()) / 1e9;

async function subscribe(client) {
  let left = count, start, finish;
  const done = new Promise((resolve) => { finish = resolve; });
  client.on('message', () => {
    if (left === count) start = seconds();
    if (!--left) finish();
  });
  await client.subscribeAsync(topic, { qos });
  say('ready');
  await done;
  say((count - 1) / (seconds() - start));
}

async function publish(client) {
  const body = Buffer.alloc(Number(size), 'x');
  say('ready');
  await heard();
  for (let sent = 0; sent < count; sent++) {
    client.publish(topic, body, { qos });
    // Otherwise all of them wait in memory, and nothing is read meanwhile.
    if (client.stream.writableNeedDrain) await new Promise((go) => client.stream.once('drain', go));
  }
}

(async () => {
  const client = await mqtt.connectAsync(url, { reconnectPeriod: 0 });
  await (role === 'publish' ? publish : subscribe)(client);
  await heard();
  await client.endAsync();
  process.exit();
})();
