// http-rabbitmq-manager against a management API: `node management.js PORT NAME`; ends with "ok", or says what differs.
const assert = require('node:assert')
const { promisify } = require('node:util')
const manager = require('http-rabbitmq-manager')

const [port, name] = process.argv.slice(2)
const client = manager.client({ host: '127.0.0.1', port: Number(port), user: 'guest', password: 'guest' })
const call = (method, ...values) => promisify(client[method].bind(client))(...values)
const refused = (method, ...values) => assert.rejects(call(method, ...values), { message: /Status 4/ })

async function main () {
  const overview = await call('overview')
  const [node] = await call('listNodes')
  assert.strictEqual(node.name, overview.node)
  assert.strictEqual((await call('getNode', { name: node.name })).running, true)
  assert.ok(Array.isArray(await call('listExtensions')))
  assert.ok((await call('listVhosts', {})).some(row => row.name === '/'))

  const exchange = { vhost: '/', exchange: name }
  const queue = { vhost: '/', queue: name }
  await call('createExchange', { ...exchange, type: 'direct', durable: true })
  assert.strictEqual((await call('getExchange', exchange)).type, 'direct')
  await call('createQueue', { ...queue, durable: true })
  assert.strictEqual((await call('getQueue', queue)).durable, true)
  assert.ok((await call('listQueues', { vhost: '/' })).some(row => row.name === name))
  assert.deepStrictEqual((await call('getQueueBindings', queue)).map(row => row.routing_key), [name])
  assert.deepStrictEqual(await call('getBindingsForSource', exchange), [])
  await call('purgeQueue', queue)
  assert.ok((await call('listBindings', { vhost: '/' })).some(row => row.destination === name))
  assert.ok((await call('listDefinitions')).queues.some(row => row.name === name))
  await call('setClusterName', { name })
  assert.strictEqual((await call('getClusterName')).name, name)
  assert.ok(Array.isArray(await call('listConnections')))
  assert.ok(Array.isArray(await call('listChannels', {})))
  assert.ok(Array.isArray(await call('listConsumers', {})))
  await call('deleteQueue', queue)
  await refused('getQueue', queue)
  await call('deleteExchange', exchange)
  await refused('getExchange', exchange)
  console.log('ok')
}

main().catch(error => {
  console.log(error.stack)
  process.exit(1)
})
