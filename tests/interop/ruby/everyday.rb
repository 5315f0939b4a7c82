# Everyday life with Bunny: `ruby everyday.rb CHECK PORT NAME` ends with status 0 if the check holds.

require 'bunny'

def same(got, wanted)
  raise "got #{got.inspect}, wanted #{wanted.inspect}" unless got == wanted
end

module Checks
  module_function

  def publish_consume_acknowledge(connection, name)
    channel = connection.create_channel
    channel.prefetch(50)
    queue = channel.queue(name)
    1000.times { |number| channel.default_exchange.publish(number.to_s, routing_key: name) }
    got = Queue.new
    consumer = queue.subscribe(manual_ack: true) do |delivery, _, body|
      channel.ack(delivery.delivery_tag)
      got << body
    end
    same(Array.new(1000) { got.pop }, (0...1000).map(&:to_s))
    consumer.cancel
    same(queue.message_count, 0)
    queue.delete
  end

  def topology(connection, name)
    channel = connection.create_channel
    channel.confirm_select
    rest = channel.fanout("#{name}.rest")
    topic = channel.topic(name, arguments: { 'alternate-exchange' => rest.name })
    headers = channel.headers("#{name}.in", internal: true)
    headers.bind(topic, routing_key: 'a.#')
    arguments = { 'x-match' => 'any', 'wanted' => true, 'also' => 1 }
    queue = channel.queue(name).bind(headers, arguments: arguments)
    other = channel.queue('', exclusive: true).bind(rest)
    topic.publish('yes', routing_key: 'a.b', headers: { wanted: true })
    topic.publish('no', routing_key: 'a.b', headers: { wanted: false })
    topic.publish('rest', routing_key: 'b')
    same(channel.wait_for_confirms, true)
    same(queue.pop.last, 'yes')
    same(queue.pop, [nil, nil, nil])
    same(other.pop.last, 'rest')
    queue.unbind(headers, arguments: arguments)
    headers.unbind(topic, routing_key: 'a.#')
    [headers, topic, rest, queue].each(&:delete)
  end

  def confirms_and_nacks(connection, name)
    channel = connection.create_channel
    channel.confirm_select
    queue = channel.queue(name, durable: true, arguments: { 'x-max-length' => 3, 'x-overflow' => 'reject-publish' })
    3.times { queue.publish('x', persistent: true) }
    same(channel.wait_for_confirms, true)
    queue.publish('x')
    same(channel.wait_for_confirms, false)
    same(channel.nacked_set.size, 1)
    queue.delete
  end

  def returns(connection, name)
    channel = connection.create_channel
    returned = Queue.new
    exchange = channel.default_exchange
    exchange.on_return { |info, _, body| returned << [info.reply_code, body] }
    exchange.publish('lost', routing_key: name, mandatory: true)
    same(returned.pop, [312, 'lost'])
  end

  def requeue_reject_and_dead_letters(connection, name)
    channel = connection.create_channel
    dead = channel.queue("#{name}.dead")
    arguments = { 'x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => dead.name }
    queue = channel.queue(name, arguments: arguments)
    queue.publish('x')
    delivery, = queue.pop(manual_ack: true)
    channel.nack(delivery.delivery_tag, false, true)
    delivery, = queue.pop(manual_ack: true)
    same(delivery.redelivered?, true)
    arrived = Queue.new
    dead.subscribe { |_, properties, body| arrived << [properties.headers, body] }
    channel.reject(delivery.delivery_tag)
    headers, body = arrived.pop
    same([headers['x-death'][0]['reason'], headers['x-death'][0]['count'], body], ['rejected', 1, 'x'])
    [queue, dead].each(&:delete)
  end

  def properties_of_all_types_and_large_bodies(connection, name)
    channel = connection.create_channel
    queue = channel.queue(name)
    headers = {
      'text' => 'Grüße 世界'.b, 'small' => -5, 'large' => 2**50, 'fraction' => 1.25, 'yes' => true, 'none' => nil,
      'list' => [1, 'two', [3]], 'table' => { 'nested' => { 'deep' => 1 } }
    }
    sent = {
      content_type: 'text/plain', content_encoding: 'utf-8', headers: headers, priority: 3, correlation_id: 'c',
      reply_to: 'r', expiration: '60000', message_id: 'm', timestamp: 1_700_000_000, type: 't',
      user_id: 'guest', app_id: 'a'
    }
    body = 'x' * 20_000_000
    queue.publish(body, **sent)
    _, properties, got = queue.pop
    same(got == body, true)
    sent[:timestamp] = Time.at(sent[:timestamp])
    sent.each { |key, value| same(properties[key], value) }
    queue.delete
  end

  def a_queue_that_goes_away(connection, name)
    channel = connection.create_channel
    queue = channel.queue(name)
    gone = Queue.new
    consumer = Bunny::Consumer.new(channel, queue)
    consumer.on_cancellation { |cancel| gone << cancel.consumer_tag }
    queue.subscribe_with(consumer)
    connection.create_channel.queue_delete(name)
    same(gone.pop, consumer.consumer_tag)
  end

  def requests_and_replies(connection, name)
    server = connection.create_channel
    queue = server.queue(name, exclusive: true)
    queue.subscribe do |_, properties, body|
      server.default_exchange.publish(
        body.upcase, routing_key: properties.reply_to, correlation_id: properties.correlation_id
      )
    end
    client = connection.create_channel
    answers = Queue.new
    client.queue('amq.rabbitmq.reply-to', no_declare: true).subscribe do |_, properties, body|
      answers << [properties.correlation_id, body]
    end
    client.default_exchange.publish(
      'hello', routing_key: name, reply_to: 'amq.rabbitmq.reply-to', correlation_id: '1'
    )
    same(answers.pop, %w[1 HELLO])
  end

  def transactions(connection, name)
    channel = connection.create_channel
    queue = channel.queue(name)
    channel.tx_select
    queue.publish('no')
    channel.tx_rollback
    queue.publish('yes')
    channel.tx_commit
    same([queue.pop.last, queue.pop.last], ['yes', nil])
    queue.delete
  end

  def misuse(connection, name)
    connection.create_channel.queue(name, exclusive: true)
    refused = {
      Bunny::NotFound => ->(channel) { channel.queue("#{name}.none", passive: true) },
      Bunny::AccessRefused => ->(channel) { channel.queue('amq.mine') },
      Bunny::PreconditionFailed => ->(channel) { channel.queue(name, auto_delete: true, exclusive: true) }
    }
    refused.each do |error, wrong|
      wrong.call(connection.create_channel)
      raise "no #{error}"
    rescue error
      next
    end
    another = connect(connection.port)
    begin
      another.create_channel.queue(name, passive: true)
      raise 'somebody else had an exclusive queue'
    rescue Bunny::ResourceLocked
      another.close
    end
  end

  def a_wrong_password(connection, _)
    connect(connection.port, password: 'wrong')
    raise 'a wrong password was taken'
  rescue Bunny::AuthenticationFailureError
    nil
  end

  def connect(port, password: 'guest')
    Bunny.new(host: '127.0.0.1', port: port, password: password, automatically_recover: false, log_level: :fatal).start
  end
end

check, port, name = ARGV
connection = Checks.connect(Integer(port))
Checks.public_send(check, connection, name)
connection.close
