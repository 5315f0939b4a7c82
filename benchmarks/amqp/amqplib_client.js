// Node's amqplib as its documentation shows it.  Arguments: role, url, work (JSON).  Speaks one line of JSON at a time.
'use strict';
const amqp = require('amqplib');
const [role, url, text] = process.argv.slice(2);
const work = JSON.parse(text);
const say = (what) => console.log(JSON.stringify(what));
const lines = require('readline').createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const heard = async () => { if ((await lines.next()).done) process.exit(); };
const seconds = () => Number(process.hrtime.bigint()) / 1e9;
const worked = () => { const used = process.cpuUsage(); return (used.user + used.system) / 1e6; };

async function publish(connection) {
  const channel = work.confirms ? await connection.createConfirmChannel() : await connection.createChannel();
  const body = Buffer.alloc(work.size, 'x');
  const options = { persistent: work.persistent };
  await heard();
  const start = seconds(), began = worked();
  for (let sent = 0; sent < work.count; sent++) {
    if (!channel.sendToQueue(work.queue, body, options)) await new Promise((go) => channel.once('drain', go));
  }
  if (work.confirms) await channel.waitForConfirms();
  say((worked() - began) / (seconds() - start));
}

async function consume(connection) {
  const channel = await connection.createChannel();
  await channel.assertQueue(work.queue, { durable: work.persistent, autoDelete: true });
  await channel.prefetch(work.prefetch);
  let left = work.count, start, began, finish;
  const done = new Promise((resolve) => { finish = resolve; });
  await channel.consume(work.queue, (message) => {
    if (left === work.count) { start = seconds(); began = worked(); }
    if (work.acks) channel.ack(message);
    if (!--left) finish();
  }, { noAck: !work.acks });
  say('ready');
  await done;
  const taken = seconds() - start;
  say([(work.count - 1) / taken, (worked() - began) / taken]);
}

(async () => {
  const connection = await amqp.connect(url, { noDelay: true });
  await (role === 'publish' ? publish : consume)(connection);
  await heard();
  await connection.close();
  process.exit();
})();
